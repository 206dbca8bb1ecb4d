//! Convolutions on a GPU.

use burn::backend::ops::{FloatTensorOps, ModuleOps};
use burn::backend::tensor::FloatTensor;
use burn::backend::wgpu::CubeTensor;
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions};
use burn::tensor::{DType, FloatDType, Shape};

use super::backend::{ConvOps, Plan};
use crate::ops::Activation;

impl ConvOps for Cube {
    fn conv_forward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self> {
        let dtype = x.dtype();
        let x = loaded(x, scale, shift, &plan);
        let y = Cube::conv3d(x, wide(weight), None, options(&plan));
        stored(y, bias, residual, dtype, &plan)
    }

    fn conv_input_gradient(
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self> {
        let dtype = gradient.dtype();
        let geometry = &plan.geometry;
        let mut rest = [0; 3];
        for (axis, rest) in rest.iter_mut().enumerate() {
            let reach = (geometry.sides_out[axis] - 1) * geometry.stride[axis]
                + (geometry.kernel[axis] - 1) * geometry.dilation[axis]
                + 1;
            *rest = geometry.sides_in[axis] + 2 * geometry.padding[axis] - reach;
        }
        let options =
            ConvTransposeOptions::new(geometry.stride, geometry.padding, rest, geometry.dilation, geometry.groups);
        let x = Cube::conv_transpose3d(wide(gradient), wide(weight), None, options);
        stored(x, bias, residual, dtype, &plan)
    }

    fn conv_weight_gradient(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self> {
        let dtype = x.dtype();
        let x = loaded(x, scale, shift, &plan);
        let shape = Cube::float_zeros(Shape::from(plan.geometry.weight()), &x.device, FloatDType::F32);
        let weight = Cube::conv3d_weight_backward(x, shape, wide(gradient), options(&plan));
        Cube::float_cast(weight, float(dtype))
    }
}

fn float(dtype: DType) -> FloatDType {
    dtype.into()
}

fn options(plan: &Plan) -> ConvOptions<3> {
    let geometry = &plan.geometry;
    ConvOptions::new(geometry.stride, geometry.padding, geometry.dilation, geometry.groups)
}

/// In f32: Burn's convolutions sum in the type of the tensors.
fn wide(tensor: CubeTensor) -> CubeTensor {
    Cube::float_cast(tensor, FloatDType::F32)
}

fn vector(vector: CubeTensor) -> CubeTensor {
    let length = vector.shape()[0];
    Cube::float_reshape(vector, Shape::from([1, length, 1, 1, 1]))
}

fn loaded(x: CubeTensor, scale: CubeTensor, shift: CubeTensor, plan: &Plan) -> CubeTensor {
    let x = wide(x);
    let Some(load) = plan.load else { return x };
    activated(Cube::float_add(Cube::float_mul(x, vector(scale)), vector(shift)), load.activation)
}

fn stored(y: CubeTensor, bias: CubeTensor, residual: CubeTensor, dtype: DType, plan: &Plan) -> CubeTensor {
    let y = if plan.store.bias { Cube::float_add(y, vector(bias)) } else { y };
    let y = if plan.store.residual { Cube::float_add(y, wide(residual)) } else { y };
    Cube::float_cast(activated(y, plan.store.activation), float(dtype))
}

fn activated(x: CubeTensor, activation: Activation) -> CubeTensor {
    match activation {
        Activation::Identity => x,
        Activation::Relu => Cube::float_clamp_min(x, 0.0.into()),
    }
}
