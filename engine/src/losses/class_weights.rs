//! Weights that lift rare classes.

/// `1 / ln(f + 0.001)` of each class's voxel count `f` (LMSCNet, arXiv 2008.10559, section 3.3).
///
/// Counts below 3 are taken as 3, where the weight is 0.91: below, the logarithm reaches 0 and turns negative. A class
/// that never occurs thus gets the largest weight there is, of no effect on a loss over the same targets.
pub fn class_weights(counts: &[u64]) -> Vec<f32> {
    counts.iter().map(|&count| (1.0 / (count.max(3) as f64 + 0.001).ln()) as f32).collect()
}
