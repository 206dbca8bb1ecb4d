//! "Too large" and "has no such numbers" found before the device finds it: a tensor beyond a device's limit is created without complaint and
//! fails only when something made from it is read.

use std::fmt;

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Device};

use super::device::adapter_of;
use super::reserve::could_have;
use crate::{Error, Result};

/// Most values of a tensor on a GPU: kernels count in 32 bits, and add a tile to the last place.
pub const MAX_VALUES: u64 = u32::MAX as u64 - 4096;

/// Whether `device` computes on the processor, in the memory of the host.
pub fn is_cpu(device: &Device) -> bool {
    let device = device.clone().without_autodiff();
    !matches!(device.as_dispatch(), DispatchDevice::Cube(_))
}

/// Checks that one tensor of `bytes`, to be made, fits on `device`: in a kernel's binding, or on the CPU in memory.
/// `what` names it: `the dense grid 2x2x2`.
///
/// # Errors
///
/// [`Error::TooLarge`] with the tensor, its bytes, the limit and what to do. On the CPU only where the system does not
/// hand out the memory.
pub fn check_binding(device: &Device, what: &dyn fmt::Display, bytes: u64) -> Result<()> {
    let device = device.clone().without_autodiff();
    let DispatchDevice::Cube(cube) = device.as_dispatch() else { return check_memory(what, bytes) };
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

/// Checks that the memory of the host has room: asking for it must fail here, for what makes tensors ends the program.
fn check_memory(what: &dyn fmt::Display, bytes: u64) -> Result<()> {
    if bytes <= SURELY_HAD || could_have(bytes) {
        return Ok(());
    }
    Err(Error::TooLarge(format!(
        "{what}: {} ({bytes} bytes) in one piece, more than the memory of this computer has room for. Use a smaller \
         batch, or a coarser or smaller grid.",
        crate::bytes_text(bytes)
    )))
}

/// Bytes that are not worth asking the system about.
const SURELY_HAD: u64 = 1 << 30;

/// Whether kernels on `device` take half precision. Always on the CPU; a GPU must offer it in shaders.
pub fn supports_f16(device: &Device) -> bool {
    is_cpu(device) || adapter_of(device).is_some_and(|adapter| adapter.f16)
}

/// Checks that `device` computes with numbers of this type: f32 anywhere, f16 where [`supports_f16`]. `what` names the
/// operation and the tensor: `gemm: a 1x3x4`.
///
/// # Errors
///
/// [`Error::Usage`] with the type, the device and what to do.
pub fn check_dtype(device: &Device, what: &dyn fmt::Display, dtype: DType) -> Result<()> {
    match dtype {
        DType::F32 => Ok(()),
        DType::F16 if supports_f16(device) => Ok(()),
        DType::F16 => {
            let name = adapter_of(device).map_or_else(|| "a GPU".into(), |adapter| adapter.to_string());
            Err(Error::Usage(format!(
                "{what}: f16, and the device {name} has no half precision in shaders. Use f32 or the device cpu."
            )))
        }
        other => Err(Error::Usage(format!("{what}: {other:?}, expected f32 or f16"))),
    }
}
