//! Lovász-softmax.

use super::Targets;
use super::probabilities::{Probabilities, WithGradient};
use crate::ops::lovasz_gradient;

/// The Lovász extension of the Jaccard loss (Berman et al., arXiv 1705.08790), mean over the classes that occur; 0
/// without any. All voxels of the batch count as one set.
pub(super) fn lovasz(probabilities: &Probabilities, targets: &Targets) -> WithGradient {
    let Probabilities { p, labels, is_target, .. } = probabilities;
    let gradient = lovasz_gradient(p.clone(), labels.clone(), &targets.counts);
    // The extension is linear while the order of the errors stays: each error times its weight. Where the class is the
    // target's the gradient is minus the weight and p - 1 minus the error, so that no term is negative.
    let errors = p.clone() - is_target.clone().float();
    (probabilities.class_sums(gradient.clone() * errors).sum(), gradient)
}
