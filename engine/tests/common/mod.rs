//! What the tests of matrix products and convolutions share: devices, numbers, sums in f64 and what they may differ by.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use burn::store::{ModuleStore, SafetensorsStore, bridge};
use burn::tensor::{DType, Device, Tensor, TensorData};
use half::f16;
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::ops::gemm::gemm_error_bound;

pub fn cpu() -> Device {
    gpu::open(&DeviceChoice::Cpu).unwrap().device
}

/// Software Vulkan (Debian: mesa-vulkan-drivers).
pub fn vulkan() -> Device {
    gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device
}

/// Waits for what a device still has to do and nobody reads: a process that ends meanwhile can crash in Mesa's driver.
pub fn settle(device: &Device) {
    device.sync().unwrap();
}

/// What tensors are filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Between -1 and 1, of all the digits of the type. Results may differ from f64 by the stated bound.
    Reals,
    /// From -4 to 4: sums are exact in f32 in any order, so a result may only differ by its own rounding. A term that is
    /// lost or taken twice in a long sum hides within the bound of reals, and shows here.
    Integers,
}

impl Values {
    /// `n` numbers of the type, the same on every run.
    pub fn take(self, dtype: DType, n: usize, seed: u32) -> Vec<f64> {
        let unit = |i: usize| hash(seed.wrapping_mul(0x0019_660d).wrapping_add(i as u32)) as f64 / (1u64 << 32) as f64;
        match self {
            Self::Reals => (0..n).map(|i| round(dtype, 2.0 * unit(i) - 1.0)).collect(),
            Self::Integers => (0..n).map(|i| (9.0 * unit(i)).floor() - 4.0).collect(),
        }
    }

    /// Most that a sum of `terms` products may be off, in parts of the sum of their magnitudes.
    pub fn error(self, dtype: DType, terms: usize) -> f64 {
        match self {
            Self::Reals => gemm_error_bound(dtype, terms),
            Self::Integers => 0.0,
        }
    }

    /// Most that storing a number, itself known up to `error`, may change it.
    pub fn rounding(self, dtype: DType, value: f64, error: f64) -> f64 {
        match (self, dtype) {
            (Self::Integers, _) => (round(dtype, value) - value).abs(),
            // Half of the last digit: f16 has 11 digits, and none below 2^-24.
            (Self::Reals, DType::F16) => (value.abs() + error).log2().floor().exp2().max(1.0 / 16384.0) / 2048.0,
            (Self::Reals, _) => (value.abs() + error) / 16_777_216.0,
        }
    }
}

fn hash(word: u32) -> u32 {
    let word = (word ^ (word >> 16)).wrapping_mul(0x7feb_352d);
    let word = (word ^ (word >> 15)).wrapping_mul(0x846c_a68b);
    word ^ (word >> 16)
}

/// The nearest number of the type.
pub fn round(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F16 => f16::from_f64(value).to_f64(),
        _ => f64::from(value as f32),
    }
}

/// Exact in f32 whatever the type.
pub fn tensor<const D: usize>(values: &[f64], shape: [usize; D], dtype: DType, device: &Device) -> Tensor<D> {
    let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), (device, dtype))
}

pub fn read<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.try_into_data().unwrap().try_to_vec_as().unwrap()
}

/// Numbers computed in f64, and how large the terms were that they are made of.
#[derive(Debug, Clone)]
pub struct Sums {
    pub value: Vec<f64>,
    pub magnitude: Vec<f64>,
}

impl Sums {
    pub fn zeros(n: usize) -> Self {
        Self { value: vec![0.0; n], magnitude: vec![0.0; n] }
    }

    pub fn add(&mut self, place: usize, term: f64) {
        self.value[place] += term;
        self.magnitude[place] += term.abs();
    }
}

/// Fails unless every `found` is within its own `tolerance` of `expected`.
#[track_caller]
pub fn assert_within(found: &[f64], expected: &[f64], tolerance: impl Fn(usize) -> f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: number of values");
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let tolerance = tolerance(place);
        assert!(
            (found - expected).abs() <= tolerance,
            "{what}[{place}]: found {found}, expected {expected} within {tolerance:e}"
        );
    }
}

/// Checks every case in both types with both kinds of values, and fails at the end with a list of those that failed.
pub fn check_all<C: Debug>(cases: &[C], device: &Device, check: fn(&C, DType, Values, &Device)) {
    let mut failed = Vec::new();
    for case in cases {
        for dtype in [DType::F32, DType::F16] {
            for values in [Values::Reals, Values::Integers] {
                let checked = catch_unwind(AssertUnwindSafe(|| check(case, dtype, values, device)));
                failed.extend(checked.is_err().then(|| format!("{dtype:?} {values:?} {case:?}")));
            }
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

/// One tensor of engine/tests/golden/arithmetic.safetensors (tests/generators/arithmetic.py).
pub fn golden(name: &str) -> (Vec<usize>, Vec<f64>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/arithmetic.safetensors");
    let mut store = SafetensorsStore::from_file(path);
    let data = bridge::to_data(&store.get_all_tensors().unwrap()[name]).unwrap();
    (data.shape().to_vec(), data.try_to_vec_as().unwrap())
}

/// The numbers the generator fills tensor `k` of a case with: `sin(0.7 i + k)` in f32.
pub fn wave(n: usize, k: usize) -> Vec<f64> {
    (0..n).map(|i| round(DType::F32, (0.7 * i as f64 + k as f64).sin())).collect()
}
