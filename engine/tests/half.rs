//! Training in f16 and bf16: close to f32, the same whatever is recomputed, in fewer bytes, and through overflows.

use burn::tensor::{DType, Device, Tensor};
use occam_engine::data::Batch;
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::losses::{Losses, Targets};
use occam_engine::models::{Learned, Network, Passes};
use occam_engine::scene::{GridSpec, PointCloud};
use occam_engine::tape::{Mode, Precision};
use occam_engine::train::{Learner, StepOutcome, TrainConfig};

const COUNTS: [usize; 3] = [16, 16, 8];
const CLASSES: usize = 5;

fn vulkan() -> Device {
    gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device
}

/// The grid of `COUNTS`, in f16 with `sets`.
fn config(network: &str, sets: &[(&str, &str)]) -> TrainConfig {
    let mut all = vec![
        ("grid.counts".to_owned(), format!("{COUNTS:?}")),
        ("grid.origin_m".to_owned(), "[-8.0, -8.0, -2.0]".to_owned()),
        ("grid.voxel_size_m".to_owned(), "[1.0, 1.0, 0.5]".to_owned()),
        ("model.network".to_owned(), network.to_owned()),
        ("precision.format".to_owned(), "f16".to_owned()),
    ];
    all.extend(sets.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    TrainConfig::from_layers("tiny", None, &all).unwrap()
}

fn losses(config: &TrainConfig, device: &Device) -> Losses {
    Losses::new(&config.loss, Tensor::ones([CLASSES], device), &config.grid)
}

/// Class of a voxel: most are empty, the rest follows the height.
fn label(index: usize) -> u8 {
    let (z, x) = (index / 256, index / 16 % 16);
    if z == 0 {
        1
    } else if (x + z) % 5 == 0 {
        2 + (z % 3) as u8
    } else {
        0
    }
}

fn features(device: &Device) -> Tensor<5> {
    let values: Vec<f32> = (0..2048).map(|i| f32::from(u8::from(label(i) > 0 && i % 3 != 0))).collect();
    Tensor::<1>::from_data(values.as_slice(), device).reshape([1, 1, 8, 16, 16])
}

fn targets(scale: usize, spec: &GridSpec, device: &Device) -> Targets {
    let labels: Vec<u8> = (0..2048).map(label).collect();
    let labels = occam_engine::scene::downscale_target(&labels, [8, 16, 16], scale, spec.empty_id, spec.ignore_id);
    let labels = if scale == 1 { (0..2048).map(label).collect() } else { labels };
    Targets::new(&labels, [1, 8 / scale, 16 / scale, 16 / scale], CLASSES, spec.ignore_id, device)
}

fn learn(network: &Network, config: &TrainConfig, device: &Device, passes: &Passes<'_>) -> Learned {
    let losses = losses(config, device);
    let scales = network.scales();
    let targets: Vec<Targets> = scales.iter().map(|scale| targets(*scale, &config.grid, device)).collect();
    let passes = Passes { by_planes: losses.by_planes(), ..*passes };
    let learned = network.learn(features(device), &passes, &mut |scale, logits, range| {
        losses.of_planes(logits, &targets[scale], range, scales.len())
    });
    learned.unwrap()
}

/// Gradients of all parameters in order, in f32.
fn gradients(network: &Network, learned: &Learned) -> Vec<f32> {
    use burn::module::{Module, ModuleVisitor, Param};
    struct All<'a>(&'a Learned, Vec<f32>);
    impl ModuleVisitor for All<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.gradients.get::<D>(param.id) {
                assert_eq!(gradient.dtype(), DType::F32, "gradients of parameters are f32");
                self.1.extend(gradient.try_into_data().unwrap().try_to_vec::<f32>().unwrap());
            }
        }
    }
    let mut all = All(learned, Vec::new());
    network.visit(&mut all);
    all.1
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

fn number(loss: &Tensor<1>) -> f32 {
    loss.clone().try_into_data().unwrap().try_to_vec::<f32>().unwrap()[0]
}

/// Every network and loss, by planes and whole, on both devices: f16 rounds to 11 bits and bf16 between segments to 8, some
/// dozen roundings one after the other, which also turn a ReLU here and there; bf16 may be 8 times as far off.
#[test]
fn gradients_in_half_precision_are_those_of_f32_but_for_rounding() {
    let lovasz = [("loss.lovasz", "1.0")];
    let cases: [(&str, &[(&str, &str)]); 4] =
        [("lmscnet-ss", &[]), ("lmscnet", &lovasz), ("sscnet", &[]), ("sscnet", &lovasz)];
    for device in [Device::flex(), vulkan()] {
        for (name, sets) in cases {
            let config = config(name, sets);
            let network = Network::new(name, COUNTS, 1, CLASSES, 3, &device.clone().autodiff()).unwrap();
            let full = learn(&network, &config, &device, &Passes::default());
            let expected = gradients(&network, &full);
            let expected_norm = norm(expected.iter().map(|g| f64::from(*g)));
            for (precision, factor, bound) in [(Precision::F16, 512.0, 0.02), (Precision::Bf16, 1.0, 8.0 * 0.02)] {
                let half = learn(&network, &config, &device, &Passes { precision, factor, ..Passes::default() });
                let found = gradients(&network, &half);
                assert_eq!(found.len(), expected.len());
                let pairs = found.iter().zip(&expected);
                let apart = norm(pairs.map(|(a, b)| f64::from(*a) / factor - f64::from(*b))) / expected_norm;
                let losses = [&half.loss, &full.loss].map(number);
                let off = (losses[0] / losses[1] - 1.0).abs();
                assert!(apart < bound && apart > 1e-6, "{name} {sets:?} {precision:?} on {device:?}: {apart}");
                assert!(off < 0.01, "{name} {sets:?} {precision:?} on {device:?}: loss {losses:?}");
            }
        }
    }
}

/// Bit for bit, and values between segments take half the bytes of f32.
#[test]
fn recomputing_changes_nothing_and_values_take_half_the_bytes() {
    for device in [Device::flex(), vulkan()] {
        for name in ["lmscnet", "sscnet"] {
            let config = config(name, &[]);
            let network = Network::new(name, COUNTS, 1, CLASSES, 3, &device.clone().autodiff()).unwrap();
            let full = learn(&network, &config, &device, &Passes { traced: true, ..Passes::default() });
            let values = full.trace.unwrap().values;
            assert!(values.len() > 5);
            for precision in [Precision::F16, Precision::Bf16] {
                let passes = Passes { precision, factor: 256.0, traced: true, ..Passes::default() };
                let [keep, recompute] = [Mode::Keep, Mode::Recompute].map(|mode| {
                    let modes = vec![mode; values.len()];
                    learn(&network, &config, &device, &Passes { modes: &modes, ..passes })
                });
                assert_eq!(number(&keep.loss), number(&recompute.loss));
                let bits = |learned| -> Vec<u32> { gradients(&network, learned).iter().map(|g| g.to_bits()).collect() };
                assert!(bits(&keep) == bits(&recompute), "{name} {precision:?} on {device:?}");
                let unplanned = learn(&network, &config, &device, &passes);
                let modes: Vec<Mode> = unplanned.trace.as_ref().unwrap().segments.iter().map(|s| s.mode).collect();
                assert!(modes.iter().all(|mode| *mode == precision.mode()), "{precision:?}: {modes:?}");
                let half: Vec<u64> = values.iter().map(|bytes| bytes / 2).collect();
                assert_eq!(keep.trace.unwrap().values, half, "{name} {precision:?}");
            }
        }
    }
}

/// A scan of the grid's floor and some posts, with the targets of [`label`].
fn batch() -> Batch {
    let mut batch = Batch::new();
    let voxels = (0..2048).filter(|i| label(*i) > 0 && i % 3 != 0);
    let positions = voxels.map(|i| {
        let (z, x, y) = (i / 256, i / 16 % 16, i % 16);
        [x as f32 - 7.5, y as f32 - 7.5, z as f32 * 0.5 - 1.75]
    });
    batch.push_cloud("a", &PointCloud { positions: positions.collect(), ..PointCloud::default() });
    batch.targets = (0..2048).map(label).collect();
    batch
}

fn learner(sets: &[(&str, &str)], device: &Device) -> Learner {
    let config = config("lmscnet-ss", sets);
    let channels = config.input.channels();
    let network = Network::new("lmscnet-ss", COUNTS, channels, CLASSES, 3, &device.clone().autodiff()).unwrap();
    let losses = losses(&config, device);
    Learner::new(network, &config, device, losses)
}

fn step(learner: &mut Learner) -> occam_engine::Result<StepOutcome> {
    learner.step(&[batch()], 1e-2, &mut || Ok(()))
}

/// Everything that a step may change but the loss scale.
fn state(learner: &Learner) -> (Vec<u8>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let (weights, moments) = (folder.path().join("weights"), folder.path().join("moments"));
    learner.valid().save_weights(&weights).unwrap();
    learner.optimizer.save(&moments).unwrap();
    (std::fs::read(weights).unwrap(), std::fs::read(moments).unwrap())
}

/// From a scale that no gradient survives: every step is skipped and changes nothing, the scale halves each time until
/// gradients are finite again, and then training goes on and learns.
#[test]
fn after_an_overflow_the_scale_falls_and_training_recovers() {
    for device in [Device::flex(), vulkan()] {
        let scale = 2f64.powi(30);
        let sets = [("precision.initial_scale", &*format!("{scale:.1}")), ("precision.growth_steps", "3")];
        let mut learner = learner(&sets, &device);
        let before = state(&learner);
        let mut skipped = 0;
        let first = loop {
            let outcome = step(&mut learner).unwrap();
            assert_eq!(outcome.scale, Some(scale / 2f64.powi(skipped)));
            if !outcome.skipped {
                break outcome;
            }
            skipped += 1;
            assert!(outcome.nonfinite.is_some() && !outcome.grad_norm.is_finite());
            assert!(state(&learner) == before, "a skipped step changes nothing");
            assert_eq!(learner.scaler.scale(), scale / 2f64.powi(skipped));
        };
        assert!(skipped >= 5 && learner.scaler.skipped() == skipped as usize, "{skipped} skips");
        assert!(state(&learner) != before && first.nonfinite.is_none() && first.zero_share.unwrap() < 0.9);
        let mut last = first.clone();
        for _ in 0..20 {
            last = step(&mut learner).unwrap();
        }
        assert!(last.loss < 0.8 * first.loss, "{} after {}", last.loss, first.loss);
        // It grows after three good steps, and falls again where that is too much: it stays about where it recovered.
        let about = learner.scaler.scale() / first.scale.unwrap();
        assert!((0.125..=128.0).contains(&about), "{about}");
    }
}

/// Without a scale, the same network ends at once where it overflows, and where its gradients are too small for f16 they are
/// zeros; either way it is said.
#[test]
fn without_a_scale_an_overflow_ends_the_run_and_small_gradients_vanish() {
    let device = Device::flex();
    let off = ("precision.loss_scale", "off");
    // The loss itself a million times as large, beyond the 65504 of f16 in its gradients.
    let mut overflowing = learner(&[off, ("loss.cross_entropy", "1000.0"), ("loss.focal", "1000.0")], &device);
    overflowing.network.set_class_shares(&[1.0, 1e-6, 1e-6, 1e-6, 1e-6]);
    scale_weights(&mut overflowing, 300.0);
    let before = state(&overflowing);
    let error = step(&mut overflowing).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert!(
        ["not finite is that of ", "dynamic", "bf16"].iter().all(|word| error.to_string().contains(word)),
        "{error}"
    );
    assert!(state(&overflowing) == before);

    let [tiny, alone] = [("loss.cross_entropy", "1e-6"), ("loss.lovasz", "0.0")];
    let mut vanishing = learner(&[off, tiny, alone], &device);
    let found = step(&mut vanishing).unwrap();
    assert!(found.scale.is_none() && found.zero_share.unwrap() > 0.9, "{found:?}");
    let mut scaled = learner(&[("precision.initial_scale", "16777216.0"), tiny, alone], &device);
    let found = step(&mut scaled).unwrap();
    assert!(!found.skipped && found.zero_share.unwrap() < 0.5, "{found:?}");
    let mut full = learner(&[("precision.format", "f32"), tiny, alone], &device);
    let full = step(&mut full).unwrap();
    assert!(full.zero_share.unwrap() < 0.5 && full.scale.is_none(), "{full:?}");
    assert!((found.grad_norm / full.grad_norm - 1.0).abs() < 0.05, "{found:?} {full:?}");
}

/// Every weight of convolutions times `factor`.
fn scale_weights(learner: &mut Learner, factor: f32) {
    use burn::module::{Module, ModuleMapper, Param};
    struct Times(f32);
    impl ModuleMapper for Times {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            if D < 4 {
                return param;
            }
            param.map(|tensor| {
                let tracked = tensor.is_require_grad();
                (tensor.without_autodiff() * self.0).autodiff().set_require_grad(tracked)
            })
        }
    }
    learner.network = learner.network.clone().map(&mut Times(factor));
}

/// A network that overflows whatever the scale: it falls to 1, and after 20 skips there the run ends with the reason.
#[test]
fn a_network_that_no_scale_helps_ends_with_the_tensor_that_overflows_first() {
    let device = Device::flex();
    let mut learner = learner(&[("precision.initial_scale", "8.0")], &device);
    scale_weights(&mut learner, 300.0);
    let before = state(&learner);
    for skip in 0..3 + 19 {
        let outcome = step(&mut learner).unwrap();
        assert!(outcome.skipped, "{skip}: {outcome:?}");
    }
    let error = step(&mut learner).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    for word in ["20 steps in a row", "loss scale, 1:", "not finite is that of encoder_block1.0.weight", "optim.lr"] {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    assert!(state(&learner) == before);
}
