//! From points to a feature vector a voxel: linear layer, ReLU and maximum over the points of each voxel in one operation, as
//! in PointPillars (Lang et al., arXiv 1812.05784, section 2.1) and VoxelNet (Zhou and Tuzel, arXiv 1711.06396).
//!
//! What the linear layer gives for every point is many times what the voxels keep of it. Here it is in registers, or in a
//! small buffer of a thread: the backward pass makes it again to find the points that gave the maxima.

mod cpu;
mod cube;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, AutodiffBackend, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, FloatDType, Int, IntDType, Tensor};

use super::element::{contiguous, tensor, values, with_element};
use crate::gpu::{MAX_VALUES, check_binding, check_dtype, is_cpu};
use crate::{Error, Result};

/// `y[m, c] = max over the points p of voxel m of max(0, sum over f of weight[c, f] features[p, f] + bias[c])`, `[M, C]` in the
/// type of the features; 0 for a voxel without points.
///
/// `features`: `[P, F]`, f32 or f16; `weight`: `[C, F]` and `bias`: `[C]`, f32 or f16, read as f32; sums are f32. Voxel `m` has
/// the points `order[starts[m]..starts[m + 1]]`, as [`Voxels`](super::voxelize::Voxels) has them: `starts`, `[M + 1]`, does not
/// fall, and `order` names every point at most once, by a number below P. A batch norm after the linear layer, with fixed
/// statistics, is a scale of the weights' rows and another bias: scale them before. NaN is larger than everything.
///
/// Differentiable in `features`, `weight` and `bias`, for which nothing is kept but the arguments. The gradient goes to the point
/// with the largest value, the first in order of equal ones, and to none where ReLU gives 0. Deterministic: gradients of weight
/// and bias are sums of partial sums over fixed ranges of voxels, in order.
///
/// # Errors
/// [`Error::Usage`] for shapes that do not fit together, no feature or channel, other dtypes, and on a GPU so many features and
/// channels that a thread would take too long for one point; [`Error::TooLarge`] when a tensor is larger than a kernel can bind.
pub fn voxel_encoder(
    features: Tensor<2>,
    order: Tensor<1, Int>,
    starts: Tensor<1, Int>,
    weight: Tensor<2>,
    bias: Tensor<1>,
) -> Result<Tensor<2>> {
    let ([points, width], [channels, columns]) = (features.dims(), weight.dims());
    let ([biases], [named], [ends]) = (bias.dims(), order.dims(), starts.dims());
    let (device, dtype) = (features.device(), features.dtype());
    let what = format!("the voxel encoder of features {points}x{width} in {dtype:?}");
    let refuse = |why: String| Err(Error::Usage(format!("{what}: {why}")));
    if width == 0 || channels == 0 || columns != width {
        return refuse(format!(
            "found weights {channels}x{columns} (channels, features), expected one a feature, at least 1 each"
        ));
    }
    if biases != channels {
        return refuse(format!("found {biases} biases, expected one for each of {channels} channels"));
    }
    if named > points || ends == 0 {
        return refuse(format!(
            "found {named} points in order and {ends} starts, expected each point once and one start more than voxels"
        ));
    }
    for (name, dtype) in [("features", dtype), ("weights", weight.dtype()), ("biases", bias.dtype())] {
        check_dtype(&device, &format_args!("{what}: the {name}"), dtype)?;
    }
    let sizes = Sizes { points, width, channels, voxels: ends - 1 };
    if !is_cpu(&device) && sizes.least_turns() > MOST_TURNS {
        return refuse(format!(
            "found {channels} channels, for which loops would take {} turns a thread, expected at most {MOST_TURNS}. Use \
             the device cpu",
            sizes.least_turns()
        ));
    }
    let tensors = [("the features", points, width, dtype.size()), ("the result", ends - 1, channels, 4)];
    for (name, rows, columns, size) in tensors {
        let count = (rows as u64).saturating_mul(columns as u64);
        check_binding(&device, &format_args!("{what}: {name}, {rows}x{columns}"), count.saturating_mul(size as u64))?;
        if !is_cpu(&device) && count > MAX_VALUES {
            let most = format!("{count} values, and kernels count to {MAX_VALUES}");
            return Err(Error::TooLarge(format!("{what}: {name}: {most}. Use a smaller batch or the device cpu.")));
        }
    }
    check_binding(&device, &format_args!("{what}: sums of gradients"), sizes.partial_bytes())?;
    let weight = if weight.dtype() == DType::F32 { weight } else { weight.cast(FloatDType::F32) };
    let bias = if bias.dtype() == DType::F32 { bias } else { bias.cast(FloatDType::F32) };
    Ok(Tensor::from_dispatch(Dispatch::voxel_encoder(
        features.into_dispatch(),
        order.cast(IntDType::U32).into_dispatch(),
        starts.cast(IntDType::U32).into_dispatch(),
        weight.into_dispatch(),
        bias.into_dispatch(),
    )))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    points: usize,
    /// Features of a point.
    width: usize,
    channels: usize,
    voxels: usize,
}

/// Voxels of a workgroup of the weights' gradient, at least; of more partial sums than bytes, fewer with more voxels each.
const GROUP_VOXELS: usize = 64;
const PARTIAL_BYTES: usize = 16 << 20;
/// Threads of a workgroup. In the weights' gradient they share its values.
const THREADS: usize = 256;
/// Turns of loops that a thread takes at most: software Vulkan (Mesa's llvmpipe) leaves loops after 65,535 turns, all loops of
/// a thread together, without a word.
const MOST_TURNS: usize = 1 << 15;

impl Sizes {
    /// `starts` is `[M + 1]`.
    fn of<B: Backend>(features: &FloatTensor<B>, starts: &IntTensor<B>, weight: &FloatTensor<B>) -> Self {
        let ([points, width], [channels, _]) = (features.shape().dims(), weight.shape().dims());
        Self { points, width, channels, voxels: starts.shape()[0] - 1 }
    }

    /// Voxels of a workgroup of the weights' gradient: by shape alone, so that sums are the same on every GPU.
    fn group_voxels(self) -> usize {
        let values = self.channels * (self.width + 1);
        let most_groups = (PARTIAL_BYTES / 4 / values).max(1);
        // A value is one turn, and as many again as there are voxels.
        let most_voxels = (MOST_TURNS / values.div_ceil(THREADS)).saturating_sub(1).max(1);
        self.voxels.div_ceil(most_groups).max(GROUP_VOXELS).min(most_voxels)
    }

    /// Turns that a thread of one of the kernels takes at least: of the result, four points, and the one that was best before;
    /// of the gradient of features, a search for the voxel and all channels; of that of weights, one voxel.
    fn least_turns(self) -> usize {
        let values = self.channels * (self.width + 1);
        (2 * self.width + 1).max(32 + self.channels).max(2 * values.div_ceil(THREADS))
    }

    fn groups(self) -> usize {
        self.voxels.div_ceil(self.group_voxels())
    }

    /// Bytes of the partial sums of the gradient of weights and biases.
    fn partial_bytes(self) -> u64 {
        4 * self.groups() as u64 * (self.channels * (self.width + 1)) as u64
    }
}

/// Arguments are checked by the public function: weights and biases are f32, integers u32.
#[backend_extension(Cube, Flex, Autodiff)]
trait EncoderOps: Backend {
    /// `[M, C]`.
    fn voxel_encoder(
        features: FloatTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// The gradients of features, weight and bias from that of the result, `[M, C]` in the type of the features.
    fn voxel_encoder_backward(
        features: FloatTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

impl EncoderOps for Flex {
    fn voxel_encoder(
        features: FloatTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let sizes = Sizes::of::<Self>(&features, &starts, &weight);
        let [features, weight, bias, order, starts] = [features, weight, bias, order, starts].map(contiguous);
        let (order, starts) = (order.storage(), starts.storage());
        let encoder = cpu::Encoder { weight: values(&weight), bias: values(&bias), order, starts, sizes };
        with_element!(features.dtype(), {
            tensor(encoder.encode(values::<T>(&features)), [sizes.voxels, sizes.channels])
        })
    }

    fn voxel_encoder_backward(
        features: FloatTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let sizes = Sizes::of::<Self>(&features, &starts, &weight);
        let Sizes { points, width, channels, .. } = sizes;
        let [features, weight, bias, order, starts, gradient] =
            [features, weight, bias, order, starts, gradient].map(contiguous);
        let (order, starts) = (order.storage(), starts.storage());
        let encoder = cpu::Encoder { weight: values(&weight), bias: values(&bias), order, starts, sizes };
        with_element!(features.dtype(), {
            let (by_features, by_weight, by_bias) = encoder.gradient(values::<T>(&features), values::<T>(&gradient));
            let by_features = tensor(by_features, [points, width]);
            (by_features, tensor(by_weight, [channels, width]), tensor(by_bias, [channels]))
        })
    }
}

impl<B: EncoderOps, C: CheckpointStrategy> EncoderOps for Autodiff<B, C> {
    fn voxel_encoder(
        features: FloatTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let parents = [features.node(), weight.node(), bias.node()];
        match EncoderBackward.prepare::<C>(parents).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let [features, weight, bias] = [features, weight, bias].map(FloatTensor::<Self>::into_primitive);
                let kept = ([features.clone(), weight.clone(), bias.clone()], [order.clone(), starts.clone()]);
                prepared.finish(kept, B::voxel_encoder(features, order, starts, weight, bias))
            }
            OpsKind::UnTracked(prepared) => {
                let [features, weight, bias] = [features, weight, bias].map(FloatTensor::<Self>::into_primitive);
                prepared.finish(B::voxel_encoder(features, order, starts, weight, bias))
            }
        }
    }

    /// Gradients are constants: second derivatives are not taken.
    fn voxel_encoder_backward(
        features: FloatTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [features, weight, bias, gradient] =
            [features, weight, bias, gradient].map(FloatTensor::<Self>::into_primitive);
        let (by_features, by_weight, by_bias) =
            B::voxel_encoder_backward(features, order, starts, weight, bias, gradient);
        (Self::from_inner(by_features), Self::from_inner(by_weight), Self::from_inner(by_bias))
    }
}

#[derive(Debug)]
struct EncoderBackward;

impl<B: EncoderOps> Backward<B, 3> for EncoderBackward {
    type State = ([FloatTensor<B>; 3], [IntTensor<B>; 2]);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let ([features, weight, bias], [order, starts]) = ops.state;
        let (by_features, by_weight, by_bias) =
            B::voxel_encoder_backward(features, order, starts, weight, bias, gradient);
        for (node, gradient) in ops.parents.into_iter().zip([by_features, by_weight, by_bias]) {
            if let Some(node) = node {
                gradients.register::<B>(node.id, gradient);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of the loops of `voxel_encoder_weights.wgsl`: a thread has every 256th value, and goes through all voxels of its
    /// group for each.
    #[test]
    fn no_thread_takes_more_turns_than_software_vulkan_allows() {
        for (channels, width, voxels) in [(64, 10, 1 << 21), (1024, 16, 100_000), (4096, 64, 1 << 20), (8192, 511, 9)] {
            let sizes = Sizes { points: voxels, width, channels, voxels };
            assert!(sizes.least_turns() <= MOST_TURNS, "{sizes:?}");
            let turns = (channels * (width + 1)).div_ceil(256) * (sizes.group_voxels() + 1);
            assert!(turns <= MOST_TURNS, "{sizes:?}: {turns}");
            assert!(sizes.groups() * sizes.group_voxels() >= voxels);
        }
        // One voxel: 2 * 8192 * 513 / 256 turns.
        let sizes = Sizes { points: 1, width: 512, channels: 8192, voxels: 1 };
        assert_eq!(sizes.least_turns(), 32_832);
        assert!(sizes.least_turns() > MOST_TURNS);
    }
}
