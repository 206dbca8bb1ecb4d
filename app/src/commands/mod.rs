//! One file per command: its flags and what it does. Printing more than a line is left to `print`.

pub mod bench;
pub mod data;
pub mod eval;
pub mod gpus;
pub mod import;
mod plan;
pub mod predict;
pub mod presets;
pub mod resume;
pub mod train;
