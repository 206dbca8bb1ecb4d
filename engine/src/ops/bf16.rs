//! Storage in bf16, two values in a word: WGSL has no such type, and arithmetic on it would be that of f32 anyway.
//!
//! bf16 is the upper half of an f32 (Kalamkar et al., arXiv 1905.12322): the same exponents, 8 significant bits.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::into_contiguous;
use burn::backend::{Autodiff, AutodiffBackend, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, Int, Tensor, TensorData};
use rayon::prelude::*;

use super::element::{PARALLEL_COPY, tensor, values};
use crate::gpu::{self, Buffer, shader};

/// Words of one workgroup of `bf16_pack.wgsl` and `bf16_unpack.wgsl`.
const GROUP_WORDS: usize = 2048;
/// Words that a thread of the CPU takes at once.
const TASK: usize = 1 << 14;

/// A tensor of f32 rounded to bf16, in half its bytes. Cloning it shares the memory.
#[derive(Debug, Clone)]
pub struct Packed<const D: usize> {
    /// u32 `[ceil(n / 2)]`: value `2 i` in the lower half of word `i`.
    words: Tensor<1, Int>,
    shape: [usize; D],
}

impl<const D: usize> Packed<D> {
    /// Rounds `x`, f32 and without autodiff, to the nearest, ties to even; NaN stays NaN, and what is above the largest bf16
    /// becomes infinite.
    ///
    /// # Panics
    /// For other types than f32.
    pub fn new(x: Tensor<D>) -> Self {
        assert_eq!(x.dtype(), DType::F32, "what is rounded to bf16");
        let shape = x.dims();
        Self { words: Tensor::from_dispatch(Dispatch::bf16_pack(x.into_dispatch())), shape }
    }

    /// The rounded values as f32.
    pub fn unpack(&self) -> Tensor<D> {
        let n: usize = self.shape.iter().product();
        let x: Tensor<1> = Tensor::from_dispatch(Dispatch::bf16_unpack(self.words.clone().into_dispatch(), n));
        x.reshape(self.shape)
    }

    pub fn dims(&self) -> [usize; D] {
        self.shape
    }

    pub fn bytes(&self) -> u64 {
        4 * self.words.dims()[0] as u64
    }
}

#[backend_extension(Cube, Flex, Autodiff)]
pub trait Bf16Ops: Backend {
    /// f32 of any shape, n values, to u32 `[ceil(n / 2)]`.
    fn bf16_pack(x: FloatTensor<Self>) -> IntTensor<Self>;

    /// u32 `[ceil(n / 2)]` to f32 `[n]`.
    fn bf16_unpack(words: IntTensor<Self>, n: usize) -> FloatTensor<Self>;
}

impl Bf16Ops for Cube {
    fn bf16_pack(x: FloatTensor<Self>) -> IntTensor<Self> {
        let x = into_contiguous(x);
        let n = x.shape().num_elements();
        let words = gpu::new_tensor(&x, [n.div_ceil(2)], DType::U32);
        if n > 0 {
            let groups = n.div_ceil(2).div_ceil(GROUP_WORDS) as u32;
            let buffers = [Buffer::Read(&x), Buffer::Write(&words)];
            gpu::launch(&shader::BF16_PACK, &shader::PLAIN, &buffers, &[n as u32], groups);
        }
        words
    }

    fn bf16_unpack(words: IntTensor<Self>, n: usize) -> FloatTensor<Self> {
        let words = into_contiguous(words);
        let x = gpu::new_tensor(&words, [n], DType::F32);
        if n > 0 {
            let groups = n.div_ceil(2).div_ceil(GROUP_WORDS) as u32;
            let buffers = [Buffer::Read(&words), Buffer::Write(&x)];
            gpu::launch(&shader::BF16_UNPACK, &shader::PLAIN, &buffers, &[n as u32], groups);
        }
        x
    }
}

impl Bf16Ops for Flex {
    fn bf16_pack(x: FloatTensor<Self>) -> IntTensor<Self> {
        gpu::request_kernel("on the CPU");
        let words = pack_cpu(values::<f32>(&x.to_contiguous()));
        let len = words.len();
        FlexTensor::from_data(TensorData::new(words, [len]))
    }

    fn bf16_unpack(words: IntTensor<Self>, n: usize) -> FloatTensor<Self> {
        let words = words.to_contiguous();
        tensor(unpack_cpu(words.storage(), n), [n])
    }
}

impl<B: Bf16Ops, C: CheckpointStrategy> Bf16Ops for Autodiff<B, C> {
    /// A constant, as what is unpacked.
    fn bf16_pack(x: FloatTensor<Self>) -> IntTensor<Self> {
        B::bf16_pack(x.into_primitive())
    }

    fn bf16_unpack(words: IntTensor<Self>, n: usize) -> FloatTensor<Self> {
        Self::from_inner(B::bf16_unpack(words, n))
    }
}

/// The bits of a value in bf16.
#[inline]
fn rounded(value: f32) -> u32 {
    let bits = value.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // Of a NaN the upper bits, one of them surely set.
    if bits & 0x7fff_ffff > 0x7f80_0000 { bits >> 16 | 0x40 } else { nearest }
}

#[inline]
fn pack_slice(x: &[f32], words: &mut [u32]) {
    let pairs = x.chunks_exact(2);
    if let ([last], Some(word)) = (pairs.remainder(), words.last_mut()) {
        *word = rounded(*last);
    }
    for (word, pair) in words.iter_mut().zip(pairs) {
        *word = rounded(pair[0]) | rounded(pair[1]) << 16;
    }
}

fn pack_cpu(x: &[f32]) -> Vec<u32> {
    let mut words = vec![0; x.len().div_ceil(2)];
    if x.len() < PARALLEL_COPY {
        pack_slice(x, &mut words);
    } else {
        x.par_chunks(2 * TASK).zip(words.par_chunks_mut(TASK)).for_each(|(x, words)| pack_slice(x, words));
    }
    words
}

#[inline]
fn unpack_slice(words: &[u32], x: &mut [f32]) {
    for (pair, word) in x.chunks_mut(2).zip(words) {
        pair[0] = f32::from_bits(word << 16);
        if let Some(upper) = pair.get_mut(1) {
            *upper = f32::from_bits(word & 0xffff_0000);
        }
    }
}

fn unpack_cpu(words: &[u32], n: usize) -> Vec<f32> {
    let mut x = vec![0.0; n];
    if n < PARALLEL_COPY {
        unpack_slice(words, &mut x);
    } else {
        words.par_chunks(TASK).zip(x.par_chunks_mut(2 * TASK)).for_each(|(words, x)| unpack_slice(words, x));
    }
    x
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use half::bf16;

    use super::*;
    use crate::gpu::DeviceChoice;

    /// Every pattern of the 17 bits that rounding looks at first with some of the rest: ties, what carries into the
    /// exponent, subnormals, infinities and NaN.
    fn hard_values() -> Vec<f32> {
        let low = [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
        (0..=0xffff).flat_map(|high: u32| low.map(|low| f32::from_bits(high << 16 | low))).collect()
    }

    #[test]
    fn rounding_is_that_of_the_half_crate() {
        for value in hard_values() {
            assert_eq!(rounded(value), u32::from(bf16::from_f32(value).to_bits()), "{:#x}", value.to_bits());
        }
    }

    /// On both devices, of even and odd length, in parts.
    #[test]
    fn packed_tensors_come_back_rounded_and_take_half_the_bytes() {
        let vulkan = gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device;
        let hard = hard_values();
        let long: Vec<f32> = hard.iter().cycle().take((1 << 19) + 3).copied().collect();
        for device in [&vulkan, &Device::flex()] {
            for values in [&hard[..], &hard[..4097], &hard[3..4], &[], &long] {
                let packed = Packed::new(Tensor::<1>::from_data(values, device));
                assert_eq!(packed.bytes(), 4 * values.len().div_ceil(2) as u64);
                let found = packed.unpack().try_into_data().unwrap().try_to_vec::<f32>().unwrap();
                assert_eq!(found.len(), values.len());
                for (found, value) in found.iter().zip(values) {
                    assert_eq!(found.to_bits(), bf16::from_f32(*value).to_f32().to_bits(), "{value} on {device:?}");
                }
            }
            let plane = Tensor::<3>::ones([2, 3, 5], device).swap_dims(0, 2);
            assert_eq!(Packed::new(plane).unpack().dims(), [5, 3, 2]);
        }
    }
}
