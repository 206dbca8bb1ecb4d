//! Point clouds, occupancy grids, labels, file formats and metrics.
//!
//! The lowest room of Occam: it knows no device, no Burn and no window, so that its tests build in a minute and
//! the compiler keeps the order of the rooms.
//!
//! Frames: clouds and grids are metric, z up, x forward, y left, as in KITTI. A grid sits in the frame of its cloud.

pub mod cloud;
pub mod completion;
pub mod demo;
mod downscale;
pub mod error;
pub mod formats;
pub mod grid;
pub mod labels;
pub mod metrics;
pub mod rays;
mod votes;

pub use cloud::PointCloud;
pub use downscale::downscale_target;
pub use error::{Error, Result};
pub use grid::{AxisOrder, GridSpec, VoxelGrid};
pub use labels::LabelMap;
pub use votes::Votes;
