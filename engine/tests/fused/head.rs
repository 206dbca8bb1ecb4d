//! The occupancy head.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use occam_engine::losses::{ClassWeights, LossConfig, Losses, Targets};
use occam_engine::scene::GridSpec;
use occam_engine::{Error, ops};

use crate::common::{Sums, Values, assert_within, cpu, read, round, settle, tensor, vulkan};
use crate::golden;

/// Sizes, and what the loss takes.
#[derive(Debug, Clone)]
struct Case {
    batch: usize,
    channels: usize,
    voxels: usize,
    classes: usize,
    dtype: DType,
    gamma: f64,
    x: Vec<f64>,
    weight: Vec<f64>,
    bias: Vec<f64>,
    labels: Vec<u32>,
    class_weights: Vec<f64>,
    upstream: Vec<f64>,
}

/// Loss and gradients in order: of the features, weights and biases.
struct Outcome {
    loss: Vec<f64>,
    by_x: Vec<f64>,
    by_weight: Vec<f64>,
    by_bias: Vec<f64>,
}

impl Case {
    /// Real numbers; some labels are none of the classes, and of three classes or more one has no weight.
    fn reals([batch, channels, voxels, classes]: [usize; 4], dtype: DType, gamma: f64) -> Self {
        let seed = (channels * 131 + voxels * 17 + classes) as u32;
        let take = |dtype, n, k| Values::Reals.take(dtype, n, seed + k);
        let mut class_weights: Vec<f64> =
            take(DType::F32, classes, 3).iter().map(|v| round(DType::F32, v + 1.5)).collect();
        if classes > 2 {
            class_weights[classes / 2] = 0.0;
        }
        let labels = take(DType::F32, batch * voxels, 4);
        Self {
            batch,
            channels,
            voxels,
            classes,
            dtype,
            gamma,
            x: take(dtype, batch * channels * voxels, 0),
            weight: take(DType::F32, classes * channels, 1),
            bias: take(DType::F32, classes, 2),
            labels: labels.iter().map(|v| ((v + 1.0) / 2.0 * (classes as f64 + 0.7)) as u32 % 257).collect(),
            class_weights,
            upstream: take(DType::F32, batch * voxels, 5),
        }
    }

    /// Whole numbers for which the logits of a voxel are equal: every p is 1 / K, exact for a power of two, and gradients are
    /// exact sums. A voxel that is lost or taken twice shows. Features come in pairs of opposite sign with equal weights.
    fn integers([batch, pairs, voxels, classes]: [usize; 4], dtype: DType) -> Self {
        assert!(classes.is_power_of_two());
        let mut case = Self::reals([batch, 2 * pairs, voxels, classes], dtype, 0.0);
        case.x = Values::Integers.take(dtype, case.x.len(), 7);
        for sample in case.x.chunks_mut((2 * pairs * voxels).max(1)) {
            let (plus, minus) = sample.split_at_mut(pairs * voxels);
            minus.iter_mut().zip(plus).for_each(|(minus, plus)| *minus = -*plus);
        }
        case.weight = Values::Integers.take(DType::F32, case.weight.len(), 8);
        for row in case.weight.chunks_mut(2 * pairs) {
            row.copy_within(..pairs, pairs);
        }
        case.bias.fill(3.0);
        case.class_weights.fill(2.0);
        case.upstream = Values::Integers.take(DType::F32, batch * voxels, 9);
        case
    }

    fn label(&self, voxel: usize) -> Option<usize> {
        let label = self.labels[voxel] as usize;
        (label < self.classes && self.class_weights[label] != 0.0).then_some(label)
    }

    /// By the formula, in f64: of voxel `i` with label `y` and `s = softmax(W x + b)`, the loss is
    /// `w_y (1 - s_y)^gamma (-log s_y)`, and its gradient by logit `k` is `w_y f (s_k - [k = y])` with
    /// `f = (1 - s_y)^gamma + gamma (1 - s_y)^(gamma - 1) s_y (-log s_y)`.
    fn expected(&self) -> (Vec<f64>, [Sums; 3]) {
        let Self { batch, channels, voxels, classes, gamma, .. } = *self;
        let mut loss = vec![0.0; batch * voxels];
        let mut sums = [self.x.len(), self.weight.len(), classes].map(Sums::zeros);
        for (i, loss) in loss.iter_mut().enumerate() {
            let Some(label) = self.label(i) else { continue };
            let place = |channel: usize| (i / voxels * channels + channel) * voxels + i % voxels;
            let logits: Vec<f64> = (0..classes)
                .map(|k| {
                    self.bias[k] + (0..channels).map(|c| self.weight[k * channels + c] * self.x[place(c)]).sum::<f64>()
                })
                .collect();
            let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let exp: Vec<f64> = logits.iter().map(|logit| (logit - largest).exp()).collect();
            let sum: f64 = exp.iter().sum();
            let others: f64 = (0..classes).filter(|k| *k != label).map(|k| exp[k]).sum();
            let (own, missing) = (exp[label] / sum, others / sum);
            let surprise = sum.ln() + (largest - logits[label]);
            let weight = self.class_weights[label];
            *loss = weight * missing.powf(gamma) * surprise;
            let mut slope = missing.powf(gamma);
            if gamma > 0.0 {
                slope += gamma * missing.max(1e-8).powf(gamma - 1.0) * own * surprise;
            }
            for (k, exp) in exp.iter().enumerate() {
                let towards = if k == label { -missing } else { exp / sum };
                let by_logit = weight * slope * self.upstream[i] * towards;
                sums[2].add(k, by_logit);
                for c in 0..channels {
                    sums[0].add(place(c), by_logit * self.weight[k * channels + c]);
                    sums[1].add(k * channels + c, by_logit * self.x[place(c)]);
                }
            }
        }
        (loss, sums)
    }

    fn labels(&self, device: &Device) -> Tensor<2, Int> {
        Tensor::from_data(TensorData::new(self.labels.clone(), [self.batch, self.voxels]), (device, DType::U32))
    }

    fn outcome(&self, device: &Device) -> Outcome {
        let Self { batch, channels, voxels, classes, .. } = *self;
        let leaf = device.clone().autodiff();
        let x = tensor(&self.x, [batch, channels, voxels], self.dtype, &leaf).require_grad();
        let weight = tensor(&self.weight, [classes, channels], DType::F32, &leaf).require_grad();
        let bias = tensor(&self.bias, [classes], DType::F32, &leaf).require_grad();
        let class_weights = tensor(&self.class_weights, [classes], DType::F32, device);
        let upstream = tensor(&self.upstream, [batch, voxels], DType::F32, &leaf);
        let (labels, gamma) = (self.labels(device), self.gamma as f32);
        let loss = ops::occupancy_head(x.clone(), weight.clone(), bias.clone(), labels, class_weights, gamma).unwrap();
        let mut gradients = (loss.clone() * upstream).sum().backward();
        let by_x = x.grad_remove(&mut gradients).unwrap();
        assert_eq!(by_x.dtype(), self.dtype);
        assert_eq!(read(x), self.x, "features that somebody holds are not written over");
        Outcome {
            loss: read(loss),
            by_x: read(by_x),
            by_weight: read(weight.grad_remove(&mut gradients).unwrap()),
            by_bias: read(bias.grad_remove(&mut gradients).unwrap()),
        }
    }

    /// `error` of the terms' magnitudes; 0: exact but for the rounding of what is stored.
    fn check(&self, device: &Device, error: f64) {
        let (loss, [by_x, by_weight, by_bias]) = self.expected();
        let found = self.outcome(device);
        let Self { batch, channels, voxels, classes, dtype, gamma, .. } = self;
        let what = format!("{batch}x{channels}x{voxels} to {classes} {dtype:?} gamma {gamma} on {device:?}");
        // A logit's own rounding stays however small the loss is.
        let of_loss = |place: usize| (error * (1.0 + loss[place])).max(1e-6 * loss[place]);
        assert_within(&found.loss, &loss, of_loss, &format!("{what}: loss"));
        let kind = if error == 0.0 { Values::Integers } else { Values::Reals };
        // Passes over more than 32 classes on a GPU round their sums to the type, one after the other.
        let roundings = classes.div_ceil(32) as f64;
        for (name, found, expected, dtype) in [
            ("by x", &found.by_x, &by_x, *dtype),
            ("by weight", &found.by_weight, &by_weight, DType::F32),
            ("by bias", &found.by_bias, &by_bias, DType::F32),
        ] {
            let tolerance = |place: usize| {
                let magnitude = expected.magnitude[place];
                let of_sum = error * magnitude;
                let passes = if roundings > 1.0 { magnitude } else { expected.value[place] };
                of_sum + roundings * kind.rounding(dtype, passes, of_sum)
            };
            assert_within(found, &expected.value, tolerance, &format!("{what}: {name}"));
        }
    }
}

/// Batch, channels, voxels, classes: around workgroups, tiles and blocks, several workgroups of a gradient.
const SIZES: [[usize; 4]; 16] = [
    [1, 1, 1, 1],
    [1, 8, 63, 20],
    [2, 8, 64, 2],
    [1, 32, 65, 20],
    [3, 1, 255, 20],
    [1, 33, 256, 33],
    [2, 15, 257, 8],
    [1, 16, 1023, 9],
    [1, 17, 1024, 21],
    [2, 33, 1025, 32],
    [1, 2, 300, 256],
    [1, 64, 130, 32],
    [4, 3, 5, 40],
    [1, 8, 2305, 1],
    [1, 5, 9300, 20],
    [1, 130, 70, 4],
];

fn check_sizes(device: &Device) {
    for (number, sizes) in SIZES.into_iter().enumerate() {
        for dtype in [DType::F32, DType::F16] {
            let gamma = [0.0, 2.0, 0.5][number % 3];
            Case::reals(sizes, dtype, gamma).check(device, 2e-5);
        }
    }
    settle(device);
}

#[test]
fn the_head_equals_its_formula() {
    check_sizes(&cpu());
}

#[test]
fn the_head_on_vulkan_equals_its_formula() {
    check_sizes(&vulkan());
}

#[test]
fn the_head_equals_pytorch() {
    for device in [cpu(), vulkan()] {
        for (name, gamma) in [("plain", 0.0), ("focal", 2.0)] {
            let of = |tensor: &str| golden(&format!("{name}.{tensor}")).1;
            let (shape, x) = golden(&format!("{name}.x"));
            let case = Case {
                batch: shape[0],
                channels: shape[1],
                voxels: shape[2],
                classes: of("bias").len(),
                dtype: DType::F32,
                gamma,
                x,
                weight: of("weight"),
                bias: of("bias"),
                labels: of("labels").iter().map(|label| *label as u32).collect(),
                class_weights: of("class_weights"),
                upstream: of("gradient"),
            };
            let found = case.outcome(&device);
            for (tensor, found) in
                [("loss", found.loss), ("by_x", found.by_x), ("by_weight", found.by_weight), ("by_bias", found.by_bias)]
            {
                let expected = of(tensor);
                let largest = expected.iter().fold(0.0f64, |most, value| most.max(value.abs()));
                let tolerance = |place: usize| 1e-5 * expected[place].abs() + 1e-6 * largest;
                assert_within(&found, &expected, tolerance, &format!("{name}.{tensor} on {device:?}"));
            }
        }
        settle(&device);
    }
}

#[test]
fn gradients_of_whole_numbers_are_exact() {
    for device in [cpu(), vulkan()] {
        for sizes in [[1, 4, 257, 2], [2, 16, 1025, 16], [1, 1, 9000, 4], [1, 3, 100, 64], [3, 20, 65, 32]] {
            for dtype in [DType::F32, DType::F16] {
                Case::integers(sizes, dtype).check(&device, 0.0);
            }
        }
        settle(&device);
    }
}

#[test]
fn what_counts_for_nothing_gives_nothing() {
    for device in [cpu(), vulkan()] {
        let mut case = Case::reals([2, 8, 70, 20], DType::F32, 2.0);
        case.labels.fill(20);
        let zeros = |found: Outcome| {
            [found.loss, found.by_x, found.by_weight, found.by_bias]
                .iter()
                .all(|values| values.iter().all(|v| *v == 0.0))
        };
        assert!(zeros(case.outcome(&device)), "labels that are none of the classes");
        case.labels.fill(3);
        case.class_weights[3] = 0.0;
        assert!(zeros(case.outcome(&device)), "a class without weight");
        let one = Case::reals([1, 8, 70, 1], DType::F32, 0.0);
        assert!(zeros(one.outcome(&device)), "the only class is certain");
        for (sizes, weights) in [([1, 4, 0, 3], 12), ([0, 4, 5, 3], 12)] {
            let none = Case::reals(sizes, DType::F16, 0.0).outcome(&device);
            assert!(none.loss.is_empty() && none.by_x.is_empty(), "{sizes:?}");
            assert_eq!((none.by_weight, none.by_bias), (vec![0.0; weights], vec![0.0; 3]), "{sizes:?}");
        }
        settle(&device);
    }
}

/// Logits of up to 2^103: the softmax is 0 or 1, or shared among equal ones, and the loss the distance to the largest logit.
#[test]
fn huge_logits_stay_finite() {
    for device in [cpu(), vulkan()] {
        for classes in [5, 70] {
            let mut case = Case::reals([1, 2, 200, classes], DType::F32, 0.0);
            let weight = Values::Integers.take(DType::F32, 2 * classes, 1);
            case.weight = weight.into_iter().map(|v| v * 98f64.exp2()).collect();
            case.bias.fill(0.0);
            case.x = Values::Integers.take(DType::F32, 400, 2);
            case.check(&device, 1e-6);
        }
        settle(&device);
    }
}

/// The loss is that of a product and `ops::cross_entropy`, to the rounding of sums in another order.
#[test]
fn the_head_is_a_classifier_and_cross_entropy() {
    let device = cpu();
    let case = Case::reals([2, 8, 1500, 20], DType::F32, 2.0);
    let x = tensor(&case.x, [2, 8, 1500], DType::F32, &device);
    let weight = tensor(&case.weight, [1, 20, 8], DType::F32, &device);
    let bias = tensor(&case.bias, [1, 20, 1], DType::F32, &device);
    let logits = ops::gemm(weight, x, ops::GemmOptions::default()).unwrap() + bias;
    let class_weights = tensor(&case.class_weights, [20], DType::F32, &device);
    let expected = read(ops::cross_entropy(logits, case.labels(&device), class_weights, 2.0).unwrap());
    assert_within(&case.outcome(&device).loss, &expected, |i| 1e-5 * (1.0 + expected[i]), "loss");
}

#[test]
fn neither_runs_nor_threads_change_a_bit() {
    let case = Case::reals([2, 33, 20_000, 20], DType::F32, 2.0);
    let all = |found: Outcome| [found.loss, found.by_x, found.by_weight, found.by_bias];
    let expected = all(case.outcome(&cpu()));
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert!(pool.install(|| all(case.outcome(&cpu()))) == expected, "{threads} threads");
    }
    let case = Case::reals([1, 8, 3000, 20], DType::F32, 0.0);
    let device = vulkan();
    assert!(all(case.outcome(&device)) == all(case.outcome(&device)), "two runs on a GPU");
}

/// A view whose voxels do not lie together, and weights in f16.
#[test]
fn views_and_half_precision_weights_are_taken() {
    for device in [cpu(), vulkan()] {
        let mut case = Case::reals([1, 6, 77, 5], DType::F32, 0.0);
        case.weight.iter_mut().chain(&mut case.bias).for_each(|v| *v = round(DType::F16, *v));
        let turned: Vec<f64> = (0..case.x.len()).map(|i| case.x[i % 6 * 77 + i / 6]).collect();
        let x = tensor(&turned, [1, 77, 6], DType::F32, &device).swap_dims(1, 2);
        let weight = tensor(&case.weight, [5, 6], DType::F16, &device);
        let bias = tensor(&case.bias, [5], DType::F16, &device);
        let class_weights = tensor(&case.class_weights, [5], DType::F32, &device);
        let loss = ops::occupancy_head(x, weight, bias, case.labels(&device), class_weights, 0.0).unwrap();
        let (expected, _) = case.expected();
        assert_within(&read(loss), &expected, |i| 1e-5 * (1.0 + expected[i]), "loss");
        settle(&device);
    }
}

/// The losses of a step, cross-entropy and focal together, a few planes at a time and all at once.
#[test]
fn losses_of_features_are_those_of_their_logits() {
    let (device, [z, x, y]) = (cpu(), [6, 5, 7]);
    let config = LossConfig {
        class_weights: ClassWeights::None,
        cross_entropy: 0.75,
        lovasz: 0.0,
        semantic_affinity: 0.0,
        geometric_affinity: 0.0,
        focal: 0.5,
        focal_gamma: 2.0,
    };
    let case = Case::reals([2, 8, z * x * y, 20], DType::F32, 0.0);
    let spec = GridSpec::new([0.0; 3], [1.0; 3], [x, y, z]);
    let losses = Losses::new(&config, tensor(&case.class_weights, [20], DType::F32, &device), &spec);
    let labels: Vec<u8> = case.labels.iter().map(|label| if *label < 20 { *label as u8 } else { 255 }).collect();
    let targets = Targets::new(&labels, [2, z, x, y], 20, 255, &device);
    let features = tensor(&case.x, [2, 8, z, x, y], DType::F32, &device);
    let weight = tensor(&case.weight, [20, 8], DType::F32, &device);
    let bias = tensor(&case.bias, [20], DType::F32, &device);
    let flat = features.clone().reshape([2, 8, z * x * y]);
    let logits = ops::gemm(weight.clone().unsqueeze(), flat, ops::GemmOptions::default()).unwrap();
    let logits = (logits + bias.clone().reshape([1, 20, 1])).reshape([2, 20, z, x, y]);
    let expected = read(losses.of_planes(logits, &targets, 0..z, 3).unwrap())[0];
    let of = |range: std::ops::Range<usize>| {
        let planes = features.clone().slice_dim(2, range.clone());
        read(losses.of_features(planes, &weight, &bias, &targets, range, 3).unwrap())[0]
    };
    for found in [of(0..z), of(0..4) + of(4..6)] {
        assert!((found / expected - 1.0).abs() < 1e-5, "{found}, expected {expected}");
    }
}

#[test]
fn what_does_not_fit_together_is_told() {
    let device = cpu();
    let refusal = |weight: [usize; 2], bias: usize, labels: [usize; 2], class_weights: usize, dtype: DType| {
        let x = Tensor::<3>::zeros([2, 4, 6], (&device, dtype));
        let (weight, bias) = (Tensor::zeros(weight, &device), Tensor::zeros([bias], &device));
        let labels = Tensor::<2, Int>::zeros(labels, &device);
        let class_weights = Tensor::zeros([class_weights], &device);
        match ops::occupancy_head(x, weight, bias, labels, class_weights, 0.0) {
            Err(Error::Usage(text)) => text,
            other => panic!("{:?}", other.map(|loss| loss.dims())),
        }
    };
    let good = [3, 4];
    for (text, part) in [
        (refusal([3, 5], 3, [2, 6], 3, DType::F32), "found weights 3x5 (classes, channels)"),
        (refusal(good, 2, [2, 6], 3, DType::F32), "found 2 biases and 3 class weights"),
        (refusal(good, 3, [2, 6], 4, DType::F32), "found 3 biases and 4 class weights"),
        (refusal(good, 3, [2, 5], 3, DType::F32), "found labels 2x5"),
        (refusal([0, 4], 0, [2, 6], 0, DType::F32), "one for each of 1 to 256 classes"),
        (refusal(good, 3, [2, 6], 3, DType::F64), "F64"),
    ] {
        assert!(text.contains(part) && text.contains("the occupancy head of features 2x4x6"), "{text}");
    }
}
