//! What a training step holds at its peak, counted by the allocator. One test, because all of a process is counted.

use burn::tensor::Tensor;
use occam_engine::gpu::{self, CountingAllocator, DeviceChoice, memory_use, reset_peak};
use occam_engine::losses::{ClassWeights, LossConfig, Losses, Targets};
use occam_engine::models::{Network, Passes};
use occam_engine::scene::GridSpec;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The network's largest layers, of 8 channels and 20 classes, and the goal for a step: half of what PyTorch takes, 350 bytes
/// a voxel. Small grids need some more, for borders.
#[test]
fn a_training_step_keeps_few_bytes_a_voxel() {
    let (counts, classes) = ([64, 64, 32], 20);
    let voxels: usize = counts.iter().product();
    let device = gpu::open(&DeviceChoice::Cpu).unwrap().device;
    let network = Network::new("lmscnet-ss", counts, 1, classes, 0, &device.clone().autodiff()).unwrap();
    let config = LossConfig {
        class_weights: ClassWeights::None,
        cross_entropy: 1.0,
        lovasz: 0.0,
        semantic_affinity: 0.0,
        geometric_affinity: 0.0,
        focal: 0.0,
        focal_gamma: 2.0,
    };
    let losses = Losses::new(&config, Tensor::ones([classes], &device), &GridSpec::new([0.0; 3], [1.0; 3], counts));
    let targets: Vec<u8> = (0..voxels).map(|i| (i % 7) as u8).collect();
    let targets = Targets::new(&targets, [1, 32, 64, 64], classes, 255, &device);
    let x = Tensor::<5>::ones([1, 1, 32, 64, 64], &device);
    reset_peak();
    let before = memory_use(&device).unwrap().in_use_bytes;
    let passes = Passes { by_planes: losses.by_planes(), ..Passes::default() };
    let learned =
        network.learn(x, &passes, &mut |_, logits, planes| losses.of_planes(logits, &targets, planes, 1)).unwrap();
    drop(learned);
    let bytes = memory_use(&device).unwrap().peak_bytes - before;
    assert!(bytes < 400 * voxels as u64, "{} bytes a voxel", bytes / voxels as u64);
}
