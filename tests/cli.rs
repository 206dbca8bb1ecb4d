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
    fails(folder.path(), &["train", "--precision", "f16"], 2, &["f16", "f32"]);
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
