//! What a prediction holds at its peak, counted by the allocator. One test, because all of a process is counted.

use burn::tensor::{Device, Tensor};
use occam_engine::gpu::{self, CountingAllocator, DeviceChoice, memory_use, reset_peak};
use occam_engine::models::Network;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const COUNTS: [usize; 3] = [64, 64, 32];
const VOXELS: usize = 64 * 64 * 32;

/// Bytes a voxel above what was there.
fn peak(device: &Device, run: impl FnOnce()) -> f64 {
    reset_peak();
    let before = memory_use(device).unwrap().in_use_bytes;
    run();
    (memory_use(device).unwrap().peak_bytes - before) as f64 / VOXELS as f64
}

/// SSCNet works at a quarter of the resolution and holds some 55 bytes a voxel; LMSCNet's head, with four tensors of 8
/// channels, some 135.
#[test]
fn class_scores_never_exist_whole() {
    let device = gpu::open(&DeviceChoice::Cpu).unwrap().device;
    for (name, classes) in [("sscnet", 20), ("lmscnet-ss", 100)] {
        let network = Network::new(name, COUNTS, 1, classes, 0, &device).unwrap();
        let predict = || {
            let labels = network.labels(Tensor::ones([1, 1, 32, 64, 64], &device)).unwrap();
            assert_eq!((labels.len(), labels[0].len()), (1, VOXELS));
        };
        // What is made once: tables, threads.
        predict();
        let (found, scores) = (peak(&device, predict), (4 * classes) as f64);
        assert!(found < 0.75 * scores, "{name}: {found:.1} bytes a voxel, and whole class scores have {scores}");
    }
}
