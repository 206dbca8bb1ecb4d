//! Voxelization on plain slices: the implementation on the CPU and the twin of the kernels.

use std::slice::IterMut;

use occam_scene::GridSpec;
use rayon::prelude::*;

use super::keys::{Cells, KeyLayout, KeyTables, NO_VOXEL};

/// Voxels a task of the reductions takes.
const VOXELS_A_TASK: usize = 1024;

/// Points grouped by voxel.
///
/// Voxels stand in the order of their keys, the points of one voxel in their own order. A point outside the grid, or
/// with a coordinate that is not finite, is in no group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoxelGroups {
    /// Key of each voxel, ascending.
    pub keys: Vec<u64>,
    /// Voxel v holds `order[starts[v]..starts[v + 1]]`; one entry more than voxels.
    pub starts: Vec<u32>,
    /// Indices of points.
    pub order: Vec<u32>,
}

impl VoxelGroups {
    /// Groups the points `xyz` (x, y, z, x, ...) of which batch member b owns `offsets[b]..offsets[b + 1]`.
    ///
    /// A radix sort with two digits: a stable scatter by the high bits of the key on all threads, then each bucket by
    /// itself. The result does not depend on the number of threads.
    pub fn new(xyz: &[f32], offsets: &[usize], spec: &GridSpec, layout: &KeyLayout) -> Self {
        let points = xyz.as_chunks::<3>().0;
        let key_bits = u64::BITS - layout.end().saturating_sub(1).leading_zeros();
        // Buckets of some hundred points; what is left of a key must fit in 32 bits.
        let bucket_bits = (points.len() / 256 + 1).ilog2().min(11).max(key_bits.saturating_sub(32)).min(key_bits);
        let local_bits = key_bits - bucket_bits;

        let tables = KeyTables::new(spec, layout);
        let chunk_len = points.len().div_ceil(rayon::current_num_threads()).max(1 << 12);
        let (keys, counts): (Vec<Vec<u64>>, Vec<Vec<u32>>) = points
            .par_chunks(chunk_len)
            .enumerate()
            .map(|(chunk, points)| {
                let mut keys = Vec::with_capacity(points.len());
                let mut counts = vec![0u32; 1 << bucket_bits];
                for_each_batch(chunk * chunk_len..chunk * chunk_len + points.len(), offsets, |batch, range| {
                    for point in &points[range.start - chunk * chunk_len..range.end - chunk * chunk_len] {
                        let key = tables.key(batch, *point);
                        keys.push(key);
                        if key != NO_VOXEL {
                            counts[(key >> local_bits) as usize] += 1;
                        }
                    }
                });
                (keys, counts)
            })
            .unzip();

        let bucket_len = |bucket: usize| counts.iter().map(|counts| counts[bucket] as usize).sum::<usize>();
        let bucket_lens: Vec<usize> = (0..1 << bucket_bits).map(bucket_len).collect();
        let inside: usize = bucket_lens.iter().sum();

        // Each entry is the low bits of the key above the index of the point.
        let mut entries = vec![0u64; inside];
        scatter(&keys, chunk_len, local_bits, slots(&mut entries, &counts));
        drop(keys);

        let mut order = vec![0u32; inside];
        let mut rest = (entries.as_mut_slice(), order.as_mut_slice(), 0u32);
        let mut buckets = Vec::with_capacity(bucket_lens.len());
        for (bucket, len) in bucket_lens.into_iter().enumerate() {
            let (entries, more_entries) = rest.0.split_at_mut(len);
            let (order, more_order) = rest.1.split_at_mut(len);
            if len > 0 {
                buckets.push(Bucket { prefix: (bucket as u64) << local_bits, start: rest.2, entries, order });
            }
            rest = (more_entries, more_order, rest.2 + len as u32);
        }
        let parts: Vec<(Vec<u64>, Vec<u32>)> =
            buckets.into_par_iter().map_init(Vec::new, |table, bucket| bucket.group(local_bits, table)).collect();

        let voxels = parts.iter().map(|(keys, _)| keys.len()).sum();
        let mut groups = Self { keys: Vec::with_capacity(voxels), starts: Vec::with_capacity(voxels + 1), order };
        for (keys, starts) in parts {
            groups.keys.extend(keys);
            groups.starts.extend(starts);
        }
        groups.starts.push(inside as u32);
        groups
    }

    /// Number of voxels.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn members(&self, voxel: usize) -> &[u32] {
        &self.order[self.starts[voxel] as usize..self.starts[voxel + 1] as usize]
    }

    /// Points of each voxel.
    pub fn counts(&self) -> Vec<i32> {
        self.starts.windows(2).map(|pair| (pair[1] - pair[0]) as i32).collect()
    }

    /// Batch, x, y, z of each voxel, one after the other.
    pub fn coords(&self, layout: &KeyLayout) -> Vec<i32> {
        let coords = |key: &u64| {
            let (batch, [x, y, z]) = layout.voxel(*key);
            [batch as i32, x as i32, y as i32, z as i32]
        };
        self.keys.par_iter().map(coords).collect::<Vec<_>>().into_flattened()
    }

    /// Voxel of each of `points` points, -1 for those in none.
    pub fn voxel_of_point(&self, points: usize) -> Vec<i32> {
        let mut voxels = vec![-1; points];
        for voxel in 0..self.len() {
            for &point in self.members(voxel) {
                voxels[point as usize] = voxel as i32;
            }
        }
        voxels
    }

    /// Mean of `W` values a point, summed in f64 in the order of the points, rounded once.
    fn mean_of<const W: usize>(&self, values: &[f32]) -> Vec<f32> {
        let rows = values.as_chunks::<W>().0;
        let mut means = vec![[0f32; W]; self.len()];
        means.par_chunks_mut(VOXELS_A_TASK).enumerate().for_each(|(task, means)| {
            for (voxel, mean) in (task * VOXELS_A_TASK..).zip(means) {
                let members = self.members(voxel);
                let mut sum = [0f64; W];
                for &point in members {
                    for (sum, value) in sum.iter_mut().zip(rows[point as usize]) {
                        *sum += f64::from(value);
                    }
                }
                *mean = sum.map(|sum| (sum / members.len() as f64) as f32);
            }
        });
        means.into_flattened()
    }

    /// Mean position of each voxel, metres: x, y, z, x, ...
    pub fn mean_positions(&self, xyz: &[f32]) -> Vec<f32> {
        self.mean_of::<3>(xyz)
    }

    /// Mean of `width` features a point for each voxel, row after row.
    pub fn mean_features(&self, features: &[f32], width: usize) -> Vec<f32> {
        let mut means = vec![0f32; self.len() * width];
        if width == 0 {
            return means;
        }
        means.par_chunks_mut(VOXELS_A_TASK * width).enumerate().for_each_init(
            || vec![0f64; width],
            |sum, (task, means)| {
                for (voxel, mean) in (task * VOXELS_A_TASK..).zip(means.chunks_exact_mut(width)) {
                    let members = self.members(voxel);
                    sum.fill(0.0);
                    for &point in members {
                        let row = &features[point as usize * width..][..width];
                        sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
                    }
                    mean.iter_mut().zip(&*sum).for_each(|(mean, sum)| *mean = (*sum / members.len() as f64) as f32);
                }
            },
        );
        means
    }

    /// Most frequent label of each voxel; of equally frequent ones the lowest. Points labelled `ignore` have no vote:
    /// only a voxel that holds nothing else gets `ignore`.
    pub fn majority(&self, labels: &[i32], ignore: i32) -> Vec<i32> {
        let mut winners = vec![ignore; self.len()];
        winners.par_chunks_mut(VOXELS_A_TASK).enumerate().for_each_init(Vec::new, |votes, (task, winners)| {
            for (voxel, winner) in (task * VOXELS_A_TASK..).zip(winners) {
                votes.clear();
                votes.extend(self.members(voxel).iter().map(|point| labels[*point as usize]).filter(|l| *l != ignore));
                votes.sort_unstable();
                let mut most = 0;
                for run in votes.chunk_by(i32::eq) {
                    if run.len() > most {
                        (most, *winner) = (run.len(), run[0]);
                    }
                }
            }
        });
        winners
    }
}

/// Calls `each` with every batch member that owns some of the points `range`, and which.
fn for_each_batch(
    range: std::ops::Range<usize>,
    offsets: &[usize],
    mut each: impl FnMut(usize, std::ops::Range<usize>),
) {
    for (batch, ends) in offsets.windows(2).enumerate() {
        let (start, end) = (ends[0].max(range.start), ends[1].min(range.end));
        if start < end {
            each(batch, start..end);
        }
    }
}

/// Cuts `entries` into one piece for each chunk and bucket: buckets in order, inside them chunks in order.
fn slots<'a>(mut entries: &'a mut [u64], counts: &[Vec<u32>]) -> Vec<Vec<IterMut<'a, u64>>> {
    let buckets = counts.first().map_or(0, Vec::len);
    let mut slots: Vec<Vec<IterMut<u64>>> = counts.iter().map(|_| Vec::with_capacity(buckets)).collect();
    for bucket in 0..buckets {
        for (slots, counts) in slots.iter_mut().zip(counts) {
            let (piece, rest) = entries.split_at_mut(counts[bucket] as usize);
            slots.push(piece.iter_mut());
            entries = rest;
        }
    }
    slots
}

/// Writes every key that has a voxel to its bucket, with the index of its point.
fn scatter(keys: &[Vec<u64>], chunk_len: usize, local_bits: u32, slots: Vec<Vec<IterMut<u64>>>) {
    let local = (1u64 << local_bits) - 1;
    keys.par_iter().zip(slots).enumerate().for_each(|(chunk, (keys, mut slots))| {
        for (index, key) in (chunk * chunk_len..).zip(keys) {
            if *key != NO_VOXEL
                && let Some(slot) = slots[(key >> local_bits) as usize].next()
            {
                *slot = (key & local) << 32 | index as u64;
            }
        }
    });
}

/// Points whose keys share their high bits.
struct Bucket<'a> {
    /// The shared bits.
    prefix: u64,
    /// Place of the bucket in the order of all points.
    start: u32,
    entries: &'a mut [u64],
    order: &'a mut [u32],
}

impl Bucket<'_> {
    /// Sorts the bucket into `order` and returns its voxels: keys and places.
    fn group(self, local_bits: u32, table: &mut Vec<u32>) -> (Vec<u64>, Vec<u32>) {
        // Counting pays while the table is not much larger than the bucket.
        if self.entries.len() >> local_bits.saturating_sub(2) > 0 {
            self.group_by_counting(1 << local_bits, table)
        } else {
            self.group_by_sorting()
        }
    }

    fn group_by_counting(self, cells: usize, table: &mut Vec<u32>) -> (Vec<u64>, Vec<u32>) {
        table.clear();
        table.resize(cells, 0);
        for entry in &*self.entries {
            table[(entry >> 32) as usize] += 1;
        }
        let (mut keys, mut starts) = (Vec::new(), Vec::new());
        let mut place = 0;
        for (cell, slot) in table.iter_mut().enumerate() {
            let count = *slot;
            if count > 0 {
                keys.push(self.prefix | cell as u64);
                starts.push(self.start + place);
                *slot = place;
                place += count;
            }
        }
        for entry in &*self.entries {
            let slot = &mut table[(entry >> 32) as usize];
            self.order[*slot as usize] = *entry as u32;
            *slot += 1;
        }
        (keys, starts)
    }

    fn group_by_sorting(self) -> (Vec<u64>, Vec<u32>) {
        // Entries are distinct, and the index breaks ties: the order of the points survives.
        self.entries.sort_unstable();
        let (mut keys, mut starts) = (Vec::new(), Vec::new());
        for (place, (entry, order)) in self.entries.iter().zip(self.order).enumerate() {
            let key = self.prefix | entry >> 32;
            if keys.last() != Some(&key) {
                keys.push(key);
                starts.push(self.start + place as u32);
            }
            *order = *entry as u32;
        }
        (keys, starts)
    }
}

/// 1 where a voxel holds at least one point, else 0: one volume of z, x, y (y fastest) for each batch member.
pub fn occupancy(xyz: &[f32], offsets: &[usize], spec: &GridSpec) -> Vec<f32> {
    let points = xyz.as_chunks::<3>().0;
    let cells = Cells::new(spec);
    let [nx, ny, _] = spec.counts;
    let mut volumes = vec![0f32; offsets.len().saturating_sub(1) * spec.len()];
    volumes.par_chunks_mut(spec.len()).zip(offsets.par_windows(2)).for_each(|(volume, ends)| {
        for point in &points[ends[0]..ends[1]] {
            if let Some([x, y, z]) = cells.voxel_of(*point) {
                volume[(z * nx + x) * ny + y] = 1.0;
            }
        }
    });
    volumes
}
