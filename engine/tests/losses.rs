//! The training losses against PyTorch (golden file of tests/generators/loss.py), against plain f64 and at the edges.

use std::collections::BTreeMap;
use std::path::Path;

use burn::store::{ModuleStore, SafetensorsStore, bridge};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::losses::{ClassWeights, LossConfig, Losses, Targets, cross_entropy};
use occam_engine::ops::{cross_entropy as cross_entropy_of_voxels, lovasz_gradient};
use occam_scene::GridSpec;

fn cpu() -> Device {
    gpu::open(&DeviceChoice::Cpu).unwrap().device
}

fn vulkan() -> Device {
    gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec::<f32>().unwrap()
}

/// Weights of cross-entropy, Lovász, semantic and geometric affinity, focal; gamma.
fn config(weights: [f64; 6]) -> LossConfig {
    let [cross_entropy, lovasz, semantic_affinity, geometric_affinity, focal, focal_gamma] = weights;
    let class_weights = ClassWeights::None;
    LossConfig { class_weights, cross_entropy, lovasz, semantic_affinity, geometric_affinity, focal, focal_gamma }
}

const ALONE: [[f64; 6]; 5] = [
    [1.0, 0.0, 0.0, 0.0, 0.0, 2.0],
    [0.0, 1.0, 0.0, 0.0, 0.0, 2.0],
    [0.0, 0.0, 1.0, 0.0, 0.0, 2.0],
    [0.0, 0.0, 0.0, 1.0, 0.0, 2.0],
    [0.0, 0.0, 0.0, 0.0, 1.0, 2.0],
];

/// One scale of a case: B, C, Z, X, Y, and what is in it.
#[derive(Clone)]
struct Scale {
    shape: [usize; 5],
    logits: Vec<f32>,
    targets: Vec<u8>,
}

struct Case {
    weights: [f64; 6],
    class_weights: Vec<f32>,
    empty_id: u8,
    ignore_id: u8,
    scales: Vec<Scale>,
}

impl Case {
    /// One scale, classes of equal weight, class 0 empty.
    fn new(weights: [f64; 6], shape: [usize; 5], logits: Vec<f32>, targets: Vec<u8>) -> Self {
        let scales = vec![Scale { shape, logits, targets }];
        Self { weights, class_weights: vec![1.0; shape[1]], empty_id: 0, ignore_id: 255, scales }
    }

    /// The loss, and its gradient scale by scale.
    fn evaluate(&self, device: &Device) -> (f32, Vec<Vec<f32>>) {
        let mut spec = GridSpec::new([0.0; 3], [1.0; 3], [1; 3]);
        (spec.empty_id, spec.ignore_id) = (self.empty_id, self.ignore_id);
        let class_weights = Tensor::from_data(self.class_weights.as_slice(), device);
        let losses = Losses::new(&config(self.weights), class_weights, &spec);
        let leaf = |scale: &Scale| {
            let data = TensorData::new(scale.logits.clone(), scale.shape);
            Tensor::<5>::from_data(data, &device.clone().autodiff()).require_grad()
        };
        let leaves: Vec<Tensor<5>> = self.scales.iter().map(leaf).collect();
        let targets = self.scales.iter().map(|Scale { shape: [batch, classes, z, x, y], targets, .. }| {
            Targets::new(targets, [*batch, *z, *x, *y], *classes, self.ignore_id, device)
        });
        let loss = losses.total(leaves.clone(), &targets.collect::<Vec<_>>()).unwrap();
        let gradients = loss.backward();
        (values(loss)[0], leaves.iter().map(|leaf| values(leaf.grad(&gradients).unwrap())).collect())
    }
}

// ---------------------------------------------------------------------------------------------- PyTorch

/// A case with its expected loss and gradient; the gradient of none when it is no single one.
struct Golden {
    case: Case,
    loss: f32,
    gradient: Option<Vec<Vec<f32>>>,
    kind: i32,
}

fn golden() -> Vec<Golden> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/losses.safetensors");
    let mut store = SafetensorsStore::from_file(path);
    let all: BTreeMap<String, TensorData> =
        store.get_all_tensors().unwrap().iter().map(|(name, t)| (name.clone(), bridge::to_data(t).unwrap())).collect();
    let floats = |name: &str| all[name].try_to_vec::<f32>().unwrap().into_iter();
    let ints = |name: &str| all[name].try_to_vec::<i32>().unwrap().into_iter();
    let (mut weights, mut class_weights, mut loss) = (floats("weights"), floats("class_weights"), floats("loss"));
    let (mut logits, mut gradient) = (floats("logits"), floats("gradient"));
    let mut targets = all["targets"].try_to_vec::<u8>().unwrap().into_iter();
    let (mut shapes, mut ids, mut unique, mut kinds) = (ints("shapes"), ints("ids"), ints("unique"), ints("kinds"));
    ints("levels")
        .map(|levels| {
            let mut of_scales = Vec::new();
            let scales: Vec<Scale> = (0..levels)
                .map(|_| {
                    let shape: [usize; 5] = std::array::from_fn(|_| shapes.next().unwrap() as usize);
                    let len = shape.iter().product();
                    of_scales.push(gradient.by_ref().take(len).collect());
                    let logits = logits.by_ref().take(len).collect();
                    Scale { shape, logits, targets: targets.by_ref().take(len / shape[1]).collect() }
                })
                .collect();
            let classes = scales[0].shape[1];
            let case = Case {
                weights: std::array::from_fn(|_| f64::from(weights.next().unwrap())),
                class_weights: class_weights.by_ref().take(classes).collect(),
                empty_id: ids.next().unwrap() as u8,
                ignore_id: ids.next().unwrap() as u8,
                scales,
            };
            let is_unique = unique.next().unwrap() == 1;
            let gradient = is_unique.then_some(of_scales);
            Golden { case, loss: loss.next().unwrap(), gradient, kind: kinds.next().unwrap() }
        })
        .collect()
}

/// Sums of the gradients of voxels of equal logits, by those logits: these voxels may take each other's part.
fn sums_by_logits(scale: &Scale, gradient: &[f32]) -> BTreeMap<Vec<u32>, Vec<f64>> {
    let [batch, classes, z, x, y] = scale.shape;
    let voxels = z * x * y;
    let mut sums = BTreeMap::new();
    for place in (0..batch * voxels).map(|i| i / voxels * classes * voxels + i % voxels) {
        let of_voxel = (0..classes).map(|class| place + class * voxels);
        let key = of_voxel.clone().map(|i| scale.logits[i].to_bits()).collect();
        let sum = sums.entry(key).or_insert_with(|| vec![0.0; classes]);
        for (sum, i) in sum.iter_mut().zip(of_voxel) {
            *sum += f64::from(gradient[i]);
        }
    }
    sums
}

/// Within 1e-5, absolute below 1 and relative above.
fn assert_close(found: f64, expected: f64, what: &dyn Fn() -> String) {
    let close = (found - expected).abs() <= 1e-5 * expected.abs().max(1.0);
    assert!(close, "{}: {found}, expected {expected}", what());
}

fn check_golden(device: &Device, every: usize) {
    let all = golden();
    assert_eq!(all.len(), 200);
    for (index, Golden { case, loss, gradient, kind }) in all.into_iter().enumerate().step_by(every) {
        let what = format!("case {index} of kind {kind}, weights {:?}", case.weights);
        let (found, of_scales) = case.evaluate(device);
        assert_close(found.into(), loss.into(), &|| format!("{what}: loss"));
        let Some(expected) = gradient else { continue };
        for ((scale, found), expected) in case.scales.iter().zip(of_scales).zip(expected) {
            let (found, expected) = (sums_by_logits(scale, &found), sums_by_logits(scale, &expected));
            for (found, expected) in found.values().flatten().zip(expected.values().flatten()) {
                assert_close(*found, *expected, &|| format!("{what}: gradient"));
            }
        }
    }
}

#[test]
fn losses_equal_pytorch() {
    check_golden(&cpu(), 1);
}

/// 9 has no factor in common with the 7 choices of losses, nor with the kinds of cases.
#[test]
fn losses_on_vulkan_equal_pytorch() {
    check_golden(&vulkan(), 9);
}

// ---------------------------------------------------------------------------------------------- larger, and edges

/// Numbers in [0, 1) without a pattern, the same on every run.
fn noise(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32
        })
        .collect()
}

fn random_case(weights: [f64; 6], shape: [usize; 5], seed: u64) -> Case {
    let [batch, classes, z, x, y] = shape;
    let logits = noise(shape.iter().product(), seed).iter().map(|v| 6.0 * v - 3.0).collect();
    let targets = noise(batch * z * x * y, seed + 1).iter().map(|v| (v * v * classes as f32) as u8).collect();
    Case::new(weights, shape, logits, targets)
}

/// Lovász-softmax by its definition, in f64: the loss, and its gradient by the logits.
fn plain_lovasz(Scale { shape: [_, classes, z, x, y], logits, targets }: &Scale, ignore: u8) -> (f64, Vec<f64>) {
    let voxels = z * x * y;
    let valid: Vec<usize> = (0..voxels).filter(|v| targets[*v] != ignore).collect();
    let mut p = vec![0.0; logits.len()];
    for v in 0..voxels {
        let sum: f64 = (0..*classes).map(|c| f64::from(logits[c * voxels + v]).exp()).sum();
        (0..*classes).for_each(|c| p[c * voxels + v] = f64::from(logits[c * voxels + v]).exp() / sum);
    }
    let present: Vec<usize> = (0..*classes).filter(|c| valid.iter().any(|v| usize::from(targets[*v]) == *c)).collect();
    let (mut loss, mut by_p) = (0.0, vec![0.0; p.len()]);
    for &c in &present {
        let is_class = |v: usize| usize::from(targets[v]) == c;
        let error = |v: usize| if is_class(v) { 1.0 - p[c * voxels + v] } else { p[c * voxels + v] };
        let mut order = valid.clone();
        order.sort_by(|a, b| error(*b).total_cmp(&error(*a)));
        let total = valid.iter().filter(|v| is_class(**v)).count() as f64;
        let (mut hits, mut misses, mut before) = (0.0, 0.0, 0.0);
        for v in order {
            if is_class(v) {
                hits += 1.0;
            } else {
                misses += 1.0;
            }
            let jaccard = 1.0 - (total - hits) / (total + misses);
            let step = (jaccard - before) / present.len() as f64;
            before = jaccard;
            loss += error(v) * step;
            by_p[c * voxels + v] = if is_class(v) { -step } else { step };
        }
    }
    let mut gradient = vec![0.0; p.len()];
    for v in 0..voxels {
        let mean: f64 = (0..*classes).map(|c| p[c * voxels + v] * by_p[c * voxels + v]).sum();
        (0..*classes).for_each(|c| gradient[c * voxels + v] = p[c * voxels + v] * (by_p[c * voxels + v] - mean));
    }
    (loss, gradient)
}

/// 120,000 voxels: counts beyond what f16 holds, and sums over them that must not drift. A gradient is some 1e-5 here.
#[test]
fn lovasz_of_many_voxels_equals_its_definition() {
    let mut case = random_case(ALONE[1], [1, 4, 12, 100, 100], 5);
    for target in case.scales[0].targets.iter_mut().step_by(7) {
        *target = 255;
    }
    let (expected, expected_gradient) = plain_lovasz(&case.scales[0], 255);
    let (loss, gradient) = case.evaluate(&cpu());
    assert!((f64::from(loss) - expected).abs() < 1e-6, "{loss}, {expected}");
    let largest = expected_gradient.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    for (found, expected) in gradient[0].iter().zip(expected_gradient) {
        assert!((f64::from(*found) - expected).abs() < 1e-4 * largest, "{found}, {expected}, largest {largest}");
    }
}

/// Affinity and focal loss add up many voxels too: a class everywhere alike has the loss of one voxel.
#[test]
fn sums_over_many_voxels_do_not_drift() {
    let shape = [1, 2, 32, 128, 128];
    let voxels = 32 * 128 * 128;
    let logits = [vec![0.1; voxels], vec![0.2; voxels]].concat();
    let targets: Vec<u8> = (0..voxels).map(|v| (v % 2) as u8).collect();
    let p = 1.0 / (1.0 + 0.1f64.exp());
    // Precision of either class is a half; recall and specificity are p of one and of the other.
    let of_each = 2f64.ln() - p.ln() - (1.0 - p).ln();
    let focal = -0.5 * ((1.0 - p).powi(2) * p.ln() + p.powi(2) * (1.0 - p).ln());
    for (weights, expected) in [(ALONE[2], of_each), (ALONE[3], of_each), (ALONE[4], focal)] {
        let (loss, _) = Case::new(weights, shape, logits.clone(), targets.clone()).evaluate(&cpu());
        assert_close(loss.into(), expected, &|| format!("{weights:?}"));
    }
}

#[test]
fn the_default_is_cross_entropy_bit_for_bit() {
    let case = Case { class_weights: vec![0.3, 1.0, 0.7], ..random_case(ALONE[0], [2, 3, 4, 6, 5], 9) };
    let (loss, gradient) = case.evaluate(&cpu());
    let Scale { shape, logits, targets } = case.scales[0].clone();
    let logits = Tensor::<5>::from_data(TensorData::new(logits, shape), &cpu().autodiff()).require_grad();
    let targets = Targets::new(&targets, [2, 4, 6, 5], 3, 255, &cpu());
    let weights = Tensor::from_data(case.class_weights.as_slice(), &cpu());
    let expected = cross_entropy(logits.clone(), &targets, &weights, 255).unwrap();
    let gradients = expected.backward();
    assert!(loss.to_bits() == values(expected)[0].to_bits());
    assert!(gradient[0] == values(logits.grad(&gradients).unwrap()));
}

/// Where nothing can be learned there is no loss or a finite one, and never a gradient that is not finite.
#[test]
fn degenerate_crops_are_safe() {
    let shape = [1, 3, 2, 2, 2];
    let logits = [-1e30f32, -200.0, -50.0, 0.0, 50.0, 200.0, 1e30];
    for weights in ALONE {
        for targets in [[255; 8], [0; 8], [1; 8], [1, 2, 1, 2, 1, 2, 1, 2], [0, 255, 255, 255, 255, 255, 255, 255]] {
            for (first, second) in logits.iter().flat_map(|a| logits.iter().map(move |b| (*a, *b))) {
                let all = [[first; 8], [second; 8], [0.0; 8]].concat();
                let (loss, gradient) = Case::new(weights, shape, all, targets.to_vec()).evaluate(&cpu());
                let what = format!("{weights:?} {targets:?} {first} {second}: {loss} {gradient:?}");
                assert!(loss.is_finite() && loss >= 0.0 && gradient[0].iter().all(|g| g.is_finite()), "{what}");
                for (i, gradient) in gradient[0].iter().enumerate() {
                    assert!(targets[i % 8] != 255 || *gradient == 0.0, "ignored: {what}");
                }
                assert!(targets != [255; 8] || loss == 0.0, "{what}");
                // Free space that is called empty.
                assert!(targets != [0; 8] || first < 1e30 || second > 0.0 || loss < 1e-6, "{what}");
            }
        }
    }
}

#[test]
fn a_perfect_prediction_has_no_loss() {
    for (weights, device) in ALONE.into_iter().flat_map(|weights| [(weights, cpu()), (weights, vulkan())]) {
        let mut case = random_case(weights, [2, 4, 3, 4, 5], 21);
        let Scale { logits, targets, .. } = &mut case.scales[0];
        for (i, logit) in logits.iter_mut().enumerate() {
            let (sample, class, voxel) = (i / 240, i / 60 % 4, i % 60);
            *logit = if usize::from(targets[sample * 60 + voxel]) == class { 30.0 } else { 0.0 };
        }
        let (loss, gradient) = case.evaluate(&device);
        assert!((0.0..1e-6).contains(&loss), "{weights:?}: {loss}");
        assert!(gradient[0].iter().all(|g| g.abs() < 1e-6), "{weights:?}");
        // And the worst one has much.
        case.scales[0].logits.iter_mut().for_each(|logit| *logit = -*logit);
        assert!(case.evaluate(&device).0 > 0.5, "{weights:?}");
    }
}

#[test]
fn gradients_equal_finite_differences() {
    for (seed, weights) in (40..).zip(ALONE.into_iter().chain([[0.5, 2.0, 0.3, 0.7, 1.0, 1.5]])) {
        let case = random_case(weights, [1, 3, 2, 2, 3], seed);
        let (_, gradient) = case.evaluate(&cpu());
        let loss_at = |i: usize, change: f32| {
            let mut scales = case.scales.clone();
            scales[0].logits[i] += change;
            f64::from(Case { scales, class_weights: vec![1.0; 3], ..case }.evaluate(&cpu()).0)
        };
        for i in [0, 7, 14, 22, 35] {
            let slope = (loss_at(i, 4e-3) - loss_at(i, -4e-3)) / 8e-3;
            let found = f64::from(gradient[0][i]);
            assert!((slope - found).abs() < 2e-4, "{weights:?} {i}: {found}, {slope}");
        }
    }
}

/// A step that went wrong must not pass for one that went well.
#[test]
fn a_logit_that_is_no_number_shows() {
    for (weights, device) in ALONE.into_iter().flat_map(|weights| [(weights, cpu()), (weights, vulkan())]) {
        let mut case = random_case(weights, [1, 3, 2, 2, 3], 60);
        case.scales[0].logits[3] = f32::NAN;
        let (loss, gradient) = case.evaluate(&device);
        assert!(!loss.is_finite() || gradient[0].iter().any(|g| !g.is_finite()), "{weights:?}: {loss}");
    }
}

/// Logits that are part of a larger tensor, and an ignored voxel whose logits are no numbers: `sum of p - [c == label]`.
#[test]
fn a_part_of_a_tensor_gets_its_own_gradient() {
    let (classes, voxels) = (2, 3);
    // The middle one of three members; equal logits, so that each p is a half.
    let mut logits = vec![7.0; 3 * classes * voxels];
    logits[classes * voxels..2 * classes * voxels].fill(1.0);
    logits[classes * voxels + 2] = f32::NAN;
    for device in [cpu(), vulkan()] {
        let all = Tensor::<3>::from_data(TensorData::new(logits.clone(), [3, classes, voxels]), &device);
        let part = all.narrow(0, 1, 1).autodiff().require_grad();
        let labels = Tensor::<2, Int>::from_data(TensorData::new(vec![0u32, 1, 9], [1, voxels]), (&device, DType::U32));
        let loss = cross_entropy_of_voxels(part.clone(), labels, Tensor::ones([classes], &device), 0.0).unwrap();
        let gradient = values(part.grad(&loss.sum().backward()).unwrap());
        let expected = [-0.5, 0.5, 0.0, 0.5, -0.5, 0.0];
        assert!(gradient.iter().zip(expected).all(|(g, e)| (g - e).abs() < 1e-6), "{gradient:?}");
    }
}

// ---------------------------------------------------------------------------------------------- kernel and twin

/// Sizes around a workgroup and several, classes that are absent, ignored voxels, batches, equal errors.
#[test]
fn lovasz_kernels_equal_their_twin() {
    let gradient = |device: &Device, [batch, classes, voxels]: [usize; 3]| {
        let p: Vec<f32> = noise(batch * classes * voxels, 3).iter().map(|v| (v * 300.0).floor() / 300.0).collect();
        // The last class is absent; one more than the classes there are is ignored.
        let draw = |v: &f32| [0, 1, 1, 0, classes][(v * 5.0) as usize].min(classes);
        let labels: Vec<u32> = noise(batch * voxels, 4).iter().map(|v| draw(v) as u32).collect();
        let mut counts = vec![0; classes];
        labels.iter().filter(|l| (**l as usize) < classes).for_each(|l| counts[*l as usize] += 1);
        let p = Tensor::<3>::from_data(TensorData::new(p, [batch, classes, voxels]), device);
        let labels = Tensor::<2, Int>::from_data(TensorData::new(labels, [batch, voxels]), (device, DType::U32));
        values(lovasz_gradient(p, labels, &counts))
    };
    for shape in [[1, 2, 0], [1, 2, 1], [1, 3, 2], [2, 3, 255], [1, 3, 256], [3, 3, 257], [1, 4, 2049], [2, 3, 35_001]]
    {
        let (on_vulkan, on_cpu) = (gradient(&vulkan(), shape), gradient(&cpu(), shape));
        assert_eq!(on_vulkan.len(), on_cpu.len());
        for (found, expected) in on_vulkan.iter().zip(&on_cpu) {
            assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{shape:?}: {found}, {expected}");
        }
        assert!(on_vulkan == gradient(&vulkan(), shape), "{shape:?}: two runs differ");
    }
}

/// Loss and gradient by the formula in f64, for the upstream gradient 1, 2, 3, ... of the voxels.
fn plain_cross_entropy(
    logits: &[f32],
    labels: &[u32],
    weights: &[f32],
    gamma: f64,
    [batch, classes, voxels]: [usize; 3],
) -> (Vec<f64>, Vec<f64>) {
    let (mut losses, mut gradient) = (vec![0.0; batch * voxels], vec![0.0; logits.len()]);
    for i in 0..batch * voxels {
        let place = |class: usize| (i / voxels * classes + class) * voxels + i % voxels;
        let label = labels[i] as usize;
        let Some(weight) = weights.get(label).map(|weight| f64::from(*weight)) else { continue };
        let largest = (0..classes).map(|c| f64::from(logits[place(c)])).fold(f64::MIN, f64::max);
        let exp: Vec<f64> = (0..classes).map(|c| (f64::from(logits[place(c)]) - largest).exp()).collect();
        let sum: f64 = exp.iter().sum();
        let log_p = f64::from(logits[place(label)]) - largest - sum.ln();
        let missing = (sum - exp[label]) / sum;
        losses[i] = weight * missing.powf(gamma) * -log_p;
        // d/d(log p) of -(1 - p)^gamma log p, with dp = p d(log p).
        let of_power = if missing == 0.0 { 0.0 } else { gamma * missing.powf(gamma - 1.0) * (1.0 - missing) * log_p };
        let by_log_p = of_power - missing.powf(gamma);
        for (c, exp) in exp.iter().enumerate() {
            let by_logit = f64::from(u8::from(c == label)) - exp / sum;
            gradient[place(c)] = (i + 1) as f64 * weight * by_log_p * by_logit;
        }
    }
    (losses, gradient)
}

/// Sizes around a workgroup and a block of the twin, batches, one class, ignored labels, both float types; and logits that
/// somebody else holds stay as they are.
#[test]
fn cross_entropy_of_voxels_equals_its_formula() {
    let shapes = [[1, 3, 0], [1, 1, 1], [2, 2, 1], [2, 3, 255], [1, 20, 256], [3, 2, 257], [2, 3, 1023], [1, 2, 2050]];
    let cases = shapes.iter().flat_map(|shape| [0.0, 2.0, 0.5].map(|gamma| (*shape, gamma)));
    for ((shape, gamma), (device, dtype)) in cases.flat_map(|case| {
        [(cpu(), DType::F32), (cpu(), DType::F16), (vulkan(), DType::F32), (vulkan(), DType::F16)].map(|on| (case, on))
    }) {
        let [batch, classes, voxels] = shape;
        let what = format!("{shape:?} gamma {gamma} {dtype:?}");
        let logits = noise(shape.iter().product(), 7).iter().map(|v| 40.0 * v - 20.0).collect::<Vec<_>>();
        let logits = Tensor::<3>::from_data(TensorData::new(logits, shape), &device).cast(dtype);
        let rounded = values(logits.clone().cast(DType::F32));
        let labels: Vec<u32> = noise(batch * voxels, 8).iter().map(|v| (v * (classes + 1) as f32) as u32).collect();
        let weights: Vec<f32> = (0..classes).map(|class| 0.5 + class as f32).collect();
        let (losses, gradient) = plain_cross_entropy(&rounded, &labels, &weights, gamma, shape);

        let labels = Tensor::<2, Int>::from_data(TensorData::new(labels, [batch, voxels]), (&device, DType::U32));
        let weights = Tensor::from_data(weights.as_slice(), &device);
        let upstream = (0..batch * voxels).map(|i| (i + 1) as f32).collect::<Vec<_>>();
        let upstream = Tensor::<2>::from_data(TensorData::new(upstream, [batch, voxels]), &device);
        let leaf = logits.autodiff().require_grad();
        // Of the leaf itself, which the test holds, and of a tensor that nobody else holds.
        for own in [false, true] {
            let logits = if own { leaf.clone().mul_scalar(1.0) } else { leaf.clone() };
            let loss = cross_entropy_of_voxels(logits, labels.clone(), weights.clone(), gamma as f32).unwrap();
            for (found, expected) in values(loss.clone()).into_iter().zip(&losses) {
                let close = (f64::from(found) - expected).abs() <= 4e-6 * (1.0 + expected.abs());
                assert!(close, "{what}: {found}, expected {expected}");
            }
            let gradients = (loss * upstream.clone()).sum().backward();
            let found = leaf.grad(&gradients).unwrap();
            assert_eq!(found.dtype(), dtype, "{what}");
            let rounding = if dtype == DType::F16 { 1e-3 } else { 8e-6 };
            for (found, expected) in values(found.cast(DType::F32)).into_iter().zip(&gradient) {
                let close = (f64::from(found) - expected).abs() <= rounding * (expected.abs() + 1e-2);
                assert!(close, "{what}: gradient {found}, expected {expected}");
            }
        }
        assert!(values(leaf.cast(DType::F32)) == rounded, "{what}: the logits changed");
    }
}

#[test]
fn cross_entropy_refuses_what_does_not_fit() {
    let call = |classes: usize, labels: [usize; 2], dtype: DType| {
        let logits = Tensor::<3>::zeros([2, 3, 4], &cpu()).cast(dtype);
        let labels = Tensor::<2, Int>::zeros(labels, &cpu());
        cross_entropy_of_voxels(logits, labels, Tensor::ones([classes], &cpu()), 0.0).unwrap_err()
    };
    for (error, part) in [
        (call(3, [2, 5], DType::F32), "found labels 2x5"),
        (call(4, [2, 4], DType::F32), "found 4 class weights"),
        (call(3, [2, 4], DType::F64), "expected f32 or f16"),
    ] {
        assert!(error.to_string().contains("logits 2x3x4") && error.to_string().contains(part), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}
