//! ReLU, scale and shift, moments and normalisation on the CPU and on software Vulkan, against plain loops in f64.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::ops::{self, Activation};

fn devices() -> [Device; 2] {
    [Device::flex(), gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device]
}

/// SplitMix64, uniform in [-1, 1).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Values that f16 holds exactly, so that both types compute from the same numbers.
    fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() * 512.0).round() / 256.0).collect()
    }
}

const TYPES: [FloatDType; 2] = [FloatDType::F32, FloatDType::F16];

fn tensor<const D: usize>(values: &[f32], shape: [usize; D], dtype: FloatDType, device: &Device) -> Tensor<D> {
    Tensor::<D>::from_data(TensorData::new(values.to_vec(), shape), device).cast(dtype)
}

/// A tensor whose gradient is asked for.
fn leaf<const D: usize>(values: &[f32], shape: [usize; D], dtype: FloatDType, device: &Device) -> Tensor<D> {
    tensor(values, shape, dtype, &device.clone().autodiff()).require_grad()
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(FloatDType::F32).try_into_data().unwrap().try_to_vec::<f32>().unwrap()
}

/// Rounding of a result in this type, and of f32 sums.
fn tolerance(dtype: FloatDType) -> f64 {
    if dtype == FloatDType::F16 { 1e-3 } else { 2e-6 }
}

/// `scales`: how large the terms are that each value is the sum of.
#[track_caller]
fn assert_near(found: &[f32], expected: &[f64], tolerance: f64, scale: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        assert!(error <= tolerance * (scale + expected.abs()), "{what}: [{i}] is {found}, expected {expected}");
    }
}

/// Sizes of `[batch, channels, length]` around what a workgroup and a block hold, in all layouts: one value, one channel,
/// long rows in parts, short rows by columns in parts.
const SIZES: [[usize; 3]; 12] = [
    [1, 1, 1],
    [2, 3, 5],
    [1, 1, 4097],
    [3, 5, 255],
    [1, 17, 1024],
    [2, 2, 1025],
    [1, 2, 33_000],
    [2, 3, 20_001],
    [9, 3, 1],
    [17_000, 1, 1],
    [70, 300, 1],
    [331, 5, 7],
];

#[test]
fn relu_is_exact_and_keeps_nan() {
    for device in devices() {
        for dtype in TYPES {
            for n in [1, 31, 32, 33, 255, 8191, 8192, 8193, 40_000] {
                let mut random = Random(n as u64);
                let (mut x, gradient) = (random.values(n), random.values(n));
                for (place, odd) in [(0, -0.0), (3, f32::NAN), (5, f32::INFINITY), (8, f32::NEG_INFINITY), (9, 0.0)] {
                    if place < n {
                        x[place] = odd;
                    }
                }
                let what = format!("{n} {dtype:?} on {device:?}");
                let x_leaf = leaf(&x, [n], dtype, &device);
                let y = ops::relu(x_leaf.clone());
                assert_eq!(y.dtype(), DType::from(dtype));
                let loss = (y.clone() * tensor(&gradient, [n], dtype, &device).autodiff()).sum();
                let found = floats(x_leaf.grad(&loss.backward()).unwrap());
                let passes = |x: &f32| *x > 0.0 || x.is_nan();
                for (i, y) in floats(y.clone()).iter().enumerate() {
                    let expected = if passes(&x[i]) { x[i] } else { 0.0 };
                    assert!(
                        *y == expected || y.is_nan() && expected.is_nan(),
                        "{what}: [{i}] {y}, expected {expected}"
                    );
                    assert_eq!(found[i], if passes(&x[i]) { gradient[i] } else { 0.0 }, "{what}: gradient [{i}]");
                }
                // A view, and without autodiff.
                let matrix = tensor(&[&x[..], &gradient].concat(), [2, n], dtype, &device).transpose();
                let turned = floats(ops::relu(matrix));
                let expected: Vec<_> = x.iter().zip(&gradient).flat_map(|(a, b)| [*a, *b]).collect();
                assert!(turned.iter().zip(&expected).all(|(y, x)| if passes(x) {
                    y == x || x.is_nan()
                } else {
                    *y == 0.0
                }));
            }
        }
        assert_eq!(ops::relu(Tensor::<2>::zeros([0, 3], &device)).dims(), [0, 3]);
    }
}

/// What `affine` gives and its gradients, in f64.
struct Affine {
    y: Vec<f64>,
    by_x: Vec<f64>,
    by_scale: Vec<f64>,
    by_shift: Vec<f64>,
    by_residual: Vec<f64>,
}

fn affine_f64(
    [_, channels, length]: [usize; 3],
    [x, scale, shift, residual, gradient]: [&[f32]; 5],
    relu: bool,
) -> Affine {
    let mut out = Affine {
        y: Vec::new(),
        by_x: Vec::new(),
        by_scale: vec![0.0; channels],
        by_shift: vec![0.0; channels],
        by_residual: Vec::new(),
    };
    for i in 0..x.len() {
        let channel = i / length % channels;
        let [x, scale, shift, residual, gradient] =
            [x[i], scale[channel], shift[channel], residual.get(i).copied().unwrap_or(0.0), gradient[i]].map(f64::from);
        let y = x * scale + shift + residual;
        let passes = !relu || y > 0.0;
        let gradient = if passes { gradient } else { 0.0 };
        out.y.push(if passes { y } else { 0.0 });
        out.by_x.push(gradient * scale);
        out.by_residual.push(gradient);
        out.by_scale[channel] += gradient * x;
        out.by_shift[channel] += gradient;
    }
    out
}

#[test]
fn affine_equals_the_formula_forward_and_backward() {
    for device in devices() {
        for (number, shape) in SIZES.into_iter().enumerate() {
            let [_, channels, _] = shape;
            let n = shape.iter().product();
            let mut random = Random(number as u64);
            let [x, residual, gradient] = [(); 3].map(|()| random.values(n));
            let [scale, shift] = [(); 2].map(|()| random.values(channels));
            for dtype in TYPES {
                for (activation, with_residual) in [
                    (Activation::Identity, false),
                    (Activation::Relu, false),
                    (Activation::Identity, true),
                    (Activation::Relu, true),
                ] {
                    let what = format!("{shape:?} {dtype:?} {activation:?} {with_residual} on {device:?}");
                    let run = || {
                        let x = leaf(&x, shape, dtype, &device);
                        let scale = leaf(&scale, [channels], FloatDType::F32, &device);
                        let shift = leaf(&shift, [channels], FloatDType::F32, &device);
                        let residual = with_residual.then(|| leaf(&residual, shape, dtype, &device));
                        let y = ops::affine(x.clone(), scale.clone(), shift.clone(), residual.clone(), activation);
                        let y = y.unwrap();
                        assert_eq!(y.dtype(), DType::from(dtype));
                        let gradient = tensor(&gradient, shape, dtype, &device).autodiff();
                        let gradients = (y.clone() * gradient).sum().backward();
                        let mut found = vec![floats(y), floats(x.grad(&gradients).unwrap())];
                        found.extend([scale, shift].map(|vector| floats(vector.grad(&gradients).unwrap())));
                        found.extend(residual.map(|residual| floats(residual.grad(&gradients).unwrap())));
                        found
                    };
                    let found = run();
                    assert_eq!(found, run(), "{what}: two runs differ");
                    let is_relu = activation == Activation::Relu;
                    let residual: &[f32] = if with_residual { &residual } else { &[] };
                    let expected = affine_f64(shape, [&x, &scale, &shift, residual, &gradient], is_relu);
                    let near = tolerance(dtype);
                    assert_near(&found[0], &expected.y, near, 1.0, &format!("{what}: y"));
                    assert_near(&found[1], &expected.by_x, near, 1.0, &format!("{what}: by x"));
                    // Sums are taken in f32 from exact numbers, whatever the type of the tensors.
                    let terms = (n / channels) as f64;
                    assert_near(&found[2], &expected.by_scale, 2e-7, terms, &format!("{what}: by scale"));
                    assert_near(&found[3], &expected.by_shift, 2e-7, terms, &format!("{what}: by shift"));
                    if with_residual {
                        assert_near(&found[4], &expected.by_residual, 0.0, 1.0, &format!("{what}: by residual"));
                    }
                }
            }
        }
    }
}
