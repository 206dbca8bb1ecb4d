//! Integers where indices are at stake, because sums of them are exact in f16 and in any order; fractions where rounding is.

use burn::backend::DispatchDevice;
use burn::backend::wgpu::CubeTensor;
use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};

use super::cube::{Finish, run};
use super::plan::{Plan, Problem, Spec};
use super::{GemmOptions, Layout, dispatches, gemm, gemm_error_bound};
use crate::Error;
use crate::gpu::{self, TILES, TileForm, new_tensor};
use crate::ops::Activation;

const LAYOUTS: [Layout; 2] = [Layout::Normal, Layout::Transposed];

fn llvmpipe() -> Device {
    gpu::open(&"llvmpipe".parse().unwrap()).unwrap().device
}

fn devices() -> [Device; 2] {
    [llvmpipe(), gpu::open(&"cpu".parse().unwrap()).unwrap().device]
}

/// Whole numbers from -3 to 3.
fn whole(count: usize, seed: u64) -> Vec<f32> {
    random(count, seed).into_iter().map(|value| (value * 3.49).round()).collect()
}

/// From -1 to 1.
fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn tensor<const D: usize>(values: &[f32], dims: [usize; D], dtype: DType, device: &Device) -> Tensor<D> {
    let dtype = if dtype == DType::F16 { FloatDType::F16 } else { FloatDType::F32 };
    Tensor::<D>::from_data(TensorData::new(values.to_vec(), dims), device).cast(dtype)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(FloatDType::F32).try_into_data().unwrap().try_to_vec().unwrap()
}

/// A matrix of each batch in f64, read as the product takes it.
struct Operand<'a> {
    values: &'a [f32],
    dims: [usize; 3],
    layout: Layout,
}

impl Operand<'_> {
    fn at(&self, batch: usize, row: usize, col: usize) -> f64 {
        let [members, rows, cols] = self.dims;
        let (row, col) = if self.layout == Layout::Normal { (row, col) } else { (col, row) };
        f64::from(self.values[(batch % members * rows + row) * cols + col])
    }
}

/// The plain product, and that of the absolute values.
fn expected(a: &Operand, b: &Operand, [batch, m, n, k]: [usize; 4]) -> (Vec<f64>, Vec<f64>) {
    let (mut y, mut scale) = (Vec::new(), Vec::new());
    for i in 0..batch * m * n {
        let (member, row, col) = (i / n / m, i / n % m, i % n);
        let products = (0..k).map(|k| a.at(member, row, k) * b.at(member, k, col));
        y.push(products.clone().sum());
        scale.push(products.map(f64::abs).sum());
    }
    (y, scale)
}

fn stored(batch: usize, rows: usize, cols: usize, layout: Layout) -> [usize; 3] {
    if layout == Layout::Normal { [batch, rows, cols] } else { [batch, cols, rows] }
}

#[test]
fn every_tile_multiplies() {
    let device = llvmpipe();
    let subgroups = gpu::adapter_of(&device).unwrap().subgroup_sizes;
    let DispatchDevice::Cube(cube) = device.as_dispatch() else { panic!("not a GPU") };
    let client = cube.client();
    let upload = |values: &[f32], dims: [usize; 3]| {
        let handle = client.create_from_slice(bytemuck::cast_slice(values));
        CubeTensor::new_contiguous(client.clone(), cube.clone(), dims.into(), handle, DType::F32)
    };
    let [batch, m, n, k] = [2, 133, 70, 37];
    for tile in TILES.iter().filter(|tile| tile.form != TileForm::Lanes || subgroups == Some((8, 8))) {
        for (a_layout, b_layout) in [(LAYOUTS[0], LAYOUTS[0]), (LAYOUTS[1], LAYOUTS[1])] {
            let (a_dims, b_dims) = (stored(batch, m, k, a_layout), stored(1, k, n, b_layout));
            let (a, b) = (whole(batch * m * k, 1), whole(k * n, 2));
            let operands = [(&a, a_dims, a_layout), (&b, b_dims, b_layout)];
            let [left, right] = operands.map(|(values, dims, layout)| Operand { values, dims, layout });
            let (y, _) = expected(&left, &right, [batch, m, n, k]);

            let problem = Problem::new(&a_dims.into(), &b_dims.into(), Spec::plain(a_layout, b_layout, false));
            let (a, b) = (upload(&a, a_dims), upload(&b, b_dims));
            let out = new_tensor(&a, problem.y(), DType::F32);
            let plan = Plan::with_tile(problem.y(), k, DType::F32, tile);
            run(a, b, &out, &problem, &Finish { bias: None, residual: None, activation: Activation::Identity }, &plan);
            let bytes = client.read_one(out.handle).unwrap();
            let found: Vec<f64> = bytemuck::cast_slice(&bytes).iter().map(|value: &f32| f64::from(*value)).collect();
            assert!(found == y, "{tile:?} {a_layout:?} {b_layout:?}");
        }
    }
}

/// Everything at once: both layouts, batches on either side, bias, residual and ReLU; values and four gradients.
#[test]
fn layouts_batches_and_what_is_fused() {
    let [m, n, k] = [9, 21, 13];
    for device in devices().map(Device::autodiff) {
        for dtype in [DType::F32, DType::F16] {
            for (a_layout, b_layout) in LAYOUTS.into_iter().flat_map(|a| LAYOUTS.map(|b| (a, b))) {
                for [a_batch, b_batch] in [[1, 1], [3, 3], [3, 1], [1, 3]] {
                    let batch = a_batch.max(b_batch);
                    let (a_dims, b_dims) = (stored(a_batch, m, k, a_layout), stored(b_batch, k, n, b_layout));
                    let (av, bv) = (whole(a_batch * m * k, 3), whole(b_batch * k * n, 4));
                    let (biasv, residualv) = (whole(n, 5), whole(batch * m * n, 6));
                    let gv = whole(batch * m * n, 7);
                    let a = tensor(&av, a_dims, dtype, &device).require_grad();
                    let b = tensor(&bv, b_dims, dtype, &device).require_grad();
                    let bias = tensor(&biasv, [n], dtype, &device).require_grad();
                    let residual = tensor(&residualv, [batch, m, n], dtype, &device).require_grad();
                    let options = GemmOptions {
                        a: a_layout,
                        b: b_layout,
                        bias: Some(bias.clone()),
                        residual: Some(residual.clone()),
                        activation: Activation::Relu,
                    };
                    let y = gemm(a.clone(), b.clone(), options).unwrap();
                    let gradients = (y.clone() * tensor(&gv, [batch, m, n], dtype, &device)).sum().backward();

                    let name = format!("{a_layout:?} {b_layout:?} {a_batch} {b_batch} {dtype:?} on {device:?}");
                    let left = Operand { values: &av, dims: a_dims, layout: a_layout };
                    let right = Operand { values: &bv, dims: b_dims, layout: b_layout };
                    let (mut sums, _) = expected(&left, &right, [batch, m, n, k]);
                    for (i, sum) in sums.iter_mut().enumerate() {
                        *sum += f64::from(biasv[i % n] + residualv[i]);
                    }
                    let found = values(y);
                    assert!(found.iter().zip(&sums).all(|(y, sum)| f64::from(*y) == sum.max(0.0)), "y: {name}");

                    // By hand: the gradient of every product goes to both of its factors.
                    let g: Vec<f64> =
                        gv.iter().zip(&sums).map(|(g, y)| if *y > 0.0 { f64::from(*g) } else { 0.0 }).collect();
                    let (mut ga, mut gb, mut gbias) = (vec![0.0; av.len()], vec![0.0; bv.len()], vec![0.0; n]);
                    for (i, g) in g.iter().enumerate() {
                        let (member, row, col) = (i / n / m, i / n % m, i % n);
                        gbias[col] += g;
                        for k in 0..k {
                            let at = |[members, rows, cols]: [usize; 3], layout, row, col| {
                                let (row, col) = if layout == Layout::Normal { (row, col) } else { (col, row) };
                                (member % members * rows + row) * cols + col
                            };
                            ga[at(a_dims, a_layout, row, k)] += g * right.at(member, k, col);
                            gb[at(b_dims, b_layout, k, col)] += g * left.at(member, row, k);
                        }
                    }
                    let same = |found: Vec<f32>, expected: &[f64], what: &str| {
                        let equal = found.iter().zip(expected).all(|(found, expected)| f64::from(*found) == *expected);
                        assert!(equal && found.len() == expected.len(), "{what}: {name}\n{found:?}\n{expected:?}");
                    };
                    same(values(a.grad(&gradients).unwrap()), &ga, "gradient of a");
                    same(values(b.grad(&gradients).unwrap()), &gb, "gradient of b");
                    same(values(bias.grad(&gradients).unwrap()), &gbias, "gradient of bias");
                    same(values(residual.grad(&gradients).unwrap()), &g, "gradient of residual");
                }
            }
        }
    }
}

#[test]
fn only_what_is_asked_for_gets_a_gradient() {
    for device in devices().map(Device::autodiff) {
        let a = tensor(&whole(12, 1), [1, 3, 4], DType::F32, &device).require_grad();
        let b = tensor(&whole(20, 2), [1, 4, 5], DType::F32, &device);
        let y = gemm(a.clone(), b.clone(), GemmOptions::default()).unwrap();
        let gradients = y.sum().backward();
        // The sums of the rows of b.
        let expected: Vec<f32> = values(b.clone()).chunks(5).map(|row| row.iter().sum()).collect();
        assert_eq!(values(a.grad(&gradients).unwrap()), expected.repeat(3));
        assert!(b.grad(&gradients).is_none());
    }
}

#[test]
fn nothing_to_add_up_and_nothing_to_return() {
    for device in devices() {
        for dtype in [DType::F32, DType::F16] {
            let bias = tensor(&[1.0, -2.0, 3.0], [3], dtype, &device);
            let residual = tensor(&whole(12, 1), [2, 2, 3], dtype, &device);
            let options = |activation| GemmOptions {
                bias: Some(bias.clone()),
                residual: Some(residual.clone()),
                activation,
                ..GemmOptions::default()
            };
            let empty = |dims: [usize; 3]| tensor(&[], dims, dtype, &device);
            let y = gemm(empty([2, 2, 0]), empty([1, 0, 3]), options(Activation::Identity)).unwrap();
            let expected: Vec<f32> =
                whole(12, 1).iter().zip([1.0, -2.0, 3.0].iter().cycle()).map(|(x, bias)| x + bias).collect();
            assert_eq!(values(y), expected);
            let y = gemm(empty([2, 2, 0]), empty([1, 0, 3]), options(Activation::Relu)).unwrap();
            assert_eq!(values(y), expected.iter().map(|y| y.max(0.0)).collect::<Vec<_>>());

            let b = tensor(&whole(12, 2), [1, 4, 3], dtype, &device);
            for (dims, y_dims) in [([1, 0, 4], [1, 0, 3]), ([0, 5, 4], [0, 5, 3])] {
                let y = gemm(empty(dims), b.clone(), GemmOptions::default()).unwrap();
                assert_eq!((y.dims(), values(y)), (y_dims, vec![]));
            }
            let a = tensor(&whole(8, 2), [1, 2, 4], dtype, &device);
            let y = gemm(a, empty([1, 4, 0]), GemmOptions::default()).unwrap();
            assert_eq!((y.dims(), values(y)), ([1, 2, 0], vec![]));
        }
    }
}

#[test]
fn gradients_of_nothing() {
    for device in devices().map(Device::autodiff) {
        for dims in [[1, 0, 4], [0, 5, 4]] {
            let a = tensor(&[], dims, DType::F32, &device).require_grad();
            let b = tensor(&whole(12, 2), [1, 4, 3], DType::F32, &device).require_grad();
            let bias = tensor(&[1.0; 3], [3], DType::F32, &device).require_grad();
            let options =
                GemmOptions { bias: Some(bias.clone()), activation: Activation::Relu, ..GemmOptions::default() };
            let gradients = gemm(a.clone(), b.clone(), options).unwrap().sum().backward();
            assert_eq!(a.grad(&gradients).unwrap().dims(), dims);
            assert_eq!(values(b.grad(&gradients).unwrap()), [0.0; 12]);
            assert_eq!(values(bias.grad(&gradients).unwrap()), [0.0; 3]);
        }
    }
}

#[test]
fn a_long_k_is_cut_and_added_up_in_order() {
    let [m, n, k] = [5, 7, 20_000];
    for dtype in [DType::F32, DType::F16] {
        let plan = Plan::new([2, m, n], k, dtype, TileForm::Lanes);
        assert!(plan.parts > 1, "{plan:?}");
        for device in devices() {
            let (av, bv) = (whole(2 * m * k, 1), whole(k * n, 2));
            let (a, b) = (tensor(&av, [2, m, k], dtype, &device), tensor(&bv, [1, n, k], dtype, &device));
            // A batch of a that is transposed is not flattened away.
            let a_t = a.clone().swap_dims(1, 2);
            let bias = tensor(&whole(n, 3), [n], dtype, &device);
            let options = GemmOptions {
                a: Layout::Transposed,
                b: Layout::Transposed,
                bias: Some(bias),
                activation: Activation::Relu,
                ..GemmOptions::default()
            };
            let y = gemm(a_t.clone(), b.clone(), options.clone()).unwrap();
            let left = Operand { values: &av, dims: [2, m, k], layout: Layout::Normal };
            let right = Operand { values: &bv, dims: [1, n, k], layout: Layout::Transposed };
            let (sums, _) = expected(&left, &right, [2, m, n, k]);
            let expected: Vec<f32> = sums
                .iter()
                .enumerate()
                .map(|(i, sum)| (*sum as f32 + whole(n, 3)[i % n]).max(0.0))
                .map(|y| if dtype == DType::F16 { half::f16::from_f32(y).to_f32() } else { y })
                .collect();
            assert_eq!(values(y.clone()), expected, "{dtype:?} on {device:?}");
            let again = gemm(a_t, b, options).unwrap();
            assert_eq!(y.into_data(), again.into_data());
        }
    }
}

#[test]
fn rounding_stays_within_the_bound() {
    for device in devices() {
        for dtype in [DType::F32, DType::F16] {
            for [m, n, k] in [[7, 33, 1], [40, 24, 17], [3, 50, 700], [1, 9, 5000]] {
                let [av, bv] = [(m * k, 1), (k * n, 2)].map(|(count, seed)| {
                    let values = random(count, seed).into_iter();
                    let stored = |x| if dtype == DType::F16 { half::f16::from_f32(x).to_f32() } else { x };
                    values.map(stored).collect::<Vec<_>>()
                });
                let (a, b) = (tensor(&av, [1, m, k], dtype, &device), tensor(&bv, [1, k, n], dtype, &device));
                let found = values(gemm(a, b, GemmOptions::default()).unwrap());
                let left = Operand { values: &av, dims: [1, m, k], layout: Layout::Normal };
                let right = Operand { values: &bv, dims: [1, k, n], layout: Layout::Normal };
                let (y, scale) = expected(&left, &right, [1, m, n, k]);
                let rounding = if dtype == DType::F16 { 2f64.powi(-11) } else { 2f64.powi(-24) };
                for ((found, y), scale) in found.iter().zip(&y).zip(&scale) {
                    let bound = gemm_error_bound(dtype, k) * scale;
                    let bound = bound + rounding * (y.abs() + bound) + 2f64.powi(-25);
                    assert!(
                        (f64::from(*found) - y).abs() <= bound,
                        "{m}x{n}x{k} {dtype:?} on {device:?}: {found}, {y}"
                    );
                }
            }
        }
    }
}

#[test]
fn sums_of_f16_do_not_stop_at_2048() {
    for device in devices() {
        for k in [4_608, 4_617, 6_400] {
            let (a, b) = (
                tensor(&vec![1.0; k], [1, 1, k], DType::F16, &device),
                tensor(&vec![0.3; k], [1, k, 1], DType::F16, &device),
            );
            let exact = k as f64 * half::f16::from_f32(0.3).to_f64();
            let [y] = values(gemm(a, b, GemmOptions::default()).unwrap())[..] else { panic!("not one value") };
            assert!((f64::from(y) / exact - 1.0).abs() < 1e-3, "{k} products on {device:?}: {y}, expected {exact}");
        }
    }
}

#[test]
fn threads_change_no_bit() {
    let device = gpu::open(&"cpu".parse().unwrap()).unwrap().device;
    for dtype in [DType::F32, DType::F16] {
        for [batch, m, n, k] in
            [[1, 300, 200, 700], [1, 8, 5000, 64], [1, 3000, 8, 40], [5, 30, 40, 50], [1, 20, 30, 9000]]
        {
            let a = tensor(&random(batch * m * k, 1), [batch, m, k], dtype, &device);
            let b = tensor(&random(batch * k * n, 2), [batch, k, n], dtype, &device);
            let with_threads = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| gemm(a.clone(), b.clone(), GemmOptions::default()).unwrap()).into_data()
            };
            let one = with_threads(1);
            assert!([2, 3, 8].into_iter().all(|threads| with_threads(threads) == one), "{batch}x{m}x{n}x{k} {dtype:?}");
        }
    }
}

#[test]
fn what_does_not_fit_is_told() {
    let usage = |result: crate::Result<Tensor<3>>, words: &[&str]| {
        let Err(Error::Usage(message)) = result else { panic!("no usage error, expected {words:?}") };
        assert!(words.iter().all(|word| message.contains(word)), "{message}: expected {words:?}");
    };
    for device in devices() {
        let a = || Tensor::<3>::zeros([2, 3, 4], &device);
        let b = |dims: [usize; 3]| Tensor::<3>::zeros(dims, &device);
        let default = GemmOptions::default;
        usage(gemm(a(), b([2, 5, 6]), default()), &["gemm", "2x3x4", "2x5x6", "K is 4 in a and 5 in b"]);
        usage(gemm(a(), b([3, 4, 6]), default()), &["gemm", "2 in a and 3 in b"]);
        let bias = Some(Tensor::zeros([5], &device));
        usage(gemm(a(), b([1, 4, 6]), GemmOptions { bias, ..default() }), &["bias of 5 values, expected 6"]);
        let residual = Some(b([2, 3, 5]));
        usage(gemm(a(), b([1, 4, 6]), GemmOptions { residual, ..default() }), &["residual 2x3x5", "2x3x6"]);
        usage(gemm(a(), b([1, 4, 6]).cast(FloatDType::F16), default()), &["a is F32 and b F16", "cast"]);
        let wide = [a(), b([1, 4, 6])].map(|x| x.cast(FloatDType::BF16));
        if gpu::is_cpu(&device) {
            let [a, b] = wide;
            usage(gemm(a, b, default()), &["gemm", "BF16", "expected f32 or f16"]);
        }
    }
    // The result alone is beyond the 128 MiB of a binding: found before anything is made.
    let device = llvmpipe();
    let (a, b) = (Tensor::<3>::zeros([1, 8192, 1], &device), Tensor::<3>::zeros([1, 1, 8192], &device));
    let Err(Error::TooLarge(message)) = gemm(a, b, GemmOptions::default()) else { panic!("256 MiB fit 128 MiB") };
    assert!(
        message.contains("gemm") && message.contains("y 1x8192x8192") && message.contains("128.00 MiB"),
        "{message}"
    );
}

#[test]
fn no_dispatch_takes_100_ms() {
    // One with two million rows, one of long sums, a large square one.
    for [m, n, k, batch] in
        [[2 << 20, 64, 864, 1], [64, 1728, 2 << 20, 1], [16_384, 16_384, 16_384, 1], [128, 128, 64, 4096]]
    {
        let all = dispatches(m, n, k, batch, DType::F32);
        assert!(all.iter().all(|dispatch| dispatch.seconds() <= 0.1 && dispatch.groups <= 65_535), "{all:?}");
        // Every product is in some dispatch.
        let flops: u64 = all.iter().filter(|dispatch| dispatch.name == "gemm").map(|dispatch| dispatch.flops).sum();
        assert!(flops >= 2 * (m * n * k * batch) as u64, "{m}x{n}x{k}: {flops}");
    }
    assert_eq!(dispatches(0, 5, 5, 1, DType::F32), []);
}
