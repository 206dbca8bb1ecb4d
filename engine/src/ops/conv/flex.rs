//! The convolutions of Burn's CPU backend: `cpu/` on its tensors.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use half::f16;

use super::backend::{ConvOps, Plan};
use super::cpu::{self, Element, LoadAs, StoreAs};
use crate::ops::Activation;
use crate::ops::element::{Element as Stored, tensor};

/// Calls a generic function for the type of a tensor.
macro_rules! by_dtype {
    ($tensor:expr, $function:ident($($argument:expr),*)) => {
        match $tensor.dtype() {
            DType::F16 => $function::<f16>($($argument),*),
            _ => $function::<f32>($($argument),*),
        }
    };
}

impl ConvOps for Flex {
    fn conv_forward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self> {
        by_dtype!(x, forward(&x, &weight, [&scale, &shift, &bias, &residual], &plan))
    }

    fn conv_input_gradient(
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self> {
        by_dtype!(gradient, input_gradient(&weight, &gradient, [&bias, &residual], &plan))
    }

    fn conv_weight_gradient(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self> {
        by_dtype!(x, weight_gradient(&x, &gradient, [&scale, &shift], &plan))
    }
}

fn forward<T: Element + Stored>(
    x: &FlexTensor,
    weight: &FlexTensor,
    [scale, shift, bias, residual]: [&FlexTensor; 4],
    plan: &Plan,
) -> FlexTensor {
    let (x, weight) = (x.to_contiguous(), weight.to_contiguous());
    let vectors = [scale, shift, bias].map(FlexTensor::to_contiguous);
    let residual = residual.to_contiguous();
    let load = load(&vectors, plan);
    let store = store(&vectors[2], &residual, plan);
    let y = cpu::forward::<T>(x.storage(), weight.storage(), &plan.geometry, load, store);
    tensor(y, plan.geometry.output())
}

fn input_gradient<T: Element + Stored>(
    weight: &FlexTensor,
    gradient: &FlexTensor,
    [bias, residual]: [&FlexTensor; 2],
    plan: &Plan,
) -> FlexTensor {
    let (weight, gradient) = (weight.to_contiguous(), gradient.to_contiguous());
    let (bias, residual) = (bias.to_contiguous(), residual.to_contiguous());
    let store = store(&bias, &residual, plan);
    let x = cpu::input_gradient::<T>(weight.storage(), gradient.storage(), &plan.geometry, store);
    tensor(x, plan.geometry.input())
}

fn weight_gradient<T: Element + Stored>(
    x: &FlexTensor,
    gradient: &FlexTensor,
    vectors: [&FlexTensor; 2],
    plan: &Plan,
) -> FlexTensor {
    let (x, gradient) = (x.to_contiguous(), gradient.to_contiguous());
    let vectors = vectors.map(FlexTensor::to_contiguous);
    let load = load(&vectors, plan);
    let weight = cpu::weight_gradient::<T>(x.storage(), load, gradient.storage(), &plan.geometry);
    tensor(weight, plan.geometry.weight())
}

/// The first two vectors as the prologue.
fn load<'a>(vectors: &'a [FlexTensor], plan: &Plan) -> Option<LoadAs<'a>> {
    let load = plan.load?;
    let (scale, shift) = (vectors[0].storage(), vectors[1].storage());
    Some(LoadAs { scale, shift, relu: load.activation == Activation::Relu })
}

fn store<'a, T: Element + Stored>(bias: &'a FlexTensor, residual: &'a FlexTensor, plan: &Plan) -> StoreAs<'a, T> {
    StoreAs {
        bias: plan.store.bias.then(|| bias.storage()),
        residual: plan.store.residual.then(|| residual.storage()),
        relu: plan.store.activation == Activation::Relu,
    }
}
