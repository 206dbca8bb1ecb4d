//! The two ways values are stored, for operations on the CPU: f32, and f16 that is computed in f32.

use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, Shape};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Values that are widened at once: 4 KiB in f32, well inside the first cache.
pub(crate) const BLOCK: usize = 1024;

pub(crate) trait Element: burn::tensor::Element + bytemuck::Pod {
    /// At most [`BLOCK`] values as f32, in `buffer` unless they are f32 already.
    fn widen<'a>(values: &'a [Self], buffer: &'a mut [f32; BLOCK]) -> &'a [f32];

    /// Stores what `fill` writes, rounded; at most [`BLOCK`] values.
    fn store<R>(out: &mut [Self], fill: impl FnOnce(&mut [f32]) -> R) -> R;
}

impl Element for f32 {
    fn widen<'a>(values: &'a [Self], _: &'a mut [f32; BLOCK]) -> &'a [f32] {
        values
    }

    fn store<R>(out: &mut [Self], fill: impl FnOnce(&mut [f32]) -> R) -> R {
        fill(out)
    }
}

impl Element for f16 {
    fn widen<'a>(values: &'a [Self], buffer: &'a mut [f32; BLOCK]) -> &'a [f32] {
        let buffer = &mut buffer[..values.len()];
        values.convert_to_f32_slice(buffer);
        buffer
    }

    fn store<R>(out: &mut [Self], fill: impl FnOnce(&mut [f32]) -> R) -> R {
        let mut buffer = [0.0; BLOCK];
        let buffer = &mut buffer[..out.len()];
        let result = fill(buffer);
        out.convert_from_f32_slice(buffer);
        result
    }
}

/// The values of a contiguous tensor.
pub(crate) fn values<T: Element>(tensor: &FlexTensor) -> &[T] {
    tensor.as_slice().expect("a contiguous tensor of this type")
}

pub(crate) fn tensor<T: Element>(values: Vec<T>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape.into()), T::dtype())
}

/// Evaluates an expression with `T` standing for the type in which a tensor of the CPU stores its values: f32 or f16, as
/// the public functions check.
macro_rules! with_element {
    ($dtype:expr, $body:expr) => {
        match $dtype {
            burn::tensor::DType::F16 => {
                type T = half::f16;
                $body
            }
            _ => {
                type T = f32;
                $body
            }
        }
    };
}
pub(crate) use with_element;
