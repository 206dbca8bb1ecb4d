//! Class-weighted cross-entropy over voxels.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};

/// `sum(w_y * -log p_y) / sum(w_y)` over the voxels whose target is not `ignore_id`, with `p` the softmax of the logits
/// over classes; 0 when every voxel is ignored.
///
/// `logits`: `[B, C, Z, X, Y]`; `targets`: `[B, Z, X, Y]`, each below C or `ignore_id`; `class_weights`: `[C]`.
pub fn cross_entropy(
    logits: Tensor<5>,
    targets: Tensor<4, Int>,
    class_weights: &Tensor<1>,
    ignore_id: u8,
) -> Tensor<1> {
    let [batch, classes, z, x, y] = logits.dims();
    let voxels = z * x * y;
    let ignored = targets.clone().equal_elem(ignore_id);
    let targets = targets.mask_fill(ignored.clone(), 0);
    let weights = class_weights
        .clone()
        .select(0, targets.clone().reshape([batch * voxels]))
        .reshape([batch, 1, voxels])
        .mask_fill(ignored.reshape([batch, 1, voxels]), 0.0);
    let log_p = log_softmax(logits.reshape([batch, classes, voxels]), 1).gather(1, targets.reshape([batch, 1, voxels]));
    // The bound only acts when all weights are 0, and then the numerator is 0 too.
    -(log_p * weights.clone()).sum() / weights.sum().clamp_min(1e-20)
}

/// Mean over scales of [`cross_entropy`]; `logits` and `targets` in the same order of scales.
pub fn multiscale_cross_entropy(
    logits: Vec<Tensor<5>>,
    targets: Vec<Tensor<4, Int>>,
    class_weights: &Tensor<1>,
    ignore_id: u8,
) -> Tensor<1> {
    debug_assert_eq!(logits.len(), targets.len());
    let scales = logits.len() as f32;
    logits
        .into_iter()
        .zip(targets)
        .map(|(logits, targets)| cross_entropy(logits, targets, class_weights, ignore_id))
        .reduce(|sum, loss| sum + loss)
        .expect("a network predicts at one scale at least")
        / scales
}
