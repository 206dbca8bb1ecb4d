//! `data info` and `data check` on ground truth of the benchmarks, as numpy wrote it.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{fails, folder, json_lines, occam, stderr, stdout, works};

fn golden(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("engine/scene/tests/golden/grids").join(file)
}

#[test]
fn data_info_shows_a_ground_truth_in_the_terms_of_its_benchmark() {
    let folder = folder();
    let info = |file: &str| works(folder.path(), &["data", "info", golden(file).to_str().unwrap()]);
    let text = info("occ3d-nuscenes/labels.npz");
    for word in ["Occ3D-nuScenes, 200x200x16 voxels of 0.4 m", "car (x forward", "mask_camera", "driveable_surface"] {
        assert!(text.contains(word), "{word} expected in\n{text}");
    }
    let text = info("openocc/labels.npz");
    assert!(text.contains("fastest") && text.contains("(class 16)"), "{text}");
    let text = info("occnet/000_occ.npy");
    assert!(text.contains("nuScenes LiDAR (x right") && text.contains("255  ignored"), "{text}");
    assert!(info("surroundocc/voxels.npy").contains("1 row of a voxel already listed"));
    assert!(info("carla-sc/evaluation/000000.label").contains("12x10x8 voxels of 0.5 x 0.5 x 0.375 m"));
    let path = golden("openoccupancy-flow/occupancy/token.npy");
    let found = works(folder.path(), &["data", "info", path.to_str().unwrap(), "--log-format", "json"]);
    let found = json_lines(&found).remove(0);
    assert_eq!(found["format"], "openoccupancy");
    assert_eq!(found["counts"], serde_json::json!([512, 512, 40]));
    let voxels: u64 = found["classes"].as_array().unwrap().iter().map(|c| c["count"].as_u64().unwrap()).sum();
    assert_eq!(voxels, 512 * 512 * 40);
}

#[test]
fn data_check_warns_and_goes_on_but_cannot_pass_what_it_cannot_read() {
    let folder = folder();
    let occ3d = golden("occ3d-nuscenes/labels.npz");
    let occ3d = occ3d.to_str().unwrap();
    let text = works(folder.path(), &["data", "check", occ3d]);
    assert!(text.contains("Occ3D-nuScenes, nothing suspicious"), "{text}");
    let text = works(folder.path(), &["data", "check", occ3d, "--format", "openocc"]);
    assert!(text.contains("warning: found id 17 in ") && text.contains("--format occ3d-nuscenes"), "{text}");
    fails(folder.path(), &["data", "check", occ3d, "--format", "occ4d"], 2, &["occ4d", "surroundocc"]);
    fails(folder.path(), &["data", "check", occ3d, "--format", "surroundocc"], 2, &["SurroundOcc"]);
    fs::write(folder.path().join("notes.txt"), "nothing").unwrap();
    fails(folder.path(), &["data", "check", "notes.txt"], 2, &["notes.txt", "--format"]);
    fails(folder.path(), &["data", "check", "."], 2, &["no file whose name or arrays"]);
    for missing in ["missing.npz", "missing", "a/voxels/missing.label"] {
        fails(folder.path(), &["data", "check", missing], 2, &[missing, "No such file"]);
    }
    fs::write(folder.path().join("broken.npz"), "PK\x03\x04 cut off").unwrap();
    let text = stdout(&occam(folder.path(), &["data", "check", "broken.npz", "notes.txt"]));
    assert!(text.contains("0 files checked, 2 unreadable") && !text.contains("suspicious"), "{text}");
}

#[test]
fn data_check_of_a_folder_sums_up() {
    let folder = folder();
    let data = folder.path().join("gts/scene-1");
    for token in ["a", "b", "c"] {
        fs::create_dir_all(data.join(token)).unwrap();
        fs::copy(golden("occ3d-nuscenes/labels.npz"), data.join(token).join("labels.npz")).unwrap();
    }
    fs::write(data.join("annotations.json"), "{}").unwrap();
    let text = works(folder.path(), &["data", "check", "gts"]);
    assert!(text.contains("Occ3D-nuScenes, 3 files") && text.contains("3 files checked, nothing suspicious"), "{text}");
    fs::write(data.join("b/labels.npz"), "PK\x03\x04 cut off").unwrap();
    let output = occam(folder.path(), &["data", "check", "gts", "--format", "openocc", "--log-format", "json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("b/labels.npz: found a damaged archive"), "{}", stderr(&output));
    let events = json_lines(&stdout(&output));
    let sum = events.last().unwrap();
    assert_eq!((&sum["files"], &sum["with_warnings"], &sum["unreadable"]), (&2.into(), &2.into(), &1.into()), "{sum}");
    assert_eq!(sum["kinds"]["free-id"], 2);
    let first = events.iter().find(|event| event["findings"].is_array()).unwrap();
    assert_eq!((&first["format"], &first["findings"][0]["kind"]), (&"openocc".into(), &"free-id".into()), "{first}");
}

#[cfg(unix)]
#[test]
fn data_check_of_a_folder_can_be_stopped() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let folder = folder();
    let first = folder.path().join("labels.npz");
    fs::copy(golden("occ3d-nuscenes/labels.npz"), &first).unwrap();
    // Far more than are checked before the signal comes.
    for number in 0..3000 {
        fs::hard_link(&first, folder.path().join(format!("{number}.npz"))).unwrap();
    }
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("occam"))
        .current_dir(folder.path())
        .args(["data", "check", ".", "--log-format", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(rest.len() < 2999, "{} lines after the signal", rest.len());
    let sum = json_lines(rest.last().unwrap()).remove(0);
    assert_eq!((&sum["event"], &sum["interrupted"]), (&"checked".into(), &true.into()), "{sum}");
    assert_eq!(sum["files"], rest.len());
}
