//! Max pooling on a GPU: `shaders/max_pool.wgsl` and `max_pool_backward.wgsl`.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::into_contiguous;
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::DType;

use super::{MaxPoolOps, Pool};
use crate::gpu::shader::{self, Shader};
use crate::gpu::{Buffer, GroupCost, launch_split, new_tensor};
use crate::ops::channels::EACH_VALUE;

const THREADS: usize = 256;
/// Outputs of a workgroup of `max_pool.wgsl`.
const GROUP_OUTPUTS: usize = 4 * THREADS;

impl MaxPoolOps for Cube {
    fn max_pool(x: FloatTensor<Self>, pool: Pool) -> (FloatTensor<Self>, IntTensor<Self>) {
        let x = into_contiguous(x);
        let [batch, channels, ..]: [usize; 5] = x.shape().dims();
        let [d, h, w] = pool.sides_out;
        let n = batch * channels * pool.voxels_out();
        let y = new_tensor(&x, [batch, channels, d, h, w], x.dtype);
        let taps = new_tensor(&x, [n.div_ceil(4)], DType::U32);
        let buffers = [Buffer::Read(&x), Buffer::Write(&y), Buffer::Write(&taps)];
        let window: usize = pool.window.iter().product();
        run(&shader::MAX_POOL, &buffers, pool, n, GROUP_OUTPUTS, window * x.dtype.size());
        (y, taps)
    }

    fn max_pool_backward(gradient: FloatTensor<Self>, taps: IntTensor<Self>, pool: Pool) -> FloatTensor<Self> {
        let [gradient, taps] = [gradient, taps].map(into_contiguous);
        let [batch, channels, ..]: [usize; 5] = gradient.shape().dims();
        let [d, h, w] = pool.sides_in;
        let out = new_tensor(&gradient, [batch, channels, d, h, w], gradient.dtype);
        let n = batch * channels * pool.voxels_in();
        let buffers = [Buffer::Read(&gradient), Buffer::Read(&taps), Buffer::Write(&out)];
        // Of each axis, the windows that overlap.
        let windows: usize = (0..3).map(|axis| pool.window[axis].div_ceil(pool.stride[axis])).product();
        run(&shader::MAX_POOL_BACKWARD, &buffers, pool, n, EACH_VALUE, windows * (4 + gradient.dtype.size()));
        out
    }
}

/// Makes `n` values, `group_values` a workgroup, each from `bytes`.
fn run(shader: &'static Shader, buffers: &[Buffer], pool: Pool, n: usize, group_values: usize, bytes: usize) {
    if n == 0 {
        return;
    }
    let Pool { sides_in, sides_out, window, stride, padding } = pool;
    let mut params = vec![n as u32];
    params.extend([sides_in, sides_out, window, stride, padding].as_flattened().iter().map(|number| *number as u32));
    // Some ten operations for each value that is read and compared.
    let cost = GroupCost { flops: (10 * group_values * bytes) as u64, bytes: (group_values * (bytes + 8)) as u64 };
    let permutation = shader::element(buffers[0].tensor().dtype);
    launch_split(shader, permutation, buffers, &params, n.div_ceil(group_values) as u32, cost.max_groups());
}
