//! Kernels against their CPU twins, on software Vulkan (Debian: mesa-vulkan-drivers). One device for all tests.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::ops;

fn vulkan() -> Device {
    gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device
}

fn cpu() -> Device {
    gpu::open(&DeviceChoice::Cpu).unwrap().device
}

/// Numbers without any pattern, the same on every run.
fn random(n: usize, seed: u32) -> Vec<u32> {
    let mut state = seed;
    let step = |state: u32| (state ^ (state >> 15)).wrapping_mul(0x2c1b_3c6d) ^ (state >> 12);
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9);
        step(step(state))
    };
    (0..n).map(|_| next()).collect()
}

fn ints(values: &[u32], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), (device, DType::U32))
}

fn words<const D: usize>(tensor: Tensor<D, Int>) -> Vec<u32> {
    tensor.try_into_data().unwrap().try_to_vec::<u32>().unwrap()
}

/// 0, 1, around a workgroup, around a block, and an odd number of blocks of blocks.
const SIZES: [usize; 10] = [0, 1, 2, 255, 256, 257, 1023, 1024, 1025, 8_191];

#[test]
fn scan_equals_its_twin() {
    let (vulkan, cpu) = (vulkan(), cpu());
    for n in SIZES.into_iter().chain([1024 * 1024 + 1025]) {
        let values = random(n, 7);
        let on_cpu = words(ops::exclusive_scan(ints(&values, &cpu)));
        assert_eq!(on_cpu.len(), n + 1);
        let on_vulkan = words(ops::exclusive_scan(ints(&values, &vulkan)));
        assert!(on_vulkan == on_cpu, "{n} values");
        assert!(words(ops::exclusive_scan(ints(&values, &vulkan))) == on_vulkan, "{n} values: two runs differ");
    }
}

/// More blocks than one dispatch takes, more than 65,535 workgroups' worth of threads.
#[test]
fn a_long_scan_is_split() {
    let n = 16_384 * 1024 + 77_777;
    let device = vulkan();
    let out = words(ops::exclusive_scan(ints(&vec![3; n], &device)));
    assert_eq!(out.len(), n + 1);
    let wrong = out.iter().enumerate().find(|(i, sum)| **sum != 3 * *i as u32);
    assert_eq!(wrong, None);
}
