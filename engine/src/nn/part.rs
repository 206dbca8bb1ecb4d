//! A convolution of some of a layer's input channels, there and back.
//!
//! A layer over concatenated tensors is the sum of one such part a tensor: the concatenated one need not exist, nor its
//! gradient.

use std::ops::Range;

use burn::nn::conv::Conv3d;
use burn::tensor::{FloatDType, Tensor};

use super::conv::{as_type, options3d};
use crate::Result;
use crate::ops::conv::{ConvGeometry, Epilogue, weight_gradient};
use crate::ops::{self, Activation};

/// The weights of a layer, stride 1 and without bias, that some of its input channels meet.
pub struct Part<'a> {
    layer: &'a Conv3d,
    channels: Range<usize>,
}

impl<'a> Part<'a> {
    /// The whole layer.
    pub fn whole(layer: &'a Conv3d) -> Self {
        let [_, channels, ..] = layer.weight.dims();
        Self { layer, channels: 0..channels }
    }

    /// The weights of tensor `index` of `count` equal ones.
    pub fn of(layer: &'a Conv3d, index: usize, count: usize) -> Self {
        let [_, channels, ..] = layer.weight.dims();
        let each = channels / count;
        Self { layer, channels: index * each..(index + 1) * each }
    }

    /// `[out, channels, kernel]`, of the type of `like`.
    fn weight(&self, like: &Tensor<5>) -> Tensor<5> {
        let weight = self.layer.weight.val();
        let weight =
            if self.channels.len() == weight.dims()[1] { weight } else { weight.slice_dim(1, self.channels.clone()) };
        as_type(weight, like)
    }

    /// `activation(part(x) + sum)`: `[B, channels, D, H, W]` to `[B, out, D, H, W]`.
    ///
    /// # Errors
    /// Those of [`ops::conv()`].
    pub fn forward(&self, x: Tensor<5>, sum: Option<Tensor<5>>, activation: Activation) -> Result<Tensor<5>> {
        let weight = self.weight(&x);
        ops::conv(x, weight, &options3d(self.layer), None, Epilogue { bias: None, residual: sum, activation })
    }

    /// Of the part's weights, `[out, channels, kernel]` in f32, from its input and the gradient of its output, both without
    /// autodiff.
    ///
    /// # Errors
    /// Those of [`ops::conv()`].
    pub fn weight_gradient(&self, x: &Tensor<5>, gradient: &Tensor<5>) -> Result<Tensor<5>> {
        let [out, _, d, h, w] = self.layer.weight.dims();
        let geometry = ConvGeometry::new(x.dims(), [out, self.channels.len(), d, h, w], &options3d(self.layer))?;
        Ok(weight_gradient(x.clone(), gradient.clone(), geometry).cast(FloatDType::F32))
    }

    /// Of the part's input, from that of its output, added to `sum`. Without autodiff.
    ///
    /// # Errors
    /// Those of [`ops::conv_transposed`].
    pub fn input_gradient(&self, gradient: Tensor<5>, sum: Option<Tensor<5>>) -> Result<Tensor<5>> {
        let weight = self.weight(&gradient);
        let epilogue = Epilogue { bias: None, residual: sum, activation: Activation::Identity };
        ops::conv_transposed(gradient, weight, &options3d(self.layer), [0; 3], epilogue)
    }
}
