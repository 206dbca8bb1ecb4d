//! Activations that operations apply to what they load or store, and ReLU, whose backward needs one bit a value.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::into_contiguous;
use burn::backend::{Autodiff, AutodiffBackend, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, Tensor, TensorData};
use rayon::prelude::*;

use super::element::{BLOCK, Element, tensor, values, with_element};
use crate::gpu::{self, Buffer, shader};

/// What is done to a value: nothing, or `max(value, 0)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Activation {
    #[default]
    Identity,
    Relu,
}

/// Values of one workgroup of `relu.wgsl` and `relu_bits.wgsl`.
const GROUP_BITS: usize = 8192;
/// Values of one workgroup of `relu_bits_apply.wgsl`.
const GROUP_VALUES: usize = 4096;
/// Values that a thread of the CPU takes at once: a multiple of 32 and of [`BLOCK`].
const TASK: usize = 16 * BLOCK;

/// `max(x, 0)`; NaN stays, as in PyTorch, so that an overflow is not hidden. f32 and f16.
///
/// Keeps one bit a value for backward, neither `x` nor the result. The gradient passes where `x` is above 0 or NaN.
pub fn relu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::relu_with_bits(x.into_dispatch()).0)
}

/// Tensors of any shape, f32 or f16.
#[backend_extension(Cube, Flex, Autodiff)]
pub trait ReluOps: Backend {
    /// ReLU of `x` and the bits of [`relu_bits`](Self::relu_bits).
    fn relu_with_bits(x: FloatTensor<Self>) -> (FloatTensor<Self>, IntTensor<Self>);

    /// One bit a value, `u32` `[ceil(n / 32)]`: bit `i % 32` of word `i / 32` is 1 where `y[i]` is above 0 or NaN. The
    /// same for `y` before and after ReLU.
    fn relu_bits(y: FloatTensor<Self>) -> IntTensor<Self>;

    /// The gradient where its bit is set, else 0.
    fn relu_bits_apply(gradient: FloatTensor<Self>, bits: IntTensor<Self>) -> FloatTensor<Self>;
}

impl ReluOps for Cube {
    fn relu_with_bits(x: FloatTensor<Self>) -> (FloatTensor<Self>, IntTensor<Self>) {
        let x = into_contiguous(x);
        let n = x.shape().num_elements();
        let y = gpu::new_like(&x, x.dtype);
        let bits = gpu::new_tensor(&x, [n.div_ceil(32)], DType::U32);
        if n > 0 {
            let buffers = [Buffer::Read(&x), Buffer::Write(&y), Buffer::Write(&bits)];
            let groups = n.div_ceil(GROUP_BITS) as u32;
            gpu::launch(&shader::RELU, shader::element(x.dtype), &buffers, &[n as u32], groups);
        }
        (y, bits)
    }

    fn relu_bits(y: FloatTensor<Self>) -> IntTensor<Self> {
        let y = into_contiguous(y);
        let n = y.shape().num_elements();
        let bits = gpu::new_tensor(&y, [n.div_ceil(32)], DType::U32);
        if n > 0 {
            let buffers = [Buffer::Read(&y), Buffer::Write(&bits)];
            let groups = n.div_ceil(GROUP_BITS) as u32;
            gpu::launch(&shader::RELU_BITS, shader::element(y.dtype), &buffers, &[n as u32], groups);
        }
        bits
    }

    fn relu_bits_apply(gradient: FloatTensor<Self>, bits: IntTensor<Self>) -> FloatTensor<Self> {
        let (gradient, bits) = (into_contiguous(gradient), into_contiguous(bits));
        let n = gradient.shape().num_elements();
        let out = gpu::new_like(&gradient, gradient.dtype);
        if n > 0 {
            let buffers = [Buffer::Read(&gradient), Buffer::Read(&bits), Buffer::Write(&out)];
            let groups = n.div_ceil(GROUP_VALUES) as u32;
            gpu::launch(&shader::RELU_BITS_APPLY, shader::element(gradient.dtype), &buffers, &[n as u32], groups);
        }
        out
    }
}

impl ReluOps for Flex {
    fn relu_with_bits(x: FloatTensor<Self>) -> (FloatTensor<Self>, IntTensor<Self>) {
        let shape = x.shape();
        let (y, bits) = with_element!(x.dtype(), {
            let mut x = x.to_contiguous();
            let (y, bits) = match x.try_storage_mut::<T>() {
                // Nobody else holds it: in place.
                Some(own) if own.len() == shape.num_elements() => {
                    let bits = relu_cpu(None, own);
                    (x, bits)
                }
                _ => {
                    let x = values::<T>(&x);
                    let mut y = vec![T::default(); x.len()];
                    let bits = relu_cpu(Some(x), &mut y);
                    (tensor(y, shape), bits)
                }
            };
            (y, bits)
        });
        (y, words(bits))
    }

    fn relu_bits(y: FloatTensor<Self>) -> IntTensor<Self> {
        words(with_element!(y.dtype(), relu_bits_cpu(values::<T>(&y.to_contiguous()))))
    }

    fn relu_bits_apply(gradient: FloatTensor<Self>, bits: IntTensor<Self>) -> FloatTensor<Self> {
        with_element!(gradient.dtype(), {
            let passed = relu_bits_apply_cpu(values::<T>(&gradient.to_contiguous()), bits.to_contiguous().storage());
            tensor(passed, gradient.shape())
        })
    }
}

fn words(words: Vec<u32>) -> FlexTensor {
    let len = words.len();
    FlexTensor::from_data(TensorData::new(words, [len]))
}

impl<B: ReluOps, C: CheckpointStrategy> ReluOps for Autodiff<B, C> {
    fn relu_with_bits(x: FloatTensor<Self>) -> (FloatTensor<Self>, IntTensor<Self>) {
        match ReluBackward.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (y, bits) = B::relu_with_bits(x.into_primitive());
                (prepared.finish(bits.clone(), y), bits)
            }
            OpsKind::UnTracked(prepared) => {
                let (y, bits) = B::relu_with_bits(x.into_primitive());
                (prepared.finish(y), bits)
            }
        }
    }

    fn relu_bits(y: FloatTensor<Self>) -> IntTensor<Self> {
        B::relu_bits(y.into_primitive())
    }

    fn relu_bits_apply(gradient: FloatTensor<Self>, bits: IntTensor<Self>) -> FloatTensor<Self> {
        Self::from_inner(B::relu_bits_apply(gradient.into_primitive(), bits))
    }
}

#[derive(Debug)]
struct ReluBackward;

impl<B: ReluOps> Backward<B, 1> for ReluBackward {
    type State = IntTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [node] = ops.parents;
        let gradient = gradients.consume::<B>(&ops.node);
        if let Some(node) = node {
            gradients.register::<B>(node.id, B::relu_bits_apply(gradient, ops.state));
        }
    }
}

/// `1 << i` for each bit of a word.
const BITS: [u32; 32] = {
    let mut bits = [0; 32];
    let mut i = 0;
    while i < 32 {
        bits[i] = 1 << i;
        i += 1;
    }
    bits
};

/// Whether ReLU passes a value on.
#[inline]
fn passes(value: f32) -> bool {
    value > 0.0 || value.is_nan()
}

/// ReLU of one value.
#[inline]
pub(crate) fn relu_value(value: f32) -> f32 {
    // False for NaN.
    if value <= 0.0 { 0.0 } else { value }
}

/// The bits of at most 32 values.
#[inline]
fn word(values: &[f32]) -> u32 {
    values.iter().zip(&BITS).fold(0, |word, (value, bit)| word | if passes(*value) { *bit } else { 0 })
}

/// ReLU of `x` into `y`, or of `y` in place without, and the bits of its values.
fn relu_cpu<T: Element>(x: Option<&[T]>, y: &mut [T]) -> Vec<u32> {
    let mut bits = vec![0; y.len().div_ceil(32)];
    y.par_chunks_mut(TASK).zip(bits.par_chunks_mut(TASK / 32)).enumerate().for_each(|(task, (y, bits))| {
        let mut buffer = [0.0; BLOCK];
        for (block, (y, bits)) in y.chunks_mut(BLOCK).zip(bits.chunks_mut(BLOCK / 32)).enumerate() {
            if let Some(x) = x {
                y.copy_from_slice(&x[task * TASK + block * BLOCK..][..y.len()]);
            }
            let values = T::widen(y, &mut buffer[..y.len()]);
            for (bits, values) in bits.iter_mut().zip(values.chunks(32)) {
                *bits = word(values);
            }
            for (y, bits) in y.chunks_mut(32).zip(bits) {
                y.iter_mut().zip(&BITS).for_each(|(y, bit)| *y = y.keep(mask(*bits, *bit)));
            }
        }
    });
    bits
}

/// All ones where the bit is set, else 0.
#[inline]
fn mask(word: u32, bit: u32) -> u32 {
    u32::from(word & bit != 0).wrapping_neg()
}

/// [`ReluOps::relu_bits`] of a slice.
fn relu_bits_cpu<T: Element>(y: &[T]) -> Vec<u32> {
    let mut bits = vec![0; y.len().div_ceil(32)];
    y.par_chunks(TASK).zip(bits.par_chunks_mut(TASK / 32)).for_each(|(y, bits)| {
        let mut buffer = [0.0; BLOCK];
        for (y, bits) in y.chunks(BLOCK).zip(bits.chunks_mut(BLOCK / 32)) {
            for (bits, y) in bits.iter_mut().zip(T::widen(y, &mut buffer[..y.len()]).chunks(32)) {
                *bits = word(y);
            }
        }
    });
    bits
}

/// [`ReluOps::relu_bits_apply`] of slices.
fn relu_bits_apply_cpu<T: Element>(gradient: &[T], bits: &[u32]) -> Vec<T> {
    let mut out = vec![T::zeroed(); gradient.len()];
    let tasks = out.par_chunks_mut(TASK).zip(gradient.par_chunks(TASK)).zip(bits.par_chunks(TASK / 32));
    tasks.for_each(|((out, gradient), bits)| {
        for ((out, gradient), bits) in out.chunks_mut(32).zip(gradient.chunks(32)).zip(bits) {
            for ((out, gradient), bit) in out.iter_mut().zip(gradient).zip(&BITS) {
                *out = gradient.keep(mask(*bits, *bit));
            }
        }
    });
    out
}
