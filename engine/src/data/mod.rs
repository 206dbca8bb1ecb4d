//! Data sets, augmentation and the loader.

mod augment;
mod batch;
mod config;
mod demo;
mod loader;
mod rng;
mod semantic_kitti;

pub use augment::augment;
pub use batch::{Batch, from_network_order, to_network_order};
pub use config::{AugmentConfig, DataConfig};
pub use demo::DemoWorld;
pub use loader::{Loader, LoaderConfig};
pub use semantic_kitti::SemanticKittiFolder;

use std::sync::Arc;

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

/// What a run trains on and what it validates on.
#[derive(Clone)]
pub struct Splits {
    pub training: Arc<dyn Dataset>,
    pub validation: Arc<dyn Dataset>,
}

/// Opens the data of a run: the demo world without a path, else a folder of scans.
///
/// # Errors
/// [`Error::Input`] for a folder of unknown layout, with the layouts there are; [`Error::Usage`] for a grid whose empty
/// or ignored id does not fit the classes.
pub fn open(config: &DataConfig, spec: &GridSpec, seed: u64) -> Result<Splits> {
    if let Some(path) = &config.path {
        let (training, validation) = SemanticKittiFolder::open(path, config, spec)?;
        return Ok(Splits { training: Arc::new(training), validation: Arc::new(validation) });
    }
    Ok(Splits {
        training: Arc::new(DemoWorld::training(seed, config.demo_train, *spec)?),
        validation: Arc::new(DemoWorld::validation(config.demo_validation, *spec)?),
    })
}

/// The classes of the data that `config` names, without reading it.
pub fn labels(config: &DataConfig) -> Result<LabelMap> {
    built_in_labels(if config.path.is_some() { "semantic-kitti" } else { "demo" })
}

fn built_in_labels(name: &str) -> Result<LabelMap> {
    LabelMap::built_in(name).ok_or_else(|| Error::Failed(format!("the label map {name} of this build cannot be read")))
}

/// Free space and ignored voxels must mean the same in the grid and in the label map.
fn check_ids(spec: &GridSpec, labels: &LabelMap) -> Result<()> {
    if (spec.empty_id, spec.ignore_id) == (labels.empty_id, labels.ignore_id) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "grid.empty_id = {} and grid.ignore_id = {}, expected {} and {} for the classes of {}",
        spec.empty_id, spec.ignore_id, labels.empty_id, labels.ignore_id, labels.name
    )))
}
