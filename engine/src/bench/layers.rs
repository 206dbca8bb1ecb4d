//! Norms, activations and pooling, ours and Burn's. Their backward passes are parts of autodiff and timed through it, with
//! the forward pass they need.

use burn::module::{Param, ParamId};
use burn::nn::GroupNormConfig;
use burn::tensor::Tensor;
use burn::tensor::activation::relu as burn_relu;
use burn::tensor::module::{batch_norm_train, layer_norm as burn_layer_norm, max_pool2d};
use burn::tensor::ops::MaxPoolOptions;

use super::Random;
use super::case::{Operation, Pass};
use super::measure::{Pair, Run, flat};
use crate::Result;
use crate::ops::{self, Activation};

const EPSILON: f32 = 1e-5;

/// Any operation that is no product.
pub fn layer(random: &Random, operation: Operation, pass: Pass) -> Pair {
    let dtype = random.dtype;
    match operation {
        Operation::Relu { shape } => pair(random, shape, pass, |x, _| ops::relu(x), |x, _| burn_relu(x)),
        Operation::ChannelMoments { shape } => {
            pair(random, shape, pass, |x, _| ops::channel_moments(x), |x, _| burn_moments(x))
        }
        Operation::AffineRelu { shape } => pair(
            random,
            shape,
            pass,
            |x, [scale, shift]| ops::affine(x, scale, shift, None, Activation::Relu),
            move |x, vectors| {
                let [scale, shift] = vectors.map(|vector| vector.cast(dtype).reshape([1, -1, 1]));
                burn_relu(x * scale + shift)
            },
        ),
        Operation::BatchNormRelu { shape } => pair(random, shape, pass, batch_norm, move |x, vectors| {
            let [gamma, beta] = vectors.map(|vector| vector.cast(dtype));
            burn_relu(batch_norm_train(x, gamma, beta, EPSILON.into()).output)
        }),
        Operation::GroupNormRelu { shape, groups } => {
            let norm = GroupNormConfig::new(groups, shape[1]).with_epsilon(EPSILON.into()).init(&random.device);
            pair(
                random,
                shape,
                pass,
                move |x, [gamma, beta]| ops::group_norm(x, groups, gamma, beta, EPSILON, Activation::Relu),
                move |x, vectors| {
                    let mut norm = norm.clone();
                    [norm.gamma, norm.beta] =
                        vectors.map(|vector| Some(Param::initialized(ParamId::new(), vector.cast(dtype))));
                    burn_relu(norm.forward(x))
                },
            )
        }
        Operation::LayerNormRelu { rows, channels } => pair(
            random,
            [rows, channels],
            pass,
            |x, [gamma, beta]| ops::layer_norm(x, gamma, beta, EPSILON, Activation::Relu),
            move |x, vectors| {
                let [gamma, beta] = vectors.map(|vector| vector.cast(dtype));
                burn_relu(burn_layer_norm(x, gamma, Some(beta), EPSILON.into()))
            },
        ),
        Operation::MaxPool { shape, window } => pair(
            random,
            shape,
            pass,
            move |x, _| ops::max_pool(x, window, window, [0; 3]),
            move |x, _| burn_max_pool(x, window),
        ),
        Operation::Gemm { .. }
        | Operation::Conv { .. }
        | Operation::ConvTransposed { .. }
        | Operation::OccupancyHead { .. }
        | Operation::VoxelEncoder { .. } => unreachable!("these have modules of their own"),
    }
}

/// Moments, from them scale and shift, and both applied with the ReLU.
fn batch_norm(x: Tensor<3>, [gamma, beta]: [Tensor<1>; 2]) -> Result<Tensor<3>> {
    let [_, channels, _] = x.dims();
    let moments = ops::channel_moments(x.clone())?;
    let row = |i: usize| moments.clone().slice(i..i + 1).reshape([channels]);
    let scale = gamma * (row(1) + EPSILON).sqrt().recip();
    let shift = beta - row(0) * scale.clone();
    ops::affine(x, scale, shift, None, Activation::Relu)
}

/// `[2, C]`, as ours.
fn burn_moments(x: Tensor<3>) -> Tensor<2> {
    let [batch, channels, length] = x.dims();
    let (variance, mean) = x.swap_dims(0, 1).reshape([channels, batch * length]).var_mean_bias(1);
    Tensor::cat(vec![mean.reshape([1, channels]), variance.reshape([1, channels])], 0)
}

/// Burn pools planes only: a volume is pooled over its planes, then over depth.
fn burn_max_pool(x: Tensor<5>, [depth, height, width]: [usize; 3]) -> Tensor<5> {
    let [batch, channels, d, h, w] = x.dims();
    let planes = max_pool2d(x.reshape([batch, channels * d, h, w]), MaxPoolOptions::new([height, width]));
    let [_, _, h, w] = planes.dims();
    let y = if depth == 1 {
        planes
    } else {
        max_pool2d(planes.reshape([batch, channels, d, h * w]), MaxPoolOptions::new([depth, 1]))
    };
    y.reshape([batch, channels, d / depth, h, w])
}

/// Two functions of values whose second axis is channels, and of two vectors of one value a channel.
fn pair<const D: usize, const E: usize>(
    random: &Random,
    shape: [usize; D],
    pass: Pass,
    ours: impl Fn(Tensor<D>, [Tensor<1>; 2]) -> Result<Tensor<E>> + 'static,
    burns: impl Fn(Tensor<D>, [Tensor<1>; 2]) -> Tensor<E> + 'static,
) -> Pair {
    let x = random.tensor(1, shape);
    let vectors = [2, 3].map(|seed| random.full(seed, [shape[1]]));
    Pair {
        ours: run(pass, x.clone(), vectors.clone(), ours),
        burns: run(pass, x, vectors, move |x, vectors| Ok(burns(x, vectors))),
    }
}

/// The output, or the gradients of everything that has one when that of the output is 1 everywhere.
fn run<const D: usize, const E: usize>(
    pass: Pass,
    x: Tensor<D>,
    vectors: [Tensor<1>; 2],
    function: impl Fn(Tensor<D>, [Tensor<1>; 2]) -> Result<Tensor<E>> + 'static,
) -> Run {
    if pass != Pass::Step {
        return Box::new(move || Ok(vec![flat(function(x.clone(), vectors.clone())?)]));
    }
    Box::new(move || {
        let x = x.clone().autodiff().require_grad();
        let vectors = vectors.clone().map(|vector| vector.autodiff().require_grad());
        let gradients = function(x.clone(), vectors.clone())?.backward();
        let of_vectors = vectors.iter().filter_map(|vector| vector.grad(&gradients));
        Ok(x.grad(&gradients).map(flat).into_iter().chain(of_vectors).collect())
    })
}
