//! `occam bench memory`: what a training step needs, by what it recomputes, beside stock autodiff.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use occam_engine::bench::memory::{MemoryBench, MemoryReport, SegmentRow, SideRow, Spread, memory};
use occam_engine::gpu::{self, DeviceChoice, MemoryKinds};
use occam_engine::models::Network;
use occam_engine::tape::Precision;
use occam_engine::{Error, Progress};

use super::{SAY_EVERY, check_folder};
use crate::parse;
use crate::print::{Output, Table, human};
use crate::signals::Signals;

#[derive(Args)]
pub struct MemoryArgs {
    /// auto, cpu, or a GPU's name or index from `occam gpus`
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    device: DeviceChoice,
    /// The network; stock autodiff is written for lmscnet-ss
    #[arg(long, default_value = "lmscnet-ss", value_name = "NAME")]
    network: String,
    /// Voxels along x, y and z
    #[arg(long, default_value = "128x128x16", value_name = "XxYxZ", value_parser = parse::counts)]
    grid: [usize; 3],
    /// Classes, free space included
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u8).range(2..))]
    classes: u8,
    /// What the tape keeps between segments: f32, f16 or bf16; stock is f32
    #[arg(long, default_value = "f32", value_name = "P", value_parser = precision)]
    precision: Precision,
    /// Turns, each with a step of every side
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pairs: u16,
    /// Also write everything that was found to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub fn run(args: &MemoryArgs, out: Output) -> anyhow::Result<u8> {
    let signals = Signals::install()?;
    if let Some(path) = &args.json {
        check_folder(path)?;
    }
    Network::check_name(&args.network)?;
    let opened = gpu::open(&args.device)?;
    if let Some(notice) = &opened.notice {
        out.note(notice);
    }
    let bench = MemoryBench {
        network: args.network.clone(),
        counts: args.grid,
        classes: usize::from(args.classes),
        precision: args.precision,
        pairs: usize::from(args.pairs),
    };
    out.line(format!("device  {}", opened.label))?;
    out.line(format!(
        "step    {} in {}, {} voxels, {} classes, batch 1, weighted cross-entropy; {} turns",
        bench.network,
        bench.precision.name(),
        human::counts(bench.counts),
        bench.classes,
        bench.pairs
    ))?;
    let bar = out.bar(bench.pairs + 1, "{msg}");
    let mut said = Instant::now();
    let mut progress = |Progress { what, done, total }: Progress<'_>| {
        if let Some(bar) = &bar {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message(what.to_owned());
        } else if said.elapsed() >= SAY_EVERY {
            said = Instant::now();
            let _ = out.line(format!("{done}/{total} {what}"));
        }
        if signals.stop_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let outcome = memory(&bench, &opened.device, &mut progress);
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let report = match outcome {
        Err(Error::Interrupted) => {
            out.note("stopped before every side had its steps");
            return Ok(signals.exit_code());
        }
        other => other?,
    };
    print(&report, out)?;
    if let Some(path) = &args.json {
        report.write(path)?;
        out.line(format!("file    {}", path.display()))?;
    }
    Ok(0)
}

fn print(report: &MemoryReport, out: Output) -> anyhow::Result<()> {
    out.json(&serde_json::to_value(report)?)?;
    let mut table = Table::new([
        "side",
        "again",
        "s/step",
        "time / stock",
        "time / none",
        "step MiB",
        "/ stock",
        "/ none",
        "total MiB",
        "/ stock",
        "reserved MiB",
    ]);
    for side in &report.sides {
        table.row(side_cells(side));
    }
    out.result(format!("\n{table}"))?;
    out.result("step: the most in use above what was there before it; total: with weights, optimizer and data")?;
    let mut table = Table::new([
        "side",
        "weights",
        "optimizer",
        "data",
        "activations",
        "gradients",
        "workspace",
        "cache",
        "most in use at",
    ])
    .left(&[8]);
    for side in &report.sides {
        if let Some(MemoryKinds { weights, gradients, optimizer, activations, workspace, cache, data }) = side.kinds {
            let kinds = [weights, optimizer, data, activations, gradients, workspace, cache].map(mebibytes);
            let at = side.peak_at.clone().unwrap_or_default();
            table.row(std::iter::once(side.name.clone()).chain(kinds).chain([at]));
        }
    }
    out.result(format!("\nMiB by kind when most was in use\n{table}"))?;
    let mut table = Table::new(["stock by hand", "needed by", "shape", "MiB"]).left(&[1, 2]);
    for kept in &report.stock_sum {
        table.row([kept.what.clone(), kept.needed_by.clone(), kept.shape.clone(), mebibytes(kept.bytes)]);
    }
    let sum = report.stock_sum.iter().map(|kept| kept.bytes).sum::<u64>();
    out.result(format!("\n{table}"))?;
    if let Some(stock) = report.sides.first() {
        out.result(format!(
            "sum {} MiB, measured {} MiB: {:.3} of it",
            mebibytes(sum),
            mebibytes(stock.step_bytes),
            sum as f64 / stock.step_bytes as f64
        ))?;
    }
    let mut table =
        Table::new(["segment", "forward ms", "backward ms", "adds MiB", "forward peak", "again peak", "backward peak"]);
    for row in &report.segments {
        table.row(segment_cells(row));
    }
    out.result(format!("\n{table}"))?;
    Ok(())
}

fn side_cells(side: &SideRow) -> Vec<String> {
    vec![
        side.name.clone(),
        side.recomputed.to_string(),
        format!("{:.3}", side.step_s.median),
        spread(&side.time_by_stock),
        spread(&side.time_by_none),
        mebibytes(side.step_bytes),
        format!("{:.3}", side.bytes_by_stock),
        format!("{:.3}", side.bytes_by_none),
        mebibytes(side.total_bytes),
        format!("{:.3}", side.total_by_stock),
        side.reserved_bytes.map(mebibytes).unwrap_or_default(),
    ]
}

fn segment_cells(row: &SegmentRow) -> Vec<String> {
    vec![
        row.name.clone(),
        format!("{:.1}", row.forward_ms),
        format!("{:.1}", row.backward_ms),
        mebibytes(row.kept_bytes),
        mebibytes(row.forward_peak_bytes),
        row.again_peak_bytes.map(mebibytes).unwrap_or_default(),
        mebibytes(row.backward_peak_bytes),
    ]
}

fn spread(spread: &Spread) -> String {
    format!("{:.3} ({:.3}..{:.3})", spread.median, spread.least, spread.most)
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn precision(text: &str) -> Result<Precision, String> {
    let all = [Precision::F32, Precision::F16, Precision::Bf16];
    all.into_iter()
        .find(|precision| precision.name() == text)
        .ok_or_else(|| format!("found {text:?}, expected f32, f16 or bf16"))
}
