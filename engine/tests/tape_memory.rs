//! What a tape holds and for how long, counted by the allocator. One test, because all of a process is counted.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use occam_engine::Error;
use occam_engine::gpu::{self, CountingAllocator, DeviceChoice, memory_use};
use occam_engine::losses::{ClassWeights, LossConfig, Losses, Targets};
use occam_engine::models::{Learned, Network, Passes};
use occam_engine::scene::GridSpec;
use occam_engine::tape::Mode::{self, Recompute};
use occam_engine::tape::{Lap, Trace};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const COUNTS: [usize; 3] = [64, 64, 32];
const CLASSES: usize = 20;
const VOXELS: u64 = 64 * 64 * 32;
/// Of a value of the head: 8 channels.
const HEAD: u64 = VOXELS * 8 * 4;
/// Vectors, weights and the like.
const SMALL: u64 = HEAD / 10;

fn in_use(device: &Device) -> u64 {
    memory_use(device).unwrap().in_use_bytes
}

fn learn(network: &Network, losses: &Losses, targets: &Targets, modes: &[Mode], device: &Device) -> Learned {
    let x = Tensor::<5>::ones([1, 1, 32, 64, 64], device);
    let passes = Passes { modes, by_planes: true, traced: true, ..Passes::default() };
    let mut loss = |_: usize, logits, planes| losses.of_planes(logits, targets, planes, 1);
    network.learn(x, &passes, &mut loss).unwrap()
}

/// What came to be in use from the end of one segment's forward pass to that of another.
fn grown(trace: &Trace, from: &str, to: &str) -> u64 {
    let after = |name: &str| trace.segments.iter().find(|run| run.name == name).unwrap().forward.after_bytes;
    after(to) - after(from)
}

#[test]
fn values_live_no_longer_than_somebody_needs_them() {
    let device = gpu::open(&DeviceChoice::Cpu).unwrap().device;
    let network = Network::new("lmscnet-ss", COUNTS, 1, CLASSES, 0, &device.clone().autodiff()).unwrap();
    let config = LossConfig {
        class_weights: ClassWeights::None,
        cross_entropy: 1.0,
        lovasz: 0.0,
        semantic_affinity: 0.0,
        geometric_affinity: 0.0,
        focal: 0.0,
        focal_gamma: 2.0,
    };
    let losses = Losses::new(&config, Tensor::ones([CLASSES], &device), &GridSpec::new([0.0; 3], [1.0; 3], COUNTS));
    let labels: Vec<u8> = (0..VOXELS).map(|i| (i % 7) as u8).collect();
    let targets = Targets::new(&labels, [1, 32, 64, 64], CLASSES, 255, &device);
    // What is made once: parameters, tables, threads.
    drop(learn(&network, &losses, &targets, &[], &device));

    for (name, modes, branches) in [("kept", vec![], 3), ("again", vec![Recompute; 64], 0)] {
        let before = in_use(&device);
        let learned = learn(&network, &losses, &targets, &modes, &device);
        let trace = learned.trace.as_ref().unwrap();
        if std::env::var_os("PRINT").is_some() {
            print(trace, before);
        }
        // Three branches each add to a sum, which goes on as an addend: only the last is held, and of branches that keep what
        // they need, what lies between their two convolutions.
        let grown = grown(trace, "head 1:1 conv0", "head 1:1 dilation 3");
        let expected = (branches + 1) * HEAD;
        assert!(grown.abs_diff(expected) < SMALL, "{name}: {grown} bytes, expected {expected}");
        // The gradient of the features takes their place. Beside it there are logits of 4 planes of 32, 20 for 8 features, and
        // their features with one more plane on either side, both once more as gradients: 0.94 of the features.
        let lap = trace.losses[0].lap;
        assert!(lap.after_bytes.abs_diff(lap.before_bytes) < SMALL, "{name}: {lap:?}");
        assert!(lap.peak_bytes - lap.before_bytes < 2 * HEAD, "{name}: {lap:?}");
        // What was held for the backward pass is gone with it. Left are the gradients of the parameters.
        let left = trace.segments[0].backward.after_bytes - before;
        let expected = 4 * network.num_params() as u64;
        assert!(left.abs_diff(expected) < SMALL, "{name}: {left} bytes are left, expected {expected}");
        drop(learned);
        let left = in_use(&device).saturating_sub(before);
        assert!(left < SMALL, "{name}: {left} bytes are left");
    }

    let before = in_use(&device);
    let mut calls = 0;
    let mut failing = |_: usize, logits: Tensor<5>, _| {
        calls += 1;
        if calls == 3 { Err(Error::Failed("the third planes".into())) } else { Ok(logits.sum()) }
    };
    let passes = Passes { by_planes: true, ..Passes::default() };
    let x = Tensor::<5>::ones([1, 1, 32, 64, 64], &device);
    assert!(network.learn(x, &passes, &mut failing).is_err());
    let left = in_use(&device).saturating_sub(before);
    assert!(left < SMALL, "{left} bytes are left of a step that failed");
}

fn print(trace: &Trace, before: u64) {
    let head = |bytes: u64| (bytes as f64 - before as f64) / HEAD as f64;
    let text = |lap: Lap| {
        let Lap { before_bytes, after_bytes, peak_bytes, ms } = lap;
        format!("{:.3} -> {:.3}, peak {:.3}, {ms:.1} ms", head(before_bytes), head(after_bytes), head(peak_bytes))
    };
    for run in &trace.segments {
        let again = run.again.map(text);
        println!("{:20} {} | {again:?} | {}", run.name, text(run.forward), text(run.backward));
    }
    println!("loss {}", text(trace.losses[0].lap));
}
