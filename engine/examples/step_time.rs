//! Times training steps of LMSCNet-SS on the CPU (forward, loss, backward; batch 1) and counts peak heap bytes, and the
//! same of the loss alone, from its logits to their gradient.
//!
//! One JSON line a shape and loss. `RAYON_NUM_THREADS` sets the threads (2 unless given). Arguments: names of shapes to
//! run, such as `64x64x16`, none runs all, and of losses, such as `lovasz`, none runs cross-entropy.
//! `tests/peers/lmscnet_step.py` prints the same lines from PyTorch.

use std::time::Instant;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use occam_engine::gpu::{CountingAllocator, memory_use, reset_peak};
use occam_engine::losses::{ClassWeights, LossConfig, Losses, Targets};
use occam_engine::models::{Network, Passes};
use occam_scene::GridSpec;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Grid x, y, z; classes; timed steps.
const SHAPES: [([usize; 3], usize, usize); 3] =
    [([64, 64, 16], 12, 5), ([128, 128, 16], 20, 3), ([256, 256, 32], 20, 3)];

const LOSSES: [&str; 5] = ["cross-entropy", "lovasz", "semantic-affinity", "geometric-affinity", "focal"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let threads = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    let (mut losses, shapes): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|name| LOSSES.contains(&name.as_str()));
    if losses.is_empty() {
        losses.push(LOSSES[0].into());
    }
    for (counts, classes, steps) in SHAPES {
        let [x, y, z] = counts;
        let name = format!("{x}x{y}x{z}");
        if !shapes.is_empty() && !shapes.contains(&name) {
            continue;
        }
        let device = Device::flex();
        let network = Network::new("lmscnet-ss", counts, 1, classes, 0, &device.clone().autodiff())?;
        let (occupancy, targets) = sample(counts, classes, &device);
        for loss in &losses {
            let spec = GridSpec::new([0.0; 3], [1.0; 3], counts);
            let losses = Losses::new(&config(loss), Tensor::ones([classes], &device), &spec);
            let of_logits = |logits: Tensor<5>| losses.total(vec![logits], std::slice::from_ref(&targets)).unwrap();
            let (loss_seconds, before, loss_peak, _) = {
                let logits = network.valid().forward(occupancy.clone())?.swap_remove(0);
                measure(steps, &device, || {
                    let loss = of_logits(logits.clone().autodiff().require_grad());
                    let gradients = loss.backward();
                    (loss.inner(), gradients)
                })
            };
            // As a run does it, nothing recomputed.
            let passes = Passes { by_planes: losses.by_planes(), ..Passes::default() };
            let (seconds, _, peak, value) = measure(steps, &device, || {
                let mut loss = |_, logits, range| losses.of_planes(logits, &targets, range, 1);
                let learned = network.learn(occupancy.clone(), &passes, &mut loss).unwrap();
                (learned.loss, learned.gradients)
            });
            let line = serde_json::json!({
                "who": "occam", "grid": name, "classes": classes, "threads": threads, "steps": steps, "kind": loss,
                "seconds_per_step": seconds, "peak_bytes": peak, "loss": value,
                "loss_seconds": loss_seconds, "loss_peak_bytes": loss_peak - before,
            });
            println!("{line}");
        }
    }
    Ok(())
}

/// Weight 1 for the loss of this name and 0 for the others.
fn config(loss: &str) -> LossConfig {
    let weight = |name: &str| f64::from(u8::from(name == loss));
    LossConfig {
        class_weights: ClassWeights::None,
        cross_entropy: weight("cross-entropy"),
        lovasz: weight("lovasz"),
        semantic_affinity: weight("semantic-affinity"),
        geometric_affinity: weight("geometric-affinity"),
        focal: weight("focal"),
        focal_gamma: 2.0,
    }
}

/// Median seconds of `step`, which gives a loss and its gradients, bytes before, peak bytes, and the last loss.
fn measure<G>(steps: usize, device: &Device, step: impl Fn() -> (Tensor<1>, G)) -> (f64, u64, u64, f32) {
    let memory = || memory_use(device).unwrap_or_default();
    let mut seconds = Vec::new();
    let (mut before, mut peak, mut value) = (0, 0, 0.0);
    // The first step warms caches and allocator and is not counted.
    for number in 0..=steps {
        reset_peak();
        before = memory().in_use_bytes;
        let start = Instant::now();
        let (loss, gradients) = step();
        let elapsed = start.elapsed().as_secs_f64();
        value = loss.into_scalar::<f32>();
        drop(gradients);
        peak = memory().peak_bytes;
        if number > 0 {
            seconds.push(elapsed);
        }
    }
    seconds.sort_by(f64::total_cmp);
    (seconds[steps / 2], before, peak, value)
}

/// A tenth of the voxels occupied, and a class for each.
fn sample([x, y, z]: [usize; 3], classes: usize, device: &Device) -> (Tensor<5>, Targets) {
    let hash = |i: usize| (i as u32).wrapping_mul(2_654_435_761) >> 16;
    let occupancy: Vec<f32> = (0..x * y * z).map(|i| f32::from(u8::from(hash(i) % 10 == 0))).collect();
    let targets: Vec<u8> = (0..x * y * z).map(|i| (hash(i + 1) % classes as u32) as u8).collect();
    let shape = [1, z, x, y];
    (
        Tensor::from_data(TensorData::new(occupancy, [1, 1, z, x, y]), device),
        Targets::new(&targets, shape, classes, 255, device),
    )
}
