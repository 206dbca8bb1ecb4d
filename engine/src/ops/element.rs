//! The two ways values are stored, for operations on the CPU: f32, and f16 that is computed in f32.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, Shape};
use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;

use crate::gpu::request_kernel;

/// Values that most operations widen at once: 4 KiB in f32, well inside the first cache.
pub(crate) const BLOCK: usize = 1024;

/// Values from which an operation with a few steps a value is worth a second thread: to wake one takes over 10 us.
pub(crate) const PARALLEL: usize = 1 << 17;
/// The same of an operation that does little more than to copy.
pub(crate) const PARALLEL_COPY: usize = 1 << 19;

pub(crate) trait Element: burn::tensor::Element + bytemuck::Pod {
    /// The values as f32: in `buffer`, which must be as long, unless they are f32 already.
    fn widen<'a>(values: &'a [Self], buffer: &'a mut [f32]) -> &'a [f32];

    /// Stores what `fill` writes over all of a slice, rounded.
    fn store<R>(out: &mut [Self], fill: impl FnOnce(&mut [f32]) -> R) -> R;

    /// Lets `change` write over all of a slice whose values it sees, rounded.
    fn change<R>(own: &mut [Self], change: impl FnOnce(&mut [f32]) -> R) -> R;

    /// The value if the mask is all ones, 0 if it is 0: without a branch, which random bits would make slow.
    #[must_use]
    fn keep(self, mask: u32) -> Self;

    /// Whether ReLU passes the value: above 0 or NaN.
    fn passes(self) -> bool;
}

impl Element for f32 {
    #[inline]
    fn widen<'a>(values: &'a [Self], _: &'a mut [f32]) -> &'a [f32] {
        values
    }

    #[inline]
    fn store<R>(out: &mut [Self], fill: impl FnOnce(&mut [f32]) -> R) -> R {
        fill(out)
    }

    #[inline]
    fn change<R>(own: &mut [Self], change: impl FnOnce(&mut [f32]) -> R) -> R {
        change(own)
    }

    #[inline]
    fn keep(self, mask: u32) -> Self {
        Self::from_bits(self.to_bits() & mask)
    }

    #[inline]
    fn passes(self) -> bool {
        self > 0.0 || self.is_nan()
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

    fn change<R>(own: &mut [Self], change: impl FnOnce(&mut [f32]) -> R) -> R {
        let (mut block, mut long);
        let buffer = if own.len() <= BLOCK {
            block = [0.0; BLOCK];
            &mut block[..own.len()]
        } else {
            long = vec![0.0; own.len()];
            &mut long[..]
        };
        own.convert_to_f32_slice(buffer);
        let result = change(buffer);
        own.convert_from_f32_slice(buffer);
        result
    }

    #[inline]
    fn keep(self, mask: u32) -> Self {
        Self::from_bits(self.to_bits() & mask as u16)
    }

    /// On integers: no need to widen.
    #[inline]
    fn passes(self) -> bool {
        let bits = self.to_bits();
        bits != 0 && !(0x8000..=0xfc00).contains(&bits)
    }
}

/// New memory that nobody cleared, to be handed out piece by piece.
///
/// To clear all of it first takes as long as a light operation; a piece that is cleared just before it is filled is in the
/// cache by then.
pub(crate) struct Blank<'a, T> {
    memory: &'a mut [MaybeUninit<T>],
    /// Values that were written.
    written: &'a AtomicUsize,
}

impl<'a, T: Element> Blank<'a, T> {
    /// Pieces of this length, the last one shorter.
    pub fn pieces(self, len: usize) -> impl IndexedParallelIterator<Item = Self> {
        let written = self.written;
        self.memory.par_chunks_mut(len).map(move |memory| Self { memory, written })
    }

    /// The next `len` values.
    pub fn take(&mut self, len: usize) -> Self {
        let (memory, rest) = std::mem::take(&mut self.memory).split_at_mut(len);
        self.memory = rest;
        Self { memory, written: self.written }
    }

    /// The memory, cleared.
    #[inline]
    #[allow(unsafe_code)]
    pub fn cleared(self) -> &'a mut [T] {
        for value in self.memory.iter_mut() {
            value.write(T::zeroed());
        }
        self.written.fetch_add(self.memory.len(), Relaxed);
        // SAFETY: every value was written just now, and a value that may be uninitialised lies in memory as the value does.
        unsafe { &mut *(std::ptr::from_mut(self.memory) as *mut [T]) }
    }

    /// Writes what `of` makes of as many values.
    #[inline]
    pub fn map(self, values: &[T], of: impl Fn(T) -> T) {
        assert_eq!(self.memory.len(), values.len(), "a value for each place");
        for (out, value) in self.memory.iter_mut().zip(values) {
            out.write(of(*value));
        }
        self.written.fetch_add(values.len(), Relaxed);
    }
}

/// A vector of `len` values, all of which `fill` clears or maps, and what `fill` returns.
#[allow(unsafe_code)]
pub(crate) fn filled<T: Element, R>(len: usize, fill: impl FnOnce(Blank<T>) -> R) -> (Vec<T>, R) {
    let mut values = Vec::with_capacity(len);
    let written = AtomicUsize::new(0);
    let result = fill(Blank { memory: &mut values.spare_capacity_mut()[..len], written: &written });
    assert_eq!(written.into_inner(), len, "every value is written");
    // SAFETY: a piece counts its values once, when all of them are written, and no two pieces share any: with `len` counted
    // all are.
    unsafe { values.set_len(len) };
    (values, result)
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

/// What a kernel of ours on the CPU made.
pub(crate) fn tensor<T: Element>(values: Vec<T>, shape: impl Into<Shape>) -> FlexTensor {
    request_kernel("on the CPU");
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
