//! Data sets, augmentation and the loader.

mod augment;
mod batch;
mod config;
mod demo;
mod intensity;
mod kept;
mod layout;
mod loader;
mod own_scans;
mod paired;
mod rng;
mod semantic_kitti;

pub use augment::augment;
pub use batch::{Batch, from_network_order, to_network_order};
pub use config::{AugmentConfig, DataConfig, Frame, InputConfig, TargetSource};
pub use demo::DemoWorld;
pub use layout::{Layout, layout};
pub use loader::{Loader, LoaderConfig};
pub use own_scans::{DriveInfo, ScansInfo, find_scans, inspect, sensor_pose};
pub use paired::{PairedScans, Pairs};
pub(crate) use rng::Rng;
pub use semantic_kitti::{BuildOptions, BuildReport, BuiltSequence, SemanticKittiFolder, build_targets};

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
    /// Where in a recording a sample stands; `None` where the samples are no recording.
    fn moment(&self, _index: usize) -> Option<Moment> {
        None
    }
}

/// Where in a recording a sample stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Number of the recording in its data set.
    pub recording: usize,
    /// Number of the scan in the recording.
    pub scan: usize,
}

/// What a run trains on and what it validates on.
#[derive(Clone)]
pub struct Splits {
    pub training: Arc<dyn Dataset>,
    pub validation: Arc<dyn Dataset>,
    /// What the user should know about the data before training on it.
    pub notes: Vec<String>,
}

impl Splits {
    /// The same samples; those that lack what `input` wants are errors.
    #[must_use]
    pub fn for_input(self, input: InputConfig) -> Self {
        if !input.intensity {
            return self;
        }
        let checked = |inner| Arc::new(Checked { inner, input }) as Arc<dyn Dataset>;
        Self { training: checked(self.training), validation: checked(self.validation), notes: self.notes }
    }
}

/// Samples that have all that the network is to see.
struct Checked {
    inner: Arc<dyn Dataset>,
    input: InputConfig,
}

impl Dataset for Checked {
    fn name(&self) -> String {
        self.inner.name()
    }
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn spec(&self) -> &GridSpec {
        self.inner.spec()
    }
    fn labels(&self) -> &LabelMap {
        self.inner.labels()
    }
    fn sample(&self, index: usize) -> Result<Sample> {
        let sample = self.inner.sample(index)?;
        self.input.check(&sample.cloud, &sample.id)?;
        Ok(sample)
    }
    fn moment(&self, index: usize) -> Option<Moment> {
        self.inner.moment(index)
    }
}

/// Opens the data of a run: the demo world without a path, else what lies there.
///
/// # Errors
/// [`Error::Input`] for a path of unknown layout, with the layouts there are; [`Error::Usage`] for a grid whose empty
/// or ignored id does not fit the classes.
pub fn open(config: &DataConfig, spec: &GridSpec, seed: u64) -> Result<Splits> {
    let Some(path) = &config.path else {
        return Ok(Splits {
            training: Arc::new(DemoWorld::training(seed, config.demo_train, *spec)?),
            validation: Arc::new(DemoWorld::validation(config.demo_validation, *spec)?),
            notes: Vec::new(),
        });
    };
    // Voxel files from elsewhere are the labels of scans that have none.
    let found = if config.voxels.is_some() { Layout::SemanticKitti } else { layout(path)? };
    match found {
        Layout::SemanticKitti => {
            let (training, validation) = SemanticKittiFolder::open(path, config, spec)?;
            let notes = training.notes().to_vec();
            Ok(Splits { training: Arc::new(training), validation: Arc::new(validation), notes })
        }
        Layout::Pairs(pairs) => {
            let (training, validation) = PairedScans::open(path, pairs, config, spec)?;
            Ok(Splits { training: Arc::new(training), validation: Arc::new(validation), notes: Vec::new() })
        }
        Layout::Scans(folders) => own_scans::open_folders(path, &folders, config, spec),
        Layout::Cloud(file) => own_scans::open_cloud(&file, config, spec, seed),
    }
}

/// First of `samples` that validates: the last `share` do, at least one, and at least one trains where there are two.
fn first_validation(samples: usize, share: f64) -> usize {
    let validating = ((samples as f64 * share).round() as usize).clamp(1, samples.saturating_sub(1).max(1));
    samples - validating.min(samples)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The demo world, whose scans have intensity, without it from sample 1 on.
    struct Bare(DemoWorld);

    impl Dataset for Bare {
        fn name(&self) -> String {
            self.0.name()
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn spec(&self) -> &GridSpec {
            self.0.spec()
        }
        fn labels(&self) -> &LabelMap {
            self.0.labels()
        }
        fn sample(&self, index: usize) -> Result<Sample> {
            let mut sample = self.0.sample(index)?;
            sample.cloud.intensity = sample.cloud.intensity.filter(|_| index == 0);
            Ok(sample)
        }
    }

    #[test]
    fn a_scan_without_the_intensity_that_is_asked_for_is_named() {
        let spec = GridSpec::new([0.0, -12.8, -2.4], [1.6, 1.6, 0.8], [16, 16, 8]);
        let bare: Arc<dyn Dataset> = Arc::new(Bare(DemoWorld::training(7, 3, spec).unwrap()));
        let splits = Splits { training: Arc::clone(&bare), validation: bare, notes: Vec::new() };
        let sample = |input, index| splits.clone().for_input(input).training.sample(index);
        assert!(sample(InputConfig { visibility: true, height: true, ..InputConfig::default() }, 1).is_ok());
        let wants = InputConfig { intensity: true, ..InputConfig::default() };
        assert!(sample(wants, 0).is_ok());
        let error = sample(wants, 1).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("demo-8") && error.to_string().contains("input.intensity"), "{error}");
    }
}
