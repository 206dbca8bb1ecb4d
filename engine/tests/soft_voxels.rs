//! Differentiable voxelization on every device: against sums over all voxels in f64, and their central differences.

use burn::tensor::{Device, Tensor, TensorData};
use occam_engine::Error;
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::ops::soft_occupancy::{soft_counts, soft_occupancy};
use occam_engine::ops::voxelize::voxelize;
use occam_scene::{AxisOrder, GridSpec};

/// Software Vulkan (Debian: mesa-vulkan-drivers), and the CPU.
fn devices() -> [Device; 2] {
    [gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device, Device::flex()]
}

/// SplitMix64, uniform in [0, 1).
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Points over the grid and one voxel around it.
    fn points(&mut self, spec: &GridSpec, count: usize) -> Vec<[f32; 3]> {
        let along = |random: &mut Self, a: usize| random.unit() * (spec.counts[a] as f32 + 2.0) - 1.0;
        let point = |random: &mut Self| [0, 1, 2].map(|a| spec.origin_m[a] + spec.voxel_size_m[a] * along(random, a));
        (0..count).map(|_| point(self)).collect()
    }
}

fn on<const D: usize>(values: &[[f32; D]], device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values.as_flattened().to_vec(), [values.len(), D]), device)
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec::<f32>().unwrap()
}

/// Weight of a point for a voxel, and the points (x, y, z, in voxels) in f64.
fn weight(place: [f64; 3], voxel: [usize; 3]) -> f64 {
    (0..3).map(|a| (1.0 - (place[a] - (voxel[a] as f64 + 0.5)).abs()).max(0.0)).product()
}

fn places(points: &[[f32; 3]], spec: &GridSpec) -> Vec<[f64; 3]> {
    let place = |p: &[f32; 3]| {
        [0, 1, 2].map(|a| (f64::from(p[a]) - f64::from(spec.origin_m[a])) / f64::from(spec.voxel_size_m[a]))
    };
    points.iter().map(place).collect()
}

/// Soft counts in the order z, x, y.
fn expected_counts(places: &[[f64; 3]], spec: &GridSpec) -> Vec<f64> {
    let [nx, ny, nz] = spec.counts;
    let mut counts = Vec::new();
    for z in 0..nz {
        for x in 0..nx {
            for y in 0..ny {
                counts.push(
                    places.iter().filter(|p| p.iter().all(|c| c.is_finite())).map(|p| weight(*p, [x, y, z])).sum(),
                );
            }
        }
    }
    counts
}

#[track_caller]
fn assert_near(found: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        assert!(error <= tolerance * (1.0 + expected.abs()), "{what}: [{i}] is {found}, expected {expected}");
    }
}

fn small_grid() -> GridSpec {
    GridSpec { axis_order: AxisOrder::Zyx, ..GridSpec::new([-1.0, 0.5, -0.3], [0.5, 0.25, 0.4], [5, 4, 3]) }
}

#[test]
fn a_point_spreads_over_the_centres_around_it() {
    // Halves and quarters: every number is exact.
    let spec = GridSpec::new([0.0; 3], [1.0; 3], [2, 2, 2]);
    let of = |points: &[[f32; 3]], device: &Device| {
        floats(soft_counts(on(points, device), &[0, points.len()], &spec).unwrap())
    };
    for device in devices() {
        // In the centre of x = 1, y = 0, z = 0; the order is z, x, y.
        assert_eq!(of(&[[1.5, 0.5, 0.5]], &device), [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(of(&[[1.0; 3]; 3], &device), [0.375; 8]);
        // A quarter from x = 0 to 1, in the upper layer.
        assert_eq!(of(&[[0.75, 0.5, 1.5]], &device), [0.0, 0.0, 0.0, 0.0, 0.75, 0.0, 0.25, 0.0]);
        // A quarter of a voxel outside: a quarter of it still counts. Half a voxel outside nothing does.
        assert_eq!(of(&[[-0.25, 0.5, 0.5]], &device), [0.25, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(of(&[[0.5, 2.25, 1.5]], &device), [0.0, 0.0, 0.0, 0.0, 0.0, 0.25, 0.0, 0.0]);
        let nowhere =
            [[-0.5, 0.5, 0.5], [0.5, 2.5, 0.5], [0.5, 0.5, -7.0], [f32::NAN, 0.5, 0.5], [0.5, f32::INFINITY, 0.5]];
        assert_eq!(of(&nowhere, &device), [0.0; 8]);
        let occupancy = soft_occupancy(on(&[[0.5; 3]; 2], &device), &[0, 2], &spec).unwrap();
        assert_near(&floats(occupancy)[..2], &[1.0 - (-2f64).exp(), 0.0], 1e-6, "occupancy");
    }
}

#[test]
fn soft_counts_equal_the_formula_on_ugly_sizes() {
    let grids =
        [small_grid(), GridSpec::new([0.0; 3], [0.7; 3], [1, 1, 1]), GridSpec::new([3.0; 3], [0.1; 3], [9, 1, 7])];
    for device in devices() {
        for (number, spec) in grids.iter().enumerate() {
            for count in [0, 1, 255, 256, 257, 1000] {
                let mut points = Random(count as u64).points(spec, count);
                for (point, bad) in points.iter_mut().step_by(5).zip([f32::NAN, f32::INFINITY, 3e38, -1e9]) {
                    point[number] = bad;
                }
                // The second member has no points.
                let offsets = [0, count / 3, count / 3, count];
                let counts = || floats(soft_counts(on(&points, &device), &offsets, spec).unwrap());
                let found = counts();
                for (member, ends) in offsets.windows(2).enumerate() {
                    let expected = expected_counts(&places(&points[ends[0]..ends[1]], spec), spec);
                    let found = &found[member * spec.len()..(member + 1) * spec.len()];
                    assert_near(found, &expected, 1e-5, &format!("grid {number}, {count} points, {device:?}"));
                }
                assert!(counts() == found, "{device:?}: twice the same");
            }
        }
    }
}

#[test]
fn full_cells_are_summed_in_several_dispatches() {
    const COUNT: usize = 16_384 * 2 + 100;
    let spec = GridSpec::new([0.0; 3], [1.0; 3], [2, 1, 1]);
    let points = vec![[1.0, 0.5, 0.5]; COUNT];
    for device in devices() {
        let counts = soft_counts(on(&points, &device), &[0, COUNT], &spec).unwrap();
        assert_eq!(floats(counts), [COUNT as f32 / 2.0; 2], "{device:?}");
    }
}

/// Loss of some occupancies: a sum with different weights, so that every voxel matters.
fn factor(voxel: usize) -> f64 {
    ((voxel * 37 % 11) as f64 - 4.0) / 8.0
}

#[test]
fn the_gradient_of_soft_occupancy_is_the_central_difference() {
    let spec = small_grid();
    let points = Random(3).points(&spec, 120);
    let offsets = [0, 50, 120];
    let loss = |places: &[[f64; 3]]| -> f64 {
        let members = [&places[..50], &places[50..]].map(|places| expected_counts(places, &spec));
        members.iter().flatten().enumerate().map(|(voxel, count)| factor(voxel) * (1.0 - (-count).exp())).sum()
    };
    let at = places(&points, &spec);
    let step = 1e-6;
    let mut expected = Vec::new();
    for point in 0..points.len() {
        for axis in 0..3 {
            let [above, below] = [step, -step].map(|step| {
                let mut moved = at.clone();
                moved[point][axis] += step;
                loss(&moved)
            });
            expected.push((above - below) / (2.0 * step) / f64::from(spec.voxel_size_m[axis]));
        }
    }
    assert!(expected.iter().filter(|slope| slope.abs() > 1e-3).count() > 100);
    for device in devices() {
        let device = device.autodiff();
        let points = on(&points, &device).require_grad();
        let occupancy = soft_occupancy(points.clone(), &offsets, &spec).unwrap();
        let factors: Vec<f32> = (0..2 * spec.len()).map(|voxel| factor(voxel) as f32).collect();
        let factors = Tensor::<4>::from_data(TensorData::new(factors, occupancy.dims()), &device);
        let mut gradients = (occupancy * factors).sum().backward();
        let found = points.grad_remove(&mut gradients).unwrap();
        assert_near(&floats(found), &expected, 1e-4, &format!("gradient on {device:?}"));
    }
}

#[test]
fn dense_points_have_a_gradient_and_points_outside_have_none() {
    let spec = GridSpec::new([0.0; 3], [1.0; 3], [2, 1, 1]);
    // Five points a quarter from x = 0 to x = 1, then one beyond the grid and one that is not finite.
    let mut points = vec![[0.75, 0.5, 0.5]; 5];
    points.extend([[7.0, 0.5, 0.5], [f32::NAN, 0.5, 0.5]]);
    // d(1 - exp(-5/4)) / dx of one point at x = 1.
    let slope = (-1.25f64).exp();
    for device in devices() {
        let device = device.autodiff();
        let points = on(&points, &device).require_grad();
        let occupancy = soft_occupancy(points.clone(), &[0, 7], &spec).unwrap();
        let mut gradients = occupancy.slice([0..1, 0..1, 1..2, 0..1]).sum().backward();
        let found = floats(points.grad_remove(&mut gradients).unwrap());
        let along_x: Vec<f32> = found.iter().step_by(3).copied().collect();
        assert_near(&along_x, &[slope, slope, slope, slope, slope, 0.0, 0.0], 1e-6, &format!("{device:?}"));
    }
}

#[test]
fn no_points_have_an_empty_gradient() {
    for device in devices() {
        let device = device.autodiff();
        let points = Tensor::<2>::zeros([0, 3], &device).require_grad();
        let occupancy = soft_occupancy(points.clone(), &[0, 0], &small_grid()).unwrap();
        let mut gradients = occupancy.sum().backward();
        assert_eq!(points.grad_remove(&mut gradients).unwrap().dims(), [0, 3]);
    }
}

#[test]
fn the_gradient_of_mean_features_is_shared_among_the_points_of_a_voxel() {
    let spec = GridSpec::new([0.0; 3], [1.0; 3], [2, 1, 1]);
    // Three points in one voxel, one in the other, two in none.
    let points =
        [[0.2, 0.5, 0.5], [5.0, 0.0, 0.0], [1.5, 0.5, 0.5], [0.4, 0.1, 0.9], [f32::NAN, 0.0, 0.0], [0.9, 0.5, 0.5]];
    let features = [[1.0, 10.0], [9.0, 9.0], [4.0, -8.0], [2.0, 20.0], [7.0, 7.0], [6.0, 0.0]];
    for device in devices() {
        let device = device.autodiff();
        let features = on(&features, &device).require_grad();
        let voxels = voxelize(on(&points, &device), Some(features.clone()), None, &[0, 6], &spec).unwrap();
        let means = voxels.features.unwrap();
        assert_near(&floats(means.clone()), &[3.0, 10.0, 4.0, -8.0], 1e-6, "means");
        let factors = Tensor::<2>::from_data([[3.0, -6.0], [0.5, 2.0]], &device);
        let mut gradients = (means * factors).sum().backward();
        let found = floats(features.grad_remove(&mut gradients).unwrap());
        let expected = [1.0, -2.0, 0.0, 0.0, 0.5, 2.0, 1.0, -2.0, 0.0, 0.0, 1.0, -2.0];
        assert_near(&found, &expected, 1e-6, &format!("gradient on {device:?}"));
    }
}

#[test]
fn the_gradient_of_mean_features_is_the_central_difference() {
    let spec = small_grid();
    let mut random = Random(9);
    let points = random.points(&spec, 200);
    let features: Vec<[f32; 3]> = (0..200).map(|_| [random.unit(), random.unit() - 0.5, 3.0 * random.unit()]).collect();
    let mut voxels: Vec<[usize; 3]> = points.iter().filter_map(|point| spec.voxel_of(*point)).collect();
    voxels.sort_unstable();
    voxels.dedup();
    // The squares of all means, added.
    let loss = |features: &[[f64; 3]]| -> f64 {
        let square = |voxel: &[usize; 3]| -> f64 {
            let members: Vec<usize> = (0..200).filter(|i| spec.voxel_of(points[*i]) == Some(*voxel)).collect();
            let mean = |column: usize| members.iter().map(|i| features[*i][column]).sum::<f64>() / members.len() as f64;
            (0..3).map(|column| mean(column).powi(2)).sum()
        };
        voxels.iter().map(square).sum()
    };
    let at: Vec<[f64; 3]> = features.iter().map(|row| row.map(f64::from)).collect();
    let mut expected = Vec::new();
    for point in 0..200 {
        for column in 0..3 {
            let [above, below] = [1e-5, -1e-5].map(|step| {
                let mut moved = at.clone();
                moved[point][column] += step;
                loss(&moved)
            });
            expected.push((above - below) / 2e-5);
        }
    }
    for device in devices() {
        let device = device.autodiff();
        let features = on(&features, &device).require_grad();
        let found = voxelize(on(&points, &device), Some(features.clone()), None, &[0, 100, 200], &spec);
        assert!(found.unwrap().len() > voxels.len(), "two members hold more voxels than one");
        let found = voxelize(on(&points, &device), Some(features.clone()), None, &[0, 200], &spec).unwrap();
        let mut gradients = found.features.unwrap().powi_scalar(2).sum().backward();
        let found = floats(features.grad_remove(&mut gradients).unwrap());
        assert_near(&found, &expected, 1e-5, &format!("gradient on {device:?}"));
    }
}

#[test]
fn features_of_points_in_no_voxel_have_no_gradient() {
    for device in devices() {
        let device = device.autodiff();
        for count in [0, 2] {
            let features = Tensor::<2>::ones([count, 2], &device).require_grad();
            let points = on(&vec![[-9.0; 3]; count], &device);
            let voxels = voxelize(points, Some(features.clone()), None, &[0, count], &small_grid()).unwrap();
            let mut gradients = voxels.features.unwrap().sum().backward();
            let found = features.grad_remove(&mut gradients).unwrap();
            assert_eq!(found.dims(), [count, 2]);
            assert_eq!(floats(found), vec![0.0; 2 * count], "{device:?}");
        }
    }
}

#[test]
fn a_grid_too_large_for_the_device_is_refused() {
    let [vulkan, _] = devices();
    let spec = GridSpec::new([0.0; 3], [0.1; 3], [1024, 1024, 1024]);
    let error = soft_counts(on(&[[0.5; 3]], &vulkan), &[0, 1], &spec).unwrap_err();
    assert!(matches!(&error, Error::TooLarge(text) if text.contains("soft grid 1x1024x1024x1024")), "{error}");
}
