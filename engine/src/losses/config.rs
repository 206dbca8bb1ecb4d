//! The `[loss]` part of a configuration.

use serde::{Deserialize, Serialize};

/// Which losses train a network, and how much each weighs in their sum; 0 leaves one out. Runs from before there was a
/// choice trained on cross-entropy alone: that is what absent keys mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossConfig {
    /// Of cross-entropy and focal loss.
    pub class_weights: ClassWeights,
    #[serde(default = "one")]
    pub cross_entropy: f64,
    #[serde(default)]
    pub lovasz: f64,
    #[serde(default)]
    pub semantic_affinity: f64,
    #[serde(default)]
    pub geometric_affinity: f64,
    #[serde(default)]
    pub focal: f64,
    /// Exponent of the focal loss: the larger, the less count voxels that are predicted well. 0 gives cross-entropy.
    #[serde(default = "two")]
    pub focal_gamma: f64,
}

fn one() -> f64 {
    1.0
}

fn two() -> f64 {
    2.0
}

impl LossConfig {
    /// Key and weight of every loss.
    pub fn weights(&self) -> [(&'static str, f64); 5] {
        [
            ("loss.cross_entropy", self.cross_entropy),
            ("loss.lovasz", self.lovasz),
            ("loss.semantic_affinity", self.semantic_affinity),
            ("loss.geometric_affinity", self.geometric_affinity),
            ("loss.focal", self.focal),
        ]
    }

    /// Whether the loss is a sum over voxels, which can be taken a few at a time. Lovász and the affinities are not: they look
    /// at all voxels of a class together.
    pub fn by_planes(&self) -> bool {
        self.lovasz <= 0.0 && self.semantic_affinity <= 0.0 && self.geometric_affinity <= 0.0
    }
}

/// What the class weights 1/ln(f + 0.001) are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassWeights {
    /// All classes weigh the same.
    None,
    /// f: voxels of a class in all training targets (LMSCNet). Mild: the rarest class weighs about twice the commonest.
    Set,
    /// f: voxels of a class in an average training target. Lifts rare classes more, for short runs.
    Scene,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of before there was a choice go on as they began.
    #[test]
    fn a_configuration_without_the_newer_keys_means_cross_entropy() {
        let old: LossConfig = toml::from_str("class_weights = \"set\"").unwrap();
        assert_eq!(old.class_weights, ClassWeights::Set);
        assert_eq!(old.weights().map(|(_, weight)| weight), [1.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(toml::from_str::<LossConfig>("class_weights = \"set\"\nlovas = 1.0").is_err());
    }
}
