//! Convolutions against sums in f64, on the CPU and on software Vulkan, in f32 and f16, forward and backward.

mod case;
mod check;
#[path = "../common/mod.rs"]
mod common;
mod dispatches;
mod refusals;

use burn::tensor::{DType, Device, Tensor};
use case::{CASES, Case, RELU, case};
use check::check;
use common::{Values, assert_within, check_all, cpu, golden, read, round, tensor, vulkan, wave};
use occam_engine::ops::Activation;
use occam_engine::ops::conv::{ConvOptions, Epilogue, Prologue, conv};

#[test]
fn convolutions_match_f64_on_the_cpu() {
    check_all(&CASES, &cpu(), check);
}

#[test]
fn convolutions_match_f64_on_software_vulkan() {
    check_all(&CASES, &vulkan(), check);
}

/// Sums in f16 stop where the next term is less than half a digit: of 0.3, at 1,024.
#[test]
fn thousands_of_terms_add_up_in_f16() {
    let third = round(DType::F16, 0.3);
    let cases = [
        (case("4,608 terms", [512, 1], [1, 3, 3], [1, 3, 3]).padding(0, 1, 1), 4608),
        (case("4,617 terms", [171, 1], [3, 3, 3], [3, 3, 3]).padding(1, 1, 1), 4617),
        (case("gradient of 4,608 terms", [1, 512], [1, 3, 3], [1, 3, 3]).padding(0, 1, 1), 4608),
        (case("gradient of 4,617 terms", [1, 171], [3, 3, 3], [3, 3, 3]).padding(1, 1, 1), 4617),
        (case("6,400 positions", [1, 1], [1, 80, 80], [1, 3, 3]).padding(0, 1, 1), 6400),
        (case("6,400 positions in 3D", [1, 1], [16, 20, 20], [3, 3, 3]).padding(1, 1, 1), 6400),
        (case("transposed, 4,608 terms", [512, 1], [1, 3, 3], [1, 3, 3]).padding(0, 1, 1).transposed([0; 3]), 4608),
        (case("transposed, 4,617 terms", [171, 1], [3, 3, 3], [3, 3, 3]).padding(1, 1, 1).transposed([0; 3]), 4617),
    ];
    for device in [cpu(), vulkan()] {
        let on = device.autodiff();
        for (case, terms) in &cases {
            let all = |value: f64, shape: [usize; 5]| {
                tensor(&vec![value; shape.iter().product()], shape, DType::F16, &on).require_grad()
            };
            let (x, weight) = (all(third, case.shape_x()), all(1.0, case.shape_weight()));
            let y = case.run(x.clone(), weight.clone(), None, Epilogue::default()).unwrap();
            let mut gradients = (y.clone() * all(third, case.shape_y()).detach()).sum().backward();
            let g_x = read(x.grad_remove(&mut gradients).unwrap());
            let g_weight = read(weight.grad_remove(&mut gradients).unwrap());
            // All kernels reach all voxels in the middle only.
            let largest = |values: &[f64]| values.iter().fold(0.0, |most: f64, value| most.max(*value));
            let near = |found: f64, expected: f64, part: &str| {
                let off = (found / expected - 1.0).abs();
                assert!(off < 1e-3, "{}, {part} on {on:?}: found {found}, expected {expected}", case.name);
            };
            let taps: usize = case.kernel.iter().product();
            near(largest(&read(y)), (case.channels[0] * taps) as f64 * third, "y");
            near(largest(&g_x), (case.channels[1] * taps) as f64 * third, "gradient of x");
            let voxels: usize = case.sides.iter().product();
            near(largest(&g_weight), voxels as f64 * third * third, "gradient of weight");
            let longest = (case.channels[0].max(case.channels[1]) * taps).max(voxels);
            assert_eq!(longest, *terms, "{}", case.name);
        }
        // The published case: 1 x 0.3 over 6,400 positions.
        let case = cases[4].0;
        let weight = Tensor::<5>::ones(case.shape_weight(), (&on, DType::F16)).require_grad();
        let x = Tensor::<5>::ones(case.shape_x(), (&on, DType::F16));
        let y = case.run(x, weight.clone(), None, Epilogue::default()).unwrap();
        let mut gradients = (y.mul_scalar(0.3)).sum().backward();
        let middle = read(weight.grad_remove(&mut gradients).unwrap())[4];
        assert!((middle / (6400.0 * third) - 1.0).abs() < 1e-3, "{middle} on {on:?}");
    }
}

/// Values differ everywhere, so that no other order of axes, channels or groups passes.
#[test]
fn layouts_match_pytorch() {
    let cases = [
        case("conv2d", [4, 6], [1, 7, 8], [1, 3, 2])
            .batch(2)
            .groups(2)
            .stride(1, 2, 1)
            .padding(0, 1, 2)
            .dilation(1, 2, 3)
            .bias(),
        case("conv3d", [4, 6], [5, 6, 7], [2, 3, 4])
            .batch(2)
            .groups(2)
            .stride(1, 2, 3)
            .padding(1, 2, 3)
            .dilation(3, 2, 1)
            .bias(),
        case("conv_transpose2d", [4, 6], [1, 3, 4], [1, 3, 4])
            .batch(2)
            .groups(2)
            .stride(1, 3, 2)
            .padding(0, 1, 2)
            .dilation(1, 2, 1)
            .transposed([0, 2, 1])
            .bias(),
        case("conv_transpose3d", [4, 6], [2, 3, 2], [2, 3, 4])
            .batch(2)
            .groups(2)
            .stride(2, 3, 1)
            .padding(1, 0, 2)
            .dilation(1, 2, 3)
            .transposed([1, 2, 0])
            .bias(),
    ];
    for device in [cpu(), vulkan()] {
        let on = device.autodiff();
        for case in &cases {
            let flat = case.name.ends_with("2d");
            let same = |found: Tensor<5>, name: &str| {
                let (shape, expected) = golden(&format!("{}.{name}", case.name));
                let dims: Vec<usize> = found
                    .dims()
                    .into_iter()
                    .enumerate()
                    .filter(|(axis, _)| !flat || *axis != 2)
                    .map(|(_, side)| side)
                    .collect();
                assert_eq!(dims, shape, "{} {name}", case.name);
                let largest = expected.iter().fold(1.0, |most: f64, value| most.max(value.abs()));
                assert_within(&read(found), &expected, |_| 2e-6 * largest, &format!("{} {name} on {on:?}", case.name));
            };
            let fill =
                |shape: [usize; 5], k| tensor(&wave(shape.iter().product(), k), shape, DType::F32, &on).require_grad();
            let (x, weight) = (fill(case.shape_x(), 0), fill(case.shape_weight(), 1));
            let bias = tensor(&wave(case.channels[1], 2), [case.channels[1]], DType::F32, &on).require_grad();
            let y =
                case.run(x.clone(), weight.clone(), None, Epilogue { bias: Some(bias.clone()), ..Default::default() });
            let y = y.unwrap();
            let mut gradients = (y.clone() * fill(case.shape_y(), 3).detach()).sum().backward();
            same(y, "y");
            same(x.grad_remove(&mut gradients).map(|g| g.reshape(case.shape_x())).unwrap(), "gradient.x");
            same(weight.grad_remove(&mut gradients).unwrap(), "gradient.weight");
            let expected = golden(&format!("{}.gradient.bias", case.name)).1;
            assert_within(&read(bias.grad_remove(&mut gradients).unwrap()), &expected, |_| 2e-5, case.name);
        }
    }
}

/// Bytes of a convolution and its gradients.
fn bytes(case: &Case, dtype: DType, device: &Device) -> Vec<Vec<u8>> {
    let on = device.clone().autodiff();
    let fill = |shape: [usize; 5], seed| {
        let n = shape.iter().product();
        tensor(&Values::Reals.take(dtype, n, seed), shape, dtype, &on).require_grad()
    };
    let vector = |n, seed| tensor(&Values::Reals.take(DType::F32, n, seed), [n], DType::F32, &on).require_grad();
    let (x, weight) = (fill(case.shape_x(), 1), fill(case.shape_weight(), 2));
    let (scale, shift) = (vector(case.channels[0], 3), vector(case.channels[0], 4));
    let prologue = case.prologue.map(|activation| Prologue { scale: scale.clone(), shift: shift.clone(), activation });
    let bias = vector(case.channels[1], 5);
    let epilogue = Epilogue { bias: Some(bias.clone()), activation: RELU, ..Default::default() };
    let y = case.run(x.clone(), weight.clone(), prologue, epilogue).unwrap();
    let mut gradients = (y.clone() * fill(case.shape_y(), 6).detach()).sum().backward();
    let raw = |data: burn::tensor::TensorData| data.as_bytes().to_vec();
    let mut all = vec![raw(y.try_into_data().unwrap())];
    all.extend([x, weight].map(|leaf| raw(leaf.grad_remove(&mut gradients).unwrap().try_into_data().unwrap())));
    all.push(raw(bias.grad_remove(&mut gradients).unwrap().try_into_data().unwrap()));
    let vectors = [scale, shift].into_iter().filter_map(|leaf| leaf.grad_remove(&mut gradients));
    all.extend(vectors.map(|gradient| raw(gradient.try_into_data().unwrap())));
    assert_eq!(all.len(), if case.prologue.is_some() { 6 } else { 4 });
    all
}

/// Large enough to be shared among threads and split over voxels.
const SHARED: [Case; 3] = [
    case("3D", [5, 6], [9, 20, 22], [3, 3, 3]).batch(2).padding(1, 1, 1).prologue(RELU),
    case("2D", [24, 20], [1, 40, 42], [1, 3, 3]).padding(0, 1, 1).prologue(Activation::Identity),
    case("transposed", [6, 5], [1, 30, 33], [1, 6, 6]).stride(1, 2, 2).padding(0, 2, 2).transposed([0; 3]),
];

#[test]
fn runs_are_equal_byte_for_byte() {
    let (cpu, vulkan) = (cpu(), vulkan());
    let on_threads = |threads: usize, case: &Case, dtype| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| bytes(case, dtype, &cpu))
    };
    for case in &SHARED {
        for dtype in [DType::F32, DType::F16] {
            let first = on_threads(1, case, dtype);
            for threads in [1, 2, 3] {
                assert!(on_threads(threads, case, dtype) == first, "{} {dtype:?}: {threads} threads", case.name);
            }
            let first = bytes(case, dtype, &vulkan);
            assert!(bytes(case, dtype, &vulkan) == first, "{} {dtype:?} on software Vulkan", case.name);
        }
    }
}

/// Burn passes views on without copying them.
#[test]
fn convolutions_take_views() {
    let case = case("views", [3, 4], [4, 5, 6], [3, 2, 1]).padding(1, 0, 0);
    for device in [cpu(), vulkan()] {
        let count = |shape: [usize; 5]| shape.iter().product::<usize>();
        let x = Values::Integers.take(DType::F32, 2 * count(case.shape_x()), 1);
        let weight = Values::Integers.take(DType::F32, count(case.shape_weight()), 2);
        // The second half of a batch of two, voxels first; a weight with its axes turned.
        let [_, channels, d, h, w] = case.shape_x();
        let x_on = tensor(&x, [2, d, h, w, channels], DType::F32, &device).permute([0, 4, 1, 2, 3]).slice(1..2);
        let [out, from, kd, kh, kw] = case.shape_weight();
        let weight_on = tensor(&weight, [kw, kh, kd, from, out], DType::F32, &device).permute([4, 3, 2, 1, 0]);
        let in_x = |place: usize| count(case.shape_x()) + place % (d * h * w) * channels + place / (d * h * w);
        let in_weight = |place: usize| {
            let (w, h, d) = (place % kw, place / kw % kh, place / (kw * kh) % kd);
            let (from_channel, to) = (place / (kw * kh * kd) % from, place / (kw * kh * kd * from));
            (((w * kh + h) * kd + d) * from + from_channel) * out + to
        };
        let mut expected = vec![0.0; count(case.shape_y())];
        case.terms(|a, b, y| expected[y] += x[in_x(a)] * weight[in_weight(b)]);
        let found = read(case.run(x_on, weight_on, None, Epilogue::default()).unwrap());
        assert_within(&found, &expected, |_| 0.0, &format!("views on {device:?}"));
    }
}

/// A member of no batch has no voxels, but the weight still has a gradient: zero.
#[test]
fn an_empty_batch_is_no_error() {
    for device in [cpu().autodiff(), vulkan().autodiff()] {
        let x = Tensor::<5>::zeros([0, 2, 3, 4, 5], &device).require_grad();
        let weight = Tensor::<5>::ones([3, 2, 3, 3, 3], &device).require_grad();
        let options = ConvOptions { padding: [1; 3], ..Default::default() };
        let y = conv(x.clone(), weight.clone(), &options, None, Epilogue::default()).unwrap();
        assert_eq!(y.dims(), [0, 3, 3, 4, 5]);
        let mut gradients = y.sum().backward();
        assert_eq!(x.grad_remove(&mut gradients).unwrap().dims(), [0, 2, 3, 4, 5]);
        assert_eq!(read(weight.grad_remove(&mut gradients).unwrap()), [0.0; 162], "{device:?}");
    }
}
