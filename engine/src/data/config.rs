//! What decides the samples of a run.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Empty: the demo world. Else a folder of scans.
    pub path: Option<PathBuf>,
    /// Demo worlds to train on; their seeds start at the run's seed.
    pub demo_train: usize,
    /// Demo worlds to validate on, of other seeds.
    pub demo_validation: usize,
    /// Of a folder of scans: the share, at the end of each sequence, that validates.
    pub validation_share: f64,
    /// Of a folder of scans: scans after the input scan whose labelled points make the target with it.
    pub future_scans: usize,
    /// Threads that prepare samples.
    pub workers: usize,
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
