//! A number that was computed together with its gradient.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{FloatDType, Shape, Tensor};

/// `value`, `[1]`, as a function of `x` with this `gradient`, of the shape of `x`; both without autodiff. Keeps the
/// gradient only.
pub fn known_gradient<const D: usize>(x: Tensor<D>, value: Tensor<1>, gradient: Tensor<D>) -> Tensor<1> {
    let (x, value, gradient) = (x.into_dispatch(), value.into_dispatch(), gradient.into_dispatch());
    Tensor::from_dispatch(Dispatch::known_gradient(x, value, gradient))
}

/// A number, 0, whose derivative by `x` is `gradient`, of the shape of `x` and without autodiff: a backward pass from it
/// goes on where another one stopped. `gradient` is not copied; nothing may come after the number but sums.
pub fn inject<const D: usize>(x: Tensor<D>, gradient: Tensor<D>) -> Tensor<1> {
    let zero = Tensor::<1>::zeros([1], &gradient.device());
    Tensor::from_dispatch(Dispatch::inject(x.into_dispatch(), zero.into_dispatch(), gradient.into_dispatch()))
}

/// `x` for those who need its place in the graph and not its value: takes no memory and reads as zeros. Its gradient is that
/// of `x`, so that [`inject`] can go back through `x` when its value is gone.
pub fn hollow<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::hollow(x.into_dispatch()))
}

#[backend_extension(Cube, Flex, Autodiff)]
trait KnownGradientOps: Backend {
    fn known_gradient(x: FloatTensor<Self>, value: FloatTensor<Self>, gradient: FloatTensor<Self>)
    -> FloatTensor<Self>;

    /// `[1]`; `zero` as it is.
    fn inject(x: FloatTensor<Self>, zero: FloatTensor<Self>, gradient: FloatTensor<Self>) -> FloatTensor<Self>;

    /// A view of one zero, in the shape of `x`.
    fn hollow(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let (device, dtype) = (x.device(), FloatDType::from(x.dtype()));
        let zero = Self::float_zeros(Shape::from(vec![1; x.rank()]), &device, dtype);
        Self::float_expand(zero, x.shape())
    }
}

impl KnownGradientOps for Cube {
    fn inject(_: FloatTensor<Self>, zero: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
        zero
    }

    fn known_gradient(_: FloatTensor<Self>, value: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
        value
    }
}

impl KnownGradientOps for Flex {
    fn inject(_: FloatTensor<Self>, zero: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
        zero
    }

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

    fn inject(x: FloatTensor<Self>, zero: FloatTensor<Self>, gradient: FloatTensor<Self>) -> FloatTensor<Self> {
        match InjectBackward.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(gradient.into_primitive(), zero.into_primitive()),
            OpsKind::UnTracked(prepared) => prepared.finish(zero.into_primitive()),
        }
    }

    fn hollow(x: FloatTensor<Self>) -> FloatTensor<Self> {
        match HollowBackward.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish((), B::hollow(x.into_primitive())),
            OpsKind::UnTracked(prepared) => prepared.finish(B::hollow(x.into_primitive())),
        }
    }
}

#[derive(Debug)]
struct HollowBackward;

impl<B: KnownGradientOps> Backward<B, 1> for HollowBackward {
    type State = ();

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [node] = ops.parents;
        let gradient = gradients.consume::<B>(&ops.node);
        if let Some(node) = node {
            gradients.register::<B>(node.id, gradient);
        }
    }
}

#[derive(Debug)]
struct InjectBackward;

impl<B: KnownGradientOps> Backward<B, 1> for InjectBackward {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [node] = ops.parents;
        gradients.consume::<B>(&ops.node);
        if let Some(node) = node {
            gradients.register::<B>(node.id, ops.state);
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
