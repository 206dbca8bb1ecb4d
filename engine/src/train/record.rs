//! What a run notes about each step.

use serde::{Deserialize, Serialize};

use crate::gpu::MemoryKinds;

/// One optimizer step. The field names are those of `metrics.jsonl`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Counted from 1.
    pub step: usize,
    pub loss: f64,
    pub lr: f64,
    /// Global norm before clipping.
    pub grad_norm: f64,
    /// What the loss was multiplied by, where it was.
    #[serde(default)]
    pub loss_scale: Option<f64>,
    /// The gradients were not finite, and only the loss scale moved.
    #[serde(default)]
    pub skipped: bool,
    /// Share of the gradients' values that are 0.
    #[serde(default)]
    pub zero_gradient_share: Option<f64>,
    /// The first parameter whose gradient is not finite.
    #[serde(default)]
    pub nonfinite: Option<String>,
    pub step_ms: f64,
    /// Time the step waited for the loader, within `step_ms`.
    pub wait_ms: f64,
    pub in_use_bytes: Option<u64>,
    pub reserved_bytes: Option<u64>,
    /// Most since the run began.
    pub peak_bytes: Option<u64>,
    /// Most in this step.
    #[serde(default)]
    pub step_peak_bytes: Option<u64>,
    /// When most was in use: a segment and its stretch, such as `head 1:1 dilation 2 backward`, or `optimizer`.
    #[serde(default)]
    pub peak_at: Option<String>,
    /// By what the bytes were for at that moment.
    #[serde(default)]
    pub memory: Option<MemoryKinds>,
}
