//! Matrix products: any layout of either side, batches, fused bias, residual and activation; f32, or f16 stored and f32
//! summed. Every sum runs in an order that shapes and device decide, never threads.

mod backend;
mod cpu;
mod cube;
mod flex;
mod plan;
#[cfg(test)]
mod tests;

use std::fmt;

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, FloatDType, Tensor};

use crate::gpu::{DispatchCost, MAX_VALUES, TileForm, check_binding, check_dtype, is_cpu};
use crate::ops::Activation;
use crate::ops::conv::by;
use crate::{Error, Result};

use backend::GemmOps;
pub(super) use cpu::{Matrix, multiply_into};
use plan::{Plan, Spec};

/// How a matrix lies in memory: as the product takes it, or with rows and columns exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Layout {
    #[default]
    Normal,
    Transposed,
}

impl Layout {
    pub(super) fn flipped(self) -> Self {
        match self {
            Self::Normal => Self::Transposed,
            Self::Transposed => Self::Normal,
        }
    }
}

/// What [`gemm`] does besides multiplying.
#[derive(Clone, Default)]
pub struct GemmOptions {
    /// `[B, M, K]`, or `[B, K, M]` when transposed.
    pub a: Layout,
    /// `[B, K, N]`, or `[B, N, K]` when transposed.
    pub b: Layout,
    /// `[N]`, added to every row; f32 or f16 whatever the matrices are, read as f32.
    pub bias: Option<Tensor<1>>,
    /// `[B, M, N]`.
    pub residual: Option<Tensor<3>>,
    /// Applied last.
    pub activation: Activation,
}

/// `y[i] = act(op(a[i]) op(b[i]) + bias + residual[i])`, `[B, M, N]`.
///
/// `a` is `[B, M, K]` and `b` `[B, K, N]`, or with rows and columns exchanged as `options` say; a batch of 1 on either
/// side serves every member of the other. All tensors but the bias have one type, f32 or f16; sums are f32 in both, within
/// [`gemm_error_bound`], and rounded once. With K = 0 the product is zero. Deterministic. Differentiable in `a`, `b`, bias
/// and residual, each gradient in the type of its tensor; kept for that are `a` and `b` as far as the other's gradient is asked for, and one bit a value for ReLU.
///
/// # Errors
///
/// [`Error::Usage`] for shapes that do not match and types that differ, that are neither f32 nor f16, or that the device
/// lacks; [`Error::TooLarge`] for a tensor beyond what one kernel of the device can see.
pub fn gemm(a: Tensor<3>, b: Tensor<3>, options: GemmOptions) -> Result<Tensor<3>> {
    let GemmOptions { a: a_layout, b: b_layout, bias, residual, activation } = options;
    let (a_dims, b_dims) = (a.dims(), b.dims());
    let [m, a_k] = oriented(a_dims, a_layout);
    let [b_k, n] = oriented(b_dims, b_layout);
    let batch = if a_dims[0] == 1 { b_dims[0] } else { a_dims[0] };
    let what = format_args!("gemm: a {} {a_layout:?} by b {} {b_layout:?}", by(&a_dims), by(&b_dims));
    if a_k != b_k {
        return Err(Error::Usage(format!("{what}: K is {a_k} in a and {b_k} in b, expected the same")));
    }
    if b_dims[0] != 1 && b_dims[0] != batch {
        let batches = format!("{} in a and {} in b", a_dims[0], b_dims[0]);
        return Err(Error::Usage(format!("{what}: batches of {batches}, expected the same or 1")));
    }
    let y_dims = [batch, m, n];
    if let Some(bias) = &bias
        && bias.dims() != [n]
    {
        return Err(Error::Usage(format!("{what}: bias of {} values, expected {n}", bias.dims()[0])));
    }
    if let Some(residual) = &residual
        && residual.dims() != y_dims
    {
        return Err(Error::Usage(format!("{what}: residual {}, expected {}", by(&residual.dims()), by(&y_dims))));
    }
    let (device, dtype) = (a.device(), a.dtype());
    check_dtype(&device, &what, dtype)?;
    if let Some(bias) = &bias {
        check_dtype(&device, &format_args!("{what}: bias"), bias.dtype())?;
    }
    let others = [Some(("b", b.dtype())), residual.as_ref().map(|t| ("residual", t.dtype()))];
    if let Some((name, other)) = others.into_iter().flatten().find(|(_, other)| *other != dtype) {
        return Err(Error::Usage(format!(
            "{what}: a is {dtype:?} and {name} {other:?}, expected one type: cast one of them"
        )));
    }
    // On the CPU the operands are there, so there is room for them.
    let sizes = [("y", y_dims), ("a", a_dims), ("b", b_dims)];
    for (name, dims) in &sizes[..if is_cpu(&device) { 1 } else { 3 }] {
        check_size(&device, format_args!("{what}: {name} {}", by(dims)), *dims, dtype)?;
    }
    let bias = bias.map(|bias| if bias.dtype() == DType::F32 { bias } else { bias.cast(FloatDType::F32) });

    // One matrix for a whole batch: its rows are rows of one product.
    let flat = b_dims[0] == 1 && batch > 1 && a_layout == Layout::Normal && a_dims[0] == batch;
    let (a, residual) = if flat {
        (a.reshape([1, batch * m, a_k]), residual.map(|residual| residual.reshape([1, batch * m, n])))
    } else {
        (a, residual)
    };
    let spec = Spec {
        a: a_layout,
        b: b_layout,
        bias: bias.is_some(),
        residual: residual.is_some(),
        activation,
        sum_batches: false,
    };
    // An operation takes no optional tensors: what is absent is `a` again, and never looked at.
    let a = a.into_dispatch();
    let bias = bias.map_or_else(|| a.clone(), Tensor::into_dispatch);
    let residual = residual.map_or_else(|| a.clone(), Tensor::into_dispatch);
    let y = Tensor::<3>::from_dispatch(Dispatch::gemm(a, b.into_dispatch(), bias, residual, spec));
    Ok(if flat { y.reshape(y_dims) } else { y })
}

/// Rows and columns of a matrix as the product takes it.
fn oriented([_, rows, cols]: [usize; 3], layout: Layout) -> [usize; 2] {
    match layout {
        Layout::Normal => [rows, cols],
        Layout::Transposed => [cols, rows],
    }
}

fn check_size(device: &Device, what: fmt::Arguments, dims: [usize; 3], dtype: DType) -> Result<()> {
    let values = dims.iter().fold(1u64, |values, side| values.saturating_mul(*side as u64));
    check_binding(device, &what, values.saturating_mul(dtype.size() as u64))?;
    if !is_cpu(device) && values > MAX_VALUES {
        return Err(Error::TooLarge(format!(
            "{what}: {values} values, and kernels count to {MAX_VALUES}. Use a smaller batch or the device cpu."
        )));
    }
    Ok(())
}

/// The `gamma` with which every value of [`gemm`] obeys `|y - exact| <= gamma (|a| |b|)[m, n]`, plus the rounding of what
/// is stored: 2^-24 of it in f32, 2^-11 in f16 (and 2^-25 where f16 is subnormal).
///
/// `gamma = n u / (1 - n u)` with `u` = 2^-24 in f32, 2^-23 in f16, and `n = K + 2`: whatever the order, a value passes
/// through at most K roundings of f32 as a product and in sums, and two more for bias and residual (count `|bias|` and
/// `|residual|` with `|a| |b|` then). The product of two f16 is exact in f32, but matrix units cut sums off where others
/// round. N. Higham, Accuracy and Stability of Numerical Algorithms, section 3.1; M. Fasi et al., Numerical behavior of
/// NVIDIA tensor cores, 2021.
///
/// # Panics
///
/// When `dtype` is neither f32 nor f16.
pub fn gemm_error_bound(dtype: DType, k: usize) -> f64 {
    assert!(matches!(dtype, DType::F32 | DType::F16), "no bound for {dtype:?}");
    let error = (k as f64 + 2.0) * 2f64.powi(if dtype == DType::F16 { -23 } else { -24 });
    error / (1.0 - error)
}

/// The dispatches of one [`gemm`] on a GPU in its plain form, in order, from the shapes alone.
pub fn dispatches(m: usize, n: usize, k: usize, batch: usize, dtype: DType) -> Vec<DispatchCost> {
    if m * n * batch == 0 {
        return Vec::new();
    }
    Plan::new([batch, m, n], k, dtype, TileForm::Staged).dispatches()
}
