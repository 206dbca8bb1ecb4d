//! Stable radix sort of key and value pairs, by counting, scanning and scattering one digit after the other: no
//! workgroup waits for another, so no device can hang on it.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::IntTensor;
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use burn::backend::{Autodiff, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, Int, IntDType, Tensor, TensorData};

use super::scan::exclusive_scan_cube;
use crate::gpu::{self, Buffer, shader};

/// Pairs of one workgroup, as in `sort_counts.wgsl` and `sort_scatter.wgsl`.
const BLOCK: usize = 2048;
/// Bits that one pass on the device sorts by.
const DIGIT_BITS: u32 = 4;

/// Sorts pairs by the lowest `key_bits` bits of their keys, rising; pairs of equal keys keep their order.
///
/// Both tensors are `[n]` and taken and given as `u32`. Fewer bits take fewer passes. For keys of two words sort by the
/// low word with the places `0, 1, ...` as values, take the high words in that order, and sort by them.
///
/// # Panics
///
/// If the tensors differ in length or `key_bits` is above 32.
pub fn sort_pairs(keys: Tensor<1, Int>, values: Tensor<1, Int>, key_bits: u32) -> (Tensor<1, Int>, Tensor<1, Int>) {
    assert_eq!(keys.dims(), values.dims(), "sort_pairs: as many values as keys");
    assert!(key_bits <= 32, "sort_pairs: {key_bits} bits of a 32 bit key");
    let (keys, values) = (keys.cast(IntDType::U32).into_dispatch(), values.cast(IntDType::U32).into_dispatch());
    let (keys, values) = Dispatch::sort_pairs(keys, values, key_bits);
    (Tensor::from_dispatch(keys), Tensor::from_dispatch(values))
}

#[backend_extension(Cube, Flex, Autodiff)]
trait SortOps: Backend {
    fn sort_pairs(keys: IntTensor<Self>, values: IntTensor<Self>, key_bits: u32) -> (IntTensor<Self>, IntTensor<Self>);
}

impl SortOps for Cube {
    fn sort_pairs(keys: IntTensor<Self>, values: IntTensor<Self>, key_bits: u32) -> (IntTensor<Self>, IntTensor<Self>) {
        sort_pairs_cube(keys, values, key_bits)
    }
}

impl SortOps for Flex {
    fn sort_pairs(keys: IntTensor<Self>, values: IntTensor<Self>, key_bits: u32) -> (IntTensor<Self>, IntTensor<Self>) {
        let (keys, values) = (keys.to_contiguous(), values.to_contiguous());
        let (keys, values) = sort_pairs_cpu(keys.storage(), values.storage(), key_bits);
        let len = keys.len();
        let tensor = |words| FlexTensor::from_data(TensorData::new(words, [len]));
        (tensor(keys), tensor(values))
    }
}

impl<B: SortOps, C: CheckpointStrategy> SortOps for Autodiff<B, C> {
    fn sort_pairs(keys: IntTensor<Self>, values: IntTensor<Self>, key_bits: u32) -> (IntTensor<Self>, IntTensor<Self>) {
        B::sort_pairs(keys, values, key_bits)
    }
}

/// [`sort_pairs`] of device tensors of [`DType::U32`].
pub fn sort_pairs_cube(keys: CubeTensor, values: CubeTensor, key_bits: u32) -> (CubeTensor, CubeTensor) {
    let (mut keys, mut values) = (into_contiguous(keys), into_contiguous(values));
    let n = keys.shape().num_elements();
    if n < 2 {
        return (keys, values);
    }
    let blocks = n.div_ceil(BLOCK);
    for shift in (0..key_bits).step_by(DIGIT_BITS as usize) {
        let mask = (1 << DIGIT_BITS.min(key_bits - shift)) - 1;
        let params = [n as u32, blocks as u32, shift, mask];
        let counts = gpu::new_tensor(&keys, [16 * blocks], DType::U32);
        let buffers = [Buffer::Read(&keys), Buffer::Write(&counts)];
        gpu::launch(&shader::SORT_COUNTS, &shader::PLAIN, &buffers, &params, blocks as u32);
        let starts = exclusive_scan_cube(counts);
        let sorted_keys = gpu::new_tensor(&keys, [n], DType::U32);
        let sorted_values = gpu::new_tensor(&keys, [n], DType::U32);
        let buffers = [
            Buffer::Read(&keys),
            Buffer::Read(&values),
            Buffer::Read(&starts),
            Buffer::Write(&sorted_keys),
            Buffer::Write(&sorted_values),
        ];
        gpu::launch(&shader::SORT_SCATTER, &shader::PLAIN, &buffers, &params, blocks as u32);
        (keys, values) = (sorted_keys, sorted_values);
    }
    (keys, values)
}

/// [`sort_pairs`] of slices of equal length.
pub fn sort_pairs_cpu(keys: &[u32], values: &[u32], key_bits: u32) -> (Vec<u32>, Vec<u32>) {
    // Counters of 11 bits still fit the first cache; balanced passes keep them as small as they can be.
    let passes = key_bits.div_ceil(11);
    let digit_bits = if passes == 0 { 0 } else { key_bits.div_ceil(passes) };
    let mut pairs: Vec<(u32, u32)> = keys.iter().copied().zip(values.iter().copied()).collect();
    let mut moved = vec![(0, 0); pairs.len()];
    for pass in 0..passes {
        let shift = pass * digit_bits;
        let mask = (1 << digit_bits.min(key_bits - shift)) - 1;
        let mut places = vec![0u32; mask + 1];
        for (key, _) in &pairs {
            places[(key >> shift) as usize & mask] += 1;
        }
        if places.iter().any(|count| *count as usize == pairs.len()) {
            continue;
        }
        let mut start = 0;
        for place in &mut places {
            start += std::mem::replace(place, start);
        }
        for pair in &pairs {
            let place = &mut places[(pair.0 >> shift) as usize & mask];
            moved[*place as usize] = *pair;
            *place += 1;
        }
        std::mem::swap(&mut pairs, &mut moved);
    }
    pairs.into_iter().unzip()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::sort_pairs_cpu;

    proptest! {
        #[test]
        fn twin_equals_the_standard_stable_sort(
            keys in proptest::collection::vec(prop_oneof![any::<u32>(), 0..40u32], 0..3000),
            key_bits in 0..=32u32,
        ) {
            let values: Vec<u32> = (0..keys.len() as u32).collect();
            let mask = ((1u64 << key_bits) - 1) as u32;
            let mut expected: Vec<_> = keys.iter().copied().zip(values.iter().copied()).collect();
            expected.sort_by_key(|(key, _)| key & mask);
            let (sorted_keys, sorted_values) = sort_pairs_cpu(&keys, &values, key_bits);
            prop_assert_eq!(sorted_keys.into_iter().zip(sorted_values).collect::<Vec<_>>(), expected);
        }
    }
}
