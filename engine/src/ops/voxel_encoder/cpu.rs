//! The encoder on plain slices: the implementation on the CPU and the twin of the kernels. What the linear layer gives
//! exists for one block of points at a time, in a buffer of the thread.

use std::ops::Range;

use rayon::prelude::*;

use super::Sizes;
use crate::ops::element::{BLOCK, Element};
use crate::ops::gemm::{Matrix, multiply_into};

/// Points that a thread takes at once.
const BLOCK_POINTS: usize = 128;
/// Points and voxels of a task, at least.
const TASK: usize = 4096;
/// Most bytes of the weight gradients of all tasks.
const PARTIAL_BYTES: usize = 16 << 20;

/// What the encoder knows beside features.
pub struct Encoder<'a> {
    /// `[C, F]`.
    pub weight: &'a [f32],
    /// `[C]`.
    pub bias: &'a [f32],
    pub order: &'a [u32],
    pub starts: &'a [u32],
    pub sizes: Sizes,
}

/// The largest value of every channel over the points of a voxel so far.
struct Best {
    /// Bits of the values: as integers they are in the order of the values, from 0 on, and NaN is above all.
    keys: Vec<i32>,
    /// Places in `order` of the points that have them.
    places: Vec<u32>,
}

impl Encoder<'_> {
    /// Places in `order` of the points of some voxels.
    fn places(&self, voxels: Range<usize>) -> Range<usize> {
        let end = (self.starts[voxels.end] as usize).min(self.order.len());
        (self.starts[voxels.start] as usize).min(end)..end
    }

    fn point(&self, place: usize) -> usize {
        (self.order[place] as usize).min(self.sizes.points - 1)
    }

    /// Neighbouring voxels with about as many points: by the points alone, not by the number of threads.
    fn tasks(&self) -> Vec<Range<usize>> {
        let Sizes { channels, width, voxels, .. } = self.sizes;
        let partial = size_of::<f32>() * channels * (width + 1);
        let task = TASK.max(((self.order.len() + voxels) * partial).div_ceil(PARTIAL_BYTES));
        let mut tasks = Vec::new();
        let mut first = 0;
        for voxel in 1..=voxels {
            if voxel == voxels || self.places(first..voxel).len() + voxel - first >= task {
                tasks.push(first..voxel);
                first = voxel;
            }
        }
        tasks
    }

    /// Calls `done` with each of the voxels and the largest values over its points, the first of equal ones.
    fn visit<T: Element, const WITH_PLACES: bool>(
        &self,
        features: &[T],
        voxels: Range<usize>,
        mut done: impl FnMut(usize, &Best),
    ) {
        let Sizes { channels, width, .. } = self.sizes;
        let mut best = Best { keys: vec![0; channels], places: vec![0; channels] };
        let [mut rows, mut values] = <[Vec<f32>; 2]>::default();
        let mut buffer = vec![0.0; width];
        let places = self.places(voxels.clone());
        let mut voxel = voxels.start;
        for first in places.clone().step_by(BLOCK_POINTS) {
            let block = first..places.end.min(first + BLOCK_POINTS);
            rows.clear();
            values.clear();
            for place in block.clone() {
                rows.extend_from_slice(T::widen(&features[self.point(place) * width..][..width], &mut buffer));
                values.extend_from_slice(self.bias);
            }
            let (left, right) = (Matrix::strided(&rows, width, 1), Matrix::strided(self.weight, width, 1));
            multiply_into([block.len(), channels, width], left, right, &mut values, true, false);
            for (place, values) in block.zip(values.chunks(channels)) {
                while place >= self.starts[voxel + 1] as usize {
                    done(voxel, &best);
                    best.keys.fill(0);
                    voxel += 1;
                }
                if WITH_PLACES {
                    for ((best, at), value) in best.keys.iter_mut().zip(&mut best.places).zip(values) {
                        let key = key(*value);
                        *at = if key > *best { place as u32 } else { *at };
                        *best = key.max(*best);
                    }
                } else {
                    best.keys.iter_mut().zip(values).for_each(|(best, value)| *best = key(*value).max(*best));
                }
            }
        }
        while voxel < voxels.end {
            done(voxel, &best);
            best.keys.fill(0);
            voxel += 1;
        }
    }

    /// `[M, C]`.
    pub fn encode<T: Element>(&self, features: &[T]) -> Vec<T> {
        let Sizes { channels, voxels, .. } = self.sizes;
        let mut out = vec![T::default(); voxels * channels];
        let mut rest = &mut out[..];
        let tasks: Vec<_> = self
            .tasks()
            .into_iter()
            .map(|voxels| {
                let (own, later) = std::mem::take(&mut rest).split_at_mut(voxels.len() * channels);
                rest = later;
                (voxels, own)
            })
            .collect();
        tasks.into_par_iter().for_each(|(voxels, out)| {
            let first = voxels.start;
            self.visit::<T, false>(features, voxels, |voxel, best| {
                let row = &mut out[(voxel - first) * channels..][..channels];
                for (row, keys) in row.chunks_mut(BLOCK).zip(best.keys.chunks(BLOCK)) {
                    T::store(row, |row| row.iter_mut().zip(keys).for_each(|(value, key)| *value = value_of(*key)));
                }
            });
        });
        out
    }

    /// Gradients of features `[P, F]`, weight and bias.
    pub fn gradient<T: Element>(&self, features: &[T], gradient: &[T]) -> (Vec<T>, Vec<f32>, Vec<f32>) {
        let Sizes { points, channels, width, .. } = self.sizes;
        let tasks = self.tasks().into_par_iter().map(|voxels| {
            let places = self.places(voxels.clone());
            let mut by_features = vec![0.0; places.len() * width];
            let mut sums = vec![0.0; channels * (width + 1)];
            let (by_weight, by_bias) = sums.split_at_mut(channels * width);
            let (mut wide, mut buffer) = (vec![0.0; channels], vec![0.0; width]);
            self.visit::<T, true>(features, voxels, |voxel, best| {
                let gradient = T::widen(&gradient[voxel * channels..][..channels], &mut wide);
                for (channel, gradient) in gradient.iter().enumerate().filter(|(channel, _)| best.keys[*channel] > 0) {
                    let place = best.places[channel] as usize;
                    let x = T::widen(&features[self.point(place) * width..][..width], &mut buffer);
                    let own = channel * width..(channel + 1) * width;
                    by_weight[own.clone()].iter_mut().zip(x).for_each(|(sum, x)| *sum += gradient * x);
                    by_bias[channel] += gradient;
                    let by_point = &mut by_features[(place - places.start) * width..][..width];
                    by_point.iter_mut().zip(&self.weight[own]).for_each(|(sum, weight)| *sum += gradient * weight);
                }
            });
            let mut stored = vec![T::default(); by_features.len()];
            for (stored, values) in stored.chunks_mut(BLOCK).zip(by_features.chunks(BLOCK)) {
                T::store(stored, |stored| stored.copy_from_slice(values));
            }
            (places, stored, sums)
        });
        let tasks: Vec<_> = tasks.collect();
        let mut by_features = vec![T::default(); points * width];
        for (places, stored, _) in &tasks {
            for (place, row) in places.clone().zip(stored.chunks(width)) {
                by_features[self.point(place) * width..][..width].copy_from_slice(row);
            }
        }
        let sum = |place: usize| tasks.iter().map(|(_, _, sums)| f64::from(sums[place])).sum::<f64>() as f32;
        let by_weight = (0..channels * width).map(sum).collect();
        (by_features, by_weight, (channels * width..channels * (width + 1)).map(sum).collect())
    }
}

fn key(value: f32) -> i32 {
    if value.is_nan() { i32::MAX } else { value.to_bits().cast_signed() }
}

/// ReLU of the value of a key is done: keys from 0 on are of values from 0 on.
fn value_of(key: i32) -> f32 {
    f32::from_bits(key.cast_unsigned())
}
