//! Cross-entropy of every voxel straight from the logits, and its focal form.
//!
//! A softmax and its logarithm would each be a tensor as large as the logits; here neither is stored. The backward pass
//! takes the softmax again and writes the gradient over the logits where nobody else holds them.

pub(super) mod cpu;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use burn::backend::{Autodiff, AutodiffBackend, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, Int, IntDType, Tensor};

use super::element::{contiguous, tensor, values, with_element};
use crate::gpu::{Buffer, check_binding, check_dtype, launch, new_tensor, shader};
use crate::{Error, Result};

/// Largest number of classes: labels are bytes where they come from.
pub(crate) const MAX_CLASSES: usize = 256;

/// `w_y (1 - p_y)^gamma (-log p_y)` of every voxel with label `y`, `p` the softmax of its logits over the classes: `[B, V]`
/// in f32. With `gamma` 0 this is class-weighted cross-entropy, with more the focal loss (Lin et al., arXiv 1708.02002) of
/// a softmax.
///
/// `logits`: `[B, C, V]`, f32 or f16; `labels`: `[B, V]`, where C or more counts for nothing; `class_weights`: `[C]`.
/// Arithmetic is f32, with the largest logit taken off first. Differentiable in the logits. For the backward pass nothing
/// is kept but the arguments, and the gradient takes the place of the logits when no other tensor shares them.
///
/// # Errors
/// [`Error::Usage`] for shapes that do not fit together and other dtypes, [`Error::TooLarge`] when the logits are larger
/// than a kernel can bind.
pub fn cross_entropy(
    logits: Tensor<3>,
    labels: Tensor<2, Int>,
    class_weights: Tensor<1>,
    gamma: f32,
) -> Result<Tensor<2>> {
    let [batch, classes, voxels] = logits.dims();
    let dtype = logits.dtype();
    let what = format!("cross-entropy of logits {batch}x{classes}x{voxels} (batch, classes, voxels) in {dtype:?}");
    let refuse = |why: String| Err(Error::Usage(format!("{what}: {why}")));
    let ([members, length], [weights]) = (labels.dims(), class_weights.dims());
    if [members, length] != [batch, voxels] {
        return refuse(format!("found labels {members}x{length}, expected one a voxel"));
    }
    if weights != classes || !(1..=MAX_CLASSES).contains(&classes) {
        return refuse(format!("found {weights} class weights, expected one for each of 1 to {MAX_CLASSES} classes"));
    }
    if class_weights.dtype() != DType::F32 {
        return refuse(format!("found class weights in {:?}, expected F32", class_weights.dtype()));
    }
    check_dtype(&logits.device(), &what, dtype)?;
    let bytes = [classes, voxels, dtype.size()].iter().fold(batch as u64, |all, n| all.saturating_mul(*n as u64));
    check_binding(&logits.device(), &what, bytes)?;
    let labels = labels.cast(IntDType::U32).into_dispatch();
    let (logits, class_weights) = (logits.into_dispatch(), class_weights.into_dispatch());
    Ok(Tensor::from_dispatch(Dispatch::cross_entropy(logits, labels, class_weights, gamma)))
}

/// Arguments are checked by the public function.
#[backend_extension(Cube, Flex, Autodiff)]
trait CrossEntropyOps: Backend {
    /// `[B, V]`.
    fn cross_entropy(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gamma: f32,
    ) -> FloatTensor<Self>;

    /// `[B, C, V]` from the gradient `[B, V]`.
    fn cross_entropy_backward(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        gamma: f32,
    ) -> FloatTensor<Self>;
}

/// The launch with one thread a voxel, unless there is none.
fn launch_over(shader: &'static shader::Shader, logits: &CubeTensor, buffers: &[Buffer], gamma: f32) {
    let [batch, classes, voxels] = logits.shape().dims();
    let params = [(batch * voxels) as u32, voxels as u32, classes as u32, gamma.to_bits()];
    let groups = (batch * voxels).div_ceil(shader.workgroup_size as usize) as u32;
    launch(shader, shader::element(logits.dtype), buffers, &params, groups);
}

impl CrossEntropyOps for Cube {
    fn cross_entropy(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gamma: f32,
    ) -> FloatTensor<Self> {
        let [logits, class_weights] = [logits, class_weights].map(into_contiguous);
        let labels = into_contiguous(labels);
        let [batch, _, voxels] = logits.shape().dims();
        let loss = new_tensor(&logits, [batch, voxels], DType::F32);
        let buffers =
            [Buffer::Read(&logits), Buffer::Read(&labels), Buffer::Read(&class_weights), Buffer::Write(&loss)];
        launch_over(&shader::CROSS_ENTROPY, &logits, &buffers, gamma);
        loss
    }

    fn cross_entropy_backward(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        gamma: f32,
    ) -> FloatTensor<Self> {
        let [logits, class_weights, gradient] = [logits, class_weights, gradient].map(into_contiguous);
        let labels = into_contiguous(labels);
        let logits = if logits.can_mut() { logits } else { logits.copy() };
        let buffers =
            [Buffer::Update(&logits), Buffer::Read(&labels), Buffer::Read(&class_weights), Buffer::Read(&gradient)];
        launch_over(&shader::CROSS_ENTROPY_GRADIENT, &logits, &buffers, gamma);
        logits
    }
}

impl CrossEntropyOps for Flex {
    fn cross_entropy(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gamma: f32,
    ) -> FloatTensor<Self> {
        let [logits, class_weights] = [logits, class_weights].map(|tensor| tensor.to_contiguous());
        let labels = labels.to_contiguous();
        let [batch, _, voxels] = logits.shape().dims();
        let (labels, weights) = (labels.storage(), values(&class_weights));
        let loss = with_element!(logits.dtype(), cpu::loss(values::<T>(&logits), labels, weights, gamma, voxels));
        tensor(loss, [batch, voxels])
    }

    fn cross_entropy_backward(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        gamma: f32,
    ) -> FloatTensor<Self> {
        let mut logits = contiguous(logits);
        let [class_weights, gradient] = [class_weights, gradient].map(|tensor| tensor.to_contiguous());
        let labels = labels.to_contiguous();
        let [.., voxels] = logits.shape().dims::<3>();
        let (labels, weights, gradient) = (labels.storage(), values(&class_weights), values(&gradient));
        // A copy only when the logits are shared.
        with_element!(logits.dtype(), {
            cpu::gradient(logits.storage_mut::<T>(), labels, weights, gradient, gamma, voxels);
        });
        logits
    }
}

impl<B: CrossEntropyOps, C: CheckpointStrategy> CrossEntropyOps for Autodiff<B, C> {
    fn cross_entropy(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gamma: f32,
    ) -> FloatTensor<Self> {
        let class_weights = class_weights.into_primitive();
        match CrossEntropyBackward.prepare::<C>([logits.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let logits = logits.into_primitive();
                let loss = B::cross_entropy(logits.clone(), labels.clone(), class_weights.clone(), gamma);
                prepared.finish((logits, labels, class_weights, gamma), loss)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(B::cross_entropy(logits.into_primitive(), labels, class_weights, gamma))
            }
        }
    }

    /// The gradient is a constant: second derivatives are not taken.
    fn cross_entropy_backward(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        gamma: f32,
    ) -> FloatTensor<Self> {
        let (logits, class_weights) = (logits.into_primitive(), class_weights.into_primitive());
        let gradient = gradient.into_primitive();
        Self::from_inner(B::cross_entropy_backward(logits, labels, class_weights, gradient, gamma))
    }
}

#[derive(Debug)]
struct CrossEntropyBackward;

impl<B: CrossEntropyOps> Backward<B, 1> for CrossEntropyBackward {
    type State = (FloatTensor<B>, IntTensor<B>, FloatTensor<B>, f32);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [node] = ops.parents;
        let gradient = gradients.consume::<B>(&ops.node);
        let (logits, labels, class_weights, gamma) = ops.state;
        if let Some(node) = node {
            let gradient = B::cross_entropy_backward(logits, labels, class_weights, gradient, gamma);
            gradients.register::<B>(node.id, gradient);
        }
    }
}
