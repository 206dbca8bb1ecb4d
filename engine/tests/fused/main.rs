//! Operations that keep no intermediates, with their gradients: against plain loops in f64, against PyTorch (golden file of
//! tests/generators/fused.py), exactly where numbers are exact, and at the edges.

#[path = "../common/mod.rs"]
#[allow(dead_code)]
mod common;
mod head;
