//! The program as its users meet it: the real binary, real files, exit codes and what stays behind.

mod common;

use std::fs;
use std::process::{Command, Stdio};

use assert_cmd::cargo::cargo_bin;
use common::{fails, floats, folder, json_lines, no_scans, occam, stderr, stdout, works};

#[test]
fn help_and_version_are_success_and_a_wrong_flag_is_usage() {
    let folder = folder();
    let help = works(folder.path(), &[]);
    assert!(help.contains("train") && help.contains("Exit codes"), "{help}");
    assert_eq!(works(folder.path(), &["--version"]).trim(), concat!("occam ", env!("CARGO_PKG_VERSION")));
    works(folder.path(), &["train", "--help"]);
    fails(folder.path(), &["trian"], 2, &["train"]);
    fails(folder.path(), &["train", "--stepz", "3"], 2, &["--steps"]);
    fails(folder.path(), &["train", "--grid", "16x16"], 2, &["16x16", "256x256x32"]);
    fails(folder.path(), &["train", "--precision", "f8"], 2, &["f8", "f16", "bf16", "auto"]);
}

#[test]
fn presets_and_keys_that_do_not_exist_suggest_the_nearest() {
    let folder = folder();
    assert!(works(folder.path(), &["presets"]).contains("64x64x16"));
    fails(folder.path(), &["train", "--no-gui", "--preset", "dmeo"], 2, &["dmeo", "demo"]);
    fails(folder.path(), &["train", "--no-gui", "--set", "optim.lrr=1"], 2, &["optim.lrr", "optim.lr`"]);
    fs::write(folder.path().join("mine.toml"), "[steps]\nbtach = 2\n").unwrap();
    fails(folder.path(), &["train", "--no-gui", "--config", "mine.toml"], 2, &["mine.toml", "btach", "steps.batch"]);
    fails(folder.path(), &["train", "--no-gui", "--config", "none.toml"], 2, &["none.toml"]);
}

#[test]
fn gpus_says_what_there_is() {
    let folder = folder();
    assert!(works(folder.path(), &["gpus"]).contains("name"));
    let adapters = json_lines(&works(folder.path(), &["gpus", "--log-format", "json"]));
    assert!(adapters[0]["max_binding_bytes"].as_u64().unwrap() >= 1 << 27, "{adapters:?}");
}

#[test]
fn in_json_mode_every_command_tells_its_failure_as_an_event() {
    let folder = folder();
    for args in [["data", "info", "none.ply"], ["eval", "none", "none"], ["resume", "none", "--quiet"]] {
        let args: Vec<&str> = args.into_iter().chain(["--log-format", "json"]).collect();
        let events = json_lines(&stdout(&occam(folder.path(), &args)));
        assert_eq!(events.len(), 1, "{args:?}");
        assert_eq!(events[0]["event"], "failed");
        assert_eq!(events[0]["exit_code"], 2);
        assert!(events[0]["message"].as_str().unwrap().contains("none"), "{events:?}");
    }
}

#[test]
fn a_file_that_is_no_scan_is_one_clear_error() {
    let folder = folder();
    for (name, bytes, word) in no_scans() {
        fs::write(folder.path().join(name), bytes).unwrap();
        fails(folder.path(), &["data", "info", name], 2, &[name, word, "found", "expected"]);
    }
    fails(folder.path(), &["data", "info", "missing.ply"], 2, &["missing.ply"]);
    fails(folder.path(), &["data", "info", "."], 2, &["sequences"]);
}

#[test]
fn data_info_counts_points_and_drops_what_is_not_finite() {
    let folder = folder();
    let mut values = vec![1.0, 2.0, 3.0, 0.5, -1.0, -2.0, -3.0, 0.25];
    values.extend([f32::NAN, 0.0, 0.0, 0.0]);
    fs::write(folder.path().join("000000.bin"), floats(&values)).unwrap();
    let text = works(folder.path(), &["data", "info", "--stride", "4", "000000.bin"]);
    assert!(text.contains("2 points") && text.contains("dropped"), "{text}");
    let found =
        json_lines(&works(folder.path(), &["data", "info", "--stride", "4", "000000.bin", "--log-format", "json"]));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["points"], 2);
    assert_eq!(found[0]["dropped_non_finite"], 1);
    assert_eq!(found[0]["bounds_m"], serde_json::json!([[-1.0, -2.0, -3.0], [1.0, 2.0, 3.0]]));
}

#[test]
fn data_info_tells_what_a_label_file_without_its_scan_holds() {
    let folder = folder();
    let labels = [0x0001_000a_u32, 0x0002_000a, 40].map(u32::to_le_bytes).concat();
    fs::write(folder.path().join("7.label"), labels).unwrap();
    let text = works(folder.path(), &["data", "info", "7.label"]);
    assert!(text.contains("point labels without their scan, 3 labels, 2 instance ids"), "{text}");
    assert!(text.contains("car") && text.contains("road") && text.contains("66.7 %"), "{text}");
    assert!(!text.contains("could also be"), "{text}");
    // Two voxels of two bytes each, read as one point, have a class where the instance would be.
    fs::write(folder.path().join("grid.label"), [40_u16, 0, 40, 40, 50, 10, 0, 0].map(u16::to_le_bytes).concat())
        .unwrap();
    let text = works(folder.path(), &["data", "info", "grid.label"]);
    assert!(text.contains("could also be 8 voxels of two bytes"), "{text}");
    let mut voxels = vec![0; 4_194_304];
    voxels[0] = 10;
    fs::write(folder.path().join("8.label"), &voxels).unwrap();
    let found = json_lines(&works(folder.path(), &["data", "info", "8.label", "--log-format", "json"]));
    assert_eq!(found[0]["labels"], 2_097_152);
    assert_eq!(found[0]["classes"][1], serde_json::json!({ "id": 10, "name": "car", "count": 1 }));
    // The input of the completion task: bits, not floats.
    fs::create_dir(folder.path().join("voxels")).unwrap();
    voxels.truncate(262_144);
    fs::write(folder.path().join("voxels/8.bin"), &voxels).unwrap();
    let text = works(&folder.path().join("voxels"), &["data", "info", "8.bin"]);
    assert!(text.contains("256x256x32, 2 voxels set"), "{text}");
}

#[test]
fn data_info_finds_scan_and_labels_from_inside_their_folders() {
    let folder = folder();
    for name in ["velodyne", "labels", "predictions"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let scan = [1.0, 2.0, 3.0, 0.5, -1.0, -2.0, -3.0, 0.25];
    fs::write(folder.path().join("velodyne/7.bin"), floats(&scan)).unwrap();
    fs::write(folder.path().join("labels/7.label"), [10, 0, 0, 0, 40, 0, 0, 0]).unwrap();
    fs::write(folder.path().join("predictions/7.label"), [50, 0, 0, 0, 50, 0, 0, 0]).unwrap();
    for (inside, file, class) in
        [("velodyne", "7.bin", "road"), ("labels", "7.label", "road"), ("predictions", "7.label", "building")]
    {
        for (start, path) in
            [(folder.path().join(inside), file.to_owned()), (folder.path().into(), format!("{inside}/{file}"))]
        {
            let text = works(&start, &["data", "info", "--stride", "4", &path]);
            assert!(text.contains("2 points") && text.contains(class), "{inside}/{file}: {text}");
            assert_eq!(text.contains("road"), class == "road", "{text}");
        }
    }
    // Labels of another width say so, with both files.
    fs::write(folder.path().join("labels/7.label"), [10, 40]).unwrap();
    fails(
        folder.path(),
        &["data", "info", "--stride", "4", "velodyne/7.bin"],
        2,
        &["u8", "7.bin", "7.label", "4 bytes"],
    );
}

#[test]
fn data_info_says_what_is_wrong_with_a_sequence() {
    let folder = folder();
    let sequence = folder.path().join("data/sequences/00");
    for name in ["velodyne", "labels"] {
        fs::create_dir_all(sequence.join(name)).unwrap();
    }
    for number in 0..2 {
        fs::write(sequence.join(format!("velodyne/{number:06}.bin")), floats(&[1.0, 2.0, 3.0, 0.5])).unwrap();
        fs::write(sequence.join(format!("labels/{number:06}.label")), [10, 0, 0, 0]).unwrap();
    }
    let pose = "1 0 0 0 0 1 0 0 0 0 1 0\n";
    let info = || works(folder.path(), &["data", "info", "data"]);
    for (calibration, poses, flaw) in [
        (format!("Tr: {pose}"), String::new(), "an empty file"),
        (format!("Tr: {pose}"), pose.to_owned(), "1 poses"),
        (format!("Tr: {pose}"), pose.replace('1', "nan"), "a finite number"),
        (format!("P0: {pose}"), pose.repeat(2), "no line Tr:"),
    ] {
        fs::write(sequence.join("calib.txt"), calibration).unwrap();
        fs::write(sequence.join("poses.txt"), poses).unwrap();
        let text = info();
        assert!(text.contains("  note  ") && text.contains(flaw), "{flaw}: {text}");
    }
    fs::write(sequence.join("calib.txt"), format!("Tr: {pose}")).unwrap();
    assert!(!info().contains("note"), "{}", info());
    fs::write(sequence.join("labels/000009.label"), [10, 0, 0, 0]).unwrap();
    let text = info();
    assert!(text.contains("1 label file of no scan") && text.contains("000009.label"), "{text}");
    fails(folder.path(), &["data", "check", "data"], 2, &["no voxels/", "data build data makes them"]);
}

#[test]
fn data_info_keeps_the_points_of_a_cut_off_ply_when_told_to() {
    let folder = folder();
    let header =
        "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\nend_header\n";
    fs::write(folder.path().join("a.ply"), format!("{header}1 2 3\n4 5 6\n")).unwrap();
    fails(folder.path(), &["data", "info", "a.ply"], 2, &["found 2 rows", "expected 3", "--lenient"]);
    let text = works(folder.path(), &["data", "info", "--lenient", "a.ply"]);
    assert!(text.contains("2 points") && text.contains("ends after 2 of 3 points"), "{text}");
}

/// A reader that leaves, such as `head`, is no failure.
#[cfg(unix)]
#[test]
fn a_closed_pipe_is_success() {
    let folder = folder();
    let mut child = Command::new(cargo_bin("occam"))
        .current_dir(folder.path())
        .arg("presets")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}
