//! Layers that more than one network uses.

mod conv;
mod init;

pub use conv::{conv2d, conv3d};
pub use init::Init;
