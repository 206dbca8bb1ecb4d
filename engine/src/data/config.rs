//! What decides the samples of a run.

use std::path::PathBuf;

use occam_scene::PointCloud;
use occam_scene::completion::TargetRules;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Empty: the demo world. Else a folder of scans, or one dense cloud.
    pub path: Option<PathBuf>,
    /// Demo worlds to train on; their seeds start at the run's seed.
    pub demo_train: usize,
    /// Demo worlds to validate on, of other seeds.
    pub demo_validation: usize,
    /// Of a folder of scans: the share, at the end of each sequence, that validates.
    pub validation_share: f64,
    /// Of a folder of scans: the sequences that validate, such as `08` or `08,09`, while the others train. Empty, or
    /// where the folder holds none of them: `validation_share` decides.
    #[serde(default)]
    pub validation_sequences: String,
    /// Of SemanticKITTI's layout: what its targets are made from.
    #[serde(default)]
    pub target: TargetSource,
    /// Of SemanticKITTI's layout: where its voxel files lie if not in its own `voxels/` folders, as `occam data build -o`
    /// wrote them.
    pub voxels: Option<PathBuf>,
    /// Of a folder of scans: scans before the input scan that make the target with it.
    #[serde(default)]
    pub prior_scans: usize,
    /// Of a folder of scans: scans after the input scan that make the target with it. Of one dense cloud, both together:
    /// virtual scans around the input that decide what is known.
    pub future_scans: usize,
    /// Of a folder of scans: points nearer to the sensor do not make the target, they are what carries it; metres. In
    /// SemanticKITTI's layout the network does not see them either.
    #[serde(default)]
    pub min_range_m: f64,
    /// Of SemanticKITTI's layout: points farther from the sensor do not count, metres.
    #[serde(default = "unlimited")]
    pub max_range_m: f64,
    /// Of targets made from SemanticKITTI's scans: things that move count only in the input scan, so that they leave no
    /// trace.
    #[serde(default)]
    pub static_only: bool,
    /// Of your own scans: what the coordinates in their files are relative to.
    #[serde(default)]
    pub frame: Frame,
    /// Of your own scans, to train the classes of a label column instead of empty and occupied: the name of a label map
    /// of this program, or a TOML file with one.
    pub labels: Option<String>,
    /// Of one dense cloud: scans that are cast in it, to train on and to validate on.
    #[serde(default = "virtual_scans")]
    pub virtual_scans: usize,
    /// Of one dense cloud: height of the virtual sensor above the ground, metres.
    #[serde(default = "sensor_height_m")]
    pub sensor_height_m: f64,
    /// Threads that prepare samples.
    pub workers: usize,
}

/// Runs from before there was a bound had none.
fn unlimited() -> f64 {
    f64::INFINITY
}

impl DataConfig {
    /// Which scans and points make a target.
    pub fn rules(&self) -> TargetRules {
        TargetRules {
            prior_scans: self.prior_scans,
            future_scans: self.future_scans,
            min_range_m: self.min_range_m,
            max_range_m: self.max_range_m,
            static_only: self.static_only,
        }
    }
}

/// What the targets of a folder of scans are made from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetSource {
    /// Voxel files where there are any and the grid suits them, else labelled scans.
    #[default]
    Auto,
    /// `voxels/NNNNNN.label` with `.invalid`: the published ones or those of `occam data build`.
    Voxels,
    /// Labelled scans and their poses.
    Scans,
}

/// Of runs from before there was a choice.
fn virtual_scans() -> usize {
    300
}

/// As [`virtual_scans`].
fn sensor_height_m() -> f64 {
    1.7
}

/// What coordinates of a scan are relative to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Frame {
    /// The sensor, as most recordings are.
    #[default]
    Sensor,
    /// The world of the poses: the scans are registered.
    World,
}

/// What the network sees of a voxel beside whether a point lies in it. Each key adds a channel, in this order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InputConfig {
    /// 1 where a ray from the sensor to a point passed and no point lies, else 0: seen to be empty, as told from unknown
    /// (0 here and no point). Nothing is known of rays that came back without a point.
    pub visibility: bool,
    /// Mean intensity of the points of a voxel, 0 to 1; 0 where there is none. Every scan must have it.
    pub intensity: bool,
    /// Mean height of the points of a voxel above its centre, in voxels: -0.5 to 0.5; 0 where there is none.
    pub height: bool,
}

impl InputConfig {
    /// The channels in order, occupancy first.
    pub fn names(&self) -> Vec<&'static str> {
        let optional = [(self.visibility, "visibility"), (self.intensity, "intensity"), (self.height, "height")];
        let chosen = optional.into_iter().filter_map(|(wanted, name)| wanted.then_some(name));
        std::iter::once("occupancy").chain(chosen).collect()
    }

    /// Features of a voxel, occupancy among them.
    pub fn channels(&self) -> usize {
        self.names().len()
    }

    /// Whether the scan `name` has what the network is to see.
    ///
    /// # Errors
    /// [`Error::Usage`] when it lacks intensity.
    pub fn check(&self, cloud: &PointCloud, name: &str) -> Result<()> {
        if !self.intensity || cloud.intensity.is_some() {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "{name}: no intensity, which the network sees beside positions (input.intensity = true). Give scans with \
             intensity, or train with input.intensity = false"
        )))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AugmentConfig {
    /// Mirror x (forward and back) for half of the samples: needs a grid that reaches behind the sensor.
    pub flip_x: bool,
    /// Mirror y (left and right) for half of the samples.
    pub flip_y: bool,
    /// Largest turn about the vertical, degrees.
    pub rotate_deg: f64,
    /// Largest relative change of scale, such as 0.05.
    pub scale: f64,
    /// Standard deviation of noise on positions, metres.
    pub jitter_m: f64,
    /// Largest share of points that is dropped.
    pub drop: f64,
}
