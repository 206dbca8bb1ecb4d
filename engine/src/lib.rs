//! Occam's engine: training and everything that runs on a device. It knows no window and no terminal.
//!
//! Rooms, top to bottom; a room uses only rooms below it.

pub mod session;

pub mod train;

pub mod models;

pub mod nn;

pub mod losses;

pub mod data;

pub mod render;

pub mod ops;

pub mod gpu;

mod error;
mod progress;

pub use error::{Error, Result};
pub use occam_scene as scene;
pub use progress::{Progress, ProgressFn};
