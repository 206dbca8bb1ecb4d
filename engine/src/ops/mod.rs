//! Operations on tensors: one file each, with a public function, the kernels' launch, and the CPU twin of the same name.
//!
//! Keys, counts, offsets and indices are `u32`: tensors of [`IntDType::U32`](burn::tensor::IntDType::U32), which both
//! devices store as such, so that all 32 bits of a key compare, print and index as they should. Other integers are cast;
//! what does not fit wraps. Inside another operation's kernels use the `*_cube` functions, which take device tensors.

mod activation;
mod affine;
pub mod bf16;
mod channel_sums;
mod channels;
pub mod conv;
mod cross_entropy;
mod element;
pub mod gemm;
mod known_gradient;
mod lovasz;
mod max_pool;
mod moments;
mod nonfinite;
mod norm;
mod norm_gradient;
mod occupancy_head;
pub mod rays;
pub mod scan;
pub mod segment;
pub mod soft_occupancy;
pub mod sort;
#[cfg(test)]
mod tile_tests;
mod voxel_encoder;
pub mod voxelize;

pub use self::gemm::{GemmOptions, Layout, gemm, gemm_error_bound};
pub use activation::{Activation, relu, relu_bits, relu_bits_apply};
pub use affine::affine;
pub use conv::{conv, conv_norm, conv_norm_again, conv_transposed};
pub use cross_entropy::cross_entropy;
pub use known_gradient::{hollow, inject, known_gradient};
pub use lovasz::lovasz_gradient;
pub use max_pool::max_pool;
pub use moments::channel_moments;
pub use nonfinite::nonfinite_counts;
pub use norm::{group_norm, layer_norm};
pub use occupancy_head::occupancy_head;
pub use scan::exclusive_scan;
pub use segment::{segment_counts, segment_max, segment_sum};
pub use sort::sort_pairs;
pub use voxel_encoder::voxel_encoder;
