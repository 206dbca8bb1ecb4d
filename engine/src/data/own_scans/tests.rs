//! Layouts that are found and refused, targets counted by hand, and sensors in a made-up dense cloud.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use glam::DVec3;
use occam_scene::formats::write_cloud_ply;
use occam_scene::{GridSpec, PointCloud};

use super::super::{Layout, Splits, layout, open};
use super::dense::DenseCloud;
use super::*;
use crate::train::TrainConfig;

fn config() -> DataConfig {
    TrainConfig::from_layers("own-scans", None, &[]).unwrap().data
}

fn write_points(path: &Path, positions: &[[f32; 3]], label: Option<Vec<u16>>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_cloud_ply(path, &PointCloud { positions: positions.to_vec(), label, ..PointCloud::default() }).unwrap();
}

/// A row of 6 x 1 x 1 voxels of 1 m, the sensor in the middle of the first.
fn row() -> GridSpec {
    GridSpec::new([-0.5; 3], [1.0; 3], [6, 1, 1])
}

fn pose(x: f64) -> String {
    format!("1 0 0 {x} 0 1 0 0 0 0 1 0\n")
}

fn opened(folder: &Path, config: &DataConfig, spec: &GridSpec) -> Result<Splits> {
    open(&DataConfig { path: Some(folder.to_path_buf()), ..config.clone() }, spec, 1)
}

fn refusal(folder: &Path) -> String {
    let error = opened(folder, &config(), &row()).err().expect("an error");
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

/// Points of two scans, the second taken 4 m ahead and looking back.
const HERE: [[f32; 3]; 1] = [[2.0, 0.0, 0.0]];
const AHEAD: [[f32; 3]; 2] = [[1.0, 0.0, 0.0], [0.0, 0.0, 0.3]];
const TURNED: &str = "-1 0 0 4 0 -1 0 0 0 0 1 0\n";

#[test]
fn a_target_knows_what_any_scan_around_hit_or_passed() {
    let folder = tempfile::tempdir().unwrap();
    write_points(&folder.path().join("0.ply"), &HERE, None);
    write_points(&folder.path().join("1.ply"), &AHEAD, None);
    fs::write(folder.path().join("poses.txt"), format!("{}{TURNED}", pose(0.0))).unwrap();
    let labels = |config: DataConfig, part: usize| {
        let splits = opened(folder.path(), &config, &row()).unwrap();
        assert_eq!((splits.training.len(), splits.validation.len()), (1, 1));
        let part = if part == 0 { splits.training } else { splits.validation };
        part.sample(0).unwrap().target.labels
    };
    let near = DataConfig { min_range_m: 0.0, ..config() };
    // Alone, the first scan passes voxels 0 and 1 and hits 2. The other stands in voxel 4, hits 3 (1 m before it, turned
    // round) and the voxel it stands in.
    assert_eq!(labels(DataConfig { future_scans: 0, ..near.clone() }, 0), [0, 0, 1, 255, 255, 255]);
    assert_eq!(labels(near.clone(), 0), [0, 0, 1, 1, 1, 255]);
    // What is nearer than half a metre carries the sensor: nothing stands in voxel 4, and the ray to 3 begins in it.
    assert_eq!(labels(DataConfig { min_range_m: 0.5, ..near.clone() }, 0), [0, 0, 1, 1, 0, 255]);
    // In the frame of the second scan, the first stands in voxel 4 and hits voxel 2, on the way back from it passes 3.
    let backwards = DataConfig { min_range_m: 0.5, ..near.clone() };
    assert_eq!(labels(backwards.clone(), 1), [0, 1, 1, 0, 0, 255]);
    assert_eq!(labels(DataConfig { prior_scans: 0, ..backwards }, 1), [0, 1, 255, 255, 255, 255]);
}

#[test]
fn registered_scans_give_the_same_samples_and_a_wrong_frame_is_told() {
    let (sensor, world) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // A wall 3 m ahead and to the left of a sensor that begins 1 km away and turned round.
    let wall: Vec<[f32; 3]> = (0..200).map(|i| [3.0, i as f32 * 0.02, 0.1]).collect();
    let poses = [0, 1, 2, 3, 4, 5].map(|i| format!("-1 0 0 {} 0 -1 0 500 0 0 1 2\n", 1000 + i)).concat();
    for scan in 0..6 {
        write_points(&sensor.path().join(format!("{scan}.ply")), &wall, None);
        let moved: Vec<[f32; 3]> =
            wall.iter().map(|[x, y, z]| [(1000 + scan) as f32 - x, 500.0 - y, 2.0 + z]).collect();
        write_points(&world.path().join(format!("{scan}.ply")), &moved, None);
    }
    for folder in [&sensor, &world] {
        fs::write(folder.path().join("poses.txt"), &poses).unwrap();
    }
    let spec = GridSpec::new([-0.5, -2.5, -0.5], [1.0; 3], [6, 8, 2]);
    let registered = DataConfig { frame: super::super::Frame::World, ..config() };
    let one = opened(sensor.path(), &config(), &spec).unwrap();
    let other = opened(world.path(), &registered, &spec).unwrap();
    for notes in [&one.notes, &other.notes] {
        assert!(notes.iter().all(|note| note.starts_with("1 of 6 scans are left out")), "{notes:?}");
    }
    for index in 0..one.training.len() {
        let [a, b] = [&one, &other].map(|splits| splits.training.sample(index).unwrap());
        assert_eq!(a.target, b.target);
        assert!(a.cloud.positions.iter().zip(&b.cloud.positions).all(|(p, q)| (p[0] - q[0]).abs() < 1e-3));
    }
    // A scan is found in its folder, wherever the folder is named from.
    let pose = sensor_pose(&world.path().join("4.ply")).unwrap().unwrap();
    assert_eq!(pose.w_axis.truncate(), DVec3::new(1004.0, 500.0, 2.0));
    assert_eq!(sensor_pose(&world.path().join("poses.txt")).unwrap(), None);
    let wrong = opened(world.path(), &config(), &spec).unwrap().notes;
    assert!(wrong.iter().any(|note| note.contains("data.frame=world")), "{wrong:?}");
    let wrong = opened(sensor.path(), &registered, &spec).unwrap().notes;
    assert!(wrong.iter().any(|note| note.contains("data.frame=sensor")), "{wrong:?}");
}

#[test]
fn what_looks_odd_is_told_with_what_to_set() {
    let ground = |scale: f32, turn: fn([f32; 3]) -> [f32; 3]| -> Vec<[f32; 3]> {
        let place = |i: u32| [(i % 40) as f32 * 0.5 - 5.0, (i / 40) as f32 * 0.5 - 10.0, -1.7 + (i % 3) as f32 * 0.1];
        (0..1600).map(|i| turn(place(i).map(|v| v * scale))).collect()
    };
    let spec = occam_scene::demo::default_spec();
    let notes = |points: Vec<[f32; 3]>, spec: &GridSpec| {
        let folder = tempfile::tempdir().unwrap();
        for scan in 0..3 {
            write_points(&folder.path().join(format!("{scan}.ply")), &points, None);
        }
        fs::write(folder.path().join("poses.txt"), [0.0, 1.0, 2.0].map(pose).concat()).unwrap();
        opened(folder.path(), &config(), spec).unwrap().notes.join("; ")
    };
    assert_eq!(notes(ground(1.0, |p| p), &spec), "");
    assert!(notes(ground(1000.0, |p| p), &spec).contains("millimetres"));
    let turned = notes(ground(1.0, |[x, y, z]| [x, z, y]), &spec);
    assert!(turned.contains("y seems to point up") && !turned.contains("grid.origin_m"), "{turned}");
    let nowhere = notes(vec![[f32::NAN; 3]; 9], &spec);
    assert!(
        nowhere.contains("3 of 3 scans looked at hold no point") && !nowhere.contains("grid.origin_m"),
        "{nowhere}"
    );
    // Nine in ten points lie within less than 20 m; the poses are a metre apart, as millimetres or as metres.
    let apart = |step: f64| {
        let folder = tempfile::tempdir().unwrap();
        for scan in 0..3 {
            write_points(&folder.path().join(format!("{scan}.ply")), &ground(1.0, |p| p), None);
        }
        fs::write(folder.path().join("trajectory.txt"), [0.0, step, 2.0 * step].map(pose).concat()).unwrap();
        fs::write(folder.path().join("poses.txt"), [0.0, step, 2.0 * step].map(pose).concat()).unwrap();
        opened(folder.path(), &config(), &spec).unwrap().notes.join("; ")
    };
    assert!(apart(1000.0).contains("taken 1000 m apart"), "{}", apart(1000.0));
    assert!(
        !apart(1.0).contains("apart") && apart(1.0).contains("trajectory.txt is not: take one away"),
        "{}",
        apart(1.0)
    );
    // The ground lies 5 m higher than the demo's: 3.3 m, and the floor of the grid belongs 0.7 m below.
    let high = notes(ground(1.0, |[x, y, z]| [x, y, z + 7.0]), &spec);
    assert!(high.contains("the ground lies at z = 5.3 m") && high.contains("[0.0,-12.8,4.6]"), "{high}");
    let away = GridSpec { origin_m: [100.0, 0.0, -2.4], ..spec };
    assert!(notes(ground(1.0, |p| p), &away).contains("0.0 % of the points lie in the grid"));
}

#[test]
fn layouts_are_told_apart_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let touch = |name: &str| {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        fs::write(at(name), "").unwrap();
    };
    for name in ["a/1.ply", "a/poses.txt", "b/scans/1.bin", "b/trajectory.txt", "c/1.npy", "c/1.txt", "d/only.ply"] {
        touch(name);
    }
    for name in
        ["e/sequences/00/velodyne/0.bin", "f/velodyne/0.bin", "f/labels/0.label", "g/1.ply", "g/2.ply", "h/a.txt"]
    {
        touch(name);
    }
    for (name, expected) in [("a", "a"), ("b", "b"), ("c", "c"), ("e", "e/sequences/00")] {
        assert_eq!(layout(&at(name)).unwrap(), Layout::Scans(vec![at(expected)]), "{name}");
    }
    assert_eq!(layout(&at("d")).unwrap(), Layout::Cloud(at("d/only.ply")));
    assert_eq!(layout(&at("a/1.ply")).unwrap(), Layout::Cloud(at("a/1.ply")));
    assert_eq!(layout(&at("f")).unwrap(), Layout::SemanticKitti);
    for (name, found) in [("g", "2 scans and no poses"), ("h", "a folder without scans"), ("none", "No such file")] {
        let text = refusal(&at(name));
        assert!(text.contains(found) && text.contains("poses.txt") && text.contains("sequences/NN/"), "{text}");
    }
}

#[test]
fn scans_are_in_the_order_that_people_number_them_in() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["scan10.ply", "scan9.PLY", "scan011.ply", "scan1.ply", "notes.txt", "b2.bin"] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let names: Vec<String> = find_scans(folder.path())
        .unwrap()
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, ["b2.bin", "scan1.ply", "scan9.PLY", "scan10.ply", "scan011.ply"]);
}

#[test]
fn poses_that_do_not_fit_their_scans_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let poses = folder.path().join("poses.txt");
    for scan in 0..3 {
        write_points(&folder.path().join(format!("{scan}.ply")), &HERE, None);
    }
    fs::write(&poses, pose(0.0).repeat(2)).unwrap();
    let text = refusal(folder.path());
    assert!(text.contains("poses.txt: found 2 poses, expected one for each of 3 scans"), "{text}");
    fs::write(&poses, pose(0.0).repeat(4)).unwrap();
    assert!(refusal(folder.path()).contains("found 4 poses, expected one for each of 3 scans"));
    fs::remove_file(&poses).unwrap();
    fs::create_dir(folder.path().join("poses")).unwrap();
    for scan in ["0", "2"] {
        fs::write(folder.path().join(format!("poses/{scan}.txt")), "1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n").unwrap();
    }
    assert!(refusal(folder.path()).contains("1.ply"));
    fs::write(folder.path().join("poses/1.txt"), pose(2.0)).unwrap();
    let splits = opened(folder.path(), &config(), &row()).unwrap();
    assert_eq!(splits.training.len() + splits.validation.len(), 3);
}

#[test]
fn kitti_poses_go_through_the_calibration_and_by_number() {
    let folder = tempfile::tempdir().unwrap();
    for scan in [0, 2] {
        write_points(&folder.path().join(format!("velodyne/{scan:06}.ply")), &[[3.0, 0.0, 0.0]], None);
    }
    // Camera axes: x right, y down, z forward; 1 m ahead for each scan.
    let poses = [0, 1, 2].map(|i| format!("1 0 0 0 0 1 0 0 0 0 1 {i}\n")).concat();
    fs::write(folder.path().join("poses.txt"), poses).unwrap();
    fs::write(folder.path().join("calib.txt"), "Tr: 0 -1 0 0 0 0 -1 0 1 0 0 0\n").unwrap();
    let splits = opened(folder.path(), &config(), &row()).unwrap();
    // Scan 2 stands 2 m ahead of scan 0 and hits what is 5 m ahead of it.
    assert_eq!(splits.training.sample(0).unwrap().target.labels, [0, 0, 0, 1, 0, 1]);
    fs::write(folder.path().join("calib.txt"), "P0: 1 0 0 0 0 1 0 0 0 0 1 0\n").unwrap();
    assert!(refusal(folder.path()).contains("no line Tr:"));
    // Its inverse would make every pose NaN, and every target empty.
    fs::write(folder.path().join("calib.txt"), "Tr: 0 0 0 0 0 0 0 0 0 0 0 0\n").unwrap();
    assert!(refusal(folder.path()).contains("found as Tr a matrix that is no rotation"));
}

#[test]
fn the_last_scans_validate_and_those_before_them_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    for scan in 0..40 {
        write_points(&folder.path().join(format!("{scan}.ply")), &HERE, None);
    }
    fs::write(folder.path().join("poses.txt"), pose(0.0).repeat(40)).unwrap();
    let part = |config: DataConfig| {
        let splits = opened(folder.path(), &config, &row()).unwrap();
        let ids = |part: &dyn Dataset| (0..part.len()).map(|i| part.sample(i).unwrap().id).collect::<Vec<_>>();
        [ids(&*splits.training), ids(&*splits.validation)].map(|ids| {
            ids.iter().map(|id| id.rsplit('/').next().unwrap().parse::<usize>().unwrap()).collect::<Vec<_>>()
        })
    };
    // 35 scans have five behind them: a fifth of those, 7, validate, and the five before them are left out.
    let config = DataConfig { future_scans: 5, validation_share: 0.2, ..config() };
    assert_eq!(part(config.clone()), [(0..23).collect::<Vec<_>>(), (28..35).collect()]);
    // Too few for twenty behind each: all are samples, and a quarter of 32 are left out.
    assert_eq!(part(DataConfig { future_scans: 20, ..config }), [(0..24).collect::<Vec<_>>(), (32..40).collect()]);
}

#[test]
fn a_label_column_trains_its_classes_when_a_map_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let points = [[2.0, 0.0, 0.0], [2.1, 0.0, 0.0], [2.2, 0.0, 0.0], [3.0, 0.0, 0.0], [4.0, 0.0, 0.0]];
    write_points(&folder.path().join("0.ply"), &points, Some(vec![7, 9, 9, 8, 0]));
    write_points(&folder.path().join("1.ply"), &points, Some(vec![7, 9, 9, 8, 0]));
    fs::write(folder.path().join("poses.txt"), pose(0.0).repeat(2)).unwrap();
    let without = opened(folder.path(), &config(), &row()).unwrap();
    assert!(without.notes.join("").contains("data.labels"), "{:?}", without.notes);
    assert_eq!(without.training.sample(0).unwrap().target.labels, [0, 0, 1, 1, 1, 255]);

    let map = folder.path().join("map.toml");
    let text = r#"
        name = "mine"
        empty_id = 0
        ignored_file_ids = [8]
        classes = [
            { name = "nothing", colour = [0, 0, 0], file_ids = [0] },
            { name = "wall", colour = [1, 0, 0], file_ids = [7] },
            { name = "tree", colour = [0, 1, 0], file_ids = [9] },
        ]"#;
    fs::write(&map, text).unwrap();
    let named = |name: &str| DataConfig { labels: Some(name.into()), ..config() };
    let splits = opened(folder.path(), &named(&map.display().to_string()), &row()).unwrap();
    // The most votes win; ignored ids are ignored, and a point that means nothing tells nothing.
    assert_eq!(splits.training.sample(0).unwrap().target.labels, [0, 0, 2, 255, 255, 255]);
    assert_eq!(splits.training.labels().len(), 3);
    assert!(!splits.notes.join("").contains("data.labels"), "{:?}", splits.notes);

    let unknown = opened(folder.path(), &named("occupancy"), &row()).unwrap().training.sample(0).unwrap_err();
    assert!(unknown.to_string().contains("0.ply: found label id 7"), "{unknown}");
    for (classes, expected) in [
        (
            text.replace("[7]", "[70]").replace("[9]", "[90]").replace("[8]", "[7, 8, 9]"),
            "ids among those of the scans (0, 7, 8, 9)",
        ),
        (
            "name = \"one\"\nempty_id = 0\nclasses = [{ name = \"all\", colour = [0, 0, 0], file_ids = [0, 7, 8, 9] }]"
                .into(),
            "found 1 class",
        ),
    ] {
        fs::write(&map, classes).unwrap();
        let refused = opened(folder.path(), &named(&map.display().to_string()), &row()).err().unwrap().to_string();
        assert!(refused.contains("map.toml: found") && refused.contains(expected), "{refused}");
    }
    let missing = opened(folder.path(), &named("no-such-map"), &row()).err().unwrap().to_string();
    assert!(missing.contains("no-such-map") && missing.contains("semantic-kitti"), "{missing}");
    let no_file =
        opened(folder.path(), &named(&folder.path().display().to_string()), &row()).err().unwrap().to_string();
    assert!(no_file.contains("A label map is a TOML file, or one of demo,"), "{no_file}");
    fs::write(&map, text.replace("empty_id = 0", "empty_id = 3")).unwrap();
    let broken = opened(folder.path(), &named(&map.display().to_string()), &row()).err().unwrap().to_string();
    assert!(broken.contains("map.toml") && broken.contains("empty_id is 3"), "{broken}");
}

fn dense(positions: Vec<[f32; 3]>, label: Option<Vec<u16>>) -> DenseCloud {
    DenseCloud::new(Path::new("dense.ply"), PointCloud { positions, label, ..PointCloud::default() }, 0.2).unwrap()
}

#[test]
fn a_ray_meets_the_nearest_point_of_the_first_cell() {
    // Two walls; in the near one, a cell with a point on the ray's line and two beside it. The corner sets the origin.
    let points = vec![[0.0; 3], [5.01, 2.1, 1.1], [5.09, 2.19, 1.1], [5.05, 2.05, 1.19], [9.0, 2.1, 1.1]];
    let cloud = dense(points, Some(vec![1, 2, 3, 4, 5]));
    let cast = |from: [f64; 3], direction: [f64; 3], farthest_m| {
        let direction = DVec3::from_array(direction).normalize();
        let (index, _) = cloud.cast(DVec3::from_array(from), direction, farthest_m)?;
        Some(cloud.labels().unwrap()[index])
    };
    assert_eq!(cast([1.0, 2.1, 1.1], [1.0, 0.0, 0.0], 70.0), Some(2));
    assert_eq!(cast([1.0, 2.18, 1.1], [1.0, 0.0, 0.0], 70.0), Some(3));
    assert_eq!(cast([6.0, 2.1, 1.1], [1.0, 0.0, 0.0], 70.0), Some(5));
    assert_eq!(cast([6.0, 2.1, 1.1], [-1.0, 0.0, 0.0], 70.0), Some(2));
    // From outside the cloud; too far; past everything; up.
    assert_eq!(cast([-3.0, 2.1, 1.1], [1.0, 0.0, 0.0], 70.0), Some(2));
    assert_eq!(cast([1.0, 2.1, 1.1], [1.0, 0.0, 0.0], 3.5), None);
    assert_eq!(cast([1.0, 1.1, 1.1], [1.0, 0.0, 0.0], 70.0), None);
    assert_eq!(cast([1.0, 2.1, 1.1], [0.0, 0.0, 1.0], 70.0), None);
    // Aslant, through several chunks: (5.01, 2.1, 1.1) from 4 m before, 2 m to the side and 1 m below.
    assert_eq!(cast([1.01, 0.1, 0.1], [4.0, 2.0, 1.0], 70.0), Some(2));
}

/// A plane of 80 m x 40 m at height 3, with a wall across it at x = 40 and a roof over a part.
fn field() -> Vec<[f32; 3]> {
    let mut points = Vec::new();
    for i in 0..800 {
        for j in 0..400 {
            let (x, y) = (i as f32 * 0.1 - 20.0, j as f32 * 0.1 + 7.0);
            points.push([x, y, 3.0]);
            if (i / 40) % 5 == 0 && j < 100 {
                points.push([x, y, 9.0]);
            }
            if i == 400 {
                points.extend((0..20).map(|k| [x, y, 3.0 + k as f32 * 0.1]));
            }
        }
    }
    points
}

fn field_config() -> DataConfig {
    DataConfig { virtual_scans: 12, validation_share: 0.25, ..config() }
}

#[test]
fn sensors_stand_free_on_the_ground_and_parts_do_not_mix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("field.ply");
    write_points(&path, &field(), None);
    let spec = GridSpec::new([0.0, -4.0, -2.4], [0.4; 3], [20, 20, 8]);
    let made = |seed| VirtualScans::open(&path, &field_config(), &spec, seed).unwrap();
    let (scans, split, notes) = made(1);
    assert_eq!((split.training.len(), split.validation.len()), (9, 3), "{notes:?}");
    assert!(notes.is_empty(), "{notes:?}");
    let place = |scans: &VirtualScans, i: usize| scans.cloud_from_sensor(i).w_axis.truncate();
    for sensor in 0..12 {
        let at = place(&scans, sensor);
        // The cloud is told from its lowest corner: the ground lies at 0, the wall at x = 40.
        assert!((at.z - 1.7).abs() < 1e-5 && (0.0..80.0).contains(&at.x) && (0.0..40.0).contains(&at.y), "{at}");
        assert!((at.x - 40.0).abs() > 0.8, "{at} stands in the wall");
    }
    // Behind the border lies a quarter of 80 m; no corner of a grid crosses it.
    let reach = |i: usize| {
        let motion = scans.cloud_from_sensor(i);
        [[0.0, -4.0], [0.0, 4.0], [8.0, -4.0], [8.0, 4.0]]
            .map(|[x, y]| motion.transform_point3(DVec3::new(x, y, 0.0)).x)
    };
    assert!(split.training.iter().flat_map(|i| reach(*i)).all(|x| x <= 60.0));
    assert!(split.validation.iter().flat_map(|i| reach(*i)).all(|x| x >= 60.0));
    let places =
        |scans: &VirtualScans| (0..12).map(|i| place(scans, i).to_array().map(f64::to_bits)).collect::<BTreeSet<_>>();
    assert_eq!(places(&scans), places(&made(1).0));
    assert_ne!(places(&scans), places(&made(2).0));
}

#[test]
fn a_virtual_scan_sees_ground_and_walls_and_its_target_holds_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("field.ply");
    write_points(&path, &field(), None);
    // Borders of layers at half the height of what lies in them: the ground is in layer 1.
    let spec = GridSpec::new([0.0, -4.0, -2.3], [0.4; 3], [20, 20, 8]);
    let config = DataConfig { path: Some(path), ..field_config() };
    let splits = open(&config, &spec, 1).unwrap();
    let mut sky = 0;
    for index in 0..splits.training.len() {
        let sample = splits.training.sample(index).unwrap();
        assert!(sample.cloud.len() > 5_000);
        for [_, _, z] in &sample.cloud.positions {
            // Ground 1.7 m below the sensor, walls up to 0.3 m above it, roofs 4.3 m above.
            assert!((*z + 1.7).abs() < 1e-4 || (-1.7..0.31).contains(z) || (*z - 4.3).abs() < 1e-4, "{z}");
        }
        let at = |x: usize, y: usize, z: usize| sample.target.label([x, y, z]);
        let cells = || (0..400).map(|i| (i / 20, i % 20));
        // The plane has a point in every voxel of its layer, where the cloud reaches; below it nothing is known.
        assert!(cells().filter(|(x, y)| at(*x, *y, 1) == 1).count() > 200);
        assert!(cells().all(|(x, y)| at(x, y, 0) == 255));
        assert!(cells().all(|(x, y)| at(x, y, 2) != 255 || at(x, y, 1) == 1 || at(x, y, 1) == 255));
        sky += cells().filter(|(x, y)| at(*x, *y, 3) == 0).count();
    }
    assert!(sky > 1_000, "rays cross what is free: {sky}");
    let again = open(&config, &spec, 1).unwrap();
    let [a, b] = [&splits, &again].map(|splits| splits.validation.sample(0).unwrap());
    assert_eq!((a.target, a.cloud), (b.target, b.cloud));
}

#[test]
fn clouds_that_no_sensor_fits_into_are_refused_with_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dense.ply");
    let spec = occam_scene::demo::default_spec();
    let text = |positions: Vec<[f32; 3]>| {
        write_points(&path, &positions, None);
        opened(&path, &config(), &spec).err().expect("an error").to_string()
    };
    // A plane of 2 m x 2 m.
    let small = text((0..400).map(|i| [(i % 20) as f32 * 0.1, (i / 20) as f32 * 0.1, 0.0]).collect());
    assert!(small.contains("dense.ply: found no free place") && small.contains("2.0 x 2.0 x 0.2 m"), "{small}");
    let wide = text((0..400).map(|i| [(i % 20) as f32 * 200.0, (i / 20) as f32 * 200.0, 0.0]).collect());
    assert!(wide.contains("millimetres or centimetres") && !small.contains("millimetres"), "{wide}");
    // The same as the scan of a sensor.
    let scan = folder.path().join("one.bin");
    let floats = (0..400).flat_map(|i| [(i % 20) as f32 * 0.1, (i / 20) as f32 * 0.1, 0.0, 0.5]);
    fs::write(&scan, floats.flat_map(f32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    let one = opened(&scan, &config(), &spec).err().expect("an error").to_string();
    assert!(one.contains("single scan") && one.contains("folder with poses"), "{one}");
    let far = text(vec![[0.0; 3], [1.0, 1.0, 1.0], [5e5, 0.0, 0.0]]);
    assert!(far.contains("500000 x") && far.contains("200 km"), "{far}");
}
