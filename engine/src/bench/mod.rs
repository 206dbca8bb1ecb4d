//! Measurements of the operations that training is made of, beside Burn's own on the same device.
//!
//! [`select`] chooses from a table of layers, [`kernels`] times them, [`Report`] is what comes out and [`compare`] holds
//! two of them side by side.

mod burn_conv;
mod case;
mod compare;
mod coordinates;
mod fused;
mod layers;
mod measure;
pub mod memory;
mod products;
mod report;
mod shapes;

use std::collections::BTreeSet;

use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::gpu::{DispatchCost, check_dtype, is_cpu};
use crate::ops::{conv, gemm};
use crate::{Error, Progress, ProgressFn, Result};

pub use case::{Case, Operation, Pass};
pub use compare::{ComparedRow, Comparison, compare};
pub use coordinates::{BANDS_M, Band, CoordinateError, CoordinateErrors, coordinate_errors};
pub use report::{About, KIND, Report, Row, Timing};

use measure::Pair;

/// Whether this build lets Burn's operations try several kernels for each shape.
pub const AUTOTUNE: bool = cfg!(feature = "autotune");

/// The Burn whose operations ours are timed beside.
pub const BURN_VERSION: &str = "0.22.1";

/// What tensors hold while an operation is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    F32,
    F16,
}

impl Precision {
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        }
    }

    fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
        }
    }
}

/// The cases whose names hold every word of `filter`, whatever the case; with `all`, those too that take long.
///
/// # Errors
/// [`Error::Usage`] when no case is left, with what there is.
pub fn select(filter: &str, all: bool) -> Result<Vec<Case>> {
    let words: Vec<String> = filter.split_whitespace().map(str::to_lowercase).collect();
    let every = shapes::cases()?;
    let fits = |case: &&Case| {
        let name = case.name().to_lowercase();
        words.iter().all(|word| name.contains(word))
    };
    let fitting: Vec<Case> = every.iter().filter(fits).cloned().collect();
    if fitting.is_empty() {
        let list = |part: fn(&Case) -> String| {
            every.iter().map(part).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
        };
        return Err(Error::Usage(format!(
            "no case holds every word of \"{filter}\". Networks: {}. Operations: {}. Passes: {}. Layers: {}",
            list(|case| case.network.clone()),
            list(|case| case.operation.name()),
            list(|case| case.pass.to_string()),
            list(|case| case.layer.clone()),
        )));
    }
    let count = fitting.len();
    let chosen: Vec<Case> = fitting.into_iter().filter(|case| all || !case.extended).collect();
    if chosen.is_empty() {
        return Err(Error::Usage(format!("the {count} cases of \"{filter}\" take long: add --all")));
    }
    Ok(chosen)
}

/// Times `cases` in each precision, about `seconds` each and never less than one run of ours and of Burn's.
///
/// `found` gets each row as soon as it is there. What fails on one side is told in its row.
///
/// # Errors
/// [`Error::Usage`] for a precision that the device lacks, [`Error::Interrupted`] when `progress` breaks, and what
/// `found` says.
pub fn kernels(
    cases: &[Case],
    device: &Device,
    precisions: &[Precision],
    seconds: f64,
    progress: ProgressFn<'_>,
    found: &mut dyn FnMut(Row) -> Result<()>,
) -> Result<()> {
    for precision in precisions {
        check_dtype(device, &"bench", precision.dtype())?;
    }
    let total = cases.len() * precisions.len();
    let work = precisions.iter().flat_map(|&precision| cases.iter().map(move |case| (case, precision)));
    for (done, (case, precision)) in work.enumerate() {
        let name = case.name();
        let mut stopped = || progress(Progress { what: &name, done, total }).is_break();
        found(time(case, device, precision, seconds, &mut stopped)?)?;
    }
    Ok(())
}

fn time(
    case: &Case,
    device: &Device,
    precision: Precision,
    seconds: f64,
    stopped: &mut dyn FnMut() -> bool,
) -> Result<Row> {
    let dtype = precision.dtype();
    let pair = prepare(case, device, dtype);
    let (ours, burns, difference) = measure::measure(&pair, seconds, stopped)?;
    let split = |outcome: measure::Outcome| match outcome {
        Ok(timing) => (Some(timing), None),
        Err(error) => (None, Some(error)),
    };
    let ((ours, ours_error), (burns, burns_error)) = (split(ours), split(burns));
    Ok(Row {
        network: case.network.clone(),
        layer: case.layer.clone(),
        operation: case.operation.name(),
        pass: case.pass.to_string(),
        precision: precision.name().into(),
        shape: case.operation.shape(),
        flops: case.operation.flops(),
        bytes: case.operation.bytes(case.pass, dtype.size()),
        ours,
        burns,
        ours_error,
        burns_error,
        difference,
        longest_dispatch_s: longest_dispatch_s(case, device, dtype),
    })
}

/// By count, on a GPU of 1 TFLOP/s and 25 GB/s. None on the CPU, and for what is not split by count.
fn longest_dispatch_s(case: &Case, device: &Device, dtype: DType) -> Option<f64> {
    if is_cpu(device) {
        return None;
    }
    let dispatches = match (case.operation, case.pass) {
        (Operation::Gemm { batch, m, n, k, .. }, _) => gemm::dispatches(m, n, k, batch, dtype),
        (Operation::Conv { geometry, .. }, pass) => conv::dispatches(&geometry, conv_pass(pass)),
        // What goes forward is the input gradient, and the other way round.
        (Operation::ConvTransposed { geometry, .. }, pass) => conv::dispatches(
            &geometry,
            match conv_pass(pass) {
                conv::Pass::Forward => conv::Pass::InputGradient,
                conv::Pass::InputGradient => conv::Pass::Forward,
                conv::Pass::WeightGradient => conv::Pass::WeightGradient,
            },
        ),
        _ => return None,
    };
    dispatches.iter().map(DispatchCost::seconds).max_by(f64::total_cmp)
}

fn conv_pass(pass: Pass) -> conv::Pass {
    match pass {
        Pass::Forward | Pass::Step => conv::Pass::Forward,
        Pass::InputGradient => conv::Pass::InputGradient,
        Pass::WeightGradient => conv::Pass::WeightGradient,
    }
}

/// Ours and Burn's way to what the case asks for, on the same random operands.
fn prepare(case: &Case, device: &Device, dtype: DType) -> Pair {
    let random = Random { device: device.clone(), dtype };
    match case.operation {
        Operation::Gemm { batch, m, n, k, a, b } => products::gemm(&random, [batch, m, n, k], [a, b]),
        Operation::Conv { geometry, planes } => products::conv(&random, geometry, planes, case.pass),
        Operation::ConvTransposed { geometry, planes } => {
            products::conv_transposed(&random, geometry, planes, case.pass)
        }
        Operation::OccupancyHead { channels, voxels, classes } => {
            fused::head(&random, [channels, voxels, classes], case.pass)
        }
        Operation::VoxelEncoder { points, width, channels, per_voxel } => {
            fused::encoder(&random, [points, width, channels, per_voxel], case.pass)
        }
        operation => layers::layer(&random, operation, case.pass),
    }
}

/// Makes operands: uniform in [-1, 1), the same at every run.
struct Random {
    device: Device,
    dtype: DType,
}

impl Random {
    /// Of the precision that is timed.
    fn tensor<const D: usize>(&self, seed: u32, shape: [usize; D]) -> Tensor<D> {
        self.full(seed, shape).cast(self.dtype)
    }

    /// In f32, as statistics and what is learned of a norm are.
    fn full<const D: usize>(&self, seed: u32, shape: [usize; D]) -> Tensor<D> {
        let values: Vec<f32> = (0..shape.iter().product::<usize>() as u32).map(|i| uniform(i ^ seed << 28)).collect();
        Tensor::from_data(TensorData::new(values, shape), &self.device)
    }
}

/// PCG's output function (O'Neill 2014) of a counter, as a number in [-1, 1).
fn uniform(i: u32) -> f32 {
    let state = i.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let word = (state >> ((state >> 28) + 4) ^ state).wrapping_mul(277_803_737);
    (word >> 22 ^ word) as f32 / (1u32 << 31) as f32 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_burn_is_the_pinned_one() {
        let manifest = include_str!("../../../Cargo.toml");
        assert!(manifest.contains(&format!("burn = {{ version = \"={BURN_VERSION}\"")));
    }

    #[test]
    fn a_filter_takes_words_in_any_case_and_an_unknown_one_lists_what_there_is() {
        let chosen = select("LMSCNet 64x64x16 conv3d weight", false).unwrap();
        assert_eq!(chosen.len(), 4);
        assert!(chosen.iter().all(|case| case.pass == Pass::WeightGradient));
        let Err(Error::Usage(unknown)) = select("conv5d", false) else { panic!("there is no such operation") };
        for word in ["conv5d", "lmscnet 64x64x16", "conv3d transposed", "weight gradient", "encoder_block1"] {
            assert!(unknown.contains(word), "{unknown}");
        }
        let Err(Error::Usage(long)) = select("256x256x32", false) else { panic!("these take long") };
        assert!(long.contains("--all"), "{long}");
        assert!(!select("256x256x32", true).unwrap().is_empty());
    }

    #[test]
    fn operands_fill_their_range_evenly() {
        let values: Vec<f32> = (0..100_000).map(uniform).collect();
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.01 && values.iter().all(|v| (-1.0..1.0).contains(v)), "{mean}");
        let below = values.iter().filter(|v| **v < -0.5).count();
        assert!((24_000..26_000).contains(&below), "{below}");
    }
}
