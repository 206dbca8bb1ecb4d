//! Scores over a data set, beside the scores of predictions that need no network.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use occam_scene::VoxelGrid;
use occam_scene::metrics::{AbsentPolicy, Confusion, Scores, baseline};

use super::Model;
use super::baselines::Baselines;
use crate::data::{Batch, Dataset, Sample};
use crate::{Error, Progress, ProgressFn, Result};

/// A data set scored as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    pub scores: Scores,
    /// Name and scores of what needs no network.
    pub baselines: Vec<(String, Scores)>,
    pub samples: usize,
}

/// What the training targets say without any input.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetStatistics {
    /// Voxels of each class, scaled up to the whole training set.
    pub counts: Vec<u64>,
    /// Most frequent class of each voxel.
    pub majority: Vec<u8>,
    /// Most frequent class other than free space.
    pub most_frequent: u8,
}

/// Samples that are read at the same time: enough to keep the processors busy, few enough to hold in memory.
pub(super) const TOGETHER: usize = 8;

/// Training targets that are counted at most, evenly spread over the training set. They weigh classes and make a
/// baseline; neither gets better with more.
pub const COUNTED_TARGETS: usize = 128;

/// Counts classes on the training targets, at most [`COUNTED_TARGETS`] of them, without augmentation.
///
/// # Errors
/// The first error of a sample, [`Error::Usage`] when there is nothing to learn from, and [`Error::Interrupted`].
pub fn target_statistics(dataset: &dyn Dataset, progress: ProgressFn<'_>) -> Result<TargetStatistics> {
    let spec = dataset.spec();
    let classes = dataset.labels().len();
    let mut majority = baseline::MajorityMap::new(spec, classes).map_err(Error::TooLarge)?;
    let mut counts = vec![0u64; classes];
    for_each(dataset, COUNTED_TARGETS, "counting classes", progress, &mut |_, sample| {
        majority.add(&sample.target.labels, spec.ignore_id).map_err(|why| in_sample(sample, &why))?;
        for label in sample.target.labels.iter().filter(|l| **l != spec.ignore_id) {
            counts[usize::from(*label)] += 1;
        }
        Ok(())
    })?;
    let scale = dataset.len() as f64 / dataset.len().clamp(1, COUNTED_TARGETS) as f64;
    Ok(TargetStatistics {
        counts: counts.into_iter().map(|count| (count as f64 * scale) as u64).collect(),
        majority: majority.predict(),
        most_frequent: majority.most_frequent(),
    })
}

/// Scores `model` over `dataset`, and the baselines with it.
///
/// # Errors
/// [`Error::Usage`] when grid or classes of the two differ or there is nothing to score; the first error of a sample;
/// [`Error::Interrupted`].
pub fn evaluate(
    model: &Model,
    dataset: &dyn Dataset,
    policy: AbsentPolicy,
    progress: ProgressFn<'_>,
) -> Result<Evaluation> {
    let mut tally = Baselines::new(dataset, None);
    let mut look = |sample: &Sample, _: &VoxelGrid| tally.add(sample);
    let scores = score(model, dataset, policy, progress, &mut look)?;
    Ok(Evaluation { scores, baselines: tally.scores(policy)?, samples: dataset.len() })
}

/// Scores `model` over `dataset` and shows every sample with its prediction to `look`.
///
/// # Errors
/// As [`evaluate`], and those of `look`.
pub fn score(
    model: &Model,
    dataset: &dyn Dataset,
    policy: AbsentPolicy,
    progress: ProgressFn<'_>,
    look: &mut dyn FnMut(&Sample, &VoxelGrid) -> Result<()>,
) -> Result<Scores> {
    if model.spec != *dataset.spec() || model.labels != *dataset.labels() {
        return Err(Error::Usage(format!(
            "the model predicts the {} classes of {} on a grid of {:?} voxels, {} has the {} classes of {} on {:?}",
            model.labels.len(),
            model.labels.name,
            model.spec.counts,
            dataset.name(),
            dataset.labels().len(),
            dataset.labels().name,
            dataset.spec().counts
        )));
    }
    let spec = model.spec;
    let mut confusion = Confusion::new(model.labels.len());
    for_each(dataset, usize::MAX, "evaluating", progress, &mut |_, sample| {
        let mut batch = Batch::new();
        batch.push(sample);
        for prediction in model.predict_batch(&batch)? {
            confusion
                .add(&prediction.labels, &sample.target.labels, spec.ignore_id)
                .map_err(|why| in_sample(sample, &why))?;
            look(sample, &prediction)?;
        }
        Ok(())
    })?;
    confusion.scores(spec.empty_id, policy).map_err(Error::Usage)
}

/// How often someone who waits for a sample is asked whether to go on.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Reads at most `most` samples, evenly spread and several at a time, and hands them over one by one with their number, in
/// order.
///
/// # Errors
/// [`Error::Usage`] when nothing can be learned from them or scored on them: without a point inside the grid, or with
/// every voxel of the targets ignored. The first error of a sample, those of `take`, and [`Error::Interrupted`].
pub(super) fn for_each(
    dataset: &dyn Dataset,
    most: usize,
    what: &str,
    progress: ProgressFn<'_>,
    take: &mut dyn FnMut(usize, &Sample) -> Result<()>,
) -> Result<()> {
    let spec = dataset.spec();
    let total = dataset.len().min(most);
    let (mut any_inside, mut any_counted) = (false, false);
    let mut done = 0;
    while done < total {
        for sample in read(dataset, done..total.min(done + TOGETHER), total, what, progress)? {
            let sample = sample?;
            any_inside |= sample.cloud.positions.iter().any(|p| spec.voxel_of(*p).is_some());
            any_counted |= sample.target.labels.iter().any(|label| *label != spec.ignore_id);
            take(spread(done, dataset.len(), total), &sample)?;
            done += 1;
            if progress(Progress { what, done, total }) == ControlFlow::Break(()) {
                return Err(Error::Interrupted);
            }
        }
    }
    let missing = match (any_inside, any_counted) {
        _ if total == 0 => return Ok(()),
        (false, _) => "no point lies inside the grid",
        (_, false) => "the targets ignore every voxel of the grid",
        (true, true) => return Ok(()),
    };
    Err(Error::Usage(format!(
        "{}: in the {total} scans looked at {missing}, which reaches from {:.1?} m to {:.1?} m around the sensor. Check \
         grid and data",
        dataset.name(),
        spec.origin_m,
        spec.end_m()
    )))
}

/// The samples at `places` of `total` spread ones, read together. `progress` is asked while it waits; samples that were
/// not begun when it says `Break` are not read.
fn read(
    dataset: &dyn Dataset,
    places: Range<usize>,
    total: usize,
    what: &str,
    progress: ProgressFn<'_>,
) -> Result<Vec<Result<Sample>>> {
    let stopped = AtomicBool::new(false);
    let done = places.start;
    let mut samples: Vec<(usize, Result<Sample>)> = Vec::with_capacity(places.len());
    rayon::in_place_scope(|scope| {
        let (sender, read) = channel();
        for place in places {
            let (sender, stopped) = (sender.clone(), &stopped);
            scope.spawn(move |_| {
                if !stopped.load(Ordering::Relaxed) {
                    // Nobody listens any more when the work was stopped.
                    let _ = sender.send((place, dataset.sample(spread(place, dataset.len(), total))));
                }
            });
        }
        drop(sender);
        loop {
            match read.recv_timeout(LOOK_EVERY) {
                Ok(sample) => samples.push(sample),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    if progress(Progress { what, done, total }) == ControlFlow::Break(()) {
                        stopped.store(true, Ordering::Relaxed);
                        return Err(Error::Interrupted);
                    }
                }
            }
        }
    })?;
    samples.sort_unstable_by_key(|(place, _)| *place);
    Ok(samples.into_iter().map(|(_, sample)| sample).collect())
}

/// Number `place` of `count` numbers evenly spread over 0..len.
fn spread(place: usize, len: usize, count: usize) -> usize {
    if count == len { place } else { place * len / count }
}

pub(super) fn in_sample(sample: &Sample, why: &str) -> Error {
    Error::Failed(format!("sample {}: {why}", sample.id))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use occam_scene::{GridSpec, LabelMap, PointCloud};

    use super::super::baselines;
    use super::*;

    #[test]
    fn the_sampled_targets_are_spread_over_all() {
        let all = |len, count| (0..count).map(|place| spread(place, len, count)).collect::<Vec<_>>();
        assert_eq!(all(3, 3), [0, 1, 2]);
        assert_eq!(all(10, 5), [0, 2, 4, 6, 8]);
    }

    /// Scans of one point at `point_m` under targets of `label`; reading one takes `wait`.
    struct Scans {
        spec: GridSpec,
        labels: LabelMap,
        point_m: fn(usize) -> f32,
        label: u8,
        wait: Duration,
        made: AtomicUsize,
    }

    impl Dataset for Scans {
        fn name(&self) -> String {
            "some scans".into()
        }
        fn len(&self) -> usize {
            16
        }
        fn spec(&self) -> &GridSpec {
            &self.spec
        }
        fn labels(&self) -> &LabelMap {
            &self.labels
        }
        fn sample(&self, index: usize) -> Result<Sample> {
            self.made.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(self.wait);
            Ok(Sample {
                id: index.to_string(),
                cloud: PointCloud { positions: vec![[(self.point_m)(index); 3]], ..PointCloud::default() },
                target: VoxelGrid { labels: vec![self.label; 8], ..VoxelGrid::empty(self.spec) },
            })
        }
    }

    fn scans(point_m: fn(usize) -> f32, label: u8) -> Scans {
        Scans {
            spec: GridSpec::new([-1.0; 3], [1.0; 3], [2; 3]),
            labels: LabelMap::built_in("demo").unwrap(),
            point_m,
            label,
            wait: Duration::ZERO,
            made: AtomicUsize::new(0),
        }
    }

    #[test]
    fn nothing_to_learn_from_is_an_error_and_one_good_scan_is_enough() {
        let mut go_on = |_: Progress<'_>| ControlFlow::Continue(());
        let cases: [(Scans, &str); 3] = [
            (scans(|_| 5.0, 1), "no point lies inside the grid"),
            (scans(|_| f32::NAN, 1), "no point lies inside the grid"),
            (scans(|_| 0.0, 255), "the targets ignore every voxel of the grid"),
        ];
        for (dataset, why) in cases {
            let policy = AbsentPolicy::default();
            let errors = [
                target_statistics(&dataset, &mut go_on).unwrap_err(),
                baselines(&dataset, None, policy, &mut go_on).unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.exit_code(), 2);
                let text = error.to_string();
                assert!(
                    text.contains("some scans") && text.contains(why) && text.contains("[1.0, 1.0, 1.0]"),
                    "{text}"
                );
            }
        }
        let one_good = scans(|i| if i == 9 { 0.0 } else { f32::NAN }, 1);
        assert_eq!(target_statistics(&one_good, &mut go_on).unwrap().counts[1], 8 * 16);
    }

    #[test]
    fn a_stop_is_heard_while_samples_are_read() {
        let slow = Scans { wait: LOOK_EVERY * 3, ..scans(|_| 0.0, 1) };
        let mut first = None;
        let mut stop = |progress: Progress<'_>| {
            first = Some(progress.done);
            ControlFlow::Break(())
        };
        assert!(matches!(target_statistics(&slow, &mut stop), Err(Error::Interrupted)));
        assert_eq!(first, Some(0), "asked before the first sample was there");
    }
}
