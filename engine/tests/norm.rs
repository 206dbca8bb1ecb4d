//! ReLU, scale and shift, moments and normalisation on the CPU and on software Vulkan, against plain loops in
//! f64 and PyTorch (tests/generators/norm_pool.py).

use std::path::Path;

use burn::store::{ModuleStore, SafetensorsStore, bridge};
use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use occam_engine::Error;
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

/// `scale`: how large the terms are that each value is the sum of.
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
                let y = ops::relu(x_leaf.clone()).unwrap();
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
                let turned = floats(ops::relu(matrix).unwrap());
                let expected: Vec<_> = x.iter().zip(&gradient).flat_map(|(a, b)| [*a, *b]).collect();
                assert!(turned.iter().zip(&expected).all(|(y, x)| if passes(x) {
                    y == x || x.is_nan()
                } else {
                    *y == 0.0
                }));
            }
        }
        assert_eq!(ops::relu(Tensor::<2>::zeros([0, 3], &device)).unwrap().dims(), [0, 3]);
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

/// Mean, variance, and the gradient by x of `by_mean * mean + by_variance * variance` of every channel, in f64.
fn moments_f64(shape: [usize; 3], x: &[f32], by: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let [batch, channels, length] = shape;
    let n = (batch * length) as f64;
    let of_channel = |i: usize| i / length % channels;
    let mut moments = vec![0.0; 2 * channels];
    x.iter().enumerate().for_each(|(i, x)| moments[of_channel(i)] += f64::from(*x) / n);
    for (i, x) in x.iter().enumerate() {
        let distance = f64::from(*x) - moments[of_channel(i)];
        moments[channels + of_channel(i)] += distance * distance / n;
    }
    let slope = |(i, x): (usize, &f32)| {
        let channel = of_channel(i);
        let distance = f64::from(*x) - moments[channel];
        (f64::from(by[channel]) + 2.0 * f64::from(by[channels + channel]) * distance) / n
    };
    (moments.clone(), x.iter().enumerate().map(slope).collect())
}

#[test]
fn moments_equal_the_formula_forward_and_backward() {
    for device in devices() {
        for (number, shape) in SIZES.into_iter().enumerate() {
            let [_, channels, _] = shape;
            let mut random = Random(100 + number as u64);
            let (x, by) = (random.values(shape.iter().product()), random.values(2 * channels));
            let (moments, by_x) = moments_f64(shape, &x, &by);
            for dtype in TYPES {
                let what = format!("{shape:?} {dtype:?} on {device:?}");
                let run = || {
                    let x = leaf(&x, shape, dtype, &device);
                    let moments = ops::channel_moments(x.clone()).unwrap();
                    assert_eq!(moments.dtype(), DType::F32);
                    let by = tensor(&by, [2, channels], FloatDType::F32, &device).autodiff();
                    let gradients = (moments.clone() * by).sum().backward();
                    [floats(moments), floats(x.grad(&gradients).unwrap())]
                };
                let found = run();
                assert_eq!(found, run(), "{what}: two runs differ");
                assert_near(&found[0], &moments, 2e-6, 1.0, &what);
                // Gradients are small where channels have many values; so are the numbers of f16 below 2^-14.
                let smallest = if dtype == FloatDType::F16 { 1e-7 } else { 0.0 };
                let scale = by_x.iter().fold(0f64, |most, slope| most.max(slope.abs()));
                assert_near(&found[1], &by_x, tolerance(dtype), scale + smallest / 1e-3, &format!("{what}: by x"));
            }
        }
    }
}

/// A mean a thousand deviations away, over two million values: in plain f32 sums nothing would be left of the variance.
#[test]
fn a_large_mean_does_not_drown_the_variance() {
    let shape = [2, 1, 1_000_000];
    let mut random = Random(5);
    // Three uniform numbers in [-1, 1) have variance 1. The first value, from which others might be measured, is far off.
    let mut x: Vec<f32> = (0..2_000_000).map(|_| 1000.0 + random.next() + random.next() + random.next()).collect();
    x[0] = 0.0;
    let (expected, _) = moments_f64(shape, &x, &[0.0, 0.0]);
    for device in devices() {
        let found = floats(ops::channel_moments(tensor(&x, shape, FloatDType::F32, &device)).unwrap());
        for (found, expected) in found.iter().zip(&expected) {
            assert!((f64::from(*found) / expected - 1.0).abs() < 1e-5, "{found}, expected {expected} on {device:?}");
        }
    }
}

/// What `group_norm` gives and its gradients by x, gamma and beta, in f64; the largest inverse deviation.
struct Normal {
    y: Vec<f64>,
    by_x: Vec<f64>,
    by_gamma: Vec<f64>,
    by_beta: Vec<f64>,
    inverse: f64,
}

const EPSILON: f32 = 1e-3;

fn norm_f64(shape: [usize; 3], groups: usize, [x, gamma, beta, gradient]: [&[f32]; 4], relu: bool) -> Normal {
    let [batch, channels, length] = shape;
    let n = channels / groups * length;
    let mut out = Normal {
        y: Vec::new(),
        by_x: Vec::new(),
        by_gamma: vec![0.0; channels],
        by_beta: vec![0.0; channels],
        inverse: 0.0,
    };
    for row in 0..batch * groups {
        let x: Vec<f64> = x[row * n..(row + 1) * n].iter().map(|x| f64::from(*x)).collect();
        let mean = x.iter().sum::<f64>() / n as f64;
        let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64;
        let inverse = 1.0 / (variance + f64::from(EPSILON)).sqrt();
        out.inverse = out.inverse.max(inverse);
        let channel = |i: usize| row % groups * (channels / groups) + i / length;
        let normals: Vec<f64> = x.iter().map(|x| (x - mean) * inverse).collect();
        let slopes: Vec<f64> = (0..n)
            .map(|i| {
                let (gamma, beta) = (f64::from(gamma[channel(i)]), f64::from(beta[channel(i)]));
                let y = normals[i] * gamma + beta;
                let passed = if relu && y <= 0.0 { 0.0 } else { f64::from(gradient[row * n + i]) };
                out.y.push(if relu { y.max(0.0) } else { y });
                out.by_gamma[channel(i)] += passed * normals[i];
                out.by_beta[channel(i)] += passed;
                passed * gamma
            })
            .collect();
        let mean_slope = slopes.iter().sum::<f64>() / n as f64;
        let mean_product = slopes.iter().zip(&normals).map(|(slope, normal)| slope * normal).sum::<f64>() / n as f64;
        out.by_x.extend((0..n).map(|i| (slopes[i] - mean_slope - normals[i] * mean_product) * inverse));
    }
    out
}

/// Runs twice, and compares with the expected, in units of what each is the sum of.
fn check_norm(
    [x, gamma, beta, gradient]: [&[f32]; 4],
    shape: [usize; 3],
    dtype: FloatDType,
    device: &Device,
    expected: &Normal,
    norm: impl Fn(Tensor<3>, Tensor<1>, Tensor<1>) -> Tensor<3>,
    what: &str,
) {
    let channels = [shape[1]];
    let run = || {
        let x = leaf(x, shape, dtype, device);
        let [gamma, beta] = [gamma, beta].map(|vector| leaf(vector, channels, FloatDType::F32, device));
        let y = norm(x.clone(), gamma.clone(), beta.clone());
        assert_eq!(y.dtype(), DType::from(dtype));
        let gradient = tensor(gradient, shape, dtype, device).autodiff();
        let gradients = (y.clone() * gradient).sum().backward();
        let [gamma, beta] = [gamma, beta].map(|vector| floats(vector.grad(&gradients).unwrap()));
        [floats(y), floats(x.grad(&gradients).unwrap()), gamma, beta]
    };
    let found = run();
    assert_eq!(found, run(), "{what}: two runs differ");
    let near = tolerance(dtype);
    let terms = (shape[0] * shape[2]) as f64;
    assert_near(&found[0], &expected.y, near, 1.0, &format!("{what}: y"));
    assert_near(&found[1], &expected.by_x, near, 2.0 * expected.inverse, &format!("{what}: by x"));
    assert_near(&found[2], &expected.by_gamma, 1e-6, terms, &format!("{what}: by gamma"));
    assert_near(&found[3], &expected.by_beta, 1e-6, terms, &format!("{what}: by beta"));
}

#[test]
fn group_norm_equals_the_formula_forward_and_backward() {
    let cases = [
        ([1, 1, 1], 1),
        ([2, 4, 5], 2),
        ([1, 6, 33], 3),
        ([3, 4, 255], 4),
        ([2, 2, 20_001], 1),
        ([2, 6, 1500], 2),
        ([1, 3, 40_000], 3),
        ([9, 8, 3], 2),
        ([300, 6, 2], 1),
    ];
    for device in devices() {
        for (number, (shape, groups)) in cases.into_iter().enumerate() {
            let mut random = Random(200 + number as u64);
            let n = shape.iter().product();
            let [x, gradient] = [(); 2].map(|()| random.values(n));
            let [mut gamma, beta] = [(); 2].map(|()| random.values(shape[1]));
            // The input cannot be had back from what a gamma of 0 gives.
            gamma[shape[1] - 1] = 0.0;
            let all = [&x[..], &gamma, &beta, &gradient];
            for activation in [Activation::Identity, Activation::Relu] {
                let expected = norm_f64(shape, groups, all, activation == Activation::Relu);
                for dtype in TYPES {
                    let what = format!("{shape:?} in {groups} groups, {dtype:?} {activation:?} on {device:?}");
                    let norm = |x: Tensor<3>, gamma, beta| {
                        ops::group_norm(x, groups, gamma, beta, EPSILON, activation).unwrap()
                    };
                    check_norm(all, shape, dtype, &device, &expected, norm, &what);
                }
            }
        }
    }
}

#[test]
fn layer_norm_equals_the_formula_forward_and_backward() {
    for device in devices() {
        for (number, [rows, features]) in
            [[1, 1], [1, 7], [5, 300], [259, 16], [3, 4097], [20, 1025]].into_iter().enumerate()
        {
            let shape = [rows, features, 1];
            let mut random = Random(300 + number as u64);
            let [x, gradient] = [(); 2].map(|()| random.values(rows * features));
            let [gamma, beta] = [(); 2].map(|()| random.values(features));
            let all = [&x[..], &gamma, &beta, &gradient];
            let expected = norm_f64(shape, 1, all, true);
            for dtype in TYPES {
                let norm = |x: Tensor<3>, gamma, beta| {
                    let y = ops::layer_norm(x.reshape([rows, features]), gamma, beta, EPSILON, Activation::Relu);
                    y.unwrap().reshape(shape)
                };
                let what = format!("{rows}x{features} {dtype:?} on {device:?}");
                check_norm(all, shape, dtype, &device, &expected, norm, &what);
            }
        }
    }
}

/// Golden file of tests/generators/norm_pool.py.
#[test]
fn norms_and_relu_equal_pytorch() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/norm_pool.safetensors");
    let mut store = SafetensorsStore::from_file(path);
    let all = store.get_all_tensors().unwrap();
    let data = |name: String| bridge::to_data(&all[&name]).unwrap();
    let epsilon = 1e-5;
    for device in devices() {
        for case in ["batch", "group", "layer"] {
            let read = |name: &str| data(format!("{case}.{name}")).try_to_vec::<f32>().unwrap();
            let wide = |name: &str| read(name).into_iter().map(f64::from).collect();
            let [y, by_x, by_gamma, by_beta] = ["y", "by_x", "by_gamma", "by_beta"].map(wide);
            let expected = Normal { y, by_x, by_gamma, by_beta, inverse: 1.0 };
            let shape = if case == "layer" { [9, 21, 1] } else { [3, 4, 35] };
            let norm = |x: Tensor<3>, gamma: Tensor<1>, beta: Tensor<1>| match case {
                "group" => ops::group_norm(x, 2, gamma, beta, epsilon, Activation::Relu).unwrap(),
                "layer" => {
                    let y = ops::layer_norm(x.reshape([9, 21]), gamma, beta, epsilon, Activation::Relu);
                    y.unwrap().reshape(shape)
                }
                // As a network's layer does: statistics, then scale and shift from them.
                _ => {
                    let moments = ops::channel_moments(x.clone()).unwrap();
                    let [mean, variance] = [0, 1].map(|row| moments.clone().slice(row..row + 1).reshape([4]));
                    let scale = gamma / (variance + epsilon).sqrt();
                    let shift = beta - mean * scale.clone();
                    ops::affine(x, scale, shift, None, Activation::Relu).unwrap()
                }
            };
            let [x, gamma, beta, gradient] = ["x", "gamma", "beta", "gradient"].map(read);
            for dtype in TYPES {
                let what = format!("{case} {dtype:?} on {device:?}");
                // The gradients by x of statistics and of scale are each rounded in f16.
                check_norm([&x, &gamma, &beta, &gradient], shape, dtype, &device, &expected, norm, &what);
            }
        }
        let read = |name: &str| data(format!("relu.{name}")).try_to_vec::<f32>().unwrap();
        let x = leaf(&read("x"), [40], FloatDType::F32, &device);
        let y = ops::relu(x.clone()).unwrap();
        let gradient = tensor(&read("gradient"), [40], FloatDType::F32, &device).autodiff();
        let by_x = floats(x.grad(&(y.clone() * gradient).sum().backward()).unwrap());
        let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
        assert!(floats(y).iter().zip(&read("y")).all(same), "relu on {device:?}");
        assert_eq!(by_x, read("by_x"), "gradient of relu on {device:?}");
    }
}

#[test]
fn what_does_not_fit_is_told() {
    let device = Device::flex();
    let x = || Tensor::<3>::zeros([2, 6, 4], &device);
    let ones = |n: usize| Tensor::<1>::ones([n], &device);
    let none = Activation::Identity;
    let double = || Tensor::<3>::zeros([2, 6, 4], (&device, DType::F64));
    for (error, part) in [
        (ops::affine(x(), ones(5), ones(6), None, none).err(), "affine: scale has 5 values, expected 6"),
        (ops::affine(x(), ones(6), ones(1), None, none).err(), "affine: shift has 1 values, expected 6"),
        (
            ops::affine(x(), ones(6), ones(6), Some(Tensor::zeros([2, 6, 5], &device)), none).err(),
            "the residual is [2, 6, 5]",
        ),
        (ops::affine(x(), ones(6), ones(6), Some(double()), none).err(), "F64"),
        (ops::affine(double(), ones(6), ones(6), None, none).err(), "F64"),
        (ops::channel_moments(Tensor::zeros([0, 6, 4], &device)).err(), "[0, 6, 4] has no values"),
        (ops::channel_moments(double()).err(), "channel_moments"),
        (ops::group_norm(x(), 4, ones(6), ones(6), 1e-5, none).err(), "4 groups of 6 channels"),
        (ops::group_norm(x(), 0, ones(6), ones(6), 1e-5, none).err(), "0 groups"),
        (ops::group_norm(x(), 2, ones(6), ones(7), 1e-5, none).err(), "group_norm: beta has 7 values"),
        (ops::group_norm(x(), 2, ones(6), ones(6), 0.0, none).err(), "epsilon is 0"),
        (ops::group_norm(Tensor::zeros([2, 6, 0], &device), 2, ones(6), ones(6), 1e-5, none).err(), "no values"),
        (
            ops::layer_norm(Tensor::zeros([3, 4], &device), ones(3), ones(4), 1e-5, none).err(),
            "layer_norm: gamma has 3",
        ),
    ] {
        let Some(Error::Usage(text)) = error else { panic!("{error:?}, expected {part}") };
        assert!(text.contains(part), "{text}, expected {part}");
    }
}
