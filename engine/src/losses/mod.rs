//! Losses over voxel logits, and what they need of the targets.

mod affinity;
mod class_weights;
mod config;
mod cross_entropy;
mod lovasz;
mod probabilities;
mod targets;
mod total;

pub use class_weights::class_weights;
pub use config::{ClassWeights, LossConfig};
pub use cross_entropy::cross_entropy;
pub use targets::{Targets, class_counts};
pub use total::Losses;
