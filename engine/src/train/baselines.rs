//! Predictions that need no network, scored beside it.

use occam_scene::GridSpec;
use occam_scene::metrics::{AbsentPolicy, Confusion, Scores, baseline};

use super::TargetStatistics;
use super::evaluate::{for_each, in_sample};
use crate::data::{Dataset, Moment, Sample};
use crate::{Error, ProgressFn, Result};

/// Scores the predictions that need no network: the input, the input grown by one voxel in all 26 directions, and, where
/// the training data are given with what was counted on them, the most frequent class of each voxel and the nearest
/// training target. Without them, what is occupied gets the first class that is not free space: completion IoU does not
/// depend on it.
///
/// The nearest training target is that of the training sample of the same recording whose scan number is nearest (the
/// earlier of two), as it is in its own frame; what it ignores is predicted as free space. It is what a network would
/// score that only remembers. It is left out where a sample has no such neighbour, as when whole sequences validate.
///
/// # Errors
/// The first error of a sample, [`Error::Usage`] when there is nothing to score, and [`Error::Interrupted`].
pub fn baselines(
    dataset: &dyn Dataset,
    training: Option<(&dyn Dataset, &TargetStatistics)>,
    policy: AbsentPolicy,
    progress: ProgressFn<'_>,
) -> Result<Vec<(String, Scores)>> {
    let mut tally = Baselines::new(dataset, training.map(|(_, statistics)| statistics));
    let mut nearest = training.and_then(|(training, _)| Nearest::new(dataset, training));
    for_each(dataset, usize::MAX, "scoring baselines", progress, &mut |index, sample| {
        tally.add(sample)?;
        match &mut nearest {
            Some(nearest) => nearest.add(index, sample),
            None => Ok(()),
        }
    })?;
    let mut scores = tally.scores(policy)?;
    if let Some(nearest) = nearest {
        let found = nearest.confusion.scores(dataset.spec().empty_id, policy).map_err(Error::Usage)?;
        scores.push(("nearest target".into(), found));
    }
    Ok(scores)
}

/// Scores of the baselines, sample by sample.
pub(super) struct Baselines<'a> {
    spec: GridSpec,
    class: u8,
    majority: Option<&'a [u8]>,
    input: Confusion,
    dilated: Confusion,
    majority_map: Confusion,
}

impl<'a> Baselines<'a> {
    pub(super) fn new(dataset: &dyn Dataset, training: Option<&'a TargetStatistics>) -> Self {
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

    pub(super) fn add(&mut self, sample: &Sample) -> Result<()> {
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

    pub(super) fn scores(&self, policy: AbsentPolicy) -> Result<Vec<(String, Scores)>> {
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

/// Scores of the nearest training target.
struct Nearest<'a> {
    training: &'a dyn Dataset,
    /// For each sample, the training sample nearest to it.
    places: Vec<usize>,
    /// The target looked at last, with its sample: neighbours share one.
    last: Option<(usize, Vec<u8>)>,
    confusion: Confusion,
}

impl<'a> Nearest<'a> {
    /// `None` where a sample has no neighbour to train on.
    fn new(dataset: &dyn Dataset, training: &'a dyn Dataset) -> Option<Self> {
        let known: Vec<(usize, Moment)> =
            (0..training.len()).filter_map(|index| Some((index, training.moment(index)?))).collect();
        let nearest = |index| {
            let Moment { recording, scan } = dataset.moment(index)?;
            let same = known.iter().filter(|(_, moment)| moment.recording == recording);
            same.min_by_key(|(_, moment)| (moment.scan.abs_diff(scan), moment.scan)).map(|(index, _)| *index)
        };
        let places = (0..dataset.len()).map(nearest).collect::<Option<Vec<_>>>()?;
        Some(Self { training, places, last: None, confusion: Confusion::new(dataset.labels().len()) })
    }

    fn add(&mut self, index: usize, sample: &Sample) -> Result<()> {
        let spec = self.training.spec();
        let (place, ignore, empty) = (self.places[index], spec.ignore_id, spec.empty_id);
        if self.last.as_ref().is_none_or(|(last, _)| *last != place) {
            let mut labels = self.training.sample(place)?.target.labels;
            labels.iter_mut().filter(|label| **label == ignore).for_each(|label| *label = empty);
            self.last = Some((place, labels));
        }
        let Some((_, labels)) = &self.last else { return Ok(()) };
        self.confusion.add(labels, &sample.target.labels, ignore).map_err(|why| in_sample(sample, &why))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use occam_scene::{GridSpec, LabelMap, PointCloud, VoxelGrid};

    use super::super::target_statistics;
    use super::*;

    /// Scans of recordings, each with a target of eight voxels.
    struct Scans {
        spec: GridSpec,
        labels: LabelMap,
        samples: Vec<(Option<Moment>, [u8; 8])>,
    }

    impl Dataset for Scans {
        fn name(&self) -> String {
            "some scans".into()
        }
        fn len(&self) -> usize {
            self.samples.len()
        }
        fn spec(&self) -> &GridSpec {
            &self.spec
        }
        fn labels(&self) -> &LabelMap {
            &self.labels
        }
        fn sample(&self, index: usize) -> Result<Sample> {
            Ok(Sample {
                id: index.to_string(),
                cloud: PointCloud { positions: vec![[0.0; 3]], ..PointCloud::default() },
                target: VoxelGrid { labels: self.samples[index].1.to_vec(), ..VoxelGrid::empty(self.spec) },
            })
        }
        fn moment(&self, index: usize) -> Option<Moment> {
            self.samples[index].0
        }
    }

    fn scans(scans: &[(usize, usize, [u8; 8])]) -> Scans {
        let samples = scans
            .iter()
            .map(|(recording, scan, target)| (Some(Moment { recording: *recording, scan: *scan }), *target));
        Scans {
            spec: GridSpec::new([-1.0; 3], [1.0; 3], [2; 3]),
            labels: LabelMap::built_in("demo").unwrap(),
            samples: samples.collect(),
        }
    }

    fn found(training: &Scans, validation: &Scans) -> Vec<(String, Scores)> {
        let mut go_on = |_: crate::Progress<'_>| ControlFlow::Continue(());
        let statistics = target_statistics(training, &mut go_on).unwrap();
        baselines(validation, Some((training, &statistics)), AbsentPolicy::default(), &mut go_on).unwrap()
    }

    #[test]
    fn the_nearest_training_target_is_of_the_same_recording_and_the_earlier_of_two() {
        let training = scans(&[
            (1, 5, [1; 8]),
            (0, 8, [2, 2, 2, 2, 0, 0, 0, 0]),
            (0, 2, [1, 1, 255, 0, 0, 0, 0, 1]),
            (1, 0, [1; 8]),
        ]);
        // Scan 5 lies as far from 2 as from 8: the earlier, with its ignored voxel as free space.
        let validation = scans(&[(0, 5, [1, 2, 1, 1, 0, 0, 255, 255])]);
        let scores = found(&training, &validation);
        let (name, nearest) = &scores[3];
        assert_eq!((scores.len(), name.as_str()), (4, "nearest target"));
        // Occupied in both: two voxels; in the target: four; the last two do not count.
        assert_eq!((nearest.iou, nearest.counted, nearest.ignored), (0.5, 6, 2));
        // Scan 6 lies nearer to 8: all four are occupied in both.
        let validation = scans(&[(0, 6, [2, 2, 2, 1, 0, 0, 0, 0])]);
        assert_eq!(found(&training, &validation)[3].1.iou, 1.0);
    }

    #[test]
    fn without_a_neighbour_to_train_on_there_is_no_nearest_target() {
        let training = scans(&[(0, 0, [1; 8])]);
        let names = |validation: &Scans| found(&training, validation).into_iter().map(|s| s.0).collect::<Vec<_>>();
        let three = ["input", "input dilated by 1", "training majority"];
        assert_eq!(names(&scans(&[(0, 1, [1; 8]), (1, 0, [1; 8])])), three, "a sequence of its own validates");
        let mut still = scans(&[(0, 1, [1; 8])]);
        assert_eq!(names(&still).len(), 4);
        still.samples[0].0 = None;
        assert_eq!(names(&still), three);
    }
}
