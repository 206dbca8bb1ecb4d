//! Networks that Occam trains.

use burn::module::Module;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Tensor, TensorData};
use occam_engine::Error;
use occam_engine::losses::{ClassWeights, LossConfig, Losses, Targets};
use occam_engine::models::{Learned, Network, Passes};
use occam_engine::scene::{GridSpec, downscale_target};
use occam_engine::tape::Mode;

use super::{Named, assert_close, assert_same, cpu, gradients, hash, parameters, patterns, values, vulkan, whole};

const NAMES: [&str; 3] = ["lmscnet-ss", "lmscnet", "sscnet"];
const CLASSES: usize = 5;

/// Weights of cross-entropy, Lovász, both affinities and focal loss.
const BY_PLANES: [f64; 5] = [1.0, 0.0, 0.0, 0.0, 0.5];
const ALL: [f64; 5] = [1.0, 1.0, 0.5, 0.5, 0.5];

/// Two samples, what they are compared with, and an untrained network.
struct Problem {
    network: Network,
    features: Tensor<5>,
    targets: Vec<Targets>,
    losses: Losses,
}

impl Problem {
    fn new(name: &str, counts: [usize; 3], weights: [f64; 5], device: &Device) -> Self {
        let ([x, y, z], batch) = (counts, 2);
        let voxels = x * y * z;
        let network = Network::new(name, counts, 1, CLASSES, 7, &device.clone().autodiff()).unwrap();
        let occupied: Vec<f32> = (0..batch * voxels).map(|i| if hash(i, 4) == 0 { 1.0 } else { 0.0 }).collect();
        let label = |i: usize| if hash(i, 11) == 0 { 255 } else { hash(i, CLASSES) as u8 };
        let labels: Vec<u8> = (0..batch * voxels).map(label).collect();
        let targets = network.scales().iter().map(|&scale| {
            let coarse = labels.chunks_exact(voxels).flat_map(|one| downscale_target(one, [z, x, y], scale, 0, 255));
            let labels: Vec<u8> = if scale == 1 { labels.clone() } else { coarse.collect() };
            Targets::new(&labels, [batch, z / scale, x / scale, y / scale], CLASSES, 255, device)
        });
        let [cross_entropy, lovasz, semantic_affinity, geometric_affinity, focal] = weights;
        let config = LossConfig {
            class_weights: ClassWeights::None,
            cross_entropy,
            lovasz,
            semantic_affinity,
            geometric_affinity,
            focal,
            focal_gamma: 2.0,
        };
        let class_weights = Tensor::<1>::from_data([0.2, 1.0, 0.7, 2.0, 0.4], device);
        Self {
            features: Tensor::from_data(TensorData::new(occupied, [batch, 1, z, x, y]), device),
            targets: targets.collect(),
            losses: Losses::new(&config, class_weights, &GridSpec::new([0.0; 3], [1.0; 3], counts)),
            network,
        }
    }

    fn learn(&self, modes: &[Mode], by_planes: bool) -> Learned {
        let passes = Passes { modes, by_planes, ..Passes::default() };
        let scales = self.targets.len();
        let mut loss = |scale: usize, logits, range| self.losses.of_planes(logits, &self.targets[scale], range, scales);
        self.network.learn(self.features.clone(), &passes, &mut loss).unwrap()
    }

    /// Loss and gradients of the ordinary way: one graph for all.
    fn ordinary(&self) -> (f32, Named) {
        let logits = self.network.forward(self.features.clone().autodiff()).unwrap();
        let loss = self.losses.total(logits, &self.targets).unwrap();
        let found = GradientsParams::from_grads(loss.backward(), &self.network);
        (values(loss)[0], gradients(&self.network, &found))
    }
}

/// Losses and gradients of steps one after another, and the network afterwards.
fn steps(mut problem: Problem, modes: &[Mode], count: usize) -> (Vec<u32>, Vec<Named>, Named) {
    let mut optimizer = AdamWConfig::new().init();
    let (mut losses, mut all) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let learned = problem.learn(modes, problem.losses.by_planes());
        losses.push(values(learned.loss)[0].to_bits());
        all.push(gradients(&problem.network, &learned.gradients));
        problem.network = optimizer.step(1e-2, problem.network, learned.gradients);
        learned.updates.apply();
    }
    (losses, all, parameters(&problem.network.valid()))
}

fn assert_modes_change_nothing(name: &str, counts: [usize; 3], weights: [f64; 5], device: &Device, count: usize) {
    let patterns = patterns();
    let run = |modes: &[Mode]| steps(Problem::new(name, counts, weights, device), modes, count);
    let (losses, expected, after) = run(&[]);
    assert!(losses.windows(2).all(|two| two[0] != two[1]), "steps change the loss");
    for modes in &patterns {
        let what = format!("{name} {}", whole(modes));
        let found = run(modes);
        assert_eq!(found.0, losses, "{what}: losses");
        for (step, (found, expected)) in found.1.iter().zip(&expected).enumerate() {
            assert_same(found, expected, &format!("{what}: gradients of step {step}"));
        }
        assert_same(&found.2, &after, &format!("{what}: weights and running statistics"));
    }
}

#[test]
fn no_bit_depends_on_what_is_computed_again() {
    for name in NAMES {
        assert_modes_change_nothing(name, [16, 8, 24], BY_PLANES, &cpu(), 3);
    }
    assert_modes_change_nothing("lmscnet", [8, 8, 8], ALL, &cpu(), 2);
}

#[test]
fn no_bit_depends_on_what_is_computed_again_on_vulkan() {
    let device = vulkan();
    assert_modes_change_nothing("lmscnet-ss", [8, 8, 8], BY_PLANES, &device, 2);
    assert_modes_change_nothing("sscnet", [8, 8, 8], BY_PLANES, &device, 2);
    device.sync().unwrap();
}

/// Planes add up in another order than a whole grid. The last scale of `lmscnet` has planes of 3 voxels, fewer than are taken
/// at a time, and 24 planes end in the middle of what `sscnet` takes.
#[test]
fn a_loss_by_planes_is_that_of_the_whole() {
    for name in NAMES {
        let problem = Problem::new(name, [16, 8, 24], BY_PLANES, &cpu());
        let [by_planes, at_once] = [true, false].map(|by_planes| problem.learn(&[], by_planes));
        let [found, expected] = [by_planes.loss, at_once.loss].map(|loss| values(loss)[0]);
        assert!((found - expected).abs() <= 1e-6 * expected, "{name}: {found}, {expected}");
        let [found, expected] =
            [by_planes.gradients, at_once.gradients].map(|found| gradients(&problem.network, &found));
        assert_close(&found, &expected, 5e-6, name);
    }
}

/// Burn's own graph visits branches level by level, the tape one after another: sums of three gradients and more round
/// otherwise. In SSCNet no value goes to more than two, and a + b is b + a.
#[test]
fn the_tape_learns_what_one_graph_learns() {
    for name in NAMES {
        for weights in [BY_PLANES, ALL] {
            let problem = Problem::new(name, [16, 8, 8], weights, &cpu());
            let (expected_loss, expected) = problem.ordinary();
            // The ordinary way moves running statistics; a network in training does not read them.
            let learned = problem.learn(&[], false);
            let (loss, found) = (values(learned.loss)[0], gradients(&problem.network, &learned.gradients));
            if name == "sscnet" {
                assert_eq!(loss.to_bits(), expected_loss.to_bits());
                assert_same(&found, &expected, name);
            } else {
                assert!((loss - expected_loss).abs() <= 1e-6 * expected_loss, "{name}: {loss}, {expected_loss}");
                assert_close(&found, &expected, 5e-6, name);
            }
        }
    }
}

#[test]
fn the_loss_scale_multiplies_gradients_alone() {
    for by_planes in [true, false] {
        let problem = Problem::new("lmscnet", [8, 8, 8], BY_PLANES, &cpu());
        let scaled = |factor: f64| {
            let passes = Passes { by_planes, factor, ..Passes::default() };
            let loss = &mut |scale: usize, logits, range| {
                problem.losses.of_planes(logits, &problem.targets[scale], range, problem.targets.len())
            };
            let learned = problem.network.learn(problem.features.clone(), &passes, loss).unwrap();
            (values(learned.loss)[0], gradients(&problem.network, &learned.gradients))
        };
        let ((loss, plain), (same, mut found)) = (scaled(1.0), scaled(512.0));
        assert_eq!(loss.to_bits(), same.to_bits());
        // A power of two: exact.
        found.values_mut().flatten().for_each(|value| *value /= 512.0);
        assert_same(&found, &plain, "gradients");
    }
}

/// As in the ordinary way, once, and only when told to.
#[test]
fn running_statistics_move_once_and_when_the_step_counts() {
    let ordinary = Problem::new("lmscnet-ss", [8, 8, 8], BY_PLANES, &cpu());
    ordinary.ordinary();
    let expected = parameters(&ordinary.network.valid());
    for modes in patterns() {
        let problem = Problem::new("lmscnet-ss", [8, 8, 8], BY_PLANES, &cpu());
        let before = parameters(&problem.network.valid());
        drop(problem.learn(&modes, true));
        assert_same(&parameters(&problem.network.valid()), &before, "learned, given up");
        let mut calls = 0;
        let failing = &mut |_: usize, logits: Tensor<5>, _| {
            calls += 1;
            if calls == 2 { Err(Error::Failed("the second planes".into())) } else { Ok(logits.sum()) }
        };
        let passes = Passes { modes: &modes, by_planes: true, ..Passes::default() };
        let Err(error) = problem.network.learn(problem.features.clone(), &passes, failing) else { panic!("it fails") };
        assert_eq!(error.to_string(), "the second planes");
        assert_same(&parameters(&problem.network.valid()), &before, "failed");
        problem.learn(&modes, true).updates.apply();
        let after = parameters(&problem.network.valid());
        assert!(after != before);
        assert_same(&after, &expected, &whole(&modes));
    }
}
