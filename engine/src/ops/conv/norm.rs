//! A convolution, the batch normalisation of what it gives, and the sum with a residual, as one operation.
//!
//! The normalisation needs all of the convolution's output before it knows the statistics, and its derivative needs the
//! output once more. It is not kept for that: the backward pass convolves again. That costs a third of the convolution's
//! own time and saves a tensor as large as its output.
//!
//! The batch normalisation of what goes in can be part of it too: the gradient of its statistics is then no pass of its own.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, AutodiffBackend, Backend, Cube, Dispatch, DispatchTensor, Flex, TensorMetadata, backend_extension,
};
use burn::tensor::{Shape, Slice, Tensor};

use super::autodiff::{channels, loaded_backward};
use super::backend::{ConvOps, Load, Plan, Store};
use super::{ConvGeometry, ConvOptions, Epilogue, Operation, Prologue, check, checked_epilogue, vector};
use crate::ops::Activation;
use crate::ops::affine::AffineOps;
use crate::ops::channel_sums::ChannelSumsOps;
use crate::ops::channels::primitive;
use crate::ops::moments::MomentsOps;
use crate::ops::norm_gradient::NormGradientOps;
use crate::{Error, Result};

/// What a convolution does to its input while it loads it.
// One a call.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone)]
pub enum Before {
    /// A map whose vectors do not depend on the input.
    Map(Prologue),
    /// A batch normalisation by the input's own statistics.
    Norm(Normalise),
}

impl From<Prologue> for Before {
    fn from(prologue: Prologue) -> Self {
        Self::Map(prologue)
    }
}

/// `activation(gamma[c] (x - mean[c]) / sqrt(variance[c] + epsilon) + beta[c])`.
#[derive(Debug, Clone)]
pub struct Normalise {
    /// `[in]`.
    pub gamma: Tensor<1>,
    /// `[in]`.
    pub beta: Tensor<1>,
    /// Of `x`, `[2, in]` in f32, as [`channel_moments`](crate::ops::channel_moments) gives them. They come as numbers; their
    /// dependence on `x` is in the gradient by `x`.
    pub moments: Tensor<2>,
    pub epsilon: f64,
    pub activation: Activation,
}

/// `residual + gamma[c] (y - mean[c]) / sqrt(variance[c] + epsilon) + beta[c]`, with `y` the convolution of `before(x)`,
/// and mean and biased variance of each channel of `y` over batch and grid; beside it these two, `[2, C]` in f32.
///
/// Differentiable in every tensor; the moments are a constant. Keeps `x`, `weight` and vectors.
///
/// # Errors
/// As [`super::conv()`], and [`Error::Usage`] when there is no voxel to take statistics of.
pub fn conv_norm(
    x: Tensor<5>,
    weight: Tensor<5>,
    options: &ConvOptions,
    before: impl Into<Before>,
    norm: [Tensor<1>; 2],
    epsilon: f64,
    residual: Tensor<5>,
) -> Result<(Tensor<5>, Tensor<2>)> {
    let arguments = Arguments::new(x, weight, options, before.into(), norm, epsilon, residual)?;
    let Arguments { x, weight, load, load_moments, norm, residual, work } = arguments;
    let (y, moments) = Dispatch::conv_norm(x, weight, load, load_moments, norm, residual, work);
    Ok((Tensor::from_dispatch(y), Tensor::from_dispatch(moments)))
}

/// The result of [`conv_norm`] for those who need its gradient and not its value: nothing is computed before the backward
/// pass, and what comes out reads as zeros. `moments` are those that [`conv_norm`] gave for the same arguments.
///
/// # Errors
/// As [`conv_norm`].
// Those of `conv_norm` and the moments.
#[allow(clippy::too_many_arguments)]
pub fn conv_norm_again(
    x: Tensor<5>,
    weight: Tensor<5>,
    options: &ConvOptions,
    before: impl Into<Before>,
    norm: [Tensor<1>; 2],
    epsilon: f64,
    residual: Tensor<5>,
    moments: Tensor<2>,
) -> Result<Tensor<5>> {
    let arguments = Arguments::new(x, weight, options, before.into(), norm, epsilon, residual)?;
    let Arguments { x, weight, load, load_moments, norm, residual, work } = arguments;
    let moments = moments.into_dispatch();
    Ok(Tensor::from_dispatch(Dispatch::conv_norm_again(x, weight, load, load_moments, norm, residual, moments, work)))
}

/// What is computed, beside tensors.
#[derive(Debug, Clone, Copy)]
struct Work {
    /// With a prologue and no epilogue.
    plan: Plan,
    /// Of the normalisation of what goes in, if there is one.
    load_epsilon: Option<f64>,
    epsilon: f64,
}

/// What a backend is given, checked.
struct Arguments {
    x: DispatchTensor,
    weight: DispatchTensor,
    load: DispatchTensor,
    load_moments: DispatchTensor,
    norm: DispatchTensor,
    residual: DispatchTensor,
    work: Work,
}

impl Arguments {
    fn new(
        x: Tensor<5>,
        weight: Tensor<5>,
        options: &ConvOptions,
        before: Before,
        [gamma, beta]: [Tensor<1>; 2],
        epsilon: f64,
        residual: Tensor<5>,
    ) -> Result<Self> {
        let geometry = ConvGeometry::new(x.dims(), weight.dims(), options)?;
        let operation = Operation::Convolution(&geometry);
        check(operation, &geometry, &x, &weight)?;
        if geometry.batch * geometry.volume_out() == 0 {
            return Err(Error::Usage(format!("{operation}: found no voxel to normalise over")));
        }
        let pack = |what: [&str; 2], [first, second]: [Tensor<1>; 2], channels: usize| -> Result<_> {
            let first = vector(what[0], first, channels, operation)?;
            let second = vector(what[1], second, channels, operation)?;
            Ok(Tensor::stack::<2>(vec![first, second], 0).into_dispatch())
        };
        let channels = geometry.channels_in;
        let (load, load_moments, load_epsilon, activation) = match before {
            Before::Map(Prologue { scale, shift, activation }) => {
                let load = pack(["a scale", "a shift"], [scale, shift], channels)?;
                (load.clone(), load, None, activation)
            }
            Before::Norm(Normalise { gamma, beta, moments, epsilon, activation }) => {
                let found = moments.dims();
                if found != [2, channels] {
                    return Err(Error::Usage(format!(
                        "{operation}: found moments {found:?}, expected [2, {channels}]"
                    )));
                }
                let load = pack(["a gamma", "a beta"], [gamma, beta], channels)?;
                (load, moments.into_dispatch(), Some(epsilon), activation)
            }
        };
        let norm = pack(["a gamma", "a beta"], [gamma, beta], geometry.channels_out)?;
        let epilogue = Epilogue { residual: Some(residual.clone()), ..Epilogue::default() };
        checked_epilogue(epilogue, geometry.output(), operation, x.dtype())?;
        let plan = Plan { geometry, load: Some(Load { activation }), store: Store::default() };
        let work = Work { plan, load_epsilon, epsilon };
        let (x, weight, residual) = (x.into_dispatch(), weight.into_dispatch(), residual.into_dispatch());
        Ok(Self { x, weight, load, load_moments, norm, residual, work })
    }
}

#[backend_extension(Cube, Flex, Autodiff)]
trait ConvNormOps: Backend + ConvOps + AffineOps + ChannelSumsOps + MomentsOps + NormGradientOps {
    /// The sum and the moments, `[2, C]`. `load`: scale and shift, or gamma and beta beside moments, `[2, in]`; `norm`:
    /// gamma and beta, `[2, out]`.
    fn conv_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        load: FloatTensor<Self>,
        load_moments: FloatTensor<Self>,
        norm: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        work: Work,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let vectors = load_vectors::<Self>(&load, &load_moments, work.load_epsilon);
        let y = channels::<Self>(convolved::<Self>(x, weight, &vectors, work.plan));
        let moments = Self::channel_moments(y.clone());
        let [scale, shift] = scale_and_shift::<Self>(&norm, &moments, work.epsilon);
        let sum = Self::affine_add(y, scale, shift, channels::<Self>(residual), Activation::Identity);
        (Self::float_reshape(sum, Shape::from(work.plan.geometry.output())), moments)
    }

    /// A view of one zero, in the shape of the sum.
    #[allow(clippy::too_many_arguments)]
    fn conv_norm_again(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        load: FloatTensor<Self>,
        load_moments: FloatTensor<Self>,
        norm: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        work: Work,
    ) -> FloatTensor<Self> {
        let _ = (weight, load, load_moments, norm, residual, moments);
        let first = [0..1, 0..1, 0..1, 0..1, 0..1].map(Slice::from);
        let zero = Self::float_mul_scalar(Self::float_slice(x, &first), 0.0.into());
        Self::float_expand(zero, Shape::from(work.plan.geometry.output()))
    }
}

impl ConvNormOps for Cube {}

impl ConvNormOps for Flex {}

impl<B: ConvNormOps, C: CheckpointStrategy> ConvNormOps for Autodiff<B, C> {
    fn conv_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        load: FloatTensor<Self>,
        load_moments: FloatTensor<Self>,
        norm: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        work: Work,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let nodes = [x.node(), weight.node(), load.node(), norm.node(), residual.node()];
        let (x, weight, residual) = (x.into_primitive(), weight.into_primitive(), residual.into_primitive());
        let [load, load_moments, norm] = [load, load_moments, norm].map(primitive::<B, C>);
        match ConvNormBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let kept = [x.clone(), weight.clone(), load.clone(), load_moments.clone(), norm.clone()];
                let (y, moments) = B::conv_norm(x, weight, load, load_moments, norm, residual, work);
                let y = prepared.finish((kept, moments.clone(), work), y);
                (y, Self::from_inner(moments))
            }
            OpsKind::UnTracked(prepared) => {
                let (y, moments) = B::conv_norm(x, weight, load, load_moments, norm, residual, work);
                (prepared.finish(y), Self::from_inner(moments))
            }
        }
    }

    fn conv_norm_again(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        load: FloatTensor<Self>,
        load_moments: FloatTensor<Self>,
        norm: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        work: Work,
    ) -> FloatTensor<Self> {
        let nodes = [x.node(), weight.node(), load.node(), norm.node(), residual.node()];
        let (x, weight, residual) = (x.into_primitive(), weight.into_primitive(), residual.into_primitive());
        let [load, load_moments, norm, moments] = [load, load_moments, norm, moments].map(primitive::<B, C>);
        let kept = [x.clone(), weight.clone(), load.clone(), load_moments.clone(), norm.clone()];
        let y = B::conv_norm_again(x, weight, load, load_moments, norm, residual, moments.clone(), work);
        match ConvNormBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish((kept, moments, work), y),
            OpsKind::UnTracked(prepared) => prepared.finish(y),
        }
    }
}

#[derive(Debug)]
struct ConvNormBackward;

impl<B: ConvNormOps> Backward<B, 5> for ConvNormBackward {
    /// x, weight, load, moments of x, norm; moments; what was computed.
    type State = ([FloatTensor<B>; 5], FloatTensor<B>, Work);

    fn backward(self, ops: Ops<Self::State, 5>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [x_node, weight_node, load_node, norm_node, residual_node] = ops.parents;
        let ([x, weight, load, load_moments, norm], moments, Work { plan, load_epsilon, epsilon }) = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        if let Some(node) = residual_node {
            gradients.register::<B>(node.id, gradient.clone());
        }
        let vectors = load_vectors::<B>(&load, &load_moments, load_epsilon);
        let y = channels::<B>(convolved::<B>(x.clone(), weight.clone(), &vectors, plan));
        let (y_gradient, by_norm) =
            norm_backward::<B>(y, channels::<B>(gradient), &norm, &moments, epsilon, Activation::Identity, true);
        if let Some(node) = norm_node {
            gradients.register::<B>(node.id, by_norm);
        }
        let Some(y_gradient) = y_gradient else { return };
        let y_gradient = B::float_reshape(y_gradient, Shape::from(plan.geometry.output()));
        if let Some(node) = weight_node {
            let [scale, shift] = vectors.clone();
            let weight_gradient = B::conv_weight_gradient(x.clone(), y_gradient.clone(), scale, shift, plan);
            gradients.register::<B>(node.id, weight_gradient);
        }
        if x_node.is_none() && load_node.is_none() {
            return;
        }
        let bare = Plan { load: None, ..plan };
        let loaded = B::conv_input_gradient(weight, y_gradient.clone(), y_gradient.clone(), y_gradient, bare);
        let activation = plan.load.map_or(Activation::Identity, |load| load.activation);
        let (x_gradient, by_load) = if let Some(epsilon) = load_epsilon {
            let (shape, loaded) = (x.shape(), channels::<B>(loaded));
            let wanted = x_node.is_some();
            let (by_x, by_load) =
                norm_backward::<B>(channels::<B>(x), loaded, &load, &load_moments, epsilon, activation, wanted);
            (by_x.map(|by_x| B::float_reshape(by_x, shape)), by_load)
        } else {
            let [by_x, by_scale, by_shift] = loaded_backward::<B>(x, vectors, activation, loaded);
            (Some(by_x), packed::<B, _>([by_scale, by_shift]))
        };
        if let (Some(node), Some(x_gradient)) = (x_node, x_gradient) {
            gradients.register::<B>(node.id, x_gradient);
        }
        if let Some(node) = load_node {
            gradients.register::<B>(node.id, by_load);
        }
    }
}

/// Gradients of `activation(gamma z + beta)` by `y` (if `wanted`) and by gamma and beta, `[2, C]`, where `z` is `y`, `[B, C,
/// L]`, normalised by its own `moments`; `norm`: gamma and beta.
///
/// With means over the n voxels of a channel, and z of mean 0 and mean square nearly 1, the gradient of `y` is
/// `scale * (gradient - mean(gradient) - z * mean(gradient * z))`.
fn norm_backward<B: ConvNormOps>(
    y: FloatTensor<B>,
    gradient: FloatTensor<B>,
    norm: &FloatTensor<B>,
    moments: &FloatTensor<B>,
    epsilon: f64,
    activation: Activation,
    wanted: bool,
) -> (Option<FloatTensor<B>>, FloatTensor<B>) {
    let [batch, _, length] = y.shape().dims();
    let [mean, deviation] = mean_and_deviation::<B>(moments, epsilon);
    let [scale, shift] = scale_and_shift::<B>(norm, moments, epsilon);
    let vectors = packed::<B, _>([scale.clone(), shift.clone()]);
    let [by_scale, by_beta] = rows::<B>(&B::norm_sums(y.clone(), gradient.clone(), vectors, activation));
    let by_gamma = B::float_sub(by_scale, B::float_mul(mean.clone(), by_beta.clone()));
    let by_gamma = B::float_div(by_gamma, deviation.clone());
    let blended = wanted.then(|| {
        let minus_scale = B::float_mul_scalar(scale.clone(), (-1.0 / (batch * length) as f64).into());
        let slope = B::float_mul(B::float_div(minus_scale.clone(), deviation), by_gamma.clone());
        let offset = B::float_sub(B::float_mul(minus_scale, by_beta.clone()), B::float_mul(slope.clone(), mean));
        B::norm_blend(y, gradient, packed::<B, _>([scale, shift, slope, offset]), activation)
    });
    (blended, packed::<B, _>([by_gamma, by_beta]))
}

/// Scale and shift of what goes in.
fn load_vectors<B: Backend>(
    load: &FloatTensor<B>,
    moments: &FloatTensor<B>,
    epsilon: Option<f64>,
) -> [FloatTensor<B>; 2] {
    match epsilon {
        Some(epsilon) => scale_and_shift::<B>(load, moments, epsilon),
        None => rows::<B>(load),
    }
}

fn convolved<B: ConvOps>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    [scale, shift]: &[FloatTensor<B>; 2],
    plan: Plan,
) -> FloatTensor<B> {
    // The plan asks for no bias and no residual.
    let (bias, residual) = (shift.clone(), x.clone());
    B::conv_forward(x, weight, scale.clone(), shift.clone(), bias, residual, plan)
}

/// What `norm`, gamma and beta, does to values of these `moments`, all `[2, C]`.
fn scale_and_shift<B: Backend>(norm: &FloatTensor<B>, moments: &FloatTensor<B>, epsilon: f64) -> [FloatTensor<B>; 2] {
    let [gamma, beta] = rows::<B>(norm);
    let [mean, deviation] = mean_and_deviation::<B>(moments, epsilon);
    let scale = B::float_div(gamma, deviation);
    let shift = B::float_sub(beta, B::float_mul(mean, scale.clone()));
    [scale, shift]
}

/// Mean and standard deviation of moments `[2, C]`.
fn mean_and_deviation<B: Backend>(moments: &FloatTensor<B>, epsilon: f64) -> [FloatTensor<B>; 2] {
    let [mean, variance] = rows::<B>(moments);
    [mean, B::float_sqrt(B::float_add_scalar(variance, epsilon.into()))]
}

/// The vectors of `[2, C]`.
fn rows<B: Backend>(packed: &FloatTensor<B>) -> [FloatTensor<B>; 2] {
    let channels = packed.shape()[1];
    [0, 1].map(|row| {
        let row = B::float_slice(packed.clone(), &[Slice::from(row..row + 1)]);
        B::float_reshape(row, Shape::from([channels]))
    })
}

/// `[N, C]` of vectors.
fn packed<B: Backend, const N: usize>(rows: [FloatTensor<B>; N]) -> FloatTensor<B> {
    let rows = rows.map(|row| {
        let channels = row.shape()[0];
        B::float_reshape(row, Shape::from([1, channels]))
    });
    B::float_cat(rows.into(), 0)
}
