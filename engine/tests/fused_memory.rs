//! What the operations that keep no intermediates hold at their peak, forward and backward, beside the same made of others,
//! counted by the allocator. One test, because all of a process is counted.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use occam_engine::gpu::{self, CountingAllocator, DeviceChoice, memory_use, reset_peak};
use occam_engine::ops::{self, Activation, GemmOptions, Layout};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Peak bytes of `work` above what there is before, its arguments among it.
fn peak<T>(device: &Device, arguments: impl FnOnce() -> T, work: impl FnOnce(T)) -> u64 {
    reset_peak();
    let before = memory_use(device).unwrap().in_use_bytes;
    work(arguments());
    memory_use(device).unwrap().peak_bytes - before
}

#[test]
fn neither_logits_nor_values_of_points_are_stored() {
    let device = gpu::open(&DeviceChoice::Cpu).unwrap().device;
    let leaf = device.clone().autodiff();
    let numbers = |n: usize| (0..n).map(|i| (i * 7919 % 257) as f32 / 128.0 - 1.0).collect::<Vec<f32>>();
    let matrix = |rows: usize, columns: usize| {
        Tensor::<2>::from_data(TensorData::new(numbers(rows * columns), [rows, columns]), &leaf).require_grad()
    };
    let bias = |n: usize| Tensor::<1>::from_data(TensorData::new(numbers(n), [n]), &leaf).require_grad();
    let ints = |values: Vec<u32>| {
        let len = values.len();
        Tensor::<1, Int>::from_data(TensorData::new(values, [len]), (&device, DType::U32))
    };

    let (channels, voxels, classes) = (8, 1 << 17, 20);
    let labels = ints((0..voxels as u32).map(|voxel| voxel % 20).collect()).reshape([1, voxels]);
    let class_weights = Tensor::<1>::ones([classes], &device);
    // Features that nobody else holds: their gradient takes their place.
    let arguments =
        || (matrix(channels, voxels).mul_scalar(2.0).reshape([1, channels, voxels]), matrix(classes, channels));
    let fused = peak(&device, arguments, |(x, weight)| {
        let loss = ops::occupancy_head(x, weight, bias(classes), labels.clone(), class_weights.clone(), 0.0).unwrap();
        drop(loss.sum().backward());
    });
    let unfused = peak(&device, arguments, |(x, weight)| {
        let logits = ops::gemm(weight.unsqueeze(), x, GemmOptions::default()).unwrap();
        drop(ops::cross_entropy(logits, labels.clone(), class_weights.clone(), 0.0).unwrap().sum().backward());
    });
    let a_voxel = |bytes: u64| bytes as f64 / voxels as f64;
    println!("head: {:.1} bytes a voxel, {:.1} of product and cross-entropy", a_voxel(fused), a_voxel(unfused));
    // Leaf and its double, of 8 channels in f32, gradients of one of them, loss and its gradient; logits would be 80 bytes.
    assert!(a_voxel(fused) < 110.0, "{} bytes a voxel", a_voxel(fused));
    assert!(a_voxel(unfused) - a_voxel(fused) > 50.0, "{} and {}", a_voxel(unfused), a_voxel(fused));

    let (points, width, channels, per_voxel) = (60_000, 9, 64, 10);
    let voxels = points / per_voxel;
    let order = ints((0..points as u32).collect());
    let starts = ints((0..=voxels).map(|voxel| (voxel * per_voxel) as u32).collect());
    let arguments = || (matrix(points, width), matrix(channels, width), bias(channels));
    let fused = peak(&device, arguments, |(x, weight, bias)| {
        let y = ops::voxel_encoder(x, order.clone(), starts.clone(), weight, bias).unwrap();
        drop(y.sum().backward());
    });
    let voxel_of_point = ints((0..points).map(|point| (point / per_voxel) as u32).collect());
    let unfused = peak(&device, arguments, |(x, weight, bias)| {
        let options =
            GemmOptions { b: Layout::Transposed, bias: Some(bias), activation: Activation::Relu, ..<_>::default() };
        let y = ops::gemm(x.unsqueeze(), weight.unsqueeze(), options).unwrap().reshape([points, channels]);
        let largest = ops::segment_max(y.clone().without_autodiff(), starts.clone());
        let of_points = largest.select(0, voxel_of_point.clone());
        let mask = y.clone().without_autodiff().equal(of_points).float();
        drop((y * mask.autodiff()).sum().backward());
    });
    let a_point = |bytes: u64| bytes as f64 / points as f64;
    println!("encoder: {:.1} bytes a point, {:.1} of separate operations", a_point(fused), a_point(unfused));
    // Features and their gradient twice (36 bytes each), results and their gradients (25.6 each); a value of every channel
    // would be 256 bytes.
    assert!(a_point(fused) < 220.0, "{} bytes a point", a_point(fused));
    assert!(a_point(unfused) > 512.0, "{} bytes a point", a_point(unfused));
}
