//! What a run notes about each step.

use serde::{Deserialize, Serialize};

/// One optimizer step. The field names are those of `metrics.jsonl`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Counted from 1.
    pub step: usize,
    pub loss: f64,
    pub lr: f64,
    /// Global norm before clipping.
    pub grad_norm: f64,
    pub step_ms: f64,
    /// Time the step waited for the loader, within `step_ms`.
    pub wait_ms: f64,
    pub in_use_bytes: Option<u64>,
    pub reserved_bytes: Option<u64>,
    pub peak_bytes: Option<u64>,
}
