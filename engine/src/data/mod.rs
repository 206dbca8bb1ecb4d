//! Data sets, augmentation and the loader.

use occam_scene::{GridSpec, LabelMap, PointCloud, VoxelGrid};

use crate::Result;

/// One training or validation example.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Names the sample in messages and files, such as `00/000012` or `demo-7`.
    pub id: String,
    /// Positions in the frame of the grid.
    pub cloud: PointCloud,
    /// Class ids of `labels()`; empty and ignore ids as in the spec.
    pub target: VoxelGrid,
}

/// Samples by number. Same number, same sample.
pub trait Dataset: Send + Sync {
    /// Such as `demo world` or the folder's path.
    fn name(&self) -> String;
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn spec(&self) -> &GridSpec;
    fn labels(&self) -> &LabelMap;
    fn sample(&self, index: usize) -> Result<Sample>;
}
