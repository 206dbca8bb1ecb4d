//! In which format a run computes.

use burn::tensor::Device;

use super::PrecisionConfig;
use crate::tape::Precision;
use crate::{Error, Result, bytes_text, gpu};

/// Known values of `precision.format`.
pub const FORMATS: [&str; 4] = ["auto", "f32", "f16", "bf16"];

/// The precision that a run begins with; `auto` begins in f32.
///
/// # Errors
/// [`Error::Usage`] for f16 on a device without it.
pub fn first(config: &PrecisionConfig, device: &Device) -> Result<Precision> {
    match config.format.as_str() {
        "f16" if gpu::supports_f16(device) => Ok(Precision::F16),
        "f16" => Err(Error::Usage(
            "precision f16: the device has no half precision in shaders (`occam gpus` lists what each can do). Use \
             --precision bf16 or f32, or --device cpu"
                .into(),
        )),
        "bf16" => Ok(Precision::Bf16),
        _ => Ok(Precision::F32),
    }
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
    fn every_format_has_a_first_precision() {
        let config = |format: &str| PrecisionConfig { format: format.into(), ..PrecisionConfig::default() };
        let found = FORMATS.map(|format| first(&config(format), &Device::flex()).unwrap());
        assert_eq!(found, [Precision::F32, Precision::F32, Precision::F16, Precision::Bf16]);
    }
}
