//! The head on plain slices: the implementation on the CPU and the twin of the kernels. Logits exist for one block of
//! voxels at a time, in a buffer of the thread.

use rayon::prelude::*;

use super::Sizes;
use crate::ops::cross_entropy::cpu::{BlockGradient, block_loss, block_rows};
use crate::ops::element::{BLOCK, Element};
use crate::ops::gemm::{Matrix, multiply_into};

/// Blocks of voxels whose weight gradients one task adds up, at least.
const TASK_BLOCKS: usize = 8;
/// Most bytes of the weight gradients of all tasks.
const PARTIAL_BYTES: usize = 16 << 20;

/// What the head knows beside features and labels.
pub struct Head<'a> {
    /// `[K, C]`.
    pub weight: &'a [f32],
    /// `[K]`, as the class weights.
    pub bias: &'a [f32],
    pub class_weights: &'a [f32],
    pub gamma: f32,
    pub sizes: Sizes,
}

impl Head<'_> {
    /// The logits `[K, n]` of `n` voxels.
    fn logits(&self, x: Matrix<'_>, n: usize, logits: &mut Vec<f32>) {
        let Sizes { classes, channels, .. } = self.sizes;
        logits.clear();
        for bias in self.bias {
            logits.resize(logits.len() + n, *bias);
        }
        multiply_into([classes, n, channels], Matrix::strided(self.weight, channels, 1), x, logits, true, false);
    }

    /// The loss of every voxel, `[B, V]`.
    pub fn loss<T: Element>(&self, x: &[T], labels: &[u32]) -> Vec<f32> {
        let Sizes { channels, voxels, .. } = self.sizes;
        let mut loss = vec![0.0; labels.len()];
        let samples = loss.chunks_mut(voxels.max(1)).zip(labels.chunks(voxels.max(1)));
        for ((loss, labels), x) in samples.zip(x.chunks(channels * voxels.max(1))) {
            let blocks = loss.par_chunks_mut(BLOCK).zip(labels.par_chunks(BLOCK)).enumerate();
            blocks.for_each_init(Default::default, |buffers: &mut [Vec<f32>; 2], (block, (loss, labels))| {
                let [wide, logits] = buffers;
                let n = labels.len();
                let rows = (0..channels).map(|channel| &x[channel * voxels + block * BLOCK..][..n]);
                widen(rows, n, wide);
                self.logits(Matrix::strided(wide, 1, n), n, logits);
                let row = |class| &logits[class * n..][..n];
                block_loss(row, labels, self.class_weights, self.gamma, loss);
            });
        }
        loss
    }

    /// Puts the gradient of `x` in its place; gives those of weight and bias.
    pub fn gradient<T: Element>(&self, x: &mut [T], labels: &[u32], gradient: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let Sizes { classes, channels, voxels, .. } = self.sizes;
        let mut blocks = block_rows(x, channels, voxels);
        let values = classes * (channels + 1);
        let task = TASK_BLOCKS.max((blocks.len() * values * size_of::<f32>()).div_ceil(PARTIAL_BYTES));
        let of_sample = voxels.div_ceil(BLOCK).max(1);
        let tasks = blocks.par_chunks_mut(task).enumerate().map(|(index, blocks)| {
            let mut sums = vec![0.0; values];
            let [mut wide, mut slopes, mut by_x] = <[Vec<f32>; 3]>::default();
            for (block, rows) in (index * task..).zip(blocks) {
                let start = block / of_sample * voxels + block % of_sample * BLOCK;
                let n = rows[0].len();
                let (labels, gradient) = (&labels[start..start + n], &gradient[start..start + n]);
                widen(rows.iter().map(|row| &**row), n, &mut wide);
                self.logits(Matrix::strided(&wide, 1, n), n, &mut slopes);
                self.slopes(&mut slopes, labels, gradient);
                let (by_weight, by_bias) = sums.split_at_mut(classes * channels);
                let (left, right) = (Matrix::strided(&slopes, n, 1), Matrix::strided(&wide, n, 1));
                multiply_into([classes, channels, n], left, right, by_weight, true, false);
                for (sum, slopes) in by_bias.iter_mut().zip(slopes.chunks(n)) {
                    *sum += slopes.chunks(LANES).fold([0.0; LANES], add_lanes).iter().sum::<f32>();
                }
                by_x.resize(channels * n, 0.0);
                let (left, right) = (Matrix::strided(self.weight, 1, channels), Matrix::strided(&slopes, 1, n));
                multiply_into([channels, n, classes], left, right, &mut by_x, false, false);
                for (row, by_x) in rows.iter_mut().zip(by_x.chunks(n)) {
                    T::store(row, |row| row.copy_from_slice(by_x));
                }
            }
            sums
        });
        let tasks: Vec<Vec<f32>> = tasks.collect();
        let sum = |place: usize| tasks.iter().map(|sums| f64::from(sums[place])).sum::<f64>() as f32;
        let by_weight = (0..classes * channels).map(sum).collect();
        (by_weight, (classes * channels..values).map(sum).collect())
    }

    /// Puts the gradient of the logits of a block of voxels in their place.
    fn slopes(&self, logits: &mut [f32], labels: &[u32], gradient: &[f32]) {
        let n = labels.len();
        let row = |class| &logits[class * n..][..n];
        let block = BlockGradient::new(row, labels, self.class_weights, gradient, self.gamma);
        for (class, slopes) in logits.chunks_mut(n).enumerate() {
            block.of_class(class, slopes);
        }
    }
}

/// Values that are added side by side.
const LANES: usize = 16;

fn add_lanes(mut sums: [f32; LANES], values: &[f32]) -> [f32; LANES] {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    sums
}

/// Rows of `n` values as f32, one after the other.
fn widen<'a, T: Element>(rows: impl Iterator<Item = &'a [T]>, n: usize, wide: &mut Vec<f32>) {
    let mut buffer = [0.0; BLOCK];
    wide.clear();
    for row in rows {
        wide.extend_from_slice(T::widen(row, &mut buffer[..n]));
    }
}
