//! Layers that more than one network uses.

mod conv;
mod init;
mod norm;
mod part;
mod pool;

pub use conv::{conv_transpose2d, conv_transpose3d, conv2d, conv3d, conv3d_inside, halo, relu_first};
pub use init::Init;
pub use norm::{batch_norm, conv3d_norm, norm_before};
pub use part::Part;
pub use pool::{halve2d, halve3d};
