//! Occam's engine: training and everything that runs on a device. It knows no window and no terminal.
//!
//! Rooms, top to bottom; a room uses only rooms below it.

pub mod bench;

pub mod session;

pub mod train;

pub mod models;

pub mod nn;

pub mod losses;

pub mod tape;

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

/// Bytes as people read them: `512 B`, `23.50 GiB`.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, power)| bytes >> power > 0) {
        Some((unit, power)) => format!("{:.2} {unit}", bytes as f64 / (1u64 << power) as f64),
        None => format!("{bytes} B"),
    }
}
