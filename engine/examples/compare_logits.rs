//! Compares the logits of published weights with those that PyTorch gave for the same input.
//!
//! Arguments: weights (.pt, .pth or .safetensors); input, a .npy file of bytes [X, Y, Z], 1 occupied; logits, a .npy file
//! of 32-bit floats [X, Y, Z, classes]; devices (`cpu` unless given). One JSON line a device.

use std::path::Path;
use std::time::Instant;

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::models::Network;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [weights, input, expected, devices @ ..] = arguments.as_slice() else {
        return Err("expected WEIGHTS INPUT LOGITS [DEVICE...]".into());
    };
    let weights = Path::new(weights);
    let info = Network::describe_weights(weights)?;
    let (shape, bytes) = read_npy(input, "|u1")?;
    let [x, y, z] = shape[..] else { return Err(format!("input of shape {shape:?}, expected [X, Y, Z]").into()) };
    let (shape, expected) = read_npy(expected, "<f4")?;
    if shape != [x, y, z, info.classes] {
        return Err(format!("logits of shape {shape:?}, expected {:?}", [x, y, z, info.classes]).into());
    }
    let expected: Vec<f32> = expected.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let default = ["cpu".to_string()];
    for name in if devices.is_empty() { &default } else { devices } {
        let opened = gpu::open(&name.parse::<DeviceChoice>()?)?;
        let mut network = Network::new(info.network, [x, y, z], info.channels, info.classes, 0, &opened.device)?;
        network.load_weights(weights)?;
        let network = network.valid();
        let occupancy: Vec<f32> = bytes.iter().map(|voxel| f32::from(*voxel)).collect();
        // Networks see z as the first spatial axis.
        let features = Tensor::<5>::from_data(TensorData::new(occupancy, [1, 1, x, y, z]), &opened.device);
        let features = features.permute([0, 1, 4, 2, 3]);
        let mut best = f64::INFINITY;
        let mut found = Vec::new();
        for _ in 0..3 {
            let began = Instant::now();
            let logits = network.forward(features.clone())?.swap_remove(0);
            // [1, classes, Z, X, Y] to [1, X, Y, Z, classes].
            found = logits.permute([0, 3, 4, 2, 1]).try_into_data()?.try_into_vec::<f32>()?;
            best = best.min(began.elapsed().as_secs_f64());
        }
        let difference = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let voxels = found.chunks_exact(info.classes).zip(expected.chunks_exact(info.classes));
        let same = voxels.filter(|(a, b)| argmax(a) == argmax(b)).count();
        println!(
            "{}",
            serde_json::json!({
                "device": opened.label, "weights": info.to_string(), "grid": [x, y, z],
                "largest_logit": expected.iter().fold(0.0f32, |most, v| most.max(v.abs())),
                "largest_difference": difference, "same_class": same as f64 / (x * y * z) as f64,
                "seconds": best,
            })
        );
    }
    Ok(())
}

fn argmax(values: &[f32]) -> usize {
    let later_wins = |best: usize, i: usize| if values[i] > values[best] { i } else { best };
    (0..values.len()).fold(0, later_wins)
}

/// Shape and bytes of a .npy file in C order.
fn read_npy(path: &str, kind: &str) -> Result<(Vec<usize>, Vec<u8>), Failure> {
    let bytes = std::fs::read(path)?;
    let length = match bytes.get(..10) {
        Some([0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, low, high]) => usize::from(*low) + 256 * usize::from(*high),
        _ => return Err(format!("{path}: no .npy file of version 1").into()),
    };
    let header = std::str::from_utf8(bytes.get(10..10 + length).ok_or("a header that is cut off")?)?;
    if !header.contains(kind) || !header.contains("'fortran_order': False") {
        return Err(format!("{path}: {header}, expected {kind} in C order").into());
    }
    let shape = header.split(['(', ')']).nth(1).unwrap_or_default();
    let shape: Vec<usize> = shape.split(',').filter_map(|side| side.trim().parse().ok()).collect();
    Ok((shape, bytes[10 + length..].to_vec()))
}
