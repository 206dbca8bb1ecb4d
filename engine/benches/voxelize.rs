//! Voxelization of a million LiDAR-like points: the CPU, a plain hash map, and the kernels where a device is found.
//!
//! `OCCAM_BENCH_POINTS=FILE` writes the points as f32 x, y, z for the peers (tests/peers/voxelize_peers.py).

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

use burn::tensor::{Device, Tensor, TensorData};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use occam_engine::gpu::{self, CountingAllocator, DeviceChoice, memory_use, reset_peak};
use occam_engine::ops::voxelize::cpu::VoxelGroups;
use occam_engine::ops::voxelize::{KeyLayout, occupancy, voxelize};
use occam_scene::GridSpec;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const POINTS: usize = 1_000_000;
const BEAMS: usize = 64;

/// SemanticKITTI's grid.
fn grid() -> GridSpec {
    GridSpec::new([0.0, -25.6, -2.0], [0.2; 3], [256, 256, 32])
}

/// Uniform in [0, 1), from a number.
fn unit(number: usize) -> f64 {
    let mut x = number as u32;
    x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    f64::from(x ^ (x >> 16)) / 4_294_967_296.0
}

/// Fifteen thousand columns of 64 beams that hit flat ground 1.73 m below the sensor or one of 64 walls, 8 to 50 m away,
/// with 1 % of noise in range; six in a hundred lie outside the grid.
fn points() -> Vec<[f32; 3]> {
    let columns = POINTS / BEAMS;
    (0..POINTS)
        .map(|i| {
            let (column, beam) = (i / BEAMS, i % BEAMS);
            // The half circle before the sensor by its rational form.
            let t = (column as f64 + 0.5) / columns as f64 * 2.0 - 1.0;
            let (cos, sin) = ((1.0 - t * t) / (1.0 + t * t), 2.0 * t / (1.0 + t * t));
            let slope = -0.45 + beam as f64 * (0.485 / 63.0);
            let wall = 8.0 + 42.0 * unit(column * 64 / columns);
            let ground = if slope < 0.0 { 1.73 / -slope } else { f64::INFINITY };
            let range = ground.min(wall) * (1.0 + 0.01 * (unit(i + 1000) - 0.5));
            [(range * cos) as f32, (range * sin) as f32, (range * slope) as f32]
        })
        .collect()
}

/// What anyone would write first: a count and a sum a voxel, in one thread.
fn hash_map(points: &[[f32; 3]], spec: &GridSpec) -> HashMap<usize, (u32, [f32; 3])> {
    let mut sums: HashMap<usize, (u32, [f64; 3])> = HashMap::new();
    for point in points {
        if let Some(voxel) = spec.voxel_of(*point) {
            let (count, sum) = sums.entry(spec.index(voxel)).or_default();
            *count += 1;
            for axis in 0..3 {
                sum[axis] += f64::from(point[axis]);
            }
        }
    }
    sums.into_iter().map(|(voxel, (count, sum))| (voxel, (count, sum.map(|s| (s / f64::from(count)) as f32)))).collect()
}

/// Counts and mean positions by voxel, as the hash map gives them.
fn groups(points: &[[f32; 3]], spec: &GridSpec, layout: &KeyLayout) -> (VoxelGroups, Vec<i32>, Vec<f32>) {
    let xyz = points.as_flattened();
    let groups = VoxelGroups::new(xyz, &[0, points.len()], spec, layout);
    let (counts, means) = (groups.counts(), groups.mean_positions(xyz));
    (groups, counts, means)
}

/// Prints the heap that `run` takes at most.
fn report_peak(what: &str, run: impl FnOnce()) {
    let memory = || memory_use(&Device::flex()).unwrap_or_default();
    let before = memory().in_use_bytes;
    reset_peak();
    run();
    println!("{what}: peak {} bytes", memory().peak_bytes.saturating_sub(before));
}

fn voxelization(criterion: &mut Criterion) {
    let (points, spec) = (points(), grid());
    if let Some(path) = std::env::var_os("OCCAM_BENCH_POINTS") {
        std::fs::write(path, bytemuck::cast_slice::<_, u8>(&points)).unwrap();
    }
    let layout = KeyLayout::new(&spec, 1).unwrap();

    let (found, counts, means) = groups(&points, &spec, &layout);
    let expected = hash_map(&points, &spec);
    assert_eq!(found.len(), expected.len());
    for (row, coords) in found.coords(&layout).chunks(4).enumerate() {
        let voxel = [1, 2, 3].map(|a| coords[a] as usize);
        let (count, mean) = expected[&spec.index(voxel)];
        assert_eq!((counts[row], &means[3 * row..][..3]), (count as i32, &mean[..]));
    }
    println!("{POINTS} points, {} inside, {} voxels", found.order.len(), found.len());
    report_peak("cpu", || drop(black_box(groups(&points, &spec, &layout))));
    report_peak("hash map", || drop(black_box(hash_map(&points, &spec))));

    let mut group = criterion.benchmark_group("voxelize");
    group.throughput(Throughput::Elements(POINTS as u64)).sample_size(20).measurement_time(Duration::from_secs(4));
    group.bench_function("cpu", |bench| bench.iter(|| groups(black_box(&points), &spec, &layout)));
    group.bench_function("hash map, one thread", |bench| bench.iter(|| hash_map(black_box(&points), &spec)));

    let (device, name) = match gpu::open(&DeviceChoice::Auto) {
        Ok(opened) if opened.adapter.is_some() => (Some(opened.device), opened.label),
        _ => match gpu::open(&DeviceChoice::Name("llvmpipe".into())) {
            Ok(opened) => (Some(opened.device), format!("SOFTWARE {}", opened.label)),
            Err(error) => (None, error.to_string()),
        },
    };
    println!("kernels: {name}");
    if let Some(device) = device {
        let kind = if name.starts_with("SOFTWARE") { "kernels on a software device" } else { "kernels" };
        let on_device = Tensor::from_data(TensorData::new(points.as_flattened().to_vec(), [POINTS, 3]), &device);
        let kernels = || {
            let voxels = voxelize(on_device.clone(), None, None, &[0, POINTS], &spec).unwrap();
            device.sync().unwrap();
            voxels
        };
        assert_eq!(kernels().len(), found.len());
        let pool = memory_use(&device).unwrap_or_default().reserved_bytes;
        println!("{kind}: the pool takes {pool} bytes, the points included");
        group.sample_size(10);
        group.bench_function(kind, |bench| bench.iter(kernels));
        let dense = || {
            let volume = occupancy(on_device.clone(), &[0, POINTS], &spec).unwrap();
            device.sync().unwrap();
            volume
        };
        group.bench_function(format!("{kind}, dense occupancy"), |bench| bench.iter(dense));
    }
    group.finish();
}

criterion_group!(benches, voxelization);
criterion_main!(benches);
