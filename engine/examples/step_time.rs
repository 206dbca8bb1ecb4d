//! Times training steps of LMSCNet-SS on the CPU (forward, cross-entropy, backward; batch 1) and counts peak heap bytes.
//!
//! One JSON line a shape. `RAYON_NUM_THREADS` sets the threads (2 unless given). Arguments: names of shapes to run, such
//! as `64x64x16`; none runs all. `tests/peers/lmscnet_step.py` prints the same lines from PyTorch.

use std::time::Instant;

use burn::tensor::{Device, Int, Tensor, TensorData};
use occam_engine::gpu::{CountingAllocator, memory_use, reset_peak};
use occam_engine::losses::cross_entropy;
use occam_engine::models::Network;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Grid x, y, z; classes; timed steps.
const SHAPES: [([usize; 3], usize, usize); 3] =
    [([64, 64, 16], 12, 5), ([128, 128, 16], 20, 3), ([256, 256, 32], 20, 3)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let threads = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for (counts, classes, steps) in SHAPES {
        let [x, y, z] = counts;
        let name = format!("{x}x{y}x{z}");
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        let device = Device::flex().autodiff();
        let network = Network::new("lmscnet-ss", counts, 1, classes, 0, &device)?;
        let (occupancy, targets) = sample(counts, classes, &device);
        let weights = Tensor::<1>::ones([classes], &device);
        let mut seconds = Vec::new();
        let mut loss_value = 0.0;
        let mut peak = 0;
        // The first step warms caches and allocator and is not counted.
        for step in 0..=steps {
            reset_peak();
            let start = Instant::now();
            let logits = network.forward(occupancy.clone()).swap_remove(0);
            let loss = cross_entropy(logits, targets.clone(), &weights, 255);
            let gradients = loss.backward();
            let elapsed = start.elapsed().as_secs_f64();
            loss_value = loss.into_scalar::<f32>();
            drop(gradients);
            peak = memory_use(&device).map_or(0, |memory| memory.peak_bytes);
            if step > 0 {
                seconds.push(elapsed);
            }
        }
        seconds.sort_by(f64::total_cmp);
        let line = serde_json::json!({
            "who": "occam", "grid": name, "classes": classes, "threads": threads, "steps": steps,
            "seconds_per_step": seconds[steps / 2], "peak_bytes": peak, "loss": loss_value,
        });
        println!("{line}");
    }
    Ok(())
}

/// A tenth of the voxels occupied, and a class for each.
fn sample([x, y, z]: [usize; 3], classes: usize, device: &Device) -> (Tensor<5>, Tensor<4, Int>) {
    let hash = |i: usize| (i as u32).wrapping_mul(2_654_435_761) >> 16;
    let occupancy: Vec<f32> = (0..x * y * z).map(|i| f32::from(u8::from(hash(i) % 10 == 0))).collect();
    let targets: Vec<i32> = (0..x * y * z).map(|i| (hash(i + 1) % classes as u32) as i32).collect();
    let shape = [1, z, x, y];
    (
        Tensor::<4>::from_data(TensorData::new(occupancy, shape), device).unsqueeze_dim(1),
        Tensor::from_data(TensorData::new(targets, shape), device),
    )
}
