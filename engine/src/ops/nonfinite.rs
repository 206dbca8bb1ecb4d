//! How many values of tensors are not finite, and how many are zero: what training in f16 looks at before it moves weights.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::into_contiguous;
use burn::backend::{Autodiff, Backend, Cube, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, Device, Int, Tensor};
use rayon::prelude::*;

use super::element::{PARALLEL, values};
use crate::gpu::{self, Buffer, shader};
use crate::{Error, Result};

/// Values of one workgroup of `nonfinite.wgsl`.
const GROUP_VALUES: usize = 4096;
/// Values that a thread of the CPU takes at once.
const TASK: usize = 1 << 14;

/// Of each tensor, f32 and without autodiff, the values that are infinite or NaN, and those that are zero: u32
/// `[tensors, 2]`. By exponent bits; exact up to 2^32 values of a tensor. Nothing waits for the device.
///
/// # Errors
/// [`Error::Usage`] for types other than f32.
pub fn nonfinite_counts(tensors: Vec<Tensor<1>>, device: &Device) -> Result<Tensor<2, Int>> {
    let places = tensors.len();
    let mut counts = Tensor::<1, Int>::zeros([2 * places], (device, DType::U32));
    for (place, tensor) in tensors.into_iter().enumerate() {
        if tensor.dtype() != DType::F32 {
            return Err(Error::Usage(format!(
                "nonfinite_counts: tensor {place} in {:?}, expected F32",
                tensor.dtype()
            )));
        }
        let counted = Dispatch::nonfinite_add(tensor.into_dispatch(), counts.into_dispatch(), place);
        counts = Tensor::from_dispatch(counted);
    }
    Ok(counts.reshape([places, 2]))
}

#[backend_extension(Cube, Flex, Autodiff)]
pub trait NonfiniteOps: Backend {
    /// `counts`, u32 `[2 places]`, with those of `x`, f32, added at its place.
    fn nonfinite_add(x: FloatTensor<Self>, counts: IntTensor<Self>, place: usize) -> IntTensor<Self>;
}

impl NonfiniteOps for Cube {
    fn nonfinite_add(x: FloatTensor<Self>, counts: IntTensor<Self>, place: usize) -> IntTensor<Self> {
        let (x, counts) = (into_contiguous(x), into_contiguous(counts));
        let counts = if counts.can_mut() { counts } else { counts.copy() };
        let n = x.shape().num_elements();
        if n > 0 {
            let buffers = [Buffer::Read(&x), Buffer::Update(&counts)];
            let groups = n.div_ceil(GROUP_VALUES) as u32;
            gpu::launch(&shader::NONFINITE, &shader::PLAIN, &buffers, &[n as u32, place as u32], groups);
        }
        counts
    }
}

impl NonfiniteOps for Flex {
    fn nonfinite_add(x: FloatTensor<Self>, counts: IntTensor<Self>, place: usize) -> IntTensor<Self> {
        let mut counts = super::element::contiguous(counts);
        let [nonfinite, zeros] = counts_cpu(values::<f32>(&x.to_contiguous()));
        let counts_now: &mut [u32] = counts.storage_mut();
        counts_now[2 * place] += nonfinite;
        counts_now[2 * place + 1] += zeros;
        counts
    }
}

impl<B: NonfiniteOps, C: CheckpointStrategy> NonfiniteOps for Autodiff<B, C> {
    fn nonfinite_add(x: FloatTensor<Self>, counts: IntTensor<Self>, place: usize) -> IntTensor<Self> {
        B::nonfinite_add(x.into_primitive(), counts, place)
    }
}

/// Not finite, zero.
fn counts_cpu(values: &[f32]) -> [u32; 2] {
    let count = |values: &[f32]| {
        values.iter().fold([0; 2], |[nonfinite, zeros], value| {
            let bits = value.to_bits() & 0x7fff_ffff;
            [nonfinite + u32::from(bits >= 0x7f80_0000), zeros + u32::from(bits == 0)]
        })
    };
    if values.len() < PARALLEL {
        count(values)
    } else {
        values.par_chunks(TASK).map(count).reduce(|| [0; 2], |a, b| [a[0] + b[0], a[1] + b[1]])
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{FloatDType, TensorData};

    use super::*;
    use crate::gpu::DeviceChoice;

    /// Subnormals and the largest numbers are finite and not zero, both zeros are zero, every NaN counts.
    const ODD: [u32; 14] = [
        0,
        0x8000_0000,
        1,
        0x8000_0001,
        0x007f_ffff,
        0x0080_0000,
        0x7f7f_ffff,
        0xff7f_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x7f80_0001,
        0xffc0_0000,
        0x7fff_ffff,
        0x3f80_0000,
    ];

    fn counts(device: &Device, tensors: &[Vec<f32>]) -> Vec<u32> {
        let tensors = tensors
            .iter()
            .map(|values| Tensor::<1>::from_data(TensorData::new(values.clone(), [values.len()]), device));
        nonfinite_counts(tensors.collect(), device).unwrap().try_into_data().unwrap().try_to_vec::<u32>().unwrap()
    }

    #[test]
    fn every_tensor_has_its_own_exact_counts() {
        let vulkan = gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device;
        let odd: Vec<f32> = ODD.iter().map(|bits| f32::from_bits(*bits)).collect();
        // Every third value zero, every seventh of the rest infinite; several groups, and one value beyond.
        let long = |n: u32| -> Vec<f32> {
            (0..n)
                .map(|i| {
                    if i % 3 == 0 {
                        0.0
                    } else if i % 7 == 0 {
                        f32::NEG_INFINITY
                    } else {
                        i as f32
                    }
                })
                .collect()
        };
        let of_long = |n: u32| {
            let zeros = (0..n).filter(|i| i % 3 == 0).count() as u32;
            [(0..n).filter(|i| i % 7 == 0 && i % 3 != 0).count() as u32, zeros]
        };
        let tensors = [odd, vec![], vec![f32::NAN], long(8193), vec![0.0; 300], long(4096), long(300_001)];
        let expected: Vec<u32> =
            [[5, 2], [0, 0], [1, 0], of_long(8193), [0, 300], of_long(4096), of_long(300_001)].concat();
        for device in [&vulkan, &Device::flex()] {
            assert_eq!(counts(device, &tensors), expected, "{device:?}");
        }
        assert_eq!(counts(&Device::flex(), &[]), Vec::<u32>::new());
        let half = Tensor::<1>::zeros([3], &Device::flex()).cast(FloatDType::F16);
        assert_eq!(nonfinite_counts(vec![half], &Device::flex()).unwrap_err().exit_code(), 2);
    }
}
