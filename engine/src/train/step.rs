//! One optimizer step: micro-batches forward and backward, gradients added, checked, clipped and applied.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Instant;

use burn::module::{Module, ModuleVisitor};
use burn::optim::GradientsAccumulator;
use burn::tensor::Device;
use occam_scene::{GridSpec, downscale_target};

use super::gradients::{Look, look, unscale};
use super::input::input;
use super::loss_scale::{Found, LossScaler, MOST_SKIPS, Verdict};
use super::optimizer::{clip, parameter_bytes, read_back};
use super::{InputConfig, Optimizer, PlanReport, Planning, PrecisionConfig, StepMemory, TrainConfig, precision};
use crate::data::{Batch, Rng};
use crate::gpu::{self, MemoryKinds};
use crate::losses::{Losses, Targets, class_counts};
use crate::models::{Learned, Network, Passes};
use crate::tape::{Precision, Summit};
use crate::{Error, Result};

/// A network in training with its optimizer.
pub struct Learner {
    pub network: Network,
    pub optimizer: Optimizer,
    spec: GridSpec,
    input: InputConfig,
    /// Without autodiff.
    device: Device,
    losses: Losses,
    clip_norm: f64,
    frozen_statistics: bool,
    /// Samples of a batch of which none failed.
    batch: usize,
    /// Samples that go through the network at a time; 0: whole batches.
    pub micro_batch: usize,
    /// Decides what each segment does for its backward pass.
    pub planning: Planning,
    /// What was decided after the last step, if that was measured.
    pub planned: Option<Result<PlanReport>>,
    /// Decides all that layers draw in the next step.
    pub seed: u64,
    precision: Precision,
    precision_config: PrecisionConfig,
    /// What the loss is multiplied by, and what that follows from.
    pub scaler: LossScaler,
}

/// What a step found.
#[derive(Debug, Clone, PartialEq)]
pub struct StepOutcome {
    /// Of the whole effective batch.
    pub loss: f64,
    /// Global L2 norm before clipping, of gradients without the loss scale.
    pub grad_norm: f64,
    /// Loss scale of this step, where there is one.
    pub scale: Option<f64>,
    /// The gradients were not finite, and nothing moved but the loss scale.
    pub skipped: bool,
    /// Share of the gradients' values that are 0.
    pub zero_share: Option<f64>,
    /// Name of the first parameter whose gradient is not finite.
    pub nonfinite: Option<String>,
    /// Most in use meanwhile, when that was, and what it was for; `None` where nobody counts.
    pub memory: Option<StepPeak>,
}

/// The memory of a step at the moment when most was in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepPeak {
    pub peak_bytes: u64,
    /// Segment and stretch, or `optimizer`.
    pub at: String,
    pub kinds: MemoryKinds,
}

impl Learner {
    /// `device` is without autodiff, and so are `losses`; `network` was made on `device.autodiff()` for the grid and the
    /// input of `config`.
    pub fn new(network: Network, config: &TrainConfig, device: &Device, losses: Losses) -> Self {
        Self {
            network,
            optimizer: Optimizer::new(&config.optim),
            spec: config.grid,
            input: config.input,
            device: device.clone(),
            losses,
            clip_norm: config.optim.clip_norm,
            frozen_statistics: config.model.frozen_statistics,
            batch: config.steps.batch,
            micro_batch: config.memory.micro_batch,
            planning: Planning::fixed(Vec::new()),
            planned: None,
            seed: config.seed,
            precision: precision::first(&config.precision),
            precision_config: config.precision.clone(),
            scaler: LossScaler::new(&config.precision, precision::first(&config.precision)),
        }
    }

    /// Of values between segments.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Goes on in another precision; the loss scale begins anew.
    pub fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
        self.scaler = LossScaler::new(&self.precision_config, precision);
    }

    /// Trains on all samples of `batches` as one effective batch: the loss is divided by what the whole of it weighs, so that
    /// gradients do not depend on how many samples go through the network at a time. Two things do: batch normalization
    /// takes the statistics of each micro-batch, unless `model.frozen_statistics`, and Lovász and the affinities look at each
    /// micro-batch by itself.
    ///
    /// `between` is asked between micro-batches whether to go on. On any error, of its own too, network and optimizer are as
    /// they were.
    ///
    /// # Errors
    /// Those of `between`; [`Error::TooLarge`] when a tensor does not fit on the device; [`Error::OutOfMemory`] when memory
    /// ends; [`Error::Device`] when the device fails; [`Error::Failed`] when loss or gradients are not finite.
    pub fn step(&mut self, batches: &[Batch], lr: f64, between: &mut dyn FnMut() -> Result<()>) -> Result<StepOutcome> {
        self.planning.computes_in(self.precision);
        // The trace is that of the last part, which must be as large as any that will come.
        let last = micro_batches(batches, self.micro_batch).last().map_or(0, |(_, samples)| samples.len());
        let measured = self.planning.wants_trace() && last >= self.part();
        let (began, fixed_bytes) = (Instant::now(), self.in_use_bytes());
        let weights = parameter_bytes(&self.network);
        gpu::start_step(&self.device);
        let Some(mut learned) = self.learn(batches, between)? else {
            return Err(Error::Failed("a step without samples".into()));
        };
        let trace = learned.trace.take().filter(|_| measured);
        let summit = std::mem::take(&mut learned.summit);
        gpu::start_lap(&self.device);
        // In this order: unscale, check, clip, step.
        let scale = self.scaler.scale();
        unscale(&self.network, &mut learned.gradients, scale);
        let found = look(&self.network, learned.loss.clone(), &learned.gradients, &self.device)?;
        gpu::settle()?;
        let verdict = self.scaler.verdict(if found.is_finite() { Found::Norm(found.norm) } else { Found::Overflow });
        let skipped = match verdict.1 {
            Verdict::GiveUp => return Err(self.given_up(&found)),
            Verdict::Skip => true,
            Verdict::Take => {
                clip(&self.network, &mut learned.gradients, found.norm, self.clip_norm);
                self.commit(lr, learned)?;
                false
            }
        };
        // Last, so that a step that fails leaves the scale as it was.
        let scale = self.scaler.is_on().then_some(scale);
        self.scaler.set(verdict.0);
        let counted = gpu::memory_use(&self.device).is_some();
        let end_peak_bytes = gpu::lap_peak(&self.device).unwrap_or_default();
        // A step that was skipped has not seen the optimizer: the next one is measured.
        if let Some(trace) = trace.filter(|_| !skipped) {
            let after_bytes = self.in_use_bytes();
            let memory =
                StepMemory { fixed_bytes, end_peak_bytes, after_bytes, step_ms: began.elapsed().as_secs_f64() * 1e3 };
            self.planned = self.planning.observe(&trace, &memory).transpose();
        }
        let Look { loss, norm, zero_share, nonfinite } = found;
        let memory = counted.then(|| self.peak(fixed_bytes, weights, end_peak_bytes, summit));
        let zero_share = Some(zero_share);
        Ok(StepOutcome { loss, grad_norm: norm, scale, skipped, zero_share, nonfinite, memory })
    }

    /// Of a step before which `before` bytes were in use, `weights` of them parameters.
    fn peak(&self, before: u64, weights: u64, end_peak: u64, summit: Summit) -> StepPeak {
        let optimizer = self.optimizer.bytes();
        let after = gpu::memory_use(&self.device).unwrap_or_default();
        let cache = after.reserved_bytes.saturating_sub(after.in_use_bytes);
        let kinds = MemoryKinds { weights, optimizer, cache, ..MemoryKinds::default() };
        if end_peak > summit.peak_bytes {
            // Gradients are as large as what learns, and new weights stand beside the old ones.
            let data = before.saturating_sub(weights + optimizer);
            let gradients = optimizer / 2;
            let workspace = end_peak.saturating_sub(weights + optimizer + data + gradients);
            let kinds = MemoryKinds { gradients, workspace, data, ..kinds };
            return StepPeak { peak_bytes: end_peak, at: "optimizer".into(), kinds };
        }
        let Summit { segment, stretch, base_bytes, peak_bytes, before_bytes, gradient_bytes } = summit;
        let data = base_bytes.saturating_sub(weights + optimizer);
        let activations = before_bytes.saturating_sub(base_bytes + gradient_bytes);
        let workspace = peak_bytes.saturating_sub(weights + optimizer + data + gradient_bytes + activations);
        let kinds = MemoryKinds { data, gradients: gradient_bytes, activations, workspace, ..kinds };
        StepPeak { peak_bytes, at: format!("{segment} {stretch}"), kinds }
    }

    /// Why training cannot go on.
    fn given_up(&self, Look { loss, norm, nonfinite, .. }: &Look) -> Error {
        let first = match nonfinite {
            Some(name) => format!("; the first gradient that is not finite is that of {name}"),
            None => String::new(),
        };
        let found = format!("the loss is {loss} and the gradient's norm {norm}, expected finite numbers{first}");
        Error::Failed(if self.scaler.is_on() {
            format!(
                "{MOST_SKIPS} steps in a row overflowed at the smallest loss scale, {}: {found}. Lower optim.lr, or train \
                 with --precision bf16 or f32",
                self.scaler.scale()
            )
        } else if self.precision == Precision::F16 {
            format!("{found}. Set precision.loss_scale to \"dynamic\", or train with --precision bf16 or f32")
        } else {
            format!("{found}. Lower optim.lr, or set optim.clip_norm to 1")
        })
    }

    fn in_use_bytes(&self) -> u64 {
        gpu::memory_use(&self.device).map_or(0, |memory| memory.in_use_bytes)
    }

    /// The one place where a step changes something: weights, the optimizer's moments and running statistics, all or none.
    fn commit(&mut self, lr: f64, learned: Learned) -> Result<()> {
        // All that may fail comes first.
        let statistics = learned.updates.prepare();
        self.network = self.optimizer.step(lr, self.network.clone(), learned.gradients)?;
        statistics.apply();
        Ok(())
    }

    /// Most samples that go through the network at a time.
    fn part(&self) -> usize {
        if self.micro_batch == 0 { self.batch } else { self.micro_batch.min(self.batch) }
    }

    /// Loss and gradients of the effective batch, micro-batch by micro-batch, as [`Learner::step`] takes them; `None` without
    /// samples.
    ///
    /// # Errors
    /// Those of `between`, of the network and of the gate.
    pub fn learn(&self, batches: &[Batch], between: &mut dyn FnMut() -> Result<()>) -> Result<Option<Learned>> {
        let levels: Vec<Level> = self.network.scales().iter().map(|scale| self.level(batches, *scale)).collect();
        let samples = batches.iter().map(Batch::len).sum::<usize>() as f64;
        let mut accumulator = GradientsAccumulator::new();
        let mut sum: Option<Learned> = None;
        for (number, (place, range)) in micro_batches(batches, self.micro_batch).into_iter().enumerate() {
            if number > 0 {
                between()?;
            }
            let share = range.len() as f64 / samples;
            let targets: Vec<Targets> = levels
                .iter()
                .map(|level| {
                    let labels = level.labels_of(place, range.clone());
                    let shape = [range.len(), level.sides[0], level.sides[1], level.sides[2]];
                    let (classes, ignored) = (self.losses.classes(), self.spec.ignore_id);
                    let targets = Targets::new(labels, shape, classes, ignored, &self.device);
                    targets.of_batch(level.counts.clone(), share)
                })
                .collect();
            let whole = range.len() == batches[place].len();
            let batch = if whole { Cow::Borrowed(&batches[place]) } else { Cow::Owned(batches[place].part(range)) };
            let mut learned = self.pass(&batch, &targets, Rng::of(&[self.seed, number as u64]).next_u64())?;
            accumulator.accumulate(&self.network, std::mem::take(&mut learned.gradients));
            sum = Some(match sum {
                None => learned,
                Some(mut sum) => {
                    sum.loss = sum.loss + learned.loss;
                    sum.updates.append(learned.updates);
                    // Of the last: it holds the gradients of all before.
                    sum.trace = learned.trace;
                    sum.summit = sum.summit.higher(learned.summit);
                    sum
                }
            });
        }
        Ok(sum.map(|sum| Learned { gradients: accumulator.grads(), ..sum }))
    }

    /// One micro-batch forward and back.
    fn pass(&self, batch: &Batch, targets: &[Targets], seed: u64) -> Result<Learned> {
        let input = input(batch, &self.spec, &self.input, &self.device)?;
        let passes = Passes {
            modes: self.planning.modes(),
            traced: self.planning.wants_trace(),
            by_planes: self.losses.by_planes(),
            seed,
            frozen_statistics: self.frozen_statistics,
            precision: self.precision,
            factor: self.scaler.scale(),
        };
        self.network.learn(input, &passes, &mut |scale, logits, range| {
            self.losses.of_planes(logits, &targets[scale], range, targets.len())
        })
    }

    /// Targets of one scale, and what they weigh, before anything goes through the network.
    fn level<'b>(&self, batches: &'b [Batch], scale: usize) -> Level<'b> {
        let [nx, ny, nz] = self.spec.counts;
        let (empty, ignored) = (self.spec.empty_id, self.spec.ignore_id);
        let labels = |batch: &'b Batch| -> Cow<'b, [u8]> {
            if scale == 1 {
                return Cow::Borrowed(&batch.targets);
            }
            let samples = batch.targets.chunks_exact(self.spec.len());
            samples.flat_map(|labels| downscale_target(labels, [nz, nx, ny], scale, empty, ignored)).collect()
        };
        let labels: Vec<_> = batches.iter().map(labels).collect();
        let mut counts = vec![0; self.losses.classes()];
        for labels in &labels {
            let found = class_counts(labels, self.losses.classes(), ignored);
            counts.iter_mut().zip(found).for_each(|(sum, count)| *sum += count);
        }
        Level { sides: [nz / scale, nx / scale, ny / scale], labels, counts }
    }

    /// Reads weights, running statistics and moments: whether the device still has them.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read_back(&self) -> Result<()> {
        read_back(&self.network.valid())?;
        self.optimizer.read_back()
    }

    /// What a step of batches of `samples` in parts does not keep equal to one at once, in one line; `None` where nothing.
    pub fn split_notice(&self, samples: usize) -> Option<String> {
        let size = self.micro_batch;
        if size == 0 || size >= samples {
            return None;
        }
        let mut apart = Vec::new();
        if !self.frozen_statistics && has_statistics(&self.network) {
            apart.push(
                "batch normalization takes the statistics of each part (model.frozen_statistics = true keeps gradients \
                 equal)",
            );
        }
        if !self.losses.by_planes() {
            apart.push("Lovász and the affinity losses look at each part by itself");
        }
        let what = format!("batches of {samples} go through the network {size} at a time");
        (!apart.is_empty()).then(|| format!("{what}: {}", apart.join("; ")))
    }

    /// The network as it predicts: batch normalization by its running statistics, no autodiff.
    pub fn valid(&self) -> Network {
        self.network.valid()
    }
}

/// Targets of the effective batch at one scale, on the host.
struct Level<'b> {
    /// Along z, x, y.
    sides: [usize; 3],
    /// Of each batch.
    labels: Vec<Cow<'b, [u8]>>,
    /// Voxels of each class in all of them.
    counts: Vec<u64>,
}

impl Level<'_> {
    /// Of some samples of a batch.
    fn labels_of(&self, batch: usize, samples: Range<usize>) -> &[u8] {
        let voxels = self.sides.iter().product::<usize>();
        &self.labels[batch][samples.start * voxels..samples.end * voxels]
    }
}

/// What goes through the network at a time: the number of a batch, and which of its samples. What is left of a batch comes
/// first, so that its last part has the full size.
fn micro_batches(batches: &[Batch], size: usize) -> Vec<(usize, Range<usize>)> {
    let of_batch = |(place, batch): (usize, &Batch)| {
        let len = batch.len();
        let size = if size == 0 { len } else { size.min(len) }.max(1);
        let rest = len % size;
        let first = (rest > 0).then_some((place, 0..rest));
        first.into_iter().chain((rest..len).step_by(size).map(move |start| (place, start..start + size)))
    };
    batches.iter().enumerate().flat_map(of_batch).collect()
}

/// Whether a network has layers that take statistics of a batch.
fn has_statistics(network: &Network) -> bool {
    struct Find(bool);
    impl ModuleVisitor for Find {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.0 |= name == "running_mean";
        }
    }
    let mut find = Find(false);
    network.visit(&mut find);
    find.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_batch_goes_first() {
        let batch = |count: usize| Batch { ids: vec![String::new(); count], ..Batch::new() };
        let parts = |count: usize, size: usize| -> Vec<Range<usize>> {
            micro_batches(&[batch(count)], size).into_iter().map(|(_, samples)| samples).collect()
        };
        assert_eq!(parts(3, 2), [0..1, 1..3]);
        assert_eq!(parts(4, 2), [0..2, 2..4]);
        for size in [0, 3, 4] {
            assert_eq!(parts(3, size), [Range { start: 0, end: 3 }]);
            assert!(parts(0, size).is_empty());
        }
        let batches = [batch(3), batch(0), batch(1)];
        assert_eq!(micro_batches(&batches, 2), [(0, 0..1), (0, 1..3), (2, 0..1)]);
    }
}
