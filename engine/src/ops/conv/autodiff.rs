//! Derivatives of the convolutions.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, AutodiffBackend, Backend, TensorMetadata};
use burn::tensor::Shape;

use super::backend::{ConvOps, Load, Plan, Store};
use crate::ops::Activation;
use crate::ops::activation::ReluOps;
use crate::ops::affine::AffineOps;
use crate::ops::channel_sums::ChannelSumsOps;

/// What a device needs for the derivatives.
pub trait Inner: ConvOps + AffineOps + ChannelSumsOps {}
impl<B: ConvOps + AffineOps + ChannelSumsOps> Inner for B {}

/// What the backward pass of a convolution needs, and of that only what the tracked operands need.
#[derive(Debug, Clone)]
struct Kept<B: Backend> {
    /// What goes in, as it came.
    x: Option<FloatTensor<B>>,
    weight: Option<FloatTensor<B>>,
    /// Scale and shift.
    load: Option<[FloatTensor<B>; 2]>,
    /// Of a ReLU before storing, one bit a voxel.
    positive: Option<IntTensor<B>>,
    plan: Plan,
}

impl<B: Inner, C: CheckpointStrategy> ConvOps for Autodiff<B, C> {
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

impl<B: Inner> Backward<B, 6> for ConvBackward {
    type State = Kept<B>;

    fn backward(self, ops: Ops<Self::State, 6>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [x_node, weight_node, scale_node, shift_node, bias_node, residual_node] = ops.parents;
        let Kept { x, weight, load, positive, plan } = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        let gradient = stored_backward::<B>(gradient, positive);
        // Tensors that the plan does not ask for stand for nothing, tracked or not.
        let [scale_node, shift_node] = [scale_node, shift_node].map(|node| node.filter(|_| plan.load.is_some()));
        if let Some(node) = bias_node.filter(|_| plan.store.bias) {
            gradients.register::<B>(node.id, B::channel_sums(channels::<B>(gradient.clone())));
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
        let (Some(vectors), Some(Load { activation }), Some(x)) = (load, plan.load, x) else {
            if let Some(node) = x_node {
                gradients.register::<B>(node.id, x_gradient);
            }
            return;
        };
        let parts = loaded_backward::<B>(x, vectors, activation, x_gradient);
        for (node, part) in [x_node, scale_node, shift_node].into_iter().zip(parts) {
            if let Some(node) = node {
                gradients.register::<B>(node.id, part);
            }
        }
    }
}

#[derive(Debug)]
struct TransposedBackward;

impl<B: Inner> Backward<B, 4> for TransposedBackward {
    type State = Kept<B>;

    fn backward(self, ops: Ops<Self::State, 4>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [weight_node, x_node, bias_node, residual_node] = ops.parents;
        let Kept { x, weight, positive, plan, .. } = ops.state;
        let gradient = gradients.consume::<B>(&ops.node);
        let gradient = stored_backward::<B>(gradient, positive);
        if let Some(node) = bias_node.filter(|_| plan.store.bias) {
            gradients.register::<B>(node.id, B::channel_sums(channels::<B>(gradient.clone())));
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

/// Where the gradient passes the ReLU before storing, if there is one.
fn positive<B: ReluOps>(y: &FloatTensor<B>, plan: &Plan) -> Option<IntTensor<B>> {
    (plan.store.activation == Activation::Relu).then(|| B::relu_bits(y.clone()))
}

/// The gradient before the activation.
fn stored_backward<B: ReluOps>(gradient: FloatTensor<B>, positive: Option<IntTensor<B>>) -> FloatTensor<B> {
    match positive {
        Some(bits) => B::relu_bits_apply(gradient, bits),
        None => gradient,
    }
}

/// `[B, C, D, H, W]` as `[B, C, D H W]`.
pub(super) fn channels<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    let [batch, channels, d, h, w] = tensor.shape().dims();
    B::float_reshape(tensor, Shape::from([batch, channels, d * h * w]))
}

/// Gradients of x, scale and shift from that of what was loaded.
pub(super) fn loaded_backward<B: AffineOps>(
    x: FloatTensor<B>,
    [scale, shift]: [FloatTensor<B>; 2],
    activation: Activation,
    gradient: FloatTensor<B>,
) -> [FloatTensor<B>; 3] {
    let shape = x.shape();
    let (x, gradient) = (channels::<B>(x), channels::<B>(gradient));
    let (by_x, by_scale, by_shift) = B::affine_backward(x, scale, shift, activation, gradient);
    [B::float_reshape(by_x, shape), by_scale, by_shift]
}
