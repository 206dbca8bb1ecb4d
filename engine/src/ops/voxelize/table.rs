//! From points to rows of voxels that are already known.

use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};
use occam_scene::GridSpec;

use super::backend::VoxelOps;
use super::keys::KeyLayout;
use super::{Voxels, checked_points};
use crate::gpu::check_binding;
use crate::{Error, Result};

/// Finds the row of [`Voxels`] that a point lies in, for any points on the same grid.
///
/// With keys of one word a hash table: open addressing with linear probing, whole keys compared, less than half full.
/// With keys of two words a binary search, because devices have no atomic operations on 64 bits. Both find the same.
#[derive(Debug, Clone)]
pub struct VoxelTable {
    spec: GridSpec,
    layout: KeyLayout,
    /// Rising by key.
    coords: Tensor<2, Int>,
    /// Keys and rows of the hash table; without it rows are searched in `coords`.
    slots: Option<[Tensor<1, Int>; 2]>,
}

impl VoxelTable {
    /// Table of the voxels that [`super::voxelize`] gave for `batch` members on the grid `spec`.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the table does not fit on the device, [`Error::Failed`] when the device fails.
    pub fn new(voxels: &Voxels, batch: usize, spec: &GridSpec) -> Result<Self> {
        // A power of two above twice the voxels: the load stays under one half.
        Self::with_slots(voxels, KeyLayout::new(spec, batch)?, spec, (2 * voxels.len() + 1).next_power_of_two())
    }

    /// The same with this many slots, a power of two, and keys laid out by the caller.
    ///
    /// # Errors
    /// As [`Self::new`], and [`Error::Failed`] when there are more voxels than slots.
    pub fn with_slots(voxels: &Voxels, layout: KeyLayout, spec: &GridSpec, slots: usize) -> Result<Self> {
        if !slots.is_power_of_two() {
            return Err(Error::Usage(format!("a voxel table of {slots} slots, expected a power of two")));
        }
        let coords = voxels.coords.clone();
        if voxels.is_empty() || layout.words() > 1 {
            return Ok(Self { spec: *spec, layout, coords, slots: None });
        }
        check_binding(&coords.device(), &format!("a voxel table of {slots} slots"), 4 * slots as u64)?;
        let (slot_keys, slot_rows, lost) = Dispatch::voxel_table(coords.clone().into_dispatch(), layout, slots);
        let lost = Tensor::<1, Int>::from_dispatch(lost).try_into_data();
        let lost = lost.map_err(|e| Error::Failed(format!("voxel table: {e}")))?;
        let lost: i64 = lost.iter::<i64>().sum();
        if lost > 0 {
            return Err(Error::Failed(format!(
                "the voxel table overflowed: {lost} of {} voxels found none of its {slots} slots free",
                voxels.len()
            )));
        }
        let slots = Some([slot_keys, slot_rows].map(Tensor::from_dispatch));
        Ok(Self { spec: *spec, layout, coords, slots })
    }

    /// Row of the voxel of each point, `[N]`; -1 for a point outside the grid or in a voxel that is not among them.
    ///
    /// `points` is `[N, 3]` in metres; batch member b owns `offsets[b]..offsets[b + 1]`.
    ///
    /// # Errors
    /// [`Error::Usage`] when points and offsets do not fit together or there are more members than the table has.
    pub fn rows(&self, points: Tensor<2>, offsets: &[usize]) -> Result<Tensor<1, Int>> {
        let points = checked_points(points, offsets, &self.spec)?;
        if offsets.len() - 1 > self.layout.batch() {
            let (found, batch) = (offsets.len() - 1, self.layout.batch());
            return Err(Error::Usage(format!("points of {found} batch members, the voxel table has {batch}")));
        }
        let (points, offsets) = (points.into_dispatch(), offsets.to_vec());
        Ok(Tensor::from_dispatch(if let Some(slots) = &self.slots {
            let [keys, rows] = slots.clone().map(Tensor::into_dispatch);
            Dispatch::voxel_find(points, keys, rows, offsets, self.spec, self.layout)
        } else {
            let coords = self.coords.clone().into_dispatch();
            Dispatch::voxel_search(points, coords, offsets, self.spec, self.layout)
        }))
    }
}

/// Marks a free slot; no voxel has this key.
const EMPTY: u32 = u32::MAX;

/// The twin of the table in `voxel_table_insert.wgsl`.
pub(super) struct HashTable {
    pub keys: Vec<u32>,
    pub rows: Vec<u32>,
}

impl HashTable {
    /// Table from distinct keys to their places, and how many found no slot.
    pub fn new(keys: &[u32], slots: usize) -> (Self, u32) {
        let mut table = Self { keys: vec![EMPTY; slots], rows: vec![0; slots] };
        let mut lost = 0;
        for (row, key) in keys.iter().enumerate() {
            match table.probe(*key).find(|slot| table.keys[*slot] == EMPTY) {
                Some(slot) => (table.keys[slot], table.rows[slot]) = (*key, row as u32),
                None => lost += 1,
            }
        }
        (table, lost)
    }

    /// Row of a key, -1 if it is not there.
    pub fn find(&self, key: u32) -> i32 {
        let slot = self.probe(key).find(|slot| self.keys[*slot] == key || self.keys[*slot] == EMPTY);
        slot.filter(|slot| self.keys[*slot] == key).map_or(-1, |slot| self.rows[slot] as i32)
    }

    /// Every slot, from the one that the key hashes to.
    fn probe(&self, key: u32) -> impl Iterator<Item = usize> + use<> {
        let mut x = key;
        x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
        x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
        x ^= x >> 16;
        let slots = self.keys.len();
        (0..slots).map(move |step| (x as usize + step) & (slots - 1))
    }
}

/// Row of a key among sorted ones, -1 if it is not there.
pub(super) fn search(keys: &[u64], key: u64) -> i32 {
    keys.binary_search(&key).map_or(-1, |row| row as i32)
}
