//! The loss scale of training in f16: the loss is multiplied by a number so that small gradients do not become 0 in f16, and
//! the gradients are divided by it before anything looks at them.
//!
//! One trait, [`Policy`], says how the scale of the next step follows from what a step found; [`LossScaler`] keeps the count.
//! Scales are f32, as PyTorch's: written to JSON and read back they are the same number.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::PrecisionConfig;
use super::config::one_of;
use crate::tape::Precision;
use crate::{Error, Result};

/// Known values of `precision.loss_scale`.
pub const POLICIES: [&str; 4] = ["dynamic", "grad-norm", "static", "off"];

/// Steps that may be skipped one after the other at the smallest scale.
pub const MOST_SKIPS: usize = 20;

/// What a step found in its gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found {
    /// All are finite; their global L2 norm, unscaled, before clipping.
    Norm(f64),
    /// Some are not finite.
    Overflow,
}

/// The scale with what a policy counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    pub value: f32,
    /// Steps without overflow since the scale last moved.
    pub good_steps: usize,
}

/// How the scale follows from step to step.
pub trait Policy: fmt::Debug + Send {
    /// The scale after a step at `scale` that found this.
    fn next(&self, scale: Scale, found: Found) -> Scale;

    /// The scale never goes below; None: it never moves.
    fn floor(&self) -> Option<f32>;
}

/// The rule of `torch.amp.GradScaler`: twice after `growth_steps` steps without overflow, half on overflow. Unlike there the
/// scale stays at least 1.
#[derive(Debug, Clone, Copy)]
pub struct Dynamic {
    pub growth_steps: usize,
}

/// By the gradients' norm: twice while it is above 0.1, times 0.8 while it is less, half on overflow; from 1 to 2048.
#[derive(Debug, Clone, Copy)]
pub struct GradNorm;

/// The same scale at every step.
#[derive(Debug, Clone, Copy)]
pub struct Static;

/// Smallest scale: the loss as it is.
const FLOOR: f32 = 1.0;
/// Largest scale of [`GradNorm`].
const CEILING: f32 = 2048.0;
/// Norm above which [`GradNorm`] grows.
const LARGE_NORM: f64 = 0.1;

impl Policy for Dynamic {
    fn next(&self, Scale { value, good_steps }: Scale, found: Found) -> Scale {
        if found == Found::Overflow {
            return Scale { value: (value * 0.5).max(FLOOR), good_steps: 0 };
        }
        if good_steps + 1 < self.growth_steps {
            return Scale { value, good_steps: good_steps + 1 };
        }
        let grown = value * 2.0;
        Scale { value: if grown.is_finite() { grown } else { value }, good_steps: 0 }
    }

    fn floor(&self) -> Option<f32> {
        Some(FLOOR)
    }
}

impl Policy for GradNorm {
    fn next(&self, Scale { value, good_steps }: Scale, found: Found) -> Scale {
        let (factor, good_steps) = match found {
            Found::Norm(norm) if norm > LARGE_NORM => (2.0, good_steps + 1),
            Found::Norm(_) => (0.8, good_steps + 1),
            Found::Overflow => (0.5, 0),
        };
        Scale { value: (value * factor).clamp(FLOOR, CEILING), good_steps }
    }

    fn floor(&self) -> Option<f32> {
        Some(FLOOR)
    }
}

impl Policy for Static {
    fn next(&self, Scale { value, good_steps }: Scale, found: Found) -> Scale {
        Scale { value, good_steps: if found == Found::Overflow { 0 } else { good_steps + 1 } }
    }

    fn floor(&self) -> Option<f32> {
        None
    }
}

/// What a checkpoint knows of the loss scale.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ScaleState {
    pub scale: f32,
    pub good_steps: usize,
    /// Steps that were skipped so far.
    pub skipped: usize,
    /// Of those the last ones, one after the other at the smallest scale.
    pub skipped_at_floor: usize,
}

/// What becomes of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Take,
    /// Nothing moves but the scale.
    Skip,
    /// Skipping does not help: it was the last of [`MOST_SKIPS`] in a row at the smallest scale.
    GiveUp,
}

impl ScaleState {
    /// Whether a run can have got there.
    pub fn is_possible(&self) -> bool {
        self.scale.is_finite() && self.scale >= FLOOR
    }
}

/// The scale of a run.
#[derive(Debug)]
pub struct LossScaler {
    /// None: no scale, and an overflow ends the run.
    policy: Option<Box<dyn Policy>>,
    state: ScaleState,
}

impl LossScaler {
    /// For training in `precision`, by a configuration that was checked. Only f16 needs a scale: bf16 and f32 have the same
    /// exponents.
    pub fn new(config: &PrecisionConfig, precision: Precision) -> Self {
        let policy: Option<Box<dyn Policy>> = match config.loss_scale.as_str() {
            _ if precision != Precision::F16 => None,
            "off" => None,
            "dynamic" => Some(Box::new(Dynamic { growth_steps: config.growth_steps })),
            "grad-norm" => Some(Box::new(GradNorm)),
            _ => Some(Box::new(Static)),
        };
        let scale = if policy.is_some() { config.initial_scale as f32 } else { 1.0 };
        Self { policy, state: ScaleState { scale, good_steps: 0, skipped: 0, skipped_at_floor: 0 } }
    }

    /// Whether steps that overflow are skipped.
    pub fn is_on(&self) -> bool {
        self.policy.is_some()
    }

    /// What the loss of the next step is multiplied by.
    pub fn scale(&self) -> f64 {
        f64::from(self.state.scale)
    }

    /// Goes into a checkpoint; None without a scale.
    pub fn state(&self) -> Option<ScaleState> {
        self.is_on().then_some(self.state)
    }

    /// Goes on from there: from a checkpoint, or after a step. Without a scale nothing changes.
    pub fn set(&mut self, state: ScaleState) {
        if self.is_on() {
            self.state = state;
        }
    }

    /// Steps that were skipped so far.
    pub fn skipped(&self) -> usize {
        self.state.skipped
    }

    /// What becomes of a step that found this, and the state after it, to be [`set`](Self::set) once that is done.
    pub fn verdict(&self, found: Found) -> (ScaleState, Verdict) {
        let ScaleState { scale, good_steps, skipped, .. } = self.state;
        let Some(policy) = &self.policy else {
            return (self.state, if found == Found::Overflow { Verdict::GiveUp } else { Verdict::Take });
        };
        let Scale { value: next, good_steps } = policy.next(Scale { value: scale, good_steps }, found);
        if found != Found::Overflow {
            return (ScaleState { scale: next, good_steps, skipped, skipped_at_floor: 0 }, Verdict::Take);
        }
        let at_floor = policy.floor().is_none_or(|floor| scale <= floor);
        let skipped_at_floor = if at_floor { self.state.skipped_at_floor + 1 } else { 0 };
        let verdict = if skipped_at_floor >= MOST_SKIPS { Verdict::GiveUp } else { Verdict::Skip };
        (ScaleState { scale: next, good_steps, skipped: skipped + 1, skipped_at_floor }, verdict)
    }
}

/// Refuses a policy and numbers that cannot be.
pub(super) fn check(config: &PrecisionConfig) -> Result<()> {
    one_of("precision.loss_scale", &config.loss_scale, &POLICIES)?;
    let most = if config.loss_scale == "grad-norm" { CEILING } else { 65536.0 * 65536.0 };
    if !(f64::from(FLOOR)..=f64::from(most)).contains(&config.initial_scale) {
        return Err(Error::Usage(format!(
            "precision.initial_scale = {}, expected at least {FLOOR} and at most {most}",
            config.initial_scale
        )));
    }
    if config.growth_steps == 0 {
        return Err(Error::Usage("precision.growth_steps = 0, expected at least 1".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `tests/generators/loss_scale.py` recorded.
    #[derive(Deserialize)]
    struct Golden {
        sequences: Vec<Sequence>,
    }

    #[derive(Deserialize)]
    struct Sequence {
        name: String,
        policy: String,
        initial_scale: f64,
        growth_steps: usize,
        /// Norms of the unscaled gradients; null: overflow.
        norms: Vec<Option<f64>>,
        /// Scale after each.
        scales: Vec<f32>,
        /// Whether the optimizer stepped.
        steps: Vec<bool>,
    }

    impl LossScaler {
        fn update(&mut self, found: Found) -> Verdict {
            let (state, verdict) = self.verdict(found);
            self.set(state);
            verdict
        }
    }

    fn scaler(policy: &str, initial_scale: f64, growth_steps: usize) -> LossScaler {
        let config = PrecisionConfig { format: "f16".into(), loss_scale: policy.into(), initial_scale, growth_steps };
        LossScaler::new(&config, Precision::F16)
    }

    /// GradScaler of PyTorch, and the rule by the norm in plain Python: every scale and every skipped step.
    #[test]
    fn scales_and_skips_are_those_of_the_references() {
        let golden: Golden = serde_json::from_str(include_str!("../../tests/golden/loss_scale.json")).unwrap();
        let policies: std::collections::BTreeSet<&str> = golden.sequences.iter().map(|s| s.policy.as_str()).collect();
        assert_eq!(policies.into_iter().collect::<Vec<_>>(), ["dynamic", "grad-norm"]);
        for Sequence { name, policy, initial_scale, growth_steps, norms, scales, steps } in golden.sequences {
            let mut scaler = scaler(&policy, initial_scale, growth_steps);
            assert!(norms.len() == scales.len() && norms.len() == steps.len() && norms.len() >= 20);
            for (i, ((norm, scale), stepped)) in norms.iter().zip(&scales).zip(&steps).enumerate() {
                let verdict = scaler.update(norm.map_or(Found::Overflow, Found::Norm));
                assert_eq!((verdict == Verdict::Take, scaler.state.scale), (*stepped, *scale), "{name}, step {i}");
            }
        }
    }

    #[test]
    fn a_static_scale_stays_and_skips() {
        let mut scaler = scaler("static", 128.0, 5);
        for found in [Found::Norm(1.0), Found::Overflow, Found::Norm(1e-9)] {
            let expected = if found == Found::Overflow { Verdict::Skip } else { Verdict::Take };
            assert_eq!((scaler.update(found), scaler.scale()), (expected, 128.0));
        }
        assert_eq!(scaler.skipped(), 1);
    }

    /// 512 needs 9 halvings to 1; the 20 skips count from there, and a good step begins anew.
    #[test]
    fn twenty_skips_in_a_row_at_the_smallest_scale_end_the_run() {
        let mut scaler = scaler("dynamic", 512.0, 100);
        for skip in 1..=9 {
            assert_eq!((scaler.update(Found::Overflow), scaler.scale()), (Verdict::Skip, f64::from(512 >> skip)));
        }
        for _ in 0..19 {
            assert_eq!((scaler.update(Found::Overflow), scaler.scale()), (Verdict::Skip, 1.0));
        }
        assert_eq!(scaler.update(Found::Norm(1.0)), Verdict::Take);
        for _ in 0..19 {
            assert_eq!(scaler.update(Found::Overflow), Verdict::Skip);
        }
        assert_eq!(scaler.update(Found::Overflow), Verdict::GiveUp);
        assert_eq!(scaler.skipped(), 9 + 19 + 20);
    }

    #[test]
    fn without_a_scale_an_overflow_ends_the_run() {
        let config = PrecisionConfig { loss_scale: "dynamic".into(), ..PrecisionConfig::default() };
        for precision in [Precision::F32, Precision::Bf16] {
            let mut scaler = LossScaler::new(&config, precision);
            assert_eq!((scaler.scale(), scaler.state(), scaler.is_on()), (1.0, None, false));
            assert_eq!(scaler.update(Found::Overflow), Verdict::GiveUp);
            assert_eq!(scaler.update(Found::Norm(0.0)), Verdict::Take);
        }
        assert!(!LossScaler::new(&PrecisionConfig { loss_scale: "off".into(), ..config }, Precision::F16).is_on());
    }

    /// Through JSON, at scales that no short decimal is.
    #[test]
    fn a_restored_scale_goes_on_as_if_it_had_never_stopped() {
        let mut whole = scaler("grad-norm", 700.0, 1);
        for i in 0..40 {
            let found = if i % 7 == 3 { Found::Overflow } else { Found::Norm(if i % 3 == 0 { 1.0 } else { 0.01 }) };
            let text = serde_json::to_string(&whole.state().unwrap()).unwrap();
            let mut resumed = scaler("grad-norm", 1.0, 1);
            resumed.set(serde_json::from_str(&text).unwrap());
            assert_eq!(resumed.update(found), whole.update(found));
            assert_eq!(resumed.state(), whole.state(), "step {i}");
        }
        assert!(whole.state.scale.fract() != 0.0 && whole.skipped() == 6);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let config = |loss_scale: &str, initial_scale, growth_steps| PrecisionConfig {
            format: "f16".into(),
            loss_scale: loss_scale.into(),
            initial_scale,
            growth_steps,
        };
        assert!(POLICIES.iter().all(|policy| check(&config(policy, 512.0, 1)).is_ok()));
        for (wrong, word) in [
            (config("dynmic", 512.0, 200), "dynamic"),
            (config("dynamic", 0.5, 200), "at least 1"),
            (config("dynamic", f64::NAN, 200), "at least 1"),
            (config("grad-norm", 4096.0, 200), "2048"),
            (config("static", 1.0, 0), "growth_steps"),
        ] {
            let error = check(&wrong).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(word), "{error}");
        }
    }
}
