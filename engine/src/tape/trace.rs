//! Times and bytes of every segment of a step.

use std::time::Instant;

use burn::tensor::Device;

use super::{Keeps, Mode, Value};
use crate::gpu;

/// One stretch of work.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Lap {
    /// In use when it began.
    pub before_bytes: u64,
    /// In use when it ended.
    pub after_bytes: u64,
    /// Most in use meanwhile.
    pub peak_bytes: u64,
    pub ms: f64,
}

/// A segment in a step.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentRun {
    pub name: String,
    pub mode: Mode,
    /// Numbers of its input values; true: an addend, which is not held.
    pub inputs: Vec<(usize, bool)>,
    pub outputs: Vec<usize>,
    pub forward: Lap,
    /// Of a recomputed one: its second run. None of one whose backward pass is written out, which has no run of its own for
    /// it.
    pub again: Option<Lap>,
    /// Of one whose backward pass is written out.
    pub by_hand: Option<Keeps>,
    pub backward: Lap,
}

/// A loss in a step, with its gradient.
#[derive(Debug, Clone, PartialEq)]
pub struct LossRun {
    /// Number of the value it is of.
    pub input: usize,
    /// Segments that ran before it.
    pub after: usize,
    pub lap: Lap,
}

/// A step: its segments in order of running.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    pub segments: Vec<SegmentRun>,
    pub losses: Vec<LossRun>,
    /// Bytes of each value.
    pub values: Vec<u64>,
}

/// The moment at which forward and backward had most in use, as far as the device tells
/// ([`lap_peak`](crate::gpu::lap_peak); without a trace a GPU tells only what is in use between segments).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summit {
    /// The segment, or `loss`.
    pub segment: String,
    /// `forward`, `again` (the second run of a segment that is recomputed) or `backward`.
    pub stretch: &'static str,
    /// In use when the tape began: weights, moments, data.
    pub base_bytes: u64,
    pub peak_bytes: u64,
    /// In use when the stretch began.
    pub before_bytes: u64,
    /// Gradients of values and of parameters, of `before_bytes`.
    pub gradient_bytes: u64,
}

impl Summit {
    /// That of the two with the larger peak.
    #[must_use]
    pub fn higher(self, other: Self) -> Self {
        if other.peak_bytes > self.peak_bytes { other } else { self }
    }
}

/// What was in use when a stretch began.
struct Began {
    at: Instant,
    in_use_bytes: u64,
    gradient_bytes: u64,
}

/// Reads memory at the ends of stretches and, where a trace is wanted, the time.
pub(super) struct Watch {
    device: Device,
    trace: Option<Trace>,
    names: Vec<String>,
    began: Option<Began>,
    summit: Summit,
    traced: bool,
}

impl Watch {
    pub fn new(device: &Device, traced: bool) -> Self {
        let device = device.clone().without_autodiff();
        if traced {
            gpu::sample_launches(true);
        }
        let base_bytes = gpu::memory_use(&device).unwrap_or_default().in_use_bytes;
        let summit = Summit { base_bytes, ..Summit::default() };
        Self { device, trace: traced.then(Trace::default), names: Vec::new(), began: None, summit, traced }
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn name(&self, index: usize) -> &str {
        &self.names[index]
    }

    pub fn value(&mut self, id: usize, bytes: u64) {
        if let Some(trace) = &mut self.trace {
            debug_assert_eq!(trace.values.len(), id);
            trace.values.push(bytes);
        }
    }

    /// `gradient_bytes`: of gradients that are there.
    pub fn begin(&mut self, gradient_bytes: u64) {
        gpu::start_lap(&self.device);
        self.began = gpu::memory_use(&self.device).map(|memory| Began {
            at: Instant::now(),
            in_use_bytes: memory.in_use_bytes,
            gradient_bytes,
        });
    }

    fn lap(&mut self, segment: Option<usize>, stretch: &'static str) -> Lap {
        let Some(Began { at, in_use_bytes, gradient_bytes }) = self.began.take() else { return Lap::default() };
        if self.trace.is_some() {
            // Work that was only asked for would count for whoever waits for it.
            let _ = self.device.sync();
        }
        let ms = at.elapsed().as_secs_f64() * 1e3;
        let peak_bytes = gpu::lap_peak(&self.device).unwrap_or_default();
        if peak_bytes > self.summit.peak_bytes {
            let segment = segment.and_then(|index| self.names.get(index)).map_or("loss", String::as_str).to_owned();
            let base_bytes = self.summit.base_bytes;
            self.summit =
                Summit { segment, stretch, base_bytes, peak_bytes, before_bytes: in_use_bytes, gradient_bytes };
        }
        let after = if self.trace.is_some() { gpu::memory_use(&self.device) } else { None };
        let after_bytes = after.unwrap_or_default().in_use_bytes;
        Lap { before_bytes: in_use_bytes, after_bytes, peak_bytes, ms }
    }

    pub fn forward(&mut self, name: &str, mode: Mode, inputs: Vec<(usize, bool)>, outputs: Vec<usize>) {
        self.names.push(name.to_owned());
        let forward = self.lap(Some(self.names.len() - 1), "forward");
        let Some(trace) = &mut self.trace else { return };
        let run = SegmentRun {
            name: name.to_owned(),
            mode,
            inputs,
            outputs,
            forward,
            again: None,
            by_hand: None,
            backward: Lap::default(),
        };
        trace.segments.push(run);
    }

    /// What the segment keeps where it is told to.
    pub fn by_hand(&mut self, index: usize, keeps: Keeps) {
        if let Some(trace) = &mut self.trace {
            trace.segments[index].by_hand = Some(keeps);
        }
    }

    pub fn again(&mut self, index: usize) {
        let lap = self.lap(Some(index), "again");
        if let Some(trace) = &mut self.trace {
            trace.segments[index].again = Some(lap);
        }
    }

    pub fn backward(&mut self, index: usize) {
        let lap = self.lap(Some(index), "backward");
        if let Some(trace) = &mut self.trace {
            trace.segments[index].backward = lap;
        }
    }

    pub fn loss(&mut self, input: usize) {
        let lap = self.lap(None, "forward");
        let after = self.names.len();
        if let Some(trace) = &mut self.trace {
            trace.losses.push(LossRun { input, after, lap });
        }
    }

    pub fn finish(&mut self) -> (Option<Trace>, Summit) {
        (self.trace.take(), std::mem::take(&mut self.summit))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.traced {
            gpu::sample_launches(false);
        }
    }
}

/// Of a value.
pub(super) fn bytes(value: &Value) -> u64 {
    (value.shape().num_elements() * value.dtype().size()) as u64
}
