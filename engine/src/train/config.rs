//! Everything that decides a run, in one struct: defaults < preset < file < flags.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use occam_scene::GridSpec;
use serde::{Deserialize, Serialize};

use super::Budget;
use super::planning;
pub use crate::data::{AugmentConfig, DataConfig, InputConfig};
pub use crate::losses::{ClassWeights, LossConfig};
use crate::models::Network;
use crate::{Error, Result};

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
    /// Absent in runs of earlier versions, which saw occupancy only.
    #[serde(default)]
    pub input: InputConfig,
    pub model: ModelConfig,
    pub loss: LossConfig,
    pub optim: OptimConfig,
    pub augment: AugmentConfig,
    pub steps: StepsConfig,
    /// Absent in runs of earlier versions, as the next.
    #[serde(default)]
    pub memory: MemoryConfig,
    #[serde(default)]
    pub precision: PrecisionConfig,
}

/// What memory training may take, and how it keeps within.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryConfig {
    /// `none`, `auto` (what is free when the run starts, on a discrete GPU all of its memory, less a tenth) or a size such as
    /// `4GiB`.
    pub budget: String,
    /// What the backward pass computes again: `auto` (`plan` within a budget, else `none`), `none`, `every-2` (or another
    /// number), `sqrt`, `topology` or `plan`.
    pub recompute: String,
    /// Samples that go through the network at a time; 0: the whole batch; halved where it does not fit. A smaller number
    /// than `steps.batch` splits it; the loss stays that of the whole step, but batch normalization takes the statistics of
    /// each part (see `model.frozen_statistics`), and Lovász and the affinities look at each part by itself.
    pub micro_batch: usize,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { budget: "none".into(), recompute: "auto".into(), micro_batch: 0 }
    }
}

/// In what numbers the network computes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrecisionConfig {
    /// `f32`, `f16` (stored in half, summed in f32), `bf16` (kept in bf16, computed in f32) or `auto` (f16 only when no f32
    /// plan fits the budget).
    pub format: String,
    /// Policy of the loss scale in f16: `dynamic`, `grad-norm`, `static`, or `off`.
    pub loss_scale: String,
    pub initial_scale: f64,
    /// Of `dynamic`: steps without overflow before the scale doubles.
    pub growth_steps: usize,
}

impl Default for PrecisionConfig {
    fn default() -> Self {
        Self { format: "f32".into(), loss_scale: "dynamic".into(), initial_scale: 512.0, growth_steps: 200 }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// One of [`Network::NAMES`].
    pub network: String,
    /// File of weights, or a run, that training starts from.
    pub weights: Option<PathBuf>,
    /// Batch normalization takes its running statistics in training too, and leaves them as they are: for training on from
    /// weights, where a batch in parts then gives the gradients of the whole.
    #[serde(default)]
    pub frozen_statistics: bool,
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
pub struct StepsConfig {
    /// Samples that are loaded together, and go through the network together unless `memory.micro_batch` says less.
    pub batch: usize,
    /// Batches of a step, which count as one.
    pub accumulate: usize,
    /// Optimizer steps; 0: `epochs` decides.
    pub steps: usize,
    pub epochs: usize,
    /// Steps between evaluations; 0: at the end only.
    pub evaluate_every: usize,
    /// Steps between checkpoints; 0: at the end only.
    pub checkpoint_every: usize,
}

impl TrainConfig {
    /// Refuses values that cannot be, naming key, found and expected.
    ///
    /// # Errors
    /// `Error::Usage`.
    pub fn check(&self) -> Result<()> {
        let Self { data, loss, optim, augment, steps, .. } = self;
        let too_large = self.grid.checked_len().is_none_or(|len| len > 1 << 31);
        let error = if too_large { Error::TooLarge } else { Error::Usage };
        self.grid.check().map_err(|why| error(format!("grid: {why}")))?;
        whole("data.demo_train", data.demo_train, 1..=MAX_SAMPLES)?;
        whole("data.demo_validation", data.demo_validation, 1..=MAX_SAMPLES)?;
        whole("data.workers", data.workers, 1..=MAX_WORKERS)?;
        whole("data.prior_scans", data.prior_scans, 0..=MAX_SAMPLES)?;
        whole("data.future_scans", data.future_scans, 0..=MAX_SAMPLES)?;
        whole("data.virtual_scans", data.virtual_scans, 2..=MAX_SAMPLES)?;
        within("data.min_range_m", data.min_range_m, 0.0..=1e3)?;
        within("data.sensor_height_m", data.sensor_height_m, 0.0..=1e3)?;
        whole("steps.batch", steps.batch, 1..=MAX_SAMPLES)?;
        whole("steps.accumulate", steps.accumulate, 1..=MAX_SAMPLES)?;
        whole("memory.micro_batch", self.memory.micro_batch, 0..=MAX_SAMPLES)?;
        whole("steps.steps", steps.steps, 0..=MAX_STEPS)?;
        whole("steps.epochs", steps.epochs, 0..=MAX_STEPS)?;
        let budget: Budget = self.memory.budget.parse()?;
        planning::check(&self.memory.recompute, budget != Budget::None)?;
        Network::check_name(&self.model.network)?;
        let paths = [
            ("runs", Some(&self.runs)),
            ("data.path", data.path.as_ref()),
            ("data.voxels", data.voxels.as_ref()),
            ("model.weights", self.model.weights.as_ref()),
        ];
        for (key, path) in paths {
            if let Some(path) = path.filter(|path| path.to_str().is_none()) {
                return Err(Error::Usage(format!("{key} = {}, expected a path in UTF-8", path.display())));
            }
        }
        if steps.steps == 0 && steps.epochs == 0 {
            return Err(Error::Usage("steps.steps and steps.epochs are both 0: give one of them".into()));
        }
        within("data.validation_share", data.validation_share, 0.0..=0.9)?;
        for (key, weight) in loss.weights() {
            within(key, weight, 0.0..=1e3)?;
        }
        if loss.weights().iter().all(|(_, weight)| *weight == 0.0) {
            let keys = loss.weights().map(|(key, _)| key);
            return Err(Error::Usage(format!("{} are all 0: give one of them a weight, such as 1", keys.join(", "))));
        }
        within("loss.focal_gamma", loss.focal_gamma, 0.0..=10.0)?;
        within("data.max_range_m", data.max_range_m, data.min_range_m..=f64::INFINITY)?;
        within("optim.lr", optim.lr, f64::MIN_POSITIVE..=1e3)?;
        within("optim.weight_decay", optim.weight_decay, 0.0..=1e3)?;
        within("optim.beta1", optim.beta1, 0.0..=0.999_999)?;
        within("optim.beta2", optim.beta2, 0.0..=0.999_999)?;
        within("optim.epsilon", optim.epsilon, f64::MIN_POSITIVE..=1.0)?;
        within("optim.clip_norm", optim.clip_norm, 0.0..=1e9)?;
        within("optim.decay", optim.decay, f64::MIN_POSITIVE..=1.0)?;
        one_of("optim.schedule", &optim.schedule, &SCHEDULES)?;
        one_of("precision.format", &self.precision.format, &super::precision::FORMATS)?;
        super::loss_scale::check(&self.precision)?;
        within("augment.rotate_deg", augment.rotate_deg, 0.0..=180.0)?;
        within("augment.scale", augment.scale, 0.0..=0.5)?;
        within("augment.jitter_m", augment.jitter_m, 0.0..=1.0)?;
        within("augment.drop", augment.drop, 0.0..=0.95)?;
        for (axis, flip) in [augment.flip_x, augment.flip_y].into_iter().enumerate() {
            if flip && !(self.grid.origin_m[axis] < 0.0 && self.grid.end_m()[axis] > 0.0) {
                let name = ["x", "y"][axis];
                return Err(Error::Usage(format!(
                    "augment.flip_{name} = true, expected false for a grid from {} m to {} m along {name}: it lies on \
                     one side of the sensor, and its mirror image outside",
                    self.grid.origin_m[axis],
                    self.grid.end_m()[axis]
                )));
            }
        }
        let plain = |name: &str| !name.contains(['/', '\\']) && name != "." && name != "..";
        if !plain(&self.name) {
            return Err(Error::Usage(format!(
                "name = {:?}, expected the name of a folder without separators; `runs` says where it goes",
                self.name
            )));
        }
        Ok(())
    }
}

/// Known values of `optim.schedule`.
const SCHEDULES: [&str; 2] = ["cosine", "epoch-decay"];

const MAX_WORKERS: usize = 256;

/// Of one kind; the order of an epoch is held in memory.
const MAX_SAMPLES: usize = 1_000_000;

/// The loss of every step is held in memory and written into every checkpoint.
const MAX_STEPS: usize = 10_000_000;

pub(super) fn one_of(key: &str, found: &str, known: &[&str]) -> Result<()> {
    if known.contains(&found) {
        return Ok(());
    }
    Err(Error::Usage(format!("{key} = {found:?}, expected one of {}", known.join(", "))))
}

fn whole(key: &str, found: usize, range: RangeInclusive<usize>) -> Result<()> {
    if range.contains(&found) {
        return Ok(());
    }
    Err(Error::Usage(format!("{key} = {found}, expected at least {} and at most {}", range.start(), range.end())))
}

fn within(key: &str, found: f64, range: RangeInclusive<f64>) -> Result<()> {
    if range.contains(&found) {
        return Ok(());
    }
    let least =
        if *range.start() == f64::MIN_POSITIVE { "more than 0".into() } else { format!("at least {}", range.start()) };
    Err(Error::Usage(format!("{key} = {found}, expected {least} and at most {}", range.end())))
}
