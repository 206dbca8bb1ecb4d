//! The end of an occupancy network in one operation: a classifier over channels and the cross-entropy of every voxel.
//!
//! Logits, K a voxel, are most of what a network keeps where it has few channels. Here they are in registers, or in a small
//! buffer of a thread, and nowhere else: the backward pass makes them again from the features, and writes the features'
//! gradient over them where nobody else holds them.

mod cpu;
mod cube;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, AutodiffBackend, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, FloatDType, Int, IntDType, Tensor};

use super::cross_entropy::MAX_CLASSES;
use super::element::{contiguous, tensor, values, with_element};
use crate::gpu::{MAX_VALUES, check_binding, check_dtype, is_cpu};
use crate::{Error, Result};

/// `w_y (1 - p_y)^gamma (-log p_y)` of every voxel with label `y`, `p` the softmax over the classes of its logits
/// `weight x + bias`: `[B, V]` in f32. What [`cross_entropy`](super::cross_entropy) gives for the logits of a convolution
/// with a kernel of one voxel, without the logits.
///
/// `x`: `[B, C, V]`, f32 or f16; `weight`: `[K, C]` and `bias`: `[K]`, f32 or f16, read as f32; `labels`: `[B, V]`, where K or
/// more counts for nothing; `class_weights`: `[K]`. Arithmetic is f32, with the largest logit taken off first. Differentiable
/// in `x`, `weight` and `bias`. For the backward pass nothing is kept but the arguments; the gradient takes the place of `x`
/// when no other tensor shares it and, on a GPU, K is 32 at most. Deterministic: the gradients of weight and bias are sums of
/// partial sums over fixed ranges of voxels, in order.
///
/// # Errors
/// [`Error::Usage`] for shapes that do not fit together, no channel, other dtypes, and on a GPU so many channels that a thread
/// would take too long for one tile of voxels; [`Error::TooLarge`] when a tensor is larger than a kernel can bind.
pub fn occupancy_head(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Tensor<1>,
    labels: Tensor<2, Int>,
    class_weights: Tensor<1>,
    gamma: f32,
) -> Result<Tensor<2>> {
    let ([batch, channels, voxels], [classes, width]) = (x.dims(), weight.dims());
    let (device, dtype) = (x.device(), x.dtype());
    let what = format!(
        "the occupancy head of features {batch}x{channels}x{voxels} (batch, channels, voxels) in {dtype:?} to {classes} \
         classes"
    );
    let refuse = |why: String| Err(Error::Usage(format!("{what}: {why}")));
    if channels == 0 || width != channels {
        return refuse(format!(
            "found weights {classes}x{width} (classes, channels), expected one a channel, at least 1"
        ));
    }
    let [members, length] = labels.dims();
    if [members, length] != [batch, voxels] {
        return refuse(format!("found labels {members}x{length}, expected one a voxel"));
    }
    let ([biases], [weights]) = (bias.dims(), class_weights.dims());
    if [biases, weights] != [classes; 2] || !(1..=MAX_CLASSES).contains(&classes) {
        return refuse(format!(
            "found {biases} biases and {weights} class weights, expected one for each of 1 to {MAX_CLASSES} classes"
        ));
    }
    if class_weights.dtype() != DType::F32 {
        return refuse(format!("found class weights in {:?}, expected F32", class_weights.dtype()));
    }
    for (name, dtype) in [("features", dtype), ("weights", weight.dtype()), ("biases", bias.dtype())] {
        check_dtype(&device, &format_args!("{what}: the {name}"), dtype)?;
    }
    let count = [channels, voxels].iter().fold(batch as u64, |all, n| all.saturating_mul(*n as u64));
    check_binding(&device, &what, count.saturating_mul(dtype.size() as u64))?;
    let sizes = Sizes { batch, channels, voxels, classes };
    if !is_cpu(&device) && sizes.tile_turns() > 2 * MOST_TURNS {
        return refuse(format!(
            "found {channels} channels, for which loops would take {} turns a thread, expected at most {}. Use the device cpu",
            sizes.tile_turns(),
            2 * MOST_TURNS
        ));
    }
    check_binding(&device, &format_args!("{what}: sums of gradients"), sizes.partial_bytes())?;
    if count > MAX_VALUES {
        return Err(Error::TooLarge(format!("{what}: {count} values, and kernels count to {MAX_VALUES}")));
    }
    let weight = if weight.dtype() == DType::F32 { weight } else { weight.cast(FloatDType::F32) };
    let bias = if bias.dtype() == DType::F32 { bias } else { bias.cast(FloatDType::F32) };
    Ok(Tensor::from_dispatch(Dispatch::occupancy_head(
        x.into_dispatch(),
        weight.into_dispatch(),
        bias.into_dispatch(),
        labels.cast(IntDType::U32).into_dispatch(),
        class_weights.into_dispatch(),
        gamma,
    )))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    batch: usize,
    channels: usize,
    voxels: usize,
    classes: usize,
}

/// Voxels that a workgroup of the gradient takes at once.
const TILE_VOXELS: usize = 64;
/// Tiles of a workgroup at least; groups of a launch at most, and bytes of their partial sums at most, where more tiles a
/// group make them fewer.
const GROUP_TILES: usize = 4;
const MOST_GROUPS: usize = 1024;
const PARTIAL_BYTES: usize = 16 << 20;
/// Turns of loops that a thread of the gradient takes at most: software Vulkan (Mesa's llvmpipe) leaves loops after 65,535
/// turns, all loops of a thread together, without a word.
const MOST_TURNS: usize = 1 << 15;

impl Sizes {
    fn of<B: Backend>(x: &FloatTensor<B>, weight: &FloatTensor<B>) -> Self {
        let ([batch, channels, voxels], [classes, _]) = (x.shape().dims(), weight.shape().dims());
        Self { batch, channels, voxels, classes }
    }

    fn all_voxels(self) -> usize {
        self.batch * self.voxels
    }

    /// Tiles of voxels of a workgroup of the gradient: by shape alone, so that sums are the same on every GPU.
    fn group_tiles(self) -> usize {
        let tiles = self.all_voxels().div_ceil(TILE_VOXELS);
        let values = self.classes * (self.channels + 1);
        let most_groups = (PARTIAL_BYTES / 4 / values).clamp(1, MOST_GROUPS);
        tiles.div_ceil(most_groups).max(GROUP_TILES).min((MOST_TURNS / self.tile_turns()).max(1))
    }

    /// Turns that a thread of the gradient takes at most for one tile.
    fn tile_turns(self) -> usize {
        // Of a tile and eight classes at least: logits once or twice, sixteen channels at a time of features and gradients.
        let passes = self.classes.div_ceil(8);
        passes * (4 * self.channels + (self.channels / 16 + 1) * (2 * TILE_VOXELS + 32))
    }

    fn groups(self) -> usize {
        self.all_voxels().div_ceil(TILE_VOXELS).div_ceil(self.group_tiles())
    }

    /// Bytes of the partial sums of the gradient of weights and biases.
    fn partial_bytes(self) -> u64 {
        4 * self.groups() as u64 * (self.classes * (self.channels + 1)) as u64
    }
}

/// Arguments are checked by the public function: weights and biases are f32.
#[backend_extension(Cube, Flex, Autodiff)]
trait HeadOps: Backend {
    /// `[B, V]`.
    fn occupancy_head(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gamma: f32,
    ) -> FloatTensor<Self>;

    /// The gradients of `x`, weight and bias from that of the loss, `[B, V]`.
    fn occupancy_head_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        gamma: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

impl HeadOps for Flex {
    fn occupancy_head(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gamma: f32,
    ) -> FloatTensor<Self> {
        let sizes = Sizes::of::<Self>(&x, &weight);
        let [x, weight, bias, class_weights] = [x, weight, bias, class_weights].map(contiguous);
        let labels = labels.to_contiguous();
        let (weight, bias, class_weights) = (values(&weight), values(&bias), values(&class_weights));
        let head = cpu::Head { weight, bias, class_weights, gamma, sizes };
        let loss = with_element!(x.dtype(), head.loss(values::<T>(&x), labels.storage()));
        tensor(loss, [sizes.batch, sizes.voxels])
    }

    fn occupancy_head_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        gamma: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let sizes = Sizes::of::<Self>(&x, &weight);
        let [mut x, weight, bias, class_weights, gradient] = [x, weight, bias, class_weights, gradient].map(contiguous);
        let labels = labels.to_contiguous();
        let (weight, bias, class_weights) = (values(&weight), values(&bias), values(&class_weights));
        let head = cpu::Head { weight, bias, class_weights, gamma, sizes };
        // A copy only when the features are shared.
        let (by_weight, by_bias) =
            with_element!(x.dtype(), head.gradient(x.storage_mut::<T>(), labels.storage(), values(&gradient)));
        (x, tensor(by_weight, [sizes.classes, sizes.channels]), tensor(by_bias, [sizes.classes]))
    }
}

impl<B: HeadOps, C: CheckpointStrategy> HeadOps for Autodiff<B, C> {
    fn occupancy_head(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gamma: f32,
    ) -> FloatTensor<Self> {
        let class_weights = class_weights.into_primitive();
        let parents = [x.node(), weight.node(), bias.node()];
        match HeadBackward.prepare::<C>(parents).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let [x, weight, bias] = [x, weight, bias].map(FloatTensor::<Self>::into_primitive);
                let (kept, known) = ([x.clone(), weight.clone(), bias.clone()], class_weights.clone());
                let loss = B::occupancy_head(x, weight, bias, labels.clone(), class_weights, gamma);
                prepared.finish((kept, labels, known, gamma), loss)
            }
            OpsKind::UnTracked(prepared) => {
                let [x, weight, bias] = [x, weight, bias].map(FloatTensor::<Self>::into_primitive);
                prepared.finish(B::occupancy_head(x, weight, bias, labels, class_weights, gamma))
            }
        }
    }

    /// Gradients are constants: second derivatives are not taken.
    fn occupancy_head_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        gamma: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [x, weight, bias, class_weights, gradient] =
            [x, weight, bias, class_weights, gradient].map(FloatTensor::<Self>::into_primitive);
        let (by_x, by_weight, by_bias) =
            B::occupancy_head_backward(x, weight, bias, labels, class_weights, gradient, gamma);
        (Self::from_inner(by_x), Self::from_inner(by_weight), Self::from_inner(by_bias))
    }
}

#[derive(Debug)]
struct HeadBackward;

impl<B: HeadOps> Backward<B, 3> for HeadBackward {
    type State = ([FloatTensor<B>; 3], IntTensor<B>, FloatTensor<B>, f32);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let ([x, weight, bias], labels, class_weights, gamma) = ops.state;
        let (by_x, by_weight, by_bias) =
            B::occupancy_head_backward(x, weight, bias, labels, class_weights, gradient, gamma);
        for (node, gradient) in ops.parents.into_iter().zip([by_x, by_weight, by_bias]) {
            if let Some(node) = node {
                gradients.register::<B>(node.id, gradient);
            }
        }
    }
}
