//! Properties of whole worlds. The geometry of single solids is tested beside them.

use glam::{DVec2, DVec3};

use super::shape::{Shape, Solid};
use super::*;
use crate::grid::{AxisOrder, Visibility};

fn moment_of(solids: Vec<Solid>) -> Moment {
    Moment { solids, ..flat_world().at(0) }
}

/// A world whose ground has no tilt.
fn flat_world() -> World {
    let level = |seed: &u64| World::new(*seed).at(0).ground.tilt == DVec2::ZERO;
    World::new((0..100).find(level).unwrap())
}

fn wall() -> Solid {
    Solid {
        shape: Shape::Box { half: DVec2::new(1.0, 8.0), axis: DVec2::X },
        centre: DVec2::new(11.05, 0.0),
        z: [-2.0, 3.0],
        class: class::BUILDING,
        instance: 9,
        velocity: DVec2::ZERO,
    }
}

/// The share of `0..count` for which `holds` is true.
fn share(count: usize, holds: impl Fn(usize) -> bool) -> f64 {
    (0..count).filter(|i| holds(*i)).count() as f64 / count as f64
}

#[test]
fn the_same_seed_frame_and_grid_give_the_same_scene_on_any_thread() {
    let spec = default_spec();
    let here = scene(5, 3, &spec);
    let there = std::thread::spawn(move || scene(5, 3, &spec)).join().unwrap();
    assert_eq!(here, there);
    assert_ne!(here.target.labels, scene(6, 3, &spec).target.labels);
    assert_ne!(here.target.labels, scene(5, 4, &spec).target.labels);
}

#[test]
fn a_scan_has_as_many_points_as_asked_and_every_column_has_its_range() {
    for seed in 0..8 {
        let cloud = scene(seed, 0, &GridSpec::new([0.0; 3], [1.0; 3], [1, 1, 1])).cloud;
        let count = cloud.len();
        assert!((15_000..=31_000).contains(&count), "seed {seed}: {count} points");
        assert_eq!(cloud.sensor, Some([0.0; 3]));
        let columns = (cloud.label.unwrap(), cloud.instance.unwrap(), cloud.ring.unwrap(), cloud.time.unwrap());
        let intensity = cloud.intensity.unwrap();
        assert_eq!([columns.0.len(), columns.1.len(), columns.2.len(), columns.3.len(), intensity.len()], [count; 5]);
        assert!(columns.0.iter().all(|l| (1..class::COUNT as u16).contains(l)));
        assert!(columns.2.iter().all(|r| *r < 48) && columns.2.contains(&0) && columns.2.contains(&47));
        assert!(columns.3.is_sorted() && columns.3.iter().all(|t| (0.0..FRAME_S).contains(t)));
        assert!(intensity.iter().all(|i| (0.0..=1.0).contains(i)));
        // Ground belongs to no object, everything else does.
        assert!(columns.0.iter().zip(&columns.1).all(|(l, i)| (*l <= 3) == (*i == 0)));
    }
}

#[test]
fn an_exact_scan_meets_a_wall_and_the_road_at_the_ranges_of_the_drawing() {
    let lidar = Lidar { beams: 32, azimuths: 1000, elevation_deg: [-24.0, 7.0], ..Lidar::exact() };
    let scan = lidar.scan(&moment_of(vec![wall()]));
    // Straight ahead is half a turn from the first azimuth; the beams are 1 degree apart, beam 24 is level.
    let (turn, beams) = (500, 32);
    assert!((scan.rays[turn * beams + 24].range_m - 10.05).abs() < 1e-5);
    // 24 degrees down, the road is 1.7 / sin(24 degrees) away.
    let down = scan.rays[turn * beams];
    assert!((f64::from(down.range_m) - SENSOR_HEIGHT_M / 24.0_f64.to_radians().sin()).abs() < 1e-4, "{down:?}");
    let point = down.point.unwrap() as usize;
    assert_eq!(scan.cloud.label.as_ref().unwrap()[point], u16::from(class::ROAD));
    assert!((f64::from(scan.cloud.positions[point][2]) + SENSOR_HEIGHT_M).abs() < 1e-4);
    // Above the horizon behind the car there is only sky.
    assert_eq!(scan.rays[31], Ray { range_m: f32::INFINITY, point: None });
}

#[test]
fn noise_and_losses_are_as_large_as_the_sensor_says() {
    let moment = moment_of(vec![wall()]);
    let exact = Lidar::exact().scan(&moment);
    let noisy = Lidar { loss: 1e-9, range_noise_m: 0.05, ..Lidar::default() }.scan(&moment);
    let (mut squares, mut measured) = (0.0, 0);
    for (ray, truth) in noisy.rays.iter().zip(&exact.rays) {
        assert_eq!(ray.range_m, truth.range_m);
        let Some(point) = ray.point else { continue };
        let at = DVec3::from_array(noisy.cloud.positions[point as usize].map(f64::from));
        let error = at.length() - f64::from(truth.range_m);
        squares += error * error;
        measured += 1;
    }
    assert!((squares / f64::from(measured)).sqrt() > 0.048 && (squares / f64::from(measured)).sqrt() < 0.052);
    // The wall is near and met head on: the loss there is the base rate plus a fiftieth of the distance's.
    let lossy = Lidar { loss: 0.3, ..Lidar::default() }.scan(&moment);
    let on_wall: Vec<usize> = (0..exact.rays.len())
        .filter(|i| exact.rays[*i].point.is_some_and(|p| exact.cloud.instance.as_ref().unwrap()[p as usize] == 9))
        .collect();
    let lost = share(on_wall.len(), |i| lossy.rays[on_wall[i]].point.is_none());
    assert!(on_wall.len() > 1000 && (0.27..0.34).contains(&lost), "{lost} of {}", on_wall.len());
}

#[test]
fn the_target_of_a_building_is_a_shell() {
    // Walls from x = 2 to 10, y = -3.9 to 4.1, top 1.1, on a grid of whole metres from x = 0 and y, z = -8.
    let house = Solid {
        shape: Shape::Box { half: DVec2::splat(4.0), axis: DVec2::X },
        centre: DVec2::new(6.1, 0.1),
        z: [-3.0, 1.1],
        ..wall()
    };
    let spec = GridSpec::new([0.0, -8.0, -8.0], [1.0; 3], [16, 16, 16]);
    let target = rasterize(&moment_of(vec![house]), &spec);
    let building = |x: usize, y: i32, z: i32| target.label([x, (y + 8) as usize, (z + 8) as usize]) == class::BUILDING;
    for z in [-1, 0] {
        assert!((2..=10).all(|x| building(x, -4, z) && building(x, 4, z)));
        assert!((-4..=4).all(|y| building(2, y, z) && building(10, y, z)));
        assert!(
            (3..=9).all(|x| (-3..=3).all(|y| target.label([x, (y + 8) as usize, (z + 8) as usize]) == class::EMPTY))
        );
    }
    assert!((2..=10).all(|x| (-4..=4).all(|y| building(x, y, 1) && !building(x, y, 2))));
    assert!((-5..=5).all(|y| !building(1, y, 0) && !building(11, y, 0)));
    // Nothing below the ground, and no ground inside.
    assert_eq!(target.label([5, 8, 6]), class::EMPTY);
    assert!((0..16).all(|x| (0..16).all(|y| (0..6).all(|z| target.label([x, y, z]) == class::EMPTY))));
}

#[test]
fn level_ground_is_one_layer_of_voxels() {
    // The road at -1.7 m lies in layer 1 of the default grid (-2.0 to -1.6), the kerb (0.13 to 0.2 m) in layer 2.
    let moment = moment_of(Vec::new());
    let spec = default_spec();
    let target = rasterize(&moment, &spec);
    let mut roads = 0;
    for x in 0..64 {
        for y in 0..64 {
            let [east, north, _] = spec.centre_m([x, y, 0]).map(f64::from);
            let places = [[-0.18, -0.18], [-0.18, 0.18], [0.18, -0.18], [0.18, 0.18], [0.0, 0.0]];
            if places.iter().all(|[a, b]| moment.ground.at(DVec2::new(east + a, north + b)).0 == class::ROAD) {
                let labels: Vec<u8> = (0..16).map(|z| target.label([x, y, z])).collect();
                assert_eq!((labels[1], labels.iter().filter(|l| **l != class::EMPTY).count()), (class::ROAD, 1));
                roads += 1;
            }
        }
    }
    assert!(roads > 200, "{roads} columns of road");
}

#[test]
fn points_lie_in_voxels_that_the_target_calls_occupied() {
    for (size, counts) in [(0.4, [64, 64, 16]), (0.2, [128, 128, 16]), (0.8, [32, 32, 16])] {
        let spec = GridSpec::new([0.0, -12.8, -2.4], [size; 3], counts);
        let (mut inside, mut occupied, mut agree) = (0_usize, 0_usize, 0_usize);
        for seed in 0..10 {
            let moment = World::new(seed).at(0);
            let (cloud, target) = (Lidar::exact().scan(&moment).cloud, rasterize(&moment, &spec));
            for (position, label) in cloud.positions.iter().zip(cloud.label.unwrap()) {
                let Some(voxel) = spec.voxel_of(*position) else { continue };
                inside += 1;
                occupied += usize::from(target.label(voxel) != class::EMPTY);
                agree += usize::from(u16::from(target.label(voxel)) == label);
            }
        }
        let shares = [occupied, agree].map(|n| n as f64 / inside as f64);
        println!("{size} m: {inside} points, {:.4} in occupied voxels, {:.4} of the same class", shares[0], shares[1]);
        assert!(inside > 10_000 && shares[0] > 0.99 && shares[1] > 0.85, "{size} m: {shares:?}");
    }
}

#[test]
fn hit_voxels_are_seen_and_what_is_behind_a_wall_is_occluded() {
    let spec = default_spec();
    let scan = Lidar::default().scan(&moment_of(vec![wall()]));
    let seen = visibility(&scan, &spec);
    for voxel in scan.cloud.positions.iter().filter_map(|p| spec.voxel_of(*p)) {
        assert_eq!(seen[spec.index(voxel)], Visibility::Seen);
    }
    let at = |p: [f32; 3]| seen[spec.index(spec.voxel_of(p).unwrap())];
    // The wall begins at x = 10.05; the sensor looks level through y = 0, z = 0.
    assert_eq!(at([9.0, 0.1, 0.0]), Visibility::Seen);
    assert_eq!(at([10.1, 0.1, 0.0]), Visibility::Seen);
    assert_eq!(at([10.7, 0.1, 0.0]), Visibility::Occluded);
    assert_eq!(at([20.1, 0.1, 0.0]), Visibility::Occluded);
    // Right beside the sensor, above the highest beam.
    assert_eq!(at([0.2, 5.0, 3.8]), Visibility::Unknown);
    // Under the road.
    assert_eq!(at([6.1, 0.1, -2.2]), Visibility::Occluded);
}

#[test]
fn inside_four_walls_all_is_seen_and_outside_all_is_occluded() {
    let spec = GridSpec::new([-12.0, -12.0, -0.2], [0.5; 3], [48, 48, 1]);
    // Four walls around the sensor at 6 m: what is nearer is seen, what is farther occluded, on every side.
    let boxes = [[6.0, 0.0], [-6.0, 0.0], [0.0, 6.0], [0.0, -6.0]].map(|centre| {
        let centre = DVec2::from_array(centre);
        let half = DVec2::new(0.3, 6.3);
        Solid { shape: Shape::Box { half, axis: centre.normalize() }, centre, z: [-2.0, 2.0], ..wall() }
    });
    let seen = visibility(&Lidar::exact().scan(&moment_of(boxes.to_vec())), &spec);
    for x in 0..48 {
        for y in 0..48 {
            let [east, north, _] = spec.centre_m([x, y, 0]).map(f32::abs);
            let expected = match east.max(north) {
                near if near < 5.5 => Visibility::Seen,
                far if far > 6.5 => Visibility::Occluded,
                _ => continue,
            };
            assert_eq!(seen[spec.index([x, y, 0])], expected, "voxel {x}, {y}");
        }
    }
}

#[test]
fn things_move_by_their_velocity() {
    for seed in 0..10 {
        let world = World::new(seed);
        let (before, after) = (world.at(10), world.at(11));
        let mut moved = 0;
        for solid in before.solids.iter().filter(|s| s.velocity != DVec2::ZERO) {
            // The first piece of each object is the one that carries its place.
            let Some(later) = after.solids.iter().find(|s| {
                s.instance == solid.instance && s.z[0] - s.z[1] == solid.z[0] - solid.z[1] && s.velocity != DVec2::ZERO
            }) else {
                continue;
            };
            let there = |moment: &Moment, at: DVec2| moment.ground.pose.world_from_sensor(at);
            let step = there(&after, later.centre) - there(&before, solid.centre);
            let expected = before.ground.pose.forward.rotate(solid.velocity) * FRAME_S;
            // A bend of radius 55 m turns 1.2 m of way by less than 1.4 cm per metre; a person may turn back.
            let tolerance = 0.03 * expected.length() + 0.002;
            let turned = solid.class == class::PERSON && (step - expected).length() > tolerance;
            assert!(turned || (step - expected).length() < tolerance, "seed {seed}: {step} for {expected}");
            moved += usize::from(!turned);
        }
        assert!(moved > 5, "seed {seed}: {moved} moving things");
        let still = |moment: &Moment| {
            let mut ids: Vec<u32> =
                moment.solids.iter().filter(|s| s.class == class::PARKED_CAR).map(|s| s.instance).collect();
            ids.sort_unstable();
            ids
        };
        let (a, b) = (still(&before), still(&after));
        assert!(a.len() < 4 || a.iter().filter(|id| b.contains(id)).count() * 10 > a.len() * 8);
    }
}

#[test]
fn flow_is_the_velocity_of_the_car_in_the_voxel_and_zero_elsewhere() {
    let velocity = DVec2::new(5.0, -1.5);
    let car = Solid { class: class::MOVING_CAR, velocity, z: [-1.5, -0.5], ..wall() };
    let spec = default_spec();
    let target = rasterize(&moment_of(vec![car]), &spec);
    let flow = target.flow.unwrap();
    let mut moving = 0;
    for (label, flow) in target.labels.iter().zip(&flow) {
        let expected = if *label == class::MOVING_CAR { [5.0, -1.5] } else { [0.0; 2] };
        assert_eq!(*flow, expected);
        moving += usize::from(*label == class::MOVING_CAR);
    }
    // x from 10.05 to 12.05: 6 columns; y from -8 to 8: voxel borders at multiples of 0.4 from -12.8, so 41 with the
    // one that y = 8 touches or 40 without; z from -1.5 to -0.5: layers 2 to 4.
    assert!(moving == 6 * 40 * 3 || moving == 6 * 41 * 3, "{moving}");
}

#[test]
fn at_least_eight_classes_are_in_a_third_of_the_scenes_and_none_is_rare() {
    let spec = default_spec();
    let mut present = [0; class::COUNT];
    for seed in 0..40 {
        let target = rasterize(&World::new(seed).at(0), &spec);
        for (class, count) in present.iter_mut().enumerate() {
            *count += i32::from(target.labels.contains(&(class as u8)));
        }
    }
    println!("scenes of 40 with each class: {present:?}");
    assert!(present[1..].iter().filter(|n| **n >= 20).count() >= 10, "{present:?}");
    assert!(present[1..].iter().all(|n| *n >= 12), "{present:?}");
}

#[test]
fn any_axis_order_and_any_place_of_the_grid_will_do() {
    let spec = GridSpec::new([-6.4, -6.4, -2.4], [0.4; 3], [32, 32, 16]);
    let turned = GridSpec { axis_order: AxisOrder::Zyx, ..spec };
    assert_eq!(scene(3, 0, &turned).target, scene(3, 0, &spec).target.reordered(AxisOrder::Zyx));
    // A grid that is all above the world, one below, one beyond the view.
    for origin in [[0.0, 0.0, 100.0], [0.0, 0.0, -100.0], [5000.0, 0.0, 50.0]] {
        let target = scene(3, 0, &GridSpec { origin_m: origin, ..spec }).target;
        assert_eq!(target.occupied(), 0, "{origin:?}");
    }
    let free = GridSpec { empty_id: 17, ..spec };
    let target = scene(3, 0, &free).target;
    assert_eq!(target.occupied(), scene(3, 0, &spec).target.occupied());
    assert!(!target.labels.contains(&class::EMPTY));
}

#[test]
fn a_sensor_may_have_no_beam_or_only_one() {
    let moment = World::new(1).at(0);
    let spec = GridSpec::new([-6.4, -6.4, -2.4], [0.4; 3], [32, 32, 16]);
    for (beams, azimuths) in [(0, 640), (32, 0), (1, 640), (2, 1)] {
        let scan = Lidar { beams, azimuths, ..Lidar::exact() }.scan(&moment);
        assert_eq!(scan.rays.len(), beams * azimuths);
        let seen = visibility(&scan, &spec);
        let known = seen.iter().any(|v| *v != Visibility::Unknown);
        // Beam 0 looks 25 degrees down all around; straight behind, the grid is as wide.
        assert_eq!(known, beams * azimuths > 0, "{beams} beams, {azimuths} azimuths");
    }
}

#[test]
fn an_instance_is_one_object() {
    for seed in 0..40 {
        let solids = World::new(seed).at(7).solids;
        // The two side branches of the widest crown may be 0.6 * sqrt(2) * 2.3 m from its middle, on opposite sides.
        for (index, solid) in solids.iter().enumerate() {
            for other in solids[..index].iter().filter(|other| other.instance == solid.instance) {
                let apart = solid.centre.distance(other.centre);
                assert!(apart < 4.0 && solid.velocity == other.velocity, "seed {seed}: {solid:?} and {other:?}");
            }
        }
    }
}
