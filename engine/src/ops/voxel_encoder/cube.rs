//! The encoder on a GPU: `shaders/voxel_encoder.wgsl`, and for its gradients `voxel_encoder_features.wgsl` and
//! `voxel_encoder_weights.wgsl`.

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{DType, FloatDType, Slice};

use super::{EncoderOps, Sizes, THREADS};
use crate::gpu::shader::{self, EncoderResult, Shader};
use crate::gpu::{Buffer, GroupCost, launch_split, new_tensor};
use crate::ops::channel_sums::ChannelSumsOps;

/// Features that one thread reads in one dispatch at most: voxels of more points take several, so that none runs long.
/// Software Vulkan (Mesa's llvmpipe) leaves loops after 65,535 turns, all loops of a thread together, without a word.
const THREAD_VALUES: usize = 1 << 16;

/// Features, points in order, starts of voxels, and `[F + 1, C]`: weights of every feature, and biases.
struct Operands {
    features: CubeTensor,
    order: CubeTensor,
    starts: CubeTensor,
    weights: CubeTensor,
    sizes: Sizes,
}

impl Operands {
    fn new(
        features: FloatTensor<Cube>,
        order: IntTensor<Cube>,
        starts: IntTensor<Cube>,
        weight: FloatTensor<Cube>,
        bias: FloatTensor<Cube>,
    ) -> Self {
        let sizes = Sizes::of::<Cube>(&features, &starts, &weight);
        let bias = Cube::float_reshape(bias, [1, sizes.channels].into());
        let weights = into_contiguous(Cube::float_cat(vec![Cube::float_transpose(weight), bias], 0));
        let [order, starts] = [order, starts].map(into_contiguous);
        Self { features: into_contiguous(features), order, starts, weights, sizes }
    }

    fn grouped(&self) -> usize {
        self.order.shape().num_elements()
    }

    /// Whether no voxel has a point.
    fn is_empty(&self) -> bool {
        self.grouped() == 0 || self.sizes.voxels == 0
    }

    fn params(&self) -> [u32; 5] {
        let Sizes { points, width, channels, voxels } = self.sizes;
        [voxels, channels, width, points, self.grouped()].map(|number| number as u32)
    }

    /// Largest values, or the points that have them.
    fn run(&self, result: EncoderResult) -> CubeTensor {
        let Sizes { channels, voxels, width, .. } = self.sizes;
        let (features, dtype) = (&self.features, self.features.dtype);
        let out_dtype = if result == EncoderResult::Values { dtype } else { DType::U32 };
        let out = new_tensor(features, [voxels, channels], out_dtype);
        let buffers = [
            Buffer::Read(features),
            Buffer::Read(&self.order),
            Buffer::Read(&self.starts),
            Buffer::Read(&self.weights),
            Buffer::Update(&out),
        ];
        let products = self.grouped() * channels * width;
        let rows = (THREAD_VALUES / width).max(4);
        for skip in (0..self.grouped()).step_by(rows) {
            let params = [&self.params()[..], &[skip as u32, rows as u32]].concat();
            launch(&shader::VOXEL_ENCODER, result.permutation(dtype), &buffers, &params, voxels * channels, products);
        }
        out
    }
}

/// A thread for each of `threads`, which share `products` and read two values for each.
fn launch(
    shader: &'static Shader,
    permutation: &shader::Permutation,
    buffers: &[Buffer],
    params: &[u32],
    threads: usize,
    products: usize,
) {
    let groups = threads.div_ceil(THREADS);
    let products = products.div_ceil(groups.max(1)) as u64;
    let cost = GroupCost { flops: 2 * products + 20 * THREADS as u64, bytes: 8 * products + 64 * THREADS as u64 };
    launch_split(shader, permutation, buffers, params, groups as u32, cost.max_groups());
}

impl EncoderOps for Cube {
    fn voxel_encoder(
        features: FloatTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let operands = Operands::new(features, order, starts, weight, bias);
        if operands.is_empty() {
            return zeros(&operands.features, [operands.sizes.voxels, operands.sizes.channels]);
        }
        operands.run(EncoderResult::Values)
    }

    fn voxel_encoder_backward(
        features: FloatTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let operands = Operands::new(features, order, starts, weight, bias);
        let sizes = operands.sizes;
        let Sizes { points, width, channels, voxels } = sizes;
        let by_features = zeros(&operands.features, [points, width]);
        if operands.is_empty() {
            let none = |shape| Self::float_zeros(shape, &operands.features.device, FloatDType::F32);
            return (by_features, none([channels, width].into()), none([channels].into()));
        }
        let (dtype, gradient) = (operands.features.dtype, into_contiguous(gradient));
        let winners = operands.run(EncoderResult::Winners);
        let buffers = [
            Buffer::Read(&winners),
            Buffer::Read(&gradient),
            Buffer::Read(&operands.order),
            Buffer::Read(&operands.starts),
            Buffer::Read(&operands.weights),
            Buffer::Update(&by_features),
        ];
        let threads = operands.grouped() * width.div_ceil(4);
        let shader = &shader::VOXEL_ENCODER_FEATURES;
        launch(shader, shader::element(dtype), &buffers, &operands.params(), threads, threads * channels);

        let (groups, group_voxels) = (sizes.groups(), sizes.group_voxels());
        let values = (width + 1) * channels;
        let partials = new_tensor(&winners, [groups, values], DType::F32);
        let buffers = [
            Buffer::Read(&operands.features),
            Buffer::Read(&winners),
            Buffer::Read(&gradient),
            Buffer::Write(&partials),
        ];
        let params = [&operands.params()[..4], &[group_voxels as u32]].concat();
        let products = (group_voxels * values) as u64;
        let cost = GroupCost { flops: 2 * products, bytes: 12 * products };
        let shader = &shader::VOXEL_ENCODER_WEIGHTS;
        launch_split(shader, shader::element(dtype), &buffers, &params, groups as u32, cost.max_groups());

        let sums = Self::channel_sums(Self::float_reshape(partials, [groups, values, 1].into()));
        let sums = Self::float_reshape(sums, [width + 1, channels].into());
        let rows = |from: usize, to: usize| {
            Self::float_slice(sums.clone(), &[Slice::from(from..to), Slice::from(0..channels)])
        };
        let by_bias = Self::float_reshape(into_contiguous(rows(width, width + 1)), [channels].into());
        let by_weight = into_contiguous(Self::float_transpose(rows(0, width)));
        debug_assert_eq!(voxels, winners.shape()[0]);
        (by_features, by_weight, by_bias)
    }
}

/// As `like` in type and device.
fn zeros(like: &CubeTensor, shape: [usize; 2]) -> CubeTensor {
    let dtype = if like.dtype == DType::F16 { FloatDType::F16 } else { FloatDType::F32 };
    Cube::float_zeros(shape.into(), &like.device, dtype)
}
