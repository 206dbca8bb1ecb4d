//! What can go wrong in the engine, sorted by what the user can do about it.

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A file, a folder or a data set is not as it should be.
    #[error(transparent)]
    Input(#[from] occam_scene::Error),
    /// A name, key, value or combination the user asked for cannot be.
    #[error("{0}")]
    Usage(String),
    /// Does not fit: names the tensor or grid, its bytes and the limit.
    #[error("{0}")]
    TooLarge(String),
    /// An allocation failed, or a request for memory was refused: what for. The work can be tried again with less.
    #[error("{0}")]
    OutOfMemory(String),
    /// The device failed or is lost: nothing on it can be relied on. A fresh one may work.
    #[error("{0}")]
    Device(String),
    /// The run failed.
    #[error("{0}")]
    Failed(String),
    /// The user stopped it.
    #[error("stopped by the user")]
    Interrupted,
}

impl Error {
    /// Exit code of the program when it ends with this error: 1 failed, 2 usage or input, 3 does not fit, 130 interrupted.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Device(_) => 1,
            Self::Input(_) | Self::Usage(_) => 2,
            Self::TooLarge(_) | Self::OutOfMemory(_) => 3,
            Self::Interrupted => 130,
        }
    }
}
