//! Rays on every device: the kernels against `occam_scene::rays`, which has its own tests against a plain march.

use burn::tensor::{Device, Int, Tensor, TensorData};
use occam_engine::Error;
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::ops::rays;
use occam_scene::rays::{REACH_VOXELS, RayState};
use occam_scene::{AxisOrder, GridSpec};

/// Software Vulkan (Debian: mesa-vulkan-drivers), and the CPU.
fn devices() -> [Device; 2] {
    [gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device, Device::flex()]
}

/// SplitMix64: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 33) as usize * n) >> 31
    }

    /// A position up to one grid before or behind the grid: anywhere, on borders, in centres.
    fn position(&mut self, spec: &GridSpec) -> [f32; 3] {
        let kind = self.below(3);
        std::array::from_fn(|axis| {
            let cell = self.below(3 * spec.counts[axis] + 1) as f32 - spec.counts[axis] as f32;
            let share = [0.0, 0.5, self.below(1000) as f32 / 1000.0][kind];
            spec.origin_m[axis] + (cell + share) * spec.voxel_size_m[axis]
        })
    }
}

fn grids() -> Vec<GridSpec> {
    let turned = GridSpec { axis_order: AxisOrder::Zyx, ..GridSpec::new([-2.0, 1.0, -0.5], [0.2; 3], [9, 17, 5]) };
    vec![
        GridSpec::new([0.0, -1.6, -1.0], [0.2; 3], [16, 16, 8]),
        turned,
        GridSpec::new([0.3, 0.0, -4.0], [0.1, 0.35, 1.0], [7, 30, 3]),
        GridSpec::new([0.0; 3], [0.5; 3], [1, 1, 1]),
        GridSpec::new([0.0; 3], [0.25; 3], [65, 1, 1]),
    ]
}

fn points_on(points: &[[f32; 3]], device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(points.as_flattened().to_vec(), [points.len(), 3]), device)
}

fn ints<const D: usize>(tensor: Tensor<D, Int>) -> Vec<i32> {
    tensor.try_into_data().unwrap().try_to_vec::<i32>().unwrap()
}

/// Rays of a batch, by the scene's function for each member, in the order of the networks.
fn expected_cast(points: &[[f32; 3]], offsets: &[usize], sensors: &[[f32; 3]], spec: &GridSpec) -> Vec<i32> {
    let mut expected = Vec::new();
    for (member, sensor) in sensors.iter().enumerate() {
        let mut states = vec![RayState::Unknown; spec.len()];
        occam_scene::rays::cast(spec, *sensor, &points[offsets[member]..offsets[member + 1]], &mut states);
        for z in 0..spec.counts[2] {
            for x in 0..spec.counts[0] {
                expected.extend((0..spec.counts[1]).map(|y| states[spec.index([x, y, z])] as i32));
            }
        }
    }
    expected
}

#[test]
fn a_ray_is_free_up_to_its_hit() {
    let spec = GridSpec::new([0.0; 3], [1.0; 3], [4, 2, 2]);
    for device in devices() {
        let points = points_on(&[[2.5, 0.5, 0.5], [0.5, 1.5, 1.5]], &device);
        let states = rays::cast(points, &[0, 1, 1, 2], &[[0.5; 3]; 3], &spec).unwrap();
        assert_eq!(states.dims(), [3, 2, 4, 2]);
        #[rustfmt::skip]
        let expected = [
            // z = 0, then 1; a row for each x.
            1, 0,  1, 0,  2, 0,  0, 0,    0, 0,  0, 0,  0, 0,  0, 0,
            0, 0,  0, 0,  0, 0,  0, 0,    0, 0,  0, 0,  0, 0,  0, 0,
            // Through the edge in the middle: y before z.
            1, 1,  0, 0,  0, 0,  0, 0,    0, 2,  0, 0,  0, 0,  0, 0,
        ];
        assert_eq!(ints(states), expected, "{device:?}");
    }
}

#[test]
fn cast_is_the_same_on_every_device() {
    let devices = devices();
    let mut seen = [0; 3];
    for (number, spec) in grids().iter().enumerate() {
        for count in [0, 1, 63, 64, 65, 255, 256, 257, 1500] {
            let mut random = Random((number * 10_000 + count) as u64);
            let mut points: Vec<[f32; 3]> = (0..count).map(|_| random.position(spec)).collect();
            for (point, bad) in
                points.iter_mut().step_by(7).zip([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38, -1e9])
            {
                point[random.below(3)] = bad;
            }
            let mut sensors: Vec<[f32; 3]> = (0..4).map(|_| random.position(spec)).collect();
            sensors[0] = std::array::from_fn(|axis| spec.origin_m[axis] + 0.4 * spec.voxel_size_m[axis]);
            sensors[3] = [[f32::NAN, 0.0, 0.0], sensors[0]][number % 2];
            let offsets = [0, count / 2, count / 2, count * 3 / 4, count];
            let expected = expected_cast(&points, &offsets, &sensors, spec);
            for state in &expected {
                seen[*state as usize] += 1;
            }
            for device in &devices {
                let states = rays::cast(points_on(&points, device), &offsets, &sensors, spec).unwrap();
                assert!(ints(states) == expected, "grid {number}, {count} points, {device:?}");
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 200), "{seen:?}");
}

#[test]
fn points_next_to_a_border_and_at_the_end_of_reach_fall_the_same_way() {
    // The last origin is such that differences are below the smallest normal number.
    let tiny = f32::from_bits(1);
    let grids = [
        GridSpec::new([0.0, -1.6, -1.0], [0.2; 3], [9, 9, 3]),
        GridSpec::new([0.0; 3], [1.0; 3], [3, 3, 3]),
        GridSpec::new([tiny; 3], [1.0; 3], [3, 3, 3]),
    ];
    for spec in grids {
        let mut points = Vec::new();
        for step in [-1, 0, 1, 2, 3, 9] {
            let border: [f32; 3] = std::array::from_fn(|a| spec.origin_m[a] + spec.voxel_size_m[a] * step as f32);
            for (up, axis) in [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1), (0, 2), (2, 2)] {
                let mut point = border;
                point[axis] = [point[axis].next_down(), point[axis], point[axis].next_up()][up];
                points.push(point);
            }
        }
        let reach = REACH_VOXELS as f32 * spec.voxel_size_m[0];
        for far in [reach.next_down().next_down(), reach.next_down(), reach, reach.next_up(), 1.5 * reach] {
            points.extend([[far, 0.1, 0.1], [-far, 0.1, 0.1], [far, -far, far]]);
        }
        points.extend([[-tiny, tiny, 0.0], [tiny, -tiny, -0.0], [f32::MIN_POSITIVE, -f32::MIN_POSITIVE, 0.0]]);
        let sensor = spec.centre_m([1, 1, 1]);
        // One cloud a point, so that no ray covers another.
        let offsets: Vec<usize> = (0..=points.len()).collect();
        let sensors = vec![sensor; points.len()];
        let expected = expected_cast(&points, &offsets, &sensors, &spec);
        for device in devices() {
            let states = ints(rays::cast(points_on(&points, &device), &offsets, &sensors, &spec).unwrap());
            for (member, point) in points.iter().enumerate() {
                let range = member * spec.len()..(member + 1) * spec.len();
                assert_eq!(states[range.clone()], expected[range], "{point:?} in {spec:?} on {device:?}");
            }
        }
    }
}

#[test]
fn occlusion_is_the_same_on_every_device() {
    let devices = devices();
    let mut seen = [0; 3];
    for (number, spec) in grids().iter().enumerate() {
        for share in [0, 3, 30] {
            let mut random = Random((number * 100 + share) as u64);
            let occupied: Vec<bool> = (0..spec.len()).map(|_| random.below(100) < share).collect();
            let mut sensors: Vec<[f32; 3]> = (0..5).map(|_| random.position(spec)).collect();
            sensors.push([f32::NAN; 3]);
            // Inside an occupied voxel, if there is one.
            if let Some(index) = occupied.iter().position(|occupied| *occupied) {
                sensors.push(spec.centre_m(spec.voxel_at(index)));
            }
            for sensors in [&sensors[..0], &sensors[..1], &sensors[5..], &sensors[..], &sensors[3..]] {
                let found = occam_scene::rays::occlusion(spec, &occupied, sensors);
                let expected: Vec<i32> =
                    (0..spec.len()).map(|i| i32::from(found.occluded[i]) + i32::from(found.invalid[i])).collect();
                for hidden in &expected {
                    seen[*hidden as usize] += 1;
                }
                for device in &devices {
                    let numbers: Vec<i32> = occupied.iter().map(|occupied| i32::from(*occupied) * 7).collect();
                    let numbers = Tensor::from_data(TensorData::new(numbers, [spec.len()]), device);
                    let hidden = rays::occlusion(numbers, sensors, spec).unwrap();
                    assert!(ints(hidden) == expected, "grid {number}, {share} %, {sensors:?}, {device:?}");
                }
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 500), "{seen:?}");
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let spec = GridSpec::new([0.0; 3], [1.0; 3], [2, 2, 2]);
    for device in devices() {
        let points = || points_on(&[[0.5; 3]; 2], &device);
        let sensor = [0.0; 3];
        let fails = |offsets: &[usize], sensors: &[[f32; 3]], spec: &GridSpec, words: &str| {
            let error = rays::cast(points(), offsets, sensors, spec).unwrap_err();
            assert!(matches!(&error, Error::Usage(text) if text.contains(words)), "{error}");
        };
        fails(&[0, 2], &[sensor; 2], &spec, "2 sensors for 1 clouds");
        fails(&[0, 3], &[sensor], &spec, "offsets");
        fails(&[0, 2], &[sensor], &GridSpec::new([0.0; 3], [0.0; 3], [2; 3]), "voxel size");
        let occupied = Tensor::from_data(TensorData::new(vec![0; 7], [7]), &device);
        let error = rays::occlusion(occupied, &[sensor], &spec).unwrap_err();
        assert!(matches!(&error, Error::Usage(text) if text.contains("7 entries for a grid of [2, 2, 2]")), "{error}");
    }
}
