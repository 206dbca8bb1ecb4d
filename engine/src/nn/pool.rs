//! Pooling that halves the sides of a grid.

use burn::tensor::Tensor;

use crate::{Result, ops};

/// `[B, C, H, W]` to `[B, C, H/2, W/2]`: the largest of each 2x2 cells.
///
/// # Errors
/// Those of [`ops::max_pool`].
pub fn halve2d(x: Tensor<4>) -> Result<Tensor<4>> {
    let window = [1, 2, 2];
    Ok(ops::max_pool(x.unsqueeze_dim(2), window, window, [0; 3])?.squeeze_dim(2))
}

/// `[B, C, D, H, W]` to `[B, C, D/2, H/2, W/2]`: the largest of each 2x2x2 voxels.
///
/// # Errors
/// Those of [`ops::max_pool`].
pub fn halve3d(x: Tensor<5>) -> Result<Tensor<5>> {
    ops::max_pool(x, [2; 3], [2; 3], [0; 3])
}
