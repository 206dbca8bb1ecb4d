//! In which format a run computes.

use burn::tensor::Device;

use super::{PrecisionConfig, StepOutcome};
use crate::tape::Precision;
use crate::{Error, Result, bytes_text, gpu};

/// Known values of `precision.format`.
pub const FORMATS: [&str; 4] = ["auto", "f32", "f16", "bf16"];

/// The precision that a run begins with; `auto` begins in f32.
pub fn first(config: &PrecisionConfig) -> Precision {
    match config.format.as_str() {
        "f16" => Precision::F16,
        "bf16" => Precision::Bf16,
        _ => Precision::F32,
    }
}

/// # Errors
/// [`Error::Usage`] for f16 on a device without it.
pub fn check(precision: Precision, device: &Device) -> Result<()> {
    refuse(precision, gpu::supports_f16(device))
}

fn refuse(precision: Precision, has_f16: bool) -> Result<()> {
    if precision != Precision::F16 || has_f16 {
        return Ok(());
    }
    Err(Error::Usage(
        "precision f16: the device has no half precision in shaders (`occam gpus` says what each can do). Use \
         --precision bf16 or f32, or --device cpu"
            .into(),
    ))
}

/// What `auto` does once the smallest peak of training in f32, over all plans, is known: None stays in f32; with a line that
/// says why, f16.
pub fn fall_back(
    config: &PrecisionConfig,
    smallest_f32_bytes: u64,
    budget_bytes: u64,
    has_f16: bool,
) -> Option<(Precision, String)> {
    if config.format != "auto" || smallest_f32_bytes <= budget_bytes || !has_f16 {
        return None;
    }
    let (need, budget) = (bytes_text(smallest_f32_bytes), bytes_text(budget_bytes));
    Some((
        Precision::F16,
        format!("precision: f16, because the smallest plan in f32 needs {need} and the budget is {budget}"),
    ))
}

/// Says once each what a user should know of a run in f16.
#[derive(Debug, Default)]
pub struct Notices {
    skipped: bool,
    zeros: bool,
}

/// Share of gradients that are 0 from which they are said to vanish. Of a network in f32 some are 0 too: rows of voxels that
/// are never occupied, channels that ReLU shuts.
const VANISHED: f64 = 0.9;

impl Notices {
    /// What is to be said of step `number`.
    pub fn of(&mut self, number: usize, precision: Precision, outcome: &StepOutcome) -> Option<String> {
        if precision != Precision::F16 {
            return None;
        }
        let zeros = outcome.zero_share.unwrap_or(0.0);
        if let (true, false, Some(scale)) = (outcome.skipped, self.skipped, outcome.scale) {
            self.skipped = true;
            let first = outcome.nonfinite.as_ref().map(|name| format!(", the gradient of {name} first"));
            return Some(format!(
                "step {number} overflowed in f16 at the loss scale {scale}{} and was skipped; the scale falls until steps \
                 do not. metrics.jsonl tells of each",
                first.unwrap_or_default()
            ));
        }
        if zeros >= VANISHED && !self.zeros {
            self.zeros = true;
            let advice = if outcome.scale.is_some() {
                "raise precision.initial_scale"
            } else {
                "set precision.loss_scale to \"dynamic\""
            };
            return Some(format!(
                "step {number}: {:.1} % of the gradients' values are 0, too small for f16; {advice}, or train with \
                 --precision bf16 or f32",
                100.0 * zeros
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_takes_f16_only_when_no_plan_in_f32_fits() {
        let config = |format: &str| PrecisionConfig { format: format.into(), ..PrecisionConfig::default() };
        let (need, less) = (3 << 30, 2 << 30);
        let (precision, line) = fall_back(&config("auto"), need, less, true).unwrap();
        assert_eq!(precision, Precision::F16);
        assert!(line.contains("3.00 GiB") && line.contains("2.00 GiB") && !line.contains('\n'), "{line}");
        assert_eq!(fall_back(&config("auto"), need, need, true), None);
        assert_eq!(fall_back(&config("auto"), need, less, false), None);
        for format in ["f32", "f16", "bf16"] {
            assert_eq!(fall_back(&config(format), need, less, true), None);
        }
    }

    #[test]
    fn what_goes_wrong_in_f16_is_said_once() {
        let good = StepOutcome {
            loss: 1.0,
            grad_norm: 1.0,
            scale: None,
            skipped: false,
            zero_share: Some(0.2),
            nonfinite: None,
            memory: None,
        };
        let overflow = StepOutcome {
            loss: f64::NAN,
            scale: Some(512.0),
            skipped: true,
            nonfinite: Some("conv1_1.weight".into()),
            ..good.clone()
        };
        let vanished = StepOutcome { zero_share: Some(0.995), ..good.clone() };
        let mut notices = Notices::default();
        assert_eq!(notices.of(1, Precision::F16, &good), None);
        let text = notices.of(2, Precision::F16, &overflow).unwrap();
        assert!(["step 2", "512", "conv1_1.weight"].iter().all(|word| text.contains(word)), "{text}");
        let text = notices.of(3, Precision::F16, &vanished).unwrap();
        assert!(["step 3", "99.5 %", "dynamic"].iter().all(|word| text.contains(word)), "{text}");
        assert_eq!(notices.of(4, Precision::F16, &overflow), None);
        assert_eq!(notices.of(5, Precision::F16, &vanished), None);
        assert_eq!(Notices::default().of(1, Precision::F32, &vanished), None);
    }

    #[test]
    fn every_format_has_a_first_precision() {
        let config = |format: &str| PrecisionConfig { format: format.into(), ..PrecisionConfig::default() };
        let found = FORMATS.map(|format| first(&config(format)));
        assert_eq!(found, [Precision::F32, Precision::F32, Precision::F16, Precision::Bf16]);
    }

    #[test]
    fn f16_needs_a_device_that_has_it() {
        for precision in [Precision::F32, Precision::Bf16] {
            assert!(refuse(precision, false).is_ok());
        }
        assert!(check(Precision::F16, &Device::flex()).is_ok());
        let error = refuse(Precision::F16, false).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("--precision bf16"), "{error}");
    }
}
