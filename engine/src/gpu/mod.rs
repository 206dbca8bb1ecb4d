//! Devices and kernels: adapter choice, limits, the memory meter, the WGSL shaders and their launch.
//!
//! - [`adapters`] lists what the machine has, [`open`] opens one of them as a Burn device.
//! - [`memory_use`] says how much memory a device holds, [`check_binding`] whether one tensor fits.
//! - [`shader`] is the host side of `shaders/`: one table of every file, its permutations and sizes.
//! - [`launch`] runs one of them on tensors; [`GroupCost`] says how many workgroups a dispatch may have.
//! - [`tile_for`] chooses the tile in which a workgroup computes a matrix product.

mod adapter;
mod cost;
mod device;
mod failure;
mod gate;
mod launch;
mod limits;
mod memory;
mod reserve;
pub mod shader;
mod tile;
mod variant;

pub use adapter::{AdapterInfo, AdapterKind, adapters};
pub use cost::{DispatchCost, GroupCost};
pub use device::{DeviceChoice, Opened, adapter_of, lose, open, replace};
pub use failure::{device_failed, free_unused, panicked, read};
pub use gate::{
    Request, fail_request, fail_requests, forget_refusals, heed_fail_request, request, request_kernel, requests, settle,
};
pub use launch::{Buffer, in_place_of, launch, launch_split, new_like, new_tensor, upload_u32};
pub use limits::{MAX_VALUES, check_binding, check_dtype, is_cpu, supports_f16};
pub use memory::{
    CountingAllocator, MemoryKinds, MemoryUse, lap_peak, memory_use, reset_peak, sample_launches, start_lap,
    start_step, step_peak,
};
pub use reserve::{Reserve, could_have};
pub use tile::{COOPERATIVE_TILES, TILES, Tile, TileForm, tile_for, tiles_of};
pub use variant::{KernelVariant, Variant, kernel_variants, only_variant, tile_form};
#[cfg(test)]
pub use {launch::MOST_GROUPS, tile::ONLY_TILE};
