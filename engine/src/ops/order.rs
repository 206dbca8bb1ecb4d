//! The order in which a backward pass visits the branches of a network.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Cube, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;

/// `x` as it is. The backward pass of everything made from the result is finished before that of `earlier` begins.
///
/// Burn goes back through parallel branches side by side, level by level, and holds the gradients of all of them at once.
/// A branch that begins with its input `after` the sum so far (which goes into the loss too) is done, and its memory free, before the next one starts.
pub fn after<const D: usize>(x: Tensor<D>, earlier: &Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::after(x.into_dispatch(), earlier.clone().into_dispatch()))
}

#[backend_extension(Cube, Flex, Autodiff)]
trait OrderOps: Backend {
    fn after(x: FloatTensor<Self>, earlier: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl OrderOps for Cube {
    fn after(x: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
        x
    }
}

impl OrderOps for Flex {
    fn after(x: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
        x
    }
}

impl<B: OrderOps, C: CheckpointStrategy> OrderOps for Autodiff<B, C> {
    fn after(x: FloatTensor<Self>, earlier: FloatTensor<Self>) -> FloatTensor<Self> {
        match AfterBackward.prepare::<C>([x.node(), earlier.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish((), x.into_primitive()),
            OpsKind::UnTracked(prepared) => prepared.finish(x.into_primitive()),
        }
    }
}

#[derive(Debug)]
struct AfterBackward;

impl<B: OrderOps> Backward<B, 2> for AfterBackward {
    type State = ();

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [x_node, _] = ops.parents;
        let gradient = gradients.consume::<B>(&ops.node);
        if let Some(node) = x_node {
            gradients.register::<B>(node.id, gradient);
        }
    }
}
