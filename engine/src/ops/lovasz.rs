//! Gradient of the Lovász-softmax loss: one sort of all voxels a class.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use burn::backend::{Autodiff, AutodiffBackend, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, FloatDType, Int, IntDType, Tensor, TensorData};
use rayon::prelude::*;

use super::scan::exclusive_scan_cube;
use super::sort::{sort_pairs_cpu, sort_pairs_cube};
use crate::gpu::{self, Buffer, shader};

/// Bits of a sort key: errors closer than 2^-24, the step of f32 below 1, count as equal.
const KEY_BITS: u32 = 24;
/// Key of ignored voxels, which come last.
const IGNORED: u32 = (1 << KEY_BITS) - 1;

/// Gradient of the Lovász extension of the Jaccard loss (Berman et al., arXiv 1705.08790), mean over the classes that
/// occur, by the probabilities: `[B, C, V]` to `[B, C, V]`, 0 for absent classes and ignored voxels.
///
/// `labels`, `[B, V]`: a class, or C where a voxel is ignored. `counts`, `[C]`: voxels of each class in `labels`. All
/// voxels of the batch are one set. Voxels of equal error are taken in their own order.
///
/// Counts are whole numbers, and each weight is 1/U or I/(U (U + 1)) of a union U and an intersection I rather than a
/// difference of Jaccard losses, so that it stays accurate with any number of voxels.
///
/// On the CPU every thread sorts one class, in 32 bytes a voxel; on a GPU one class follows the other, in about 36.
/// Not differentiable: on an autodiff device the result is a constant.
///
/// # Panics
/// When the shapes do not fit.
pub fn lovasz_gradient(probabilities: Tensor<3>, labels: Tensor<2, Int>, counts: &[u32]) -> Tensor<3> {
    let [batch, classes, voxels] = probabilities.dims();
    assert_eq!(labels.dims(), [batch, voxels], "a label a voxel");
    assert_eq!(counts.len(), classes, "a count a class");
    let probabilities = probabilities.cast(FloatDType::F32).into_dispatch();
    let labels = labels.cast(IntDType::U32).into_dispatch();
    Tensor::from_dispatch(Dispatch::lovasz_gradient(probabilities, labels, counts.to_vec()))
}

#[backend_extension(Cube, Flex, Autodiff)]
trait LovaszOps: Backend {
    fn lovasz_gradient(
        probabilities: FloatTensor<Self>,
        labels: IntTensor<Self>,
        counts: Vec<u32>,
    ) -> FloatTensor<Self>;
}

impl LovaszOps for Cube {
    fn lovasz_gradient(
        probabilities: FloatTensor<Self>,
        labels: IntTensor<Self>,
        counts: Vec<u32>,
    ) -> FloatTensor<Self> {
        lovasz_gradient_cube(probabilities, labels, &counts)
    }
}

impl LovaszOps for Flex {
    fn lovasz_gradient(
        probabilities: FloatTensor<Self>,
        labels: IntTensor<Self>,
        counts: Vec<u32>,
    ) -> FloatTensor<Self> {
        let (probabilities, labels) = (probabilities.to_contiguous(), labels.to_contiguous());
        let shape: [usize; 3] = probabilities.layout().shape().dims();
        let gradient = lovasz_gradient_cpu(probabilities.storage(), labels.storage(), &counts, shape[2]);
        FlexTensor::from_data(TensorData::new(gradient, shape))
    }
}

impl<B: LovaszOps, C: CheckpointStrategy> LovaszOps for Autodiff<B, C> {
    fn lovasz_gradient(
        probabilities: FloatTensor<Self>,
        labels: IntTensor<Self>,
        counts: Vec<u32>,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::lovasz_gradient(probabilities.into_primitive(), labels, counts))
    }
}

/// Voxels that are not ignored, and one over the number of classes that occur.
fn totals(counts: &[u32]) -> (usize, f32) {
    let present = counts.iter().filter(|count| **count > 0).count();
    (counts.iter().map(|count| *count as usize).sum(), 1.0 / present.max(1) as f32)
}

/// [`lovasz_gradient`] of device tensors: f32 `[B, C, V]` and [`DType::U32`] `[B, V]`.
pub fn lovasz_gradient_cube(probabilities: CubeTensor, labels: CubeTensor, counts: &[u32]) -> CubeTensor {
    let (probabilities, labels) = (into_contiguous(probabilities), into_contiguous(labels));
    let [_, classes, voxels] = probabilities.shape().dims();
    let n = labels.shape().num_elements();
    let (valid, scale) = totals(counts);
    let gradient = Cube::float_zeros(probabilities.shape(), &probabilities.device, FloatDType::F32);
    let groups = |shader: &shader::Shader, threads: usize| threads.div_ceil(shader.workgroup_size as usize) as u32;
    for (class, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let class = class as u32;
        let [keys, places, hits] = [(); 3].map(|()| gpu::new_tensor(&labels, [n], DType::U32));
        let buffers =
            [Buffer::Read(&probabilities), Buffer::Read(&labels), Buffer::Write(&keys), Buffer::Write(&places)];
        let params = [n as u32, voxels as u32, classes as u32, class];
        let groups_of_all = groups(&shader::LOVASZ_KEYS, n);
        gpu::launch(&shader::LOVASZ_KEYS, &shader::PLAIN, &buffers, &params, groups_of_all);
        let (_, places) = sort_pairs_cube(keys, places, KEY_BITS);
        let buffers = [Buffer::Read(&places), Buffer::Read(&labels), Buffer::Write(&hits)];
        gpu::launch(&shader::LOVASZ_HITS, &shader::PLAIN, &buffers, &[n as u32, class], groups_of_all);
        let before = exclusive_scan_cube(hits);
        let buffers = [Buffer::Read(&places), Buffer::Read(&before), Buffer::Update(&gradient)];
        let params = [valid as u32, voxels as u32, classes as u32, class, *count, scale.to_bits()];
        let groups_of_valid = groups(&shader::LOVASZ_WEIGHTS, valid);
        gpu::launch(&shader::LOVASZ_WEIGHTS, &shader::PLAIN, &buffers, &params, groups_of_valid);
    }
    gradient
}

/// [`lovasz_gradient`] of slices.
pub fn lovasz_gradient_cpu(probabilities: &[f32], labels: &[u32], counts: &[u32], voxels: usize) -> Vec<f32> {
    let classes = counts.len();
    let (valid, scale) = totals(counts);
    let mut gradient = vec![0.0; probabilities.len()];
    // Every sample's row of each class.
    let mut rows: Vec<Vec<&mut [f32]>> = counts.iter().map(|_| Vec::new()).collect();
    for (row, values) in gradient.chunks_exact_mut(voxels.max(1)).enumerate() {
        rows[row % classes].push(values);
    }
    rows.par_iter_mut().enumerate().filter(|(class, _)| counts[*class] > 0).for_each(|(class, rows)| {
        let samples = labels.chunks_exact(voxels).enumerate();
        let keys = samples.flat_map(|(sample, labels)| {
            let p = &probabilities[(sample * classes + class) * voxels..][..voxels];
            p.iter().zip(labels).map(|(p, label)| key(*p, *label as usize, class, classes))
        });
        let places: Vec<u32> = (0..labels.len() as u32).collect();
        let (_, places) = sort_pairs_cpu(&keys.collect::<Vec<_>>(), &places, KEY_BITS);
        let mut hits = 0;
        for (k, place) in (0u32..).zip(&places[..valid]) {
            let place = *place as usize;
            let is_hit = labels[place] as usize == class;
            rows[place / voxels][place % voxels] = jaccard_step(is_hit, k, hits, counts[class]) * scale;
            hits += u32::from(is_hit);
        }
    });
    gradient
}

/// Rises as the error falls.
fn key(p: f32, label: usize, class: usize, classes: usize) -> u32 {
    if label >= classes {
        return IGNORED;
    }
    let right = if label == class { p } else { 1.0 - p };
    (right.clamp(0.0, 1.0) * (IGNORED - 1) as f32) as u32
}

/// What the Jaccard loss grows by when the voxel at place `k` is wrong after all before it, `hits` of which are of the
/// class with `total` voxels; negative for a voxel of the class, whose error falls as its probability grows.
fn jaccard_step(is_hit: bool, k: u32, hits: u32, total: u32) -> f32 {
    let together = (total + (k - hits)) as f32;
    let overlap = (total - hits) as f32;
    if is_hit { -1.0 / together } else { overlap / together / (together + 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the definition, the difference of two Jaccard losses, as a fraction of whole numbers; f32 has no odd ones
    /// beyond 2^24.
    #[test]
    fn steps_stay_accurate_beyond_the_whole_numbers_of_f32() {
        let cases = [(0, 0, 1), (5, 2, 3), (70_001, 3, 70_001), ((1 << 24) + 5, 3, 20_000_001), (1 << 31, 1, 2)];
        for (k, hits, total) in cases {
            let [t, h, m] = [total, hits, k - hits].map(u128::from);
            // 1 - (t - h) / (t + m), before and after.
            let difference = |[h0, m0]: [u128; 2], [h1, m1]: [u128; 2]| {
                ((t - h0) * (t + m1) - (t - h1) * (t + m0)) as f64 / ((t + m0) * (t + m1)) as f64
            };
            for (is_hit, expected) in [(false, difference([h, m], [h, m + 1])), (true, -difference([h, m], [h + 1, m]))]
            {
                let found = f64::from(jaccard_step(is_hit, k, hits, total));
                assert!((found / expected - 1.0).abs() < 1e-6, "{k} {hits} {total}: {found}, {expected}");
            }
        }
    }

    /// By hand: class 0 of two classes. Errors fall in the order of voxels 2 (of the class), 0 (not), 1 (of the class);
    /// voxel 3 is ignored. The Jaccard loss goes 0, 1/2, 2/3, 1.
    #[test]
    fn a_gradient_counted_by_hand() {
        let p = [0.6, 0.7, 0.1, 1.0, 0.4, 0.3, 0.9, 0.0];
        let gradient = lovasz_gradient_cpu(&p, &[1, 0, 0, 2], &[2, 1], 4);
        // Class 1: errors 0.9 (voxel 2, not), 0.6 (voxel 0, of the class), 0.3 (voxel 1, not); the loss 0, 1/2, 1, 1.
        let expected = [1.0 / 6.0, -1.0 / 3.0, -0.5, 0.0, -0.5, 0.0, 0.5, 0.0].map(|v: f32| v / 2.0);
        for (found, expected) in gradient.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{gradient:?}");
        }
    }
}
