//! Scans without labels, from files to a prediction, with the real binary.

mod common;

use std::fs;
use std::path::Path;

use common::{fails, folder, json_lines, listing, works};
use serde_json::Value;

/// A grid and a number of steps that train in seconds.
const TINY: [&str; 10] =
    ["--no-gui", "--device", "cpu", "--grid", "16x16x8", "--steps", "4", "--log-format", "json", "--set"];

fn train(folder: &Path, data: &str, name: &str, set: &str) -> Vec<Value> {
    let mut args = vec!["train", data, "--name", name];
    args.extend(TINY);
    args.push(set);
    json_lines(&works(folder, &args))
}

fn event<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    events.iter().find(|event| event["event"] == kind).unwrap_or_else(|| panic!("{kind} in {events:?}"))
}

#[test]
fn a_folder_of_scans_goes_all_the_way_to_a_picture() {
    let folder = folder();
    works(folder.path(), &["data", "demo", "mine", "--scans", "20"]);
    let said = works(folder.path(), &["data", "info", "mine"]);
    assert!(said.contains("20 scans") && said.contains("poses.txt") && said.contains("to train on"), "{said}");

    // Without a preset, scans without labels get the one made for them.
    let events = train(folder.path(), "mine", "m", "data.future_scans=3");
    assert_eq!(event(&events, "started")["classes"], serde_json::json!(["empty", "occupied"]));
    assert!(fs::read_to_string(folder.path().join("runs/m/config.toml")).unwrap().contains("preset = \"own-scans\""));
    let done = event(&events, "done");
    assert!(done["baselines"].as_array().unwrap().len() >= 3 && done["validation"]["iou"].is_number(), "{done}");

    let scores =
        json_lines(&works(folder.path(), &["eval", "runs/m", "mine", "--device", "cpu", "--log-format", "json"]));
    assert_eq!(event(&scores, "evaluated")["scores"]["iou"], done["validation"]["iou"]);

    let predict = ["predict", "runs/m", "mine/000019.ply", "--device", "cpu", "-o"];
    for (output, origin) in [("a.png", None), ("a.label", None), ("b.label", Some("--origin=0,0,0"))] {
        works(folder.path(), &predict.into_iter().chain([output]).chain(origin).collect::<Vec<_>>());
    }
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert!(read("a.png").starts_with(b"\x89PNG"));
    assert_eq!(read("a.label"), read("b.label"), "the sensor stands at the origin, as in training");
}

#[test]
fn a_dense_cloud_goes_all_the_way_to_a_score() {
    let folder = folder();
    works(folder.path(), &["data", "demo", "street.ply", "--as", "cloud", "--scans", "12", "--labels"]);
    let events = train(folder.path(), "street.ply", "c", "data.virtual_scans=8");
    let started = event(&events, "started");
    let samples = [&started["train_samples"], &started["validation_samples"]].map(|n| n.as_u64().unwrap());
    assert_eq!((samples[0] + samples[1], started["classes"].as_array().unwrap().len()), (8, 2), "{started}");
    assert!(events.iter().any(|e| e["event"] == "warning" && e["message"].as_str().unwrap().contains("data.labels")));

    let mut args = vec!["train", "street.ply", "--name", "d", "--set", "data.virtual_scans=8"];
    args.extend(TINY);
    args.push("data.labels=demo");
    let events = json_lines(&works(folder.path(), &args));
    assert_eq!(event(&events, "started")["classes"].as_array().unwrap().len(), 12);
    let scores = json_lines(&works(folder.path(), &["eval", "runs/d", "--device", "cpu", "--log-format", "json"]));
    assert_eq!(event(&scores, "evaluated")["samples"], samples[1]);
}

#[test]
fn the_demo_is_the_same_for_the_same_seed_and_overwrites_no_folder() {
    let folder = folder();
    for (name, seed) in [("a", "3"), ("b", "3"), ("c", "4")] {
        works(folder.path(), &["data", "demo", name, "--scans", "2", "--seed", seed]);
    }
    let files = |name: &str| listing(&folder.path().join(name)).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    assert_eq!(files("a").len(), 3);
    assert_eq!(files("a"), files("b"));
    assert_ne!(files("a"), files("c"));
    fails(folder.path(), &["data", "demo", "a"], 2, &["a folder with files in it", "empty folder"]);
    fails(folder.path(), &["data", "demo", "cloud", "--as", "cloud"], 2, &["cloud", ".ply"]);
}

#[test]
fn the_demo_takes_no_file_of_the_user_and_leaves_none_of_a_failure() {
    let folder = folder();
    let demo = |more: &[&'static str]| [&["data", "demo"], more, &["--scans", "2"]].concat();
    fs::write(folder.path().join("mine.ply"), "a scan").unwrap();
    fails(folder.path(), &demo(&["mine.ply", "--as", "cloud"]), 2, &["mine.ply", "a new file"]);
    fails(folder.path(), &demo(&["mine.ply"]), 2, &["mine.ply", "a new file"]);
    works(folder.path(), &demo(&["new.ply"]));
    assert!(folder.path().join("new.ply").is_file());
    fails(folder.path(), &demo(&["mine.ply/x"]), 2, &["a folder that can be written", "Choose another place"]);
}

/// Stopped or failed, a demo can be made again under the same name.
#[cfg(unix)]
#[test]
fn a_stopped_demo_leaves_nothing() {
    use std::process::{Command, Stdio};

    let folder = folder();
    let program = assert_cmd::cargo::cargo_bin("occam");
    let mut child = Command::new(&program)
        .current_dir(folder.path())
        .args(["data", "demo", "x", "--scans", "100000"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !folder.path().join("x/000001.ply").is_file() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(common::stderr(&output).lines().count(), 1);
    assert!(listing(folder.path()).is_empty());
    // No file may be larger than 512 bytes.
    let limited = Command::new("sh")
        .current_dir(folder.path())
        .args(["-c", "ulimit -f 1; exec \"$0\" data demo x --scans 2", program.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(!limited.status.success());
    assert!(listing(folder.path()).is_empty());
}

#[test]
fn scans_without_poses_and_poses_without_scans_are_refused_before_a_run_begins() {
    let folder = folder();
    works(folder.path(), &["data", "demo", "mine", "--scans", "3"]);
    let poses = folder.path().join("mine/poses.txt");
    let text = fs::read_to_string(&poses).unwrap();
    fs::write(&poses, text.lines().take(2).collect::<Vec<_>>().join("\n")).unwrap();
    let train = ["train", "mine", "--no-gui", "--device", "cpu"];
    fails(folder.path(), &train, 2, &["poses.txt", "2 poses", "3 scans"]);
    fails(folder.path(), &["data", "info", "mine"], 2, &["poses.txt", "2 poses", "3 scans"]);
    fs::remove_file(&poses).unwrap();
    fails(folder.path(), &train, 2, &["3 scans and no poses", "poses.txt", "world from sensor"]);
    fs::create_dir(folder.path().join("nothing")).unwrap();
    fails(folder.path(), &["train", "nothing", "--no-gui"], 2, &["a folder without scans", "one dense cloud"]);
}
