//! `occam bench`: how fast the operations are that training is made of, beside Burn's own.

pub mod memory;
pub mod precision;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use occam_engine::bench::{self, AUTOTUNE, About, BURN_VERSION, KIND, Precision, Report};
use occam_engine::gpu::{self, DeviceChoice, Opened};
use occam_engine::{Error, Progress};

use crate::fail::usage;
use crate::print::{Output, bench as print, human};
use crate::signals::Signals;

#[derive(Args)]
pub struct KernelsArgs {
    /// auto, cpu, or a GPU's name or index from `occam gpus`
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
    /// Only cases whose names hold every one of these words, such as "lmscnet conv3d weight"
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    filter: String,
    /// What tensors hold
    #[arg(long, value_enum, default_value_t, value_name = "P")]
    precision: PrecisionChoice,
    /// Time for each case, ours and Burn's together; each runs at least once
    #[arg(long, default_value_t = 0.3, value_name = "S", value_parser = seconds)]
    seconds: f64,
    /// Also the shapes that take long: 256x256x32 voxels and every layer of the U-Net
    #[arg(long)]
    all: bool,
    /// Also write everything that was found to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Compare two files of --json instead of running anything
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"],
          conflicts_with_all = ["device", "filter", "precision", "seconds", "all", "json"])]
    compare: Option<Vec<PathBuf>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum PrecisionChoice {
    #[default]
    F32,
    F16,
    Both,
}

impl PrecisionChoice {
    fn precisions(self) -> &'static [Precision] {
        match self {
            Self::F32 => &[Precision::F32],
            Self::F16 => &[Precision::F16],
            Self::Both => &[Precision::F32, Precision::F16],
        }
    }
}

/// How often a log hears of the work; a terminal has a bar.
const SAY_EVERY: Duration = Duration::from_secs(10);

pub fn kernels(args: &KernelsArgs, out: Output) -> anyhow::Result<u8> {
    if let Some([first, second]) = args.compare.as_deref() {
        return compare(first, second, out);
    }
    let signals = Signals::install()?;
    let cases = bench::select(&args.filter, args.all)?;
    if let Some(path) = &args.json {
        check_folder(path)?;
    }
    let opened = gpu::open(&args.device)?;
    if let Some(notice) = &opened.notice {
        out.note(notice);
    }
    let precisions = args.precision.precisions();
    let mut report =
        Report { kind: KIND.into(), about: about(&opened, args.seconds), stopped: false, cases: Vec::new() };
    // A reader that left is told by the lines at the end.
    let _ = print::header(&report.about, cases.len() * precisions.len(), out);

    let bar = out.bar(cases.len() * precisions.len(), "{msg}");
    let mut said = Instant::now();
    let mut progress = |Progress { what, done, total }: Progress<'_>| {
        if let Some(bar) = &bar {
            bar.set_position(done as u64);
            bar.set_message(what.to_owned());
        } else if said.elapsed() >= SAY_EVERY {
            said = Instant::now();
            let _ = out.line(format!("{done}/{total} {what}"));
        }
        if signals.stop_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let began = Instant::now();
    let outcome = bench::kernels(&cases, &opened.device, precisions, args.seconds, &mut progress, &mut |row| {
        let _ = out.json(&print::row_json(&row));
        report.cases.push(row);
        Ok(())
    });
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    report.stopped = matches!(outcome, Err(Error::Interrupted));
    // What was measured is written and printed, whatever ended the rest; nothing takes the place of an older file.
    let written = match &args.json {
        Some(path) if !report.cases.is_empty() => report.write(path),
        _ => Ok(()),
    };
    let printed = print::report(&report, opened.adapter.is_some(), out);
    if !report.stopped {
        outcome?;
    }
    written?;
    printed?;
    if let Some(path) = args.json.as_ref().filter(|_| !report.cases.is_empty()) {
        out.line(format!("file    {}", path.display()))?;
    }
    out.line(format!("time    {}", human::duration(began.elapsed().as_secs_f64())))?;
    if report.stopped {
        out.note(format!("stopped after {} of {} cases", report.cases.len(), cases.len() * precisions.len()));
        return Ok(signals.exit_code());
    }
    Ok(0)
}

fn about(opened: &Opened, seconds_per_case: f64) -> About {
    About {
        occam: env!("CARGO_PKG_VERSION").into(),
        burn: BURN_VERSION.into(),
        device: opened.label.clone(),
        autotune: AUTOTUNE,
        seconds_per_case,
    }
}

fn compare(first: &Path, second: &Path, out: Output) -> anyhow::Result<u8> {
    let comparison = bench::compare(&Report::read(first)?, &Report::read(second)?);
    for warning in &comparison.warnings {
        Output::warning(warning);
    }
    print::comparison(&comparison, [first, second], out)?;
    Ok(0)
}

/// A file that cannot be written is told before minutes are spent on its content.
fn check_folder(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() {
        return Err(usage(format!("--json {}: found a folder, expected a file to write", path.display())));
    }
    if folder.is_dir() { Ok(()) } else { Err(usage(format!("--json {}: there is no such folder", path.display()))) }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..=3600.0).contains(&value) => Ok(value),
        _ => Err(format!("found {text:?}, expected seconds from 0 to 3600")),
    }
}
