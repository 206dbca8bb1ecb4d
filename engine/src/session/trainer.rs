//! The run itself, on its thread: data, steps, evaluations, checkpoints.

mod ladder;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use occam_scene::VoxelGrid;
use occam_scene::metrics::{AbsentPolicy, Scores};

use super::controls::{Controls, Next};
use super::outbox::Outbox;
use super::{EvalRecord, Event, RunInfo, Snapshot, Summary};
use crate::data::{self, Batch, Loader, LoaderConfig, Rng, Sample, Splits};
use crate::gpu::{self, DeviceChoice, Reserve};
use crate::losses::{Losses, class_weights};
use crate::models::{Network, WeightsInfo};
use crate::render::{PreviewOptions, preview, write_png};
use crate::tape::Precision;
use crate::train::checkpoint::{self, State};
use crate::train::{
    self, Budget, ClassWeights, Learner, Model, Planning, RunFolder, Schedule, StepRecord, TargetStatistics,
    TrainConfig, fits, precision,
};
use crate::{Error, Progress, Result};

/// How a run begins.
pub enum Plan {
    Fresh(Box<TrainConfig>),
    /// A run's folder, the checkpoint to go on from, and its state.
    Resumed {
        run: PathBuf,
        checkpoint: PathBuf,
        state: Box<State>,
    },
}

impl Plan {
    /// # Errors
    /// [`Error::Input`] for a folder without a checkpoint, [`Error::Usage`] for imported weights.
    pub fn resume(run: &Path) -> Result<Self> {
        let checkpoint = checkpoint::find(run, false)?;
        let state = checkpoint::read_state(&checkpoint)?;
        if state.total_steps == 0 {
            return Err(Error::Usage(format!(
                "{} holds imported weights and no training to go on with; start one from them with `occam train \
                 --weights {0}`",
                run.display()
            )));
        }
        Ok(Self::Resumed { run: run.to_path_buf(), checkpoint, state: Box::new(state) })
    }

    fn config(&self) -> &TrainConfig {
        match self {
            Self::Fresh(config) => config,
            Self::Resumed { state, .. } => &state.config,
        }
    }
}

pub fn run(plan: &Plan, controls: &mut Controls, outbox: &mut Outbox) -> Result<Summary> {
    let began = Instant::now();
    let config = plan.config().clone();
    let opened = gpu::open(&config.device.parse::<DeviceChoice>()?)?;
    if let Some(notice) = &opened.notice {
        outbox.warn(notice.clone());
    }
    gpu::reset_peak();
    let device = opened.device;
    precision::check(precision::first(&config.precision), &device)?;
    let planning = Planning::new(&config.memory, config.memory.budget.parse::<Budget>()?.bytes(&device)?)?;
    let splits = data::open(&config.data, &config.grid, config.seed)?.for_input(config.input);
    let (channels, classes) = (config.input.channels(), splits.training.labels().len());
    let mut training = fits::Training::new(&config);
    if let Plan::Resumed { state, .. } = plan
        && state.micro_batch > 0
    {
        training.micro_batch = state.micro_batch.min(training.micro_batch);
    }
    fits::check(&device, &config.grid, channels, classes, fits::Work::Training(training))?;
    let mut network = match plan {
        Plan::Fresh(_) => fresh_network(&config, classes, &device)?,
        Plan::Resumed { checkpoint, state, .. } => {
            checkpoint::load_network(checkpoint, state, &device.clone().autodiff())?
        }
    };
    let steps_per_epoch = splits.training.len() as f64 / (config.steps.batch * config.steps.accumulate) as f64;
    let total_steps = match (plan, config.steps.steps) {
        (Plan::Resumed { state, .. }, _) => state.total_steps,
        (_, 0) => (config.steps.epochs as f64 * steps_per_epoch).ceil().max(1.0) as usize,
        (_, steps) => steps,
    };
    let schedule = Schedule::new(&config.optim, total_steps, steps_per_epoch)?;
    let folder = match plan {
        Plan::Fresh(_) => RunFolder::create(&config, &opened.label)?,
        Plan::Resumed { run, state, .. } => RunFolder::resume(run, state.step)?,
    };
    outbox.send(Event::Started(RunInfo {
        run: folder.path().to_path_buf(),
        device: opened.label,
        network: config.model.network.clone(),
        input: config.input.names(),
        parameters: network.num_params(),
        train_samples: splits.training.len(),
        validation_samples: splits.validation.len(),
        total_steps,
        steps_before: match plan {
            Plan::Fresh(_) => 0,
            Plan::Resumed { state, .. } => state.step,
        },
        seed: config.seed,
        preset: config.preset.clone(),
        grid: config.grid,
        labels: splits.training.labels().clone(),
    }));

    for note in &splits.notes {
        outbox.warn(format!("{}: {note}", splits.training.name()));
    }
    let (statistics, baselines) = match survey(&splits, controls, outbox) {
        Ok(found) => found,
        Err(error) => {
            if let Plan::Fresh(_) = plan {
                folder.discard();
            }
            return Err(error);
        }
    };
    outbox.send(Event::Loaded { baselines: baselines.clone() });

    let state = match plan {
        Plan::Resumed { state, .. } => (**state).clone(),
        Plan::Fresh(_) => State {
            version: env!("CARGO_PKG_VERSION").into(),
            step: 0,
            batches: 0,
            epoch: 0,
            total_steps,
            class_weights: weights(config.loss.class_weights, &statistics.counts, splits.training.len()),
            losses: Vec::new(),
            best: None,
            loss_scale: None,
            micro_batch: 0,
            config: config.clone(),
            labels: splits.training.labels().clone(),
        },
    };
    let mut class_shares = None;
    if matches!(plan, Plan::Fresh(_)) && config.model.weights.is_none() {
        let counts = statistics.counts.iter().zip(&state.class_weights);
        let shares: Vec<f64> = counts.map(|(count, weight)| *count as f64 * f64::from(*weight)).collect();
        network.set_class_shares(&shares);
        class_shares = Some(shares);
    }
    let checkpoint = match plan {
        Plan::Resumed { checkpoint, .. } => Some(checkpoint.as_path()),
        Plan::Fresh(_) => None,
    };
    let mut learner = learner(network, &state, checkpoint, &device)?;
    learner.planning = planning;
    if let Some(notice) = learner.split_notice(config.steps.batch) {
        outbox.warn(notice);
    }
    let loader = loader(&splits, &state)?;
    leave_to_loader(&mut learner, &loader, &device, controls);
    gpu::heed_fail_request()?;
    let mut trainer = Trainer {
        device,
        splits,
        schedule,
        folder,
        learner,
        loader,
        beginning: Beginning { state: state.clone(), class_shares },
        state,
        notices: precision::Notices::default(),
        evaluated: None,
        saved: None,
        reserve: Reserve::new(),
        lost: None,
    };
    let interrupted = trainer.train(controls, outbox)?;
    let peak_bytes = gpu::memory_use(&trainer.device).map(|memory| memory.peak_bytes);
    if let (Some(peak), Some(budget)) = (peak_bytes, trainer.learner.planning.budget_bytes())
        && peak > budget
    {
        outbox.warn(format!(
            "the run took {} at its peak and its budget is {}: planned steps kept within, the measured first one or the \
             scoring did not",
            crate::bytes_text(peak),
            crate::bytes_text(budget)
        ));
    }
    let losses = &trainer.state.losses;
    let tenth = losses.len().div_ceil(10);
    Ok(Summary {
        run: trainer.folder.path().to_path_buf(),
        steps: trainer.state.step,
        seconds: began.elapsed().as_secs_f64(),
        interrupted,
        first_losses_mean: mean(&losses[..tenth]),
        last_losses_mean: mean(&losses[losses.len() - tenth..]),
        validation: trainer.evaluated.map(|(_, scores)| scores),
        baselines,
        peak_bytes,
    })
}

/// Who trains from where `state` stands; the moments are those of a checkpoint.
fn learner(network: Network, state: &State, checkpoint: Option<&Path>, device: &Device) -> Result<Learner> {
    let class_weights = Tensor::from_data(state.class_weights.as_slice(), device);
    let losses = Losses::new(&state.config.loss, class_weights, &state.config.grid);
    let mut learner = Learner::new(network, &state.config, device, losses);
    if let Some(checkpoint) = checkpoint {
        if let Some(loss_scale) = state.loss_scale {
            learner.scaler.set(loss_scale);
        }
        // A step that was skipped is none to the optimizer.
        let steps = state.step - learner.scaler.skipped().min(state.step);
        learner.optimizer.load(&checkpoint.join(checkpoint::OPTIMIZER), &learner.network, steps, device)?;
    }
    if state.micro_batch > 0 {
        learner.micro_batch = state.micro_batch;
    }
    Ok(learner)
}

/// The batches from where `state` stands.
fn loader(splits: &Splits, state: &State) -> Result<Loader> {
    let State { config, batches, .. } = state;
    Loader::start(
        Arc::clone(&splits.training),
        LoaderConfig {
            batch: config.steps.batch,
            workers: config.data.workers,
            seed: config.seed,
            augment: config.augment.clone(),
            first_batch: *batches,
        },
    )
}

/// The network of a run that begins, from `model.weights` when the configuration names them.
fn fresh_network(config: &TrainConfig, classes: usize, device: &Device) -> Result<Network> {
    let device = device.clone().autodiff();
    let channels = config.input.channels();
    let mut network = Network::new(&config.model.network, config.grid.counts, channels, classes, config.seed, &device)?;
    if let Some(path) = &config.model.weights {
        let file = checkpoint::weights_file(path)?;
        network.load_weights(&file).map_err(|error| match (error, Network::describe_weights(&file)) {
            (Error::Input(error), Ok(info)) => error.hint(misfit(&info, config, classes)).into(),
            (error, _) => error,
        })?;
    }
    Ok(network)
}

/// What a file of weights is for, what the run is, and the preset that brings the two together.
fn misfit(info: &WeightsInfo, config: &TrainConfig, classes: usize) -> String {
    let height = config.grid.counts[2];
    let preset = train::guess_setup(info).filter(|name| train::presets().any(|(preset, _)| preset == *name));
    let network = format!("model.network = \"{}\"", info.network);
    let advice = match preset {
        Some(name) if info.network == config.model.network => format!("start from preset {name}"),
        Some(name) => format!("start from preset {name} with {network}"),
        None => {
            format!("give the run this network ({network}), a grid of this height and data of this number of classes")
        }
    };
    format!(
        "The file holds {info}; the run has {} for {classes} classes on a grid {height} voxels high. To train from it, {advice}",
        config.model.network
    )
}

fn weights(from: ClassWeights, counts: &[u64], samples: usize) -> Vec<f32> {
    match from {
        ClassWeights::None => vec![1.0; counts.len()],
        ClassWeights::Set => class_weights(counts),
        ClassWeights::Scene => {
            class_weights(&counts.iter().map(|count| count / samples.max(1) as u64).collect::<Vec<_>>())
        }
    }
}

/// Counts the training targets and scores what needs no network; the first look at the samples.
fn survey(
    splits: &Splits,
    controls: &mut Controls,
    outbox: &Outbox,
) -> Result<(TargetStatistics, Vec<(String, Scores)>)> {
    let mut tell = preparing(outbox);
    let mut watch = controls.watch();
    let mut progress = |progress: Progress<'_>| {
        tell(progress);
        watch(progress)
    };
    let statistics = train::target_statistics(&*splits.training, &mut progress)?;
    let policy = AbsentPolicy::default();
    let training = Some((&*splits.training, &statistics));
    let baselines = train::baselines(&*splits.validation, training, policy, &mut progress)?;
    Ok((statistics, baselines))
}

/// Least time between two reports of the same work.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Reports work when it begins, and while it lasts.
fn preparing(outbox: &Outbox) -> impl FnMut(Progress<'_>) {
    let mut last: Option<(String, Instant)> = None;
    move |progress| {
        let due = last.as_ref().is_none_or(|(what, then)| what != progress.what || then.elapsed() >= REPORT_EVERY);
        if due {
            let what = progress.what.to_owned();
            last = Some((what.clone(), Instant::now()));
            outbox.send(Event::Preparing { what, done: progress.done, total: progress.total });
        }
    }
}

fn mean(values: &[f32]) -> f64 {
    // `sum` of nothing is -0.
    values.iter().copied().map(f64::from).fold(0.0, std::ops::Add::add) / values.len().max(1) as f64
}

/// The next batch that holds a sample; `taken` counts it and those passed over because all their samples failed.
fn load(loader: &mut Loader, taken: &mut u64, controls: &mut Controls, outbox: &mut Outbox) -> Result<Batch> {
    loop {
        // Before the first one it is the caller who looks.
        if *taken > 0 && controls.stopped() {
            return Err(Error::Interrupted);
        }
        let batch = loader.next_batch()?;
        *taken += 1;
        for (index, error) in &batch.failures {
            outbox.warn(format!("sample {index} was skipped: {error}"));
        }
        if !batch.is_empty() {
            return Ok(batch);
        }
    }
}

/// Within a budget on the CPU, what threads need for a moment to prepare samples is left to them: measured while they fill
/// their queue.
fn leave_to_loader(learner: &mut Learner, loader: &Loader, device: &Device, controls: &mut Controls) {
    if learner.planning.budget_bytes().is_none() || !gpu::is_cpu(device) {
        return;
    }
    gpu::start_lap(device);
    if loader.settle(&mut || !controls.stopped())
        && let (Some(peak_bytes), Some(memory)) = (gpu::lap_peak(device), gpu::memory_use(device))
    {
        learner.planning.leave(peak_bytes.saturating_sub(memory.in_use_bytes));
    }
}

/// Width and height of each of the three panels of a preview.
const PREVIEW_PX: [usize; 2] = [560, 420];

struct Trainer {
    device: Device,
    splits: Splits,
    schedule: Schedule,
    folder: RunFolder,
    learner: Learner,
    loader: Loader,
    state: State,
    notices: precision::Notices,
    /// Step and scores of the last evaluation.
    evaluated: Option<(usize, Scores)>,
    /// Step of the last checkpoint.
    saved: Option<usize>,
    /// Where the run goes back to when its device is lost before the first checkpoint.
    beginning: Beginning,
    reserve: Reserve,
    /// Step that a device was lost at, and how often.
    lost: Option<(usize, usize)>,
}

struct Beginning {
    state: State,
    /// What an untrained network is told of the classes.
    class_shares: Option<Vec<f64>>,
}

impl Trainer {
    /// Steps until the last one is done and scored, or until told to stop; true when it was told to.
    fn train(&mut self, controls: &mut Controls, outbox: &mut Outbox) -> Result<bool> {
        loop {
            match self.until_done(controls, outbox) {
                Err(Error::Device(why)) => self.go_back(&why, outbox)?,
                Err(error @ (Error::OutOfMemory(_) | Error::TooLarge(_))) => {
                    return Err(self.saved_without_memory(&error, outbox));
                }
                other => return other,
            }
        }
    }

    fn until_done(&mut self, controls: &mut Controls, outbox: &mut Outbox) -> Result<bool> {
        let steps = self.state.config.steps.clone();
        let due = |every: usize, step: usize| every > 0 && step.is_multiple_of(every);
        while self.state.step < self.state.total_steps {
            match controls.next() {
                Next::Stop => break,
                Next::Save => self.save(outbox)?,
                Next::Evaluate => self.evaluate(controls, outbox)?,
                Next::Step => {
                    match self.step(controls, outbox) {
                        // In the middle of a step, which is given up.
                        Err(Error::Interrupted) => break,
                        other => other?,
                    }
                    if due(steps.evaluate_every, self.state.step) {
                        self.evaluate(controls, outbox)?;
                    }
                    if due(steps.checkpoint_every, self.state.step) {
                        self.save(outbox)?;
                    }
                }
            }
        }
        if self.state.step >= self.state.total_steps {
            self.evaluate(controls, outbox)?;
        }
        self.save(outbox)?;
        let scored = self.evaluated.as_ref().is_some_and(|(step, _)| *step == self.state.step);
        Ok(self.state.step < self.state.total_steps || !scored)
    }

    fn step(&mut self, controls: &mut Controls, outbox: &mut Outbox) -> Result<()> {
        let began = Instant::now();
        let (mut taken, mut waited) = (0, Duration::ZERO);
        // They stay on the host until the step counts, so that it can be repeated.
        let mut batches = Vec::new();
        for _ in 0..self.state.config.steps.accumulate {
            let asked = Instant::now();
            batches.push(load(&mut self.loader, &mut taken, controls, outbox)?);
            waited += asked.elapsed();
        }
        // The schedule goes on with steps that moved something; the run's own count, and its samples, with every step.
        let lr = self.schedule.lr(self.state.step - self.learner.scaler.skipped().min(self.state.step));
        let number = self.state.step + 1;
        // A run that was resumed draws what one that went through draws.
        self.learner.seed = Rng::of(&[self.state.config.seed, number as u64]).next_u64();
        let outcome = self.insist(&batches, lr, controls, outbox).map_err(|e| match e {
            Error::Failed(why) => Error::Failed(format!("step {number}: {why}")),
            other => other,
        })?;
        let peak_bytes = gpu::step_peak(&self.device);
        self.state.batches += taken;
        let samples = self.state.batches * self.state.config.steps.batch as u64;
        self.state.epoch = samples.div_ceil(self.splits.training.len() as u64);
        self.state.step = number;
        if outcome.loss.is_finite() {
            self.state.losses.push(outcome.loss as f32);
        }
        self.state.loss_scale = self.learner.scaler.state();
        if let Some(notice) = self.notices.of(number, self.learner.precision(), &outcome) {
            outbox.warn(notice);
        }
        let memory = gpu::memory_use(&self.device);
        let record = StepRecord {
            step: number,
            loss: outcome.loss,
            lr,
            grad_norm: outcome.grad_norm,
            loss_scale: outcome.scale,
            skipped: outcome.skipped,
            zero_gradient_share: outcome.zero_share,
            nonfinite: outcome.nonfinite,
            step_ms: began.elapsed().as_secs_f64() * 1e3,
            wait_ms: waited.as_secs_f64() * 1e3,
            in_use_bytes: memory.map(|m| m.in_use_bytes),
            reserved_bytes: memory.map(|m| m.reserved_bytes),
            peak_bytes: memory.map(|m| m.peak_bytes),
            step_peak_bytes: outcome.memory.as_ref().map(|m| m.peak_bytes),
            peak_at: outcome.memory.as_ref().map(|m| m.at.clone()),
            memory: outcome.memory.map(|m| m.kinds),
        };
        self.folder.step(&record)?;
        outbox.step(record);
        self.plan(peak_bytes, outbox)
    }

    /// What the step says about the next ones: the plan after a measured step, a tighter one when a peak passed the budget.
    /// When no plan fits, fewer samples go through the network at a time, unless the user said how many.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when nothing fits.
    fn plan(&mut self, peak_bytes: Option<u64>, outbox: &mut Outbox) -> Result<()> {
        let planned = match (self.learner.planned.take(), peak_bytes) {
            (Some(planned), _) => planned.map(Some),
            (None, Some(peak_bytes)) => self.learner.planning.check(peak_bytes),
            (None, None) => Ok(None),
        };
        match planned {
            Ok(None) => Ok(()),
            Ok(Some(report)) => {
                outbox.send(Event::Planned(report));
                Ok(())
            }
            Err(Error::TooLarge(why)) => {
                if let Some(line) = self.half_precision() {
                    outbox.warn(line);
                    return Ok(());
                }
                let chosen_by_user = self.state.config.memory.micro_batch > 0;
                let Some(size) = (!chosen_by_user).then(|| self.halve_micro_batch()).flatten() else {
                    return Err(Error::TooLarge(why));
                };
                outbox.warn(format!("{why}; {}", self.text_of_split(size)));
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    /// With `--precision auto`: from here on in f16, because no plan in f32 fits; the line that says so. A run that goes on
    /// from a checkpoint stays there.
    fn half_precision(&mut self) -> Option<String> {
        let (budget, smallest) = (self.learner.planning.budget_bytes()?, self.learner.planning.smallest_bytes()?);
        if self.learner.precision() != Precision::F32 {
            return None;
        }
        let config = &mut self.state.config.precision;
        // A strategy that the user named may not fit where a plan does.
        let (format, line) = precision::fall_back(config, smallest, budget, gpu::supports_f16(&self.device))?;
        config.format = format.name().into();
        self.learner.set_precision(format);
        self.learner.planning.forget();
        Some(line)
    }

    /// Scores the validation samples, shows the first of them, and keeps the best network. Without memory for it the run goes
    /// on unscored.
    fn evaluate(&mut self, controls: &mut Controls, outbox: &mut Outbox) -> Result<()> {
        let step = self.state.step;
        if self.evaluated.as_ref().is_some_and(|(evaluated, _)| *evaluated == step) {
            return Ok(());
        }
        let mut scored = self.score(controls);
        if let Err(Error::OutOfMemory(why)) = &scored {
            outbox.warn(format!("the scores of step {step}: {why}; scoring is repeated"));
            self.clean_up()?;
            scored = self.score(controls);
        }
        let (scores, first) = match scored {
            // The user stops the run: what is there is saved without scores.
            Err(Error::Interrupted) => return Ok(()),
            Err(Error::OutOfMemory(why)) => {
                outbox.warn(format!("step {step} has no scores: {why}; the run goes on"));
                return self.clean_up();
            }
            other => other?,
        };
        if let Some(snapshot) = first {
            if let Err(error) = self.draw(&snapshot) {
                outbox.warn(format!("no preview of step {step}: {error}"));
            }
            outbox.show(snapshot);
        }
        self.folder.evaluation(step, &scores, &self.state.labels)?;
        outbox.evaluation(EvalRecord { step, scores: scores.clone() });
        outbox.send(Event::Evaluated { step, scores: scores.clone() });
        if self.state.best.is_none_or(|(_, miou)| scores.miou > miou) {
            self.state.best = Some((step, scores.miou));
            self.save(outbox)?;
            checkpoint::mark_best(self.folder.path(), step)?;
        }
        self.evaluated = Some((step, scores));
        Ok(())
    }

    /// Scores of the validation samples, and what the network makes of the first of them.
    fn score(&self, controls: &mut Controls) -> Result<(Scores, Option<Snapshot>)> {
        self.reserve.keep()?;
        let step = self.state.step;
        let State { labels, config, .. } = &self.state;
        let scored = catch_unwind(AssertUnwindSafe(|| {
            let model = Model::new(self.learner.valid(), &self.device, labels.clone(), config.clone(), step);
            let mut first = None;
            let mut look = |sample: &Sample, prediction: &VoxelGrid| {
                if first.is_none() {
                    first = Some(Snapshot {
                        step,
                        id: sample.id.clone(),
                        cloud: sample.cloud.clone(),
                        prediction: prediction.clone(),
                        target: sample.target.clone(),
                    });
                }
                Ok(())
            };
            let validation = &*self.splits.validation;
            let scores = train::score(&model, validation, AbsentPolicy::default(), &mut controls.watch(), &mut look)?;
            Ok((scores, first))
        }));
        scored.unwrap_or_else(|panic| Err(gpu::panicked(&self.device, &*panic)))
    }

    /// `preview/STEP.png`: scan, prediction and target side by side.
    fn draw(&self, snapshot: &Snapshot) -> Result<()> {
        let options =
            PreviewOptions { target: Some(&snapshot.target), panel_px: PREVIEW_PX, ..PreviewOptions::default() };
        let picture = preview(Some(&snapshot.prediction), Some(&snapshot.cloud), &self.state.labels, &options);
        write_png(self.folder.path().join("preview").join(format!("{}.png", snapshot.step)), &picture)
    }

    /// Writes a checkpoint, unless this step has one. To read weights back takes memory: when it ends, what was set aside is
    /// given to it.
    fn save(&mut self, outbox: &mut Outbox) -> Result<()> {
        if self.saved == Some(self.state.step) {
            return Ok(());
        }
        let mut saved = self.try_save();
        for _ in 0..2 {
            let Err(Error::OutOfMemory(why)) = &saved else { break };
            outbox.warn(format!("the checkpoint of step {}: {why}; saving is repeated", self.state.step));
            self.reserve.give_up();
            self.clean_up()?;
            saved = self.try_save();
        }
        let path = saved?;
        self.saved = Some(self.state.step);
        outbox.send(Event::Checkpoint { step: self.state.step, path });
        Ok(())
    }

    fn try_save(&self) -> Result<PathBuf> {
        let Learner { network, optimizer, .. } = &self.learner;
        let saved =
            catch_unwind(AssertUnwindSafe(|| checkpoint::save(self.folder.path(), network, optimizer, &self.state)));
        saved.unwrap_or_else(|panic| Err(gpu::panicked(&self.device, &*panic)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_no_losses_is_a_plain_zero() {
        assert!(mean(&[]) == 0.0 && mean(&[]).is_sign_positive());
        assert_eq!(mean(&[1.0, 2.0]), 1.5);
    }
}
