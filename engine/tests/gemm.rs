//! Matrix products against sums in f64, on the CPU and on software Vulkan, in f32 and f16, forward and backward.

mod common;

use burn::tensor::{DType, Device, Tensor};
use common::{Sums, Values, assert_within, check_all, cpu, golden, read, settle, tensor, vulkan, wave};
use occam_engine::Error;
use occam_engine::ops::Activation;
use occam_engine::ops::gemm::{GemmOptions, Layout, dispatches, gemm, gemm_error_bound};

/// One product and what is fused into it.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    /// Of a and of b.
    batches: [usize; 2],
    m: usize,
    n: usize,
    k: usize,
    layouts: [Layout; 2],
    bias: bool,
    residual: bool,
    relu: bool,
}

const fn case(name: &'static str, m: usize, n: usize, k: usize) -> Case {
    let layouts = [Layout::Normal; 2];
    Case { name, batches: [1, 1], m, n, k, layouts, bias: false, residual: false, relu: false }
}

impl Case {
    const fn batches(self, a: usize, b: usize) -> Self {
        Self { batches: [a, b], ..self }
    }

    /// a stored as its transpose.
    const fn ta(self) -> Self {
        Self { layouts: [Layout::Transposed, self.layouts[1]], ..self }
    }

    /// b stored as its transpose.
    const fn tb(self) -> Self {
        Self { layouts: [self.layouts[0], Layout::Transposed], ..self }
    }

    const fn bias(self) -> Self {
        Self { bias: true, ..self }
    }

    const fn residual(self) -> Self {
        Self { residual: true, ..self }
    }

    const fn relu(self) -> Self {
        Self { relu: true, ..self }
    }

    /// A batch of one is used by all of the other side.
    fn batch(&self) -> usize {
        if self.batches[0] == 1 { self.batches[1] } else { self.batches[0] }
    }

    fn shape_a(&self) -> [usize; 3] {
        match self.layouts[0] {
            Layout::Normal => [self.batches[0], self.m, self.k],
            Layout::Transposed => [self.batches[0], self.k, self.m],
        }
    }

    fn shape_b(&self) -> [usize; 3] {
        match self.layouts[1] {
            Layout::Normal => [self.batches[1], self.k, self.n],
            Layout::Transposed => [self.batches[1], self.n, self.k],
        }
    }

    fn shape_y(&self) -> [usize; 3] {
        [self.batch(), self.m, self.n]
    }

    /// Calls `term` with the places in a, b and y of every product.
    fn terms(&self, mut term: impl FnMut(usize, usize, usize)) {
        let Self { m, n, k, layouts, .. } = *self;
        for batch in 0..self.batch() {
            let [in_a, in_b] = self.batches.map(|batches| if batches == 1 { 0 } else { batch });
            for row in 0..m {
                for inner in 0..k {
                    let a = match layouts[0] {
                        Layout::Normal => (in_a * m + row) * k + inner,
                        Layout::Transposed => (in_a * k + inner) * m + row,
                    };
                    for column in 0..n {
                        let b = match layouts[1] {
                            Layout::Normal => (in_b * k + inner) * n + column,
                            Layout::Transposed => (in_b * n + column) * k + inner,
                        };
                        term(a, b, (batch * m + row) * n + column);
                    }
                }
            }
        }
    }
}

#[rustfmt::skip]
const CASES: [Case; 66] = [
    case("one value", 1, 1, 1),
    case("outer product", 7, 11, 1),
    case("outer product of long vectors", 65, 130, 1),
    case("no terms", 5, 4, 0),
    case("no terms, but bias and residual", 5, 4, 0).bias().residual().relu(),
    case("no rows", 0, 5, 3),
    case("no columns", 5, 0, 3),
    case("no matrices", 5, 6, 3).batches(0, 0),
    case("one row", 1, 33, 17),
    case("one column", 33, 1, 17),
    case("one row, many terms", 1, 5, 1000),
    case("scalar product", 1, 1, 4099),
    case("two terms", 6, 5, 2),
    case("3 x 5 x 7", 3, 5, 7),
    case("13 x 17 x 19", 13, 17, 19),
    case("31 x 37 x 41", 31, 37, 41),
    case("full tiles", 64, 64, 64),
    case("one less than tiles", 63, 63, 63),
    case("one more than tiles", 65, 65, 65),
    case("two tiles and an odd rest", 129, 67, 31),
    case("half tiles of rows", 32, 64, 16),
    case("flat tiles", 16, 128, 16),
    case("one less than flat tiles", 15, 127, 15),
    case("one more than flat tiles", 17, 129, 17),
    case("upright tiles", 128, 16, 32),
    case("one more than upright tiles", 129, 17, 9),
    case("long flat tiles", 8, 256, 16),
    case("one more than long flat tiles", 9, 257, 17),
    case("tall and skinny", 5000, 3, 8),
    case("tall, few terms", 5000, 8, 3),
    case("wide, few rows", 3, 3001, 8),
    case("20,000 terms", 4, 5, 20_000),
    case("20,011 terms, both transposed", 3, 2, 20_011).ta().tb(),
    case("2,050 terms over full tiles", 33, 35, 2_050),
    case("a transposed", 13, 17, 19).ta(),
    case("b transposed", 13, 17, 19).tb(),
    case("both transposed", 13, 17, 19).ta().tb(),
    case("tile edges", 66, 70, 34),
    case("tile edges, a transposed", 66, 70, 34).ta(),
    case("tile edges, b transposed", 66, 70, 34).tb(),
    case("tile edges, both transposed", 66, 70, 34).ta().tb(),
    case("outer product, both transposed", 9, 5, 1).ta().tb(),
    case("one row, a transposed", 1, 19, 23).ta(),
    case("one column, b transposed", 19, 1, 23).tb(),
    case("no rows, transposed", 0, 5, 3).ta().tb(),
    case("gradient of a layer's weight", 9, 16, 3_001).ta(),
    case("3 matrices", 5, 7, 9).batches(3, 3),
    case("2 matrices, both transposed", 17, 33, 8).batches(2, 2).ta().tb(),
    case("5 matrices of one value", 1, 1, 1).batches(5, 5),
    case("a for all of b", 5, 7, 9).batches(1, 4),
    case("b for all of a", 5, 7, 9).batches(4, 1),
    case("a for all of b, a transposed", 18, 7, 9).batches(1, 3).ta(),
    case("b for all of a, both transposed, 1,025 terms", 6, 3, 1_025).batches(3, 1).ta().tb(),
    case("b for all of a, outer products", 6, 70, 1).batches(3, 1),
    case("bias", 11, 13, 6).bias(),
    case("ReLU", 11, 13, 6).relu(),
    case("bias and ReLU", 11, 13, 6).bias().relu(),
    case("residual", 11, 13, 6).residual(),
    case("residual and ReLU", 11, 13, 6).residual().relu(),
    case("everything", 11, 13, 6).bias().residual().relu(),
    case("everything, 3 matrices, a transposed", 7, 31, 5).batches(3, 3).ta().bias().residual().relu(),
    case("everything, a for all of b", 7, 9, 5).batches(1, 3).bias().residual().relu(),
    case("everything, 5,003 terms", 5, 6, 5_003).bias().residual().relu(),
    case("linear layer", 201, 32, 24).tb().bias(),
    case("linear layer of points", 4097, 5, 3).tb().bias().relu(),
    case("scores of attention", 30, 29, 8).batches(4, 4).tb(),
];

/// Checks the product and its gradients.
fn check(case: &Case, dtype: DType, values: Values, device: &Device) {
    let what = |part: &str| format!("{} {dtype:?} {values:?} on {device:?}: {part}", case.name);
    let (shape_a, shape_b, shape_y) = (case.shape_a(), case.shape_b(), case.shape_y());
    let count = |shape: [usize; 3]| shape.iter().product::<usize>();
    let a = values.take(dtype, count(shape_a), 1);
    let b = values.take(dtype, count(shape_b), 2);
    let bias = case.bias.then(|| values.take(dtype, case.n, 3));
    let residual = case.residual.then(|| values.take(dtype, count(shape_y), 4));

    let mut y = Sums::zeros(count(shape_y));
    case.terms(|in_a, in_b, in_y| y.add(in_y, a[in_a] * b[in_b]));
    for place in 0..count(shape_y) {
        if let Some(bias) = &bias {
            y.add(place, bias[place % case.n]);
        }
        if let Some(residual) = &residual {
            y.add(place, residual[place]);
        }
    }
    let rounded = |sums: &Sums, dtype: DType, terms: usize, place: usize| {
        let error = values.error(dtype, terms) * sums.magnitude[place];
        error + values.rounding(dtype, sums.value[place], error)
    };
    let y_error = |place: usize| rounded(&y, dtype, case.k + 2, place);

    let on = device.clone().autodiff();
    let a_on = tensor(&a, shape_a, dtype, &on).require_grad();
    let b_on = tensor(&b, shape_b, dtype, &on).require_grad();
    let bias_on = bias.as_ref().map(|bias| tensor(bias, [case.n], dtype, &on).require_grad());
    let residual_on = residual.as_ref().map(|residual| tensor(residual, shape_y, dtype, &on).require_grad());
    let options = GemmOptions {
        a: case.layouts[0],
        b: case.layouts[1],
        bias: bias_on.clone(),
        residual: residual_on.clone(),
        activation: if case.relu { Activation::Relu } else { Activation::Identity },
    };
    let y_on = gemm(a_on.clone(), b_on.clone(), options).unwrap_or_else(|error| panic!("{}: {error}", what("y")));
    assert_eq!((y_on.dims(), y_on.dtype()), (shape_y, dtype), "{}", what("y"));
    let kept = |place: usize| !case.relu || y.value[place] > 0.0;
    let expected: Vec<f64> = (0..y.value.len()).map(|place| if kept(place) { y.value[place] } else { 0.0 }).collect();
    assert_within(&read(y_on.clone()), &expected, y_error, &what("y"));

    // Where rounding decides on which side of the kink a value falls, the upstream gradient is zero.
    let upstream: Vec<f64> = (values.take(dtype, count(shape_y), 5).into_iter().enumerate())
        .map(
            |(place, g)| if case.relu && (0.0..2.0 * y_error(place)).contains(&y.value[place].abs()) { 0.0 } else { g },
        )
        .collect();
    let g: Vec<f64> = upstream.iter().enumerate().map(|(place, g)| if kept(place) { *g } else { 0.0 }).collect();
    let (mut ga, mut gb, mut gbias) = (Sums::zeros(a.len()), Sums::zeros(b.len()), Sums::zeros(case.n));
    case.terms(|in_a, in_b, in_y| {
        ga.add(in_a, b[in_b] * g[in_y]);
        gb.add(in_b, a[in_a] * g[in_y]);
    });
    g.iter().enumerate().for_each(|(place, g)| gbias.add(place % case.n, *g));

    let mut gradients = (y_on * tensor(&upstream, shape_y, dtype, &on)).sum().backward();
    let (batch, [batches_a, batches_b]) = (case.batch(), case.batches);
    let found = a_on.grad_remove(&mut gradients).unwrap();
    assert_eq!((found.dims(), found.dtype()), (shape_a, dtype), "{}", what("gradient of a"));
    let terms = case.n * if batches_a == 1 { batch } else { 1 };
    assert_within(&read(found), &ga.value, |place| rounded(&ga, dtype, terms, place), &what("gradient of a"));
    let found = b_on.grad_remove(&mut gradients).unwrap();
    assert_eq!((found.dims(), found.dtype()), (shape_b, dtype), "{}", what("gradient of b"));
    let terms = case.m * if batches_b == 1 { batch } else { 1 };
    assert_within(&read(found), &gb.value, |place| rounded(&gb, dtype, terms, place), &what("gradient of b"));
    if let Some(bias) = bias_on {
        let found = bias.grad_remove(&mut gradients).unwrap();
        let error = |place| rounded(&gbias, dtype, batch * case.m, place);
        assert_within(&read(found), &gbias.value, error, &what("gradient of bias"));
    }
    if let Some(residual) = residual_on {
        let found = residual.grad_remove(&mut gradients).unwrap();
        assert_within(&read(found), &g, |_| 0.0, &what("gradient of residual"));
    }
}

#[test]
fn products_match_f64_on_the_cpu() {
    check_all(&CASES, &cpu(), check);
}

#[test]
fn products_match_f64_on_software_vulkan() {
    check_all(&CASES, &vulkan(), check);
}

/// Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1: a sum of k rounded products in any order is
/// within k u / (1 - k u), u = 2^-24 in f32. The stated bound may allow a few roundings more, and in f16, where matrix
/// units cut off instead of rounding, twice the u.
#[test]
fn the_bound_is_that_of_sums_in_f32() {
    for dtype in [DType::F32, DType::F16] {
        for k in [0, 1, 2, 16, 1000, 20_000, 1 << 20] {
            let unit = if dtype == DType::F16 { 23 } else { 24 };
            let u = (k + 8) as f64 / f64::from(1 << unit);
            let bound = gemm_error_bound(dtype, k);
            assert!((0.0..=u / (1.0 - u)).contains(&bound), "{dtype:?}, {k} terms: {bound:e}");
        }
    }
}

/// Sums in f16 stop at 2,048, where adding 1 no longer counts.
#[test]
fn six_thousand_ones_add_up_in_f16() {
    for device in [cpu(), vulkan()] {
        let on = device.autodiff();
        let ones =
            |shape: [usize; 3]| tensor(&vec![1.0; shape.iter().product()], shape, DType::F16, &on).require_grad();
        let (a, b) = (ones([1, 2, 6400]), ones([1, 6400, 3]));
        assert_eq!(read(gemm(a, b, GemmOptions::default()).unwrap()), [6400.0; 6], "{on:?}");
        // Gradients over 6,400 columns and 6,400 rows.
        let (a, b) = (ones([1, 2, 1]), ones([1, 1, 6400]));
        let mut gradients = gemm(a.clone(), b, GemmOptions::default()).unwrap().sum().backward();
        assert_eq!(read(a.grad_remove(&mut gradients).unwrap()), [6400.0; 2], "{on:?}");
        let (a, b) = (ones([1, 6400, 1]), ones([1, 1, 2]));
        let mut gradients = gemm(a, b.clone(), GemmOptions::default()).unwrap().sum().backward();
        assert_eq!(read(b.grad_remove(&mut gradients).unwrap()), [6400.0; 2], "{on:?}");
    }
}

/// A linear layer of PyTorch, weight `[out, in]`: b transposed. And its four gradients.
#[test]
fn linear_layers_match_pytorch() {
    for device in [cpu(), vulkan()] {
        let on = device.autodiff();
        let load = |name: &str, shape: [usize; 3], k| {
            let (stored, _) = golden(&format!("linear.{name}"));
            assert_eq!(stored.iter().product::<usize>(), shape.iter().product::<usize>());
            tensor(&wave(shape.iter().product(), k), shape, DType::F32, &on).require_grad()
        };
        let x = load("gradient.x", [2, 3, 4], 0);
        let weight = load("gradient.weight", [1, 5, 4], 1);
        let bias = tensor(&wave(5, 2), [5], DType::F32, &on).require_grad();
        let options = GemmOptions { b: Layout::Transposed, bias: Some(bias.clone()), ..Default::default() };
        let y = gemm(x.clone(), weight.clone(), options).unwrap();
        let same = |found: Vec<f64>, name: &str| {
            assert_within(&found, &golden(&format!("linear.{name}")).1, |_| 4e-6, &format!("{name} on {on:?}"));
        };
        same(read(y.clone()), "y");
        let mut gradients = (y * tensor(&wave(30, 3), [2, 3, 5], DType::F32, &on)).sum().backward();
        same(read(x.grad_remove(&mut gradients).unwrap()), "gradient.x");
        same(read(weight.grad_remove(&mut gradients).unwrap()), "gradient.weight");
        same(read(bias.grad_remove(&mut gradients).unwrap()), "gradient.bias");
    }
}

/// Bytes of a product and its gradients.
fn bytes(case: &Case, dtype: DType, device: &Device) -> Vec<Vec<u8>> {
    let on = device.clone().autodiff();
    let fill = |shape: [usize; 3], seed| {
        let n = shape.iter().product();
        tensor(&Values::Reals.take(dtype, n, seed), shape, dtype, &on).require_grad()
    };
    let (a, b) = (fill(case.shape_a(), 1), fill(case.shape_b(), 2));
    let bias = tensor(&Values::Reals.take(dtype, case.n, 3), [case.n], dtype, &on).require_grad();
    let options = GemmOptions {
        a: case.layouts[0],
        b: case.layouts[1],
        bias: Some(bias.clone()),
        activation: Activation::Relu,
        ..Default::default()
    };
    let y = gemm(a.clone(), b.clone(), options).unwrap();
    let mut gradients = (y.clone() * fill(case.shape_y(), 4).detach()).sum().backward();
    let raw = |data: burn::tensor::TensorData| data.as_bytes().to_vec();
    vec![
        raw(y.try_into_data().unwrap()),
        raw(a.grad_remove(&mut gradients).unwrap().try_into_data().unwrap()),
        raw(b.grad_remove(&mut gradients).unwrap().try_into_data().unwrap()),
        raw(bias.grad_remove(&mut gradients).unwrap().try_into_data().unwrap()),
    ]
}

/// Large enough to be shared among threads and split along k.
const SHARED: [Case; 3] =
    [case("square", 150, 130, 170), case("long", 9, 17, 20_011).ta(), case("tall", 6_007, 8, 5).tb()];

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
fn products_take_views() {
    for device in [cpu(), vulkan()] {
        let (m, n, k) = (5, 6, 7);
        let values = |count, seed| Values::Integers.take(DType::F32, count, seed);
        let (a, b) = (values(k * m, 1), values(2 * n * k, 2));
        let expected: Vec<f64> =
            (0..m * n).map(|y| (0..k).map(|i| a[i * m + y / n] * b[(n + y % n) * k + i]).sum()).collect();
        // a turned, b the second half of a larger tensor, turned.
        let a = tensor(&a, [1, k, m], DType::F32, &device).swap_dims(1, 2);
        let b = tensor(&b, [1, 2 * n, k], DType::F32, &device).slice([0..1, n..2 * n]).swap_dims(1, 2);
        let found = read(gemm(a, b, GemmOptions::default()).unwrap());
        assert_within(&found, &expected, |_| 0.0, &format!("views on {device:?}"));
    }
}

/// Products of networks at their full size: linear layers of 120,000 points and of 2 million voxels, and their weights'
/// gradients.
#[test]
fn no_dispatch_takes_100_ms_at_1_tflops_and_25_gbps() {
    let shapes = [
        [120_000, 64, 9],
        [9, 64, 120_000],
        [480_000, 128, 64],
        [64, 128, 480_000],
        [2_097_152, 20, 8],
        [8, 20, 2_097_152],
        [1, 1, 1 << 24],
        [4096, 4096, 4096],
        [128, 192, 262_144],
        [262_144, 192, 128],
    ];
    for [m, n, k] in shapes {
        for (batch, dtype) in [(1, DType::F32), (4, DType::F32), (1, DType::F16), (4, DType::F16)] {
            let all = dispatches(m, n, k, batch, dtype);
            let what = format!("{m} x {n} x {k}, batch {batch}, {dtype:?}");
            for one in &all {
                let seconds = (one.flops as f64 / 1e12).max(one.bytes as f64 / 25e9);
                assert!(seconds < 0.1, "{what}: {} of {} groups takes {seconds} s", one.name, one.groups);
                assert!((1..=65_535 * 65_535).contains(&one.groups), "{what}: {one:?}");
            }
            let (flops, bytes) = all.iter().fold((0, 0), |sum, one| (sum.0 + one.flops, sum.1 + one.bytes));
            assert!(flops >= (2 * m * n * k * batch) as u64, "{what}: {flops} flops");
            assert!(bytes >= (batch * (m * k + k * n + m * n) * dtype.size()) as u64, "{what}: {bytes} bytes");
        }
    }
}

fn refused(a: Tensor<3>, b: Tensor<3>, options: GemmOptions, parts: &[&str]) {
    let what = format!("{:?} x {:?}", a.dims(), b.dims());
    match gemm(a, b, options) {
        Err(Error::Usage(message)) => {
            for part in ["gemm"].iter().chain(parts) {
                assert!(message.contains(part), "{what}: no {part:?} in: {message}");
            }
        }
        other => panic!("{what}: expected a usage error, found {:?}", other.map(|y| y.dims())),
    }
}

#[test]
fn products_that_cannot_be_are_refused() {
    for device in [cpu(), vulkan(), cpu().autodiff(), vulkan().autodiff()] {
        let zeros = |shape: [usize; 3]| Tensor::<3>::zeros(shape, (&device, DType::F32));
        let options = GemmOptions::default;
        let normal = |a, b, parts: &[&str]| refused(zeros(a), zeros(b), options(), parts);
        normal([1, 3, 4], [1, 5, 6], &["1x3x4", "1x5x6", "4", "5"]);
        normal([1, 3, 0], [1, 5, 6], &["1x3x0", "1x5x6"]);
        normal([2, 3, 4], [3, 4, 6], &["2x3x4", "3x4x6", "2", "3"]);
        normal([0, 3, 4], [2, 4, 6], &["0x3x4", "2x4x6"]);
        let transposed = GemmOptions { a: Layout::Transposed, ..options() };
        refused(zeros([1, 3, 4]), zeros([1, 4, 6]), transposed, &["1x3x4", "1x4x6"]);
        let transposed = GemmOptions { b: Layout::Transposed, ..options() };
        refused(zeros([1, 3, 4]), zeros([1, 4, 6]), transposed, &["1x3x4", "1x4x6"]);
        let bias = GemmOptions { bias: Some(Tensor::zeros([3], &device)), ..options() };
        refused(zeros([1, 3, 4]), zeros([1, 4, 6]), bias, &["bias of 3 values", "6"]);
        let residual = GemmOptions { residual: Some(zeros([1, 6, 3])), ..options() };
        refused(zeros([1, 3, 4]), zeros([1, 4, 6]), residual, &["residual", "1x6x3", "1x3x6"]);
        let half = Tensor::<3>::zeros([1, 4, 6], (&device, DType::F16));
        refused(zeros([1, 3, 4]), half.clone(), options(), &["F32", "F16"]);
        let residual = GemmOptions { residual: Some(half), ..options() };
        refused(zeros([1, 4, 2]), zeros([1, 2, 6]), residual, &["residual", "F32", "F16"]);
        settle(&device);
    }
    // Burn's CPU backend stores these types; products of them are not ours.
    for dtype in [DType::F64, DType::BF16] {
        let zeros = |shape: [usize; 3]| Tensor::<3>::zeros(shape, (&cpu(), dtype));
        refused(zeros([1, 3, 4]), zeros([1, 4, 6]), GemmOptions::default(), &[&format!("{dtype:?}")]);
    }
}

/// A bias of f32 with matrices of f16 is not rounded to f16, and neither is its gradient; and one of f16 serves either.
#[test]
fn a_bias_has_its_own_type() {
    // 1 + 2^-20 is no f16; minus 1 the bias leaves a power of two, which is one.
    let fine = 1.0 + 2f64.powi(-20);
    for device in [cpu(), vulkan()] {
        let on = device.autodiff();
        // 4,098 rows of ones: a sum beyond 2,048 that is no f16. With long k, the sums of parts.
        for (m, k) in [(4098, 2), (2, 4096)] {
            for (dtype, bias_dtype) in [(DType::F16, DType::F32), (DType::F32, DType::F16), (DType::F16, DType::F16)] {
                let what = format!("{m} rows of {k} {dtype:?} and a bias of {bias_dtype:?} on {on:?}");
                let mut first = vec![0.0; m * k];
                first.iter_mut().step_by(k).for_each(|a| *a = -1.0);
                let a = tensor(&first, [1, m, k], dtype, &on);
                let b = tensor(&vec![1.0; k * 3], [1, k, 3], dtype, &on);
                let bias = if bias_dtype == DType::F32 { fine } else { 1.25 };
                let bias_on = tensor(&[bias; 3], [3], bias_dtype, &on).require_grad();
                let y = gemm(a, b, GemmOptions { bias: Some(bias_on.clone()), ..GemmOptions::default() }).unwrap();
                assert_eq!(y.dtype(), dtype, "{what}");
                assert!(read(y.clone()).iter().all(|y| *y == bias - 1.0), "{what}");
                let mut gradients = y.sum().backward();
                let gradient = bias_on.grad_remove(&mut gradients).unwrap();
                assert_eq!(gradient.dtype(), bias_dtype, "{what}");
                let rounded = if bias_dtype == DType::F16 { half::f16::from_f64(m as f64).to_f64() } else { m as f64 };
                assert_eq!(read(gradient), [rounded; 3], "{what}");
            }
        }
    }
}

/// 2^24 x 2^24 values are more bytes than a process can address.
#[test]
fn products_beyond_the_memory_are_refused_on_the_cpu() {
    let long = |shape: [usize; 3]| Tensor::<3>::zeros([1; 3], (&cpu(), DType::F32)).expand(shape);
    match gemm(long([1, 1 << 24, 1]), long([1, 1, 1 << 24]), GemmOptions::default()) {
        Err(Error::TooLarge(message)) => {
            for part in ["gemm", "1x16777216x16777216", "1125899906842624 bytes"] {
                assert!(message.contains(part), "no {part:?} in: {message}");
            }
        }
        other => panic!("expected too large, found {:?}", other.map(|y| y.dims())),
    }
}

#[test]
fn products_beyond_the_limit_of_a_binding_are_refused() {
    let device = vulkan();
    let zeros = |shape: [usize; 3]| Tensor::<3>::zeros(shape, (&device, DType::F32));
    let too_large = |a: Tensor<3>, b: Tensor<3>, parts: &[&str]| {
        let shapes = [a.dims(), b.dims()];
        match gemm(a, b, GemmOptions::default()) {
            Err(Error::TooLarge(message)) => {
                for part in ["gemm", "134217728"].iter().chain(parts) {
                    assert!(message.contains(part), "{shapes:?}: no {part:?} in: {message}");
                }
            }
            other => panic!("{shapes:?}: expected too large, found {:?}", other.map(|y| y.dims())),
        }
    };
    // The result: 8,192 x 8,192 x 4 bytes.
    too_large(zeros([1, 8192, 1]), zeros([1, 1, 8192]), &["268435456"]);
    // An operand: 2 x 17 million x 4 bytes.
    let empty = |shape: [usize; 3]| Tensor::<3>::empty(shape, (&device, DType::F32));
    too_large(empty([1, 2, 17_000_000]), empty([1, 17_000_000, 1]), &["136000000"]);
    settle(&device);
}
