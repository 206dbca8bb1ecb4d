//! "Too large" found before the device finds it: a tensor beyond a device's limit is created without complaint and
//! fails only when something made from it is read.

use burn::backend::DispatchDevice;
use burn::tensor::Device;

use crate::{Error, Result};

/// Whether `device` computes on the processor, in the memory of the host.
pub fn is_cpu(device: &Device) -> bool {
    let device = device.clone().without_autodiff();
    !matches!(device.as_dispatch(), DispatchDevice::Cube(_))
}

/// Checks that one tensor of `bytes` fits a kernel's binding on `device`. `what` names it: `the dense grid 2x2x2`.
///
/// # Errors
///
/// [`Error::TooLarge`] with the tensor, its bytes, the limit and what to do. The CPU has no such limit.
pub fn check_binding(device: &Device, what: &str, bytes: u64) -> Result<()> {
    let device = device.clone().without_autodiff();
    let DispatchDevice::Cube(cube) = device.as_dispatch() else { return Ok(()) };
    let limit = cube.client().properties().memory.max_page_size;
    if bytes <= limit {
        return Ok(());
    }
    Err(Error::TooLarge(format!(
        "{what}: {} ({bytes} bytes) in one piece, and the device allows {} ({limit} bytes). Use a smaller batch, a \
         coarser or smaller grid, or the device cpu.",
        crate::bytes_text(bytes),
        crate::bytes_text(limit)
    )))
}
