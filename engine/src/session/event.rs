//! What faces tell a run, and the rare things a run tells them.

use std::path::PathBuf;

use occam_scene::metrics::Scores;
use occam_scene::{GridSpec, LabelMap};

/// What a face may ask of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Pause,
    Resume,
    /// While paused: one step, then paused again.
    StepOnce,
    SaveCheckpoint,
    Evaluate,
    /// Finish the step, save, end.
    Stop,
}

/// What is fixed once a run has started.
#[derive(Debug, Clone)]
pub struct RunInfo {
    pub run: PathBuf,
    /// Adapter or CPU, as the user should read it.
    pub device: String,
    pub network: String,
    /// What the network sees of a voxel, channel by channel.
    pub input: Vec<&'static str>,
    pub parameters: usize,
    pub train_samples: usize,
    pub validation_samples: usize,
    pub total_steps: usize,
    /// Steps that earlier sessions of the run took.
    pub steps_before: usize,
    pub seed: u64,
    /// Preset that the configuration began from.
    pub preset: String,
    pub grid: GridSpec,
    /// Names and colours of the classes.
    pub labels: LabelMap,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Summary {
    pub run: PathBuf,
    /// Steps of the run, with those of earlier sessions.
    pub steps: usize,
    /// Time of this session.
    pub seconds: f64,
    /// Ended before its last step was done and scored: the user stopped it, or there was no memory for the scores.
    pub interrupted: bool,
    pub first_losses_mean: f64,
    pub last_losses_mean: f64,
    pub validation: Option<Scores>,
    /// Baselines on the same validation samples: name and scores.
    pub baselines: Vec<(String, Scores)>,
    pub peak_bytes: Option<u64>,
}

#[derive(Debug, Clone)]
pub enum Event {
    Started(RunInfo),
    /// Where work before the first step stands: at its beginning, then at most every ten seconds.
    Preparing {
        what: String,
        done: usize,
        total: usize,
    },
    /// Data is ready; the baselines of the validation set.
    Loaded {
        baselines: Vec<(String, Scores)>,
    },
    Evaluated {
        step: usize,
        scores: Scores,
    },
    Checkpoint {
        step: usize,
        path: PathBuf,
    },
    /// What is recomputed from here on, and the peak that this is to have.
    Planned(crate::train::PlanReport),
    Warning(String),
    Failed(crate::Error),
    Done(Summary),
}
