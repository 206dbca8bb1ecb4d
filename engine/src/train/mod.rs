//! The step, its optimizer and schedule, and the files of a run.

mod config;

pub use config::TrainConfig;
