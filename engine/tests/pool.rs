//! Max pooling on the CPU and on software Vulkan: against a plain loop and PyTorch (tests/generators/norm_pool.py), exactly.

use std::path::Path;

use burn::store::{ModuleStore, SafetensorsStore, bridge};
use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use half::f16;
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::{Error, ops};

fn devices() -> [Device; 2] {
    [Device::flex(), gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device]
}

/// Multiples of 1/4 from -4 to 4: exact in f16, and so are their sums; many are equal.
fn quarters(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % 33
    };
    (0..n).map(|_| next() as f32 / 4.0 - 4.0).collect()
}

struct Case {
    shape: [usize; 5],
    window: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
}

impl Case {
    fn shape_out(&self) -> [usize; 5] {
        let [batch, channels, sides @ ..] = self.shape;
        let [d, h, w] = [0, 1, 2].map(|a| (sides[a] + 2 * self.padding[a] - self.window[a]) / self.stride[a] + 1);
        [batch, channels, d, h, w]
    }

    /// Result and gradient, by definition.
    fn expected(&self, x: &[f32], gradient: &[f32]) -> (Vec<f32>, Vec<f64>) {
        let [batch, channels, depth, height, width] = self.shape;
        let [_, _, depth_out, height_out, width_out] = self.shape_out();
        let (mut y, mut by_x) = (Vec::new(), vec![0.0; x.len()]);
        let along = |axis: usize, out: usize, tap: usize| {
            let sides = [depth, height, width];
            (out * self.stride[axis] + tap).checked_sub(self.padding[axis]).filter(|place| *place < sides[axis])
        };
        for plane in 0..batch * channels {
            for place in 0..depth_out * height_out * width_out {
                let out = [place / (height_out * width_out), place / width_out % height_out, place % width_out];
                let mut best: Option<usize> = None;
                for tap in 0..self.window.iter().product() {
                    let [_, window_h, window_w] = self.window;
                    let tap = [tap / (window_h * window_w), tap / window_w % window_h, tap % window_w];
                    let [Some(d), Some(h), Some(w)] = [0, 1, 2].map(|axis| along(axis, out[axis], tap[axis])) else {
                        continue;
                    };
                    let i = ((plane * depth + d) * height + h) * width + w;
                    if best.is_none_or(|best| x[i] > x[best] || x[i].is_nan()) {
                        best = Some(i);
                    }
                }
                let best = best.expect("no window lies outside");
                by_x[best] += f64::from(gradient[y.len()]);
                y.push(x[best]);
            }
        }
        (y, by_x)
    }

    fn run(&self, x: &[f32], gradient: &[f32], dtype: FloatDType, device: &Device) -> [Vec<f32>; 2] {
        let device = device.clone().autodiff();
        let leaf = Tensor::<5>::from_data(TensorData::new(x.to_vec(), self.shape), &device).cast(dtype).require_grad();
        let y = ops::max_pool(leaf.clone(), self.window, self.stride, self.padding).unwrap();
        let gradient = Tensor::<5>::from_data(TensorData::new(gradient.to_vec(), self.shape_out()), &device);
        let gradients = (y.clone() * gradient.cast(dtype)).sum().backward();
        [floats(y), floats(leaf.grad(&gradients).unwrap())]
    }

    /// Both devices and types equal what is expected, bit for bit but for the bits of NaN, and two runs each other.
    fn check(&self, x: &[f32], gradient: &[f32], expected: &(Vec<f32>, Vec<f64>), devices: &[Device]) {
        for device in devices {
            for dtype in [FloatDType::F32, FloatDType::F16] {
                let Self { shape, window, stride, padding } = self;
                let what = format!("{shape:?} {window:?} {stride:?} {padding:?} {dtype:?} on {device:?}");
                let [y, by_x] = self.run(x, gradient, dtype, device);
                let rounded =
                    |sum: &f64| if dtype == FloatDType::F16 { f16::from_f64(*sum).to_f32() } else { *sum as f32 };
                assert_same(&y, &expected.0, &what);
                assert_same(&by_x, &expected.1.iter().map(rounded).collect::<Vec<_>>(), &format!("{what}: gradient"));
                let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                let again = self.run(x, gradient, dtype, device);
                assert!([bits(&y), bits(&by_x)] == again.map(|values| bits(&values)), "{what}: two runs differ");
            }
        }
    }
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(FloatDType::F32).try_into_data().unwrap().try_to_vec::<f32>().unwrap()
}

#[track_caller]
fn assert_same(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            found == expected || found.is_nan() && expected.is_nan(),
            "{what}: [{i}] is {found}, expected {expected}"
        );
    }
}

#[test]
fn pooling_equals_its_definition_on_ugly_sizes() {
    let devices = devices();
    let case = |shape, window, stride, padding| Case { shape, window, stride, padding };
    for (number, case) in [
        case([1, 1, 1, 1, 1], [1; 3], [1; 3], [0; 3]),
        case([2, 3, 1, 8, 6], [1, 2, 2], [1, 2, 2], [0; 3]),
        case([1, 2, 4, 6, 10], [2; 3], [2; 3], [0; 3]),
        case([2, 1, 5, 7, 9], [2; 3], [2; 3], [0; 3]),
        case([1, 3, 5, 4, 67], [3; 3], [1; 3], [1; 3]),
        case([2, 2, 6, 7, 8], [3, 2, 3], [2, 3, 1], [1, 0, 1]),
        case([1, 2, 1, 1, 1100], [1, 1, 5], [1, 1, 5], [0, 0, 2]),
        case([1, 1, 3, 1, 2050], [2, 1, 3], [1, 1, 3], [1, 0, 0]),
        case([1, 1, 1, 30, 31], [1, 16, 16], [1, 7, 4], [0, 8, 8]),
        // Steps that leave voxels out.
        case([3, 1, 1, 9, 11], [1, 2, 1], [1, 4, 3], [0; 3]),
    ]
    .into_iter()
    .enumerate()
    {
        let mut x = quarters(case.shape.iter().product(), number as u32);
        let gradient = quarters(case.shape_out().iter().product(), 99);
        case.check(&x, &gradient, &case.expected(&x, &gradient), &devices);
        for (i, x) in x.iter_mut().enumerate() {
            match i % 7 {
                2 if i % 3 == 0 => *x = f32::NAN,
                4 => *x = f32::INFINITY,
                // Whole windows of it in the upper half.
                _ if i > 50 && i % 2000 > 700 => *x = f32::NEG_INFINITY,
                _ => {}
            }
        }
        case.check(&x, &gradient, &case.expected(&x, &gradient), &devices);
    }
    for device in devices {
        assert_eq!(
            ops::max_pool(Tensor::zeros([0, 2, 1, 4, 4], &device), [1, 2, 2], [1, 2, 2], [0; 3]).unwrap().dims(),
            [0, 2, 1, 2, 2]
        );
        // A view whose rows do not lie together.
        let x = quarters(2 * 6 * 8, 5);
        let turned = Tensor::<5>::from_data(TensorData::new(x.clone(), [2, 1, 1, 6, 8]), &device).swap_dims(3, 4);
        let straight: Vec<f32> = (0..x.len()).map(|i| x[i / 48 * 48 + i % 6 * 8 + i % 48 / 6]).collect();
        let case = case([2, 1, 1, 8, 6], [1, 2, 2], [1, 2, 2], [0; 3]);
        let y = ops::max_pool(turned, case.window, case.stride, case.padding).unwrap();
        assert_same(&floats(y), &case.expected(&straight, &[0.0; 24]).0, "a view");
    }
}

#[test]
fn pooling_equals_pytorch() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/norm_pool.safetensors");
    let mut store = SafetensorsStore::from_file(path);
    let all = store.get_all_tensors().unwrap();
    let devices = devices();
    for name in ["pool2d", "pool3d", "overlap", "nan"] {
        let data = |tensor: &str| bridge::to_data(&all[&format!("{name}.{tensor}")]).unwrap();
        let floats = |tensor: &str| data(tensor).try_to_vec::<f32>().unwrap();
        let options = data("options").try_to_vec::<i32>().unwrap();
        let [window, stride, padding] = [0, 3, 6].map(|first| [0, 1, 2].map(|axis| options[first + axis] as usize));
        let shape: [usize; 5] = data("x").shape().to_vec().try_into().unwrap();
        let case = Case { shape, window, stride, padding };
        let by_x = floats("by_x").into_iter().map(f64::from).collect();
        case.check(&floats("x"), &floats("gradient"), &(floats("y"), by_x), &devices);
    }
}

#[test]
fn what_cannot_be_pooled_is_told() {
    let device = Device::flex();
    let refusal = |shape: [usize; 5], window, stride, padding| {
        let Err(Error::Usage(text)) = ops::max_pool(Tensor::zeros(shape, &device), window, stride, padding) else {
            panic!("{shape:?} {window:?} {stride:?} {padding:?} was taken")
        };
        text
    };
    let shape = [1, 1, 1, 4, 5];
    for (text, part) in [
        (refusal(shape, [1, 2, 6], [1; 3], [0; 3]), "larger than the padded input, 5 along axis 2"),
        (refusal(shape, [1, 2, 0], [1; 3], [0; 3]), "the window has a side of 0"),
        (refusal(shape, [1, 2, 2], [1, 0, 1], [0; 3]), "the stride has a side of 0"),
        (refusal([1, 1, 0, 4, 5], [1; 3], [1; 3], [0; 3]), "the input has a side of 0"),
        (refusal([1, 1, 1, 40, 40], [1, 16, 17], [1; 3], [0; 3]), "272 voxels, expected at most 256"),
        (refusal(shape, [1, 2, 2], [1; 3], [0, 2, 0]), "the padding is more than half the window"),
        (refusal(shape, [1, usize::MAX, 2], [1; 3], [0, usize::MAX / 2, 0]), "expected at most 256"),
    ] {
        assert!(text.contains(part) && text.contains("max_pool"), "{text}");
    }
    let double = Tensor::<5>::zeros(shape, (&device, burn::tensor::DType::F64));
    let Err(Error::Usage(text)) = ops::max_pool(double, [1; 3], [1; 3], [0; 3]) else { panic!("f64 was taken") };
    assert!(text.contains("F64"), "{text}");
}
