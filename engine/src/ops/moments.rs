//! Mean and variance of every channel: the statistics of batch normalisation.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::wgpu::into_contiguous;
use burn::backend::{Autodiff, AutodiffBackend, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::Tensor;

use super::channels::{EACH_VALUE, Finish, Moments, Sizes, change, check, primitive, reduce_cube, visit};
use super::element::{tensor, values, with_element};
use crate::gpu::{self, Buffer, shader};
use crate::{Error, Result};

/// Mean and biased variance of each channel over batch and length: `[B, C, L]`, f32 or f16, to f32 `[2, C]`.
///
/// No large mean drowns a small variance: parts are summed as distances from one of their values and combined by the
/// update of Chan, Golub and LeVeque, in f32 on a GPU and in f64 on the CPU. Differentiable; keeps `x`.
///
/// # Errors
/// [`Error::Usage`] without any value, and for types other than f32 and f16; [`Error::TooLarge`] when partial results do
/// not fit on the device.
pub fn channel_moments(x: Tensor<3>) -> Result<Tensor<2>> {
    let [batch, channels, length] = x.dims();
    let sizes = Sizes { batch, channels, length };
    check("channel_moments", &x, sizes)?;
    if sizes.values() == 0 || channels == 0 {
        return Err(Error::Usage(format!(
            "channel_moments: the input {:?} has no values, expected one at least",
            x.dims()
        )));
    }
    Ok(Tensor::from_dispatch(Dispatch::channel_moments(x.into_dispatch())))
}

/// `x` is `[B, C, L]` in f32 or f16, moments are `[2, C]` in f32.
#[backend_extension(Cube, Flex, Autodiff)]
pub trait MomentsOps: Backend {
    fn channel_moments(x: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Gradient by `x`, from that of the moments.
    fn channel_moments_backward(
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

impl MomentsOps for Cube {
    fn channel_moments(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let x = into_contiguous(x);
        reduce_cube(&shader::CHANNEL_MOMENTS, Sizes::of(&x.shape()), &[Buffer::Read(&x)], &[], Finish::Moments)
    }

    fn channel_moments_backward(
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let [x, moments, gradient] = [x, moments, gradient].map(into_contiguous);
        let sizes = Sizes::of(&x.shape());
        let (n, out) = (x.shape().num_elements(), gpu::in_place_of(&x));
        let buffers = [Buffer::Read(&x), Buffer::Read(&moments), Buffer::Read(&gradient), Buffer::Write(&out)];
        let inverse = 1.0 / sizes.values() as f32;
        let params = [n as u32, sizes.channels as u32, sizes.length as u32, inverse.to_bits()];
        let groups = n.div_ceil(EACH_VALUE) as u32;
        gpu::launch(&shader::CHANNEL_MOMENTS_BACKWARD, shader::element(x.dtype), &buffers, &params, groups);
        out
    }
}

impl MomentsOps for Flex {
    fn channel_moments(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let sizes = Sizes::of(&x.shape());
        let moments: Vec<Moments> = with_element!(x.dtype(), {
            let x = x.to_contiguous();
            visit(sizes, [values::<T>(&x)], |_, [block]| Moments::of(block))
        });
        let means = moments.iter().map(|moments| moments.mean as f32);
        let variances = moments.iter().map(|moments| moments.variance() as f32);
        tensor(means.chain(variances).collect(), [2, sizes.channels])
    }

    fn channel_moments_backward(
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let [moments, gradient] = [moments, gradient].map(|tensor| tensor.to_contiguous());
        let sizes = Sizes::of(&x.shape());
        let (means, (by_mean, by_variance)) =
            (values::<f32>(&moments), values::<f32>(&gradient).split_at(sizes.channels));
        let inverse = 1.0 / sizes.values() as f32;
        with_element!(x.dtype(), {
            let (out, _) = change::<T, _, 0>(sizes, x, [], |channel, [], own| {
                let (mean, constant, slope) =
                    (means[channel], by_mean[channel] * inverse, 2.0 * by_variance[channel] * inverse);
                for own in own.iter_mut() {
                    *own = constant + slope * (*own - mean);
                }
            });
            out
        })
    }
}

impl<B: MomentsOps, C: CheckpointStrategy> MomentsOps for Autodiff<B, C> {
    fn channel_moments(x: FloatTensor<Self>) -> FloatTensor<Self> {
        match MomentsBackward.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let x = x.into_primitive();
                let moments = B::channel_moments(x.clone());
                prepared.finish((x, moments.clone()), moments)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(B::channel_moments(x.into_primitive())),
        }
    }

    /// A constant: second derivatives are not taken.
    fn channel_moments_backward(
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let [x, moments, gradient] = [x, moments, gradient].map(primitive::<B, C>);
        Self::from_inner(B::channel_moments_backward(x, moments, gradient))
    }
}

#[derive(Debug)]
struct MomentsBackward;

impl<B: MomentsOps> Backward<B, 1> for MomentsBackward {
    type State = (FloatTensor<B>, FloatTensor<B>);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [node] = ops.parents;
        let gradient = gradients.consume::<B>(&ops.node);
        let (x, moments) = ops.state;
        if let Some(node) = node {
            gradients.register::<B>(node.id, B::channel_moments_backward(x, moments, gradient));
        }
    }
}
