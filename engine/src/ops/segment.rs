//! Reductions over segments: groups of neighbouring rows, given by offsets as [`super::exclusive_scan`] makes them.
//!
//! Sums add in one fixed order, the same on every device, so that results are equal bit for bit.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use burn::backend::{Autodiff, AutodiffBackend, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, FloatDType, Int, IntDType, Tensor, TensorData};
use rayon::prelude::*;

use crate::gpu::shader::{self, Permutation};
use crate::gpu::{self, Buffer};

/// Threads that share a segment, as in `segment_reduce.wgsl`.
const LANES: usize = 16;
/// Segments of one workgroup.
const GROUP_SEGMENTS: usize = 16;
/// Most values that one thread reads in one dispatch: longer segments take several, so that none runs long.
const THREAD_VALUES: usize = 16_384;

const NO_OFFSETS: &str = "offsets have one more element than segments, hence at least one";

/// Rows of each segment, `[segments + 1]` offsets to `[segments]`, as `u32`.
pub fn segment_counts(offsets: Tensor<1, Int>) -> Tensor<1, Int> {
    let offsets = offsets.cast(IntDType::U32);
    let [n] = offsets.dims();
    assert!(n > 0, "{NO_OFFSETS}");
    offsets.clone().slice(1..n) - offsets.slice(0..n - 1)
}

/// Sums of the rows of each segment: `[n, columns]` to `[segments, columns]`, in f32. Empty segments give 0.
///
/// `offsets`, `[segments + 1]`, do not fall; segment `s` has the rows `offsets[s]..offsets[s + 1]`. What lies beyond `n`
/// is left out. Not differentiable: on an autodiff device the result is a constant.
pub fn segment_sum(values: Tensor<2>, offsets: Tensor<1, Int>) -> Tensor<2> {
    reduce(values, offsets, false)
}

/// Maximum of the rows of each segment, as [`segment_sum`]. NaN is ignored; without any number the result is minus
/// infinity.
pub fn segment_max(values: Tensor<2>, offsets: Tensor<1, Int>) -> Tensor<2> {
    reduce(values, offsets, true)
}

fn reduce(values: Tensor<2>, offsets: Tensor<1, Int>, max: bool) -> Tensor<2> {
    assert!(offsets.dims() != [0], "{NO_OFFSETS}");
    let values = values.cast(FloatDType::F32).into_dispatch();
    let offsets = offsets.cast(IntDType::U32).into_dispatch();
    Tensor::from_dispatch(if max {
        Dispatch::segment_max(values, offsets)
    } else {
        Dispatch::segment_sum(values, offsets)
    })
}

#[backend_extension(Cube, Flex, Autodiff)]
trait SegmentOps: Backend {
    fn segment_sum(values: FloatTensor<Self>, offsets: IntTensor<Self>) -> FloatTensor<Self>;
    fn segment_max(values: FloatTensor<Self>, offsets: IntTensor<Self>) -> FloatTensor<Self>;
}

impl SegmentOps for Cube {
    fn segment_sum(values: FloatTensor<Self>, offsets: IntTensor<Self>) -> FloatTensor<Self> {
        segment_sum_cube(values, offsets)
    }

    fn segment_max(values: FloatTensor<Self>, offsets: IntTensor<Self>) -> FloatTensor<Self> {
        segment_max_cube(values, offsets)
    }
}

impl SegmentOps for Flex {
    fn segment_sum(values: FloatTensor<Self>, offsets: IntTensor<Self>) -> FloatTensor<Self> {
        reduce_flex(&values, &offsets, segment_sum_cpu)
    }

    fn segment_max(values: FloatTensor<Self>, offsets: IntTensor<Self>) -> FloatTensor<Self> {
        reduce_flex(&values, &offsets, segment_max_cpu)
    }
}

impl<B: SegmentOps, C: CheckpointStrategy> SegmentOps for Autodiff<B, C> {
    fn segment_sum(values: FloatTensor<Self>, offsets: IntTensor<Self>) -> FloatTensor<Self> {
        Self::from_inner(B::segment_sum(values.into_primitive(), offsets))
    }

    fn segment_max(values: FloatTensor<Self>, offsets: IntTensor<Self>) -> FloatTensor<Self> {
        Self::from_inner(B::segment_max(values.into_primitive(), offsets))
    }
}

/// [`segment_sum`] of device tensors: f32 `[n, columns]` and [`DType::U32`] `[segments + 1]`.
pub fn segment_sum_cube(values: CubeTensor, offsets: CubeTensor) -> CubeTensor {
    reduce_cube(values, offsets, &shader::SEGMENT_SUM, 0.0)
}

/// [`segment_max`] of device tensors: f32 `[n, columns]` and [`DType::U32`] `[segments + 1]`.
pub fn segment_max_cube(values: CubeTensor, offsets: CubeTensor) -> CubeTensor {
    reduce_cube(values, offsets, &shader::SEGMENT_MAX, f32::NEG_INFINITY)
}

fn reduce_cube(values: CubeTensor, offsets: CubeTensor, reduction: &Permutation, empty: f32) -> CubeTensor {
    let (values, offsets) = (into_contiguous(values), into_contiguous(offsets));
    let [n, columns] = values.shape().dims();
    let segments = offsets.shape().num_elements() - 1;
    if n == 0 || columns == 0 || segments == 0 {
        let nothing = vec![empty; segments * columns];
        let handle = values.client.create_from_slice(bytemuck::cast_slice(&nothing));
        let (client, device) = (values.client.clone(), values.device.clone());
        return CubeTensor::new_contiguous(client, device, [segments, columns].into(), handle, DType::F32);
    }
    let out = gpu::new_tensor(&values, [segments, columns], DType::F32);
    let buffers = [Buffer::Read(&values), Buffer::Read(&offsets), Buffer::Update(&out)];
    let rows = pass_rows(columns);
    for skip in (0..n).step_by(rows) {
        let params = [n as u32, columns as u32, segments as u32, skip as u32, rows as u32];
        let groups = segments.div_ceil(GROUP_SEGMENTS) as u32;
        gpu::launch(&shader::SEGMENT_REDUCE, reduction, &buffers, &params, groups);
    }
    out
}

/// Rows of a segment that are reduced at once; their results are combined in order.
fn pass_rows(columns: usize) -> usize {
    LANES * (THREAD_VALUES / columns).max(1)
}

fn reduce_flex(
    values: &FlexTensor,
    offsets: &FlexTensor,
    twin: impl Fn(&[f32], usize, &[u32]) -> Vec<f32>,
) -> FlexTensor {
    let (values, offsets) = (values.to_contiguous(), offsets.to_contiguous());
    let [_, columns] = values.layout().shape().dims();
    let out = twin(values.storage(), columns, offsets.storage());
    let segments = offsets.layout().shape().num_elements() - 1;
    FlexTensor::from_data(TensorData::new(out, [segments, columns]))
}

/// [`segment_sum`] of slices, equal to the kernel bit for bit.
pub fn segment_sum_cpu(values: &[f32], columns: usize, offsets: &[u32]) -> Vec<f32> {
    reduce_cpu(values, columns, offsets, 0.0, |a, b| a + b)
}

/// [`segment_max`] of slices.
pub fn segment_max_cpu(values: &[f32], columns: usize, offsets: &[u32]) -> Vec<f32> {
    // The total order sets -0 below +0, as the kernel does.
    let larger = |a: f32, b: f32| if b.is_nan() || a.total_cmp(&b).is_ge() { a } else { b };
    reduce_cpu(values, columns, offsets, f32::NEG_INFINITY, larger)
}

fn reduce_cpu(
    values: &[f32],
    columns: usize,
    offsets: &[u32],
    nothing: f32,
    combine: impl Fn(f32, f32) -> f32 + Sync,
) -> Vec<f32> {
    let segments = offsets.len() - 1;
    let mut out = vec![nothing; segments * columns];
    if columns == 0 {
        return out;
    }
    let n = values.len() / columns;
    out.par_chunks_mut(columns).with_min_len(1024).enumerate().for_each(|(segment, out)| {
        let end = (offsets[segment + 1] as usize).min(n);
        let begin = (offsets[segment] as usize).min(end);
        for rows in values[begin * columns..end * columns].chunks(pass_rows(columns) * columns) {
            for (column, out) in out.iter_mut().enumerate() {
                let mut lanes = [nothing; LANES];
                for block in rows.chunks(LANES * columns) {
                    for (lane, row) in lanes.iter_mut().zip(block.chunks_exact(columns)) {
                        *lane = combine(*lane, row[column]);
                    }
                }
                let mut reach = LANES / 2;
                while reach > 0 {
                    for lane in 0..reach {
                        lanes[lane] = combine(lanes[lane], lanes[lane + reach]);
                    }
                    reach /= 2;
                }
                *out = combine(*out, lanes[0]);
            }
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three columns; segments of every length around a pass, with an empty one after each.
    fn example() -> (Vec<f32>, Vec<u32>) {
        let mut offsets = vec![0];
        for rows in [0, 1, 2, 15, 16, 17, 33, 300, pass_rows(3) as u32 + 7] {
            let begin = offsets[offsets.len() - 1];
            offsets.extend([begin + rows, begin + rows]);
        }
        let n = offsets[offsets.len() - 1] * 3;
        // Whole numbers, so that every order of adding gives the same exact sum.
        ((0..n).map(|i| (i * 7919 % 257) as f32 - 128.0).collect(), offsets)
    }

    fn naive(values: &[f32], offsets: &[u32], start: f64, combine: impl Fn(f64, f64) -> f64) -> Vec<f32> {
        let mut out = Vec::new();
        for segment in offsets.windows(2) {
            for column in 0..3 {
                let rows = segment[0]..segment[1];
                let all = rows.map(|row| f64::from(values[row as usize * 3 + column]));
                out.push(all.fold(start, &combine) as f32);
            }
        }
        out
    }

    #[test]
    fn twins_equal_a_plain_loop() {
        let (values, offsets) = example();
        assert_eq!(segment_sum_cpu(&values, 3, &offsets), naive(&values, &offsets, 0.0, |a, b| a + b));
        let expected = naive(&values, &offsets, f64::NEG_INFINITY, f64::max);
        assert_eq!(segment_max_cpu(&values, 3, &offsets), expected);
    }

    #[test]
    fn the_maximum_ignores_nan() {
        let values = [f32::NAN, -2.0, f32::NAN, -1.0, f32::NAN, f32::NEG_INFINITY];
        let infinite = f32::NEG_INFINITY;
        assert_eq!(segment_max_cpu(&values, 1, &[0, 4, 5, 6, 6]), [-1.0, infinite, infinite, infinite]);
    }

    #[test]
    fn offsets_beyond_the_rows_are_cut() {
        assert_eq!(segment_sum_cpu(&[1.0, 2.0, 3.0], 1, &[0, 2, 9, 20]), [3.0, 3.0, 0.0]);
    }
}
