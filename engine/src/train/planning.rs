//! Which segments of a network a run recomputes: measured in its first step, decided from the second on.

use serde::Serialize;

use super::MemoryConfig;
use crate::tape::{Mode, Precision, Profile, Strategy, Trace, least, solve};
use crate::{Error, Result};

/// What lies between a plan's predicted peak and the budget, as a share of the budget: for what no prediction sees, such as
/// what other threads hold for a moment.
const MARGIN: f64 = 0.02;

/// A plan that is made tighter has its peak lower by this share at least.
const TIGHTER: f64 = 0.05;

/// Modes of a step that is measured; networks have fewer segments than these.
static EVERYTHING_AGAIN: [Mode; 1024] = [Mode::Recompute; 1024];
static NOTHING_AGAIN: [Mode; 1024] = [Mode::Keep; 1024];

/// Decides what a run recomputes.
///
/// The first step recomputes everything and is measured: a real step, whose gradients do not depend on what is recomputed.
/// Its trace says what every other choice would take, so that the modes from the second step on are those of the strategy,
/// or of the plan for the budget.
#[derive(Debug)]
pub struct Planning {
    how: How,
    /// Whether the user named the strategy.
    named: bool,
    /// What segments beyond `modes` do is to keep, whatever their precision asks for.
    keeps: bool,
    modes: Vec<Mode>,
    measured: Option<Measured>,
}

/// What is to be decided by.
#[derive(Debug, Clone, Copy)]
struct How {
    strategy: Strategy,
    budget_bytes: Option<u64>,
    /// That others may take while a step runs.
    spare_bytes: u64,
    precision: Precision,
}

#[derive(Debug)]
struct Measured {
    profile: Profile,
    /// In use between steps.
    fixed_bytes: u64,
}

/// What was in use around a measured step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepMemory {
    /// Before it: weights, moments, data.
    pub fixed_bytes: u64,
    /// Peak after the backward pass: clipping, the optimizer.
    pub end_peak_bytes: u64,
    /// Once it was done; the optimizer's moments begin in the first step.
    pub after_bytes: u64,
    pub step_ms: f64,
}

/// What was chosen for a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PlanReport {
    pub strategy: String,
    pub budget_bytes: Option<u64>,
    /// Of a step with what was chosen.
    pub predicted_bytes: u64,
    /// Of a step that recomputes nothing.
    pub none_bytes: u64,
    /// The smallest budget that a plan fits in.
    pub smallest_bytes: u64,
    /// Of that, in use between steps.
    pub fixed_bytes: u64,
    /// Time of a step without anything recomputed, and what the choice adds; from one step, so rough.
    pub step_ms: f64,
    pub added_ms: f64,
    pub segments: Vec<PlannedSegment>,
}

/// A segment in a plan.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PlannedSegment {
    pub name: String,
    /// That it holds from its forward to its backward pass, if it is kept.
    pub kept_bytes: u64,
    pub recomputed: bool,
    /// That its second run takes, or would take.
    pub recompute_ms: f64,
}

impl PlanReport {
    /// Time that recomputing adds to a step, as a share.
    pub fn added_share(&self) -> f64 {
        if self.step_ms > 0.0 { self.added_ms / self.step_ms } else { 0.0 }
    }

    pub fn recomputed(&self) -> usize {
        self.segments.iter().filter(|segment| segment.recomputed).count()
    }
}

impl Planning {
    /// # Errors
    /// [`Error::Usage`] for an unknown strategy, and for a plan without a budget.
    pub fn new(memory: &MemoryConfig, budget_bytes: Option<u64>) -> Result<Self> {
        let named = check(&memory.recompute, budget_bytes.is_some())?;
        let strategy = named.unwrap_or(if budget_bytes.is_some() { Strategy::Plan } else { Strategy::None });
        let keeps = named == Some(Strategy::None);
        Ok(Self { keeps, ..Self::by(strategy, named.is_some(), budget_bytes) })
    }

    fn by(strategy: Strategy, named: bool, budget_bytes: Option<u64>) -> Self {
        let how = How { strategy, budget_bytes, spare_bytes: 0, precision: Precision::F32 };
        Self { how, named, keeps: false, modes: Vec::new(), measured: None }
    }

    /// Modes that stay, whatever they take; segments beyond them do what [`Precision::mode`] says.
    pub fn fixed(modes: Vec<Mode>) -> Self {
        Self { modes, ..Self::by(Strategy::None, true, None) }
    }

    /// One that measures the next step, and then has a plan for a budget beyond all needs.
    pub fn measuring() -> Self {
        Self::by(Strategy::Plan, true, Some(1 << 60))
    }

    /// Leaves `bytes` of the budget to others, such as threads that prepare samples.
    pub fn leave(&mut self, bytes: u64) {
        self.how.spare_bytes = bytes;
    }

    /// In which precision steps are taken, for what is advised.
    pub(super) fn computes_in(&mut self, precision: Precision) {
        self.how.precision = precision;
    }

    pub fn budget_bytes(&self) -> Option<u64> {
        self.how.budget_bytes
    }

    /// Whether what is recomputed is chosen so that it fits.
    pub fn plans(&self) -> bool {
        self.how.strategy == Strategy::Plan
    }

    /// Of the next step.
    pub fn modes(&self) -> &[Mode] {
        if self.wants_trace() {
            &EVERYTHING_AGAIN
        } else if self.keeps && self.modes.is_empty() {
            &NOTHING_AGAIN
        } else {
            &self.modes
        }
    }

    /// Whether the next step is to be measured.
    pub fn wants_trace(&self) -> bool {
        self.measured.is_none() && (self.how.budget_bytes.is_some() || self.how.strategy != Strategy::None)
    }

    /// Takes the trace of a measured step and decides. Nothing when no trace was wanted.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the strategy does not fit the budget, with the smallest budget that something fits in;
    /// [`Error::Failed`] when the device does not say what it holds.
    pub fn observe(&mut self, trace: &Trace, step: &StepMemory) -> Result<Option<PlanReport>> {
        if !self.wants_trace() {
            return Ok(None);
        }
        let profile = Profile::new(trace, step.fixed_bytes, step.end_peak_bytes, step.step_ms)?;
        if self.how.budget_bytes.is_some() && profile.simulate(&[]).peak_bytes == 0 {
            return Err(Error::Failed(
                "memory.budget is set, but the device does not say how much it holds, so nothing can be planned. Set \
                 memory.budget to none"
                    .into(),
            ));
        }
        self.take(profile, step.after_bytes).map(Some)
    }

    /// Decides by a profile; `fixed_bytes` are in use between steps.
    ///
    /// # Errors
    /// [`Error::TooLarge`], as of [`Planning::observe`].
    pub(super) fn take(&mut self, profile: Profile, fixed_bytes: u64) -> Result<PlanReport> {
        let measured = self.measured.insert(Measured { profile, fixed_bytes });
        if let Some(modes) = self.how.decide(measured) {
            self.modes = modes;
            Ok(self.how.report(measured, &self.modes))
        } else {
            self.modes = EVERYTHING_AGAIN.to_vec();
            Err(self.how.too_large(measured))
        }
    }

    /// A step by the plan had its peak at `peak_bytes`. When that is more than the budget, what was not foreseen is added to
    /// what the next steps must leave free, and the plan is made anew; nothing when the plan stays.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when nothing else fits.
    pub fn check(&mut self, peak_bytes: u64) -> Result<Option<PlanReport>> {
        let (Some(budget), Some(measured)) = (self.how.budget_bytes, &self.measured) else { return Ok(None) };
        if peak_bytes <= budget {
            return Ok(None);
        }
        let predicted = measured.fixed_bytes + measured.profile.simulate(&self.modes).peak_bytes;
        self.how.spare_bytes = self.how.spare_bytes.max(peak_bytes.saturating_sub(predicted));
        match self.how.decide(measured) {
            Some(modes) if modes != self.modes => {
                self.modes = modes;
                Ok(Some(self.how.report(measured, &self.modes)))
            }
            _ => {
                let why = self.how.too_large(measured);
                Err(Error::TooLarge(format!("a step took {}: {why}", crate::bytes_text(peak_bytes))))
            }
        }
    }

    /// Takes the next tighter plan, for a device that had less than the budget; false when there is none, or the user named
    /// another strategy. Without a measurement everything is recomputed.
    pub fn tighten(&mut self) -> bool {
        if self.named && self.how.strategy != Strategy::Plan {
            return false;
        }
        let Some(measured) = &self.measured else {
            if self.wants_trace() || self.modes.len() == EVERYTHING_AGAIN.len() {
                return false;
            }
            self.modes = EVERYTHING_AGAIN.to_vec();
            return true;
        };
        let now = measured.profile.simulate(&self.modes).peak_bytes;
        let (smallest, peak) = least(&measured.profile);
        if peak >= now {
            return false;
        }
        let target = (now as f64 * (1.0 - TIGHTER)) as u64;
        self.modes = solve(&measured.profile, target).unwrap_or(smallest);
        true
    }

    /// The shape of a step changed: the next one is measured again.
    pub fn forget(&mut self) {
        self.measured = None;
        self.modes.clear();
    }

    /// The smallest budget that a plan fits in, once a step was measured.
    pub fn smallest_bytes(&self) -> Option<u64> {
        self.measured.as_ref().map(|measured| self.how.smallest_bytes(measured))
    }

    /// What was measured, and how much is in use between steps.
    pub(super) fn measured(&self) -> Option<(&Profile, u64)> {
        self.measured.as_ref().map(|measured| (&measured.profile, measured.fixed_bytes))
    }

    /// What was chosen, once a step was measured.
    pub(super) fn report(&self) -> Option<PlanReport> {
        self.measured.as_ref().map(|measured| self.how.report(measured, &self.modes))
    }
}

impl How {
    /// The modes of the strategy, if they fit.
    fn decide(self, Measured { profile, fixed_bytes }: &Measured) -> Option<Vec<Mode>> {
        let room = self.budget_bytes.map_or(Some(u64::MAX), |budget| room(budget, fixed_bytes + self.spare_bytes))?;
        match self.strategy.modes(profile) {
            None => solve(profile, room),
            Some(modes) => (profile.simulate(&modes).peak_bytes <= room).then_some(modes),
        }
    }

    fn report(self, measured: &Measured, modes: &[Mode]) -> PlanReport {
        let Measured { profile, fixed_bytes } = measured;
        let chosen = profile.simulate(modes);
        let segments = profile.segments.iter().enumerate().map(|(number, segment)| PlannedSegment {
            name: segment.name.clone(),
            kept_bytes: segment.kept_bytes,
            recomputed: modes.get(number) == Some(&Mode::Recompute),
            recompute_ms: segment.again_ms,
        });
        PlanReport {
            strategy: self.strategy.to_string(),
            budget_bytes: self.budget_bytes,
            predicted_bytes: fixed_bytes + chosen.peak_bytes,
            none_bytes: fixed_bytes + profile.simulate(&[]).peak_bytes,
            smallest_bytes: self.smallest_bytes(measured),
            fixed_bytes: *fixed_bytes,
            step_ms: profile.step_ms,
            added_ms: chosen.added_ms,
            segments: segments.collect(),
        }
    }

    fn smallest_bytes(self, measured: &Measured) -> u64 {
        budget_for(measured.fixed_bytes + self.spare_bytes + least(&measured.profile).1)
    }

    fn too_large(self, measured: &Measured) -> Error {
        let budget = crate::bytes_text(self.budget_bytes.unwrap_or(u64::MAX));
        let smallest = self.smallest_bytes(measured) >> 20;
        if let Some(modes) = self.strategy.modes(&measured.profile) {
            let peak_bytes = measured.profile.simulate(&modes).peak_bytes;
            let needed = budget_for(measured.fixed_bytes + self.spare_bytes + peak_bytes) >> 20;
            return Error::TooLarge(format!(
                "memory.recompute = \"{}\" needs a budget of {needed} MiB, and memory.budget allows {budget}. With \
                 memory.recompute = \"plan\" the smallest budget that fits is {smallest} MiB",
                self.strategy
            ));
        }
        let half = if self.precision == Precision::F32 { "--precision f16, " } else { "" };
        Error::TooLarge(format!(
            "a step does not fit in {budget}, even with everything recomputed that helps: the smallest budget that fits is \
             {smallest} MiB. To need less, in this order: {half}a smaller memory.micro_batch or --batch, fewer --workers, \
             a smaller --grid"
        ))
    }
}

/// What a budget leaves to a step beside what is taken already.
pub(super) fn room(budget_bytes: u64, taken_bytes: u64) -> Option<u64> {
    ((budget_bytes as f64 * (1.0 - MARGIN)) as u64).checked_sub(taken_bytes)
}

/// The smallest budget, in whole MiB, for a predicted peak.
pub(super) fn budget_for(peak_bytes: u64) -> u64 {
    // One byte more than rounding could take away again.
    ((peak_bytes as f64 / (1.0 - MARGIN)) as u64 + 1).next_multiple_of(1 << 20)
}

/// The strategy that `memory.recompute` names; `None`: `auto`.
///
/// # Errors
/// [`Error::Usage`] for an unknown one, and for a plan without a budget.
pub(super) fn check(recompute: &str, budget: bool) -> Result<Option<Strategy>> {
    let strategy = if recompute.trim().eq_ignore_ascii_case("auto") {
        None
    } else {
        Some(recompute.parse().map_err(|error| Error::Usage(format!("memory.recompute: {error}")))?)
    };
    if strategy == Some(Strategy::Plan) && !budget { Err(plan_without_budget()) } else { Ok(strategy) }
}

fn plan_without_budget() -> Error {
    Error::Usage(
        "memory.recompute = \"plan\" plans within a budget, and memory.budget is none: give one with --vram, such as 4GiB \
         or auto"
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{Lap, SegmentRun};

    const MIB: u64 = 1 << 20;

    fn config(recompute: &str) -> MemoryConfig {
        MemoryConfig { recompute: recompute.into(), ..MemoryConfig::default() }
    }

    /// Two segments that hold 100 MiB and 50 MiB if kept and take 4 and 1 ms to run again; 10 MiB are in use before the step, and
    /// with everything recomputed the peaks are at 130 MiB and 90 MiB.
    fn trace() -> Trace {
        let lap = |before: u64, peak: u64, ms: f64| Lap {
            before_bytes: before * MIB,
            after_bytes: before * MIB,
            peak_bytes: peak * MIB,
            ms,
        };
        let run = |name: &str, kept: u64, peak: u64, ms: f64, values: [usize; 2]| SegmentRun {
            name: name.into(),
            mode: Mode::Recompute,
            inputs: vec![(values[0], false)],
            outputs: vec![values[1]],
            forward: lap(10, 20, ms),
            again: Some(lap(20, 20 + kept, ms)),
            by_hand: None,
            backward: lap(20 + kept, peak, 2.0 * ms),
        };
        Trace {
            segments: vec![run("a", 100, 130, 4.0, [0, 1]), run("b", 50, 90, 1.0, [1, 2])],
            losses: Vec::new(),
            values: vec![0; 3],
        }
    }

    fn step() -> StepMemory {
        StepMemory { fixed_bytes: 10 * MIB, end_peak_bytes: 12 * MIB, after_bytes: 14 * MIB, step_ms: 25.0 }
    }

    fn planning(recompute: &str, budget_mib: Option<u64>) -> Planning {
        Planning::new(&config(recompute), budget_mib.map(|mib| mib * MIB)).unwrap()
    }

    #[test]
    fn without_a_budget_nothing_is_measured_or_recomputed() {
        let mut planning = planning("auto", None);
        assert!(!planning.wants_trace() && planning.modes().is_empty() && planning.smallest_bytes().is_none());
        assert_eq!(planning.observe(&trace(), &step()).unwrap(), None);
        assert!(planning.tighten() && planning.modes()[0] == Mode::Recompute);
        assert!(!planning.tighten(), "there is nothing tighter");
    }

    #[test]
    fn none_that_the_user_named_keeps_in_every_precision() {
        let mut planning = planning("none", None);
        for _ in 0..2 {
            assert!(!planning.wants_trace() && planning.modes().len() >= 100);
            assert!(planning.modes().iter().all(|mode| *mode == Mode::Keep));
            assert!(!planning.tighten(), "what the user named stays");
            planning.forget();
        }
    }

    #[test]
    fn the_first_step_recomputes_everything_and_the_next_what_the_budget_asks_for() {
        use Mode::{Keep, Recompute};
        // Everything kept: 120 MiB above the 14 in use in the backward pass of "a", 80 + 100 in that of "b".
        for (budget, modes, predicted, added_ms) in
            [(200, [Keep, Keep], 194, 0.0), (190, [Recompute, Keep], 134, 4.0), (137, [Recompute, Keep], 134, 4.0)]
        {
            let mut planning = planning("auto", Some(budget));
            assert!(planning.wants_trace() && planning.modes().iter().all(|mode| *mode == Recompute));
            let report = planning.observe(&trace(), &step()).unwrap().unwrap();
            assert_eq!(planning.modes(), modes, "{budget} MiB");
            assert!(!planning.wants_trace());
            assert_eq!((report.predicted_bytes, report.added_ms), (predicted * MIB, added_ms));
            assert_eq!((report.none_bytes, report.fixed_bytes), (194 * MIB, 14 * MIB));
            // 134 / 0.98 is 136.7.
            assert_eq!((report.smallest_bytes, planning.smallest_bytes()), (137 * MIB, Some(137 * MIB)));
            assert!((report.added_share() - added_ms / 20.0).abs() < 1e-12);
            planning.forget();
            assert!(planning.wants_trace() && planning.smallest_bytes().is_none());
        }
    }

    #[test]
    fn a_budget_below_the_smallest_names_it_and_says_what_to_do() {
        let error = planning("auto", Some(136)).observe(&trace(), &step()).unwrap_err();
        assert_eq!(error.exit_code(), 3);
        let text = error.to_string();
        assert!(text.contains("136.00 MiB") && text.contains("fits is 137 MiB"), "{text}");
        let places = ["f16", "micro_batch", "--workers", "--grid"].map(|word| text.find(word).unwrap());
        assert!(places.is_sorted(), "{text}");
        let mut half = planning("auto", Some(136));
        half.computes_in(Precision::F16);
        let text = half.observe(&trace(), &step()).unwrap_err().to_string();
        assert!(!text.contains("f16") && text.contains("micro_batch"), "{text}");
        // A rule that does not fit is not replaced in silence.
        let error = planning("none", Some(190)).observe(&trace(), &step()).unwrap_err().to_string();
        assert!(error.contains("\"none\" needs a budget of 198 MiB") && error.contains("fits is 137 MiB"), "{error}");
    }

    #[test]
    fn a_peak_that_was_not_foreseen_makes_the_plan_tighter_or_ends_the_run() {
        let mut planning = planning("auto", Some(200));
        planning.observe(&trace(), &step()).unwrap();
        assert_eq!(planning.check(200 * MIB).unwrap(), None);
        // 17 MiB more than predicted.
        let report = planning.check(211 * MIB).unwrap().unwrap();
        assert_eq!((report.recomputed(), report.predicted_bytes), (1, 134 * MIB));
        let error = planning.check(201 * MIB).unwrap_err();
        // 134 and the 67 that were not foreseen, over 0.98.
        assert!(error.exit_code() == 3 && error.to_string().contains("206 MiB"), "{error}");
    }

    #[test]
    fn memory_for_others_is_left() {
        let mut planning = planning("plan", Some(200));
        planning.leave(20 * MIB);
        let report = planning.observe(&trace(), &step()).unwrap().unwrap();
        assert_eq!((report.recomputed(), report.smallest_bytes), (1, 158 * MIB));
    }

    #[test]
    fn a_plan_can_be_made_tighter_until_the_smallest() {
        let mut planning = planning("auto", Some(400));
        planning.observe(&trace(), &step()).unwrap();
        assert!(planning.tighten());
        assert_eq!(planning.modes(), [Mode::Recompute, Mode::Keep]);
        assert!(!planning.tighten());
        let mut named = Planning::new(&config("every-2"), Some(400 * MIB)).unwrap();
        named.observe(&trace(), &step()).unwrap();
        assert_eq!(named.modes(), [Mode::Keep, Mode::Recompute]);
        assert!(!named.tighten(), "what the user named stays");
    }

    #[test]
    fn strategies_come_from_the_configuration() {
        let error = Planning::new(&config("plam"), None).unwrap_err().to_string();
        assert!(error.contains("memory.recompute") && error.contains("did you mean \"plan\""), "{error}");
        let error = Planning::new(&config("plan"), None).unwrap_err().to_string();
        assert!(error.contains("--vram"), "{error}");
        let mut sqrt = planning("sqrt", None);
        assert!(sqrt.wants_trace());
        sqrt.observe(&trace(), &step()).unwrap();
        assert_eq!(sqrt.modes(), [Mode::Keep; 2], "the root of 2 is 1 when rounded");
    }

    #[test]
    fn a_device_that_counts_nothing_cannot_be_planned_for() {
        let mut trace = trace();
        for run in &mut trace.segments {
            (run.forward, run.again, run.backward) = (Lap::default(), Some(Lap::default()), Lap::default());
        }
        let error = planning("auto", Some(100)).observe(&trace, &StepMemory::default()).unwrap_err();
        assert_eq!(error.exit_code(), 1);
    }
}
