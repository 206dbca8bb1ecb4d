//! Class-weighted cross-entropy over voxels, and its focal form.

use burn::tensor::{Int, Slice, Tensor};

use super::Targets;
use crate::{Result, ops};

/// `sum(w_y * -log p_y) / sum(w_y)` over the voxels that are not ignored, with `p` the softmax of the logits over
/// classes; 0 when every voxel is ignored.
///
/// `logits`: `[B, C, Z, X, Y]`; `class_weights`: `[C]`, without autodiff.
///
/// # Errors
/// Those of [`ops::cross_entropy`].
pub fn cross_entropy(
    logits: Tensor<5>,
    targets: &Targets,
    class_weights: &Tensor<1>,
    ignore_id: u8,
) -> Result<Tensor<1>> {
    let [batch, classes, z, x, y] = logits.dims();
    let logits = logits.reshape([batch, classes, z * x * y]);
    focal(logits, targets, &heard(class_weights.clone(), ignore_id), 0.0)
}

/// Focal loss (Lin et al., arXiv 1708.02002) of the softmax: `sum(w_y * (1 - p_y)^gamma * -log p_y) / sum(w_y)`.
///
/// The paper's is of a sigmoid a class and is divided by the number of objects, which suits networks without a class for
/// empty; ours have one. With `gamma` 0 this is cross-entropy.
///
/// `logits`: `[B, C, V]`; `class_weights`: `[C]`, [`heard`]. The denominator is that of the whole batch of `targets`, so that
/// parts add up.
pub(super) fn focal(logits: Tensor<3>, targets: &Targets, class_weights: &Tensor<1>, gamma: f64) -> Result<Tensor<1>> {
    mean(targets, class_weights, |labels| ops::cross_entropy(logits, labels, class_weights.clone(), gamma as f32))
}

/// [`focal`] of the logits `weight features + bias`, which are never stored: [`ops::occupancy_head`].
///
/// `features`: `[B, C, V]`.
pub(super) fn focal_of_features(
    features: Tensor<3>,
    weight: Tensor<2>,
    bias: Tensor<1>,
    targets: &Targets,
    class_weights: &Tensor<1>,
    gamma: f64,
) -> Result<Tensor<1>> {
    mean(targets, class_weights, |labels| {
        ops::occupancy_head(features, weight, bias, labels, class_weights.clone(), gamma as f32)
    })
}

/// The sum of a loss of every voxel by what the voxels of the whole batch weigh. `of_voxels` gets the labels `[B, V]`.
fn mean(
    targets: &Targets,
    class_weights: &Tensor<1>,
    of_voxels: impl FnOnce(Tensor<2, Int>) -> Result<Tensor<2>>,
) -> Result<Tensor<1>> {
    let [batch, z, x, y] = targets.labels.dims();
    let labels = targets.labels.clone().reshape([batch, z * x * y]);
    let counts: Vec<f32> = targets.batch_counts.iter().map(|count| *count as f32).collect();
    let counts = Tensor::<1>::from_data(counts.as_slice(), &class_weights.device());
    // The bound only acts when all weights are 0, and then the numerator is 0 too.
    let total = (counts * class_weights.clone()).sum().clamp_min(1e-20);
    Ok(of_voxels(labels)?.sum() / total)
}

/// Class weights that count the ignored id for nothing, also where it is one of the classes.
pub(super) fn heard(class_weights: Tensor<1>, ignore_id: u8) -> Tensor<1> {
    let (ignored, classes) = (usize::from(ignore_id), class_weights.dims()[0]);
    if ignored >= classes {
        return class_weights;
    }
    let zero = Tensor::zeros([1], &class_weights.device());
    class_weights.slice_assign([Slice::from(ignored..ignored + 1)], zero)
}
