//! What can be typed. Each command's flags stand with the command.

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands::{bench, data, eval, gpus, import, predict, presets, resume, train};
use crate::print::Output;

/// Trains networks that turn point clouds into 3D semantic occupancy, on any GPU, inside its memory.
#[derive(Parser)]
#[command(name = "occam", version, max_term_width = 110, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 the run failed; 2 wrong usage or input; 3 does not fit in memory;
130 stopped by Ctrl-C; 143 stopped by SIGTERM, or 75 where that saved a run to resume.

Start here: occam train --no-gui";

#[derive(Subcommand)]
pub enum Command {
    /// Train a network on a data set, or on the built-in demo world
    Train(Box<train::TrainArgs>),
    /// Go on with a run that was stopped
    Resume(resume::ResumeArgs),
    /// Score a trained model on a data set
    Eval(eval::EvalArgs),
    /// Turn scans into occupancy grids with a trained model
    Predict(predict::PredictArgs),
    /// Make a run of weights that PyTorch trained
    Import(import::ImportArgs),
    /// Look into data files and folders
    #[command(subcommand)]
    Data(DataCommand),
    /// Time the operations that training is made of
    #[command(subcommand)]
    Bench(BenchCommand),
    /// List the presets that training can start from
    Presets,
    /// List the devices that training can run on
    Gpus,
}

#[derive(Subcommand)]
pub enum DataCommand {
    /// Say what a file or a folder of scans holds
    Info(data::InfoArgs),
    /// Look for contradictions between ground truth and the benchmark it is said to be of
    Check(data::check::CheckArgs),
    /// Write scans of the demo world with poses, or one dense cloud, to practise with
    Demo(data::DemoArgs),
    /// Make SemanticKITTI's voxel targets from labelled scans
    Build(data::build::BuildArgs),
}

#[derive(Subcommand)]
pub enum BenchCommand {
    /// Convolutions, matrix products, norms and pooling at the shapes of networks, beside Burn's own on the same device
    Kernels(bench::KernelsArgs),
    /// Peak memory and time of training steps, by what is recomputed, beside stock autodiff
    Memory(bench::memory::MemoryArgs),
    /// What the coordinates of a scan lose in f16 and bf16, by distance
    Precision(bench::precision::PrecisionArgs),
}

/// How the program talks; every command takes these.
#[derive(Args, Clone, Copy)]
pub struct OutputArgs {
    /// Lines for people, or one JSON object per line on stdout and nothing else there
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT", display_order = 100)]
    pub log_format: LogFormat,
    /// Only results, warnings and errors
    #[arg(short, long, global = true, display_order = 100)]
    pub quiet: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl Cli {
    pub fn output(&self) -> Output {
        Output::new(self.output.log_format == LogFormat::Json, self.output.quiet)
    }
}

/// Runs the command; its value is the program's exit code.
pub fn run(cli: Cli, out: Output) -> anyhow::Result<u8> {
    match cli.command {
        None => {
            use clap::CommandFactory;
            out.result(Cli::command().render_help())?;
            Ok(0)
        }
        Some(Command::Train(args)) => train::run(&args, out),
        Some(Command::Resume(args)) => resume::run(&args, out),
        Some(Command::Eval(args)) => eval::run(&args, out),
        Some(Command::Predict(args)) => predict::run(&args, out),
        Some(Command::Data(DataCommand::Info(args))) => data::run(&args, out),
        Some(Command::Data(DataCommand::Check(args))) => data::check::run(&args, out),
        Some(Command::Data(DataCommand::Demo(args))) => data::demo(&args, out),
        Some(Command::Import(args)) => import::run(&args, out),
        Some(Command::Data(DataCommand::Build(args))) => data::build::run(&args, out),
        Some(Command::Bench(BenchCommand::Kernels(args))) => bench::kernels(&args, out),
        Some(Command::Bench(BenchCommand::Memory(args))) => bench::memory::run(&args, out),
        Some(Command::Bench(BenchCommand::Precision(args))) => bench::precision::run(&args, out),
        Some(Command::Presets) => presets::run(out),
        Some(Command::Gpus) => gpus::run(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
