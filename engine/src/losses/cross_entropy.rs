//! Class-weighted cross-entropy over voxels, and its focal form.

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
    let log_p = log_softmax(logits.reshape([batch, classes, z * x * y]), 1);
    TargetScores::new(log_p, targets, class_weights, ignore_id).cross_entropy()
}

/// What a prediction gives the class of the target, voxel by voxel.
pub(super) struct TargetScores {
    /// `[B, 1, V]`.
    log_p: Tensor<3>,
    /// `[B, 1, V]`, 0 where ignored.
    weights: Tensor<3>,
}

impl TargetScores {
    /// `log_p`: `[B, C, V]`; `targets`: `[B, Z, X, Y]`.
    pub fn new(log_p: Tensor<3>, targets: Tensor<4, Int>, class_weights: &Tensor<1>, ignore_id: u8) -> Self {
        let [batch, _, voxels] = log_p.dims();
        let ignored = targets.clone().equal_elem(ignore_id);
        let targets = targets.mask_fill(ignored.clone(), 0);
        let weights = class_weights
            .clone()
            .select(0, targets.clone().reshape([batch * voxels]))
            .reshape([batch, 1, voxels])
            .mask_fill(ignored.reshape([batch, 1, voxels]), 0.0);
        Self { log_p: log_p.gather(1, targets.reshape([batch, 1, voxels])), weights }
    }

    pub fn cross_entropy(&self) -> Tensor<1> {
        self.mean_of(self.log_p.clone())
    }

    /// Focal loss (Lin et al., arXiv 1708.02002) of the softmax: `sum(w_y * (1 - p_y)^gamma * -log p_y) / sum(w_y)`.
    ///
    /// The paper's is of a sigmoid a class and is divided by the number of objects, which suits networks without a
    /// class for empty; ours have one. With `gamma` 0 this is cross-entropy.
    pub fn focal(&self, gamma: f64) -> Tensor<1> {
        // The bound is below what 1 - p resolves: it only keeps the power's derivative finite where p is 1.
        let missing = (-self.log_p.clone().exp() + 1.0).clamp_min(1e-8);
        self.mean_of(self.log_p.clone() * missing.powf_scalar(gamma))
    }

    /// Minus the weighted mean.
    fn mean_of(&self, log_p: Tensor<3>) -> Tensor<1> {
        // The bound only acts when all weights are 0, and then the numerator is 0 too.
        -(log_p * self.weights.clone()).sum() / self.weights.clone().sum().clamp_min(1e-20)
    }
}
