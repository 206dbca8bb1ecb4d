//! Forward passes of Burn's 3x3 convolution layers by our own convolution, which is faster on the CPU.
//!
//! The layers are those that [`super::Init`] makes: stride 1, padding equal to the dilation. Their parameters stay in
//! Burn's modules, whose layout is PyTorch's.

use burn::nn::conv::{Conv2d, Conv3d};
use burn::tensor::Tensor;

use crate::ops::conv3x3;

/// `[B, in, H, W]` to `[B, out, H, W]`.
pub fn conv2d(layer: &Conv2d, x: Tensor<4>) -> Tensor<4> {
    let [batch, _, height, width] = x.dims();
    let weight = layer.weight.val();
    let channels_out = weight.dims()[0];
    let y = conv3x3(x.unsqueeze_dim(2), weight.unsqueeze_dim(2), layer.dilation[0]);
    let y = y.reshape([batch, channels_out, height, width]);
    match &layer.bias {
        Some(bias) => y + bias.val().reshape([1, channels_out, 1, 1]),
        None => y,
    }
}

/// `[B, in, D, H, W]` to `[B, out, D, H, W]`.
pub fn conv3d(layer: &Conv3d, x: Tensor<5>) -> Tensor<5> {
    let weight = layer.weight.val();
    let channels_out = weight.dims()[0];
    let y = conv3x3(x, weight, layer.dilation[0]);
    match &layer.bias {
        Some(bias) => y + bias.val().reshape([1, channels_out, 1, 1, 1]),
        None => y,
    }
}

/// `[B, in, D, H, W]` to `[B, out, D, H, W]` with a kernel of one voxel: a product of matrices.
pub fn conv1x1x1(layer: &Conv3d, x: Tensor<5>) -> Tensor<5> {
    let [batch, channels_in, d, h, w] = x.dims();
    let weight = layer.weight.val();
    let channels_out = weight.dims()[0];
    let weight = weight.reshape([1, channels_out, channels_in]);
    let y = weight.matmul(x.reshape([batch, channels_in, d * h * w])).reshape([batch, channels_out, d, h, w]);
    match &layer.bias {
        Some(bias) => y + bias.val().reshape([1, channels_out, 1, 1, 1]),
        None => y,
    }
}
