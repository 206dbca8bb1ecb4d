//! What a step would take with other modes than those it was measured with.

use super::{Lap, Mode, SegmentRun, Trace};
use crate::{Error, Result};

/// What a measured step says about every way to take it.
///
/// One step with everything recomputed is enough. Whatever the modes, the same values and gradients live at the same
/// moments; a segment that is kept holds more: its graph, from its forward to its backward pass. All bytes are above what was
/// in use before the step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profile {
    /// In order of running.
    pub segments: Vec<Segment>,
    /// In order of running.
    pub losses: Vec<Loss>,
    /// Peak of what follows the backward pass: clipping, the optimizer.
    pub end_bytes: u64,
    /// Time of the step without anything recomputed.
    pub step_ms: f64,
}

/// A segment; its peaks are those with everything before it recomputed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Segment {
    pub name: String,
    /// Of its graph.
    pub kept_bytes: u64,
    /// Values that go in.
    pub fan_in: usize,
    /// Segments and losses that its outputs go into.
    pub fan_out: usize,
    pub forward: Peaks,
    pub backward: Peaks,
    /// Of its second run.
    pub again_ms: f64,
}

/// Most bytes in a pass through a segment, whether it keeps or recomputes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Peaks {
    pub keep: u64,
    pub recompute: u64,
}

impl Peaks {
    pub(super) fn of(self, mode: Mode) -> u64 {
        match mode {
            Mode::Keep => self.keep,
            Mode::Recompute => self.recompute,
        }
    }
}

/// A loss with its gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loss {
    /// Segments that ran before it.
    pub after: usize,
    /// With everything recomputed.
    pub peak_bytes: u64,
}

/// A place in the order of a step: all forward passes and losses, then the backward passes from the last segment to the
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Forward(usize),
    Loss(usize),
    Backward(usize),
    /// What follows the backward pass.
    End,
}

/// A step that was not taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    pub peak_bytes: u64,
    /// Peak of every moment, in order.
    pub moments: Vec<(Moment, u64)>,
    /// Time of all second runs.
    pub added_ms: f64,
}

impl Profile {
    /// From the trace of a step with everything recomputed. Before the step `fixed_bytes` were in use, it took `step_ms`, and
    /// what followed the backward pass had its peak at `end_peak_bytes`.
    ///
    /// # Errors
    /// [`Error::Failed`] for a trace of something else.
    pub fn new(trace: &Trace, fixed_bytes: u64, end_peak_bytes: u64, step_ms: f64) -> Result<Self> {
        let above = |bytes: u64| bytes.saturating_sub(fixed_bytes);
        let mut segments = Vec::with_capacity(trace.segments.len());
        for run in &trace.segments {
            if let Some(keeps) = run.by_hand {
                segments.push(Segment {
                    name: run.name.clone(),
                    kept_bytes: keeps.bytes,
                    fan_in: run.inputs.len(),
                    fan_out: fan_out(trace, run),
                    forward: counted(above(run.forward.peak_bytes), keeps.forward_bytes),
                    backward: counted(above(run.backward.peak_bytes), keeps.backward_bytes),
                    again_ms: run.forward.ms * keeps.saves,
                });
                continue;
            }
            let again = run.again.ok_or_else(|| {
                Error::Failed(format!("the trace of segment {:?} has no second run: nothing can be planned", run.name))
            })?;
            let (forward, backward) = (above(run.forward.peak_bytes), above(run.backward.peak_bytes));
            // The run of a segment that keeps is like the second one of a segment that recomputes, with its outputs.
            let graph = again.peak_bytes.saturating_sub(again.before_bytes);
            segments.push(Segment {
                name: run.name.clone(),
                kept_bytes: kept_bytes(&again, &run.backward),
                fan_in: run.inputs.len(),
                fan_out: fan_out(trace, run),
                forward: Peaks { keep: forward.max(above(run.forward.before_bytes) + graph), recompute: forward },
                backward: Peaks { keep: backward, recompute: backward.max(above(again.peak_bytes)) },
                again_ms: again.ms,
            });
        }
        let losses = trace.losses.iter();
        let losses = losses.map(|run| Loss { after: run.after, peak_bytes: above(run.lap.peak_bytes) }).collect();
        let step_ms = step_ms - segments.iter().map(|segment| segment.again_ms).sum::<f64>();
        Ok(Self { segments, losses, end_bytes: above(end_peak_bytes), step_ms: step_ms.max(0.0) })
    }

    /// Moments in order of time.
    fn moments(&self) -> Vec<Moment> {
        let count = self.segments.len();
        let mut moments = Vec::with_capacity(2 * count + self.losses.len() + 1);
        for segment in 0..=count {
            moments.extend(self.losses_after(segment).map(Moment::Loss));
            moments.extend((segment < count).then_some(Moment::Forward(segment)));
        }
        moments.extend((0..count).rev().map(Moment::Backward));
        moments.push(Moment::End);
        moments
    }

    /// Numbers of the losses that come when `segments` segments have run.
    pub(super) fn losses_after(&self, segments: usize) -> impl Iterator<Item = usize> {
        self.losses.iter().enumerate().filter(move |(_, loss)| loss.after == segments).map(|(number, _)| number)
    }

    /// The step with these modes; segments beyond them keep.
    pub fn simulate(&self, modes: &[Mode]) -> Simulation {
        let mode = |segment: usize| modes.get(segment).copied().unwrap_or_default();
        // Held by the first segments together.
        let mut kept = vec![0];
        for (number, segment) in self.segments.iter().enumerate() {
            kept.push(kept[number] + if mode(number) == Mode::Keep { segment.kept_bytes } else { 0 });
        }
        let bytes = |moment: Moment| match moment {
            Moment::Forward(number) => kept[number] + self.segments[number].forward.of(mode(number)),
            Moment::Backward(number) => kept[number] + self.segments[number].backward.of(mode(number)),
            Moment::Loss(loss) => kept[self.losses[loss].after] + self.losses[loss].peak_bytes,
            Moment::End => self.end_bytes,
        };
        let moments: Vec<(Moment, u64)> = self.moments().into_iter().map(|moment| (moment, bytes(moment))).collect();
        let again = self.segments.iter().enumerate().filter(|(number, _)| mode(*number) == Mode::Recompute);
        Simulation {
            peak_bytes: moments.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0),
            moments,
            // A sum of nothing would be -0.
            added_ms: again.fold(0.0, |sum, (_, segment)| sum + segment.again_ms),
        }
    }

    /// The profile of a grid of another size, from those of two: every number is a constant and a share in proportion to the
    /// voxels. `share` is 0 at `small` and 1 at `large`.
    ///
    /// # Errors
    /// [`Error::Failed`] when the two are not of one network.
    pub fn between(small: &Self, large: &Self, share: f64) -> Result<Self> {
        if small.segments.len() != large.segments.len() || small.losses.len() != large.losses.len() {
            return Err(Error::Failed("profiles of two networks cannot be joined".into()));
        }
        let ms = |a: f64, b: f64| (a + (b - a) * share).max(0.0);
        let bytes = |a: u64, b: u64| ms(a as f64, b as f64).ceil() as u64;
        let peaks =
            |a: Peaks, b: Peaks| Peaks { keep: bytes(a.keep, b.keep), recompute: bytes(a.recompute, b.recompute) };
        let segment = |(a, b): (&Segment, &Segment)| Segment {
            name: b.name.clone(),
            kept_bytes: bytes(a.kept_bytes, b.kept_bytes),
            fan_in: b.fan_in,
            fan_out: b.fan_out,
            forward: peaks(a.forward, b.forward),
            backward: peaks(a.backward, b.backward),
            again_ms: ms(a.again_ms, b.again_ms),
        };
        Ok(Self {
            segments: small.segments.iter().zip(&large.segments).map(segment).collect(),
            losses: small
                .losses
                .iter()
                .zip(&large.losses)
                .map(|(a, b)| Loss { after: b.after, peak_bytes: bytes(a.peak_bytes, b.peak_bytes) })
                .collect(),
            end_bytes: bytes(small.end_bytes, large.end_bytes),
            step_ms: ms(small.step_ms, large.step_ms),
        })
    }
}

/// Peaks of a segment that counts what it holds more when it keeps.
fn counted(recompute: u64, more: u64) -> Peaks {
    Peaks { keep: recompute + more, recompute }
}

/// Times that the outputs of a segment go into something.
fn fan_out(trace: &Trace, run: &SegmentRun) -> usize {
    let into = trace.segments.iter().flat_map(|other| &other.inputs).map(|(value, _)| value);
    into.chain(trace.losses.iter().map(|loss| &loss.input)).filter(|value| run.outputs.contains(value)).count()
}

/// What the second run of a segment left for its backward pass, which begins when its outputs are gone.
fn kept_bytes(again: &Lap, backward: &Lap) -> u64 {
    backward.before_bytes.saturating_sub(again.before_bytes)
}

#[cfg(test)]
mod tests {
    use super::super::{LossRun, SegmentRun};
    use super::*;

    fn lap(before_bytes: u64, peak_bytes: u64, after_bytes: u64, ms: f64) -> Lap {
        Lap { before_bytes, after_bytes, peak_bytes, ms }
    }

    /// Three segments in a row, of which the last adds the output of the first to its own, and a loss. 1000 bytes are in use
    /// before. Values: the input (0) of 10 bytes, and outputs of 20 (1), 30 (2) and 20 (3).
    fn trace() -> Trace {
        let run = |name: &str, inputs: &[(usize, bool)], output, forward, again, backward| SegmentRun {
            name: name.into(),
            mode: Mode::Recompute,
            inputs: inputs.to_vec(),
            outputs: vec![output],
            forward,
            again: Some(again),
            by_hand: None,
            backward,
        };
        // In use before "a": the input. The second run leaves its output and a graph of 5 bytes, of which the backward pass
        // begins with the graph.
        let a = [lap(1010, 1040, 1030, 1.0), lap(1030, 1060, 1055, 1.5), lap(1035, 1070, 1000, 4.0)];
        // The first output is held besides. 40 bytes in the graph.
        let b = [lap(1030, 1100, 1060, 2.0), lap(1060, 1140, 1130, 2.5), lap(1100, 1150, 1050, 5.0)];
        // 7 bytes in the graph; the output of its second run has no value, and the run takes more than the backward pass.
        let c = [lap(1060, 1090, 1080, 3.0), lap(1080, 1125, 1087, 3.5), lap(1087, 1120, 1090, 6.0)];
        Trace {
            segments: vec![
                run("a", &[(0, false)], 1, a[0], a[1], a[2]),
                run("b", &[(1, false)], 2, b[0], b[1], b[2]),
                run("c", &[(2, false), (1, true)], 3, c[0], c[1], c[2]),
            ],
            losses: vec![LossRun { input: 3, after: 3, lap: lap(1080, 1200, 1080, 7.0) }],
            values: vec![10, 20, 30, 20],
        }
    }

    fn profile() -> Profile {
        Profile::new(&trace(), 1000, 1015, 40.0).unwrap()
    }

    #[test]
    fn a_profile_holds_what_each_segment_keeps_and_where_its_values_go() {
        let profile = profile();
        let found: Vec<_> = profile.segments.iter().map(|s| (s.kept_bytes, s.fan_in, s.fan_out, s.again_ms)).collect();
        assert_eq!(found, [(5, 1, 2, 1.5), (40, 1, 1, 2.5), (7, 2, 1, 3.5)]);
        assert_eq!((profile.end_bytes, profile.step_ms), (15, 40.0 - 7.5));
    }

    #[test]
    fn with_everything_recomputed_the_simulation_is_what_was_measured() {
        let simulation = profile().simulate(&[Mode::Recompute; 3]);
        let bytes: Vec<u64> = simulation.moments.iter().map(|(_, bytes)| *bytes).collect();
        // Forward, the loss, then the higher of second run and backward pass, and the end.
        assert_eq!(bytes, [40, 100, 90, 200, 125, 150, 70, 15]);
        assert_eq!((simulation.peak_bytes, simulation.added_ms), (200, 7.5));
    }

    #[test]
    fn what_is_kept_is_there_from_its_forward_to_its_backward_pass() {
        let peaks = |kept: &[usize]| -> Vec<u64> {
            let mode = |at: usize| if kept.contains(&at) { Mode::Keep } else { Mode::Recompute };
            profile().simulate(&[0, 1, 2].map(mode)).moments.iter().map(|(_, bytes)| *bytes).collect()
        };
        // In its forward pass: with a graph, 30 bytes on top of the 10 in use, no more than was measured.
        assert_eq!(peaks(&[0]), [40, 105, 95, 205, 130, 155, 70, 15]);
        // 30 in use, and the second run took 80 more: 110.
        assert_eq!(peaks(&[1]), [40, 110, 130, 240, 165, 150, 70, 15]);
        // 60 in use, and the second run took 45 more; no second run in the backward pass.
        assert_eq!(peaks(&[2]), [40, 100, 105, 207, 120, 150, 70, 15]);
        assert_eq!(peaks(&[0, 1, 2]), [40, 115, 150, 252, 165, 155, 70, 15]);
        assert_eq!(profile().simulate(&[]).peak_bytes, 252, "what is not said keeps");
    }

    /// Two scales: the coarse loss comes before the second segment. Its second run takes more than its backward pass.
    #[test]
    fn a_loss_stands_where_it_is_taken() {
        let peaks = |keep, recompute| Peaks { keep, recompute };
        let segment = |kept_bytes, forward, backward| Segment { kept_bytes, forward, backward, ..Segment::default() };
        let profile = Profile {
            segments: vec![segment(8, peaks(20, 10), peaks(30, 35)), segment(16, peaks(40, 40), peaks(50, 60))],
            losses: vec![Loss { after: 2, peak_bytes: 100 }, Loss { after: 1, peak_bytes: 90 }],
            end_bytes: 1,
            step_ms: 0.0,
        };
        let found = profile.simulate(&[Mode::Keep, Mode::Recompute]).moments;
        let expected = [
            (Moment::Forward(0), 20),
            (Moment::Loss(1), 98),
            (Moment::Forward(1), 48),
            (Moment::Loss(0), 108),
            (Moment::Backward(1), 68),
            (Moment::Backward(0), 30),
            (Moment::End, 1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn another_size_is_a_constant_and_a_share() {
        let small = profile();
        let mut large = profile();
        large.segments[1].kept_bytes = 140;
        large.losses[0].peak_bytes = 1200;
        let larger = Profile::between(&small, &large, 3.0).unwrap();
        assert_eq!((larger.segments[1].kept_bytes, larger.losses[0].peak_bytes), (40 + 300, 200 + 3000));
        assert_eq!(larger.segments[0], small.segments[0]);
        assert!(Profile::between(&small, &Profile::default(), 1.0).is_err());
    }

    #[test]
    fn a_trace_of_something_kept_is_refused() {
        let mut trace = trace();
        trace.segments[1].again = None;
        assert!(Profile::new(&trace, 1000, 1015, 40.0).unwrap_err().to_string().contains("\"b\""));
    }
}
