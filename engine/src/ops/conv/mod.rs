//! Convolutions of volumes, plain and transposed, with what stands before and after them fused in.
//!
//! Tensors are `[B, C, D, H, W]` in PyTorch's layout, f32 or f16; planes are volumes of depth 1. Products are summed in
//! f32 or better whatever is stored, in an order that depends on shapes and device, never on threads.
//!
//! A convolution applies a normalisation and a ReLU to its input while it loads it ([`Prologue`]), and adds bias and
//! residual and applies a ReLU before it stores ([`Epilogue`]). For the backward pass it keeps its input as it came, not as
//! it was loaded, and one bit a voxel for its own ReLU: a chain of convolution, normalisation, ReLU, convolution keeps
//! one tensor.
//!
//! - `geometry.rs`: shapes.
//! - `cpu/`: the twins in plain Rust.
//! - `plan.rs`, `cube.rs`: how and what `shaders/conv_*.wgsl` compute.

mod autodiff;
mod backend;
mod cpu;
mod cube;
mod flex;
mod geometry;
mod norm;
mod plan;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, FloatDType, Tensor};

use super::Activation;
use crate::gpu::{MAX_VALUES, check_binding, check_dtype, is_cpu};
use crate::{Error, Result};

use backend::{ConvOps, Load, Plan, Store};
use geometry::Operation;
pub(super) use geometry::by;
pub use geometry::{ConvGeometry, ConvOptions};
pub use norm::{Before, Normalise, conv_norm, conv_norm_again};
pub use plan::{Pass, dispatches};

/// What a convolution does to its input while it loads it: `activation(x * scale[c] + shift[c])`. What lies outside the
/// grid is 0 after this. Computed in f32; on matrix units, which multiply f16, then rounded to f16.
#[derive(Debug, Clone)]
pub struct Prologue {
    /// `[in]`.
    pub scale: Tensor<1>,
    /// `[in]`.
    pub shift: Tensor<1>,
    pub activation: Activation,
}

/// What a convolution does before it stores: `activation(y + bias[c] + residual)`.
#[derive(Debug, Clone, Default)]
pub struct Epilogue {
    /// `[out]`.
    pub bias: Option<Tensor<1>>,
    /// Of the shape and type of the output.
    pub residual: Option<Tensor<5>>,
    pub activation: Activation,
}

/// `x` `[B, in, D, H, W]` convolved with `weight` `[out, in / groups, kernel]`: `[B, out, sides out]`.
///
/// Differentiable in `x`, `weight` and every tensor of `prologue` and `epilogue`. Vectors are read as f32; the others are
/// all f32 or all f16, and so is the output.
///
/// # Errors
/// [`Error::Usage`] when shapes or types do not fit together, [`Error::TooLarge`] when a tensor does not fit on the
/// device; with the shapes.
pub fn conv(
    x: Tensor<5>,
    weight: Tensor<5>,
    options: &ConvOptions,
    prologue: Option<Prologue>,
    epilogue: Epilogue,
) -> Result<Tensor<5>> {
    let geometry = ConvGeometry::new(x.dims(), weight.dims(), options)?;
    let operation = Operation::Convolution(&geometry);
    check(operation, &geometry, &x, &weight)?;
    let load = match prologue {
        Some(Prologue { scale, shift, activation }) => {
            let scale = vector("a scale", scale, geometry.channels_in, operation)?;
            Some((scale, vector("a shift", shift, geometry.channels_in, operation)?, activation))
        }
        None => None,
    };
    let (bias, residual, store) = checked_epilogue(epilogue, geometry.output(), operation, x.dtype())?;
    let x = x.into_dispatch();
    let plan = Plan { geometry, load: load.as_ref().map(|(_, _, activation)| Load { activation: *activation }), store };
    // An operation takes no optional tensors: what is absent is said by the plan, and any tensor stands for it.
    let (scale, shift) = match load {
        Some((scale, shift, _)) => (scale.into_dispatch(), shift.into_dispatch()),
        None => (x.clone(), x.clone()),
    };
    let bias = bias.map_or_else(|| x.clone(), Tensor::into_dispatch);
    let residual = residual.map_or_else(|| x.clone(), Tensor::into_dispatch);
    Ok(Tensor::from_dispatch(Dispatch::conv_forward(x, weight.into_dispatch(), scale, shift, bias, residual, plan)))
}

/// `x` `[B, in, D, H, W]` convolved with `weight` `[in, out / groups, kernel]` the other way round: each value of `x` adds
/// a weighted kernel to the output, at steps of the stride. `[B, out, sides out]`, where a side is
/// `(side - 1) stride - 2 padding + dilation (kernel - 1) + 1 + output_padding`.
///
/// Differentiable in `x`, `weight` and every tensor of `epilogue`. Types and errors as [`conv`]; `output_padding` is less
/// than the stride.
pub fn conv_transposed(
    x: Tensor<5>,
    weight: Tensor<5>,
    options: &ConvOptions,
    output_padding: [usize; 3],
    epilogue: Epilogue,
) -> Result<Tensor<5>> {
    let geometry = ConvGeometry::transposed(x.dims(), weight.dims(), options, output_padding)?;
    let operation = Operation::Transposed(&geometry);
    check(operation, &geometry, &x, &weight)?;
    let (bias, residual, store) = checked_epilogue(epilogue, geometry.input(), operation, x.dtype())?;
    let x = x.into_dispatch();
    let bias = bias.map_or_else(|| x.clone(), Tensor::into_dispatch);
    let residual = residual.map_or_else(|| x.clone(), Tensor::into_dispatch);
    let plan = Plan { geometry, load: None, store };
    Ok(Tensor::from_dispatch(Dispatch::conv_input_gradient(weight.into_dispatch(), x, bias, residual, plan)))
}

/// The gradient of the weights of [`conv`] without prologue, alone: `x` and `gradient` have the shapes of `geometry`. What
/// the backward pass computes; here for measurements.
pub(crate) fn weight_gradient(x: Tensor<5>, gradient: Tensor<5>, geometry: ConvGeometry) -> Tensor<5> {
    let x = x.into_dispatch();
    let plan = Plan { geometry, load: None, store: Store::default() };
    Tensor::from_dispatch(Dispatch::conv_weight_gradient(x.clone(), gradient.into_dispatch(), x.clone(), x, plan))
}

/// Checks types and sizes. `x` is what goes in, whichever way the convolution runs.
fn check(operation: Operation, geometry: &ConvGeometry, x: &Tensor<5>, weight: &Tensor<5>) -> Result<()> {
    let (device, dtype) = (x.device(), x.dtype());
    check_dtype(&device, &operation, dtype)?;
    if weight.dtype() != dtype {
        return Err(Error::Usage(format!(
            "{operation}: found {dtype:?} values and {:?} weights, expected one type",
            weight.dtype()
        )));
    }
    if is_cpu(&device) {
        let comes_out = match operation {
            Operation::Convolution(_) => geometry.output(),
            Operation::Transposed(_) => geometry.input(),
        };
        check_size(&device, operation, "the output", &comes_out, dtype)?;
        return check_size(&device, operation, "a channel with what is around it", &geometry.reach(), DType::F32);
    }
    if let Some(beyond) = plan::beyond(geometry) {
        return Err(Error::TooLarge(format!("{operation}: {beyond}. Use the device cpu.")));
    }
    check_size(&device, operation, "the grid", &geometry.input(), dtype)?;
    check_size(&device, operation, "the coarser grid", &geometry.output(), dtype)?;
    check_size(&device, operation, "the gradient of the weights", &geometry.weight(), DType::F32)
}

fn check_size(device: &Device, operation: Operation, what: &str, shape: &[usize], dtype: DType) -> Result<()> {
    let what = format_args!("{operation}: {what} {} in {dtype:?}", by(shape));
    let values = shape.iter().fold(1u64, |values, side| values.saturating_mul(*side as u64));
    check_binding(device, &what, values.saturating_mul(dtype.size() as u64))?;
    // Kernels count in u32, and add a tile to the last place.
    if !is_cpu(device) && values > MAX_VALUES {
        return Err(Error::TooLarge(format!(
            "{what}: {values} values, and kernels count to {MAX_VALUES}. Use a smaller batch, a coarser or smaller grid, \
             or the device cpu."
        )));
    }
    Ok(())
}

/// A vector of the prologue or epilogue in f32.
fn vector(what: &str, vector: Tensor<1>, channels: usize, operation: Operation) -> Result<Tensor<1>> {
    let [length] = vector.dims();
    if length != channels {
        return Err(Error::Usage(format!("{operation}: found {what} of {length} values, expected {channels}")));
    }
    Ok(if vector.dtype() == DType::F32 { vector } else { vector.cast(FloatDType::F32) })
}

type Stored = (Option<Tensor<1>>, Option<Tensor<5>>, Store);

fn checked_epilogue(epilogue: Epilogue, output: [usize; 5], operation: Operation, dtype: DType) -> Result<Stored> {
    let Epilogue { bias, residual, activation } = epilogue;
    let bias = bias.map(|bias| vector("a bias", bias, output[1], operation)).transpose()?;
    if let Some(residual) = &residual
        && (residual.dims(), residual.dtype()) != (output, dtype)
    {
        return Err(Error::Usage(format!(
            "{operation}: found a residual {} in {:?}, expected {} in {dtype:?}",
            by(&residual.dims()),
            residual.dtype(),
            by(&output)
        )));
    }
    let store = Store { bias: bias.is_some(), residual: residual.is_some(), activation };
    Ok((bias, residual, store))
}
