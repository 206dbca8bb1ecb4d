//! The sum of the losses that a run trains on.

use std::ops::Range;

use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, FloatDType, Tensor};
use occam_scene::GridSpec;

use super::affinity::affinity;
use super::cross_entropy::{focal, focal_of_features, heard};
use super::lovasz::lovasz;
use super::probabilities::Probabilities;
use super::{LossConfig, Targets};
use crate::Result;
use crate::ops::known_gradient;

/// The losses of a configuration with what they need beside predictions and targets.
#[derive(Debug, Clone)]
pub struct Losses {
    config: LossConfig,
    /// 0 for the ignored id.
    class_weights: Tensor<1>,
    empty_id: u8,
    ignore_id: u8,
}

impl Losses {
    /// `class_weights`: `[C]`, without autodiff. `empty_id` of `spec` is one of the classes.
    pub fn new(config: &LossConfig, class_weights: Tensor<1>, spec: &GridSpec) -> Self {
        let class_weights = heard(class_weights, spec.ignore_id);
        Self { config: config.clone(), class_weights, empty_id: spec.empty_id, ignore_id: spec.ignore_id }
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.class_weights.dims()[0]
    }

    /// Mean over scales of the weighted sum of the losses, each over all voxels of the batch that are not ignored; 0
    /// when all are.
    ///
    /// `logits`: `[B, C, Z, X, Y]` a scale; `targets` in the same order of scales, on the same device without autodiff.
    ///
    /// # Errors
    /// Those of [`crate::ops::cross_entropy`].
    pub fn total(&self, logits: Vec<Tensor<5>>, targets: &[Targets]) -> Result<Tensor<1>> {
        debug_assert_eq!(logits.len(), targets.len());
        let scales = logits.len() as f32;
        let mut sum = Sum(None);
        for (logits, targets) in logits.into_iter().zip(targets) {
            sum.add(1.0, self.of_scale(logits, targets)?);
        }
        Ok(sum.0.expect("a network predicts at one scale at least") / scales)
    }

    /// Whether [`Losses::of_planes`] of some planes can be added up; see [`LossConfig::by_planes`].
    pub fn by_planes(&self) -> bool {
        self.config.by_planes()
    }

    /// What some planes along z, `range`, of one of `scales` scales add to [`Losses::total`]; all of them, where
    /// [`Losses::by_planes`] says no. `targets` are those of the whole scale. Over the parts of a batch it adds up to the loss
    /// of the batch; Lovász and the affinities add up to the mean over its samples of what they are of each part.
    ///
    /// # Errors
    /// As [`Losses::total`].
    pub fn of_planes(
        &self,
        logits: Tensor<5>,
        targets: &Targets,
        range: Range<usize>,
        scales: usize,
    ) -> Result<Tensor<1>> {
        let whole = range.len() == targets.labels.dims()[1];
        debug_assert!(whole || self.by_planes());
        let loss = if whole {
            self.of_scale(logits, targets)?
        } else {
            let labels = targets.labels.clone().slice_dim(1, range);
            self.of_scale(logits, &Targets { labels, ..targets.clone() })?
        };
        Ok(if scales == 1 { loss } else { loss / scales as f32 })
    }

    /// [`Losses::of_planes`] of the logits `weight features + bias`, which are never stored
    /// ([`occupancy_head`](crate::ops::occupancy_head)): for networks that end in a convolution with a kernel of one voxel,
    /// where [`Losses::by_planes`] says yes.
    ///
    /// `features`: `[B, C, Z, X, Y]`, the planes `range` of a scale; `weight`: `[K, C]`; `bias`: `[K]`.
    ///
    /// # Errors
    /// Those of [`occupancy_head`](crate::ops::occupancy_head).
    ///
    /// # Panics
    /// When no loss that is a sum over voxels is chosen.
    pub fn of_features(
        &self,
        features: Tensor<5>,
        weight: &Tensor<2>,
        bias: &Tensor<1>,
        targets: &Targets,
        range: Range<usize>,
        scales: usize,
    ) -> Result<Tensor<1>> {
        debug_assert!(self.by_planes());
        let LossConfig { cross_entropy, focal, focal_gamma, .. } = self.config;
        let labels = targets.labels.clone().slice_dim(1, range);
        let targets = Targets { labels, ..targets.clone() };
        let [batch, channels, z, x, y] = features.dims();
        let features = features.reshape([batch, channels, z * x * y]);
        let mut sum = Sum(None);
        for (share, gamma) in [(cross_entropy, 0.0), (focal, focal_gamma)] {
            if share > 0.0 {
                let (weight, bias) = (weight.clone(), bias.clone());
                let loss = focal_of_features(features.clone(), weight, bias, &targets, &self.class_weights, gamma)?;
                sum.add(share, loss);
            }
        }
        let loss = sum.0.expect("a loss over voxels");
        Ok(if scales == 1 { loss } else { loss / scales as f32 })
    }

    fn of_scale(&self, logits: Tensor<5>, targets: &Targets) -> Result<Tensor<1>> {
        let LossConfig { cross_entropy, focal: focal_weight, focal_gamma, .. } = self.config;
        let [batch, classes, z, x, y] = logits.dims();
        let logits = logits.reshape([batch, classes, z * x * y]);
        let mut sum = Sum(None);
        for (weight, gamma) in [(cross_entropy, 0.0), (focal_weight, focal_gamma)] {
            if weight > 0.0 {
                sum.add(weight, focal(logits.clone(), targets, &self.class_weights, gamma)?);
            }
        }
        if let Some(loss) = self.of_probabilities(logits, targets) {
            sum.add(targets.share, loss);
        }
        Ok(sum.0.expect("a configuration without any loss is refused"))
    }

    /// `None` when none of these losses is chosen.
    fn of_probabilities(&self, logits: Tensor<3>, targets: &Targets) -> Option<Tensor<1>> {
        let LossConfig { lovasz: jaccard, semantic_affinity, geometric_affinity, .. } = self.config;
        let affinities = [semantic_affinity, geometric_affinity];
        let with_affinity = affinities.iter().any(|weight| *weight > 0.0);
        if jaccard <= 0.0 && !with_affinity {
            return None;
        }
        // Probabilities and what is computed from them are f32 whatever the network computes in.
        let logits = if logits.dtype() == DType::F32 { logits } else { logits.cast(FloatDType::F32) };
        let log_p = log_softmax(logits.clone().without_autodiff(), 1);
        let probabilities = Probabilities::new(log_p, targets.labels.clone(), self.ignore_id);
        let (mut value, mut gradient) = (Sum(None), Sum(None));
        if jaccard > 0.0 {
            let (loss, of_p) = lovasz(&probabilities, targets);
            value.add(jaccard, loss);
            gradient.add(jaccard, of_p);
        }
        if with_affinity {
            let (loss, of_p) = affinity(&probabilities, targets, affinities, self.empty_id);
            value.add(1.0, loss);
            gradient.add(1.0, of_p);
        }
        Some(known_gradient(logits, value.0?, probabilities.logit_gradient(gradient.0?)))
    }
}

/// A weighted sum that costs nothing while it is one term of weight 1.
struct Sum<const D: usize>(Option<Tensor<D>>);

impl<const D: usize> Sum<D> {
    fn add(&mut self, weight: f64, term: Tensor<D>) {
        let term = if weight == 1.0 { term } else { term * weight };
        self.0 = Some(match self.0.take() {
            Some(sum) => sum + term,
            None => term,
        });
    }
}
