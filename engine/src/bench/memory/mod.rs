//! Peak memory and time of whole training steps, by what the tape recomputes, beside stock autodiff of the same network.
//!
//! [`memory`] takes one step of every side in turn, and again, so that whatever else the machine does meets all of them;
//! ratios are of the same turn. Peaks are the allocator's ([`gpu::step_peak`]).

mod report;
mod stock;

use std::time::Instant;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use occam_scene::GridSpec;

use crate::data::Batch;
use crate::losses::{ClassWeights, LossConfig, Losses, Targets, class_weights};
use crate::models::{Network, Passes};
use crate::tape::{Mode, Trace};
use crate::train::{InputConfig, Learner, OptimConfig, Planning, TrainConfig, clip, input, squared_norm};
use crate::{Error, Progress, ProgressFn, Result, gpu};

pub use report::{KIND, MemoryReport, SegmentRow, SideRow, Spread};

/// What is measured.
#[derive(Debug, Clone)]
pub struct MemoryBench {
    /// One of [`Network::NAMES`]; stock is written for `lmscnet-ss`.
    pub network: String,
    /// Voxels along x, y, z.
    pub counts: [usize; 3],
    pub classes: usize,
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
    if gpu::memory_use(device).is_none() {
        return Err(Error::Usage("bench memory: nobody counts this program's memory".into()));
    }
    let mut scene = Scene::new(bench, device)?;
    let segments = scene.trace(&[])?.segments;
    let mut sides = sides(&segments.iter().map(|segment| segment.name.as_str()).collect::<Vec<_>>());
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
    let all: Vec<Mode> = segments.iter().map(|_| Mode::Recompute).collect();
    let traces = [scene.trace(&[])?, scene.trace(&all)?];
    Ok(report::report(bench, &sides, &traces, &scene.learner.network))
}

/// Stock, everything kept, and what the tape can recompute.
fn sides(segments: &[&str]) -> Vec<Side> {
    let recompute = |which: &dyn Fn(usize, &str) -> bool| -> Way {
        let mode = |(i, name): (usize, &&str)| if which(i, name) { Mode::Recompute } else { Mode::Keep };
        Way::Tape(segments.iter().enumerate().map(mode).collect())
    };
    vec![
        Side::new("stock", Way::Stock(stock::Loss::Burns)),
        Side::new("stock, fused loss", Way::Stock(stock::Loss::Ours)),
        Side::new("none", Way::Tape(Vec::new())),
        Side::new("head", recompute(&|_, name| name.starts_with("head"))),
        Side::new("all", recompute(&|_, _| true)),
    ]
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
        let input = InputConfig { visibility: false, intensity: false, height: false, ..config.input };
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
        let learner = Learner::new(network, &config, device, losses.clone());
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
                self.learner.step(std::slice::from_ref(&self.batch), LR, &mut || Ok(()))?.loss
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

    /// Forward and backward with times and bytes of every segment.
    fn trace(&self, modes: &[Mode]) -> Result<Trace> {
        let (features, targets) = self.tensors()?;
        let passes = Passes { modes, by_planes: self.losses.by_planes(), traced: true, ..Passes::default() };
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

/// Bytes of all parameters, and of those that learn.
fn parameter_bytes(network: &Network) -> (u64, u64) {
    struct Bytes(u64, u64);
    impl ModuleVisitor for Bytes {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val();
            let bytes = (value.shape().num_elements() * value.dtype().size()) as u64;
            self.0 += bytes;
            self.1 += u64::from(value.is_require_grad()) * bytes;
        }
    }
    let mut bytes = Bytes(0, 0);
    network.visit(&mut bytes);
    (bytes.0, bytes.1)
}
