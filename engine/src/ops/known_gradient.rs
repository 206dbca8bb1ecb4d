//! A number that was computed together with its gradient.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{Shape, Tensor};

/// `value`, `[1]`, as a function of `x` with this `gradient`, of the shape of `x`; both without autodiff. Keeps the
/// gradient only.
pub fn known_gradient<const D: usize>(x: Tensor<D>, value: Tensor<1>, gradient: Tensor<D>) -> Tensor<1> {
    let (x, value, gradient) = (x.into_dispatch(), value.into_dispatch(), gradient.into_dispatch());
    Tensor::from_dispatch(Dispatch::known_gradient(x, value, gradient))
}

#[backend_extension(Cube, Flex, Autodiff)]
trait KnownGradientOps: Backend {
    fn known_gradient(x: FloatTensor<Self>, value: FloatTensor<Self>, gradient: FloatTensor<Self>)
    -> FloatTensor<Self>;
}

impl KnownGradientOps for Cube {
    fn known_gradient(_: FloatTensor<Self>, value: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
        value
    }
}

impl KnownGradientOps for Flex {
    fn known_gradient(_: FloatTensor<Self>, value: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
        value
    }
}

impl<B: KnownGradientOps, C: CheckpointStrategy> KnownGradientOps for Autodiff<B, C> {
    fn known_gradient(
        x: FloatTensor<Self>,
        value: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        match KnownGradientBackward.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(gradient.into_primitive(), value.into_primitive()),
            OpsKind::UnTracked(prepared) => prepared.finish(value.into_primitive()),
        }
    }
}

#[derive(Debug)]
struct KnownGradientBackward;

impl<B: KnownGradientOps> Backward<B, 1> for KnownGradientBackward {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [node] = ops.parents;
        let upstream = gradients.consume::<B>(&ops.node);
        let gradient = ops.state;
        if let Some(node) = node {
            let factor = B::float_reshape(upstream, Shape::from(vec![1; gradient.rank()]));
            gradients.register::<B>(node.id, B::float_mul(gradient, factor));
        }
    }
}
