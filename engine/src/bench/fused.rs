//! Operations that keep no intermediates, beside the same made of ours one after the other.

use burn::tensor::{DType, Int, Tensor, TensorData};

use super::Random;
use super::case::Pass;
use super::measure::{Pair, Run, flat};
use crate::Result;
use crate::ops::conv::{ConvOptions, Epilogue, conv};
use crate::ops::gemm::{GemmOptions, Layout, gemm};
use crate::ops::{self, Activation};

/// Features, weights and biases.
type Operands<const D: usize> = (Tensor<D>, Tensor<2>, Tensor<1>);

/// The occupancy head of `[1, C, V]`, beside a convolution with a kernel of one voxel and `ops::cross_entropy`.
pub fn head(random: &Random, [channels, voxels, classes]: [usize; 3], pass: Pass) -> Pair {
    let operands =
        (random.tensor(1, [1, channels, voxels]), random.full(2, [classes, channels]), random.full(3, [classes]));
    let labels: Vec<u32> = (0..voxels).map(|voxel| (voxel * 7919 % 257) as u32 % (classes as u32 + 1)).collect();
    let labels = Tensor::<2, Int>::from_data(TensorData::new(labels, [1, voxels]), (&random.device, DType::U32));
    let class_weights = Tensor::<1>::ones([classes], (&random.device, DType::F32));
    let (again, dtype) = ((labels.clone(), class_weights.clone()), random.dtype);
    Pair {
        ours: run(pass, operands.clone(), move |(x, weight, bias)| {
            Ok(ops::occupancy_head(x, weight, bias, labels.clone(), class_weights.clone(), 0.0)?.sum())
        }),
        burns: run(pass, operands, move |(x, weight, bias)| {
            let (labels, class_weights) = again.clone();
            let (x, weight) = (x.reshape([1, channels, 1, 1, voxels]), weight.cast(dtype));
            let weight = weight.reshape([classes, channels, 1, 1, 1]);
            let epilogue = Epilogue { bias: Some(bias), ..Epilogue::default() };
            let logits = conv(x, weight, &ConvOptions::default(), None, epilogue)?.reshape([1, classes, voxels]);
            Ok(ops::cross_entropy(logits, labels, class_weights, 0.0)?.sum())
        }),
    }
}

/// The voxel encoder of points that lie together already, `per_voxel` a voxel, beside a product with ReLU and the largest
/// value of each segment; for the backward pass a mask of the largest values.
pub fn encoder(random: &Random, [points, width, channels, per_voxel]: [usize; 4], pass: Pass) -> Pair {
    let operands = (random.tensor(1, [points, width]), random.full(2, [channels, width]), random.full(3, [channels]));
    let ints = |values: Vec<u32>| {
        let data = TensorData::new(values.clone(), [values.len()]);
        Tensor::<1, Int>::from_data(data, (&random.device, DType::U32))
    };
    let voxels = points.div_ceil(per_voxel);
    let starts = ints((0..=voxels).map(|voxel| (voxel * per_voxel).min(points) as u32).collect());
    let order = ints((0..points as u32).collect());
    let voxel_of_point = ints((0..points).map(|point| (point / per_voxel) as u32).collect());
    let (ends, dtype) = (starts.clone(), random.dtype);
    Pair {
        ours: run(pass, operands.clone(), move |(x, weight, bias)| {
            Ok(ops::voxel_encoder(x, order.clone(), starts.clone(), weight, bias)?.sum())
        }),
        burns: run(pass, operands, move |(x, weight, bias)| {
            let (x, weight) = (x.reshape([1, points, width]), weight.cast(dtype).reshape([1, channels, width]));
            let options =
                GemmOptions { b: Layout::Transposed, bias: Some(bias), activation: Activation::Relu, ..<_>::default() };
            let y = gemm(x, weight, options)?.reshape([points, channels]);
            let largest = ops::segment_max(y.clone().without_autodiff(), ends.clone());
            if pass == Pass::Forward {
                return Ok(largest.sum());
            }
            let of_points = largest.select(0, voxel_of_point.clone()).cast(dtype);
            let mask = y.clone().without_autodiff().equal(of_points).float().cast(dtype);
            Ok((y * mask.autodiff()).sum())
        }),
    }
}

/// The result, or the gradients of all operands.
fn run<const D: usize>(
    pass: Pass,
    operands: Operands<D>,
    function: impl Fn(Operands<D>) -> Result<Tensor<1>> + 'static,
) -> Run {
    if pass != Pass::Step {
        return Box::new(move || Ok(vec![function(operands.clone())?.cast(DType::F32)]));
    }
    Box::new(move || {
        let (x, weight, bias) = operands.clone();
        let (x, weight, bias) =
            (x.autodiff().require_grad(), weight.autodiff().require_grad(), bias.autodiff().require_grad());
        let gradients = function((x.clone(), weight.clone(), bias.clone()))?.backward();
        let all = [x.grad(&gradients).map(flat), weight.grad(&gradients).map(flat), bias.grad(&gradients)];
        Ok(all.into_iter().flatten().collect())
    })
}
