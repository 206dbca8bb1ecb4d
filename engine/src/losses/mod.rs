//! Losses over voxel logits, and what they need of the targets.

mod class_weights;
mod cross_entropy;
mod downscale;

pub use class_weights::class_weights;
pub use cross_entropy::{cross_entropy, multiscale_cross_entropy};
pub use downscale::downscale_target;
