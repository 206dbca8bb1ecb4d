//! Activations that operations apply to what they load or store, and ReLU, whose backward needs one bit a value.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::into_contiguous;
use burn::backend::{Autodiff, AutodiffBackend, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, Int, Tensor, TensorData};
use rayon::prelude::*;

use super::element::{
    BLOCK, Blank, Element, PARALLEL, PARALLEL_COPY, contiguous, filled, tensor, values, with_element,
};
use crate::Result;
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
/// Values of one workgroup of `relu_only.wgsl` and `relu_bits_apply.wgsl`.
const GROUP_VALUES: usize = 4096;
/// Values that a thread of the CPU takes at once: a multiple of 32 and of [`BLOCK`].
const TASK: usize = 16 * BLOCK;

/// `max(x, 0)`; NaN stays, as in PyTorch, so that an overflow is not hidden. f32 and f16.
///
/// Keeps one bit a value for backward, neither `x` nor the result. The gradient passes where `x` is above 0 or NaN.
///
/// # Errors
/// [`Error::Usage`](crate::Error::Usage) for other dtypes, and f16 on a device that lacks it.
pub fn relu<const D: usize>(x: Tensor<D>) -> Result<Tensor<D>> {
    gpu::check_dtype(&x.device(), &format_args!("relu of {:?}", x.dims()), x.dtype())?;
    Ok(Tensor::from_dispatch(Dispatch::relu_only(x.into_dispatch())))
}

/// One bit a value, where ReLU passes it or has passed it: 1 where `y` is above 0 or NaN, the same before and after ReLU.
/// For [`relu_bits_apply`]; `y` is f32, or f16 where the device has it. Without autodiff.
pub fn relu_bits<const D: usize>(y: Tensor<D>) -> Tensor<1, Int> {
    Tensor::from_dispatch(Dispatch::relu_bits(y.into_dispatch()))
}

/// The gradient before a ReLU from that after it: as it is where its bit is set, else 0. In place when nobody else holds
/// `gradient`. Without autodiff.
pub fn relu_bits_apply<const D: usize>(gradient: Tensor<D>, bits: Tensor<1, Int>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::relu_bits_apply(gradient.into_dispatch(), bits.into_dispatch()))
}

/// Tensors of any shape, f32 or f16.
#[backend_extension(Cube, Flex, Autodiff)]
pub trait ReluOps: Backend {
    /// ReLU of `x`, without bits.
    fn relu_only(x: FloatTensor<Self>) -> FloatTensor<Self>;

    /// ReLU of `x` and the bits of [`relu_bits`](Self::relu_bits).
    fn relu_with_bits(x: FloatTensor<Self>) -> (FloatTensor<Self>, IntTensor<Self>);

    /// One bit a value, `u32` `[ceil(n / 32)]`: bit `i % 32` of word `i / 32` is 1 where `y[i]` is above 0 or NaN. The
    /// same for `y` before and after ReLU.
    fn relu_bits(y: FloatTensor<Self>) -> IntTensor<Self>;

    /// The gradient where its bit is set, else 0.
    fn relu_bits_apply(gradient: FloatTensor<Self>, bits: IntTensor<Self>) -> FloatTensor<Self>;
}

impl ReluOps for Cube {
    fn relu_only(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let x = into_contiguous(x);
        let (n, y) = (x.shape().num_elements(), gpu::new_like(&x, x.dtype));
        if n > 0 {
            let groups = n.div_ceil(GROUP_VALUES) as u32;
            let buffers = [Buffer::Read(&x), Buffer::Write(&y)];
            gpu::launch(&shader::RELU_ONLY, shader::element(x.dtype), &buffers, &[n as u32], groups);
        }
        y
    }

    fn relu_with_bits(x: FloatTensor<Self>) -> (FloatTensor<Self>, IntTensor<Self>) {
        let x = into_contiguous(x);
        let n = x.shape().num_elements();
        let y = gpu::in_place_of(&x);
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
        let out = gpu::in_place_of(&gradient);
        if n > 0 {
            let buffers = [Buffer::Read(&gradient), Buffer::Read(&bits), Buffer::Write(&out)];
            let groups = n.div_ceil(GROUP_VALUES) as u32;
            gpu::launch(&shader::RELU_BITS_APPLY, shader::element(gradient.dtype), &buffers, &[n as u32], groups);
        }
        out
    }
}

impl ReluOps for Flex {
    fn relu_only(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let shape = x.shape();
        with_element!(x.dtype(), {
            let mut x = contiguous(x);
            if let Some(own) = x.try_storage_mut::<T>().filter(|own| own.len() == shape.num_elements()) {
                relu_only_in_place(own);
                x
            } else {
                tensor(relu_only_cpu(values::<T>(&x)), shape)
            }
        })
    }

    fn relu_with_bits(x: FloatTensor<Self>) -> (FloatTensor<Self>, IntTensor<Self>) {
        let shape = x.shape();
        let (y, bits) = with_element!(x.dtype(), {
            let mut x = contiguous(x);
            if let Some(y) = x.try_storage_mut::<T>().filter(|own| own.len() == shape.num_elements()) {
                let bits = relu_in_place(y);
                (x, bits)
            } else {
                let (y, bits) = relu_cpu(values::<T>(&x));
                (tensor(y, shape), bits)
            }
        });
        (y, words(bits))
    }

    fn relu_bits(y: FloatTensor<Self>) -> IntTensor<Self> {
        words(with_element!(y.dtype(), relu_bits_cpu(values::<T>(&y.to_contiguous()))))
    }

    fn relu_bits_apply(gradient: FloatTensor<Self>, bits: IntTensor<Self>) -> FloatTensor<Self> {
        let (shape, bits) = (gradient.shape(), bits.to_contiguous());
        with_element!(gradient.dtype(), {
            let mut gradient = contiguous(gradient);
            if let Some(own) = gradient.try_storage_mut::<T>().filter(|own| own.len() == shape.num_elements()) {
                apply_in_place(own, bits.storage());
                gradient
            } else {
                tensor(relu_bits_apply_cpu(values::<T>(&gradient), bits.storage()), shape)
            }
        })
    }
}

fn words(words: Vec<u32>) -> FlexTensor {
    let len = words.len();
    FlexTensor::from_data(TensorData::new(words, [len]))
}

impl<B: ReluOps, C: CheckpointStrategy> ReluOps for Autodiff<B, C> {
    fn relu_only(x: FloatTensor<Self>) -> FloatTensor<Self> {
        match ReluBackward.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (y, bits) = B::relu_with_bits(x.into_primitive());
                prepared.finish(bits, y)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(B::relu_only(x.into_primitive())),
        }
    }

    /// Constants: [`relu_only`](Self::relu_only) is what has a gradient.
    fn relu_with_bits(x: FloatTensor<Self>) -> (FloatTensor<Self>, IntTensor<Self>) {
        let (y, bits) = B::relu_with_bits(x.into_primitive());
        (Self::from_inner(y), bits)
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

/// ReLU of one value.
#[inline]
pub(crate) fn relu_value(value: f32) -> f32 {
    // False for NaN.
    if value <= 0.0 { 0.0 } else { value }
}

/// ReLU of a value as it is stored.
#[inline]
fn relu_of_value<T: Element>(value: T) -> T {
    value.keep(u32::from(value.passes()).wrapping_neg())
}

/// The bits of at most 32 values.
#[inline]
fn word<T: Element>(values: &[T]) -> u32 {
    values.iter().zip(&BITS).fold(0, |word, (value, bit)| word | if value.passes() { *bit } else { 0 })
}

/// All ones where the bit is set, else 0.
#[inline]
fn mask(word: u32, bit: u32) -> u32 {
    u32::from(word & bit != 0).wrapping_neg()
}

/// Bits of a slice, [`BLOCK`] values or fewer.
#[inline]
fn block_bits<T: Element>(values: &[T], bits: &mut [u32]) {
    for (bits, values) in bits.iter_mut().zip(values.chunks(32)) {
        *bits = word(values);
    }
}

#[inline]
fn relu_slice<T: Element>(values: &mut [T]) {
    for value in values {
        *value = relu_of_value(*value);
    }
}

fn relu_only_in_place<T: Element>(values: &mut [T]) {
    if values.len() <= PARALLEL_COPY {
        relu_slice(values);
    } else {
        values.par_chunks_mut(TASK).for_each(relu_slice);
    }
}

fn relu_only_cpu<T: Element>(x: &[T]) -> Vec<T> {
    let fill = |y: Blank<T>| {
        if x.len() <= PARALLEL_COPY {
            y.map(x, relu_of_value);
        } else {
            y.pieces(TASK).zip(x.par_chunks(TASK)).for_each(|(y, x)| y.map(x, relu_of_value));
        }
    };
    filled(x.len(), fill).0
}

/// ReLU of a tensor that nobody else holds, in place, and the bits of its values.
fn relu_in_place<T: Element>(y: &mut [T]) -> Vec<u32> {
    let mut bits = vec![0; y.len().div_ceil(32)];
    let piece = |(y, bits): (&mut [T], &mut [u32])| {
        for (y, bits) in y.chunks_mut(BLOCK).zip(bits.chunks_mut(BLOCK / 32)) {
            block_bits(y, bits);
            relu_slice(y);
        }
    };
    if y.len() < PARALLEL {
        piece((y, &mut bits));
    } else {
        y.par_chunks_mut(TASK).zip(bits.par_chunks_mut(TASK / 32)).for_each(piece);
    }
    bits
}

/// ReLU, and the bits of the values.
fn relu_cpu<T: Element>(x: &[T]) -> (Vec<T>, Vec<u32>) {
    let mut bits = vec![0; x.len().div_ceil(32)];
    let piece = |((mut y, x), bits): ((Blank<T>, &[T]), &mut [u32])| {
        for (x, bits) in x.chunks(BLOCK).zip(bits.chunks_mut(BLOCK / 32)) {
            block_bits(x, bits);
            y.take(x.len()).map(x, relu_of_value);
        }
    };
    let fill = |y: Blank<T>| {
        if x.len() < PARALLEL {
            piece(((y, x), &mut bits));
        } else {
            y.pieces(TASK).zip(x.par_chunks(TASK)).zip(bits.par_chunks_mut(TASK / 32)).for_each(piece);
        }
    };
    let (y, ()) = filled(x.len(), fill);
    (y, bits)
}

/// [`ReluOps::relu_bits`] of a slice.
fn relu_bits_cpu<T: Element>(y: &[T]) -> Vec<u32> {
    let mut bits = vec![0; y.len().div_ceil(32)];
    if y.len() < PARALLEL {
        block_bits(y, &mut bits);
    } else {
        y.par_chunks(TASK).zip(bits.par_chunks_mut(TASK / 32)).for_each(|(y, bits)| block_bits(y, bits));
    }
    bits
}

#[inline]
fn apply_slice<T: Element>(values: &mut [T], bits: &[u32]) {
    for (values, bits) in values.chunks_mut(32).zip(bits) {
        values.iter_mut().zip(&BITS).for_each(|(value, bit)| *value = value.keep(mask(*bits, *bit)));
    }
}

fn apply_in_place<T: Element>(values: &mut [T], bits: &[u32]) {
    if values.len() < PARALLEL {
        apply_slice(values, bits);
    } else {
        values
            .par_chunks_mut(TASK)
            .zip(bits.par_chunks(TASK / 32))
            .for_each(|(values, bits)| apply_slice(values, bits));
    }
}

/// [`ReluOps::relu_bits_apply`] of slices.
fn relu_bits_apply_cpu<T: Element>(gradient: &[T], bits: &[u32]) -> Vec<T> {
    let piece = |((mut out, gradient), bits): ((Blank<T>, &[T]), &[u32])| {
        for (gradient, bits) in gradient.chunks(BLOCK).zip(bits.chunks(BLOCK / 32)) {
            let out = out.take(gradient.len()).cleared();
            out.copy_from_slice(gradient);
            apply_slice(out, bits);
        }
    };
    let fill = |out: Blank<T>| {
        if gradient.len() < PARALLEL {
            piece(((out, gradient), bits));
        } else {
            out.pieces(TASK).zip(gradient.par_chunks(TASK)).zip(bits.par_chunks(TASK / 32)).for_each(piece);
        }
    };
    filled(gradient.len(), fill).0
}
