//! What memory and time are compared with: LMSCNet-SS by Burn's ordinary autodiff, in one graph, over the same kernels.
//!
//! Each operation stands by itself and keeps what its derivative needs: convolutions without anything fused in, batch
//! normalisation as moments and an affine map, ReLU, sums, and a loss of Burn's log-softmax.

use burn::nn::BatchNorm;
use burn::nn::conv::{Conv2d, Conv3d};
use burn::optim::GradientsParams;
use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, Device, FloatDType, Int, Tensor};

use crate::losses::{Losses, Targets};
use crate::models::{LmscNet, Network, SegmentationHead};
use crate::nn::{batch_norm, conv_transpose2d, conv2d, conv3d, halve2d};
use crate::ops::Activation::Identity;
use crate::ops::{affine, relu};
use crate::tape::Pass;
use crate::{Error, Result, gpu};

/// Which cross-entropy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Burn's log-softmax, and the log-likelihood picked out of it.
    Burns,
    /// [`crate::ops::cross_entropy`], over all voxels at once.
    Ours,
}

/// Loss, `[1]` without autodiff, gradients, and bytes in use when the forward pass ended. `features`: `[B, channels, Z, X,
/// Y]` without autodiff.
///
/// # Errors
/// [`Error::Usage`] for another network; those of the operations.
pub fn learn(
    network: &Network,
    features: Tensor<5>,
    targets: &Targets,
    losses: &Losses,
    class_weights: &Tensor<1>,
    loss: Loss,
    device: &Device,
) -> Result<(Tensor<1>, GradientsParams, u64)> {
    let Network::LmscNet(net) = network else { return Err(not_written(network.name())) };
    let logits = forward(net, features.autodiff())?;
    let loss = match loss {
        Loss::Burns => cross_entropy(logits, targets, class_weights),
        Loss::Ours => losses.total(vec![logits], std::slice::from_ref(targets))?,
    };
    let kept = gpu::memory_use(device).unwrap_or_default().in_use_bytes;
    let value = loss.clone().without_autodiff();
    let gradients = loss.backward();
    Ok((value, GradientsParams::from_grads(gradients, net), kept))
}

/// # Errors
/// [`Error::Usage`] when there is no stock form of the network.
pub fn check(network: &str) -> Result<()> {
    if network == "lmscnet-ss" { Ok(()) } else { Err(not_written(network)) }
}

fn not_written(network: &str) -> Error {
    Error::Usage(format!("bench memory: found the network {network}, expected lmscnet-ss, whose stock form is written"))
}

fn forward(net: &LmscNet, features: Tensor<5>) -> Result<Tensor<5>> {
    let [batch, channels, z, x, y] = features.dims();
    let skip_1_1 = block(&net.encoder_block1, features.reshape([batch, channels * z, x, y]))?;
    let skip_1_2 = block(&net.encoder_block2, halve2d(skip_1_1.clone())?)?;
    let skip_1_4 = block(&net.encoder_block3, halve2d(skip_1_2.clone())?)?;
    let out_1_8 = block(&net.encoder_block4, halve2d(skip_1_4.clone())?)?;
    let out_1_8 = conv2d(&net.conv_out_scale_1_8, out_1_8, Identity)?;
    let joined = Tensor::cat(vec![conv_transpose2d(&net.deconv1_8, out_1_8.clone())?, skip_1_4], 1);
    let out_1_4 = conv2d(&net.conv_out_scale_1_4, conv_relu(&net.conv1_4, joined)?, Identity)?;
    let joined = vec![
        conv_transpose2d(&net.deconv1_4, out_1_4.clone())?,
        skip_1_2,
        conv_transpose2d(&net.deconv_1_8_to_1_2, out_1_8.clone())?,
    ];
    let out_1_2 = conv_relu(&net.conv1_2, Tensor::cat(joined, 1))?;
    let out_1_2 = conv2d(&net.conv_out_scale_1_2, out_1_2, Identity)?;
    let joined = vec![
        conv_transpose2d(&net.deconv1_2, out_1_2)?,
        skip_1_1,
        conv_transpose2d(&net.deconv_1_4_to_1_1, out_1_4)?,
        conv_transpose2d(&net.deconv_1_8_to_1_1, out_1_8)?,
    ];
    let volume = conv_relu(&net.conv1_1, Tensor::cat(joined, 1))?;
    head(&net.seg_head_1_1, volume.unsqueeze_dim(1))
}

fn head(head: &SegmentationHead, volume: Tensor<5>) -> Result<Tensor<5>> {
    let plain = |conv: &Conv3d, x: Tensor<5>| conv3d(conv, x, None, None, Identity);
    let x = relu(plain(&head.conv0, volume)?)?;
    let mut sum = x.clone();
    for branch in 0..head.conv1.len() {
        let inner = relu(norm(&head.bn1[branch], plain(&head.conv1[branch], x.clone())?)?)?;
        sum = sum + norm(&head.bn2[branch], plain(&head.conv2[branch], inner)?)?;
    }
    plain(&head.conv_classes, relu(sum)?)
}

fn block(convs: &[Conv2d], x: Tensor<4>) -> Result<Tensor<4>> {
    convs.iter().try_fold(x, |x, conv| conv_relu(conv, x))
}

fn conv_relu(conv: &Conv2d, x: Tensor<4>) -> Result<Tensor<4>> {
    relu(conv2d(conv, x, Identity)?)
}

fn norm(layer: &BatchNorm, x: Tensor<5>) -> Result<Tensor<5>> {
    let prologue = batch_norm(layer, &x, Identity, &mut Pass::only())?;
    let [batch, channels, d, h, w] = x.dims();
    let x = x.reshape([batch, channels, d * h * w]);
    Ok(affine(x, prologue.scale, prologue.shift, None, Identity)?.reshape([batch, channels, d, h, w]))
}

/// `sum(w_y * -log p_y) / sum(w_y)`. Every label is a class: bench's samples ignore nothing.
fn cross_entropy(logits: Tensor<5>, targets: &Targets, class_weights: &Tensor<1>) -> Tensor<1> {
    let [batch, classes, z, x, y] = logits.dims();
    let voxels = z * x * y;
    let logits = logits.reshape([batch, classes, voxels]);
    let logits = if logits.dtype() == DType::F32 { logits } else { logits.cast(FloatDType::F32) };
    let labels: Tensor<3, Int> = targets.labels.clone().reshape([batch, 1, voxels]);
    let weights = class_weights.clone().select(0, labels.clone().reshape([batch * voxels]));
    let total = weights.clone().sum();
    let picked = log_softmax(logits, 1).gather(1, labels).reshape([batch * voxels]);
    -(picked * weights).sum() / total
}
