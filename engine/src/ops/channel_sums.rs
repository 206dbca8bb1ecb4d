//! Sums over every channel: the gradient of a bias.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::wgpu::into_contiguous;
use burn::backend::{Autodiff, AutodiffBackend, Backend, Cube, Flex, TensorMetadata, backend_extension};

use super::channels::{Finish, Sizes, lane_sums, reduce_cube, visit};
use super::element::{tensor, values, with_element};
use crate::gpu::{Buffer, shader};

#[backend_extension(Cube, Flex, Autodiff)]
pub trait ChannelSumsOps: Backend {
    /// Sum of each channel over batch and length: `[B, C, L]`, f32 or f16, to f32 `[C]`. In parts of fixed size that are
    /// added in order: in f32 on a GPU, in f64 on the CPU.
    fn channel_sums(x: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl ChannelSumsOps for Cube {
    fn channel_sums(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let x = into_contiguous(x);
        let sizes = Sizes::of(&x.shape());
        let sums = reduce_cube(&shader::CHANNEL_SUMS, sizes, &[Buffer::Read(&x)], &[], Finish::Sums(1));
        Cube::float_reshape(sums, [sizes.channels].into())
    }
}

impl ChannelSumsOps for Flex {
    fn channel_sums(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let sizes = Sizes::of(&x.shape());
        let sums: Vec<[f64; 1]> = with_element!(x.dtype(), {
            let x = x.to_contiguous();
            visit(sizes, [values::<T>(&x)], |_, block| lane_sums(block, |[x]| [x]))
        });
        tensor(sums.into_iter().map(|[sum]| sum as f32).collect(), [sizes.channels])
    }
}

impl<B: ChannelSumsOps, C: CheckpointStrategy> ChannelSumsOps for Autodiff<B, C> {
    /// A constant: it is called in backward only.
    fn channel_sums(x: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::from_inner(B::channel_sums(x.into_primitive()))
    }
}

#[cfg(test)]
mod tests {
    use burn::backend::Dispatch;
    use burn::tensor::{Device, FloatDType, Tensor, TensorData};

    use super::*;
    use crate::gpu::{self, DeviceChoice};

    /// Whole numbers, exact in f16 and in every order of adding; every layout, in parts, and without any value.
    #[test]
    fn sums_are_exact_in_every_layout() {
        let vulkan = gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device;
        for shape in
            [[1, 1, 1], [2, 3, 40], [1, 2, 33_001], [3, 5, 500], [17_001, 1, 1], [70, 300, 1], [33, 5, 7], [0, 3, 4]]
        {
            let [_, channels, length] = shape;
            let x: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| (i * 7919 % 257) as f32 - 128.0).collect();
            let mut expected = vec![0.0; channels];
            x.iter().enumerate().for_each(|(i, x)| expected[i / length % channels] += x);
            for device in [&vulkan, &Device::flex()] {
                for dtype in [FloatDType::F32, FloatDType::F16] {
                    let x = Tensor::<3>::from_data(TensorData::new(x.clone(), shape), device).cast(dtype);
                    let sums: Tensor<1> = Tensor::from_dispatch(Dispatch::channel_sums(x.into_dispatch()));
                    let sums = sums.try_into_data().unwrap().try_to_vec::<f32>().unwrap();
                    assert_eq!(sums, expected, "{shape:?} {dtype:?} on {device:?}");
                }
            }
        }
    }
}
