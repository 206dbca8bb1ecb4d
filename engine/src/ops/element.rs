//! The two ways values are stored, for operations on the CPU: f32, and f16 that is computed in f32.

use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, Shape};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Values that most operations widen at once: 4 KiB in f32, well inside the first cache.
pub(crate) const BLOCK: usize = 1024;

pub(crate) trait Element: burn::tensor::Element + bytemuck::Pod {
    /// The values as f32: in `buffer`, which must be as long, unless they are f32 already.
    fn widen<'a>(values: &'a [Self], buffer: &'a mut [f32]) -> &'a [f32];

    /// Stores what `fill` writes over all of a slice, rounded.
    fn store<R>(out: &mut [Self], fill: impl FnOnce(&mut [f32]) -> R) -> R;

    /// The value if the mask is all ones, 0 if it is 0: without a branch, which random bits would make slow.
    #[must_use]
    fn keep(self, mask: u32) -> Self;
}

impl Element for f32 {
    fn widen<'a>(values: &'a [Self], _: &'a mut [f32]) -> &'a [f32] {
        values
    }

    fn store<R>(out: &mut [Self], fill: impl FnOnce(&mut [f32]) -> R) -> R {
        fill(out)
    }

    #[inline]
    fn keep(self, mask: u32) -> Self {
        Self::from_bits(self.to_bits() & mask)
    }
}

impl Element for f16 {
    fn widen<'a>(values: &'a [Self], buffer: &'a mut [f32]) -> &'a [f32] {
        let buffer = &mut buffer[..values.len()];
        values.convert_to_f32_slice(buffer);
        buffer
    }

    fn store<R>(out: &mut [Self], fill: impl FnOnce(&mut [f32]) -> R) -> R {
        let (mut block, mut long);
        let buffer = if out.len() <= BLOCK {
            block = [0.0; BLOCK];
            &mut block[..out.len()]
        } else {
            long = vec![0.0; out.len()];
            &mut long[..]
        };
        let result = fill(buffer);
        out.convert_from_f32_slice(buffer);
        result
    }

    #[inline]
    fn keep(self, mask: u32) -> Self {
        Self::from_bits(self.to_bits() & mask as u16)
    }
}

/// The tensor itself where it is contiguous, so that one nobody else holds can be changed in place; else a copy.
pub(crate) fn contiguous(tensor: FlexTensor) -> FlexTensor {
    let contiguous = tensor.to_contiguous();
    drop(tensor);
    contiguous
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
