//! Convolutions on a GPU: `shaders/conv_*.wgsl`.

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{DType, Shape};

use super::backend::{ConvOps, Plan};
use super::plan::{Gather, Launch, WeightLaunch};
use crate::gpu::shader::{self, Permutation};
use crate::gpu::{Buffer, Tile, TileForm, launch_split, new_tensor, tile_form};
use crate::ops::Activation;

const LOADS: u32 = 1;
const LOADS_RELU: u32 = 2;
const BIAS: u32 = 4;
const RESIDUAL: u32 = 8;
const STORES_RELU: u32 = 16;

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
        let form = tile_form(&x);
        forward(x, weight, [scale, shift, bias, residual], &plan, form)
    }

    fn conv_input_gradient(
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self> {
        let form = tile_form(&gradient);
        input_gradient(weight, gradient, [bias, residual], &plan, form)
    }

    fn conv_weight_gradient(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self> {
        let form = tile_form(&x);
        weight_gradient(x, gradient, [scale, shift], &plan, form)
    }
}

/// `rest` is scale, shift, bias and residual.
pub(super) fn forward(
    x: CubeTensor,
    weight: CubeTensor,
    rest: [CubeTensor; 4],
    plan: &Plan,
    form: TileForm,
) -> CubeTensor {
    let launch = Gather::forward(&plan.geometry).launch(form);
    gather(&launch, plan.geometry.output(), [x, weight], rest, plan)
}

/// `rest` is bias and residual.
pub(super) fn input_gradient(
    weight: CubeTensor,
    gradient: CubeTensor,
    rest: [CubeTensor; 2],
    plan: &Plan,
    form: TileForm,
) -> CubeTensor {
    let launch = Gather::input_gradient(&plan.geometry).launch(form);
    let [bias, residual] = rest;
    let rest = [gradient.clone(), gradient.clone(), bias, residual];
    gather(&launch, plan.geometry.input(), [gradient, weight], rest, &Plan { load: None, ..*plan })
}

/// `vectors` are scale and shift.
pub(super) fn weight_gradient(
    x: CubeTensor,
    gradient: CubeTensor,
    vectors: [CubeTensor; 2],
    plan: &Plan,
    form: TileForm,
) -> CubeTensor {
    let shape = plan.geometry.weight();
    if x.shape().num_elements() == 0 || gradient.shape().num_elements() == 0 {
        return Cube::float_zeros(Shape::from(shape), &x.device, x.dtype.into());
    }
    let (x, gradient) = (into_contiguous(x), into_contiguous(gradient));
    let [scale, shift] = vectors.map(|tensor| present(tensor, plan.load.is_some(), &x));
    let WeightLaunch { launch, chunks, sum } = WeightLaunch::new(&plan.geometry, form);
    let values = shape.iter().product::<usize>();
    let parts = new_tensor(&x, [chunks, values], DType::F32);
    let buffers =
        [Buffer::Read(&x), Buffer::Read(&gradient), Buffer::Read(&scale), Buffer::Read(&shift), Buffer::Write(&parts)];
    let params = launch.params(false, load_flags(plan));
    let permutation = permutation(x.dtype, launch.tile);
    let most = launch.cost.max_groups();
    launch_split(&shader::CONV_WEIGHT, &permutation, &buffers, &params, launch.groups as u32, most);

    let weight = new_tensor(&x, shape, x.dtype);
    let buffers = [Buffer::Read(&parts), Buffer::Read(&x), Buffer::Read(&x), Buffer::Write(&weight)];
    let permutation = self::permutation(x.dtype, None);
    let most = sum.cost.max_groups();
    launch_split(&shader::TILE_REDUCE, &permutation, &buffers, &sum.params, sum.groups as u32, most);
    weight
}

/// Runs `conv_gather` on source and weight; `rest` is scale, shift, bias and residual.
fn gather(
    launch: &Launch,
    shape: [usize; 5],
    [source, weight]: [CubeTensor; 2],
    rest: [CubeTensor; 4],
    plan: &Plan,
) -> CubeTensor {
    let out = new_tensor(&source, shape, source.dtype);
    if out.shape().num_elements() == 0 {
        return out;
    }
    let (source, weight) = (into_contiguous(source), into_contiguous(weight));
    let [scale, shift, bias, residual] = rest;
    let [scale, shift] = [scale, shift].map(|tensor| present(tensor, plan.load.is_some(), &source));
    let bias = present(bias, plan.store.bias, &source);
    let residual = present(residual, plan.store.residual, &source);
    let flag = |flag: u32, set: bool| if set { flag } else { 0 };
    let flags = load_flags(plan)
        | flag(BIAS, plan.store.bias)
        | flag(RESIDUAL, plan.store.residual)
        | flag(STORES_RELU, plan.store.activation == Activation::Relu);
    let buffers = [
        Buffer::Read(&source),
        Buffer::Read(&weight),
        Buffer::Read(&scale),
        Buffer::Read(&shift),
        Buffer::Read(&bias),
        Buffer::Read(&residual),
        Buffer::Write(&out),
    ];
    let params = launch.params(true, flags);
    let permutation = permutation(out.dtype, launch.tile);
    let most = launch.cost.max_groups();
    launch_split(&shader::CONV_GATHER, &permutation, &buffers, &params, launch.groups as u32, most);
    out
}

fn load_flags(plan: &Plan) -> u32 {
    match plan.load.map(|load| load.activation) {
        None => 0,
        Some(Activation::Identity) => LOADS,
        Some(Activation::Relu) => LOADS | LOADS_RELU,
    }
}

/// `tensor` if the kernel reads it, else what may be bound in its place.
fn present(tensor: CubeTensor, is: bool, other: &CubeTensor) -> CubeTensor {
    if is { into_contiguous(tensor) } else { other.clone() }
}

fn permutation(dtype: DType, tile: Option<&'static Tile>) -> Permutation {
    let elem = if dtype == DType::F16 { shader::F16 } else { shader::F32 };
    tile.map_or(elem, |tile| elem.with_tile(tile))
}
