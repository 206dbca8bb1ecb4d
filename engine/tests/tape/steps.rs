//! Whole steps of a learner, and steps in parts.

use std::path::Path;

use burn::tensor::Tensor;
use occam_engine::data::{Batch, Sample};
use occam_engine::losses::Losses;
use occam_engine::models::Network;
use occam_engine::scene::{PointCloud, VoxelGrid};
use occam_engine::tape::Mode::Recompute;
use occam_engine::train::{Learner, Planning, StepOutcome, TrainConfig};
use occam_engine::{Error, Result};

use super::{Named, SEGMENTS, assert_close, cpu, gradients, hash};

const CLASSES: usize = 5;

fn config(network: &str, sets: &[(&str, &str)]) -> TrainConfig {
    let mut all = vec![
        ("model.network".to_owned(), network.to_owned()),
        ("grid.origin_m".to_owned(), "[0.0, 0.0, 0.0]".to_owned()),
        ("grid.voxel_size_m".to_owned(), "[1.0, 1.0, 1.0]".to_owned()),
        ("grid.counts".to_owned(), "[16, 8, 8]".to_owned()),
        ("augment.flip_y".to_owned(), "false".to_owned()),
        ("loss.lovasz".to_owned(), "0.0".to_owned()),
    ];
    all.extend(sets.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    TrainConfig::from_layers("tiny", None, &all).unwrap()
}

fn learner(config: &TrainConfig) -> Learner {
    let device = cpu();
    let counts = config.grid.counts;
    let network = Network::new(&config.model.network, counts, 1, CLASSES, 3, &device.clone().autodiff()).unwrap();
    let class_weights = Tensor::<1>::from_data([0.1, 1.0, 0.5, 3.0, 0.7], &device);
    let losses = Losses::new(&config.loss, class_weights, &config.grid);
    Learner::new(network, config, &device, losses)
}

/// Sample `number`: 200 points, and a target of which a share is ignored that grows from sample to sample; of every eighth
/// all of it.
fn sample(number: usize, config: &TrainConfig) -> Sample {
    let spec = config.grid;
    let point = |i: usize| {
        let seed = (number * 200 + i) * 3;
        std::array::from_fn(|axis| hash(seed + axis, 1000) as f32 / 1000.0 * spec.counts[axis] as f32)
    };
    let label = |voxel: usize| {
        let seed = number * spec.len() + voxel;
        let ignored = hash(seed + 77, 8) < number % 8 || number % 8 == 7;
        if ignored { spec.ignore_id } else { hash(seed, CLASSES) as u8 }
    };
    Sample {
        id: number.to_string(),
        cloud: PointCloud { positions: (0..200).map(point).collect(), ..PointCloud::default() },
        target: VoxelGrid { labels: (0..spec.len()).map(label).collect(), ..VoxelGrid::empty(spec) },
    }
}

fn batch(numbers: std::ops::Range<usize>, config: &TrainConfig) -> Batch {
    let mut batch = Batch::new();
    numbers.for_each(|number| batch.push(&sample(number, config)));
    batch
}

/// What nobody does between the micro-batches of a step.
#[allow(clippy::unnecessary_wraps)]
fn go_on() -> Result<()> {
    Ok(())
}

fn bytes(learner: &Learner) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let read = |path: &Path| std::fs::read(path).unwrap();
    let [weights, moments] = ["weights", "moments"].map(|name| folder.path().join(name));
    learner.valid().save_weights(&weights).unwrap();
    learner.optimizer.save(&moments).unwrap();
    [read(&weights), read(&moments)].concat()
}

#[test]
fn twenty_steps_computed_again_are_twenty_steps() {
    for name in ["lmscnet-ss", "lmscnet", "sscnet"] {
        let config = config(name, &[]);
        let run = |modes: Vec<_>| {
            let mut learner = learner(&config);
            learner.planning = Planning::fixed(modes);
            let steps = (0..20).map(|step| {
                let batches = [batch(step * 2..step * 2 + 2, &config)];
                learner.step(&batches, 1e-2, &mut go_on).unwrap()
            });
            let outcomes: Vec<StepOutcome> = steps.collect();
            (outcomes, bytes(&learner))
        };
        let (kept, again) = (run(Vec::new()), run(vec![Recompute; SEGMENTS]));
        assert!(kept.0[19].loss < 0.95 * kept.0[0].loss, "it learns: {:?}", kept.0);
        assert_eq!(kept.0, again.0, "{name}");
        assert!(kept.1 == again.1, "{name}: weights, running statistics and moments, byte for byte");
    }
}

/// Statistics that are not those of a fresh network.
fn warmed(config: &TrainConfig) -> Learner {
    let mut fresh = config.clone();
    fresh.model.frozen_statistics = false;
    let mut warm = learner(&fresh);
    for step in 0..3 {
        warm.step(&[batch(step * 2..step * 2 + 2, config)], 1e-2, &mut go_on).unwrap();
    }
    let mut learner = learner(config);
    learner.network = warm.network;
    learner
}

fn loss_and_gradients(learner: &Learner, batches: &[Batch]) -> (f32, Named) {
    let learned = learner.learn(batches, &mut go_on).unwrap().unwrap();
    (super::values(learned.loss)[0], gradients(&learner.network, &learned.gradients))
}

#[test]
fn a_batch_of_8_in_parts_has_the_gradients_of_the_whole() {
    for name in ["sscnet", "lmscnet-ss", "lmscnet"] {
        let config = config(name, &[("model.frozen_statistics", "true"), ("loss.focal", "0.5")]);
        let mut learner = warmed(&config);
        let before = bytes(&learner);
        let whole = [batch(0..8, &config)];
        let (expected_loss, expected) = loss_and_gradients(&learner, &whole);
        assert!(expected.values().all(|gradient| gradient.iter().any(|value| *value != 0.0)));
        let assert_equal = |learner: &Learner, batches: &[Batch], what: &str| {
            let (loss, found) = loss_and_gradients(learner, batches);
            assert!((loss - expected_loss).abs() <= 1e-6 * expected_loss, "{name} {what}: {loss}, {expected_loss}");
            assert_close(&found, &expected, 1e-5, &format!("{name} {what}"));
        };
        for size in [4, 2, 1, 3] {
            learner.micro_batch = size;
            assert_equal(&learner, &whole, &format!("{size} at a time"));
        }
        learner.micro_batch = 2;
        let loaded = [batch(0..3, &config), batch(3..4, &config), batch(4..8, &config)];
        assert_equal(&learner, &loaded, "in batches of 3, 1 and 4, two at a time");
        assert!(bytes(&learner) == before, "nothing moved");
    }
}

/// Each part by itself, which the documentation says: a guard that the test above compares something.
#[test]
fn parts_have_statistics_of_their_own_unless_they_are_frozen() {
    let config = config("lmscnet-ss", &[]);
    let mut learner = learner(&config);
    let whole = [batch(0..8, &config)];
    let (expected, _) = loss_and_gradients(&learner, &whole);
    learner.micro_batch = 1;
    let (found, _) = loss_and_gradients(&learner, &whole);
    assert!((found - expected).abs() > 1e-6 * expected);
}

#[test]
fn frozen_statistics_stay_while_weights_learn() {
    let config = config("lmscnet-ss", &[("model.frozen_statistics", "true")]);
    let mut learner = warmed(&config);
    let before = super::parameters(&learner.valid());
    let batches = [batch(0..4, &config)];
    let losses: Vec<f64> = (0..10).map(|_| learner.step(&batches, 1e-2, &mut go_on).unwrap().loss).collect();
    assert!(losses[9] < losses[0], "{losses:?}");
    for (path, after) in super::parameters(&learner.valid()) {
        assert_eq!(after == before[&path], path.contains("running"), "{path}");
    }
}

#[test]
fn a_step_that_fails_changes_nothing() {
    let config = config("lmscnet", &[("memory.micro_batch", "1")]);
    let batches = |step: usize| [batch(step * 3..step * 3 + 3, &config)];
    let (mut disturbed, mut through) = (learner(&config), learner(&config));
    for learner in [&mut disturbed, &mut through] {
        learner.step(&batches(0), 1e-2, &mut go_on).unwrap();
    }
    let before = bytes(&disturbed);
    let mut asked = 0;
    let mut stop = || {
        asked += 1;
        if asked == 2 { Err(Error::Interrupted) } else { Ok(()) }
    };
    assert!(matches!(disturbed.step(&batches(1), 1e-2, &mut stop), Err(Error::Interrupted)));
    assert_eq!(asked, 2, "before the second and the third part");
    assert!(bytes(&disturbed) == before, "stopped in the middle");
    assert!(matches!(disturbed.step(&[], 1e-2, &mut go_on), Err(Error::Failed(_))));
    assert!(matches!(disturbed.step(&[Batch::new()], 1e-2, &mut go_on), Err(Error::Failed(_))));
    assert!(bytes(&disturbed) == before, "without samples");
    for learner in [&mut disturbed, &mut through] {
        learner.step(&batches(1), 1e-2, &mut go_on).unwrap();
    }
    assert!(bytes(&disturbed) == bytes(&through), "as if nothing had been");
}

#[test]
fn gradients_that_are_not_finite_change_nothing() {
    let config = config("lmscnet-ss", &[]);
    let mut learner = learner(&config);
    let batches = [batch(0..2, &config)];
    learner.network.set_class_shares(&[1.0; CLASSES]);
    let before = bytes(&learner);
    let class_weights = Tensor::<1>::from_data([1e38, 1.0, 1.0, 1.0, 1.0], &cpu());
    let losses = Losses::new(&config.loss, class_weights, &config.grid);
    let network = learner.network.clone();
    let mut overflowing = Learner::new(network, &config, &cpu(), losses);
    let error = overflowing.step(&batches, 1e-2, &mut go_on).unwrap_err();
    assert!(error.to_string().contains("expected finite numbers"), "{error}");
    assert!(bytes(&overflowing) == before);
}

/// Lovász and the affinities are no sums over voxels: of parts they are the mean over the samples.
#[test]
fn losses_of_whole_grids_are_means_over_parts() {
    let config = config("sscnet", &[("loss.cross_entropy", "0.0"), ("loss.lovasz", "1.0")]);
    let mut learner = learner(&config);
    let alone =
        [0, 1, 2].map(|number| f64::from(loss_and_gradients(&learner, &[batch(number..number + 1, &config)]).0));
    let expected = alone.iter().sum::<f64>() / 3.0;
    learner.micro_batch = 1;
    let found = f64::from(loss_and_gradients(&learner, &[batch(0..3, &config)]).0);
    assert!((found - expected).abs() < 1e-6 * expected, "{found}, {expected}");
    let notice = |learner: &Learner| learner.split_notice(3);
    assert!(notice(&learner).is_some_and(|text| text.contains("Lovász") && !text.contains("normalization")));
    learner.micro_batch = 0;
    assert_eq!(notice(&learner), None);
}

#[test]
fn what_a_split_changes_is_said() {
    for (network, frozen, said) in
        [("lmscnet-ss", "false", true), ("lmscnet-ss", "true", false), ("sscnet", "false", false)]
    {
        let config = config(network, &[("model.frozen_statistics", frozen), ("memory.micro_batch", "2")]);
        assert_eq!(learner(&config).split_notice(4).is_some(), said, "{network} {frozen}");
        assert_eq!(learner(&config).split_notice(2), None);
    }
}
