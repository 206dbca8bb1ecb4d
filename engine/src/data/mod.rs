//! Data sets, augmentation and the loader.

mod augment;
mod batch;
mod config;
mod loader;
mod rng;

pub use augment::augment;
pub use batch::{Batch, from_network_order, to_network_order};
pub use config::{AugmentConfig, DataConfig};
pub use loader::{Loader, LoaderConfig};

use occam_scene::{GridSpec, LabelMap, PointCloud, VoxelGrid};

use crate::{Error, Result};

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

/// The classes of the data that `config` names, without reading it.
pub fn labels(config: &DataConfig) -> Result<LabelMap> {
    built_in_labels(if config.path.is_some() { "semantic-kitti" } else { "demo" })
}

fn built_in_labels(name: &str) -> Result<LabelMap> {
    LabelMap::built_in(name).ok_or_else(|| Error::Failed(format!("the label map {name} of this build cannot be read")))
}
