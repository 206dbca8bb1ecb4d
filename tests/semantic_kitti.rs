//! SemanticKITTI from scans to predictions that its evaluator reads, with the real binary.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use assert_cmd::cargo::cargo_bin;
use common::{fails, floats, folder, json_lines, occam, refuses, stderr, stdout, works};

/// Two labelled scans of a road and a wall, taken a metre apart.
fn recording(root: &Path) {
    let sequence = root.join("data/sequences/00");
    for name in ["velodyne", "labels"] {
        fs::create_dir_all(sequence.join(name)).unwrap();
    }
    fs::write(sequence.join("calib.txt"), "Tr: 1 0 0 0 0 1 0 0 0 0 1 0\n").unwrap();
    fs::write(sequence.join("poses.txt"), "1 0 0 0 0 1 0 0 0 0 1 0\n1 0 0 1 0 1 0 0 0 0 1 0\n").unwrap();
    for scan in 0..2 {
        let (mut points, mut labels) = (Vec::new(), Vec::new());
        for (i, j) in (0..60).flat_map(|i| (0..60).map(move |j| (i as f32, j as f32))) {
            points.extend([3.1 + 0.3 * i - scan as f32, 0.3 * j - 9.1, -1.7, 0.3]);
            points.extend([20.1 - scan as f32, 0.3 * j - 9.1, -1.7 + 0.05 * i, 0.5]);
            labels.extend([40_u32, 50]);
        }
        fs::write(sequence.join(format!("velodyne/{scan:06}.bin")), floats(&points)).unwrap();
        let labels: Vec<u8> = labels.into_iter().flat_map(u32::to_le_bytes).collect();
        fs::write(sequence.join(format!("labels/{scan:06}.label")), labels).unwrap();
    }
}

#[test]
fn voxels_are_built_trained_on_and_predicted_as_the_evaluator_reads_them() {
    let folder = folder();
    recording(folder.path());
    let build = ["data", "build", "data", "-o", "built", "--stride", "1", "--log-format", "json"];
    let built = json_lines(&works(folder.path(), &build));
    assert_eq!((&built[0]["event"], &built[0]["sequences"][0]["built"]), (&"built".into(), &2.into()));
    assert_eq!(built[0]["sequences"][0]["short"], 2);
    let voxels = folder.path().join("built/sequences/00/voxels");
    for (ending, bytes) in [("bin", 262_144), ("occluded", 262_144), ("invalid", 262_144), ("label", 4_194_304)] {
        assert_eq!(fs::metadata(voxels.join(format!("000001.{ending}"))).unwrap().len(), bytes, "{ending}");
    }
    assert_eq!(json_lines(&works(folder.path(), &build))[0]["sequences"][0]["kept"], 2);
    let text = works(folder.path(), &["data", "info", "built"]);
    assert!(text.contains("1 sequence, 0 scans, 2 voxel targets"), "{text}");
    let everything = ["data", "build", "data", "--stride", "1"];
    works(folder.path(), &everything);
    let own = folder.path().join("data/sequences/00/voxels");
    assert_eq!(fs::read(own.join("000001.label")).unwrap(), fs::read(voxels.join("000001.label")).unwrap());
    assert!(works(folder.path(), &["data", "check", "data"]).contains("2 files checked, nothing suspicious"));
    labels_that_are_not_those_of_the_input(folder.path(), &own);
    // One voxel up, as in the first release: every bit moves to the next place.
    let bits = fs::read(own.join("000000.bin")).unwrap();
    let lifted = bits.iter().scan(0, |carry, byte| Some(std::mem::replace(carry, byte << 7) | byte >> 1));
    fs::write(own.join("000000.bin"), lifted.collect::<Vec<u8>>()).unwrap();
    fs::write(own.join("000001.invalid"), "short").unwrap();
    let checked = occam(folder.path(), &["data", "check", "data"]);
    let text = stdout(&checked);
    assert!(
        text.contains("000000.label: warning: found voxels that lie one voxel higher") && text.contains("v1.1"),
        "{text}"
    );
    assert!(stderr(&checked).contains("000001.invalid: found 5 bytes"), "{}", stderr(&checked));
    fs::remove_dir_all(&own).unwrap();

    let refused = ["data", "build", "data", "-o", "built", "--future", "1"];
    fails(folder.path(), &refused, 2, &["made by other rules", "--force"]);

    let mut train = vec!["train", "data", "--no-gui", "--preset", "semantic-kitti-small", "--device", "cpu"];
    train.extend(["--grid", "64x64x8", "--voxel", "0.8", "--steps", "1", "--name", "m"]);
    train.extend(["--set", "data.voxels=built", "--set", "data.target=voxels"]);
    let text = works(folder.path(), &train);
    assert!(text.contains("nearest target"), "{text}");

    // The scans that the benchmark scores are those with a file in voxels/.
    let scored = folder.path().join("data/sequences/00/voxels");
    fs::create_dir(&scored).unwrap();
    fs::copy(voxels.join("000001.bin"), scored.join("000001.bin")).unwrap();
    let predict = ["predict", "runs/m", "data", "-o", "out", "--device", "cpu"];
    let output = occam(folder.path(), &predict);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // Their layout says how many values a point has.
    assert!(!stderr(&output).contains("guessed"), "{}", stderr(&output));
    let predictions = folder.path().join("out/sequences/00/predictions");
    let names: Vec<_> = fs::read_dir(&predictions).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["000001.label"]);
    let bytes = fs::read(predictions.join("000001.label")).unwrap();
    assert_eq!(bytes.len(), 256 * 256 * 32 * 2);
    let ids: BTreeSet<u16> = bytes.chunks(2).map(|id| u16::from_le_bytes([id[0], id[1]])).collect();
    let scored = [0, 10, 11, 15, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 70, 71, 72, 80, 81];
    assert!(ids.iter().all(|id| scored.contains(id)), "{ids:?}");
    fails(folder.path(), &["predict", "runs/m", "data", "-o", "a.label", "--device", "cpu"], 2, &["give a folder"]);
}

/// The labels alone are wrong: those of another place, one voxel up, and with x and y swapped.
fn labels_that_are_not_those_of_the_input(folder: &Path, voxels: &Path) {
    let file = voxels.join("000000.label");
    let good = fs::read(&file).unwrap();
    let at = |[x, y, z]: [usize; 3]| 2 * ((x * 256 + y) * 32 + z);
    let moved = |from: &dyn Fn([usize; 3]) -> Option<[usize; 3]>| -> Vec<u8> {
        let places = (0..256).flat_map(|x| (0..256).flat_map(move |y| (0..32).map(move |z| [x, y, z])));
        places.flat_map(|place| from(place).map_or([0; 2], |from| [good[at(from)], good[at(from) + 1]])).collect()
    };
    let cases = [
        (moved(&|[x, y, z]| Some([x, y, z.checked_sub(1)?])), "found labels that lie one voxel higher"),
        (moved(&|[x, y, z]| Some([y, x, z])), "their axes are mixed up"),
        (moved(&|[x, y, z]| Some([x, y.checked_sub(60)?, z])), "The labels belong to another scan"),
    ];
    for (labels, expected) in cases {
        fs::write(&file, labels).unwrap();
        let text = works(folder, &["data", "check", "data"]);
        assert!(text.contains(expected) && text.contains("1 with warnings"), "{expected}: {text}");
    }
    fs::write(&file, good).unwrap();
}

#[test]
fn what_a_build_needs_is_named_when_it_is_missing() {
    let folder = folder();
    recording(folder.path());
    let build = |more: &[&str], words: &[&str]| {
        let args: Vec<&str> = ["data", "build", "data"].iter().chain(more).copied().collect();
        refuses(folder.path(), &args, 2, words);
    };
    build(&["--sequence", "07"], &["07", "00"]);
    build(&["--min-range", "5", "--max-range", "2"], &["--max-range"]);
    fs::write(folder.path().join("full"), "").unwrap();
    build(&["-o", "full"], &["full/sequences/00/voxels", "-o"]);
    let sequence = folder.path().join("data/sequences/00");
    let published = sequence.join("voxels/000000.label");
    fs::create_dir(sequence.join("voxels")).unwrap();
    fs::write(&published, "published").unwrap();
    build(&[], &["did not make", "--force"]);
    assert_eq!(fs::read(&published).unwrap(), b"published");
    fs::remove_dir_all(sequence.join("voxels")).unwrap();
    fs::write(sequence.join("poses.txt"), "1 0 0 0 0 1 0 0 0 0 1 0\n").unwrap();
    build(&[], &["found 1 poses", "at least 2 for 2 scans"]);
    fs::remove_file(sequence.join("labels/000001.label")).unwrap();
    build(&[], &["000001.label", "1 label files for 2 scans"]);
    fs::remove_dir_all(sequence.join("velodyne")).unwrap();
    fs::create_dir_all(sequence.join("voxels")).unwrap();
    build(&[], &["voxels/ without velodyne/"]);
    fails(folder.path(), &["train", "data", "--no-gui"], 2, &["voxels/ without velodyne/"]);
}

/// A limit on the size of files stands in for a full disk: some of the files fit.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_no_half_anchor() {
    let folder = folder();
    recording(folder.path());
    let command = format!("ulimit -f 1024; exec '{}' data build data --stride 5", cargo_bin("occam").display());
    let output = Command::new("bash").current_dir(folder.path()).args(["-c", &command]).output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("000000.label") && text.contains("space left"), "{text}");
    let voxels = folder.path().join("data/sequences/00/voxels");
    assert!(!voxels.join("000000.label").exists());
    let hidden =
        fs::read_dir(&voxels).unwrap().filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
    assert_eq!(hidden.count(), 0);
    let again = works(folder.path(), &["data", "build", "data", "--stride", "5", "--log-format", "json"]);
    assert_eq!(json_lines(&again)[0]["sequences"][0]["built"], 1);
}
