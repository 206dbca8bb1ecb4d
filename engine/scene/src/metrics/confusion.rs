//! Counts of predicted against true classes.

use super::{AbsentPolicy, Scores};

/// Voxels by predicted class (row) and true class (column), exact in u64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    counts: Vec<u64>,
    ignored: u64,
}

impl Confusion {
    /// No voxel yet, for class ids `0..classes`; ids are `u8`, so more than 256 classes mean 256.
    pub fn new(classes: usize) -> Self {
        let classes = classes.min(256);
        Self { classes, counts: vec![0; classes * classes], ignored: 0 }
    }

    /// Counts one grid: class ids of the same voxels in the same order. Voxels whose truth is `ignore_id` count only as
    /// ignored, whatever was predicted there.
    ///
    /// # Errors
    /// Lengths that differ, and a counted voxel with an id outside `0..classes`; nothing is counted then.
    pub fn add(&mut self, pred: &[u8], gt: &[u8], ignore_id: u8) -> Result<(), String> {
        if pred.len() != gt.len() {
            return Err(format!("{} predicted voxels for {} voxels of the target", pred.len(), gt.len()));
        }
        let known = |id: u8| usize::from(id) < self.classes;
        let stranger = pred.iter().zip(gt).position(|(p, g)| *g != ignore_id && !(known(*p) && known(*g)));
        if let Some(voxel) = stranger {
            let (what, id) = if known(gt[voxel]) { ("prediction", pred[voxel]) } else { ("target", gt[voxel]) };
            return Err(format!(
                "voxel {voxel} of the {what} has class id {id}, expected one of 0 to {} or {ignore_id} (ignored) in \
                 the target",
                self.classes as i64 - 1
            ));
        }
        for (p, g) in pred.iter().zip(gt) {
            if *g == ignore_id {
                self.ignored += 1;
            } else {
                self.counts[usize::from(*p) * self.classes + usize::from(*g)] += 1;
            }
        }
        Ok(())
    }

    /// Adds the counts of another part of the same split.
    ///
    /// # Errors
    /// Another number of classes.
    pub fn merge(&mut self, other: &Self) -> Result<(), String> {
        if other.classes != self.classes {
            return Err(format!("counts of {} classes cannot join counts of {}", other.classes, self.classes));
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.ignored += other.ignored;
        Ok(())
    }

    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Voxels predicted as `pred` that are `gt`; 0 for ids outside the map.
    pub fn count(&self, pred: u8, gt: u8) -> u64 {
        let (p, g) = (usize::from(pred), usize::from(gt));
        if p < self.classes && g < self.classes { self.counts[p * self.classes + g] } else { 0 }
    }

    /// Voxels that count.
    pub fn counted(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Voxels whose truth was the ignored id.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Voxels predicted as each class.
    pub(super) fn predicted(&self) -> Vec<u64> {
        (0..self.classes).map(|p| self.counts[p * self.classes..(p + 1) * self.classes].iter().sum()).collect()
    }

    /// Voxels of each class in truth.
    pub(super) fn actual(&self) -> Vec<u64> {
        (0..self.classes).map(|g| self.counts.iter().skip(g).step_by(self.classes).sum()).collect()
    }

    /// Scores as SemanticKITTI's completion evaluator counts them; see [`Scores`].
    ///
    /// # Errors
    /// An `empty_id` outside the map, and absent classes under [`AbsentPolicy::Error`] (all are named).
    pub fn scores(&self, empty_id: u8, policy: AbsentPolicy) -> Result<Scores, String> {
        Scores::of(self, empty_id, policy)
    }
}
