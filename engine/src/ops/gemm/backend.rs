//! The operation as Burn knows it, and its gradients.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, Backend, Cube, Flex, TensorMetadata, backend_extension};
use burn::tensor::Shape;

use super::Layout;
use super::plan::Spec;
use super::{cube, flex};
use crate::ops::Activation;
use crate::ops::activation::ReluOps;
use crate::ops::channel_sums::ChannelSumsOps;

/// Arguments are checked by the public function.
#[backend_extension(Cube, Flex, Autodiff)]
pub(super) trait GemmOps: Backend {
    /// `[B, M, N]`. The bias is f32. Without bias or residual, by `spec`, any tensor stands in its place.
    fn gemm(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        spec: Spec,
    ) -> FloatTensor<Self>;
}

impl GemmOps for Cube {
    fn gemm(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        spec: Spec,
    ) -> FloatTensor<Self> {
        cube::gemm(a, b, bias, residual, spec)
    }
}

impl GemmOps for Flex {
    fn gemm(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        spec: Spec,
    ) -> FloatTensor<Self> {
        flex::gemm(&a, &b, &bias, &residual, spec)
    }
}

impl<B: GemmOps + ReluOps + ChannelSumsOps, C: CheckpointStrategy> GemmOps for Autodiff<B, C> {
    fn gemm(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        spec: Spec,
    ) -> FloatTensor<Self> {
        let parents = [a.node(), b.node(), bias.node(), residual.node()];
        let (a_tracked, b_tracked) = (a.is_tracked(), b.is_tracked());
        match GemmBackward.prepare::<C>(parents).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (a, b) = (a.into_primitive(), b.into_primitive());
                let shapes = [a.shape(), b.shape()];
                // Each operand's gradient needs the other.
                let kept = [b_tracked.then(|| a.clone()), a_tracked.then(|| b.clone())];
                let y = B::gemm(a, b, bias.into_primitive(), residual.into_primitive(), spec);
                let bits = (spec.activation == Activation::Relu).then(|| B::relu_bits(y.clone()));
                prepared.finish(Kept { operands: kept, shapes, bits, spec }, y)
            }
            OpsKind::UnTracked(prepared) => {
                let [a, b, bias, residual] = [a, b, bias, residual].map(FloatTensor::<Self>::into_primitive);
                prepared.finish(B::gemm(a, b, bias, residual, spec))
            }
        }
    }
}

/// What backward needs of a product.
#[derive(Debug, Clone)]
struct Kept<B: Backend> {
    /// `a` and `b`.
    operands: [Option<FloatTensor<B>>; 2],
    shapes: [Shape; 2],
    /// Where ReLU let values pass.
    bits: Option<IntTensor<B>>,
    spec: Spec,
}

#[derive(Debug)]
struct GemmBackward;

impl<B: GemmOps + ReluOps + ChannelSumsOps> Backward<B, 4> for GemmBackward {
    type State = Kept<B>;

    fn backward(self, ops: Ops<Self::State, 4>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [a_node, b_node, bias_node, residual_node] = ops.parents;
        let gradient = gradients.consume::<B>(&ops.node);
        let Kept { operands: [a, b], shapes: [a_shape, b_shape], bits, spec } = ops.state;
        let gradient = match bits {
            Some(bits) => B::relu_bits_apply(gradient, bits),
            None => gradient,
        };
        let batch = gradient.shape()[0];
        // Layouts are exchanged, nothing is transposed in memory: of y = a b, the gradients are g bᵀ and aᵀ g, and
        // where an operand lies transposed, so does its gradient: b gᵀ and gᵀ a.
        let product = |left: FloatTensor<B>, right: FloatTensor<B>, layouts: [Layout; 2], shape: &Shape| {
            // A matrix that served the whole batch gets the sum over it.
            let spec = Spec::plain(layouts[0], layouts[1], batch != 1 && shape[0] == 1);
            B::gemm(left.clone(), right, left.clone(), left, spec)
        };
        let normal = Layout::Normal;
        if let (Some(node), Some(b)) = (a_node, b) {
            let a_gradient = match spec.a {
                Layout::Normal => product(gradient.clone(), b, [normal, spec.b.flipped()], &a_shape),
                Layout::Transposed => product(b, gradient.clone(), [spec.b, Layout::Transposed], &a_shape),
            };
            gradients.register::<B>(node.id, a_gradient);
        }
        if let (Some(node), Some(a)) = (b_node, a) {
            let b_gradient = match spec.b {
                Layout::Normal => product(a, gradient.clone(), [spec.a.flipped(), normal], &b_shape),
                Layout::Transposed => product(gradient.clone(), a, [Layout::Transposed, spec.a], &b_shape),
            };
            gradients.register::<B>(node.id, b_gradient);
        }
        // In the place of an absent bias or residual stands `a`.
        if let (Some(node), true) = (bias_node, spec.bias) {
            let [batch, m, n] = [0, 1, 2].map(|axis| gradient.shape()[axis]);
            let columns = B::float_reshape(gradient.clone(), [batch * m, n, 1].into());
            gradients.register::<B>(node.id, B::channel_sums(columns));
        }
        if let (Some(node), true) = (residual_node, spec.residual) {
            gradients.register::<B>(node.id, gradient);
        }
    }
}
