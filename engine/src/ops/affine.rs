//! Scale and shift of every channel: what is left of batch normalisation once its statistics are known.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::into_contiguous;
use burn::backend::{Autodiff, AutodiffBackend, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{FloatDType, Slice, Tensor};

use super::Activation;
use super::activation::{ReluOps, relu_value};
use super::channels::{
    EACH_VALUE, Finish, Sizes, change, check, check_like, check_vector, lane_sums, primitive, reduce_cube,
};
use super::element::{Element, tensor, values, with_element};
use crate::Result;
use crate::gpu::{self, Buffer, shader};

/// `act(x * scale[c] + shift[c] + residual)` of `x`, `[B, C, L]` in f32 or f16. Differentiable in everything.
///
/// `scale` and `shift`, `[C]`, are taken in f32; `residual` is like `x`. Computed in f32, rounded once. Keeps `x` for
/// backward, not the result; with a residual and ReLU one bit a value as well.
///
/// # Errors
/// [`Error::Usage`](crate::Error::Usage) when shapes or types do not fit,
/// [`Error::TooLarge`](crate::Error::TooLarge) when partial sums do not fit on the device.
pub fn affine(
    x: Tensor<3>,
    scale: Tensor<1>,
    shift: Tensor<1>,
    residual: Option<Tensor<3>>,
    activation: Activation,
) -> Result<Tensor<3>> {
    let [batch, channels, length] = x.dims();
    check("affine", &x, Sizes { batch, channels, length })?;
    check_vector("affine", "scale", &scale, channels)?;
    check_vector("affine", "shift", &shift, channels)?;
    let [scale, shift] = [scale, shift].map(|vector| vector.cast(FloatDType::F32).into_dispatch());
    let out = match residual {
        None => Dispatch::affine(x.into_dispatch(), scale, shift, activation),
        Some(residual) => {
            check_like("affine", "residual", &residual, &x)?;
            Dispatch::affine_add(x.into_dispatch(), scale, shift, residual.into_dispatch(), activation)
        }
    };
    Ok(Tensor::from_dispatch(out))
}

/// `x`, `residual` and gradients are `[B, C, L]` in f32 or f16, vectors `[C]` in f32.
#[backend_extension(Cube, Flex, Autodiff)]
pub trait AffineOps: Backend + ReluOps {
    fn affine(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self>;

    fn affine_add(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self>;

    /// Gradients of `act(x * scale + shift)` by `x` (like `x`), `scale` and `shift` (`[C]` in f32), from that of the
    /// result.
    fn affine_backward(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        activation: Activation,
        gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

impl AffineOps for Cube {
    fn affine(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        affine_cube(x, scale, shift, None, activation)
    }

    fn affine_add(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        affine_cube(x, scale, shift, Some(residual), activation)
    }

    fn affine_backward(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        activation: Activation,
        gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [x, scale, shift, gradient] = [x, scale, shift, gradient].map(into_contiguous);
        let sizes = Sizes::of(&x.shape());
        let out = gpu::in_place_of(&gradient);
        let buffers = [
            Buffer::Read(&x),
            Buffer::Read(&gradient),
            Buffer::Read(&scale),
            Buffer::Read(&shift),
            Buffer::Write(&out),
        ];
        let params = [u32::from(activation == Activation::Relu)];
        let sums = reduce_cube(&shader::CHANNEL_AFFINE_BACKWARD, sizes, &buffers, &params, Finish::Sums(2));
        let [by_scale, by_shift] = [0, 1].map(|row| {
            let row = Cube::float_slice(sums.clone(), &[Slice::from(row..row + 1)]);
            Cube::float_reshape(row, [sizes.channels].into())
        });
        (out, by_scale, by_shift)
    }
}

fn affine_cube(
    x: FloatTensor<Cube>,
    scale: FloatTensor<Cube>,
    shift: FloatTensor<Cube>,
    residual: Option<FloatTensor<Cube>>,
    activation: Activation,
) -> FloatTensor<Cube> {
    let [x, scale, shift] = [x, scale, shift].map(into_contiguous);
    let residual = residual.map(into_contiguous);
    let Sizes { channels, length, .. } = Sizes::of(&x.shape());
    let (n, out) = (x.shape().num_elements(), gpu::in_place_of(&x));
    if n > 0 {
        let buffers = [
            Buffer::Read(&x),
            Buffer::Read(&scale),
            Buffer::Read(&shift),
            // Bound, though not read, when there is none.
            Buffer::Read(residual.as_ref().unwrap_or(&x)),
            Buffer::Write(&out),
        ];
        let is_relu = activation == Activation::Relu;
        let params = [n as u32, channels as u32, length as u32, is_relu.into(), residual.is_some().into()];
        let groups = n.div_ceil(EACH_VALUE) as u32;
        gpu::launch(&shader::AFFINE, shader::element(x.dtype), &buffers, &params, groups);
    }
    out
}

impl AffineOps for Flex {
    fn affine(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let [scale, shift] = [scale, shift].map(|tensor| tensor.to_contiguous());
        let (scale, shift) = (values::<f32>(&scale), values::<f32>(&shift));
        with_element!(x.dtype(), {
            let (out, _) = change::<T, _, 0>(Sizes::of(&x.shape()), x, [], |channel, [], own| {
                let (scale, shift) = (scale[channel], shift[channel]);
                match activation {
                    Activation::Identity => own.iter_mut().for_each(|own| *own = *own * scale + shift),
                    Activation::Relu => own.iter_mut().for_each(|own| *own = relu_value(*own * scale + shift)),
                }
            });
            out
        })
    }

    fn affine_add(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let [scale, shift, residual] = [scale, shift, residual].map(|tensor| tensor.to_contiguous());
        let (scale, shift) = (values::<f32>(&scale), values::<f32>(&shift));
        with_element!(x.dtype(), {
            let inputs = [values::<T>(&residual)];
            let (out, _) = change(Sizes::of(&x.shape()), x, inputs, |channel, [residual], own| {
                let (scale, shift) = (scale[channel], shift[channel]);
                for (own, residual) in own.iter_mut().zip(residual) {
                    *own = *own * scale + shift + residual;
                }
                if activation == Activation::Relu {
                    for own in own.iter_mut() {
                        *own = relu_value(*own);
                    }
                }
            });
            out
        })
    }

    fn affine_backward(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        activation: Activation,
        gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [x, scale, shift] = [x, scale, shift].map(|tensor| tensor.to_contiguous());
        let (scale, shift) = (values::<f32>(&scale), values::<f32>(&shift));
        let sizes = Sizes::of(&x.shape());
        let is_relu = u32::from(activation == Activation::Relu);
        let (out, sums) = with_element!(x.dtype(), {
            change(sizes, gradient, [values::<T>(&x)], |channel, [x], own| {
                let (scale, shift) = (scale[channel], shift[channel]);
                // In place first, so that the sums need not ask again what ReLU stops. Without a branch, which random signs
                // would make slow.
                for (own, x) in own.iter_mut().zip(x) {
                    let stops = is_relu & u32::from(x * scale + shift <= 0.0);
                    *own = own.keep(stops.wrapping_sub(1));
                }
                let sums = lane_sums([x, own], |[x, gradient]| [gradient * x, gradient]);
                for own in own.iter_mut() {
                    *own *= scale;
                }
                sums
            })
        });
        let vector = |row: usize| tensor(sums.iter().map(|sums| sums[row] as f32).collect(), [sizes.channels]);
        (out, vector(0), vector(1))
    }
}

impl<B: AffineOps, C: CheckpointStrategy> AffineOps for Autodiff<B, C> {
    fn affine(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        match AffineBackward.prepare::<C>([x.node(), scale.node(), shift.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let [x, scale, shift] = [x, scale, shift].map(primitive::<B, C>);
                let out = B::affine(x.clone(), scale.clone(), shift.clone(), activation);
                prepared.finish((x, scale, shift, activation), out)
            }
            OpsKind::UnTracked(prepared) => {
                let [x, scale, shift] = [x, scale, shift].map(primitive::<B, C>);
                prepared.finish(B::affine(x, scale, shift, activation))
            }
        }
    }

    fn affine_add(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let nodes = [x.node(), scale.node(), shift.node(), residual.node()];
        let [x, scale, shift, residual] = [x, scale, shift, residual].map(primitive::<B, C>);
        match AffineAddBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let out = B::affine_add(x.clone(), scale.clone(), shift.clone(), residual, activation);
                let bits = (activation == Activation::Relu).then(|| B::relu_bits(out.clone()));
                prepared.finish((x, scale, shift, bits), out)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(B::affine_add(x, scale, shift, residual, activation)),
        }
    }

    /// Constants: second derivatives are not taken.
    fn affine_backward(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        activation: Activation,
        gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [x, scale, shift, gradient] = [x, scale, shift, gradient].map(primitive::<B, C>);
        let (x, scale, shift) = B::affine_backward(x, scale, shift, activation, gradient);
        (Self::from_inner(x), Self::from_inner(scale), Self::from_inner(shift))
    }
}

#[derive(Debug)]
struct AffineBackward;

impl<B: AffineOps> Backward<B, 3> for AffineBackward {
    type State = (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, Activation);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let (x, scale, shift, activation) = ops.state;
        let (by_x, by_scale, by_shift) = B::affine_backward(x, scale, shift, activation, gradient);
        for (node, gradient) in ops.parents.into_iter().zip([by_x, by_scale, by_shift]) {
            if let Some(node) = node {
                gradients.register::<B>(node.id, gradient);
            }
        }
    }
}

#[derive(Debug)]
struct AffineAddBackward;

impl<B: AffineOps> Backward<B, 4> for AffineAddBackward {
    /// The bits of ReLU stand for the residual.
    type State = (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, Option<IntTensor<B>>);

    fn backward(self, ops: Ops<Self::State, 4>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let mut gradient = gradients.consume::<B>(&ops.node);
        let (x, scale, shift, bits) = ops.state;
        if let Some(bits) = bits {
            gradient = B::relu_bits_apply(gradient, bits);
        }
        let by_residual = gradient.clone();
        let (by_x, by_scale, by_shift) = B::affine_backward(x, scale, shift, Activation::Identity, gradient);
        for (node, gradient) in ops.parents.into_iter().zip([by_x, by_scale, by_shift, by_residual]) {
            if let Some(node) = node {
                gradients.register::<B>(node.id, gradient);
            }
        }
    }
}
