//! The three convolutions of a device. Arguments are checked by the public functions.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};

use super::ConvGeometry;
use crate::ops::Activation;

/// That there is a prologue: scale and shift are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub activation: Activation,
}

/// What of an epilogue there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Store {
    pub bias: bool,
    pub residual: bool,
    pub activation: Activation,
}

/// A convolution but for its tensors. A tensor that it does not ask for is some other one of the call and must not be
/// read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub geometry: ConvGeometry,
    pub load: Option<Load>,
    pub store: Store,
}

/// Shapes are those of [`ConvGeometry`]; `scale`, `shift` and `bias` are f32, the others of one type, f32 or f16.
#[backend_extension(Cube, Flex, Autodiff)]
pub trait ConvOps: Backend {
    /// `y`.
    fn conv_forward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self>;

    /// Gradient of `x` from that of `y`: also the transposed convolution. Nothing is done on loading.
    fn conv_input_gradient(
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self>;

    /// Gradient of `weight`; `x` is loaded as in the forward pass, and the plan's `store` means nothing.
    fn conv_weight_gradient(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        plan: Plan,
    ) -> FloatTensor<Self>;
}
