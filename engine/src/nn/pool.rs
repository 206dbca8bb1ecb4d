//! Pooling that halves the sides of a grid.

use burn::tensor::Tensor;
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;

/// `[B, C, H, W]` to `[B, C, H/2, W/2]`: the largest of each 2x2 cells.
pub fn halve2d(x: Tensor<4>) -> Tensor<4> {
    max_pool2d(x, MaxPoolOptions::new([2, 2]))
}

/// `[B, C, D, H, W]` to `[B, C, D/2, H/2, W/2]`: the largest of each 2x2x2 voxels. The sides are even.
pub fn halve3d(x: Tensor<5>) -> Tensor<5> {
    let [batch, channels, d, h, w] = x.dims();
    let planes = halve2d(x.reshape([batch, channels * d, h, w]));
    let columns = planes.reshape([batch, channels, d, h / 2 * (w / 2)]);
    max_pool2d(columns, MaxPoolOptions::new([2, 1])).reshape([batch, channels, d / 2, h / 2, w / 2])
}
