//! Convolutions on both devices: sums that half precision would lose, phases of strided gradients, and what a launch
//! costs. `conv.rs` compares every shape with f64.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use occam_engine::Error;
use occam_engine::gpu::{DeviceChoice, open};
use occam_engine::ops::conv::{ConvGeometry, ConvOptions, Epilogue, Pass, Prologue, dispatches};
use occam_engine::ops::{Activation, GemmOptions, conv, conv_transposed, gemm};

fn devices() -> Vec<(&'static str, Device)> {
    let software = open(&DeviceChoice::Name("llvmpipe".into())).expect("software Vulkan").device;
    vec![("cpu", Device::flex()), ("llvmpipe", software)]
}

fn full(shape: [usize; 5], value: f32, device: &Device) -> Tensor<5> {
    Tensor::<5>::full(shape, value, device).cast(FloatDType::F16)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(FloatDType::F32).try_into_data().expect("a result").try_to_vec().expect("f32")
}

fn assert_close(what: &str, found: f32, expected: f32) {
    assert!((found / expected - 1.0).abs() < 1e-3, "{what}: {found}, expected {expected}");
}

/// 4,608 and 4,617 products of 1 and 0.3, forward and of the input gradient, and 6,400 of a weight gradient: summed in
/// f16 each of them ends at 1,024.
#[test]
fn half_precision_sums_in_f32() {
    let third = f32::from(half::f16::from_f32(0.3));
    for (name, device) in devices() {
        let device = device.autodiff();
        for (channels, kernel) in [(512, [1, 3, 3]), (171, [3, 3, 3])] {
            let x = full([1, channels, kernel[0], 3, 3], 1.0, &device).require_grad();
            let weight = full([channels, channels, kernel[0], 3, 3], 0.3, &device).require_grad();
            let padding = kernel.map(|side| side / 2);
            let options = ConvOptions { padding, ..Default::default() };
            let y = conv(x.clone(), weight, &options, None, Epilogue::default()).unwrap();
            let middle = y.dims()[2..].iter().product::<usize>() / 2;
            let expected = (channels * kernel.iter().product::<usize>()) as f32 * third;
            assert_close(&format!("{name} forward"), values(y.clone())[middle], expected);
            let gradients = y.cast(FloatDType::F32).sum().backward();
            let gradient = x.grad(&gradients).unwrap();
            assert_eq!(gradient.dtype(), DType::F16);
            assert_close(&format!("{name} input gradient"), values(gradient)[middle], expected);
        }
        let x = full([1, 1, 1, 80, 80], 1.0, &device);
        let weight = full([1, 1, 1, 1, 1], 1.0, &device).require_grad();
        let y = conv(x, weight.clone(), &ConvOptions::default(), None, Epilogue::default()).unwrap();
        let slopes = full([1, 1, 1, 80, 80], 0.3, &device);
        let gradients = (y * slopes).cast(FloatDType::F32).sum().backward();
        assert_close(&format!("{name} weight gradient"), values(weight.grad(&gradients).unwrap())[0], 6400.0 * third);
    }
}

/// An overflow must not be hidden: NaN passes a fused ReLU as it comes.
#[test]
fn a_fused_relu_lets_nan_pass() {
    for (name, device) in devices() {
        let x = Tensor::<5>::from_data(TensorData::new(vec![f32::NAN, -1.0, 2.0], [1, 1, 1, 1, 3]), &device);
        let weight = Tensor::<5>::ones([1, 1, 1, 1, 1], &device);
        let (one, zero) = (Tensor::<1>::ones([1], &device), Tensor::<1>::zeros([1], &device));
        let prologue = Prologue { scale: one, shift: zero, activation: Activation::Relu };
        let after = Epilogue { activation: Activation::Relu, ..Default::default() };
        let options = ConvOptions::default();
        let loaded = conv(x.clone(), weight.clone(), &options, Some(prologue), Epilogue::default()).unwrap();
        let stored = conv(x.clone(), weight.clone(), &options, None, after).unwrap();
        let matrix = GemmOptions { activation: Activation::Relu, ..Default::default() };
        let product = gemm(x.reshape([1, 3, 1]), weight.reshape([1, 1, 1]), matrix).unwrap();
        for (what, found) in [("loaded", values(loaded)), ("stored", values(stored)), ("product", values(product))] {
            assert!(found[0].is_nan() && found[1..] == [0.0, 2.0], "{name} {what}: {found:?}");
        }
    }
}

fn counted(shape: [usize; 5], device: &Device) -> Tensor<5> {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|i| (i * 7919 % 17) as f32 - 8.0).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn vector(length: usize, step: f32, device: &Device) -> Tensor<1> {
    let values: Vec<f32> = (0..length).map(|i| (i as f32 - 1.0) * step).collect();
    Tensor::from_data(TensorData::new(values, [length]), device)
}

/// Fails without printing thousands of values.
fn assert_equal(what: &str, found: &[Vec<f32>], expected: &[Vec<f32>]) {
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{what}: tensor {i}");
        let place = found.iter().zip(expected).position(|(found, expected)| found != expected);
        if let Some(place) = place {
            panic!("{what}: tensor {i} at {place}: {}, expected {}", found[place], expected[place]);
        }
    }
}

/// The convolution of ReLU(x scale + shift) plus bias and residual, through ReLU, and all its gradients, against Burn's own
/// operations on the CPU, one by one. Whole numbers, so that sums are exact in any order.
#[test]
fn prologue_and_epilogue_are_what_they_say() {
    let make = |device: &Device| {
        let x = counted([2, 4, 5, 6, 7], device).require_grad();
        let weight = counted([6, 2, 3, 1, 2], device).require_grad();
        let vectors = [vector(4, 2.0, device), vector(4, 3.0, device), vector(6, 100.0, device)];
        (x, weight, vectors.map(Tensor::require_grad), counted([2, 6, 3, 6, 5], device).require_grad())
    };
    let run = |device: &Device, ours: bool| {
        let (x, weight, [scale, shift, bias], residual) = make(device);
        let y = if ours {
            let options = ConvOptions { stride: [2, 1, 1], padding: [1, 0, 0], dilation: [1, 1, 2], groups: 2 };
            let prologue = Prologue { scale: scale.clone(), shift: shift.clone(), activation: Activation::Relu };
            let epilogue =
                Epilogue { bias: Some(bias.clone()), residual: Some(residual.clone()), activation: Activation::Relu };
            conv(x.clone(), weight.clone(), &options, Some(prologue), epilogue).unwrap()
        } else {
            let loaded = x.clone() * scale.clone().reshape([1, 4, 1, 1, 1]) + shift.clone().reshape([1, 4, 1, 1, 1]);
            let loaded = burn::tensor::activation::relu(loaded);
            let options = burn::tensor::ops::ConvOptions::new([2, 1, 1], [1, 0, 0], [1, 1, 2], 2);
            let y = burn::tensor::module::conv3d(loaded, weight.clone(), Some(bias.clone()), options);
            burn::tensor::activation::relu(y + residual.clone())
        };
        let slopes = counted(y.dims(), device);
        let gradients = (y.clone() * slopes).sum().backward();
        vec![
            values(y),
            values(x.grad(&gradients).unwrap()),
            values(weight.grad(&gradients).unwrap()),
            values(scale.grad(&gradients).unwrap()),
            values(shift.grad(&gradients).unwrap()),
            values(bias.grad(&gradients).unwrap()),
            values(residual.grad(&gradients).unwrap()),
        ]
    };
    let expected = run(&Device::flex().autodiff(), false);
    for (name, device) in devices() {
        assert_equal(name, &run(&device.autodiff(), true), &expected);
    }
}

/// Strides above, at and below the kernel, dilations that share a divisor with the stride or not, and sides that leave a
/// rest: each makes other phases. Against Burn's own operation on the CPU.
#[test]
fn transposed_convolutions_meet_every_tap_once() {
    let cases = [
        ([1, 8, 8], [1, 8, 8], [0, 0, 0], [1, 1, 1], [0, 0, 0]),
        ([1, 6, 6], [1, 2, 2], [0, 2, 2], [1, 1, 1], [0, 0, 0]),
        ([4, 4, 4], [4, 4, 4], [0, 0, 0], [1, 1, 1], [0, 0, 0]),
        ([1, 1, 2], [1, 3, 3], [0, 0, 0], [1, 1, 1], [0, 2, 1]),
        ([3, 2, 3], [2, 4, 3], [1, 0, 2], [2, 2, 2], [1, 3, 0]),
    ];
    for (kernel, stride, padding, dilation, output_padding) in cases {
        let run = |device: &Device, ours: bool| {
            let x = counted([2, 4, 3, 4, 5], device).require_grad();
            let weight = counted([4, 3, kernel[0], kernel[1], kernel[2]], device).require_grad();
            let bias = Some(vector(6, 10.0, device));
            let y = if ours {
                let options = ConvOptions { stride, padding, dilation, groups: 2 };
                let epilogue = Epilogue { bias, ..Default::default() };
                conv_transposed(x.clone(), weight.clone(), &options, output_padding, epilogue).unwrap()
            } else {
                let options =
                    burn::tensor::ops::ConvTransposeOptions::new(stride, padding, output_padding, dilation, 2);
                burn::tensor::module::conv_transpose3d(x.clone(), weight.clone(), bias, options)
            };
            let slopes = counted(y.dims(), device);
            let gradients = (y.clone() * slopes).sum().backward();
            vec![values(y), values(x.grad(&gradients).unwrap()), values(weight.grad(&gradients).unwrap())]
        };
        let expected = run(&Device::flex().autodiff(), false);
        for (name, device) in devices() {
            let what = format!("{name}: kernel {kernel:?}, stride {stride:?}");
            assert_equal(&what, &run(&device.autodiff(), true), &expected);
        }
    }
}

/// Input channels, output channels, kernel, stride, padding, dilation, sides of the input.
type Layer = (usize, usize, [usize; 3], usize, usize, usize, [usize; 3]);

fn geometry((channels_in, channels_out, kernel, stride, padding, dilation, sides): Layer) -> ConvGeometry {
    // The networks' planes have depth 1 and nothing happens along it.
    let flat =
        |value: usize, one: usize| if kernel[0] == 1 && sides[0] == 1 { [one, value, value] } else { [value; 3] };
    let options =
        ConvOptions { stride: flat(stride, 1), padding: flat(padding, 0), dilation: flat(dilation, 1), groups: 1 };
    let [d, h, w] = sides;
    ConvGeometry::new([1, channels_in, d, h, w], [channels_out, channels_in, kernel[0], kernel[1], kernel[2]], &options)
        .unwrap()
}

/// Every convolution of LMSCNet and of SSCNet at 256x256x32 with 20 classes, by hand from the papers' figures; transposed
/// ones as the convolutions they turn round. A GPU of 1 TFLOP/s and 25 GB/s never works longer than 100 ms on a dispatch,
/// and no pass counts fewer operations than its products.
#[test]
fn no_dispatch_of_the_networks_takes_100_ms() {
    let square = |side: usize| [1, side, side];
    let (flat, cube) = ([1, 3, 3], [3; 3]);
    let mut layers: Vec<Layer> = vec![
        (32, 32, flat, 1, 1, 1, square(256)),
        (32, 48, flat, 1, 1, 1, square(128)),
        (48, 48, flat, 1, 1, 1, square(128)),
        (48, 64, flat, 1, 1, 1, square(64)),
        (64, 64, flat, 1, 1, 1, square(64)),
        (64, 80, flat, 1, 1, 1, square(32)),
        (80, 80, flat, 1, 1, 1, square(32)),
        (80, 4, flat, 1, 1, 1, square(32)),
        (4, 4, [1, 4, 4], 4, 0, 1, square(128)),
        (4, 4, [1, 8, 8], 8, 0, 1, square(256)),
        (4, 4, [1, 6, 6], 2, 2, 1, square(64)),
        (68, 64, flat, 1, 1, 1, square(64)),
        (64, 8, flat, 1, 1, 1, square(64)),
        (8, 8, [1, 4, 4], 4, 0, 1, square(256)),
        (8, 8, [1, 6, 6], 2, 2, 1, square(128)),
        (60, 48, flat, 1, 1, 1, square(128)),
        (48, 16, flat, 1, 1, 1, square(128)),
        (16, 16, [1, 6, 6], 2, 2, 1, square(256)),
        (60, 32, flat, 1, 1, 1, square(256)),
    ];
    let full = [32, 256, 256];
    layers.extend([(1, 8, cube, 1, 1, 1, full), (8, 20, cube, 1, 1, 1, full)]);
    layers.extend((1..=3).map(|dilation| (8, 8, cube, 1, dilation, dilation, full)));
    let (half, quarter) = ([16, 128, 128], [8, 64, 64]);
    layers.extend([
        (1, 16, [7; 3], 2, 3, 1, full),
        (16, 32, [1; 3], 1, 0, 1, half),
        (16, 32, cube, 1, 1, 1, half),
        (32, 32, cube, 1, 1, 1, half),
        (32, 64, cube, 1, 1, 1, quarter),
        (64, 64, [1; 3], 1, 0, 1, quarter),
        (64, 64, cube, 1, 1, 1, quarter),
        (64, 64, cube, 1, 2, 2, quarter),
        (192, 128, [1; 3], 1, 0, 1, quarter),
        (128, 128, [1; 3], 1, 0, 1, quarter),
        (20, 128, [4; 3], 4, 0, 1, full),
    ]);
    let mut most = 0;
    for layer in layers {
        let geometry = geometry(layer);
        let products = geometry.output().iter().product::<usize>() * geometry.weight()[1..].iter().product::<usize>();
        for pass in [Pass::Forward, Pass::InputGradient, Pass::WeightGradient] {
            let all = dispatches(&geometry, pass);
            most = all.len().max(most);
            for cost in &all {
                assert!(cost.seconds() < 0.1, "{pass:?} of {geometry}: {} takes {} s", cost.name, cost.seconds());
            }
            // The input gradient multiplies no tap outside the grid of a stride: padding may save it some.
            let flops: u64 = all.iter().map(|cost| cost.flops).sum();
            assert!(flops * 10 >= 9 * 2 * products as u64, "{pass:?} of {geometry}: {flops} of {products} products");
        }
    }
    assert!(most > 2, "nothing was split: the limit is not tested");
}

#[test]
fn what_does_not_fit_is_refused_with_shapes_and_limit() {
    for (name, device) in devices() {
        let one = Tensor::<5>::ones([1, 1, 1, 1, 2], &device);
        let weight = Tensor::<5>::ones([1, 1, 1, 1, 1], &device);
        let options = ConvOptions::default();
        let bias = Some(Tensor::<1>::ones([3], &device));
        let refused = conv(one.clone(), weight.clone(), &options, None, Epilogue { bias, ..Default::default() });
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("1x1x1x1x2") && text.contains("a bias of 3 values, expected 1"), "{name}: {text}");
        let half = weight.clone().cast(FloatDType::F16);
        let text = conv(one.clone(), half, &options, None, Epilogue::default()).unwrap_err().to_string();
        assert!(text.contains("F32") && text.contains("F16"), "{name}: {text}");
        let residual = Some(Tensor::<5>::ones([1, 1, 1, 1, 3], &device));
        let epilogue = Epilogue { residual, ..Default::default() };
        let text = conv(one.clone(), weight.clone(), &options, None, epilogue).unwrap_err().to_string();
        assert!(text.contains("a residual 1x1x1x1x3") && text.contains("expected 1x1x1x1x2"), "{name}: {text}");
        if name != "cpu" {
            // 141 MB from 40 kB, and 128 MiB may be bound.
            let small = Tensor::<5>::ones([1, 1, 1, 100, 100], &device);
            let options = ConvOptions { stride: [1, 60, 60], ..options };
            let refused = conv_transposed(small, weight.clone(), &options, [0; 3], Epilogue::default());
            let Err(Error::TooLarge(text)) = refused else { panic!("{name}: {refused:?}") };
            assert!(text.contains("1x1x1x5941x5941") && text.contains("134217728"), "{text}");
            let options = ConvOptions { stride: [1, 1, 5000], ..options };
            let refused = conv_transposed(one, weight, &options, [0; 3], Epilogue::default());
            let Err(Error::TooLarge(text)) = refused else { panic!("{name}: {refused:?}") };
            assert!(text.contains("5000 products of strides") && text.contains("4096"), "{text}");
        }
    }
}
