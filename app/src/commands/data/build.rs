//! `occam data build`: the voxel files of the completion task from labelled scans.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use occam_engine::data::{self, BuildOptions, BuildReport};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::scene::completion::TargetRules;
use occam_engine::{Error, Progress};
use serde_json::json;

use crate::fail::usage;
use crate::parse;
use crate::print::{Output, human, program, shell_word};
use crate::signals::Signals;

#[derive(Args)]
pub struct BuildArgs {
    /// Folder in SemanticKITTI's layout, with labels and poses
    data: PathBuf,

    /// Folder that gets sequences/NN/voxels [default: voxels/ beside the scans]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Scans before each anchor that its target is made from
    #[arg(long, value_name = "N", default_value_t = 0)]
    prior: usize,
    /// Scans after each anchor that its target is made from; near the end of a sequence there are fewer
    #[arg(long, value_name = "N", default_value_t = 70)]
    future: usize,
    /// Points nearer to their own sensor do not count
    #[arg(long, value_name = "M", default_value_t = 2.5)]
    min_range: f64,
    /// Points farther from their own sensor do not count
    #[arg(long, value_name = "M", default_value_t = 70.0)]
    max_range: f64,
    /// Every how many scans gets a target
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse::at_least_one)]
    stride: usize,
    /// Things that move count only in the anchor's own scan; the published targets smear them along their way
    #[arg(long)]
    static_only: bool,
    /// Sequences to build, such as 00; repeatable or with commas [default: all that have labels]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    sequence: Vec<String>,
    /// What casts the rays that tell what can be seen: cpu, auto, or a GPU's name or index from `occam gpus`. The voxels
    /// are the same
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    device: DeviceChoice,
    /// Build every anchor anew, over voxels that are there, the published ones too
    #[arg(long)]
    force: bool,
}

/// How often a log hears of the work; a terminal has a bar.
const SAY_EVERY: Duration = Duration::from_secs(10);

pub fn run(args: &BuildArgs, out: Output) -> anyhow::Result<u8> {
    let rules = TargetRules {
        prior_scans: args.prior,
        future_scans: args.future,
        min_range_m: args.min_range,
        max_range_m: args.max_range,
        static_only: args.static_only,
    };
    let metres = 0.0..f64::INFINITY;
    if !(metres.contains(&args.min_range) && args.max_range > args.min_range) {
        return Err(usage(format!(
            "--min-range {} --max-range {}: expected two distances in metres, the first 0 or more and the second greater",
            args.min_range, args.max_range
        )));
    }
    let signals = Signals::install()?;
    let options = BuildOptions {
        data: args.data.clone(),
        output: args.output.clone(),
        rules,
        stride: args.stride,
        sequences: args.sequence.clone(),
        force: args.force,
    };
    let bar = out.bar(0, "anchors");
    let began = Instant::now();
    let mut said = began;
    let mut progress = |Progress { done, total, .. }: Progress<'_>| {
        if let Some(bar) = &bar {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        } else if done > 0 && said.elapsed() >= SAY_EVERY {
            said = Instant::now();
            let left = began.elapsed().as_secs_f64() / done as f64 * total.saturating_sub(done) as f64;
            // A reader that left is told by the lines at the end.
            let _ = out.line(format!("{done}/{total} anchors  ETA {}", human::duration(left)));
        }
        if signals.stop_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    // On the CPU the plain function is as good as the tensors around it.
    let device = if args.device == DeviceChoice::Cpu { None } else { Some(gpu::open(&args.device)?) };
    if let Some(notice) = device.as_ref().and_then(|device| device.notice.as_ref()) {
        out.note(notice);
    }
    let device = device.filter(|device| device.adapter.is_some()).map(|device| device.device);
    let report = data::build_targets(&options, device.as_ref(), &mut progress);
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    match report {
        Err(Error::Interrupted) => {
            out.note(if args.force {
                "stopped between two anchors; the folder holds voxels of two kinds, and with --force the same command begins \
                 anew"
            } else {
                "stopped between two anchors; the same command goes on from there"
            });
            Ok(signals.exit_code())
        }
        report => {
            tell(&report?, args, out)?;
            Ok(0)
        }
    }
}

fn tell(report: &BuildReport, args: &BuildArgs, out: Output) -> anyhow::Result<()> {
    let built: usize = report.sequences.iter().map(|sequence| sequence.built).sum();
    let per_anchor_s = (built > 0).then(|| report.seconds / built as f64);
    out.json(&json!({
        "event": "built",
        "sequences": report.sequences.iter().map(|sequence| json!({
            "sequence": sequence.name,
            "folder": sequence.folder.to_string_lossy(),
            "built": sequence.built,
            "kept": sequence.kept,
            "short": sequence.short,
        })).collect::<Vec<_>>(),
        "notes": report.notes,
        "seconds": report.seconds,
        "seconds_per_anchor": per_anchor_s,
    }))?;
    for note in &report.notes {
        out.note(note);
    }
    for sequence in &report.sequences {
        out.line(format!(
            "{}: {} built, {} there before, in {}",
            sequence.name,
            human::counted(sequence.built, "anchor"),
            human::count(sequence.kept),
            sequence.folder.display()
        ))?;
        if sequence.short > 0 {
            let around = if args.prior > 0 {
                format!("{} before and {}", args.prior, args.future)
            } else {
                args.future.to_string()
            };
            out.line(format!(
                "    near an end of the sequence, with fewer scans than the {around} after it: {}",
                human::counted(sequence.short, "anchor"),
            ))?;
        }
    }
    if let Some(seconds) = per_anchor_s {
        out.line(format!("time  {} an anchor, {} in all", human::duration(seconds), human::duration(report.seconds)))?;
    }
    let data = shell_word(&args.data.to_string_lossy());
    let voxels =
        args.output.as_ref().map(|output| format!(" --set data.voxels={}", shell_word(&output.to_string_lossy())));
    let train = format!("{} train {data}{} --preset semantic-kitti", program(), voxels.unwrap_or_default());
    out.line(format!("next  {train} (with a GPU)\n      {train}-small (without)"))?;
    Ok(())
}
