//! Layers that more than one network uses.

mod init;

pub use init::Init;
