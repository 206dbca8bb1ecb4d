//! Batch normalisation as what convolutions do on loading and storing: no normalised tensor is made.
//!
//! Parameters and running statistics stay in Burn's modules. As there, a layer that trains, on a device with autodiff,
//! takes the statistics of its batch (variance over n, not n - 1) and moves the running ones when the step counts; else,
//! and where a run freezes them, it takes the running ones.

use burn::module::Param;
use burn::nn::BatchNorm;
use burn::nn::conv::Conv3d;
use burn::tensor::{FloatDType, Tensor};

use super::conv::{as_type, options3d};
use crate::Result;
use crate::ops::conv::{Before, Epilogue, Normalise, Prologue};
use crate::ops::{self, Activation};
use crate::tape::Pass;

/// `activation(layer(x))` for the convolution that `x` goes into; `x`: `[B, C, D, H, W]`.
///
/// # Errors
/// Those of [`ops::channel_moments`].
pub fn batch_norm(layer: &BatchNorm, x: &Tensor<5>, activation: Activation, pass: &mut Pass) -> Result<Prologue> {
    let [mean, variance] = if trains(layer, x, pass) {
        let [batch, channels, d, h, w] = x.dims();
        let moments = ops::channel_moments(x.clone().reshape([batch, channels, d * h * w]))?;
        move_running(layer, moments.clone().detach(), pass);
        rows(&moments)
    } else {
        running(layer, x)
    };
    let [scale, shift] = scale_and_shift(layer, mean, variance);
    Ok(Prologue { scale, shift, activation })
}

/// `activation(layer(x))` for [`conv3d_norm`] with `x`, whose backward pass then takes the statistics in too. They are computed
/// in the first run of a segment only.
///
/// # Errors
/// Those of [`ops::channel_moments`].
pub fn norm_before(layer: &BatchNorm, x: &Tensor<5>, activation: Activation, pass: &mut Pass) -> Result<Before> {
    if !trains(layer, x, pass) {
        return Ok(batch_norm(layer, x, activation, pass)?.into());
    }
    let moments = if pass.is_again() {
        pass.take()
    } else {
        let [batch, channels, d, h, w] = x.dims();
        let moments = ops::channel_moments(x.clone().detach().reshape([batch, channels, d * h * w]))?;
        move_running(layer, moments.clone(), pass);
        pass.put(moments.clone());
        moments
    };
    let [gamma, beta] = [&layer.gamma, &layer.beta].map(Param::val);
    Ok(Before::Norm(Normalise { gamma, beta, moments, epsilon: layer.epsilon, activation }))
}

/// `residual + norm(conv(before(x)))`, all of the output's shape; `conv` has no bias. The last operation of a segment:
/// when that runs again, what comes out has a gradient and no value. `residual` is an addend of the segment
/// ([`crate::tape::Input::Addend`]).
///
/// # Errors
/// Those of [`ops::conv_norm`].
pub fn conv3d_norm(
    conv: &Conv3d,
    norm: &BatchNorm,
    x: Tensor<5>,
    before: impl Into<Before>,
    residual: Tensor<5>,
    pass: &mut Pass,
) -> Result<Tensor<5>> {
    let before = before.into();
    debug_assert!(conv.bias.is_none(), "a bias before a normalisation does nothing");
    let (weight, options) = (conv.weight.val(), options3d(conv));
    if trains(norm, &x, pass) {
        let weight = as_type(weight, &x);
        let [gamma, beta] = [&norm.gamma, &norm.beta].map(Param::val);
        if pass.is_again() {
            let (epsilon, moments) = (norm.epsilon, pass.take());
            return ops::conv_norm_again(x, weight, &options, before, [gamma, beta], epsilon, residual, moments);
        }
        let (y, moments) = ops::conv_norm(x, weight, &options, before, [gamma, beta], norm.epsilon, residual)?;
        move_running(norm, moments.clone(), pass);
        pass.put(moments);
        return Ok(y);
    }
    let [mean, variance] = running(norm, &x);
    let [scale, shift] = scale_and_shift(norm, mean, variance);
    let dtype = FloatDType::from(weight.dtype());
    let weight = as_type(weight * scale.cast(dtype).reshape([-1, 1, 1, 1, 1]), &x);
    // The tape knows the gradient of an addend, and the value is of no use any more.
    let residual = (!pass.is_again()).then_some(residual);
    let epilogue = Epilogue { bias: Some(shift), residual, activation: Activation::Identity };
    let Before::Map(prologue) = before else { unreachable!("statistics of the batch on both sides or on none") };
    ops::conv(x, weight, &options, Some(prologue), epilogue)
}

fn trains(layer: &BatchNorm, x: &Tensor<5>, pass: &Pass) -> bool {
    x.device().is_autodiff() && layer.training.is_enabled() && !pass.frozen_statistics()
}

/// Running mean and variance, `[C]`.
fn running(layer: &BatchNorm, x: &Tensor<5>) -> [Tensor<1>; 2] {
    [&layer.running_mean, &layer.running_var].map(|state| state.value_sync().to_device(&x.device()))
}

/// Mixes the batch's moments, `[2, C]` without gradient, into the running ones, when the step counts.
fn move_running(layer: &BatchNorm, moments: Tensor<2>, pass: &mut Pass) {
    // A running state does not tell its own number; the parameter beside it has one.
    let states = [(layer.gamma.id, layer.running_mean.clone()), (layer.beta.id, layer.running_var.clone())];
    let momentum = layer.momentum;
    pass.update(move |prepared| {
        let device = moments.device();
        for ((id, state), batch) in states.into_iter().zip(rows(&moments)) {
            prepared.mix(id, state, |before| {
                let before = before.to_device(&device).mul_scalar(1.0 - momentum);
                (before + batch.mul_scalar(momentum)).detach()
            });
        }
    });
}

/// Mean and variance of `[2, C]`.
fn rows(moments: &Tensor<2>) -> [Tensor<1>; 2] {
    [0..1, 1..2].map(|row| moments.clone().slice([row]).squeeze_dim(0))
}

fn scale_and_shift(layer: &BatchNorm, mean: Tensor<1>, variance: Tensor<1>) -> [Tensor<1>; 2] {
    let scale = layer.gamma.val() / variance.add_scalar(layer.epsilon).sqrt();
    let shift = layer.beta.val() - mean * scale.clone();
    [scale, shift]
}
