//! Rays through SemanticKITTI's grid in the demo world: the CPU, and the kernels where a device is found.
//!
//! Occlusion is that of one anchor: the sensor of the scan and of 70 later ones, a metre apart. Casting is that of one
//! scan of the demo's sensor.

use std::hint::black_box;
use std::time::Duration;

use burn::tensor::{Tensor, TensorData};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::ops::rays;
use occam_scene::rays::RayState;
use occam_scene::{GridSpec, demo};

const SENSORS: usize = 71;

fn rays(criterion: &mut Criterion) {
    let spec = GridSpec::new([0.0, -25.6, -2.0], [0.2; 3], [256, 256, 32]);
    let scene = demo::scene(3, 10, &spec);
    let occupied: Vec<bool> = scene.target.labels.iter().map(|label| *label != spec.empty_id).collect();
    let sensors: Vec<[f32; 3]> = (0..SENSORS).map(|scan| [scan as f32, 0.02 * scan as f32, 0.0]).collect();
    let points = scene.cloud.positions;
    let cpu = |sensors: &[[f32; 3]]| occam_scene::rays::occlusion(&spec, black_box(&occupied), sensors);
    let hidden = cpu(&sensors);
    let count = |hidden: &[bool]| hidden.iter().filter(|hidden| **hidden).count();
    let (seen_by_none, by_first) = (count(&hidden.invalid), count(&hidden.occluded));
    println!("{} voxels, {by_first} occluded, {seen_by_none} invalid; {} rays", spec.len(), points.len());

    let mut group = criterion.benchmark_group("rays");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    group.bench_function(format!("cpu, occlusion from {SENSORS} sensors"), |bench| bench.iter(|| cpu(&sensors)));
    group.bench_function("cpu, occlusion from 1 sensor", |bench| bench.iter(|| cpu(&sensors[..1])));
    group.throughput(Throughput::Elements(points.len() as u64));
    let mut states = vec![RayState::Unknown; spec.len()];
    group.bench_function("cpu, cast", |bench| {
        bench.iter(|| occam_scene::rays::cast(&spec, [0.0; 3], black_box(&points), &mut states));
    });

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
        let on_device = Tensor::from_data(TensorData::new(points.as_flattened().to_vec(), [points.len(), 3]), &device);
        let cast = || {
            let states = rays::cast(on_device.clone(), &[0, points.len()], &[[0.0; 3]], &spec).unwrap();
            device.sync().unwrap();
            states
        };
        group.bench_function(format!("{kind}, cast"), |bench| bench.iter(cast));
        let numbers: Vec<i32> = occupied.iter().map(|occupied| i32::from(*occupied)).collect();
        let numbers = Tensor::from_data(TensorData::new(numbers, [spec.len()]), &device);
        let occlusion = |sensors: &[[f32; 3]]| {
            let hidden = rays::occlusion(numbers.clone(), sensors, &spec).unwrap();
            device.sync().unwrap();
            hidden
        };
        group.throughput(Throughput::Elements(spec.len() as u64));
        let label = format!("{kind}, occlusion from 1 sensor");
        group.bench_function(label, |bench| bench.iter(|| occlusion(&sensors[..1])));
        if !name.starts_with("SOFTWARE") {
            let label = format!("{kind}, occlusion from {SENSORS} sensors");
            group.bench_function(label, |bench| bench.iter(|| occlusion(&sensors)));
        }
    }
    group.finish();
}

criterion_group!(benches, rays);
criterion_main!(benches);
