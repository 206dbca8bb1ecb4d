//! What a run does when memory ends or its device is lost: with less, on a fresh device, and at last saved and done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::{Trainer, fresh_network, learner, loader};
use crate::data::Batch;
use crate::gpu;
use crate::session::controls::Controls;
use crate::session::outbox::Outbox;
use crate::tape::Precision;
use crate::train::{Learner, RunFolder, StepOutcome, checkpoint};
use crate::{Error, Result};

impl Trainer {
    /// Takes a step with what memory there is: when it ends, the step is repeated from unchanged weights; then with half the
    /// micro-batch, down to single samples; then by a tighter plan.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when there is nothing left to try, and those of [`Learner::step`].
    pub(super) fn insist(
        &mut self,
        batches: &[Batch],
        lr: f64,
        controls: &mut Controls,
        outbox: &mut Outbox,
    ) -> Result<StepOutcome> {
        let number = self.state.step + 1;
        let mut repeated = false;
        loop {
            let why = match self.attempt(batches, lr, controls) {
                Err(Error::OutOfMemory(why)) => why,
                // It would not fit the second time either.
                Err(Error::TooLarge(why)) => {
                    repeated = true;
                    why
                }
                other => return other,
            };
            self.clean_up()?;
            let next = if !std::mem::replace(&mut repeated, true) {
                "the step is repeated".to_owned()
            } else if let Some(size) = self.halve_micro_batch() {
                self.text_of_split(size)
            } else if self.learner.planning.tighten() {
                "from here on more is recomputed".to_owned()
            } else {
                return Err(Error::OutOfMemory(format!(
                    "step {number}: {why}, one sample at a time and with all recomputed that can be"
                )));
            };
            outbox.warn(format!("step {number}: {why}; {next}"));
        }
    }

    fn attempt(&mut self, batches: &[Batch], lr: f64, controls: &mut Controls) -> Result<StepOutcome> {
        self.reserve.keep()?;
        // What failed since the last step, on a thread of the loader perhaps, went well in the end.
        gpu::forget_refusals();
        let mut between = || if controls.stopped() { Err(Error::Interrupted) } else { Ok(()) };
        let learner = &mut self.learner;
        let step = catch_unwind(AssertUnwindSafe(|| learner.step(batches, lr, &mut between)));
        step.unwrap_or_else(|panic| Err(gpu::panicked(&self.device, &*panic)))
    }

    /// Half of what goes through the network at a time; `None` when that is one sample.
    pub(super) fn halve_micro_batch(&mut self) -> Option<usize> {
        let now = match self.learner.micro_batch {
            0 => self.state.config.steps.batch,
            some => some.min(self.state.config.steps.batch),
        };
        let half = (now > 1).then(|| now.div_ceil(2))?;
        self.learner.micro_batch = half;
        self.learner.planning.forget();
        self.state.micro_batch = half;
        Some(half)
    }

    /// Says that `size` samples go through the network at a time now, and what that changes.
    pub(super) fn text_of_split(&self, size: usize) -> String {
        match self.learner.split_notice(self.state.config.steps.batch) {
            Some(notice) => format!("from here on {notice}"),
            None => format!("from here on {} at a time", samples_text(size)),
        }
    }

    /// After memory ended: what was held is free; the rest goes back to the driver, and refusals are forgotten. On a GPU the
    /// weights are read, because what made them may be what failed.
    ///
    /// # Errors
    /// [`Error::Device`] when they are lost.
    pub(super) fn clean_up(&mut self) -> Result<()> {
        gpu::free_unused(&self.device);
        gpu::forget_refusals();
        if gpu::is_cpu(&self.device) {
            return Ok(());
        }
        let learner = &self.learner;
        let read = catch_unwind(AssertUnwindSafe(|| learner.read_back()));
        match read.unwrap_or_else(|panic| Err(gpu::panicked(&self.device, &*panic))) {
            Err(Error::OutOfMemory(why)) => Err(Error::Device(why)),
            other => other,
        }
    }

    /// Goes on with a fresh device from the last checkpoint, else from the beginning. Steps since then come again, the same:
    /// order, augmentation and all that is drawn follow from the seed.
    pub(super) fn go_back(&mut self, why: &str, outbox: &mut Outbox) -> Result<()> {
        let at = self.state.step;
        let times = self.lost.filter(|(step, _)| *step >= at).map_or(0, |(_, times)| times) + 1;
        let run = self.folder.path().to_path_buf();
        let stands = |checkpoint: Option<&Path>| match checkpoint {
            Some(path) => format!("the run is saved in {}", path.display()),
            None => "there is no checkpoint yet".to_owned(),
        };
        let checkpoint = checkpoint::find(&run, false).ok();
        if times > MOST_LOSSES || gpu::is_cpu(&self.device) {
            // There is no other processor to try.
            let tried = if gpu::is_cpu(&self.device) { "" } else { ". A fresh device did not help" };
            let stands = stands(checkpoint.as_deref());
            return Err(Error::Failed(format!("step {}: {why}{tried}; {stands}", at + 1)));
        }
        self.lost = Some((at, times));
        let opened = gpu::replace(&self.device).map_err(|error| {
            Error::Failed(format!("step {}: {why}. {error}; {}", at + 1, stands(checkpoint.as_deref())))
        })?;
        let state = match &checkpoint {
            Some(folder) => checkpoint::read_state(folder)?,
            None => self.beginning.state.clone(),
        };
        let device = opened.device;
        let network = if let Some(folder) = &checkpoint {
            checkpoint::load_network(folder, &state, &device.clone().autodiff())?
        } else {
            let mut network = fresh_network(&state.config, state.labels.len(), &device)?;
            if let Some(shares) = &self.beginning.class_shares {
                network.set_class_shares(shares);
            }
            network
        };
        let mut learner = learner(network, &state, checkpoint.as_deref(), &device)?;
        std::mem::swap(&mut learner.planning, &mut self.learner.planning);
        let shape = |learner: &Learner| (learner.micro_batch, learner.precision());
        if shape(&learner) != shape(&self.learner) {
            // What was measured last is a step of another size.
            learner.planning.forget();
        }
        self.learner = learner;
        self.loader = loader(&self.splits, &state)?;
        self.folder = RunFolder::resume(&run, state.step)?;
        self.device = device;
        self.evaluated.take_if(|(step, _)| *step > state.step);
        self.saved = checkpoint.is_some().then_some(state.step);
        outbox.back_to(state.step);
        outbox.warn(format!("step {}: {why}; a fresh device goes on from step {}", at + 1, state.step));
        self.state = state;
        Ok(())
    }

    /// The error of a run that ends because nothing fits, saved as it was after its last whole step.
    pub(super) fn saved_without_memory(&mut self, error: &Error, outbox: &mut Outbox) -> Error {
        // Whoever saves may have what was set aside.
        self.reserve.give_up();
        let run = self.folder.path().display().to_string();
        let saved = match self.save(outbox) {
            Ok(()) => format!("The run is saved in {run}"),
            Err(error) => format!("The run could not be saved ({error}); earlier checkpoints in {run} stand"),
        };
        // A plan that does not fit says by itself what would.
        if let Error::TooLarge(why) = error {
            return Error::TooLarge(format!("{why}. {saved}"));
        }
        let smallest = self.learner.planning.smallest_bytes();
        let smallest = smallest.map(|bytes| format!(". The smallest budget that fits is {} MiB", bytes >> 20));
        let advice = advice(&self.learner, gpu::supports_f16(&self.device));
        Error::OutOfMemory(format!("{error}{}. {saved}. {advice}", smallest.unwrap_or_default()))
    }
}

/// What to do when a run does not fit, cheapest first: only what it does not do yet.
fn advice(learner: &Learner, has_f16: bool) -> String {
    let mut what = Vec::new();
    if learner.precision() == Precision::F32 {
        what.push(if has_f16 { "precision.format = \"f16\"" } else { "precision.format = \"bf16\"" });
    }
    if !learner.planning.plans() {
        // Without a budget there is nothing to plan for.
        let budget = learner.planning.budget_bytes().is_some();
        what.push(if budget { "memory.recompute = \"plan\"" } else { "a plan (--vram auto)" });
    }
    what.push(
        "a smaller steps.batch (with steps.accumulate training stays the same) or fewer data.workers, a smaller grid",
    );
    format!("To go on with less memory: {}", what.join(", "))
}

/// Devices that may be lost one after another at the same step.
const MOST_LOSSES: usize = 2;

fn samples_text(count: usize) -> String {
    if count == 1 { "one sample".into() } else { format!("{count} samples") }
}
