//! One training run: commands in, history and snapshots out. A headless run, the window and the tests are its faces.

mod event;
mod history;

pub use event::{Command, Event, RunInfo, Summary};
pub use history::{EvalRecord, History, StepRecord};

use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};

use occam_scene::{PointCloud, VoxelGrid};

use crate::train::TrainConfig;
use crate::{Error, Result};

/// A cloud, what the network makes of it, and what is true.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub step: usize,
    pub id: String,
    pub cloud: PointCloud,
    pub prediction: VoxelGrid,
    pub target: VoxelGrid,
}

/// A run in progress. Dropping it stops the run after the current step.
pub struct Session {
    /// Steps and memory, read by faces when they like.
    pub history: Arc<Mutex<History>>,
    /// Rare things; bounded, never blocks the trainer.
    pub events: Receiver<Event>,
    /// The newest snapshot; an older one that nobody took is lost on purpose.
    pub latest: Arc<Mutex<Option<Snapshot>>>,
    pub commands: Sender<Command>,
}

impl Session {
    /// Checks the configuration, opens the device and starts the trainer thread.
    pub fn start(_config: TrainConfig) -> Result<Self> {
        Err(Error::Failed("not wired yet".into()))
    }
}
