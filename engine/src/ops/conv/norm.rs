//! A convolution, the batch normalisation of what it gives, and the sum with a residual, as one operation.
//!
//! The normalisation needs all of the convolution's output before it knows the statistics, and its derivative needs the
//! output once more. It is not kept for that: the backward pass convolves again. That costs a third of the convolution's
//! own time and saves a tensor as large as its output.

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
use crate::ops::moments::MomentsOps;
use crate::{Error, Result};

/// `residual + gamma[c] (y - mean[c]) / sqrt(variance[c] + epsilon) + beta[c]`, with `y` the convolution of `prologue(x)`,
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
    prologue: Prologue,
    norm: [Tensor<1>; 2],
    epsilon: f64,
    residual: Tensor<5>,
) -> Result<(Tensor<5>, Tensor<2>)> {
    let arguments = Arguments::new(x, weight, options, prologue, norm, residual)?;
    let Arguments { x, weight, load, norm, residual, plan } = arguments;
    let (y, moments) = Dispatch::conv_norm(x, weight, load, norm, residual, plan, epsilon);
    Ok((Tensor::from_dispatch(y), Tensor::from_dispatch(moments)))
}

/// The result of [`conv_norm`] for those who need its gradient and not its value: nothing is computed before the backward
/// pass, and what comes out reads as zeros. `moments` are those that [`conv_norm`] gave for the same arguments.
///
/// # Errors
/// As [`conv_norm`].
pub fn conv_norm_again(
    x: Tensor<5>,
    weight: Tensor<5>,
    options: &ConvOptions,
    prologue: Prologue,
    norm: [Tensor<1>; 2],
    epsilon: f64,
    residual: Tensor<5>,
    moments: Tensor<2>,
) -> Result<Tensor<5>> {
    let arguments = Arguments::new(x, weight, options, prologue, norm, residual)?;
    let Arguments { x, weight, load, norm, residual, plan } = arguments;
    let moments = moments.into_dispatch();
    Ok(Tensor::from_dispatch(Dispatch::conv_norm_again(x, weight, load, norm, residual, moments, plan, epsilon)))
}

/// What a backend is given, checked.
struct Arguments {
    x: DispatchTensor,
    weight: DispatchTensor,
    load: DispatchTensor,
    norm: DispatchTensor,
    residual: DispatchTensor,
    plan: Plan,
}

impl Arguments {
    fn new(
        x: Tensor<5>,
        weight: Tensor<5>,
        options: &ConvOptions,
        prologue: Prologue,
        [gamma, beta]: [Tensor<1>; 2],
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
        let load = pack(["a scale", "a shift"], [prologue.scale, prologue.shift], geometry.channels_in)?;
        let norm = pack(["a gamma", "a beta"], [gamma, beta], geometry.channels_out)?;
        let epilogue = Epilogue { residual: Some(residual.clone()), ..Epilogue::default() };
        checked_epilogue(epilogue, geometry.output(), operation, x.dtype())?;
        let plan = Plan { geometry, load: Some(Load { activation: prologue.activation }), store: Store::default() };
        let (x, weight, residual) = (x.into_dispatch(), weight.into_dispatch(), residual.into_dispatch());
        Ok(Self { x, weight, load, norm, residual, plan })
    }
}

#[backend_extension(Cube, Flex, Autodiff)]
trait ConvNormOps: Backend + ConvOps + AffineOps + ChannelSumsOps + MomentsOps {
    /// The sum and the moments, `[2, C]`. `load`: scale and shift, `[2, in]`; `norm`: gamma and beta, `[2, out]`. The
    /// plan has a prologue and no epilogue.
    fn conv_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        load: FloatTensor<Self>,
        norm: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        plan: Plan,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let y = channels::<Self>(convolved::<Self>(x, weight, &load, plan));
        let moments = Self::channel_moments(y.clone());
        let [gamma, beta] = rows::<Self>(&norm);
        let [mean, inverse] = mean_and_inverse::<Self>(&moments, epsilon);
        let scale = Self::float_mul(gamma, inverse);
        let shift = Self::float_sub(beta, Self::float_mul(mean, scale.clone()));
        let sum = Self::affine_add(y, scale, shift, channels::<Self>(residual), Activation::Identity);
        (Self::float_reshape(sum, Shape::from(plan.geometry.output())), moments)
    }

    /// A view of one zero, in the shape of the sum.
    fn conv_norm_again(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        load: FloatTensor<Self>,
        norm: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        plan: Plan,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let _ = (weight, load, norm, residual, moments, epsilon);
        let first = [0..1, 0..1, 0..1, 0..1, 0..1].map(Slice::from);
        let zero = Self::float_mul_scalar(Self::float_slice(x, &first), 0.0.into());
        Self::float_expand(zero, Shape::from(plan.geometry.output()))
    }
}

impl ConvNormOps for Cube {}

impl ConvNormOps for Flex {}

impl<B: ConvNormOps, C: CheckpointStrategy> ConvNormOps for Autodiff<B, C> {
    fn conv_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        load: FloatTensor<Self>,
        norm: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        plan: Plan,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let nodes = [x.node(), weight.node(), load.node(), norm.node(), residual.node()];
        let (x, weight, residual) = (x.into_primitive(), weight.into_primitive(), residual.into_primitive());
        let (load, norm) = (load.into_primitive(), norm.into_primitive());
        match ConvNormBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let kept = [x.clone(), weight.clone(), load.clone(), norm.clone()];
                let (y, moments) = B::conv_norm(x, weight, load, norm, residual, plan, epsilon);
                let y = prepared.finish((kept, moments.clone(), plan, epsilon), y);
                (y, Self::from_inner(moments))
            }
            OpsKind::UnTracked(prepared) => {
                let (y, moments) = B::conv_norm(x, weight, load, norm, residual, plan, epsilon);
                (prepared.finish(y), Self::from_inner(moments))
            }
        }
    }

    fn conv_norm_again(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        load: FloatTensor<Self>,
        norm: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        plan: Plan,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let nodes = [x.node(), weight.node(), load.node(), norm.node(), residual.node()];
        let (x, weight, residual) = (x.into_primitive(), weight.into_primitive(), residual.into_primitive());
        let (load, norm, moments) = (load.into_primitive(), norm.into_primitive(), moments.into_primitive());
        let kept = [x.clone(), weight.clone(), load.clone(), norm.clone()];
        let y = B::conv_norm_again(x, weight, load, norm, residual, moments.clone(), plan, epsilon);
        match ConvNormBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish((kept, moments, plan, epsilon), y),
            OpsKind::UnTracked(prepared) => prepared.finish(y),
        }
    }
}

#[derive(Debug)]
struct ConvNormBackward;

impl<B: ConvNormOps> Backward<B, 5> for ConvNormBackward {
    /// x, weight, load, norm; moments; plan; epsilon.
    type State = ([FloatTensor<B>; 4], FloatTensor<B>, Plan, f64);

    fn backward(self, ops: Ops<Self::State, 5>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [x_node, weight_node, load_node, norm_node, residual_node] = ops.parents;
        let ([x, weight, load, norm], moments, plan, epsilon) = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        if let Some(node) = residual_node {
            gradients.register::<B>(node.id, gradient.clone());
        }
        let [gamma, _] = rows::<B>(&norm);
        let [mean, inverse] = mean_and_inverse::<B>(&moments, epsilon);
        let scale = B::float_mul(gamma, inverse.clone());
        let y = channels::<B>(convolved::<B>(x.clone(), weight.clone(), &load, plan));
        let (scaled, by_scale, by_beta) =
            B::affine_backward(y.clone(), scale.clone(), scale.clone(), Activation::Identity, channels::<B>(gradient));

        // With z = (y - mean) * inverse, whose mean is 0 and mean square nearly 1, and means over the n voxels of a
        // channel: the gradient of y is scale * (gradient - mean(gradient) - z * mean(gradient * z)).
        let by_gamma = B::float_sub(by_scale, B::float_mul(mean.clone(), by_beta.clone()));
        let by_gamma = B::float_mul(by_gamma, inverse.clone());
        let minus_scale = B::float_mul_scalar(scale, (-1.0 / voxels(&plan)).into());
        let slope = B::float_mul(B::float_mul(minus_scale.clone(), inverse), by_gamma.clone());
        let offset = B::float_sub(B::float_mul(minus_scale, by_beta.clone()), B::float_mul(slope.clone(), mean));
        let y_gradient = B::affine_add(y, slope, offset, scaled, Activation::Identity);
        let y_gradient = B::float_reshape(y_gradient, Shape::from(plan.geometry.output()));

        if let Some(node) = norm_node {
            gradients.register::<B>(node.id, packed::<B>([by_gamma, by_beta]));
        }
        let vectors = rows::<B>(&load);
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
        let [x_gradient, by_scale, by_shift] = loaded_backward::<B>(x, vectors, activation, loaded);
        if let Some(node) = x_node {
            gradients.register::<B>(node.id, x_gradient);
        }
        if let Some(node) = load_node {
            gradients.register::<B>(node.id, packed::<B>([by_scale, by_shift]));
        }
    }
}

fn convolved<B: ConvOps>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    load: &FloatTensor<B>,
    plan: Plan,
) -> FloatTensor<B> {
    let [scale, shift] = rows::<B>(load);
    // The plan asks for no bias and no residual.
    let (bias, residual) = (shift.clone(), x.clone());
    B::conv_forward(x, weight, scale, shift, bias, residual, plan)
}

/// Voxels that a channel is normalised over.
fn voxels(plan: &Plan) -> f64 {
    (plan.geometry.batch * plan.geometry.volume_out()) as f64
}

/// Mean, and one over the standard deviation, of moments `[2, C]`.
fn mean_and_inverse<B: Backend>(moments: &FloatTensor<B>, epsilon: f64) -> [FloatTensor<B>; 2] {
    let [mean, variance] = rows::<B>(moments);
    [mean, B::float_recip(B::float_sqrt(B::float_add_scalar(variance, epsilon.into())))]
}

/// The vectors of `[2, C]`.
fn rows<B: Backend>(packed: &FloatTensor<B>) -> [FloatTensor<B>; 2] {
    let channels = packed.shape()[1];
    [0, 1].map(|row| {
        let row = B::float_slice(packed.clone(), &[Slice::from(row..row + 1)]);
        B::float_reshape(row, Shape::from([channels]))
    })
}

/// `[2, C]` of vectors.
fn packed<B: Backend>(rows: [FloatTensor<B>; 2]) -> FloatTensor<B> {
    let rows = rows.map(|row| {
        let channels = row.shape()[0];
        B::float_reshape(row, Shape::from([1, channels]))
    });
    B::float_cat(rows.into(), 0)
}
