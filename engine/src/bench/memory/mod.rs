//! Peak memory and time of whole training steps, by what the tape recomputes, beside stock autodiff of the same network.
//!
//! [`memory`] takes one step of every side in turn, and again, so that whatever else the machine does meets all of them;
//! ratios are of the same turn. Peaks are the allocator's ([`gpu::step_peak`]).

mod report;
mod stock;
mod sum;

use std::time::Instant;

use burn::tensor::{DType, Device, Tensor};
use occam_scene::GridSpec;

use crate::data::Batch;
use crate::losses::{ClassWeights, LossConfig, Losses, Targets, class_weights};
use crate::models::{Network, Passes};
use crate::tape::{Mode, Precision, Profile, Strategy, Trace, least, solve};
use crate::train::{InputConfig, Learner, OptimConfig, Planning, StepPeak, TrainConfig, clip, input, squared_norm};
use crate::{Error, Progress, ProgressFn, Result, gpu};

pub use report::{KIND, MemoryReport, SegmentRow, SideRow, Spread};
pub use sum::{Kept, stock_sum};

/// What is measured.
#[derive(Debug, Clone)]
pub struct MemoryBench {
    /// One of [`Network::NAMES`]; stock is written for `lmscnet-ss`.
    pub network: String,
    /// Voxels along x, y, z.
    pub counts: [usize; 3],
    pub classes: usize,
    /// Of what the tape keeps; stock is f32 always.
    pub precision: Precision,
    /// Turns; each takes a step of every side.
    pub pairs: usize,
}

/// One way to take a step.
struct Side {
    name: String,
    way: Way,
    seconds: Vec<f64>,
    /// Most above what was in use before the step.
    step_bytes: Vec<u64>,
    /// Most of all.
    total_bytes: Vec<u64>,
    /// Reserved after a step that began with a pool cleaned up; a GPU's.
    reserved_bytes: Option<u64>,
    /// What the forward pass left for the backward pass.
    kept_bytes: u64,
    loss: f64,
    /// Of the last step.
    memory: Option<StepPeak>,
}

enum Way {
    /// Ordinary autodiff, with a loss of Burn's log-softmax or of ours.
    Stock(stock::Loss),
    Tape(Vec<Mode>),
}

impl Side {
    fn new(name: &str, way: Way) -> Self {
        Self {
            name: name.into(),
            way,
            seconds: Vec::new(),
            step_bytes: Vec::new(),
            total_bytes: Vec::new(),
            reserved_bytes: None,
            kept_bytes: 0,
            loss: f64::NAN,
            memory: None,
        }
    }
}

/// Runs the bench on `device`, which is without autodiff. Batch 1, class-weighted cross-entropy, a tenth of the voxels
/// occupied.
///
/// # Errors
/// [`Error::Usage`] for a network without a stock form and where nobody counts memory; [`Error::Interrupted`] when
/// `progress` breaks; those of the network and of the device.
pub fn memory(bench: &MemoryBench, device: &Device, progress: ProgressFn<'_>) -> Result<MemoryReport> {
    stock::check(&bench.network)?;
    if bench.precision == Precision::F16 {
        gpu::check_dtype(device, &"bench memory", DType::F16)?;
    }
    if gpu::memory_use(device).is_none() {
        return Err(Error::Usage("bench memory: nobody counts this program's memory".into()));
    }
    let mut scene = Scene::new(bench, device)?;
    let (profile, all) = scene.profile()?;
    // The budgets of the plans are shares of what stock takes.
    let mut stock = Side::new("stock", Way::Stock(stock::Loss::Burns));
    scene.step(&mut stock, !gpu::is_cpu(device))?;
    let stock_bytes = stock.step_bytes.first().copied().unwrap_or(0);
    let mut sides = sides(&profile, stock_bytes);
    let count = sides.len();
    for turn in 0..=bench.pairs {
        for (place, side) in sides.iter_mut().enumerate() {
            let (done, total) = (turn * count + place, (bench.pairs + 1) * count);
            if progress(Progress { what: &side.name, done, total }).is_break() {
                return Err(Error::Interrupted);
            }
            // The first turn warms caches and pools up, and on a GPU is where memory is read.
            scene.step(side, turn == 0)?;
        }
    }
    let traces = [scene.trace(&[])?, scene.trace(&all)?];
    Ok(report::report(bench, &sides, &traces, &scene.learner.network))
}

/// Reductions against stock, in percent, that plans are made for where there is one.
const REDUCTIONS: [u64; 4] = [50, 60, 65, 70];

/// Stock, everything kept, every strategy, and plans.
fn sides(profile: &Profile, stock_bytes: u64) -> Vec<Side> {
    let mut sides = vec![
        Side::new("stock", Way::Stock(stock::Loss::Burns)),
        Side::new("stock, fused loss", Way::Stock(stock::Loss::Ours)),
    ];
    let rules = [Strategy::None, Strategy::Every(2), Strategy::Every(3), Strategy::Sqrt, Strategy::Topology];
    for rule in rules {
        sides.extend(rule.modes(profile).map(|modes| Side::new(&rule.to_string(), Way::Tape(modes))));
    }
    for reduction in REDUCTIONS {
        let budget = stock_bytes / 100 * (100 - reduction);
        let plan = solve(profile, budget);
        sides.extend(plan.map(|modes| Side::new(&format!("plan, stock -{reduction} %"), Way::Tape(modes))));
    }
    sides.push(Side::new("plan, least", Way::Tape(least(profile).0)));
    sides.push(Side::new("all", Way::Tape(vec![Mode::Recompute; profile.segments.len()])));
    sides
}

/// A network in training and one sample for it.
struct Scene {
    learner: Learner,
    losses: Losses,
    class_weights: Tensor<1>,
    spec: GridSpec,
    input: InputConfig,
    optim: OptimConfig,
    device: Device,
    batch: Batch,
}

/// Small, so that losses of the sides stay comparable.
const LR: f64 = 1e-4;

impl Scene {
    fn new(bench: &MemoryBench, device: &Device) -> Result<Self> {
        let mut config = TrainConfig::from_layers("demo", None, &[])?;
        let spec = GridSpec::new([0.0; 3], [1.0; 3], bench.counts);
        let input = InputConfig { visibility: false, intensity: false, height: false };
        (config.grid, config.input) = (spec, input);
        let network =
            Network::new(&bench.network, bench.counts, input.channels(), bench.classes, 0, &device.clone().autodiff())?;
        let batch = sample(bench.counts, bench.classes);
        let mut counts = vec![0; bench.classes];
        batch.targets.iter().for_each(|label| counts[usize::from(*label)] += 1);
        let class_weights = Tensor::from_data(class_weights(&counts).as_slice(), device);
        let loss = LossConfig {
            class_weights: ClassWeights::Scene,
            cross_entropy: 1.0,
            lovasz: 0.0,
            semantic_affinity: 0.0,
            geometric_affinity: 0.0,
            focal: 0.0,
            focal_gamma: 2.0,
        };
        let losses = Losses::new(&loss, class_weights.clone(), &spec);
        let mut learner = Learner::new(network, &config, device, losses.clone());
        learner.set_precision(bench.precision);
        let (optim, device) = (config.optim, device.clone());
        Ok(Self { learner, losses, class_weights, spec, input, optim, device, batch })
    }

    /// Takes a step and notes time and memory; `first` only memory.
    fn step(&mut self, side: &mut Side, first: bool) -> Result<()> {
        let on_gpu = !gpu::is_cpu(&self.device);
        if on_gpu && first {
            self.device.memory_cleanup();
            gpu::sample_launches(true);
        }
        let before = gpu::memory_use(&self.device).unwrap_or_default().in_use_bytes;
        gpu::start_step(&self.device);
        let began = Instant::now();
        side.loss = match &side.way {
            Way::Tape(modes) => {
                self.learner.planning = Planning::fixed(modes.clone());
                let outcome = self.learner.step(std::slice::from_ref(&self.batch), LR, &mut || Ok(()))?;
                side.memory = outcome.memory;
                outcome.loss
            }
            Way::Stock(loss) => {
                let (value, kept) = self.stock_step(*loss)?;
                side.kept_bytes = kept.saturating_sub(before);
                value
            }
        };
        // A step reads its loss before it changes weights: the device may still be at work on them.
        self.device.sync().map_err(|error| Error::Failed(format!("the device failed: {error}")))?;
        let seconds = began.elapsed().as_secs_f64();
        let peak = gpu::step_peak(&self.device).unwrap_or(before);
        if on_gpu && first {
            gpu::sample_launches(false);
            side.reserved_bytes = gpu::memory_use(&self.device).map(|memory| memory.reserved_bytes);
        }
        if first == on_gpu {
            side.step_bytes.push(peak - before);
            side.total_bytes.push(peak);
        }
        if !first {
            side.seconds.push(seconds);
        }
        Ok(())
    }

    /// As [`Learner::step`], with stock autodiff. Gives what was in use when the forward pass ended too.
    fn stock_step(&mut self, loss: stock::Loss) -> Result<(f64, u64)> {
        let (features, targets) = self.tensors()?;
        let network = &self.learner.network;
        let (loss, mut gradients, kept) =
            stock::learn(network, features, &targets, &self.losses, &self.class_weights, loss, &self.device)?;
        drop(targets);
        let square =
            squared_norm(network, &gradients).ok_or_else(|| Error::Failed("a step without gradients".into()))?;
        let read = Tensor::cat(vec![loss, square.without_autodiff()], 0).try_into_vec_as::<f32>();
        let read = read.map_err(|error| Error::Failed(format!("the device failed: {error}")))?;
        clip(network, &mut gradients, f64::from(read[1]).sqrt(), self.optim.clip_norm);
        self.learner.network = self.learner.optimizer.step(LR, network.clone(), gradients)?;
        Ok((f64::from(read[0]), kept))
    }

    fn tensors(&self) -> Result<(Tensor<5>, Targets)> {
        let features = input(&self.batch, &self.spec, &self.input, &self.device)?;
        let [x, y, z] = self.spec.counts;
        let classes = self.losses.classes();
        let targets = Targets::new(&self.batch.targets, [1, z, x, y], classes, self.spec.ignore_id, &self.device);
        Ok((features, targets))
    }

    /// What every choice would take, and to recompute everything, from one step.
    fn profile(&self) -> Result<(Profile, Vec<Mode>)> {
        let all = vec![Mode::Recompute; self.trace(&[])?.segments.len()];
        let before = gpu::memory_use(&self.device).unwrap_or_default().in_use_bytes;
        let began = Instant::now();
        let trace = self.trace(&all)?;
        let ms = began.elapsed().as_secs_f64() * 1e3;
        Ok((Profile::new(&trace, before, before, ms)?, all))
    }

    /// Forward and backward with times and bytes of every segment.
    fn trace(&self, modes: &[Mode]) -> Result<Trace> {
        let (features, targets) = self.tensors()?;
        let (by_planes, precision) = (self.losses.by_planes(), self.learner.precision());
        let passes = Passes { modes, by_planes, precision, traced: true, ..Passes::default() };
        let learned = self
            .learner
            .network
            .learn(features, &passes, &mut |_, logits, range| self.losses.of_planes(logits, &targets, range, 1))?;
        learned.trace.ok_or_else(|| Error::Failed("a traced step without a trace".into()))
    }
}

/// A tenth of the voxels with a point in the middle; nine tenths of class 0, the rest of any.
fn sample([nx, ny, nz]: [usize; 3], classes: usize) -> Batch {
    let hash = |i: usize| (i as u32).wrapping_mul(2_654_435_761) >> 16;
    let mut batch = Batch::new();
    for i in (0..nx * ny * nz).filter(|i| hash(*i) % 10 == 0) {
        let place = [i / ny % nx, i % ny, i / (nx * ny)];
        batch.positions.push(place.map(|n| n as f32 + 0.5));
    }
    let label = |i: usize| if hash(i + 1) % 10 == 0 { hash(i + 2) as usize % classes } else { 0 };
    batch.targets = (0..nx * ny * nz).map(|i| label(i) as u8).collect();
    batch.offsets.push(batch.positions.len());
    batch.intensity = None;
    batch.ids.push("bench".into());
    batch
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;

    fn scene() -> Scene {
        let bench = MemoryBench {
            network: "lmscnet-ss".into(),
            counts: [16, 16, 8],
            classes: 5,
            precision: Precision::F32,
            pairs: 1,
        };
        Scene::new(&bench, &Device::flex()).unwrap()
    }

    /// Gradients of every parameter, one after another.
    fn values(network: &Network, gradients: &burn::optim::GradientsParams) -> Vec<Vec<f32>> {
        struct Values<'a>(&'a burn::optim::GradientsParams, Vec<Vec<f32>>);
        impl burn::module::ModuleVisitor for Values<'_> {
            fn visit_float<const D: usize>(&mut self, param: &burn::module::Param<Tensor<D>>) {
                if let Some(gradient) = self.0.get::<D>(param.id) {
                    self.1.push(gradient.try_into_data().unwrap().try_to_vec::<f32>().unwrap());
                }
            }
        }
        let mut values = Values(gradients, Vec::new());
        burn::module::Module::visit(network, &mut values);
        values.1
    }

    /// The baseline is the same network and the same loss: what differs is rounding.
    #[test]
    fn stock_has_the_loss_and_the_gradients_of_the_tape() {
        let scene = scene();
        let (features, targets) = scene.tensors().unwrap();
        let passes = Passes { by_planes: true, ..Passes::default() };
        let network = &scene.learner.network;
        let learned = network
            .learn(features.clone(), &passes, &mut |_, logits, planes| {
                scene.losses.of_planes(logits, &targets, planes, 1)
            })
            .unwrap();
        let expected = values(network, &learned.gradients);
        let expected_loss = f64::from(learned.loss.into_scalar::<f32>());
        for loss in [stock::Loss::Burns, stock::Loss::Ours] {
            let (value, gradients, _) = stock::learn(
                network,
                features.clone(),
                &targets,
                &scene.losses,
                &scene.class_weights,
                loss,
                &scene.device,
            )
            .unwrap();
            let value = f64::from(value.into_scalar::<f32>());
            assert!((value - expected_loss).abs() < 1e-5 * expected_loss, "{loss:?}: {value} and {expected_loss}");
            let found = values(network, &gradients);
            assert_eq!(found.len(), expected.len());
            for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let largest = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
                let apart = found.iter().zip(expected).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
                assert!(apart <= 1e-4 * largest + 1e-7, "{loss:?}, parameter {place}: {apart} of {largest}");
            }
        }
    }

    /// 128x128x16 voxels, so that a plane of f32 is 64 KiB: 88 volumes of 1 MiB in the head, of which one in f32 is 16
    /// planes, and 3 x 20 for the loss.
    #[test]
    fn the_hand_sum_counts_the_head_and_the_loss() {
        let rows = stock_sum([128, 128, 16], 20);
        let of =
            |needed: &str| rows.iter().filter(|row| row.needed_by.contains(needed)).map(|row| row.bytes).sum::<u64>();
        let mebibyte = 1 << 20;
        assert_eq!(of("3 branches"), (8 + 3 * 24) * mebibyte);
        assert_eq!(of("conv_classes"), 8 * mebibyte);
        assert_eq!(of("backward") + of("exponential"), 3 * 20 * mebibyte);
        // Bits: a 32nd of 5 x 8 volumes.
        assert_eq!(of("branches and sum"), 40 * mebibyte / 32);
    }

    #[test]
    fn another_network_and_no_counting_are_refused() {
        let bench = MemoryBench {
            network: "sscnet".into(),
            counts: [16, 16, 8],
            classes: 5,
            precision: Precision::F32,
            pairs: 1,
        };
        let error = memory(&bench, &Device::flex(), &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("sscnet"), "{error}");
    }
}
