//! What the memory bench found.

use std::io::{self, Write};
use std::path::Path;

use occam_scene::formats::atomic_write;
use serde::{Deserialize, Serialize};

use super::{Kept, MemoryBench, Side, Way, stock_sum};
use crate::Result;
use crate::gpu::MemoryKinds;
use crate::models::Network;
use crate::tape::{Mode, Trace};
use crate::train::parameter_bytes;

/// The kind of file.
pub const KIND: &str = "occam bench memory";

/// Every side beside stock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    pub kind: String,
    pub network: String,
    pub counts: [usize; 3],
    pub classes: usize,
    pub precision: String,
    pub pairs: usize,
    pub weight_bytes: u64,
    pub sides: Vec<SideRow>,
    /// Tensors that stock holds at its peak, by hand, to be compared with what was measured.
    pub stock_sum: Vec<Kept>,
    /// Of everything kept, and of everything recomputed.
    pub segments: Vec<SegmentRow>,
}

/// Median, least and most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
        let median =
            if values.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.wrapping_sub(1)), at(middle)) };
        Self { median, least: at(0), most: at(values.len().wrapping_sub(1)) }
    }
}

/// One way to take a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideRow {
    pub name: String,
    /// Segments that run again.
    pub recomputed: usize,
    pub loss: f64,
    pub step_s: Spread,
    /// Against stock, and against everything kept, in the same turn.
    pub time_by_stock: Spread,
    pub time_by_none: Spread,
    /// Most above what was in use before the step: activations, gradients, workspace, and the sample on the device.
    pub step_bytes: u64,
    pub step_bytes_least: u64,
    /// Most of all.
    pub total_bytes: u64,
    pub reserved_bytes: Option<u64>,
    pub kept_bytes: u64,
    pub bytes_by_stock: f64,
    pub bytes_by_none: f64,
    pub total_by_stock: f64,
    /// When most was in use, and what for; not known of stock.
    pub peak_at: Option<String>,
    pub kinds: Option<MemoryKinds>,
}

/// A segment in a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SegmentRow {
    pub name: String,
    pub forward_ms: f64,
    pub backward_ms: f64,
    /// Bytes it added by running, its outputs included.
    pub kept_bytes: u64,
    /// Most above the beginning of the step.
    pub forward_peak_bytes: u64,
    pub again_peak_bytes: Option<u64>,
    pub backward_peak_bytes: u64,
    pub backward_before_bytes: u64,
}

pub(super) fn report(bench: &MemoryBench, sides: &[Side], traces: &[Trace], network: &Network) -> MemoryReport {
    let most = |bytes: &[u64]| bytes.iter().copied().max().unwrap_or(0);
    let find = |name: &str| sides.iter().find(|side| side.name == name);
    let ratios = |side: &Side, by: &str| {
        let by = find(by).map_or(&[][..], |side| &side.seconds);
        Spread::of(side.seconds.iter().zip(by).map(|(a, b)| a / b))
    };
    let by = |bytes: u64, name: &str, of: fn(&Side) -> &[u64]| {
        bytes as f64 / find(name).map_or(f64::NAN, |side| most(of(side)) as f64)
    };
    let rows = sides.iter().map(|side| {
        let (step_bytes, total_bytes) = (most(&side.step_bytes), most(&side.total_bytes));
        SideRow {
            name: side.name.clone(),
            recomputed: match &side.way {
                Way::Stock(_) => 0,
                Way::Tape(modes) => modes.iter().filter(|mode| **mode == Mode::Recompute).count(),
            },
            loss: side.loss,
            step_s: Spread::of(side.seconds.iter().copied()),
            time_by_stock: ratios(side, "stock"),
            time_by_none: ratios(side, "none"),
            step_bytes,
            step_bytes_least: side.step_bytes.iter().copied().min().unwrap_or(0),
            total_bytes,
            reserved_bytes: side.reserved_bytes,
            kept_bytes: side.kept_bytes,
            bytes_by_stock: by(step_bytes, "stock", |side| &side.step_bytes),
            bytes_by_none: by(step_bytes, "none", |side| &side.step_bytes),
            total_by_stock: by(total_bytes, "stock", |side| &side.total_bytes),
            peak_at: side.memory.as_ref().map(|memory| memory.at.clone()),
            kinds: side.memory.as_ref().map(|memory| memory.kinds),
        }
    });
    let segments = traces.iter().flat_map(|trace| {
        let base = trace.segments.first().map_or(0, |first| first.forward.before_bytes);
        let above = move |bytes: u64| bytes.saturating_sub(base);
        let loss = trace.losses.iter().map(move |loss| SegmentRow {
            name: "loss".into(),
            forward_ms: loss.lap.ms,
            backward_ms: 0.0,
            kept_bytes: 0,
            forward_peak_bytes: above(loss.lap.peak_bytes),
            again_peak_bytes: None,
            backward_peak_bytes: 0,
            backward_before_bytes: above(loss.lap.before_bytes),
        });
        let segments = trace.segments.iter().map(move |run| SegmentRow {
            name: run.name.clone(),
            forward_ms: run.forward.ms,
            backward_ms: run.backward.ms + run.again.map_or(0.0, |again| again.ms),
            kept_bytes: run.forward.after_bytes.saturating_sub(run.forward.before_bytes),
            forward_peak_bytes: above(run.forward.peak_bytes),
            again_peak_bytes: run.again.map(|again| above(again.peak_bytes)),
            backward_peak_bytes: above(run.backward.peak_bytes),
            backward_before_bytes: above(run.backward.before_bytes),
        });
        segments.chain(loss)
    });
    MemoryReport {
        kind: KIND.into(),
        network: bench.network.clone(),
        counts: bench.counts,
        classes: bench.classes,
        precision: bench.precision.name().into(),
        pairs: bench.pairs,
        weight_bytes: parameter_bytes(network),
        sides: rows.collect(),
        stock_sum: stock_sum(bench.counts, bench.classes),
        segments: segments.collect(),
    }
}

impl MemoryReport {
    /// # Errors
    /// [`crate::Error::Input`] when the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let write = |out: &mut dyn Write| {
            serde_json::to_writer_pretty(&mut *out, self).map_err(io::Error::from)?;
            writeln!(out)
        };
        Ok(atomic_write(path, write)?)
    }
}
