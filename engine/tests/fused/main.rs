//! Operations that keep no intermediates, with their gradients: against plain loops in f64, against PyTorch (golden file of
//! tests/generators/fused.py), exactly where numbers are exact, and at the edges.

#[path = "../common/mod.rs"]
#[allow(dead_code)]
mod common;
mod encoder;
mod head;

use std::path::Path;

use burn::store::{ModuleStore, SafetensorsStore, bridge};

/// One tensor of engine/tests/golden/fused.safetensors (tests/generators/fused.py).
fn golden(name: &str) -> (Vec<usize>, Vec<f64>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/fused.safetensors");
    let mut store = SafetensorsStore::from_file(path);
    let data = bridge::to_data(&store.get_all_tensors().unwrap()[name]).unwrap();
    (data.shape().to_vec(), data.try_to_vec_as().unwrap())
}
