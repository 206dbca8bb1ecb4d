//! Everything that decides a run, in one struct: defaults < preset < file < flags.

use std::path::PathBuf;

use occam_scene::GridSpec;
use serde::{Deserialize, Serialize};

/// The effective configuration of a run, written to `config.toml` in its folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Preset this began from.
    pub preset: String,
    /// `auto`, `cpu`, an adapter's name or its index.
    pub device: String,
    pub seed: u64,
    /// Folder that gets the run's folder.
    pub runs: PathBuf,
    /// Name of the run's folder; empty: made from the preset and a number.
    pub name: String,
    pub data: DataConfig,
    pub grid: GridSpec,
    pub model: ModelConfig,
    pub loss: LossConfig,
    pub optim: OptimConfig,
    pub augment: AugmentConfig,
    pub steps: StepsConfig,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Empty: the demo world. Else a folder of scans.
    pub path: Option<PathBuf>,
    /// Demo worlds to train on; their seeds start at the run's seed.
    pub demo_train: usize,
    /// Demo worlds to validate on, of other seeds.
    pub demo_validation: usize,
    /// Of a folder of scans: the share, at the end of each sequence, that validates.
    pub validation_share: f64,
    /// Threads that prepare samples.
    pub workers: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// `lmscnet-ss` or `lmscnet` (multiscale).
    pub network: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossConfig {
    /// Weigh classes by 1/ln(f + 0.001)-style weights from counts of the training targets.
    pub class_weights: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimConfig {
    pub lr: f64,
    pub weight_decay: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    /// Global gradient norm is clipped to this; 0: no clipping.
    pub clip_norm: f64,
    pub warmup_steps: usize,
    /// `cosine` (to zero at the last step) or `epoch-decay` (times `decay` each epoch).
    pub schedule: String,
    pub decay: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AugmentConfig {
    pub flip_x: bool,
    pub flip_y: bool,
    /// Largest turn about the vertical, degrees.
    pub rotate_deg: f64,
    /// Largest relative change of scale, such as 0.05.
    pub scale: f64,
    /// Standard deviation of noise on positions, metres.
    pub jitter_m: f64,
    /// Largest share of points that is dropped.
    pub drop: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsConfig {
    pub batch: usize,
    /// Micro-batches whose gradients are added before a step.
    pub accumulate: usize,
    /// Optimizer steps; 0: `epochs` decides.
    pub steps: usize,
    pub epochs: usize,
    /// Steps between evaluations; 0: at the end only.
    pub evaluate_every: usize,
    /// Steps between checkpoints; 0: at the end only.
    pub checkpoint_every: usize,
}
