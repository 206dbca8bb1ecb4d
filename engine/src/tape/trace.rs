//! Times and bytes of every segment of a step.

use std::time::Instant;

use burn::tensor::Device;

use super::Mode;
use crate::gpu::{self, MemoryUse};

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
    /// Of a recomputed one: its second run.
    pub again: Option<Lap>,
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

/// Takes the time of laps, where a trace is wanted.
pub(super) struct Watch {
    device: Device,
    trace: Option<Trace>,
    names: Vec<String>,
    began: Option<(Instant, MemoryUse)>,
}

impl Watch {
    pub fn new(device: &Device, traced: bool) -> Self {
        let device = device.clone().without_autodiff();
        if traced {
            gpu::sample_launches(true);
        }
        Self { device, trace: traced.then(Trace::default), names: Vec::new(), began: None }
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

    pub fn begin(&mut self) {
        if self.trace.is_some() {
            gpu::start_lap(&self.device);
            self.began = gpu::memory_use(&self.device).map(|memory| (Instant::now(), memory));
        }
    }

    fn lap(&mut self) -> Lap {
        let Some((then, before)) = self.began.take() else { return Lap::default() };
        // Work that was only asked for would count for whoever waits for it.
        let _ = self.device.sync();
        let after = gpu::memory_use(&self.device).unwrap_or_default();
        Lap {
            before_bytes: before.in_use_bytes,
            after_bytes: after.in_use_bytes,
            peak_bytes: gpu::lap_peak(&self.device).unwrap_or(after.in_use_bytes),
            ms: then.elapsed().as_secs_f64() * 1e3,
        }
    }

    pub fn forward(&mut self, name: &str, mode: Mode, inputs: Vec<(usize, bool)>, outputs: Vec<usize>) {
        self.names.push(name.to_owned());
        if self.trace.is_none() {
            return;
        }
        let forward = self.lap();
        let run =
            SegmentRun { name: name.to_owned(), mode, inputs, outputs, forward, again: None, backward: Lap::default() };
        if let Some(trace) = &mut self.trace {
            trace.segments.push(run);
        }
    }

    pub fn again(&mut self, index: usize) {
        if self.trace.is_some() {
            let lap = self.lap();
            if let Some(trace) = &mut self.trace {
                trace.segments[index].again = Some(lap);
            }
        }
    }

    pub fn backward(&mut self, index: usize) {
        if self.trace.is_some() {
            let lap = self.lap();
            if let Some(trace) = &mut self.trace {
                trace.segments[index].backward = lap;
            }
        }
    }

    pub fn loss(&mut self, input: usize) {
        if self.trace.is_some() {
            let lap = self.lap();
            let after = self.names.len();
            if let Some(trace) = &mut self.trace {
                trace.losses.push(LossRun { input, after, lap });
            }
        }
    }

    pub fn finish(mut self) -> Option<Trace> {
        self.trace.take()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        gpu::sample_launches(false);
    }
}
