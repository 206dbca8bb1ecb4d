//! Max pooling over volumes and, with sides and windows of 1 voxel along an axis, over planes and rows.

mod cpu;
mod cube;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, AutodiffBackend, Backend, Dispatch, backend_extension};
use burn::tensor::Tensor;

use crate::gpu::{check_binding, check_dtype};
use crate::{Error, Result};

/// Voxels of a window at most: the place of its largest is kept in 8 bits.
const MAX_TAPS: usize = 256;
/// Voxels along a side at most: the kernels divide places along a side in f32, exactly up to here.
const MAX_SIDE: usize = 1 << 20;

/// Largest value of each window: `[B, C, D, H, W]` to `[B, C, D', H', W']`, f32 or f16, `D' = (D + 2 padding - window) /
/// stride + 1`, rounded down. Arguments are along D, H, W.
///
/// What lies outside counts as minus infinity. Of equal values the first in row-major order is taken; NaN is larger than
/// everything, the last of several, as in PyTorch. Keeps one byte an output for backward, neither input nor result;
/// there every input sums what its windows hand it, in order, also where windows overlap.
///
/// # Errors
/// [`Error::Usage`] for windows and strides of 0, sides of more than 2^20 voxels, windows of more than 256 voxels or larger than the padded input, a
/// padding of more than half the window, an input without voxels, types other than f32 and f16; [`Error::TooLarge`] when
/// the result does not fit on the device.
pub fn max_pool(x: Tensor<5>, window: [usize; 3], stride: [usize; 3], padding: [usize; 3]) -> Result<Tensor<5>> {
    let [batch, channels, sides_in @ ..] = x.dims();
    let pool = Pool::new(sides_in, window, stride, padding)?;
    check_dtype(&x.device(), &format!("max_pool: the input {:?}", x.dims()), x.dtype())?;
    let [d, h, w] = pool.sides_out;
    let voxels = [channels, d, h, w].iter().fold(batch as u64, |n, side| n.saturating_mul(*side as u64));
    let what = format!("max_pool: the result {batch}x{channels}x{d}x{h}x{w}");
    check_binding(&x.device(), &what, voxels.saturating_mul(x.dtype().size() as u64))?;
    Ok(Tensor::from_dispatch(Dispatch::max_pool(x.into_dispatch(), pool).0))
}

/// Sides and steps of a pooling, along D, H, W.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    sides_in: [usize; 3],
    sides_out: [usize; 3],
    window: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
}

impl Pool {
    fn new(sides_in: [usize; 3], window: [usize; 3], stride: [usize; 3], padding: [usize; 3]) -> Result<Self> {
        let refuse = |what: String| {
            Err(Error::Usage(format!(
                "max_pool of sides {sides_in:?}, window {window:?}, stride {stride:?}, padding {padding:?}: {what}"
            )))
        };
        for (name, sides) in [("input", sides_in), ("window", window), ("stride", stride)] {
            if sides.contains(&0) {
                return refuse(format!("the {name} has a side of 0, expected 1 at least"));
            }
        }
        let taps = window.iter().fold(1usize, |taps, side| taps.saturating_mul(*side));
        if taps > MAX_TAPS {
            return refuse(format!("the window has {taps} voxels, expected at most {MAX_TAPS}"));
        }
        if sides_in.into_iter().any(|side| side > MAX_SIDE) {
            return refuse(format!("the input has a side above {MAX_SIDE}"));
        }
        // Longer steps all leave one window.
        let stride = stride.map(|stride| stride.min(2 * MAX_SIDE));
        let mut sides_out = [0; 3];
        for axis in 0..3 {
            if padding[axis] > window[axis] / 2 {
                return refuse("the padding is more than half the window, which could then lie outside".into());
            }
            let padded = sides_in[axis].saturating_add(2 * padding[axis]);
            let Some(steps) = padded.checked_sub(window[axis]) else {
                return refuse(format!(
                    "the window is larger than the padded input, {padded} along axis {axis} of D, H, W"
                ));
            };
            sides_out[axis] = steps / stride[axis] + 1;
        }
        Ok(Self { sides_in, sides_out, window, stride, padding })
    }

    fn voxels_in(&self) -> usize {
        self.sides_in.iter().product()
    }

    fn voxels_out(&self) -> usize {
        self.sides_out.iter().product()
    }
}

#[backend_extension(Cube, Flex, Autodiff)]
pub trait MaxPoolOps: Backend {
    /// The pooled tensor, and for each of its values the place of the largest in its window, in row-major order: 8 bits
    /// each, four in a word of `u32` `[ceil(n / 4)]` on a GPU, `u8` `[n]` on the CPU.
    fn max_pool(x: FloatTensor<Self>, pool: Pool) -> (FloatTensor<Self>, IntTensor<Self>);

    /// Gradient of the input.
    fn max_pool_backward(gradient: FloatTensor<Self>, taps: IntTensor<Self>, pool: Pool) -> FloatTensor<Self>;
}

impl<B: MaxPoolOps, C: CheckpointStrategy> MaxPoolOps for Autodiff<B, C> {
    fn max_pool(x: FloatTensor<Self>, pool: Pool) -> (FloatTensor<Self>, IntTensor<Self>) {
        match MaxPoolBackward.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (y, taps) = B::max_pool(x.into_primitive(), pool);
                (prepared.finish((taps.clone(), pool), y), taps)
            }
            OpsKind::UnTracked(prepared) => {
                let (y, taps) = B::max_pool(x.into_primitive(), pool);
                (prepared.finish(y), taps)
            }
        }
    }

    /// A constant: second derivatives are not taken.
    fn max_pool_backward(gradient: FloatTensor<Self>, taps: IntTensor<Self>, pool: Pool) -> FloatTensor<Self> {
        Self::from_inner(B::max_pool_backward(gradient.into_primitive(), taps, pool))
    }
}

#[derive(Debug)]
struct MaxPoolBackward;

impl<B: MaxPoolOps> Backward<B, 1> for MaxPoolBackward {
    type State = (IntTensor<B>, Pool);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [node] = ops.parents;
        let gradient = gradients.consume::<B>(&ops.node);
        let (taps, pool) = ops.state;
        if let Some(node) = node {
            gradients.register::<B>(node.id, B::max_pool_backward(gradient, taps, pool));
        }
    }
}
