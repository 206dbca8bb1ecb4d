//! Convolution with 3x3 or 3x3x3 kernels that keeps the size of the grid: stride 1, padding equal to the dilation.
//!
//! On the CPU it is a direct convolution (see `cpu.rs`), because Burn's unrolls the input and spends most of a step of
//! LMSCNet copying; on a GPU it is Burn's.

mod cpu;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::ops::ModuleOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Tensor, TensorData};

use cpu::Shape;

/// `[B, in, D, H, W]` convolved with `weight` `[out, in, k, 3, 3]`, `k` 1 or 3, in PyTorch's layout: `[B, out, D, H, W]`.
///
/// `dilation` holds for every axis; outside the grid is zero. Differentiable in both.
///
/// # Panics
/// When channels or kernel do not fit; both are the network's own.
pub fn conv3x3(x: Tensor<5>, weight: Tensor<5>, dilation: usize) -> Tensor<5> {
    let [_, channels, k, 3, 3] = weight.dims() else { panic!("a kernel of {:?}, expected 3 wide", weight.dims()) };
    assert!(matches!(k, 1 | 3), "a kernel {k} deep, expected 1 or 3");
    assert_eq!(x.dims()[1], channels, "channels of input and kernel");
    Tensor::from_dispatch(Dispatch::conv3x3(x.into_dispatch(), weight.into_dispatch(), dilation))
}

#[backend_extension(Cube, Flex, Autodiff)]
trait Conv3x3Ops: Backend {
    fn conv3x3(x: FloatTensor<Self>, weight: FloatTensor<Self>, dilation: usize) -> FloatTensor<Self> {
        let options = options(&weight, dilation);
        Self::conv3d(x, weight, None, options)
    }

    /// Gradient of `x`, whose values do not matter.
    fn conv3x3_x_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        dilation: usize,
    ) -> FloatTensor<Self> {
        let options = options(&weight, dilation);
        Self::conv3d_x_backward(x, weight, gradient, options)
    }

    /// Gradient of `weight`, whose values do not matter.
    fn conv3x3_weight_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        dilation: usize,
    ) -> FloatTensor<Self> {
        let options = options(&weight, dilation);
        Self::conv3d_weight_backward(x, weight, gradient, options)
    }
}

fn options(weight: &impl TensorMetadata, dilation: usize) -> ConvOptions<3> {
    let dilations = [dilation; 3];
    let paddings = [weight.shape()[2] / 2 * dilation, dilation, dilation];
    ConvOptions::new([1; 3], paddings, dilations, 1)
}

impl Conv3x3Ops for Cube {}

impl Conv3x3Ops for Flex {
    fn conv3x3(x: FloatTensor<Self>, weight: FloatTensor<Self>, dilation: usize) -> FloatTensor<Self> {
        if x.dtype() != DType::F32 {
            let options = options(&weight, dilation);
            return Self::conv3d(x, weight, None, options);
        }
        let shape = Shape::new(&x, &weight, dilation);
        let (x, weight) = (x.to_contiguous(), weight.to_contiguous());
        tensor(cpu::forward(x.storage(), weight.storage(), shape), shape.output())
    }

    fn conv3x3_x_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        dilation: usize,
    ) -> FloatTensor<Self> {
        if x.dtype() != DType::F32 {
            let options = options(&weight, dilation);
            return Self::conv3d_x_backward(x, weight, gradient, options);
        }
        let shape = Shape::new(&x, &weight, dilation);
        let (gradient, weight) = (gradient.to_contiguous(), weight.to_contiguous());
        tensor(cpu::x_backward(weight.storage(), gradient.storage(), shape), shape.input())
    }

    fn conv3x3_weight_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        dilation: usize,
    ) -> FloatTensor<Self> {
        if x.dtype() != DType::F32 {
            let options = options(&weight, dilation);
            return Self::conv3d_weight_backward(x, weight, gradient, options);
        }
        let shape = Shape::new(&x, &weight, dilation);
        let (x, gradient) = (x.to_contiguous(), gradient.to_contiguous());
        tensor(cpu::weight_backward(x.storage(), gradient.storage(), shape), shape.weight())
    }
}

fn tensor(values: Vec<f32>, shape: [usize; 5]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

impl<B: Conv3x3Ops, C: CheckpointStrategy> Conv3x3Ops for Autodiff<B, C> {
    fn conv3x3(x: FloatTensor<Self>, weight: FloatTensor<Self>, dilation: usize) -> FloatTensor<Self> {
        match Conv3x3Backward.prepare::<C>([x.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (x, weight) = (x.primitive().clone(), weight.primitive().clone());
                let out = B::conv3x3(x.clone(), weight.clone(), dilation);
                prepared.finish((x, weight, dilation), out)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(B::conv3x3(x.into_primitive(), weight.into_primitive(), dilation))
            }
        }
    }
}

#[derive(Debug)]
struct Conv3x3Backward;

impl<B: Conv3x3Ops> Backward<B, 2> for Conv3x3Backward {
    type State = (FloatTensor<B>, FloatTensor<B>, usize);

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [x_node, weight_node] = ops.parents;
        let gradient = gradients.consume::<B>(&ops.node);
        let (x, weight, dilation) = ops.state;
        if let Some(node) = x_node {
            let x_gradient = B::conv3x3_x_backward(x.clone(), weight.clone(), gradient.clone(), dilation);
            gradients.register::<B>(node.id, x_gradient);
        }
        if let Some(node) = weight_node {
            gradients.register::<B>(node.id, B::conv3x3_weight_backward(x, weight, gradient, dilation));
        }
    }
}
