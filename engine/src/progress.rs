//! How long work that is not a training run tells where it stands, and is stopped.

use std::ops::ControlFlow;

/// Where a piece of work stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// What is being done, such as `evaluating`.
    pub what: &'a str,
    pub done: usize,
    pub total: usize,
}

/// Called after each unit of work; `Break` stops the work, which then returns `Error::Interrupted`.
pub type ProgressFn<'a> = &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>;
