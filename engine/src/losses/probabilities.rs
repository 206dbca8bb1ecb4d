//! Losses of probabilities that know their own gradient: nothing of them is kept for the backward pass but one tensor.

use burn::tensor::{Bool, Int, Tensor};

/// Softmax of a prediction beside its targets, without autodiff.
pub(super) struct Probabilities {
    /// `[B, C, V]`.
    pub p: Tensor<3>,
    /// `[B, V]`: the class of a voxel, or C where it is ignored.
    pub labels: Tensor<2, Int>,
    /// `[B, C, V]`: whether a class is the one of the voxel; nowhere where it is ignored.
    pub is_target: Tensor<3, Bool>,
    /// `[B, C, V]`.
    pub is_ignored: Tensor<3, Bool>,
    /// B, C, Z, X, Y.
    dims: [usize; 5],
}

/// A loss and its gradient for the probabilities, `[B, C, V]`.
pub(super) type WithGradient = (Tensor<1>, Tensor<3>);

impl Probabilities {
    /// `log_p`: `[B, C, V]`; `targets`: `[B, Z, X, Y]`; both without autodiff.
    pub fn new(log_p: Tensor<3>, targets: Tensor<4, Int>, ignore_id: u8) -> Self {
        let [batch, classes, voxels] = log_p.dims();
        let [_, z, x, y] = targets.dims();
        let shape = [batch, classes, voxels];
        let ignored = targets.clone().equal_elem(ignore_id);
        let labels = targets.mask_fill(ignored.clone(), classes as u32).reshape([batch, voxels]);
        let ids = Tensor::<1, Int>::arange(0..classes as i64, &log_p.device()).cast(labels.dtype());
        let ids = ids.reshape([1, classes, 1]).expand(shape);
        Self {
            p: log_p.exp(),
            is_target: labels.clone().reshape([batch, 1, voxels]).expand(shape).equal(ids),
            labels,
            is_ignored: ignored.reshape([batch, 1, voxels]).expand(shape),
            dims: [batch, classes, z, x, y],
        }
    }

    /// Sums over batch and voxels, `[B, C, V]` to `[C]`, one axis after the other: rounding then does not grow with the
    /// number of voxels, as it does when each is added to one sum of all.
    pub fn class_sums(&self, values: Tensor<3>) -> Tensor<1> {
        let [_, classes, ..] = self.dims;
        values.reshape(self.dims).sum_dim(4).sum_dim(3).sum_dim(2).sum_dim(0).reshape([classes])
    }

    /// `1 - p`, `[B, C, V]`, accurate also where p is nearly 1.
    pub fn complement(&self) -> Tensor<3> {
        let shape = self.p.shape();
        let dominant = self.p.clone().greater_elem(0.5);
        let others = self.p.clone().mask_fill(dominant.clone(), 0.0).sum_dim(1);
        (-self.p.clone() + 1.0).mask_where(dominant, others.expand(shape))
    }

    /// The gradient for the logits from that for the probabilities.
    pub fn logit_gradient(&self, gradient: Tensor<3>) -> Tensor<3> {
        // What is added to all classes of a voxel has no effect on the result, since probabilities add up to 1. With 0
        // at a class of p near 1 nothing large cancels.
        let dominant = self.p.clone().greater_elem(0.5);
        let shift = gradient.clone().mask_fill(dominant.bool_not(), 0.0).sum_dim(1);
        let weighted = self.p.clone() * (gradient - shift);
        weighted.clone() - self.p.clone() * weighted.sum_dim(1)
    }
}
