use std::fs;
use std::path::Path;

use super::super::TargetSource;
use super::*;

const TURN: &str = "0 -1 0 0 0 0 -1 0 1 0 0 0";

/// A sequence of scans, each of points with x, y, z and label; scan `i` was taken `i` metres further ahead.
fn write_sequence(folder: &Path, scans: &[&[([f32; 3], u32)]]) {
    for name in ["velodyne", "labels"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    // The camera looks ahead along its z axis: Tr turns x forward into z forward.
    fs::write(folder.join("calib.txt"), format!("Tr: {TURN}\n")).unwrap();
    let poses: Vec<String> = (0..scans.len()).map(|i| format!("1 0 0 0 0 1 0 0 0 0 1 {i}\n")).collect();
    fs::write(folder.join("poses.txt"), poses.concat()).unwrap();
    for (i, points) in scans.iter().enumerate() {
        let scan: Vec<u8> =
            points.iter().flat_map(|(p, _)| [p[0], p[1], p[2], 0.5]).flat_map(f32::to_le_bytes).collect();
        fs::write(folder.join(format!("velodyne/{i:06}.bin")), scan).unwrap();
        let labels: Vec<u8> = points.iter().flat_map(|(_, l)| l.to_le_bytes()).collect();
        fs::write(folder.join(format!("labels/{i:06}.label")), labels).unwrap();
    }
}

fn config(future_scans: usize, validation_share: f64) -> DataConfig {
    let defaults = crate::train::TrainConfig::from_layers("demo", None, &[]).unwrap().data;
    DataConfig { validation_share, future_scans, min_range_m: 0.0, max_range_m: f64::INFINITY, ..defaults }
}

fn spec() -> GridSpec {
    GridSpec::new([0.0, -4.0, -1.0], [1.0; 3], [8, 8, 2])
}

#[test]
fn the_target_is_the_majority_over_this_scan_and_those_that_follow() {
    let folder = tempfile::tempdir().unwrap();
    let (car, road, building, outlier, unlabelled) = (10, 40, 50, 1, 0);
    write_sequence(
        &folder.path().join("sequences/03"),
        &[
            &[([2.5, 0.5, 0.5], car), ([4.5, 1.5, 0.5], outlier), ([6.5, 2.5, 0.5], road)],
            // One metre further ahead, the same places are one metre nearer. Instance ids stand in the high half.
            &[([1.5, 0.5, 0.5], building | 7 << 16), ([1.5, 0.5, 0.6], building), ([6.5, 0.5, 0.5], unlabelled)],
            &[([0.5, 0.5, 0.5], car)],
            &[([2.5, -2.5, 0.5], car)],
        ],
    );
    let (training, validation) = SemanticKittiFolder::open(folder.path(), &config(2, 0.25), &spec()).unwrap();
    assert_eq!((training.len(), validation.len()), (1, 1), "two of four scans are followed by two");
    assert!(
        training.notes().iter().any(|note| note.starts_with("2 of 4 scans are left out")),
        "{:?}",
        training.notes()
    );
    let sample = training.sample(0).unwrap();
    assert_eq!(sample.id, "03/000000");
    assert_eq!(sample.cloud.len(), 3);
    let target = sample.target;
    // Two cars, two buildings: the lower class. Class 1 is car, 13 building, 9 road.
    assert_eq!(target.label([2, 4, 1]), 1);
    assert_eq!(target.label([4, 5, 1]), 255, "an ignored point is neither free nor a class");
    assert_eq!(target.label([6, 6, 1]), 9);
    assert_eq!(target.label([7, 4, 1]), 255, "id 0 means unlabelled, never free");
    assert_eq!(target.label([5, 1, 1]), 0, "the fourth scan is not one of the two that follow");
    assert_eq!(target.occupied(), 2);
    // Without the third scan the buildings win; without any other the car stands alone.
    for (future, class) in [(1, 13), (0, 1)] {
        let (training, _) = SemanticKittiFolder::open(folder.path(), &config(future, 0.25), &spec()).unwrap();
        assert_eq!(training.sample(0).unwrap().target.label([2, 4, 1]), class);
    }
    // The fourth scan stood two metres ahead of the second.
    assert_eq!(validation.sample(0).unwrap().id, "03/000001");
    assert_eq!(validation.sample(0).unwrap().target.label([4, 1, 1]), 1);
    // Too short for its window: every scan is a sample.
    let (training, validation) = SemanticKittiFolder::open(folder.path(), &config(9, 0.25), &spec()).unwrap();
    assert_eq!((training.len(), validation.len()), (3, 1));
    assert_eq!(training.sample(0).unwrap().target.label([5, 1, 1]), 1);
}

#[test]
fn one_sequence_folder_is_enough_and_the_last_scans_validate() {
    let folder = tempfile::tempdir().unwrap();
    let scan: &[([f32; 3], u32)] = &[([0.5; 3], 10)];
    write_sequence(folder.path(), &[scan; 10]);
    for (share, expected) in [(0.1, (9, 1)), (0.3, (7, 3)), (0.0, (9, 1)), (0.9, (1, 9))] {
        let (training, validation) = SemanticKittiFolder::open(folder.path(), &config(0, share), &spec()).unwrap();
        assert_eq!((training.len(), validation.len()), expected);
    }
    let (_, validation) = SemanticKittiFolder::open(folder.path(), &config(0, 0.2), &spec()).unwrap();
    assert!(validation.sample(1).unwrap().id.ends_with("/000009"));
}

#[test]
fn bad_folders_are_told_by_the_file_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| SemanticKittiFolder::open(path, &config(0, 0.5), &spec()).map(|(training, _)| training);
    let message = |path: &Path| open(path).unwrap_err().to_string();
    let text = message(folder.path());
    assert!(text.contains("another layout") && text.contains("velodyne/000000.bin"), "{text}");
    assert!(message(&folder.path().join("none")).contains("velodyne/"));

    let scans: &[&[([f32; 3], u32)]] = &[&[([0.5; 3], 10)], &[([0.5; 3], 9999)]];
    let sequence = |name: &str| {
        let path = folder.path().join(name);
        write_sequence(&path, scans);
        path
    };
    let path = sequence("a");
    fs::remove_file(path.join("labels/000001.label")).unwrap();
    assert!(message(&path).contains("000001.label"));
    let path = sequence("b");
    fs::write(path.join("poses.txt"), "1 0 0 0 0 1 0 0 0 0 1 0\n").unwrap();
    assert!(message(&path).contains("poses.txt: found 1 poses"), "{}", message(&path));
    let path = sequence("c");
    fs::write(path.join("calib.txt"), "P0: 1\n").unwrap();
    assert!(message(&path).contains("calib.txt"));
    let path = sequence("d");
    let (_, validation) = SemanticKittiFolder::open(&path, &config(0, 0.5), &spec()).unwrap();
    let text = validation.sample(0).unwrap_err().to_string();
    assert!(text.contains("000001.label") && text.contains("9999"), "{text}");
    let path = folder.path().join("far");
    write_sequence(&path, &[&[([0.5; 3], 10)], &[([0.5; 3], 10), ([99.0; 3], 9998)]]);
    let (_, validation) = SemanticKittiFolder::open(&path, &config(0, 0.5), &spec()).unwrap();
    let text = validation.sample(0).unwrap_err().to_string();
    assert!(text.contains("9998"), "a point outside the grid has an id outside the map: {text}");
    let path = sequence("e");
    fs::write(path.join("labels/000000.label"), [0; 8]).unwrap();
    let text = open(&path).unwrap().sample(0).unwrap_err().to_string();
    assert!(text.contains("000000.label") && text.contains("000000.bin"), "{text}");
}

/// Three scans: a car, a moving car and a wall, seen from places a metre apart.
fn street(folder: &Path) {
    let wall: Vec<([f32; 3], u32)> = (0..40).map(|y| ([12.1, y as f32 * 0.2 - 3.9, 0.1], 50)).collect();
    let moved = |ahead: f32| wall.iter().map(|([x, y, z], id)| ([x - ahead, *y, *z], *id)).collect::<Vec<_>>();
    let scans = [
        [moved(0.0), vec![([8.3, 2.1, -0.5], 10), ([8.3, 2.1, -0.5], 0), ([8.3, -2.1, -0.5], 252)]].concat(),
        [moved(1.0), vec![([7.3, 2.1, -0.5], 0), ([7.3, 2.1, -0.5], 0), ([9.3, -2.1, -0.5], 252)]].concat(),
        [moved(2.0), vec![([1.0, 0.0, -1.5], 40), ([6.0, 2.1, -0.5], 40)]].concat(),
    ];
    write_sequence(folder, &scans.each_ref().map(Vec::as_slice));
}

fn build(data: &Path, rules: TargetRules, force: bool) -> BuildOptions {
    BuildOptions { data: data.to_path_buf(), output: None, rules, stride: 1, sequences: Vec::new(), force }
}

fn go_on(_: crate::Progress<'_>) -> std::ops::ControlFlow<()> {
    std::ops::ControlFlow::Continue(())
}

#[test]
fn training_on_built_voxels_is_training_on_the_scans() {
    let folder = tempfile::tempdir().unwrap();
    street(&folder.path().join("sequences/00"));
    let made = |data: DataConfig| {
        let (training, validation) = SemanticKittiFolder::open(folder.path(), &data, &voxel_grid()).unwrap();
        let samples: Vec<Sample> =
            [&training, &validation].iter().flat_map(|part| (0..part.len()).map(|i| part.sample(i).unwrap())).collect();
        samples
    };
    let scans = DataConfig { min_range_m: 2.5, max_range_m: 70.0, static_only: true, ..config(9, 0.5) };
    let report = build_targets(&build(folder.path(), scans.rules(), true), None, &mut go_on).unwrap();
    assert_eq!((report.sequences.len(), report.sequences[0].built, report.sequences[0].short), (1, 3, 3));
    let direct = made(DataConfig { target: TargetSource::Scans, ..scans.clone() });
    let built = made(DataConfig { target: TargetSource::Voxels, ..scans });
    // The last stands alone: its target is what the network sees.
    assert_eq!((direct.len(), built.len()), (3, 2));
    for (direct, built) in direct.iter().zip(&built) {
        assert_eq!((&direct.id, &direct.cloud.positions), (&built.id, &built.cloud.positions));
        assert!(direct.target == built.target, "{}", direct.id);
    }
    let first = &built[0].target;
    let at = |p: [f32; 3]| first.label(voxel_grid().voxel_of(p).unwrap());
    // One car, three unlabelled.
    assert_eq!(at([8.3, 2.1, -0.5]), 255);
    assert_eq!(at([12.1, 0.1, 0.1]), 13);
    // It moved two metres on until the second scan.
    assert_eq!((at([8.3, -2.1, -0.5]), at([10.3, -2.1, -0.5])), (1, 0));
    assert_eq!(at([3.0, 0.0, -1.5]), 0, "a metre from the third scan's sensor: too near");
    assert_eq!((at([20.0, 0.0, 0.1]), at([5.0, 0.0, 0.1])), (255, 0), "behind the wall, and before it");
    let scan = &made(DataConfig { target: TargetSource::Scans, ..config(9, 0.5) })[2];
    assert_eq!(scan.cloud.len(), 42, "without a range every point counts");
}

#[test]
fn a_build_goes_on_where_it_was_stopped_and_spares_what_it_did_not_make() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("00");
    street(&path);
    let rules = TargetRules::default();
    let every_second = |rules, force| BuildOptions { stride: 2, ..build(folder.path(), rules, force) };
    let run = |rules, force| build_targets(&every_second(rules, force), None, &mut go_on);
    let voxels = |ending: &str| occam_scene::formats::files_ending(&path.join("voxels"), ending).unwrap().len();
    let mut asked = 0;
    let mut stop = |_: crate::Progress<'_>| {
        asked += 1;
        if asked > 1 { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    };
    let stopped = build_targets(&every_second(rules, false), None, &mut stop);
    assert!(matches!(stopped, Err(Error::Interrupted)));
    assert_eq!(["label", "invalid", "occluded", "bin"].map(voxels), [1; 4]);
    // An anchor is finished with its last file, and no file of another size is one.
    fs::remove_file(path.join("voxels/000000.label")).unwrap();
    let report = run(rules, false).unwrap();
    assert_eq!((report.sequences[0].built, report.sequences[0].kept), (2, 0));
    let report = run(rules, false).unwrap();
    assert_eq!((report.sequences[0].built, report.sequences[0].kept), (0, 2));
    for (name, bytes) in [("000000.label", 7), ("000000.bin", 0), ("000002.invalid", 9), ("000002.occluded", 1 << 20)] {
        fs::write(path.join("voxels").join(name), vec![0; bytes]).unwrap();
    }
    fs::write(path.join("voxels/000002.bin"), "").unwrap();
    let report = run(rules, false).unwrap();
    assert_eq!((report.sequences[0].built, report.sequences[0].kept), (2, 0), "destroyed files");
    let text = run(TargetRules { future_scans: 1, ..rules }, false).unwrap_err().to_string();
    assert!(
        text.contains("made by other rules (0 scans before, 70 after, 2.5 to 70 m)") && text.contains("--force"),
        "{text}"
    );

    fs::remove_file(path.join("voxels/occam.json")).unwrap();
    let before = fs::read(path.join("voxels/000002.label")).unwrap();
    let text = run(rules, false).unwrap_err().to_string();
    assert!(text.contains("voxels that occam did not make") && text.contains("-o"), "{text}");
    assert_eq!(fs::read(path.join("voxels/000002.label")).unwrap(), before);
    assert_eq!(run(rules, true).unwrap().sequences[0].built, 2);
    assert_eq!(run(rules, false).unwrap().sequences[0].kept, 2);

    let other = BuildOptions { output: Some(folder.path().join("out")), ..every_second(rules, false) };
    assert_eq!(build_targets(&other, None, &mut go_on).unwrap().sequences[0].built, 2);
    let data = DataConfig { voxels: Some(folder.path().join("out")), ..config(0, 0.5) };
    let (training, validation) = SemanticKittiFolder::open(folder.path(), &data, &voxel_grid()).unwrap();
    assert_eq!(
        (training.sample(0).unwrap().id, validation.sample(0).unwrap().id),
        ("00/000000".into(), "00/000002".into())
    );
    let missing = BuildOptions { sequences: vec!["07".into()], ..other };
    assert!(build_targets(&missing, None, &mut go_on).unwrap_err().to_string().contains("holds the sequences 00"));
    fs::remove_dir_all(path.join("labels")).unwrap();
    assert!(run(rules, false).unwrap_err().to_string().contains("scans without labels"));
}

#[test]
fn voxel_files_suit_their_grid_and_coarser_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("00");
    street(&path);
    let options = BuildOptions { stride: 2, ..build(folder.path(), TargetRules::default(), false) };
    build_targets(&options, None, &mut go_on).unwrap();
    // The scans alone are enough beside the voxels.
    fs::remove_dir_all(path.join("labels")).unwrap();
    fs::remove_file(path.join("poses.txt")).unwrap();
    let open = |target, spec: &GridSpec| {
        SemanticKittiFolder::open(folder.path(), &DataConfig { target, ..config(0, 0.5) }, spec).map(|parts| parts.0)
    };
    let coarse = GridSpec::new([0.0, -25.6, -2.0], [0.4; 3], [128, 128, 16]);
    let fine = open(TargetSource::Auto, &voxel_grid()).unwrap();
    assert_eq!(fine.len(), 1, "the scans with a voxel label are the samples: one trains, one validates");
    let target = open(TargetSource::Auto, &coarse).unwrap().sample(0).unwrap().target;
    let expected = downscale_target(&fine.sample(0).unwrap().target.labels, [256, 256, 32], 2, 0, 255);
    assert!(target.labels == expected && target.spec == coarse);
    let turned = open(TargetSource::Voxels, &GridSpec { axis_order: AxisOrder::Zyx, ..coarse }).unwrap();
    assert!(turned.sample(0).unwrap().target.reordered(AxisOrder::Xyz).labels == expected);

    let other = GridSpec { counts: [128, 128, 8], ..coarse };
    let text = open(TargetSource::Voxels, &other).unwrap_err().to_string();
    assert!(
        text.contains("[128, 128, 8]") && text.contains("[256, 256, 32]") && text.contains("data.target=scans"),
        "{text}"
    );
    let text = open(TargetSource::Auto, &other).unwrap_err().to_string();
    assert!(text.contains("labels/ or voxels/"), "{text}");
    fs::write(path.join("voxels/000000.label"), [0; 10]).unwrap();
    let text = fine.sample(0).unwrap_err().to_string();
    assert!(text.contains("000000.label: found 10 bytes, expected 4194304 bytes"), "{text}");
    fs::remove_dir_all(path.join("voxels")).unwrap();
    let text = open(TargetSource::Voxels, &coarse).unwrap_err().to_string();
    assert!(text.contains("occam data build"), "{text}");
    fs::create_dir(path.join("voxels")).unwrap();
    fs::remove_dir_all(path.join("velodyne")).unwrap();
    let text = open(TargetSource::Auto, &coarse).unwrap_err().to_string();
    assert!(text.contains("voxels/ without velodyne/") && text.contains("data_odometry_velodyne"), "{text}");
}

#[test]
fn named_sequences_validate_and_those_without_targets_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let scan: &[([f32; 3], u32)] = &[([0.5; 3], 10)];
    for name in ["00", "08", "11"] {
        write_sequence(&folder.path().join("sequences").join(name), &[scan; 4]);
    }
    fs::remove_dir_all(folder.path().join("sequences/11/labels")).unwrap();
    let split = |names: &str| {
        let data = DataConfig { validation_sequences: names.into(), ..config(0, 0.25) };
        let (training, validation) = SemanticKittiFolder::open(folder.path(), &data, &spec()).unwrap();
        (training.len(), validation.len(), validation.sample(0).unwrap().id)
    };
    let notes = |names: &str| {
        let data = DataConfig { validation_sequences: names.into(), ..config(0, 0.25) };
        SemanticKittiFolder::open(folder.path(), &data, &spec()).unwrap().0.notes().to_vec()
    };
    assert!(notes("08").is_empty());
    assert!(notes("").iter().all(|note| note.contains("same street")) && notes("").len() == 1);
    assert_eq!(split("08"), (4, 4, "08/000000".into()));
    assert_eq!(split("07, 00"), (4, 4, "00/000000".into()));
    // None of them is there, or nothing would be left to train on: the share decides.
    for names in ["", "05", "00,08"] {
        assert_eq!(split(names), (6, 2, "00/000003".into()));
    }
    let (training, validation) = SemanticKittiFolder::open(folder.path(), &config(0, 0.25), &spec()).unwrap();
    assert_eq!(training.moment(3), Some(Moment { recording: 1, scan: 0 }));
    assert_eq!((validation.moment(0), validation.moment(2)), (Some(Moment { recording: 0, scan: 3 }), None));
}

#[test]
fn scans_without_a_point_that_counts_make_no_target() {
    for (point, expected) in
        [([f32::NAN; 3], "no point 2.5 to 70 m"), ([9000.0; 3], "no point"), ([-9.0; 3], "none of the 1 points")]
    {
        let folder = tempfile::tempdir().unwrap();
        write_sequence(folder.path(), &[&[([9.0, 0.0, 0.0], 10)], &[(point, 10)]]);
        let text = build_targets(&build(folder.path(), TargetRules::default(), false), None, &mut go_on).unwrap_err();
        assert!(text.to_string().contains("000001.bin: found") && text.to_string().contains(expected), "{text}");
    }
}

#[test]
fn odd_poses_are_told_and_broken_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let scan: &[([f32; 3], u32)] = &[([0.5; 3], 10)];
    write_sequence(folder.path(), &[scan; 3]);
    let poses = |text: &str| fs::write(folder.path().join("poses.txt"), text).unwrap();
    let notes =
        || SemanticKittiFolder::open(folder.path(), &config(0, 0.5), &spec()).map(|(part, _)| part.notes().join("; "));
    assert!(!notes().unwrap().contains("poses"));
    let here = "1 0 0 0 0 1 0 0 0 0 1 0\n";
    poses(&here.repeat(3));
    assert!(notes().unwrap().contains("poses.txt: all 3 scans were taken at one place"), "{:?}", notes());
    poses(&format!("{here}{}", "1 0 0 5 0 1 0 0 0 0 1 0\n".repeat(4)));
    assert!(notes().unwrap().contains("poses.txt: 2 poses after that of the last scan"), "{:?}", notes());
    poses(&format!("{here}{}{here}", here.replace('1', "0")));
    let text = notes().unwrap_err().to_string();
    assert!(text.contains("poses.txt, line 2: found a matrix that is no rotation"), "{text}");
}

#[test]
fn voxels_that_are_named_are_used_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    street(&folder.path().join("data/sequences/00"));
    let data = folder.path().join("data");
    let built = folder.path().join("built");
    let options =
        BuildOptions { output: Some(built.clone()), stride: 2, ..build(&data, TargetRules::default(), false) };
    build_targets(&options, None, &mut go_on).unwrap();
    let config = DataConfig { voxels: Some(built), ..config(0, 0.5) };
    let text = SemanticKittiFolder::open(&data, &config, &spec()).unwrap_err().to_string();
    assert!(text.contains("data.voxels with a grid of [8, 8, 2]"), "{text}");
    // Two anchors, the last alone: none can be left out.
    let (training, validation) = SemanticKittiFolder::open(&data, &config, &voxel_grid()).unwrap();
    assert_eq!((training.len(), validation.len()), (1, 1));
    let told = training.notes().join("; ");
    assert!(told.contains("00/000002 is made from its own scan alone") && told.contains("tell nothing"), "{told}");
}
