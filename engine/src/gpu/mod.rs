//! Devices and kernels: adapter choice, limits, the memory meter, the WGSL shaders and their launch.
//!
//! - [`adapters`] lists what the machine has, [`open`] opens one of them as a Burn device.
//! - [`memory_use`] says how much memory a device holds, [`check_binding`] whether one tensor fits.
//! - [`shader`] is the host side of `shaders/`: one table of every file, its permutations and sizes.
//! - [`launch`] runs one of them on tensors.

mod adapter;
mod device;
mod launch;
mod limits;
mod memory;
pub mod shader;

pub use adapter::{AdapterInfo, AdapterKind, KernelVariant, adapters, kernel_variants};
pub use device::{DeviceChoice, Opened, open};
pub use launch::{Buffer, launch, new_tensor, upload_u32};
pub use limits::{check_binding, is_cpu};
pub use memory::{CountingAllocator, MemoryUse, memory_use, reset_peak};
