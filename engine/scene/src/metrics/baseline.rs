//! Predictions without a network. A network that does not beat them has learned nothing about completion.

use crate::grid::{AxisOrder, GridSpec};

/// The input as prediction: `class` where a voxel holds points, free space elsewhere.
///
/// The input knows no classes. For mIoU give it the most frequent one of the training targets,
/// [`MajorityMap::most_frequent`]; completion IoU does not depend on it.
pub fn input(occupied: &[bool], class: u8, empty_id: u8) -> Vec<u8> {
    occupied.iter().map(|occupied| if *occupied { class } else { empty_id }).collect()
}

/// Occupied voxels and their 26 neighbours. `occupied` holds one entry a voxel in the spec's order.
pub fn dilate(occupied: &[bool], spec: &GridSpec) -> Vec<bool> {
    assert_eq!(occupied.len(), spec.len(), "one entry a voxel");
    let [nx, ny, nz] = spec.counts;
    // A cube is the product of three intervals, so that one pass along each axis does it, in any axis order.
    let (middle, [slow, fast]) = match spec.axis_order {
        AxisOrder::Xyz => (ny, [nx, nz]),
        AxisOrder::Zyx => (ny, [nz, nx]),
    };
    let mut grown = occupied.to_vec();
    for (stride, count) in [(1, fast), (fast, middle), (fast * middle, slow)] {
        let before = grown.clone();
        for (i, voxel) in grown.iter_mut().enumerate() {
            let place = i / stride % count;
            *voxel |= (place > 0 && before[i - stride]) || (place + 1 < count && before[i + stride]);
        }
    }
    grown
}

/// The most frequent class of each voxel over the training targets: what can be said without looking at the input.
#[derive(Debug, Clone)]
pub struct MajorityMap {
    classes: usize,
    empty_id: u8,
    /// How often, by voxel, then class.
    counts: Vec<u32>,
}

impl MajorityMap {
    /// For class ids `0..classes`. Holds `4 * spec.len() * classes` bytes.
    ///
    /// # Errors
    /// An empty id outside the map, and a product that does not fit in memory addresses.
    pub fn new(spec: &GridSpec, classes: usize) -> Result<Self, String> {
        if usize::from(spec.empty_id) >= classes {
            return Err(format!("free space has class id {}, but there are only {classes} classes", spec.empty_id));
        }
        let len = spec
            .checked_len()
            .and_then(|voxels| voxels.checked_mul(classes))
            .ok_or_else(|| format!("a grid of {:?} voxels with {classes} classes is too large", spec.counts))?;
        Ok(Self { classes, empty_id: spec.empty_id, counts: vec![0; len] })
    }

    /// Counts one training target in the spec's axis order; voxels with `ignore_id` do not count.
    ///
    /// # Errors
    /// Another number of voxels, or a class id outside the map; nothing is counted then.
    pub fn add(&mut self, target: &[u8], ignore_id: u8) -> Result<(), String> {
        let voxels = self.counts.len() / self.classes;
        if target.len() != voxels {
            return Err(format!("a target of {} voxels for a majority map of {voxels}", target.len()));
        }
        if let Some(voxel) = target.iter().position(|id| *id != ignore_id && usize::from(*id) >= self.classes) {
            return Err(format!(
                "voxel {voxel} of the target has class id {}, expected one of 0 to {} or {ignore_id} (ignored)",
                target[voxel],
                self.classes - 1
            ));
        }
        for (counts, id) in self.counts.chunks_exact_mut(self.classes).zip(target) {
            if *id != ignore_id {
                counts[usize::from(*id)] += 1;
            }
        }
        Ok(())
    }

    /// The prediction, one class id a voxel: ties go to the lowest id, voxels that never counted are free space.
    pub fn predict(&self) -> Vec<u8> {
        self.counts.chunks_exact(self.classes).map(|counts| lowest_of_most(counts).unwrap_or(self.empty_id)).collect()
    }

    /// The most frequent class over all voxels, free space aside: ties go to the lowest id. Without any occupied voxel
    /// it is the lowest id that is not free space (free space itself where there is no other class).
    pub fn most_frequent(&self) -> u8 {
        let mut totals = vec![0u64; self.classes];
        for counts in self.counts.chunks_exact(self.classes) {
            totals.iter_mut().zip(counts).for_each(|(total, count)| *total += u64::from(*count));
        }
        totals[usize::from(self.empty_id)] = 0;
        let other = u8::from(self.empty_id == 0 && self.classes > 1);
        lowest_of_most(&totals).unwrap_or(if self.classes > 1 { other } else { self.empty_id })
    }
}

/// Index of the largest count, the lowest one of equals; `None` when all are 0.
fn lowest_of_most<T: Copy + Ord + Default>(counts: &[T]) -> Option<u8> {
    // `max_by_key` keeps the last of equals, hence the reversal.
    let (class, count) = counts.iter().enumerate().rev().max_by_key(|(_, count)| **count)?;
    (*count > T::default()).then_some(class as u8)
}
