//! How values wait between segments.

use burn::tensor::{DType, FloatDType};

use super::{Precision, Value};
use crate::ops::bf16::Packed;

/// A value between segments, without autodiff on a tape that learns.
#[derive(Debug, Clone)]
pub(super) enum Stored {
    Plain(Value),
    Packed(Packed<5>),
}

impl Stored {
    /// As `precision` stores it.
    pub fn new(value: Value, precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::Plain(value),
            // What segments give is in f16 already.
            Precision::F16 if value.dtype() == DType::F16 => Self::Plain(value),
            Precision::F16 => Self::Plain(value.cast(FloatDType::F16)),
            Precision::Bf16 => Self::Packed(Packed::new(value)),
        }
    }

    pub fn dims(&self) -> [usize; 5] {
        match self {
            Self::Plain(value) => value.dims(),
            Self::Packed(packed) => packed.dims(),
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Self::Plain(value) => value.shape().num_elements() as u64 * value.dtype().size() as u64,
            Self::Packed(packed) => packed.bytes(),
        }
    }

    /// What segments compute with.
    pub fn into_value(self) -> Value {
        match self {
            Self::Plain(value) => value,
            Self::Packed(packed) => packed.unpack(),
        }
    }
}
