//! Choosing and opening devices, and their memory. Needs software Vulkan (Debian: mesa-vulkan-drivers).

use std::process::Command;

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use occam_engine::Error;
use occam_engine::gpu::{self, AdapterKind, CountingAllocator, DeviceChoice, Variant};
use occam_engine::ops::Activation;
use occam_engine::ops::conv::{ConvOptions, Epilogue, Prologue, conv};
use occam_engine::ops::gemm::{GemmOptions, Layout, gemm};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn llvmpipe() -> DeviceChoice {
    DeviceChoice::Name("LLVMPIPE".into())
}

#[test]
fn software_vulkan_is_listed_and_opens_once() {
    let adapters = gpu::adapters();
    let listed = adapters.iter().find(|adapter| adapter.name.contains("llvmpipe")).unwrap();
    assert_eq!((listed.kind, listed.backend.as_str()), (AdapterKind::Software, "Vulkan"));
    assert!(listed.max_binding_bytes >= 128 << 20 && listed.max_storage_buffers >= 8, "{listed:?}");

    let opened = gpu::open(&llvmpipe()).unwrap();
    assert_eq!(opened.adapter.as_ref(), Some(listed));
    assert!(opened.label.contains("llvmpipe") && opened.label.contains("Vulkan, software"), "{}", opened.label);
    assert_eq!(opened.notice, None, "it was asked for");
    let again = gpu::open(&DeviceChoice::Index(listed.index)).unwrap();
    assert_eq!(again.device, opened.device);
    let sum = Tensor::<1>::from_floats([1.0, 2.0], &again.device).sum();
    assert_eq!(sum.into_scalar::<f32>(), 3.0);
}

#[test]
fn auto_takes_hardware_or_says_that_it_is_the_cpu() {
    let opened = gpu::open(&DeviceChoice::Auto).unwrap();
    if gpu::adapters().iter().any(|adapter| adapter.kind.is_hardware()) {
        assert!(opened.adapter.unwrap().kind.is_hardware());
    } else {
        let notice = opened.notice.unwrap();
        assert!(notice.contains("CPU") && notice.contains("install") && notice.contains("llvmpipe"), "{notice}");
        assert_eq!((opened.adapter, notice.lines().count()), (None, 1));
    }
    assert_eq!(gpu::open(&DeviceChoice::Cpu).unwrap().notice, None);
}

#[test]
fn what_does_not_exist_is_refused_with_a_list() {
    for choice in [DeviceChoice::Name("Voodoo 2".into()), DeviceChoice::Index(99)] {
        let Err(Error::Usage(message)) = gpu::open(&choice) else { panic!("{choice:?} was opened") };
        assert!(message.contains("llvmpipe") && message.contains("cpu"), "{message}");
    }
}

/// Runs itself again where the Vulkan loader finds no driver.
#[test]
fn without_a_driver_nothing_is_listed_and_nothing_printed() {
    if std::env::var_os("VK_DRIVER_FILES").is_none_or(|files| files != "/dev/null") {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "without_a_driver_nothing_is_listed_and_nothing_printed"])
            .env("VK_DRIVER_FILES", "/dev/null")
            .output()
            .unwrap();
        let (out, error) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        assert!(child.status.success() && out.contains("1 passed") && error.is_empty(), "{out}{error}");
        return;
    }
    assert_eq!(gpu::adapters(), []);
    let opened = gpu::open(&DeviceChoice::Auto).unwrap();
    assert!(opened.adapter.is_none() && opened.notice.is_some());
    for choice in [llvmpipe(), DeviceChoice::Index(0)] {
        let Err(Error::Usage(message)) = gpu::open(&choice) else { panic!("{choice:?} was replaced") };
        assert!(message.contains("no GPU at all"), "{message}");
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn memory_of_a_gpu_is_read_from_its_pool() {
    let device = gpu::open(&llvmpipe()).unwrap().device;
    let before = gpu::memory_use(&device).unwrap().in_use_bytes;
    let tensor = Tensor::<1>::zeros([MIB as usize], &device);
    let with = gpu::memory_use(&device.clone().autodiff()).unwrap();
    assert!((before + 4 * MIB..before + 5 * MIB).contains(&with.in_use_bytes), "{before} {with:?}");
    assert!(with.reserved_bytes >= with.in_use_bytes && with.peak_bytes >= with.in_use_bytes, "{with:?}");
    drop(tensor);
    let after = gpu::memory_use(&device).unwrap();
    assert!(after.in_use_bytes < with.in_use_bytes && after.peak_bytes >= with.in_use_bytes, "{with:?} {after:?}");
}

#[test]
fn memory_of_the_cpu_is_counted() {
    let device = gpu::open(&DeviceChoice::Cpu).unwrap().device;
    let before = gpu::memory_use(&device).unwrap();
    let mut bytes = vec![1u8; 64 * MIB as usize];
    let with = gpu::memory_use(&device).unwrap();
    assert!(with.in_use_bytes >= before.in_use_bytes + 60 * MIB, "{before:?} {with:?}");
    bytes.truncate(MIB as usize);
    bytes.shrink_to_fit();
    let after = gpu::memory_use(&device).unwrap();
    assert!(after.in_use_bytes + 60 * MIB <= with.in_use_bytes, "{with:?} {after:?}");
    assert!(after.peak_bytes >= with.in_use_bytes, "{with:?} {after:?}");
}

#[test]
fn a_tensor_beyond_the_limit_is_refused() {
    let opened = gpu::open(&llvmpipe()).unwrap();
    let limit = opened.adapter.unwrap().max_binding_bytes;
    gpu::check_binding(&opened.device, &"the grid", limit).unwrap();
    let device = opened.device.autodiff();
    let Err(Error::TooLarge(message)) = gpu::check_binding(&device, &"the grid", limit + 1) else {
        panic!("too large")
    };
    for part in ["the grid", &(limit + 1).to_string(), &limit.to_string(), "cpu"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    gpu::check_binding(&gpu::open(&DeviceChoice::Cpu).unwrap().device, &"the grid", limit + 1).unwrap();
}

#[test]
fn a_device_knows_its_adapter_and_its_numbers() {
    let opened = gpu::open(&llvmpipe()).unwrap();
    let adapter = gpu::adapter_of(&opened.device.clone().autodiff());
    assert!(adapter.is_some());
    assert_eq!(adapter, opened.adapter);
    assert_eq!(gpu::supports_f16(&opened.device), adapter.unwrap().f16);

    let cpu = gpu::open(&DeviceChoice::Cpu).unwrap().device;
    assert_eq!(gpu::adapter_of(&cpu), None);
    assert!(gpu::supports_f16(&cpu));
    for device in [&cpu, &opened.device] {
        gpu::check_dtype(device, &"gemm", DType::F32).unwrap();
        let Err(Error::Usage(message)) = gpu::check_dtype(device, &"gemm: a", DType::I64) else { panic!("integers") };
        assert_eq!(message, "gemm: a: I64, expected f32 or f16");
    }
}

fn matrix(device: &Device, sides: [usize; 2], value: impl Fn(usize, usize) -> f32) -> Tensor<3> {
    let values: Vec<f32> = (0..sides[0] * sides[1]).map(|place| value(place / sides[1], place % sides[1])).collect();
    Tensor::<3>::from_data(TensorData::new(values, [1, sides[0], sides[1]]), device).cast(FloatDType::F16)
}

/// Whole numbers of -`most` to `most` in f16, in an order without a pattern.
fn numbers(device: &Device, sides: [usize; 5], most: usize) -> Tensor<5> {
    let scattered = |place: usize| (place.wrapping_mul(2654435761) >> 7) % (2 * most + 1);
    let values: Vec<f32> = (0..sides.iter().product()).map(|place| scattered(place) as f32 - most as f32).collect();
    Tensor::<5>::from_data(TensorData::new(values, sides), device).cast(FloatDType::F16)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(FloatDType::F32).into_data().try_to_vec::<f32>().unwrap()
}

/// In f16, and with whole numbers whose sums are exact in it, so that no variant may differ.
#[test]
fn products_and_convolutions_are_equal_in_every_variant() {
    let device = gpu::open(&llvmpipe()).unwrap().device;
    let (m, n, k) = (70, 133, 37);
    let a = |row: usize, k: usize| ((row * 5 + k * 3) % 13) as f32 - 6.0;
    let b = |k: usize, col: usize| ((k * 7 + col * 11) % 17) as f32 - 8.0;
    let expected: Vec<f32> =
        (0..m * n).map(|place| (0..k).map(|k| a(place / n, k) * b(k, place % n)).sum::<f32>().max(0.0)).collect();
    let mut plain = None;
    for variant in [Variant::Plain, Variant::Subgroup, Variant::Cooperative] {
        gpu::only_variant(Some(variant));
        for layout in [Layout::Normal, Layout::Transposed] {
            let (a, b) = match layout {
                Layout::Normal => (matrix(&device, [m, k], a), matrix(&device, [k, n], b)),
                Layout::Transposed => {
                    (matrix(&device, [k, m], |k, row| a(row, k)), matrix(&device, [n, k], |col, k| b(k, col)))
                }
            };
            let options = GemmOptions { a: layout, b: layout, activation: Activation::Relu, ..Default::default() };
            assert_eq!(values(gemm(a, b, options).unwrap()), expected, "{variant} {layout:?}");
        }
        let found = convolution(&device);
        // The forward pass and all gradients; that the plain ones are right is tested elsewhere.
        assert!(found.iter().all(|values| values.iter().any(|value| *value != 0.0)), "{variant}");
        assert!(*plain.get_or_insert_with(|| found.clone()) == found, "{variant}");
    }
    gpu::only_variant(None);
}

/// A strided convolution with everything fused in: its output and the gradients of input, weights and scale.
fn convolution(device: &Device) -> [Vec<f32>; 4] {
    let device = device.clone().autodiff();
    let x = numbers(&device, [2, 5, 5, 6, 7], 2).detach().require_grad();
    let weight = numbers(&device, [20, 5, 3, 3, 3], 1).detach().require_grad();
    let scale = Tensor::<1>::full([5], 2.0, &device).require_grad();
    let prologue =
        Prologue { scale: scale.clone(), shift: Tensor::full([5], -1.0, &device), activation: Activation::Relu };
    let options = ConvOptions { stride: [1, 1, 2], padding: [1; 3], ..Default::default() };
    let y = conv(x.clone(), weight.clone(), &options, Some(prologue), Epilogue::default()).unwrap();
    let gradient = numbers(&device, y.dims(), 1);
    let gradients = (y.clone() * gradient).cast(FloatDType::F32).sum().backward();
    [
        values(y),
        values(x.grad(&gradients).unwrap()),
        values(weight.grad(&gradients).unwrap()),
        values(scale.grad(&gradients).unwrap()),
    ]
}
