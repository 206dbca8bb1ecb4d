//! Pictures of clouds and grids, drawn on the CPU: no adapter, no display, no fonts of the system.
//!
//! [`preview`] puts a scan, the predicted voxels and, if wanted, the target side by side, all seen from the same place,
//! with the classes named below. [`write_png`] puts the picture into a file.

mod canvas;
mod chart;
mod faces;
mod image;
mod preview;
mod text;
mod view;

pub use chart::{Chart, Series, Style, stack};
pub use faces::{Face, Side, exposed_faces};
pub use image::{Image, write_png};
pub use preview::{PointColour, PreviewOptions, preview};
