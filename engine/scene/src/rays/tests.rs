use super::*;
use crate::AxisOrder;
use crate::demo::rng::Rng;

/// The place of a position, by the words of the module.
fn place(spec: &GridSpec, position_m: [f32; 3]) -> [i64; 3] {
    std::array::from_fn(|axis| {
        let inverse = (1.0 / f64::from(spec.voxel_size_m[axis])) as f32;
        let voxels = (position_m[axis] - spec.origin_m[axis]) * inverse;
        2 * (f64::from(voxels) * 64.0).floor() as i64 + 1
    })
}

/// All voxels of a way, the first included: every border between the ends, sorted by the exact share of the way at which
/// it is reached, then by axis.
fn way(from: [i64; 3], to: [i64; 3]) -> Vec<[i64; 3]> {
    let mut crossings: Vec<(i128, i128, usize)> = Vec::new();
    for axis in 0..3 {
        let (low, high) = (from[axis].min(to[axis]), from[axis].max(to[axis]));
        for border in (low.div_euclid(128) + 1..).map(|border| border * 128).take_while(|border| *border < high) {
            crossings.push(((border - from[axis]).abs().into(), (high - low).into(), axis));
        }
    }
    crossings.sort_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)).then(a.2.cmp(&b.2)));
    let mut voxel = from.map(|place| place.div_euclid(128));
    let mut voxels = vec![voxel];
    for (_, _, axis) in crossings {
        voxel[axis] += (to[axis] - from[axis]).signum();
        voxels.push(voxel);
    }
    assert_eq!(voxel, to.map(|place| place.div_euclid(128)));
    voxels
}

fn index(spec: &GridSpec, voxel: [i64; 3]) -> Option<usize> {
    let inside = (0..3).all(|axis| (0..spec.counts[axis] as i64).contains(&voxel[axis]));
    inside.then(|| spec.index(voxel.map(|place| place as usize)))
}

fn plain_cast(spec: &GridSpec, sensor_m: [f32; 3], ends_m: &[[f32; 3]]) -> Vec<RayState> {
    let mut state = vec![RayState::Unknown; spec.len()];
    for end in ends_m {
        let way = way(place(spec, sensor_m), place(spec, *end));
        for (step, voxel) in way.iter().enumerate() {
            if let Some(index) = index(spec, *voxel) {
                state[index] = state[index].max(if step + 1 == way.len() { RayState::Hit } else { RayState::Free });
            }
        }
    }
    state
}

fn plain_sees(spec: &GridSpec, occupied: &[bool], voxel: [usize; 3], sensor_m: [f32; 3]) -> bool {
    let sensor = place(spec, sensor_m);
    for next in way(voxel.map(|place| place as i64 * 128 + 64), sensor) {
        let Some(index) = index(spec, next) else { return true };
        if next != sensor.map(|place| place.div_euclid(128)) && occupied[index] {
            return false;
        }
    }
    true
}

fn plain_occlusion(spec: &GridSpec, occupied: &[bool], sensors_m: &[[f32; 3]]) -> Occlusion {
    let hidden = |from: &[[f32; 3]]| -> Vec<bool> {
        let voxels = (0..spec.len()).map(|index| (index, spec.voxel_at(index)));
        voxels.map(|(i, v)| !occupied[i] && !from.iter().any(|s| plain_sees(spec, occupied, v, *s))).collect()
    };
    Occlusion { occluded: hidden(&sensors_m[..sensors_m.len().min(1)]), invalid: hidden(sensors_m) }
}

/// A grid, its occupied voxels, and positions: anywhere, on borders and corners of voxels, in centres, outside.
fn scene(seed: u64) -> (GridSpec, Vec<bool>, Vec<[f32; 3]>) {
    let mut rng = Rng::of(&[seed]);
    let mut below = |n: usize| (rng.unit() * n as f64) as usize;
    let counts = [1 + below(14), 1 + below(14), 1 + below(9)];
    let size = [0.2, 0.5, 0.25, 1.0, 0.1];
    let size =
        if seed.is_multiple_of(2) { [size[below(5)]; 3] } else { [size[below(5)], size[below(5)], size[below(5)]] };
    let axis_order = if seed.is_multiple_of(3) { AxisOrder::Zyx } else { AxisOrder::Xyz };
    let spec = GridSpec { axis_order, ..GridSpec::new([-1.0, 0.3 * below(5) as f32, -0.7], size, counts) };
    let share = [0.02, 0.1, 0.3][below(3)];
    let occupied = (0..spec.len()).map(|_| below(1000) < (share * 1000.0) as usize).collect();
    let mut positions = Vec::new();
    for kind in 0..40 {
        // In voxels, from one grid before the grid to one behind it.
        let voxels: [f32; 3] = std::array::from_fn(|axis| {
            let cell = below(3 * counts[axis] + 1) as f32 - counts[axis] as f32;
            match kind % 4 {
                0 => cell,
                1 => cell + 0.5,
                2 => below(counts[axis]) as f32 + below(1000) as f32 / 1000.0,
                _ => cell + below(1000) as f32 / 1000.0,
            }
        });
        positions.push(std::array::from_fn(|axis| spec.origin_m[axis] + voxels[axis] * size[axis]));
    }
    // Ways along an axis, and along diagonals through edges and corners, from each of the first positions.
    for first in 0..8 {
        let along = |steps: [f32; 3]| std::array::from_fn(|axis| positions[first][axis] + steps[axis] * size[axis]);
        let steps = [[4.0, 0.0, 0.0], [0.0, -5.0, 0.0], [0.0, 0.0, 3.0], [4.0, -4.0, 0.0], [0.0, 3.0, 3.0], [5.0; 3]];
        let more: Vec<[f32; 3]> = steps.into_iter().map(along).collect();
        positions.extend(more);
    }
    (spec, occupied, positions)
}

#[test]
fn cast_equals_a_plain_march_on_random_scenes() {
    let mut totals = [0; 3];
    for seed in 0..20 {
        let (spec, _, positions) = scene(seed);
        for sensor in &positions[..8] {
            let mut state = vec![RayState::Unknown; spec.len()];
            cast(&spec, *sensor, &positions, &mut state);
            assert_eq!(state, plain_cast(&spec, *sensor, &positions), "scene {seed}, sensor {sensor:?}");
            for state in state {
                totals[state as usize] += 1;
            }
        }
    }
    assert!(totals.iter().all(|total| *total > 1000), "{totals:?}");
}

#[test]
fn occlusion_equals_a_plain_march_on_random_scenes() {
    let (mut occluded, mut invalid) = (0, 0);
    for seed in 0..20 {
        let (spec, occupied, positions) = scene(seed);
        for sensors in [&positions[..1], &positions[1..2], &positions[2..3], &positions[8..14], &positions[3..5]] {
            let found = occlusion(&spec, &occupied, sensors);
            assert_eq!(found, plain_occlusion(&spec, &occupied, sensors), "scene {seed}, sensors {sensors:?}");
            occluded += found.occluded.iter().filter(|hidden| **hidden).count();
            invalid += found.invalid.iter().filter(|hidden| **hidden).count();
        }
    }
    assert!(invalid > 1000 && occluded > invalid + 1000, "{occluded} occluded, {invalid} invalid");
}

/// Unit voxels; the sensor in the middle of the first.
fn row(counts: [usize; 3]) -> (GridSpec, [f32; 3]) {
    (GridSpec::new([0.0; 3], [1.0; 3], counts), [0.5; 3])
}

#[test]
fn a_ray_frees_what_it_passes_and_hits_its_end() {
    use RayState::{Free, Hit, Unknown};
    let (spec, sensor) = row([5, 1, 1]);
    let mut state = vec![Unknown; 5];
    cast(&spec, sensor, &[[2.5, 0.5, 0.5]], &mut state);
    assert_eq!(state, [Free, Free, Hit, Unknown, Unknown]);
    // A later ray through a hit leaves it; one that ends in a voxel passed before hits it. Beyond the grid there is no end.
    cast(&spec, sensor, &[[9.5, 0.5, 0.5]], &mut state);
    assert_eq!(state, [Free, Free, Hit, Free, Free]);
    cast(&spec, sensor, &[[1.5, 0.5, 0.5], [0.6, 0.5, 0.5]], &mut state);
    assert_eq!(state, [Hit, Hit, Hit, Free, Free]);
}

#[test]
fn slanted_rays_pass_the_voxels_of_a_hand_calculation() {
    let spec = GridSpec::new([-0.5, -2.5, -2.5], [1.0; 3], [8, 5, 5]);
    let passed = |spec: &GridSpec, end: [f32; 3]| {
        let mut state = vec![RayState::Unknown; spec.len()];
        cast(spec, [0.0; 3], &[end], &mut state);
        let mut voxels: Vec<_> = (0..spec.len()).filter(|i| state[*i] != RayState::Unknown).collect();
        voxels.sort_by_key(|index| spec.voxel_at(*index));
        voxels.into_iter().map(|index| spec.voxel_at(index)).collect::<Vec<_>>()
    };
    assert_eq!(passed(&spec, [2.4, 0.1, 0.0]), [[0, 2, 2], [1, 2, 2], [2, 2, 2]]);
    // y = x / 2 passes the border 0.5 at x = 1.
    assert_eq!(passed(&spec, [2.4, 1.2, 0.1]), [[0, 2, 2], [1, 2, 2], [1, 3, 2], [2, 3, 2]]);
    // y = -2 x passes its borders at x = 0.25 and 0.75 and leaves at 1.25, z = -x / 2 passes its border at x = 1.
    let down = [[0, 1, 2], [0, 2, 2], [1, 0, 1], [1, 0, 2], [1, 1, 2]];
    assert_eq!(passed(&spec, [6.0, -12.0, -3.0]), down);
    let ahead = GridSpec { origin_m: [1.0, -2.5, -2.5], ..spec };
    assert_eq!(passed(&ahead, [3.2, 0.1, 0.1]), [[0, 2, 2], [1, 2, 2], [2, 2, 2]]);
    assert!(passed(&ahead, [-3.0, 0.1, 0.1]).is_empty());
}

#[test]
fn ends_that_are_not_finite_or_out_of_reach_have_no_ray() {
    let (spec, sensor) = row([4, 1, 1]);
    let mut state = vec![RayState::Unknown; 4];
    let far = REACH_VOXELS as f32;
    let ends = [[f32::NAN, 0.5, 0.5], [f32::INFINITY, 0.5, 0.5], [0.5, f32::NEG_INFINITY, 0.5], [far, 0.5, 0.5]];
    cast(&spec, sensor, &ends, &mut state);
    cast(&spec, [f32::NAN, 0.5, 0.5], &[[2.5, 0.5, 0.5]], &mut state);
    cast(&spec, [-far, 0.5, 0.5], &[[2.5, 0.5, 0.5]], &mut state);
    assert_eq!(state, [RayState::Unknown; 4]);
    let within = f32::from_bits(far.to_bits() - 1);
    cast(&spec, sensor, &[[within, 0.5, 0.5]], &mut state);
    assert_eq!(state, [RayState::Free; 4]);
}

#[test]
fn the_longest_ways_in_reach_are_exact() {
    let spec = GridSpec::new([0.0; 3], [1.0; 3], [64, 64, 64]);
    let near = REACH_VOXELS as f32 - 0.7;
    let (sensor, ends) = ([-near, -near, -near], [[near, near - 11.0, near], [near, near, near - 5.0], [near; 3]]);
    let mut state = vec![RayState::Unknown; spec.len()];
    cast(&spec, sensor, &ends, &mut state);
    assert_eq!(state, plain_cast(&spec, sensor, &ends));
    assert!(state.contains(&RayState::Free));
}

#[test]
fn a_wall_hides_what_lies_behind_it() {
    let (spec, sensor) = row([6, 1, 1]);
    let wall = [false, false, true, false, true, false];
    let behind = occlusion(&spec, &wall, &[sensor]);
    assert_eq!(behind.occluded, [false, false, false, true, false, true]);
    assert_eq!(behind.invalid, behind.occluded);
    // From the other end, outside the grid, the last is seen.
    let both = occlusion(&spec, &wall, &[sensor, [8.0, 0.5, 0.5]]);
    assert_eq!(both.occluded, behind.occluded);
    assert_eq!(both.invalid, [false, false, false, true, false, false]);
}

#[test]
fn a_sensor_sees_out_of_an_occupied_voxel_and_nothing_from_out_of_reach() {
    let (spec, sensor) = row([4, 1, 1]);
    let own = [true, false, false, false];
    assert_eq!(occlusion(&spec, &own, &[sensor]).occluded, [false; 4]);
    let empty = [false, true, true, true];
    for nowhere in [vec![], vec![[f32::NAN; 3]], vec![[1e9, 0.5, 0.5]]] {
        let found = occlusion(&spec, &own, &nowhere);
        assert_eq!((&found.occluded[..], &found.invalid[..]), (&empty[..], &empty[..]), "{nowhere:?}");
    }
    let second = occlusion(&spec, &own, &[[f32::NAN; 3], sensor]);
    assert_eq!((&second.occluded[..], &second.invalid[..]), (&empty[..], &[false; 4][..]));
}

#[test]
fn the_sensors_voxel_hides_nothing_even_above_one_that_does() {
    let spec = GridSpec::new([0.0; 3], [1.0; 3], [3, 1, 2]);
    // The sensor near the far wall of its voxel, which is occupied, as is the voxel below.
    let occupied = [true, true, false, false, false, false];
    // From (1, 0) the way crosses x = 1 after 0.5 of 1.4, before z = 1 after half: through the voxel below the sensor's.
    // From (2, 0) it crosses z = 1 after half, before x = 1 after 1.5 of 2.4.
    let found = occlusion(&spec, &occupied, &[[0.1, 0.5, 1.5]]);
    assert_eq!(found.occluded, [false, false, true, false, false, false]);
}
