//! Derivatives of the convolutions.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend, TensorMetadata};
use burn::tensor::{FloatDType, Shape};

use super::backend::{ConvOps, Load, Plan, Store};
use crate::ops::Activation;

/// What the backward pass of a convolution needs, and of that only what the tracked operands need.
#[derive(Debug, Clone)]
struct Kept<B: Backend> {
    /// What goes in, as it came.
    x: Option<FloatTensor<B>>,
    weight: Option<FloatTensor<B>>,
    /// Scale and shift.
    load: Option<[FloatTensor<B>; 2]>,
    /// Of a ReLU before storing.
    positive: Option<FloatTensor<B>>,
    plan: Plan,
}

impl<B: ConvOps, C: CheckpointStrategy> ConvOps for Autodiff<B, C> {
    fn conv_forward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self> {
        let nodes = [x.node(), weight.node(), scale.node(), shift.node(), bias.node(), residual.node()];
        let loads = plan.load.is_some();
        let load_tracked = loads && (scale.is_tracked() || shift.is_tracked());
        let (x_tracked, weight_tracked) = (x.is_tracked(), weight.is_tracked());
        let forward = |x, weight, scale, shift, bias: FloatTensor<Self>, residual: FloatTensor<Self>| {
            B::conv_forward(x, weight, scale, shift, bias.into_primitive(), residual.into_primitive(), plan)
        };
        match ConvBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (x, weight) = (x.into_primitive(), weight.into_primitive());
                let (scale, shift) = (scale.into_primitive(), shift.into_primitive());
                let y = forward(x.clone(), weight.clone(), scale.clone(), shift.clone(), bias, residual);
                let kept = Kept {
                    positive: positive::<B>(&y, &plan),
                    // The derivative of a prologue reads x too, that of its ReLU even when nothing else does.
                    x: (weight_tracked || load_tracked || loads && x_tracked).then_some(x),
                    weight: (x_tracked || load_tracked).then_some(weight),
                    load: loads.then_some([scale, shift]),
                    plan,
                };
                prepared.finish(kept, y)
            }
            OpsKind::UnTracked(prepared) => {
                let (x, weight) = (x.into_primitive(), weight.into_primitive());
                let y = forward(x, weight, scale.into_primitive(), shift.into_primitive(), bias, residual);
                prepared.finish(y)
            }
        }
    }

    fn conv_input_gradient(
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self> {
        let nodes = [weight.node(), gradient.node(), bias.node(), residual.node()];
        let (weight_tracked, x_tracked) = (weight.is_tracked(), gradient.is_tracked());
        let transposed = |weight, x, bias: FloatTensor<Self>, residual: FloatTensor<Self>| {
            B::conv_input_gradient(weight, x, bias.into_primitive(), residual.into_primitive(), plan)
        };
        match TransposedBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (weight, x) = (weight.into_primitive(), gradient.into_primitive());
                let y = transposed(weight.clone(), x.clone(), bias, residual);
                let kept = Kept {
                    positive: positive::<B>(&y, &plan),
                    x: weight_tracked.then_some(x),
                    weight: x_tracked.then_some(weight),
                    load: None,
                    plan,
                };
                prepared.finish(kept, y)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(transposed(weight.into_primitive(), gradient.into_primitive(), bias, residual))
            }
        }
    }

    /// The gradient is a constant: second derivatives are not taken.
    fn conv_weight_gradient(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self> {
        let (x, gradient) = (x.into_primitive(), gradient.into_primitive());
        let (scale, shift) = (scale.into_primitive(), shift.into_primitive());
        Self::from_inner(B::conv_weight_gradient(x, gradient, scale, shift, plan))
    }
}

#[derive(Debug)]
struct ConvBackward;

impl<B: ConvOps> Backward<B, 6> for ConvBackward {
    type State = Kept<B>;

    fn backward(self, ops: Ops<Self::State, 6>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [x_node, weight_node, scale_node, shift_node, bias_node, residual_node] = ops.parents;
        let Kept { x, weight, load, positive, plan } = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        let gradient = stored_backward::<B>(gradient, positive);
        // Tensors that the plan does not ask for stand for nothing, tracked or not.
        let [scale_node, shift_node] = [scale_node, shift_node].map(|node| node.filter(|_| plan.load.is_some()));
        if let Some(node) = bias_node.filter(|_| plan.store.bias) {
            gradients.register::<B>(node.id, channel_sums::<B>(gradient.clone()));
        }
        if let Some(node) = residual_node.filter(|_| plan.store.residual) {
            gradients.register::<B>(node.id, gradient.clone());
        }
        if let (Some(node), Some(x)) = (weight_node, &x) {
            let [scale, shift] = load.clone().unwrap_or_else(|| [x.clone(), x.clone()]);
            let weight_gradient = B::conv_weight_gradient(x.clone(), gradient.clone(), scale, shift, plan);
            gradients.register::<B>(node.id, weight_gradient);
        }
        let Some(weight) = weight.filter(|_| x_node.is_some() || scale_node.is_some() || shift_node.is_some()) else {
            return;
        };
        let bare = Plan { load: None, store: Store::default(), ..plan };
        let x_gradient = B::conv_input_gradient(weight, gradient.clone(), gradient.clone(), gradient, bare);
        let (Some([scale, shift]), Some(Load { activation }), Some(x)) = (load, plan.load, x) else {
            if let Some(node) = x_node {
                gradients.register::<B>(node.id, x_gradient);
            }
            return;
        };
        let parts = loaded_backward::<B>(x, scale, shift, activation, x_gradient);
        for (node, part) in [x_node, scale_node, shift_node].into_iter().zip(parts) {
            if let Some(node) = node {
                gradients.register::<B>(node.id, part);
            }
        }
    }
}

#[derive(Debug)]
struct TransposedBackward;

impl<B: ConvOps> Backward<B, 4> for TransposedBackward {
    type State = Kept<B>;

    fn backward(self, ops: Ops<Self::State, 4>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [weight_node, x_node, bias_node, residual_node] = ops.parents;
        let Kept { x, weight, positive, plan, .. } = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        let gradient = stored_backward::<B>(gradient, positive);
        if let Some(node) = bias_node.filter(|_| plan.store.bias) {
            gradients.register::<B>(node.id, channel_sums::<B>(gradient.clone()));
        }
        if let Some(node) = residual_node.filter(|_| plan.store.residual) {
            gradients.register::<B>(node.id, gradient.clone());
        }
        let bare = Plan { store: Store::default(), ..plan };
        // The convolution whose gradient this operation is: its input is our output, and the other way round.
        if let (Some(node), Some(x)) = (weight_node, x) {
            let (scale, shift) = (gradient.clone(), gradient.clone());
            let weight_gradient = B::conv_weight_gradient(gradient.clone(), x, scale, shift, bare);
            gradients.register::<B>(node.id, weight_gradient);
        }
        if let (Some(node), Some(weight)) = (x_node, weight) {
            let any = || gradient.clone();
            let x_gradient = B::conv_forward(any(), weight, any(), any(), any(), any(), bare);
            gradients.register::<B>(node.id, x_gradient);
        }
    }
}

fn positive<B: Backend>(y: &FloatTensor<B>, plan: &Plan) -> Option<FloatTensor<B>> {
    (plan.store.activation == Activation::Relu).then(|| B::float_sign(B::float_clamp_min(y.clone(), 0.0.into())))
}

/// The gradient before the activation.
fn stored_backward<B: Backend>(gradient: FloatTensor<B>, positive: Option<FloatTensor<B>>) -> FloatTensor<B> {
    match positive {
        Some(positive) => B::float_mul(gradient, positive),
        None => gradient,
    }
}

fn channel_sums<B: Backend>(gradient: FloatTensor<B>) -> FloatTensor<B> {
    let channels = gradient.shape()[1];
    let gradient = B::float_cast(gradient, FloatDType::F32);
    let sums = [0, 2, 3, 4].into_iter().fold(gradient, |sums, dim| B::float_sum_dim(sums, dim));
    B::float_reshape(sums, Shape::from([channels]))
}

/// Gradients of x, scale and shift from that of what was loaded.
fn loaded_backward<B: Backend>(
    x: FloatTensor<B>,
    scale: FloatTensor<B>,
    shift: FloatTensor<B>,
    activation: Activation,
    gradient: FloatTensor<B>,
) -> [FloatTensor<B>; 3] {
    let dtype = x.dtype();
    let channels = x.shape()[1];
    let vector = |v: FloatTensor<B>| B::float_reshape(v, Shape::from([1, channels, 1, 1, 1]));
    let (scale, shift) = (vector(scale), vector(shift));
    let x = B::float_cast(x, FloatDType::F32);
    let mut gradient = B::float_cast(gradient, FloatDType::F32);
    if activation == Activation::Relu {
        let before = B::float_add(B::float_mul(x.clone(), scale.clone()), shift);
        gradient = B::float_mul(gradient, B::float_sign(B::float_clamp_min(before, 0.0.into())));
    }
    let x_gradient = B::float_cast(B::float_mul(gradient.clone(), scale), dtype.into());
    [x_gradient, channel_sums::<B>(B::float_mul(gradient.clone(), x)), channel_sums::<B>(gradient)]
}
