//! One training run: commands in, history and snapshots out. A headless run, the window and the tests are its faces.

mod controls;
mod event;
mod history;
mod outbox;
mod trainer;

pub use event::{Command, Event, RunInfo, Summary};
pub use history::{EvalRecord, History, StepRecord};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use occam_scene::{PointCloud, VoxelGrid};

use self::controls::Controls;
use self::outbox::Outbox;
use self::trainer::Plan;
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

/// A run in progress. Dropping it stops the run after the current step, and waits until its checkpoint is written.
pub struct Session {
    /// Steps and evaluations, read by faces when they like.
    pub history: Arc<Mutex<History>>,
    /// Rare things; bounded, never blocks the trainer. The last one is `Done` or `Failed`.
    pub events: Receiver<Event>,
    /// The newest snapshot; an older one that nobody took is lost on purpose.
    pub latest: Arc<Mutex<Option<Snapshot>>>,
    pub commands: Sender<Command>,
    trainer: Option<JoinHandle<()>>,
}

/// Events that wait for a face at most. Warnings are limited in number and all others are rare, so that only a face that
/// never looks loses any.
const MOST_EVENTS: usize = 1024;

impl Session {
    /// Checks the configuration and starts the trainer thread. The thread opens the device and the data, and does all
    /// the device's work; what goes wrong there comes as [`Event::Failed`].
    ///
    /// # Errors
    /// [`Error::Usage`] for a configuration that cannot be.
    pub fn start(config: TrainConfig) -> Result<Self> {
        config.check()?;
        Self::spawn(Plan::Fresh(Box::new(config)))
    }

    /// Goes on with a run from its last checkpoint, as if it had never stopped.
    ///
    /// # Errors
    /// [`Error::Input`] for a folder without a checkpoint.
    pub fn resume(run: &Path) -> Result<Self> {
        Self::spawn(Plan::resume(run)?)
    }

    /// [`Session::resume`] with another `memory.budget` from here on.
    ///
    /// # Errors
    /// Those of [`Session::resume`]; [`Error::Usage`] for a budget that is none.
    pub fn resume_within(run: &Path, budget: Option<&str>) -> Result<Self> {
        let mut plan = Plan::resume(run)?;
        if let (Plan::Resumed { state, .. }, Some(budget)) = (&mut plan, budget) {
            budget.clone_into(&mut state.config.memory.budget);
            state.config.check()?;
        }
        Self::spawn(plan)
    }

    fn spawn(plan: Plan) -> Result<Self> {
        let (commands, orders) = channel();
        let (sender, events) = sync_channel(MOST_EVENTS);
        let outbox = Outbox::new(sender);
        let (history, latest) = (Arc::clone(&outbox.history), Arc::clone(&outbox.latest));
        let trainer = std::thread::Builder::new()
            .name("occam-trainer".into())
            .spawn(move || {
                let mut outbox = outbox;
                let mut controls = Controls::new(orders);
                let result = catch_unwind(AssertUnwindSafe(|| trainer::run(&plan, &mut controls, &mut outbox)));
                outbox.finish(match result {
                    Ok(Ok(summary)) => Event::Done(summary),
                    Ok(Err(error)) => Event::Failed(error),
                    Err(panic) => Event::Failed(Error::Failed(format!(
                        "the trainer stopped at a bug or a broken device: {}",
                        crate::panic_text(&*panic)
                    ))),
                });
            })
            .map_err(|e| Error::Failed(format!("cannot start the trainer thread: {e}")))?;
        Ok(Self { history, events, latest, commands, trainer: Some(trainer) })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A trainer that is gone needs no order.
        let _ = self.commands.send(Command::Stop);
        let Some(trainer) = self.trainer.take() else { return };
        // The last event may wait for room.
        while !trainer.is_finished() {
            let _ = self.events.recv_timeout(Duration::from_millis(5));
        }
        let _ = trainer.join();
    }
}
