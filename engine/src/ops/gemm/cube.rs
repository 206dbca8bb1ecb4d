//! Products on a GPU.

use burn::backend::TensorMetadata;
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use burn::tensor::DType;

use super::plan::{Plan, Problem, Spec, reduce_cost};
use crate::gpu::shader::{F16, F32, GEMM, GEMM_F16, GEMM_F16_SUMS, GEMM_F32, TILE_REDUCE};
use crate::gpu::{Buffer, launch_split, new_tensor, tile_form};
use crate::ops::Activation;

/// What is added to a sum before it is stored.
pub(in crate::ops) struct Finish<'a> {
    /// `[N]`, f32.
    pub bias: Option<&'a CubeTensor>,
    pub residual: Option<&'a CubeTensor>,
    pub activation: Activation,
}

impl Finish<'_> {
    fn flags(&self) -> u32 {
        u32::from(self.bias.is_some())
            | u32::from(self.residual.is_some()) << 1
            | u32::from(self.activation == Activation::Relu) << 2
    }
}

pub(super) fn gemm(a: CubeTensor, b: CubeTensor, bias: CubeTensor, residual: CubeTensor, spec: Spec) -> CubeTensor {
    let problem = Problem::new(&a.shape(), &b.shape(), spec);
    let (bias, residual) = (spec.bias.then(|| into_contiguous(bias)), spec.residual.then(|| into_contiguous(residual)));
    let finish = Finish { bias: bias.as_ref(), residual: residual.as_ref(), activation: spec.activation };
    let y = new_tensor(&a, problem.y(), a.dtype);
    if y.shape().num_elements() == 0 {
        return y;
    }
    let plan = Plan::new(problem.y(), problem.k(), a.dtype, tile_form(&a));
    run(a, b, &y, &problem, &finish, &plan);
    y
}

/// Computes a result that is not empty.
pub(super) fn run(a: CubeTensor, b: CubeTensor, y: &CubeTensor, problem: &Problem, finish: &Finish, plan: &Plan) {
    // Nothing of an operand without values is read, but something must be bound.
    let bound = |operand: CubeTensor| match operand.shape().num_elements() {
        0 => new_tensor(&operand, [1], operand.dtype),
        _ => into_contiguous(operand),
    };
    let (a, b) = (bound(a), bound(b));
    let split = plan.parts > 1;
    let sums = split.then(|| new_tensor(&a, [problem.batch * plan.parts, problem.m, problem.n], DType::F32));
    let permutation = match (a.dtype, split || y.dtype == DType::F32) {
        (DType::F16, false) => GEMM_F16,
        (DType::F16, true) => GEMM_F16_SUMS,
        _ => GEMM_F32,
    };
    let (bias, residual) = (finish.bias.unwrap_or(&a), finish.residual.unwrap_or(&a));
    let buffers = [&a, &b, bias, residual].map(Buffer::Read);
    let buffers = [&buffers[..], &[Buffer::Write(sums.as_ref().unwrap_or(y))]].concat();
    let flags = if split { 0 } else { finish.flags() };
    let params = [
        problem.m,
        problem.n,
        problem.k(),
        problem.a.outer,
        problem.a.k,
        if problem.members > 1 { 0 } else { problem.a.batch },
        problem.b.k,
        problem.b.outer,
        if problem.members > 1 { 0 } else { problem.b.batch },
        problem.matrix_k,
        problem.a.batch,
        problem.b.batch,
        plan.part_k,
        plan.parts,
        flags as usize,
    ]
    .map(|value| value as u32);
    let permutation = permutation.with_tile(plan.tile);
    launch_split(&GEMM, &permutation, &buffers, &params, plan.groups as u32, plan.group.max_groups());
    if let Some(sums) = sums {
        reduce(&sums, &a, y, plan.parts, finish);
    }
}

/// Adds up partial sums `[batch * parts, side]`, f32, in the order of the parts, into `y` `[batch, side]`, where the last
/// dimension of `y` is that of the bias.
///
/// `any` is some tensor, bound in the place of what `finish` lacks.
pub(in crate::ops) fn reduce(sums: &CubeTensor, any: &CubeTensor, y: &CubeTensor, parts: usize, finish: &Finish) {
    let (shape, values) = (y.shape(), y.shape().num_elements());
    let (side, n) = (values / shape[0], shape[shape.num_dims() - 1]);
    let (bias, residual) = (finish.bias.unwrap_or(any), finish.residual.unwrap_or(any));
    let buffers = [Buffer::Read(sums), Buffer::Read(bias), Buffer::Read(residual), Buffer::Write(y)];
    let params = [values, side, parts, n, finish.flags() as usize].map(|value| value as u32);
    let permutation = if y.dtype == DType::F16 { F16 } else { F32 };
    let (groups, cost) = reduce_cost(values, parts, y.dtype);
    launch_split(&TILE_REDUCE, &permutation, &buffers, &params, groups as u32, cost.max_groups());
}
