//! Normalisation on a GPU: statistics and sums of the groups by the reductions of channels, each group taken as one.

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::wgpu::into_contiguous;
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::Slice;

use super::{Norm, NormOps};
use crate::gpu::shader;
use crate::gpu::{Buffer, launch, new_like};
use crate::ops::Activation;
use crate::ops::channels::{EACH_VALUE, Finish, Sizes, reduce_cube};

impl NormOps for Cube {
    fn group_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
        norm: Norm,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let x = into_contiguous(x);
        let weights = weights(gamma, beta);
        let finish = Finish::Inverse { epsilon };
        let statistics = reduce_cube(&shader::CHANNEL_MOMENTS, norm.rows(), &[Buffer::Read(&x)], &[], finish);
        let y = new_like(&x, x.dtype);
        let n = x.shape().num_elements();
        let Sizes { channels, length, .. } = norm.sizes;
        let rows = norm.rows();
        let params = [n, channels, length, rows.length, rows.channels].map(|number| number as u32);
        let params = [&params[..], &[is_relu(&norm)]].concat();
        let buffers = [Buffer::Read(&x), Buffer::Read(&statistics), Buffer::Read(&weights), Buffer::Write(&y)];
        let groups = n.div_ceil(EACH_VALUE) as u32;
        launch(&shader::GROUP_NORM, shader::element(x.dtype), &buffers, &params, groups);
        (y, statistics)
    }

    fn group_norm_backward(
        x: FloatTensor<Self>,
        statistics: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        norm: Norm,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [x, statistics, gradient] = [x, statistics, gradient].map(into_contiguous);
        let weights = weights(gamma, beta);
        let Sizes { channels, length, .. } = norm.sizes;
        let params = [norm.groups, norm.group_channels(), length].map(|number| number as u32);
        let params = [&params[..], &[is_relu(&norm)]].concat();
        let inputs = [Buffer::Read(&x), Buffer::Read(&gradient), Buffer::Read(&statistics), Buffer::Read(&weights)];
        let sums = reduce_cube(&shader::GROUP_NORM_SUMS, norm.rows(), &inputs, &params, Finish::Sums(2));
        let out = new_like(&x, x.dtype);
        let buffers = [&inputs[..], &[Buffer::Read(&sums), Buffer::Write(&out)]].concat();
        let by_weights = reduce_cube(&shader::GROUP_NORM_BACKWARD, norm.sizes, &buffers, &params, Finish::Sums(2));
        let [by_gamma, by_beta] = [0, 1].map(|row| {
            let row = Cube::float_slice(by_weights.clone(), &[Slice::from(row..row + 1)]);
            Cube::float_reshape(row, [channels].into())
        });
        (out, by_gamma, by_beta)
    }
}

fn is_relu(norm: &Norm) -> u32 {
    u32::from(norm.activation == Activation::Relu)
}

/// `[2 * C]`: gamma, then beta, as the kernels have no binding to spare.
fn weights(gamma: FloatTensor<Cube>, beta: FloatTensor<Cube>) -> FloatTensor<Cube> {
    into_contiguous(Cube::float_cat(vec![gamma, beta], 0))
}
