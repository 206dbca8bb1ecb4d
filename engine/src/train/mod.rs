//! The step, its optimizer and schedule, and the files of a run.

mod config;
mod layers;

pub use config::{AugmentConfig, DataConfig, LossConfig, ModelConfig, OptimConfig, StepsConfig, TrainConfig};
pub use layers::presets;
