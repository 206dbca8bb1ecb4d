//! The head on a GPU: `shaders/occupancy_head.wgsl` and `occupancy_head_gradient.wgsl`.

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{DType, FloatDType, Slice};

use super::{HeadOps, Sizes, TILE_VOXELS};
use crate::gpu::shader::{self, head_classes, head_permutation};
use crate::gpu::{Buffer, GroupCost, launch_split, new_like, new_tensor};
use crate::ops::channel_sums::ChannelSumsOps;

/// `[K, C + 2]`: of every class its weights, its bias and its weight in the loss. Few tensors can be bound.
fn head(weight: FloatTensor<Cube>, bias: FloatTensor<Cube>, class_weights: FloatTensor<Cube>) -> CubeTensor {
    let classes = weight.shape()[0];
    let column = |vector| Cube::float_reshape(vector, [classes, 1].into());
    into_contiguous(Cube::float_cat(vec![weight, column(bias), column(class_weights)], 1))
}

/// Parameters that both kernels begin with.
fn params(sizes: Sizes, gamma: f32) -> Vec<u32> {
    let numbers = [sizes.all_voxels(), sizes.voxels, sizes.classes, sizes.channels].map(|number| number as u32);
    [&numbers[..], &[gamma.to_bits()]].concat()
}

impl HeadOps for Cube {
    fn occupancy_head(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gamma: f32,
    ) -> FloatTensor<Self> {
        let sizes = Sizes::of::<Self>(&x, &weight);
        let (x, labels) = (into_contiguous(x), into_contiguous(labels));
        let loss = new_tensor(&x, [sizes.batch, sizes.voxels], DType::F32);
        if sizes.all_voxels() == 0 {
            return loss;
        }
        let head = head(weight, bias, class_weights);
        let buffers = [Buffer::Read(&x), Buffer::Read(&labels), Buffer::Read(&head), Buffer::Write(&loss)];
        let shader = &shader::OCCUPANCY_HEAD;
        let group = shader.workgroup_size as usize;
        let values = sizes.channels * sizes.classes.next_multiple_of(head_classes(sizes.classes));
        let bytes = group * (sizes.channels * x.dtype.size() * passes(sizes) + 8) + 4 * values;
        let cost = GroupCost { flops: (group * (2 * values + 20 * sizes.classes)) as u64, bytes: bytes as u64 };
        let groups = sizes.all_voxels().div_ceil(group) as u32;
        let permutation = head_permutation(sizes.classes, x.dtype);
        launch_split(shader, permutation, &buffers, &params(sizes, gamma), groups, cost.max_groups());
        loss
    }

    fn occupancy_head_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        labels: IntTensor<Self>,
        class_weights: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        gamma: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let sizes = Sizes::of::<Self>(&x, &weight);
        let Sizes { channels, classes, .. } = sizes;
        let [x, gradient] = [x, gradient].map(into_contiguous);
        let labels = into_contiguous(labels);
        if sizes.all_voxels() == 0 {
            let zeros = |shape| Self::float_zeros(shape, &x.device, FloatDType::F32);
            let by_head = (zeros([classes, channels].into()), zeros([classes].into()));
            return (x, by_head.0, by_head.1);
        }
        let head = head(weight, bias, class_weights);
        let passes = passes(sizes);
        // Later passes over the classes need the features again: then the gradient is a tensor of its own.
        let (x, own) = match passes {
            1 => (if x.can_mut() { x } else { x.copy() }, None),
            _ => (x.clone(), Some(new_like(&x, x.dtype))),
        };
        let (groups, tiles) = (sizes.groups(), sizes.group_tiles());
        let partials = new_tensor(&x, [groups, classes * (channels + 1)], DType::F32);
        let [features, by_x] = match &own {
            None => [Buffer::Update(&x), Buffer::Read(&head)],
            Some(own) => [Buffer::Read(&x), Buffer::Write(own)],
        };
        let [labels, head, gradient] = [Buffer::Read(&labels), Buffer::Read(&head), Buffer::Read(&gradient)];
        let buffers = [features, labels, head, gradient, by_x, Buffer::Write(&partials)];
        let voxels = tiles * TILE_VOXELS;
        let products = channels * classes.next_multiple_of(head_classes(classes));
        let products = products * if passes == 1 { 3 } else { 4 };
        let of_voxel = x.dtype.size() * channels * (2 + 2 * passes) + 12;
        let cost = GroupCost {
            flops: (voxels * (2 * products + 40 * classes)) as u64,
            bytes: (voxels * of_voxel + tiles * classes * (channels + 1) * 8) as u64,
        };
        let params = [&params(sizes, gamma)[..], &[tiles as u32]].concat();
        let permutation = head_permutation(classes, x.dtype);
        let shader = &shader::OCCUPANCY_HEAD_GRADIENT;
        launch_split(shader, permutation, &buffers, &params, groups as u32, cost.max_groups());

        let partials = Self::float_reshape(partials, [groups, classes * (channels + 1), 1].into());
        let sums = Self::float_reshape(Self::channel_sums(partials), [classes, channels + 1].into());
        let columns =
            |from: usize, to: usize| Self::float_slice(sums.clone(), &[Slice::from(0..classes), Slice::from(from..to)]);
        let by_bias = Self::float_reshape(into_contiguous(columns(channels, channels + 1)), [classes].into());
        (own.unwrap_or(x), into_contiguous(columns(0, channels)), by_bias)
    }
}

/// Passes over the classes.
fn passes(sizes: Sizes) -> usize {
    sizes.classes.div_ceil(head_classes(sizes.classes))
}
