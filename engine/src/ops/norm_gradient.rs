//! The gradient of a batch normalisation by its input, in two passes that make no tensor: sums of every channel, then the
//! gradient over one of the two tensors that it comes from.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::wgpu::into_contiguous;
use burn::backend::{Autodiff, AutodiffBackend, Backend, Cube, Flex, TensorMetadata, backend_extension};

use super::Activation;
use super::channels::{EACH_VALUE, Finish, Sizes, change, lane_sums, primitive, reduce_cube, visit};
use super::element::{Element, tensor, values, with_element};
use crate::gpu::{self, Buffer, shader};

/// `x` and `gradient` are `[B, C, L]` in f32 or f16; vectors are rows of one tensor in f32. A gradient is passed where
/// `act(x * scale[c] + shift[c])` passes it.
#[backend_extension(Cube, Flex, Autodiff)]
pub trait NormGradientOps: Backend {
    /// Of every channel, `[2, C]` in f32: the sum of passed gradients times `x`, and the sum of passed gradients.
    /// `vectors`, `[2, C]`: scale and shift.
    fn norm_sums(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        vectors: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self>;

    /// `scale[c] * passed + slope[c] * x + offset[c]`, like `x`; over the gradient or else over `x` where nobody else holds
    /// it. `vectors`, `[4, C]`: scale, shift, slope and offset.
    fn norm_blend(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        vectors: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self>;
}

impl NormGradientOps for Cube {
    fn norm_sums(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        vectors: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let [x, gradient, vectors] = [x, gradient, vectors].map(into_contiguous);
        let buffers = [Buffer::Read(&x), Buffer::Read(&gradient), Buffer::Read(&vectors)];
        let params = [u32::from(activation == Activation::Relu)];
        reduce_cube(&shader::CHANNEL_NORM_SUMS, Sizes::of(&x.shape()), &buffers, &params, Finish::Sums(2))
    }

    fn norm_blend(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        vectors: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let [x, gradient, vectors] = [x, gradient, vectors].map(into_contiguous);
        let Sizes { channels, length, .. } = Sizes::of(&x.shape());
        let n = x.shape().num_elements();
        let out = gpu::in_place_of(if gradient.can_mut() { &gradient } else { &x });
        if n > 0 {
            let buffers = [Buffer::Read(&x), Buffer::Read(&gradient), Buffer::Read(&vectors), Buffer::Write(&out)];
            let params = [n as u32, channels as u32, length as u32, u32::from(activation == Activation::Relu)];
            let groups = n.div_ceil(EACH_VALUE) as u32;
            gpu::launch(&shader::NORM_BLEND, shader::element(x.dtype), &buffers, &params, groups);
        }
        out
    }
}

impl NormGradientOps for Flex {
    fn norm_sums(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        vectors: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let [x, gradient, vectors] = [x, gradient, vectors].map(|tensor| tensor.to_contiguous());
        let sizes = Sizes::of(&x.shape());
        let (scales, shifts) = values::<f32>(&vectors).split_at(sizes.channels);
        let is_relu = u32::from(activation == Activation::Relu);
        let sums: Vec<[f64; 2]> = with_element!(x.dtype(), {
            visit(sizes, [values::<T>(&x), values::<T>(&gradient)], |channel, blocks| {
                let (scale, shift) = (scales[channel], shifts[channel]);
                lane_sums(blocks, |[x, gradient]| {
                    let passed = gradient.keep(passes(is_relu, x * scale + shift));
                    [passed * x, passed]
                })
            })
        });
        let row = |row: usize| sums.iter().map(move |sums| sums[row] as f32);
        tensor(row(0).chain(row(1)).collect(), [2, sizes.channels])
    }

    fn norm_blend(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        vectors: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let vectors = vectors.to_contiguous();
        let sizes = Sizes::of(&x.shape());
        let rows: [&[f32]; 4] =
            std::array::from_fn(|row| &values::<f32>(&vectors)[row * sizes.channels..(row + 1) * sizes.channels]);
        let is_relu = u32::from(activation == Activation::Relu);
        let blend = |channel: usize| {
            let [scale, shift, slope, offset] = rows.map(|row| row[channel]);
            move |x: f32, gradient: f32| {
                let passed = gradient.keep(passes(is_relu, x * scale + shift));
                scale * passed + (slope * x + offset)
            }
        };
        with_element!(x.dtype(), {
            if gradient.is_unique() {
                let x = x.to_contiguous();
                let inputs = [values::<T>(&x)];
                let (out, _) = change(sizes, gradient, inputs, |channel, [x], own| {
                    let blend = blend(channel);
                    own.iter_mut().zip(x).for_each(|(own, x)| *own = blend(*x, *own));
                });
                out
            } else {
                let gradient = gradient.to_contiguous();
                let inputs = [values::<T>(&gradient)];
                let (out, _) = change(sizes, x, inputs, |channel, [gradient], own| {
                    let blend = blend(channel);
                    own.iter_mut().zip(gradient).for_each(|(own, gradient)| *own = blend(*own, *gradient));
                });
                out
            }
        })
    }
}

/// All ones where a gradient is passed, else 0: without a branch, which random signs would make slow.
#[inline]
fn passes(is_relu: u32, value: f32) -> u32 {
    (is_relu & u32::from(value <= 0.0)).wrapping_sub(1)
}

impl<B: NormGradientOps, C: CheckpointStrategy> NormGradientOps for Autodiff<B, C> {
    /// A constant: it is called in backward only.
    fn norm_sums(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        vectors: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let [x, gradient, vectors] = [x, gradient, vectors].map(primitive::<B, C>);
        Self::from_inner(B::norm_sums(x, gradient, vectors, activation))
    }

    /// A constant: second derivatives are not taken.
    fn norm_blend(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        vectors: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let [x, gradient, vectors] = [x, gradient, vectors].map(primitive::<B, C>);
        Self::from_inner(B::norm_blend(x, gradient, vectors, activation))
    }
}
