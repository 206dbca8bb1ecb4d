//! Scores over a data set, beside the scores of predictions that need no network.

use std::ops::ControlFlow;

use occam_scene::metrics::{AbsentPolicy, Confusion, Scores, baseline};
use occam_scene::{GridSpec, VoxelGrid};
use rayon::prelude::*;

use super::Model;
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
const TOGETHER: usize = 8;

/// Training targets that are counted at most, evenly spread over the training set. They weigh classes and make a
/// baseline; neither gets better with more.
pub const COUNTED_TARGETS: usize = 128;

/// Counts classes on the training targets, at most [`COUNTED_TARGETS`] of them, without augmentation.
///
/// # Errors
/// The first error of a sample, and [`Error::Interrupted`].
pub fn target_statistics(dataset: &dyn Dataset, progress: ProgressFn<'_>) -> Result<TargetStatistics> {
    let spec = dataset.spec();
    let classes = dataset.labels().len();
    let mut majority = baseline::MajorityMap::new(spec, classes).map_err(Error::TooLarge)?;
    let mut counts = vec![0u64; classes];
    let chosen = spread(dataset.len(), COUNTED_TARGETS);
    for_each(dataset, &chosen, "counting classes", progress, &mut |sample| {
        majority.add(&sample.target.labels, spec.ignore_id).map_err(|why| in_sample(sample, &why))?;
        for label in sample.target.labels.iter().filter(|l| **l != spec.ignore_id) {
            counts[usize::from(*label)] += 1;
        }
        Ok(())
    })?;
    let scale = dataset.len() as f64 / chosen.len().max(1) as f64;
    Ok(TargetStatistics {
        counts: counts.into_iter().map(|count| (count as f64 * scale) as u64).collect(),
        majority: majority.predict(),
        most_frequent: majority.most_frequent(),
    })
}

/// Scores the predictions that need no network: the input, the input grown by one voxel in all 26 directions, and, where
/// the training targets are known, the most frequent class of each voxel. Without them, what is occupied gets the first
/// class that is not free space: completion IoU does not depend on it.
///
/// # Errors
/// The first error of a sample, and [`Error::Interrupted`].
pub fn baselines(
    dataset: &dyn Dataset,
    training: Option<&TargetStatistics>,
    policy: AbsentPolicy,
    progress: ProgressFn<'_>,
) -> Result<Vec<(String, Scores)>> {
    let mut tally = Baselines::new(dataset, training);
    let all: Vec<usize> = (0..dataset.len()).collect();
    for_each(dataset, &all, "scoring baselines", progress, &mut |sample| tally.add(sample))?;
    tally.scores(policy)
}

/// Scores `model` over `dataset`, and the baselines with it.
///
/// # Errors
/// [`Error::Usage`] when grid or classes of the two differ; the first error of a sample; [`Error::Interrupted`].
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
    let all: Vec<usize> = (0..dataset.len()).collect();
    for_each(dataset, &all, "evaluating", progress, &mut |sample| {
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

/// Reads samples several at a time and hands them over one by one, in order.
fn for_each(
    dataset: &dyn Dataset,
    indices: &[usize],
    what: &str,
    progress: ProgressFn<'_>,
    take: &mut dyn FnMut(&Sample) -> Result<()>,
) -> Result<()> {
    let total = indices.len();
    let mut done = 0;
    for some in indices.chunks(TOGETHER) {
        let samples: Vec<Result<Sample>> = some.par_iter().map(|index| dataset.sample(*index)).collect();
        for sample in samples {
            take(&sample?)?;
            done += 1;
            if progress(Progress { what, done, total }) == ControlFlow::Break(()) {
                return Err(Error::Interrupted);
            }
        }
    }
    Ok(())
}

/// At most `most` of the numbers 0..len, evenly spread.
fn spread(len: usize, most: usize) -> Vec<usize> {
    let count = len.min(most);
    (0..count).map(|i| i * len / count).collect()
}

fn in_sample(sample: &Sample, why: &str) -> Error {
    Error::Failed(format!("sample {}: {why}", sample.id))
}

struct Baselines<'a> {
    spec: GridSpec,
    class: u8,
    majority: Option<&'a [u8]>,
    input: Confusion,
    dilated: Confusion,
    majority_map: Confusion,
}

impl<'a> Baselines<'a> {
    fn new(dataset: &dyn Dataset, training: Option<&'a TargetStatistics>) -> Self {
        let (spec, classes) = (*dataset.spec(), dataset.labels().len());
        Self {
            spec,
            class: training.map_or(u8::from(spec.empty_id == 0), |t| t.most_frequent),
            majority: training.map(|t| t.majority.as_slice()),
            input: Confusion::new(classes),
            dilated: Confusion::new(classes),
            majority_map: Confusion::new(classes),
        }
    }

    fn add(&mut self, sample: &Sample) -> Result<()> {
        let Self { spec, class, .. } = *self;
        let mut occupied = vec![false; spec.len()];
        for voxel in sample.cloud.positions.iter().filter_map(|p| spec.voxel_of(*p)) {
            occupied[spec.index(voxel)] = true;
        }
        let target = &sample.target.labels;
        let count = |confusion: &mut Confusion, prediction: &[u8]| {
            confusion.add(prediction, target, spec.ignore_id).map_err(|why| in_sample(sample, &why))
        };
        count(&mut self.input, &baseline::input(&occupied, class, spec.empty_id))?;
        let dilated = baseline::dilate(&occupied, &spec);
        count(&mut self.dilated, &baseline::input(&dilated, class, spec.empty_id))?;
        if let Some(majority) = self.majority {
            count(&mut self.majority_map, majority)?;
        }
        Ok(())
    }

    fn scores(&self, policy: AbsentPolicy) -> Result<Vec<(String, Scores)>> {
        let mut found = vec![("input", &self.input), ("input dilated by 1", &self.dilated)];
        if self.majority.is_some() {
            found.push(("training majority", &self.majority_map));
        }
        found
            .into_iter()
            .map(|(name, confusion)| {
                Ok((name.to_owned(), confusion.scores(self.spec.empty_id, policy).map_err(Error::Usage)?))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sampled_targets_are_spread_over_all() {
        assert_eq!(spread(3, 5), [0, 1, 2]);
        assert_eq!(spread(10, 5), [0, 2, 4, 6, 8]);
        assert_eq!(spread(0, 5), [0usize; 0]);
    }
}
