//! Burn's convolution layers computed by our own operations.
//!
//! The layers are those that [`super::Init`] makes: kernels of odd sides that keep the size of the grid, or divide it by the
//! stride. Their parameters stay in Burn's modules, whose layout is PyTorch's.

use burn::module::Param;
use burn::nn::conv::{Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d};
use burn::tensor::{FloatDType, Tensor};

use crate::Result;
use crate::ops::conv::{ConvOptions, Epilogue, Prologue};
use crate::ops::{self, Activation};

/// `activation(layer(x))`: `[B, in, H, W]` to `[B, out, H, W]`.
///
/// # Errors
/// Those of [`ops::conv()`].
pub fn conv2d(layer: &Conv2d, x: Tensor<4>, activation: Activation) -> Result<Tensor<4>> {
    let options = ConvOptions {
        stride: as_volume(layer.stride, 1),
        padding: as_volume(same_padding(layer.kernel_size, layer.dilation), 0),
        dilation: as_volume(layer.dilation, 1),
        groups: layer.groups,
    };
    let epilogue = Epilogue { bias: value(layer.bias.as_ref()), residual: None, activation };
    let weight = as_type(layer.weight.val(), &x).unsqueeze_dim(2);
    Ok(ops::conv(x.unsqueeze_dim(2), weight, &options, None, epilogue)?.squeeze_dim(2))
}

/// `activation(layer(prologue(x)) + residual)`: `[B, in, D, H, W]` to `[B, out, D/s, H/s, W/s]`, `s` the stride.
///
/// # Errors
/// Those of [`ops::conv()`].
pub fn conv3d(
    layer: &Conv3d,
    x: Tensor<5>,
    prologue: Option<Prologue>,
    residual: Option<Tensor<5>>,
    activation: Activation,
) -> Result<Tensor<5>> {
    let epilogue = Epilogue { bias: value(layer.bias.as_ref()), residual, activation };
    let weight = as_type(layer.weight.val(), &x);
    ops::conv(x, weight, &options3d(layer), prologue, epilogue)
}

/// [`conv3d`] with stride 1 whose first and last planes along D are context: `[B, in, D, H, W]` to `[B, out, D - 2 halo, H, W]`,
/// [`halo`] planes less on either side.
///
/// # Errors
/// Those of [`ops::conv()`].
pub fn conv3d_inside(layer: &Conv3d, x: Tensor<5>, prologue: Option<Prologue>) -> Result<Tensor<5>> {
    let epilogue = Epilogue { bias: value(layer.bias.as_ref()), ..Epilogue::default() };
    let mut options = options3d(layer);
    options.padding[0] = 0;
    let weight = as_type(layer.weight.val(), &x);
    ops::conv(x, weight, &options, prologue, epilogue)
}

/// Planes on either side that an output of a layer depends on.
pub fn halo(layer: &Conv3d) -> usize {
    same_padding(layer.kernel_size, layer.dilation)[0]
}

pub(super) fn options3d(layer: &Conv3d) -> ConvOptions {
    ConvOptions {
        stride: layer.stride,
        padding: same_padding(layer.kernel_size, layer.dilation),
        dilation: layer.dilation,
        groups: layer.groups,
    }
}

/// `[B, in, H, W]` to `[B, out, ...]`.
///
/// # Errors
/// Those of [`ops::conv_transposed`].
pub fn conv_transpose2d(layer: &ConvTranspose2d, x: Tensor<4>) -> Result<Tensor<4>> {
    let options = ConvOptions {
        stride: as_volume(layer.stride, 1),
        padding: as_volume(layer.padding, 0),
        dilation: as_volume(layer.dilation, 1),
        groups: layer.groups,
    };
    let epilogue = Epilogue { bias: value(layer.bias.as_ref()), ..Epilogue::default() };
    let weight = as_type(layer.weight.val(), &x).unsqueeze_dim(2);
    let output_padding = as_volume(layer.padding_out, 0);
    Ok(ops::conv_transposed(x.unsqueeze_dim(2), weight, &options, output_padding, epilogue)?.squeeze_dim(2))
}

/// `[B, in, D, H, W]` to `[B, out, ...]`.
///
/// # Errors
/// Those of [`ops::conv_transposed`].
pub fn conv_transpose3d(layer: &ConvTranspose3d, x: Tensor<5>) -> Result<Tensor<5>> {
    let ConvTranspose3d { stride, padding, dilation, groups, .. } = *layer;
    let options = ConvOptions { stride, padding, dilation, groups };
    let epilogue = Epilogue { bias: value(layer.bias.as_ref()), ..Epilogue::default() };
    let weight = as_type(layer.weight.val(), &x);
    ops::conv_transposed(x, weight, &options, layer.padding_out, epilogue)
}

/// ReLU as what a convolution does to its input: the input is then kept once, for both.
pub fn relu_first(x: &Tensor<5>) -> Prologue {
    let (channels, device) = (x.dims()[1], x.device());
    Prologue {
        scale: Tensor::ones([channels], &device),
        shift: Tensor::zeros([channels], &device),
        activation: Activation::Relu,
    }
}

/// A weight in the type of `x`: parameters are f32, and a network that computes in f16 rounds them where it uses them.
pub(super) fn as_type<const D: usize, const E: usize>(weight: Tensor<D>, x: &Tensor<E>) -> Tensor<D> {
    if weight.dtype() == x.dtype() { weight } else { weight.cast(FloatDType::from(x.dtype())) }
}

fn value(bias: Option<&Param<Tensor<1>>>) -> Option<Tensor<1>> {
    bias.map(Param::val)
}

/// Of a plane as a volume of depth 1.
fn as_volume([height, width]: [usize; 2], depth: usize) -> [usize; 3] {
    [depth, height, width]
}

/// Zeros on either side for an output as large as the input.
fn same_padding<const N: usize>(kernel: [usize; N], dilation: [usize; N]) -> [usize; N] {
    std::array::from_fn(|axis| kernel[axis] / 2 * dilation[axis])
}
