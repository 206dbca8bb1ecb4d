//! `occam train`: a session with a printer as its face.

use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use occam_engine::Error;
use occam_engine::data::{self, Layout};
use occam_engine::scene::GridSpec;
use occam_engine::scene::formats::benchmarks::Benchmark;
use occam_engine::session::{Command, Event, Session, StepRecord};
use occam_engine::train::TrainConfig;

use super::plan;
use crate::fail;
use crate::parse;
use crate::print::{Output, TrainPrinter};
use crate::signals::Signals;

/// How often the printer looks at the run.
const POLL: Duration = Duration::from_millis(100);

#[derive(Args)]
pub struct TrainArgs {
    /// Folder of scans with poses, one dense cloud, a folder of SemanticKITTI or of CarlaSC, or pairs of a scan and the
    /// ground truth of a benchmark (NAME.bin beside NAME.npz); without it, the demo world
    data: Option<PathBuf>,

    /// Run without a window. There is no window yet, so this only silences the line that says so
    #[arg(long)]
    no_gui: bool,
    /// Starting point of all settings; `occam presets` lists them [default: by the data: own-scans for scans without
    /// labels, semantic-kitti-small for SemanticKITTI, carla-sc for CarlaSC, else demo, for pairs of other benchmarks with
    /// their grid]. Decides most of the memory
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Weights to start from: .safetensors, .pt or .pth, or the folder of a run [default: none, random weights]. Costs no
    /// memory
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// TOML file of settings on top of the preset, such as a run's config.toml [default: none]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting on top of preset and file, such as optim.weight_decay=0.05; repeatable [default: none]
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse::setting)]
    sets: Vec<(String, String)>,

    /// auto, cpu, or a GPU's name or index from `occam gpus` [default: auto]. Decides whose memory is used
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Samples loaded together [default: the preset's]. Memory of activations grows in proportion; memory.micro_batch sends
    /// fewer through the network at a time
    #[arg(long, value_name = "N", value_parser = parse::at_least_one)]
    batch: Option<usize>,
    /// Batches per optimizer step, to train as with a larger one [default: the preset's]. Each waits in main memory
    #[arg(long, value_name = "N", value_parser = parse::at_least_one)]
    accumulate: Option<usize>,
    /// Threads that prepare samples [default: the preset's]. Each holds a few samples in main memory
    #[arg(long, value_name = "N", value_parser = parse::at_least_one)]
    workers: Option<usize>,
    /// Optimizer steps to run [default: the preset's]. No effect on memory
    #[arg(long, value_name = "N", value_parser = parse::at_least_one, conflicts_with = "epochs")]
    steps: Option<usize>,
    /// Passes over the training data, instead of --steps [default: the preset's]. No effect on memory
    #[arg(long, value_name = "N", value_parser = parse::at_least_one)]
    epochs: Option<usize>,
    /// Peak learning rate [default: the preset's]. No effect on memory
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    lr: Option<f64>,
    /// Seed of weights, order, augmentation and demo worlds [default: the preset's]. No effect on memory
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Voxels along x, y, z, such as 128x128x16 [default: the preset's]. Memory grows with their product
    #[arg(long, value_name = "XxYxZ", value_parser = parse::counts)]
    grid: Option<[usize; 3]>,
    /// Edge of a voxel in metres [default: the preset's]. No effect on memory: the grid covers more or less space
    #[arg(long, value_name = "M", value_parser = parse::metres)]
    voxel: Option<f32>,
    /// Format of the values inside the network: f32; f16, which halves their memory and needs half precision on a GPU; bf16,
    /// which halves what waits between segments; or auto, f32 unless no plan in f32 fits --vram [default: f32]. Weights stay f32
    #[arg(long, value_enum, value_name = "FORMAT")]
    precision: Option<Precision>,

    /// Most memory the run may take: a size such as 4GiB, or auto for what is free when the run starts (on a discrete GPU all
    /// of its memory, whatever others hold of it), less a tenth [default: none, no limit]. The run plans what it recomputes to
    /// stay below, splits batches if it must, and ends, saved, with exit code 3 where nothing fits. Main memory of the whole
    /// program on the CPU, the GPU's own on a GPU
    #[arg(long, value_name = "SIZE", value_parser = parse::budget)]
    vram: Option<String>,
    /// What the backward pass computes again instead of keeping it: auto (plan within a budget, else none), none, every-2 (or
    /// another number), sqrt, topology, plan [default: the preset's]. Results are equal; memory falls, time rises
    #[arg(long, value_name = "STRATEGY")]
    recompute: Option<String>,
    /// Say what every strategy takes, predicted and measured on one batch, and stop. No run is made
    #[arg(long)]
    plan: bool,
    /// With --plan: also draw what is in use over a step, and peaks against times, to this PNG file
    #[arg(long, value_name = "FILE", requires = "plan")]
    plan_picture: Option<PathBuf>,
    /// With --plan: predict the run's grid from this smaller one of the same height and from a half of it, with made-up
    /// points, for a grid that does not fit this machine. Bytes and times are taken to grow in proportion to the voxels
    #[arg(long, value_name = "XxYxZ", value_parser = parse::counts, requires = "plan")]
    plan_from: Option<[usize; 3]>,

    /// Name of the run's folder [default: the preset and a number]. No effect on memory
    #[arg(long)]
    name: Option<String>,
    /// Folder that gets the run's folder [default: runs]. No effect on memory
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Precision {
    Auto,
    F32,
    F16,
    Bf16,
}

impl TrainArgs {
    /// Name of the preset, and the grid that takes the place of the preset's.
    fn preset(&self) -> anyhow::Result<(&str, Option<GridSpec>)> {
        let path = match (&self.preset, &self.data) {
            (Some(preset), _) => return Ok((preset, None)),
            (None, None) => return Ok(("demo", None)),
            (None, Some(path)) => path,
        };
        // Voxel files from elsewhere are the labels of scans that have none.
        if self.sets.iter().any(|(key, _)| key == "data.voxels") {
            return Ok(("semantic-kitti-small", None));
        }
        Ok(match data::layout(path)? {
            Layout::Scans(_) | Layout::Cloud(_) => ("own-scans", None),
            Layout::SemanticKitti => ("semantic-kitti-small", None),
            Layout::Pairs(pairs) => match pairs.benchmark() {
                Benchmark::CarlaSc => ("carla-sc", None),
                Benchmark::SemanticKitti => ("semantic-kitti", None),
                other => ("demo", Some(other.spec())),
            },
        })
    }

    /// The effective configuration: defaults < preset < file < `--set` < flags.
    fn config(&self) -> anyhow::Result<TrainConfig> {
        let (preset, grid) = self.preset()?;
        let mut config = TrainConfig::unchecked(preset, grid.as_ref(), self.config.as_deref(), &self.sets)?;
        if let Some(data) = &self.data {
            config.data.path = Some(data.clone());
        }
        if let Some(weights) = &self.weights {
            config.model.weights = Some(weights.clone());
        }
        set(&mut config.device, self.device.as_ref());
        set(&mut config.steps.batch, self.batch.as_ref());
        set(&mut config.steps.accumulate, self.accumulate.as_ref());
        set(&mut config.data.workers, self.workers.as_ref());
        set(&mut config.steps.steps, self.steps.as_ref());
        if let Some(epochs) = self.epochs {
            config.steps.epochs = epochs;
            config.steps.steps = 0;
        }
        set(&mut config.optim.lr, self.lr.as_ref());
        set(&mut config.seed, self.seed.as_ref());
        if let Some(precision) = self.precision {
            let name = precision.to_possible_value();
            config.precision.format = name.map_or_else(String::new, |value| value.get_name().to_owned());
        }
        set(&mut config.name, self.name.as_ref());
        set(&mut config.runs, self.runs.as_ref());
        set(&mut config.memory.budget, self.vram.as_ref());
        set(&mut config.memory.recompute, self.recompute.as_ref());
        self.resize_grid(&mut config);
        config.check()?;
        Ok(config)
    }

    /// The grid keeps its floor and where the sensor stands in it: at the same share of its length and width, unless its
    /// corner was set.
    fn resize_grid(&self, config: &mut TrainConfig) {
        if self.grid.is_none() && self.voxel.is_none() {
            return;
        }
        let old = config.grid;
        let new = &mut config.grid;
        new.counts = self.grid.unwrap_or(old.counts);
        new.voxel_size_m = self.voxel.map_or(old.voxel_size_m, |edge| [edge; 3]);
        if self.sets.iter().any(|(key, _)| key == "grid.origin_m") {
            return;
        }
        for axis in 0..2 {
            let before = old.voxel_size_m[axis] * old.counts[axis] as f32;
            let after = new.voxel_size_m[axis] * new.counts[axis] as f32;
            if before > 0.0 {
                new.origin_m[axis] = old.origin_m[axis] * (after / before);
            }
        }
    }
}

fn set<T: Clone>(place: &mut T, value: Option<&T>) {
    if let Some(value) = value {
        place.clone_from(value);
    }
}

pub fn run(args: &TrainArgs, out: Output) -> anyhow::Result<u8> {
    let config = args.config()?;
    if args.plan {
        return plan::run(&config, args.plan_from, args.plan_picture.as_deref(), out);
    }
    if !args.no_gui {
        out.note("the window is not there yet; training runs without it, as with --no-gui");
    }
    let signals = Signals::install().context("cannot listen for Ctrl-C")?;
    let by_data = args.preset.is_none() && args.data.is_some();
    let printer = TrainPrinter::new(out, &config).chosen_by_data(by_data);
    watch(&Session::start(config)?, printer, &signals, out)
}

/// Shows a run until it ends; its value is the program's exit code. Signals stop the run.
pub fn watch(session: &Session, mut printer: TrainPrinter, signals: &Signals, out: Output) -> anyhow::Result<u8> {
    let mut last_step = 0;
    let mut stopping = false;
    loop {
        let event = session.events.recv_timeout(POLL);
        for record in new_steps(session, &mut last_step) {
            printer.step(&record);
        }
        if !stopping && signals.stop_asked() {
            printer.stopping();
            // A trainer that is gone already has sent its last event.
            let _ = session.commands.send(Command::Stop);
            stopping = true;
        }
        match event {
            Ok(event) => {
                printer.event(&event);
                match event {
                    Event::Failed(Error::Interrupted) => {
                        out.note(printer.nothing_saved());
                        return Ok(signals.exit_code());
                    }
                    Event::Failed(error) => return Err(error.into()),
                    Event::Done(summary) if stopping && summary.interrupted => return Ok(signals.saved_exit_code()),
                    Event::Done(_) => return Ok(0),
                    _ => {}
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                printer.clear();
                return Err(fail::bug());
            }
        }
    }
}

/// Steps that were taken since the last look, oldest first.
fn new_steps(session: &Session, last: &mut usize) -> Vec<StepRecord> {
    let history = session.history.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let from = history.steps.partition_point(|step| step.step <= *last);
    let new = history.steps[from..].to_vec();
    if let Some(step) = new.last() {
        *last = step.step;
    }
    new
}
