//! What `occam train --plan` finds: one real batch, every way to take a step on it, predicted and measured.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{Device, Tensor};
use occam_scene::GridSpec;
use serde::Serialize;

use super::planning::{Planning, budget_for, room};
use super::{Budget, Learner, PlanReport, TrainConfig, fits, precision};
use crate::data::{self, Batch, Loader, LoaderConfig, Rng};
use crate::gpu::{self, DeviceChoice, Reserve};
use crate::losses::Losses;
use crate::models::Network;
use crate::tape::{Mode, Moment, Profile, Strategy, least, solve};
use crate::{Error, Progress, ProgressFn, Result};

/// Budgets of the table, from the smallest possible to the one of a step that recomputes nothing, this one excluded.
const BUDGETS: u64 = 7;
/// Steps that each row is measured with, in turns.
const ROUNDS: usize = 3;
/// Steps to get one that is measured.
const MOST_TRIES: usize = 12;
/// Budgets of a grid that was not tried: those of common GPUs.
const COMMON_GIB: [u64; 5] = [2, 4, 8, 12, 24];

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Study {
    pub device: String,
    pub network: String,
    pub grid: [usize; 3],
    /// Samples that go through the network together.
    pub samples: usize,
    /// In which the step was measured.
    pub precision: String,
    /// The two grids that were measured when the step itself was not.
    pub measured_grids: Vec<[usize; 3]>,
    pub budget_bytes: Option<u64>,
    /// For the budget, or what the configuration says without one.
    pub chosen: PlanReport,
    /// Why nothing was chosen: the budget is below that of the smallest plan.
    pub refused: Option<String>,
    /// Of a real step with what was chosen; `None` where it was not run.
    pub measured_bytes: Option<u64>,
    /// Of such a step.
    pub step_ms: Option<f64>,
    pub rows: Vec<StudyRow>,
    /// What is in use at every moment of a step that recomputes nothing, with what was chosen, and with the smallest plan.
    pub moments: Vec<StudyMoment>,
}

/// One way to take a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StudyRow {
    pub name: String,
    /// Of a plan.
    pub budget_bytes: Option<u64>,
    pub recomputed: usize,
    /// That it adds, by the times of the measured step.
    pub added_ms: f64,
    pub predicted_bytes: u64,
    /// It does not fit what the machine has.
    pub not_run: bool,
    /// The highest of some real steps.
    pub measured_bytes: Option<u64>,
    /// The median of some real steps.
    pub step_ms: Option<f64>,
}

impl StudyRow {
    /// How far the prediction lies above what was measured, as a share of that.
    pub fn error(&self) -> Option<f64> {
        let measured = self.measured_bytes? as f64;
        Some((self.predicted_bytes as f64 - measured) / measured)
    }
}

/// A moment of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StudyMoment {
    /// Such as `forward encoder 1:1`.
    pub name: String,
    pub none_bytes: u64,
    pub chosen_bytes: u64,
    pub smallest_bytes: u64,
}

/// Takes one batch of the data of `config`, one step to warm up and one that is measured, plans, and takes real steps with
/// every strategy and with plans for several budgets, as far as they fit this machine. Nothing is written. A budget below
/// the smallest possible is told in [`Study::refused`].
///
/// With `from`, a grid of the same height, no step is taken on the grid of the configuration: the profiles of `from` and of
/// a half of it, on made-up points, are extended in proportion to the voxels.
///
/// # Errors
/// [`Error::Usage`] for a precision that the device does not have; those of data, device and the measured step.
pub fn study(config: &TrainConfig, from: Option<[usize; 3]>, progress: ProgressFn<'_>) -> Result<Study> {
    let opened = gpu::open(&config.device.parse::<DeviceChoice>()?)?;
    let device = opened.device;
    // `auto` begins in f32.
    let precision = precision::first(&config.precision);
    precision::check(precision, &device)?;
    let budget: Budget = config.memory.budget.parse()?;
    let budget_bytes = budget.bytes(&device)?;
    let splits = data::open(&config.data, &config.grid, config.seed)?.for_input(config.input);
    let classes = splits.training.labels().len();
    let mut study = Study {
        device: opened.label,
        network: config.model.network.clone(),
        grid: config.grid.counts,
        samples: samples(config),
        precision: precision.name().into(),
        measured_grids: Vec::new(),
        budget_bytes,
        chosen: PlanReport::default(),
        refused: None,
        measured_bytes: None,
        step_ms: None,
        rows: Vec::new(),
        moments: Vec::new(),
    };
    if let Some(from) = from {
        let (profile, fixed_bytes) = extended(config, from, classes, &device, &mut study.measured_grids, progress)?;
        study.plan(config, &profile, fixed_bytes)?;
        return Ok(study);
    }
    let samples = study.samples;
    let training =
        fits::Training { batch: samples, accumulate: 1, micro_batch: samples, ..fits::Training::new(config) };
    let work = fits::Work::Training(training);
    fits::check(&device, &config.grid, config.input.channels(), classes, work)?;
    tell(progress, "loading a batch", 0, 1)?;
    let batch = {
        let loader = LoaderConfig {
            batch: study.samples,
            workers: 1,
            seed: config.seed,
            augment: config.augment.clone(),
            first_batch: 0,
        };
        let mut loader = Loader::start(Arc::clone(&splits.training), loader)?;
        loop {
            let batch = loader.next_batch()?;
            if !batch.is_empty() {
                break batch;
            }
        }
    };
    drop(splits);
    let mut bench = Bench::new(config, classes, &device, batch)?;
    let (profile, fixed_bytes) = bench.profile(progress)?;
    study.plan(config, &profile, fixed_bytes)?;
    bench.measure(&mut study, &profile, progress)?;
    Ok(study)
}

/// Samples that go through the network together.
fn samples(config: &TrainConfig) -> usize {
    match config.memory.micro_batch {
        0 => config.steps.batch,
        some => some.min(config.steps.batch),
    }
}

fn tell(
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    what: &str,
    done: usize,
    total: usize,
) -> Result<()> {
    match progress(Progress { what, done, total }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Interrupted),
    }
}

/// The same batch, step after step.
struct Bench {
    learner: Learner,
    batches: Vec<Batch>,
    lr: f64,
    device: Device,
    reserve: Reserve,
}

impl Bench {
    fn new(config: &TrainConfig, classes: usize, device: &Device, batch: Batch) -> Result<Self> {
        let channels = config.input.channels();
        let (name, counts) = (&config.model.network, config.grid.counts);
        let network = Network::new(name, counts, channels, classes, config.seed, &device.clone().autodiff())?;
        // What classes weigh changes no bytes and no time.
        let losses = Losses::new(&config.loss, Tensor::ones([classes], device), &config.grid);
        let learner = Learner::new(network, config, device, losses);
        Ok(Self { learner, batches: vec![batch], lr: config.optim.lr, device: device.clone(), reserve: Reserve::new() })
    }

    /// One step; its peak and its time.
    fn step(&mut self, planning: Planning) -> Result<(Option<u64>, f64)> {
        self.learner.planning = planning;
        self.reserve.keep()?;
        gpu::forget_refusals();
        gpu::start_step(&self.device);
        gpu::sample_launches(!gpu::is_cpu(&self.device));
        let began = Instant::now();
        let (learner, batches, lr) = (&mut self.learner, &self.batches, self.lr);
        let step = catch_unwind(AssertUnwindSafe(|| learner.step(batches, lr, &mut || Ok(()))));
        step.unwrap_or_else(|panic| Err(gpu::panicked(&self.device, &*panic)))?;
        let peak = gpu::step_peak(&self.device);
        let ms = began.elapsed().as_secs_f64() * 1e3;
        // What a measured step says comes as an error when it is one.
        self.learner.planned.take().transpose()?;
        Ok((peak, ms))
    }

    /// A step to warm up, in which the optimizer's moments begin, and one that is measured: its profile, and what is in use
    /// between steps.
    fn profile(&mut self, progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>) -> Result<(Profile, u64)> {
        tell(progress, "measuring", 0, 2)?;
        self.step(Planning::measuring())?;
        tell(progress, "measuring", 1, 2)?;
        // A step that overflowed in f16 has not seen the optimizer and measures nothing; the scale falls with each.
        for _ in 0..MOST_TRIES {
            self.step(Planning::measuring())?;
            if self.learner.planning.measured().is_some() {
                break;
            }
        }
        let (profile, fixed_bytes) = self.learner.planning.measured().ok_or_else(nothing_measured)?;
        Ok((profile.clone(), fixed_bytes))
    }

    /// After a step for which there was no memory. On a GPU the weights are read, because what made them may be what failed.
    fn clean_up(&self) -> Result<()> {
        gpu::free_unused(&self.device);
        gpu::forget_refusals();
        if gpu::is_cpu(&self.device) {
            return Ok(());
        }
        let read = catch_unwind(AssertUnwindSafe(|| self.learner.read_back()));
        read.unwrap_or_else(|panic| Err(gpu::panicked(&self.device, &*panic)))
    }

    /// Takes real steps with what was chosen and with every row, in turns, as far as they fit.
    fn measure(
        &mut self,
        study: &mut Study,
        profile: &Profile,
        progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let chosen = study.chosen.segments.iter();
        let chosen = chosen.map(|segment| if segment.recomputed { Mode::Recompute } else { Mode::Keep }).collect();
        // A device that does not say what it has is tried.
        let most = Budget::Auto.bytes(&self.device).ok().flatten().unwrap_or(u64::MAX);
        let mut tries = vec![Try::new(chosen, study.refused.is_none() && study.chosen.predicted_bytes <= most)];
        let fixed_bytes = study.chosen.fixed_bytes;
        let all = rows(profile, fixed_bytes, &budgets(profile, fixed_bytes)).into_iter().filter_map(|row| row.modes);
        tries.extend(all.zip(&study.rows).map(|(modes, row)| Try::new(modes, row.predicted_bytes <= most)));
        let (count, total) = (tries.len(), ROUNDS * tries.len());
        for round in 0..ROUNDS {
            for (place, way) in tries.iter_mut().enumerate() {
                tell(progress, "trying strategies", round * count + place, total)?;
                if !way.fits {
                    continue;
                }
                match self.step(Planning::fixed(way.modes.clone())) {
                    Ok((peak, ms)) => {
                        way.peak = way.peak.max(peak);
                        way.times.push(ms);
                    }
                    Err(Error::OutOfMemory(_) | Error::TooLarge(_)) => {
                        way.fits = false;
                        self.clean_up()?;
                    }
                    Err(other) => return Err(other),
                }
            }
        }
        let mut found = tries.into_iter().map(Try::found);
        let chosen: Option<(Option<u64>, f64)> = found.next().flatten();
        (study.measured_bytes, study.step_ms) = (chosen.and_then(|found| found.0), chosen.map(|found| found.1));
        for (row, found) in study.rows.iter_mut().zip(found) {
            row.not_run = found.is_none();
            (row.measured_bytes, row.step_ms) = (found.and_then(|found| found.0), found.map(|found| found.1));
        }
        Ok(())
    }
}

/// A way to take a step, and what steps took.
struct Try {
    modes: Vec<Mode>,
    fits: bool,
    peak: Option<u64>,
    times: Vec<f64>,
}

impl Try {
    fn new(modes: Vec<Mode>, fits: bool) -> Self {
        Self { modes, fits, peak: None, times: Vec::with_capacity(ROUNDS) }
    }

    /// The highest peak and the median time; `None` when it did not fit.
    fn found(mut self) -> Option<(Option<u64>, f64)> {
        self.times.sort_by(f64::total_cmp);
        let median = *self.times.get(self.times.len() / 2)?;
        self.fits.then_some((self.peak, median))
    }
}

fn nothing_measured() -> Error {
    Error::Failed("no step was measured".into())
}

/// A row of the table before it is measured.
struct Row {
    name: String,
    budget_bytes: Option<u64>,
    /// `None`: nothing fits.
    modes: Option<Vec<Mode>>,
}

/// Every strategy, and plans for some budgets.
fn rows(profile: &Profile, fixed_bytes: u64, budgets: &[u64]) -> Vec<Row> {
    let rules = [Strategy::None, Strategy::Every(2), Strategy::Sqrt, Strategy::Topology];
    let rule =
        |strategy: Strategy| Row { name: strategy.to_string(), budget_bytes: None, modes: strategy.modes(profile) };
    let plan = |budget: &u64| Row {
        name: "plan".into(),
        budget_bytes: Some(*budget),
        modes: room(*budget, fixed_bytes).and_then(|room| solve(profile, room)),
    };
    rules.into_iter().map(rule).chain(budgets.iter().map(plan)).collect()
}

/// From the smallest budget possible to just below the one of nothing recomputed.
fn budgets(profile: &Profile, fixed_bytes: u64) -> Vec<u64> {
    let low = budget_for(fixed_bytes + least(profile).1);
    let high = budget_for(fixed_bytes + profile.simulate(&[]).peak_bytes).max(low);
    (0..BUDGETS).map(|step| low + (high - low) * step / BUDGETS).collect()
}

impl Study {
    /// Everything that follows from a profile.
    fn plan(&mut self, config: &TrainConfig, profile: &Profile, fixed_bytes: u64) -> Result<()> {
        let mut planning = Planning::new(&config.memory, self.budget_bytes)?;
        planning.computes_in(precision::first(&config.precision));
        self.chosen = match planning.take(profile.clone(), fixed_bytes) {
            Err(Error::TooLarge(why)) => {
                self.refused = Some(why);
                planning.report().ok_or_else(nothing_measured)?
            }
            other => other?,
        };
        let common = COMMON_GIB.map(|gib| gib << 30).to_vec();
        let budgets = if self.measured_grids.is_empty() { budgets(profile, fixed_bytes) } else { common };
        for Row { name, budget_bytes, modes } in rows(profile, fixed_bytes, &budgets) {
            let Some(modes) = modes else { continue };
            let simulation = profile.simulate(&modes);
            self.rows.push(StudyRow {
                name,
                budget_bytes,
                recomputed: modes.iter().filter(|mode| **mode == Mode::Recompute).count(),
                added_ms: simulation.added_ms,
                predicted_bytes: fixed_bytes + simulation.peak_bytes,
                not_run: false,
                measured_bytes: None,
                step_ms: None,
            });
        }
        let named = |moment: Moment| match moment {
            Moment::Forward(number) => format!("forward {}", profile.segments[number].name),
            Moment::Loss(number) if profile.losses.len() > 1 => format!("loss {}", number + 1),
            Moment::Loss(_) => "loss".into(),
            Moment::Backward(number) => format!("backward {}", profile.segments[number].name),
            Moment::End => "optimizer".into(),
        };
        let simulations = [Vec::new(), planning.modes().to_vec(), least(profile).0];
        let [none, chosen, smallest] = simulations.map(|modes| profile.simulate(&modes).moments);
        let all = none.into_iter().zip(chosen).zip(smallest);
        self.moments = all
            .map(|((none, chosen), smallest)| StudyMoment {
                name: named(none.0),
                none_bytes: fixed_bytes + none.1,
                chosen_bytes: fixed_bytes + chosen.1,
                smallest_bytes: fixed_bytes + smallest.1,
            })
            .collect();
        Ok(())
    }
}

/// The profile of the configuration's grid from those of `from` and of a half of it.
fn extended(
    config: &TrainConfig,
    from: [usize; 3],
    classes: usize,
    device: &Device,
    measured: &mut Vec<[usize; 3]>,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<(Profile, u64)> {
    let height = config.grid.counts[2];
    if from[2] != height {
        return Err(Error::Usage(format!(
            "--plan-from {}x{}x{}: expected a grid {height} voxels high, as the run's: the weights of networks follow the \
             height, so that only length and width can be extended",
            from[0], from[1], from[2]
        )));
    }
    let half = [from[0].div_ceil(2), from[1], from[2]];
    let mut found = Vec::with_capacity(2);
    for counts in [half, from] {
        let mut config = config.clone();
        config.grid.counts = counts;
        let batch = made_up(&config.grid, samples(&config), classes, config.seed);
        let mut bench = Bench::new(&config, classes, device, batch)?;
        found.push(bench.profile(progress)?);
        measured.push(counts);
    }
    let voxels = |counts: [usize; 3]| counts.iter().product::<usize>() as f64;
    let [small, large, wanted] = [half, from, config.grid.counts].map(voxels);
    let share = (wanted - small) / (large - small).max(1.0);
    let fixed = found[0].1 as f64 + (found[1].1 as f64 - found[0].1 as f64) * share;
    Ok((Profile::between(&found[0].0, &found[1].0, share)?, fixed.max(0.0) as u64))
}

/// Points in one voxel of sixteen, and any class in each.
fn made_up(spec: &GridSpec, samples: usize, classes: usize, seed: u64) -> Batch {
    let mut rng = Rng::of(&[seed, 1]);
    let mut batch = Batch::new();
    let mut intensity = Vec::new();
    for sample in 0..samples {
        batch.ids.push(format!("made up {sample}"));
        for _ in 0..spec.len() / 16 {
            let place: [f32; 3] = std::array::from_fn(|axis| {
                let at = rng.next_u64() % spec.counts[axis] as u64;
                spec.origin_m[axis] + (at as f32 + 0.5) * spec.voxel_size_m[axis]
            });
            batch.positions.push(place);
            intensity.push(0.5);
        }
        batch.offsets.push(batch.positions.len());
        batch.targets.extend((0..spec.len()).map(|_| (rng.next_u64() % classes as u64) as u8));
    }
    batch.intensity = Some(intensity);
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_run_has_no_median() {
        let with = |times: &[f64], fits| Try { times: times.to_vec(), peak: Some(7), ..Try::new(Vec::new(), fits) };
        assert_eq!(with(&[3.0, 1.0, 2.0], true).found(), Some((Some(7), 2.0)));
        assert_eq!(with(&[], true).found(), None);
        assert_eq!(with(&[], false).found(), None);
        assert_eq!(with(&[1.0], false).found(), None, "it failed in a later round");
    }
}
