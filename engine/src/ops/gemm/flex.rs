//! Products on the processor, from tensor to tensor.

use burn::backend::flex::FlexTensor;

use super::cpu::{self, Finish};
use super::plan::{Problem, Spec};
use crate::ops::Activation;
use crate::ops::element::{tensor, values, with_element};

pub(super) fn gemm(a: &FlexTensor, b: &FlexTensor, bias: &FlexTensor, residual: &FlexTensor, spec: Spec) -> FlexTensor {
    let problem = Problem::new(a.layout().shape(), b.layout().shape(), spec);
    let [a, b] = [a, b].map(FlexTensor::to_contiguous);
    let bias = spec.bias.then(|| bias.to_contiguous());
    let residual = spec.residual.then(|| residual.to_contiguous());
    with_element!(a.dtype(), {
        let (bias, residual) = (bias.as_ref().map(values::<f32>), residual.as_ref().map(values::<T>));
        let finish = Finish::new(bias, residual, spec.activation == Activation::Relu);
        tensor(cpu::product::<T>(values(&a), values(&b), &problem, &finish), problem.y())
    })
}
