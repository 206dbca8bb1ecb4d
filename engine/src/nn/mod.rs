//! Layers that more than one network uses.

mod conv;
mod init;
mod pool;

pub use conv::{conv1x1x1, conv2d, conv3d};
pub use init::Init;
pub use pool::halve3d;
