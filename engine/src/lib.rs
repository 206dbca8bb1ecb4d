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

/// What a caught panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
