//! Metrics of semantic scene completion, and the baselines that a network has to beat.
//!
//! One [`Confusion`] is filled over the whole split and scored once; averaging the scores of single frames gives other
//! numbers than the published ones.

pub mod baseline;
mod confusion;
mod scores;

pub use confusion::Confusion;
pub use scores::{AbsentPolicy, Scores};
