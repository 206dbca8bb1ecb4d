//! Group and layer normalisation, with scale, shift and activation in the same pass.
//!
//! What backward keeps is the input and two numbers a group, never the result. From the result the input could be had back
//! only where the activation is invertible and no gamma is 0: ReLU is not, and gamma may be 0 or tiny, where dividing by it
//! loses every digit. The input is there anyway, as the result of the layer before.

mod cpu;
mod cube;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend, Dispatch, backend_extension};
use burn::tensor::{FloatDType, Tensor};

use super::Activation;
use super::channels::{Sizes, check, check_vector, primitive};
use crate::{Error, Result};

/// Group normalisation (Wu and He, "Group Normalization", arXiv 1803.08494) of `x`, `[B, C, L]` in f32 or f16:
/// `act((x - mean) / sqrt(variance + epsilon) * gamma[c] + beta[c])`, mean and biased variance taken over the values of
/// each sample in each of `groups` groups of neighbouring channels.
///
/// `gamma` and `beta`, `[C]`, are taken in f32; everything is computed in f32 and rounded once. Differentiable in `x`,
/// `gamma` and `beta`; keeps `x` and mean and inverse deviation of every group.
///
/// # Errors
/// [`Error::Usage`] when shapes or types do not fit, when `groups` does not divide the channels, for samples without
/// values and for an epsilon that is not above 0; [`Error::TooLarge`] when partial results do not fit on the device.
pub fn group_norm(
    x: Tensor<3>,
    groups: usize,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f32,
    activation: Activation,
) -> Result<Tensor<3>> {
    normalise("group_norm", x, groups, [gamma, beta], epsilon, activation)
}

/// Layer normalisation (Ba, Kiros and Hinton, "Layer Normalization", arXiv 1607.06450) of the rows of `x`, `[rows,
/// features]`: as [`group_norm`] with each row a sample of one group. `gamma` and `beta` are `[features]`.
///
/// # Errors
/// As [`group_norm`].
pub fn layer_norm(
    x: Tensor<2>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f32,
    activation: Activation,
) -> Result<Tensor<2>> {
    let [rows, features] = x.dims();
    let y = normalise("layer_norm", x.reshape([rows, features, 1]), 1, [gamma, beta], epsilon, activation)?;
    Ok(y.reshape([rows, features]))
}

fn normalise(
    operation: &str,
    x: Tensor<3>,
    groups: usize,
    [gamma, beta]: [Tensor<1>; 2],
    epsilon: f32,
    activation: Activation,
) -> Result<Tensor<3>> {
    let [batch, channels, length] = x.dims();
    let refuse = |what: String| Err(Error::Usage(format!("{operation} of {:?}: {what}", x.dims())));
    if channels == 0 || length == 0 {
        return refuse("a sample has no values, expected one at least".into());
    }
    if groups == 0 || channels % groups != 0 {
        return refuse(format!("{groups} groups of {channels} channels, expected a number that divides them"));
    }
    if !(epsilon > 0.0 && epsilon.is_finite()) {
        return refuse(format!("epsilon is {epsilon}, expected a number above 0"));
    }
    let norm = Norm { sizes: Sizes { batch, channels, length }, groups, activation };
    check(operation, &x, norm.rows())?;
    check(operation, &x, norm.sizes)?;
    check_vector(operation, "gamma", &gamma, channels)?;
    check_vector(operation, "beta", &beta, channels)?;
    if batch == 0 {
        return Ok(x);
    }
    let [gamma, beta] = [gamma, beta].map(|vector| vector.cast(FloatDType::F32).into_dispatch());
    Ok(Tensor::from_dispatch(Dispatch::group_norm(x.into_dispatch(), gamma, beta, epsilon, norm).0))
}

/// Sizes and activation of a normalisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Norm {
    sizes: Sizes,
    groups: usize,
    activation: Activation,
}

impl Norm {
    /// Each group of a sample as a channel of its own: its values lie together.
    fn rows(&self) -> Sizes {
        let Sizes { batch, channels, length } = self.sizes;
        Sizes { batch: 1, channels: batch * self.groups, length: channels / self.groups * length }
    }

    fn group_channels(&self) -> usize {
        self.sizes.channels / self.groups
    }
}

/// `x`, results and gradients are `[B, C, L]` in f32 or f16, `gamma` and `beta` `[C]` in f32, statistics `[2, B * groups]`
/// in f32: mean and `1 / sqrt(variance + epsilon)`.
#[backend_extension(Cube, Flex, Autodiff)]
pub trait NormOps: Backend {
    /// Result and statistics.
    fn group_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
        norm: Norm,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Gradients by `x`, `gamma` and `beta`.
    fn group_norm_backward(
        x: FloatTensor<Self>,
        statistics: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        norm: Norm,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

impl<B: NormOps, C: CheckpointStrategy> NormOps for Autodiff<B, C> {
    fn group_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
        norm: Norm,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let nodes = [x.node(), gamma.node(), beta.node()];
        let [x, gamma, beta] = [x, gamma, beta].map(primitive::<B, C>);
        match NormBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (y, statistics) = B::group_norm(x.clone(), gamma.clone(), beta.clone(), epsilon, norm);
                let y = prepared.finish((x, statistics.clone(), gamma, beta, norm), y);
                (y, Self::from_inner(statistics))
            }
            OpsKind::UnTracked(prepared) => {
                let (y, statistics) = B::group_norm(x, gamma, beta, epsilon, norm);
                (prepared.finish(y), Self::from_inner(statistics))
            }
        }
    }

    /// Constants: second derivatives are not taken.
    fn group_norm_backward(
        x: FloatTensor<Self>,
        statistics: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        norm: Norm,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [x, statistics, gamma, beta, gradient] = [x, statistics, gamma, beta, gradient].map(primitive::<B, C>);
        let (x, gamma, beta) = B::group_norm_backward(x, statistics, gamma, beta, gradient, norm);
        (Self::from_inner(x), Self::from_inner(gamma), Self::from_inner(beta))
    }
}

#[derive(Debug)]
struct NormBackward;

impl<B: NormOps> Backward<B, 3> for NormBackward {
    /// Input, statistics, gamma, beta.
    type State = (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, Norm);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let (x, statistics, gamma, beta, norm) = ops.state;
        let (by_x, by_gamma, by_beta) = B::group_norm_backward(x, statistics, gamma, beta, gradient, norm);
        for (node, gradient) in ops.parents.into_iter().zip([by_x, by_gamma, by_beta]) {
            if let Some(node) = node {
                gradients.register::<B>(node.id, gradient);
            }
        }
    }
}
