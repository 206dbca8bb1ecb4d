//! Exclusive scan (prefix sum), by reduce-then-scan: no workgroup waits for another, so no device can hang on it.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::IntTensor;
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use burn::backend::{Autodiff, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, Int, IntDType, Tensor, TensorData};

use crate::gpu::{self, Buffer, shader};

/// Values of one workgroup, as in `scan_sums.wgsl` and `scan_blocks.wgsl`.
const BLOCK: usize = 1024;

/// Sums of all values before each place: `[n]` to `[n + 1]`, `out[i] = values[0] + ... + values[i - 1]`, so `out[0] = 0`
/// and `out[n]` is the total. Counts thus become the offsets of [`super::segment`].
///
/// Takes and gives `u32`; sums wrap at 2^32.
pub fn exclusive_scan(values: Tensor<1, Int>) -> Tensor<1, Int> {
    Tensor::from_dispatch(Dispatch::exclusive_scan(values.cast(IntDType::U32).into_dispatch()))
}

#[backend_extension(Cube, Flex, Autodiff)]
trait ScanOps: Backend {
    fn exclusive_scan(values: IntTensor<Self>) -> IntTensor<Self>;
}

impl ScanOps for Cube {
    fn exclusive_scan(values: IntTensor<Self>) -> IntTensor<Self> {
        exclusive_scan_cube(values)
    }
}

impl ScanOps for Flex {
    fn exclusive_scan(values: IntTensor<Self>) -> IntTensor<Self> {
        let values = values.to_contiguous();
        let sums = exclusive_scan_cpu(values.storage());
        let len = sums.len();
        FlexTensor::from_data(TensorData::new(sums, [len]))
    }
}

impl<B: ScanOps, C: CheckpointStrategy> ScanOps for Autodiff<B, C> {
    fn exclusive_scan(values: IntTensor<Self>) -> IntTensor<Self> {
        B::exclusive_scan(values)
    }
}

/// [`exclusive_scan`] of a device tensor of [`DType::U32`], `[n]` to `[n + 1]`.
pub fn exclusive_scan_cube(values: CubeTensor) -> CubeTensor {
    let values = into_contiguous(values);
    let n = values.shape().num_elements();
    if n == 0 {
        return gpu::upload_u32(&values, &[0]);
    }
    let blocks = n.div_ceil(BLOCK);
    let bases = if blocks == 1 {
        gpu::upload_u32(&values, &[0])
    } else {
        let sums = gpu::new_tensor(&values, [blocks], DType::U32);
        let buffers = [Buffer::Read(&values), Buffer::Write(&sums)];
        gpu::launch(&shader::SCAN_SUMS, &shader::PLAIN, &buffers, &[n as u32], blocks as u32);
        exclusive_scan_cube(sums)
    };
    let out = gpu::new_tensor(&values, [n + 1], DType::U32);
    let buffers = [Buffer::Read(&values), Buffer::Read(&bases), Buffer::Write(&out)];
    gpu::launch(&shader::SCAN_BLOCKS, &shader::PLAIN, &buffers, &[n as u32], blocks as u32);
    out
}

/// [`exclusive_scan`] of a slice.
pub fn exclusive_scan_cpu(values: &[u32]) -> Vec<u32> {
    let mut sum = 0u32;
    let mut out = Vec::with_capacity(values.len() + 1);
    out.push(0);
    out.extend(values.iter().map(|value| {
        sum = sum.wrapping_add(*value);
        sum
    }));
    out
}
