//! Training runs from the first step to a prediction on disk, with the real binary.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use assert_cmd::cargo::cargo_bin;
use common::{fails, floats, folder, json_lines, no_scans, occam, scan, stderr, stdout, works};
use serde_json::Value;
use tempfile::TempDir;

/// A grid and a number of steps that train in seconds.
const TINY: [&str; 13] = [
    "--no-gui",
    "--preset",
    "tiny",
    "--device",
    "cpu",
    "--grid",
    "16x16x8",
    "--steps",
    "4",
    "--set",
    "data.demo_train=4",
    "--set",
    "data.demo_validation=2",
];

/// A folder with a run `runs/m` that all tests share and none changes.
fn trained() -> &'static Path {
    static RUN: OnceLock<TempDir> = OnceLock::new();
    RUN.get_or_init(|| {
        let folder = folder();
        let mut args = vec!["train", "--name", "m"];
        args.extend(TINY);
        works(folder.path(), &args);
        folder
    })
    .path()
}

fn model() -> String {
    trained().join("runs/m").display().to_string()
}

#[test]
fn predict_leaves_nothing_of_a_scan_that_it_cannot_read() {
    let folder = folder();
    let model = model();
    let predict = |name: &str, out: &str, words: &[&str]| {
        fails(folder.path(), &["predict", &model, name, "-o", out, "--device", "cpu"], 2, words);
    };
    for (name, bytes, word) in no_scans() {
        fs::write(folder.path().join(name), bytes).unwrap();
        predict(name, "out.ply", &[name, word]);
    }
    fs::write(folder.path().join("nan.bin"), floats(&[f32::NAN; 40])).unwrap();
    predict("nan.bin", "out/", &["nan.bin", "10 points"]);
    predict("missing.ply", "out/", &["missing.ply"]);
    fs::create_dir(folder.path().join("folder.bin")).unwrap();
    predict("folder.bin", "out/", &["folder.bin", "a folder"]);
    predict("nan.bin", "no/such/folder/a.ply", &["nan.bin"]);
    fs::write(folder.path().join("good.bin"), scan()).unwrap();
    predict("good.bin", "no/such/folder/a.ply", &["no/such/folder/a.ply"]);
    fails(folder.path(), &["predict", "no/such/run", "-o", "out/", "--device", "cpu"], 2, &["no/such/run"]);
}

#[cfg(unix)]
#[test]
fn a_limit_on_file_sizes_is_an_error_and_leaves_no_half_file() {
    let folder = folder();
    fs::write(folder.path().join("good.bin"), scan()).unwrap();
    let command = format!(
        "ulimit -f 1; exec {} predict {} good.bin -o out.label --device cpu",
        cargo_bin("occam").display(),
        model()
    );
    let output = Command::new("sh").args(["-c", &command]).current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("out.label"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the scan is there");
}

/// A folder in SemanticKITTI's layout: `scans` scans with labels.
fn semantic_kitti(root: &Path, scans: usize, labels: impl Fn(usize) -> Vec<u32>) {
    let sequence = root.join("sequences/00");
    fs::create_dir_all(sequence.join("velodyne")).unwrap();
    fs::create_dir_all(sequence.join("labels")).unwrap();
    let pose = "1 0 0 0 0 1 0 0 0 0 1 0\n";
    fs::write(sequence.join("poses.txt"), pose.repeat(scans)).unwrap();
    fs::write(sequence.join("calib.txt"), "Tr: 1 0 0 0 0 1 0 0 0 0 1 0\n").unwrap();
    for index in 0..scans {
        fs::write(sequence.join(format!("velodyne/{index:06}.bin")), scan()).unwrap();
        let bytes: Vec<u8> = labels(index).iter().flat_map(|l| l.to_le_bytes()).collect();
        fs::write(sequence.join(format!("labels/{index:06}.label")), bytes).unwrap();
    }
}

#[test]
fn labels_that_do_not_fit_their_scans_are_refused_before_a_run_begins() {
    let points = scan().len() / 16;
    let short = folder();
    semantic_kitti(short.path(), 3, |index| vec![40; if index == 1 { points - 1 } else { points }]);
    let mut args = vec!["train", "."];
    args.extend(TINY);
    fails(short.path(), &args, 2, &["000001.bin", "000001.label", &points.to_string(), &(points - 1).to_string()]);

    let stranger = folder();
    semantic_kitti(stranger.path(), 3, |_| vec![7777; points]);
    fails(stranger.path(), &args, 2, &["000000.label", "7777"]);

    let nothing = folder();
    fails(nothing.path(), &args, 2, &["sequences"]);
}

#[test]
fn a_grid_that_no_memory_holds_is_exit_code_3() {
    let folder = folder();
    let mut args = vec!["train"];
    args.extend(TINY);
    let place = args.iter().position(|a| *a == "16x16x8").unwrap();
    args[place] = "8192x8192x32";
    fails(folder.path(), &args, 3, &["8192"]);
    args[place] = "65536x65536x65536";
    fails(folder.path(), &args, 3, &["65536"]);
    args[place] = "15x16x8";
    fails(folder.path(), &args, 2, &["15"]);
}

#[test]
fn a_device_that_is_not_there_is_never_replaced() {
    let folder = folder();
    fails(folder.path(), &["train", "--no-gui", "--device", "no such card"], 2, &["no such card"]);
    let model = model();
    fails(folder.path(), &["predict", &model, "-o", "a.ply", "--device", "99"], 2, &["99"]);
}

#[test]
fn a_cloud_outside_the_grid_prints_both_bounds_and_suggests_an_origin() {
    let folder = folder();
    fs::write(folder.path().join("far.bin"), floats(&[900.0, 900.0, 0.0, 0.1, 901.0, 902.0, 1.0, 0.1])).unwrap();
    let model = model();
    let args = ["predict", &model, "far.bin", "-o", "out/", "--device", "cpu"];
    fails(folder.path(), &args, 2, &["far.bin", "900", "902", "6.40", "--origin"]);
}

#[test]
fn a_run_trains_scores_and_predicts_in_every_format() {
    let folder = folder();
    let model = model();
    assert!(trained().join("runs/m/config.toml").is_file());

    let scores = works(folder.path(), &["eval", &model, "--device", "cpu"]);
    assert!(scores.contains("mIoU") && scores.contains("recall"), "{scores}");
    let scores = json_lines(&works(folder.path(), &["eval", &model, "--device", "cpu", "--log-format", "json"]));
    let iou = scores.last().unwrap()["scores"]["iou"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&iou), "{scores:?}");

    fs::write(folder.path().join("000007.bin"), scan()).unwrap();
    let starts: [(&str, &[u8]); 4] =
        [("a.ply", b"ply\n"), ("a.label", b""), ("a.npz", b"PK"), ("a.png", b"\x89PNG\r\n")];
    for (name, start) in starts {
        works(folder.path(), &["predict", &model, "000007.bin", "-o", name, "--device", "cpu"]);
        let bytes = fs::read(folder.path().join(name)).unwrap();
        assert!(bytes.starts_with(start) && bytes.len() > 100, "{name}: {} bytes", bytes.len());
    }
    // Two bytes a voxel.
    assert_eq!(fs::metadata(folder.path().join("a.label")).unwrap().len(), 16 * 16 * 8 * 2);
    let said = works(folder.path(), &["data", "info", "a.npz"]);
    assert!(said.contains("16x16x8"), "{said}");

    let said =
        works(folder.path(), &["predict", &model, "000007.bin", "-o", "out", "--format", "label", "--device", "cpu"]);
    assert!(said.contains("of 3,200 points"), "{said}");
    let mut names: Vec<_> = fs::read_dir(folder.path().join("out"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["000007.label"]);
    let png = ["predict", &model, "000007.bin", "-o", "x.png", "--format", "ply", "--device", "cpu"];
    fails(folder.path(), &png, 2, &["x.png", "--format says ply", "-o x.ply"]);

    // No scan: a demo world, the same for the same seed.
    for name in ["demo-a.label", "demo-b.label"] {
        works(folder.path(), &["predict", &model, "--demo", "5", "-o", name, "--device", "cpu"]);
    }
    let [a, b] = ["demo-a.label", "demo-b.label"].map(|name| fs::read(folder.path().join(name)).unwrap());
    assert_eq!(a, b);
}

/// A model that sees more than positions says so, and wants it of every scan.
#[test]
fn a_scan_without_what_the_model_sees_is_refused_by_name() {
    let folder = folder();
    let mut args = vec!["train", "--name", "m", "--set", "input.intensity=true", "--set", "input.visibility=true"];
    args.extend(TINY);
    let said = works(folder.path(), &args);
    assert!(said.contains("occupancy, visibility, intensity"), "{said}");
    works(folder.path(), &["eval", "runs/m", "--device", "cpu"]);

    fs::write(folder.path().join("with.bin"), scan()).unwrap();
    let output = occam(folder.path(), &["predict", "runs/m", "with.bin", "-o", "a.ply", "--device", "cpu"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let points = "1 0 0\n2 1 0\n3 -1 -1\n";
    let header = "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n";
    fs::write(folder.path().join("without.ply"), format!("{header}end_header\n{points}")).unwrap();
    let args = ["predict", "runs/m", "without.ply", "-o", "b.ply", "--device", "cpu", "--origin", "0,0,0"];
    fails(folder.path(), &args, 2, &["without.ply", "no intensity", "input.intensity"]);
}

#[test]
fn json_output_of_a_run_is_json_only_and_complete() {
    let folder = folder();
    let mut args = vec!["train", "--log-format", "json"];
    args.extend(TINY);
    let events = json_lines(&works(folder.path(), &args));
    let kinds: Vec<&str> = events.iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(kinds.first(), Some(&"started"), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"done"), "{kinds:?}");
    let steps: Vec<u64> = events.iter().filter(|e| e["event"] == "step").map(|e| e["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [1, 2, 3, 4]);
    let preparing: Vec<&str> = events.iter().filter_map(|e| e["what"].as_str()).collect();
    assert!(preparing.starts_with(&["counting classes"]) && preparing.contains(&"scoring baselines"), "{preparing:?}");
    let done = events.last().unwrap();
    assert!(done["validation"]["iou"].is_number() && done["peak_bytes"].as_u64().unwrap() > 0, "{done}");
    assert!(done["baselines"].as_array().unwrap().len() >= 3, "{done}");
}

#[test]
fn a_quiet_run_prints_its_folder_and_nothing_else() {
    let folder = folder();
    let mut args = vec!["train", "-q", "--name", "quiet"];
    args.extend(TINY);
    let output = occam(folder.path(), &args);
    assert_eq!((stdout(&output).trim(), stderr(&output).as_str()), ("runs/quiet", ""));
}

#[test]
fn a_budget_that_nothing_fits_in_ends_a_run_saved_with_exit_code_3() {
    let folder = folder();
    let mut args = vec!["train", "--name", "b", "--vram", "1MiB"];
    args.extend(TINY);
    let output = occam(folder.path(), &args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains("1.00 MiB") && text.contains("smallest budget that fits is") && text.contains("runs/b"),
        "{text}"
    );
    works(folder.path(), &["predict", "runs/b", "-o", "a.label", "--device", "cpu"]);
}

#[test]
fn a_run_within_a_budget_says_its_plan_and_keeps_it_for_resume() {
    let folder = folder();
    let mut args = vec!["train", "--name", "b", "--vram", "1GiB", "--log-format", "json"];
    args.extend(TINY);
    let events = json_lines(&works(folder.path(), &args));
    let planned = events.iter().find(|event| event["event"] == "planned").unwrap();
    assert_eq!((planned["strategy"].as_str(), planned["budget_bytes"].as_u64()), (Some("plan"), Some(1 << 30)));
    assert!(
        planned["segments"].as_array().unwrap().len() > 5 && planned["predicted_bytes"].as_u64().unwrap() > 1 << 20
    );
    let config = fs::read_to_string(folder.path().join("runs/b/config.toml")).unwrap();
    assert!(config.contains("budget = \"1GiB\"") && config.contains("recompute = \"auto\""), "{config}");
}

#[test]
fn plans_are_shown_and_no_run_is_made() {
    let folder = folder();
    let mut args = vec!["train", "--plan", "--plan-picture", "plan.png", "--log-format", "json"];
    args.extend(TINY);
    let events = json_lines(&works(folder.path(), &args));
    let rows = events[0]["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert!(names.starts_with(&["none", "every-2", "sqrt", "topology", "plan"]) && names.len() >= 10, "{names:?}");
    assert!(rows.iter().all(|row| row["measured_bytes"].as_u64().is_some() && row["step_ms"].as_f64().is_some()));
    assert!(fs::read(folder.path().join("plan.png")).unwrap().starts_with(b"\x89PNG"));
    assert!(!folder.path().join("runs").exists());
}

/// The table says what would fit where the budget does not.
#[test]
fn a_plan_that_does_not_fit_is_shown_and_ends_with_exit_code_3() {
    let folder = folder();
    let mut args = vec!["train", "--plan", "--vram", "1MiB", "--precision", "auto", "--log-format", "json"];
    args.extend(TINY);
    let output = occam(folder.path(), &args);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("the smallest budget that fits"), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let event: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert!(event["rows"].as_array().unwrap().iter().all(|row| row["measured_bytes"].as_u64().is_some()), "{event}");
    assert_eq!((event["precision"].as_str(), &event["measured_bytes"]), (Some("f32"), &Value::Null));
}

#[test]
fn budgets_and_strategies_that_cannot_be_are_usage_errors() {
    let folder = folder();
    fails(folder.path(), &["train", "--vram", "4 parsecs"], 2, &["4 parsecs", "4GiB"]);
    fails(folder.path(), &["train", "--set", "memory.budget=lots"], 2, &["memory.budget", "lots", "4GiB"]);
    fails(folder.path(), &["train", "--recompute", "sqrtt"], 2, &["memory.recompute", "did you mean \"sqrt\""]);
    fails(folder.path(), &["train", "--recompute", "plan"], 2, &["--vram"]);
}

#[cfg(unix)]
fn spawn(folder: &Path, args: &[&str]) -> Child {
    let mut command = Command::new(cargo_bin("occam"));
    command.current_dir(folder).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[cfg(unix)]
fn signal(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

#[cfg(unix)]
fn signalled(signal: &str, code: i32) {
    let folder = folder();
    let mut args = vec!["train", "--log-format", "json", "--name", "s"];
    args.extend(TINY);
    let place = args.iter().position(|a| *a == "--steps").unwrap();
    // Far more than it takes to signal, few enough to end by itself should the test be killed.
    args[place + 1] = "20000";
    let mut child = spawn(folder.path(), &args);
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut events = Vec::new();
    for line in lines {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if event["event"] == "step" && event["step"] == 1 {
            self::signal(&child, signal);
        }
        events.push(event);
    }
    assert_eq!(child.wait().unwrap().code(), Some(code));
    let done = events.last().unwrap();
    assert_eq!((&done["event"], &done["interrupted"]), (&"done".into(), &true.into()), "{done}");
    let saved = events.iter().rfind(|e| e["event"] == "checkpoint").expect("a checkpoint");
    assert!(folder.path().join(saved["path"].as_str().unwrap()).is_dir(), "{saved}");
    // What was saved can be used.
    works(folder.path(), &["predict", "runs/s", "-o", "a.label", "--device", "cpu"]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_finishes_the_step_saves_and_exits_130() {
    signalled("-INT", 130);
}

#[cfg(unix)]
#[test]
fn sigterm_saves_and_exits_75() {
    signalled("-TERM", 75);
}

/// A second Ctrl-C does not wait for the step, the save or anything else.
#[cfg(unix)]
#[test]
fn a_second_ctrl_c_ends_the_program_at_once() {
    let folder = folder();
    let mut args = vec!["train", "--log-format", "json", "--name", "s"];
    args.extend(TINY);
    // A step that takes longer than any test should.
    let place = args.iter().position(|a| *a == "16x16x8").unwrap();
    args[place] = "128x128x16";
    args.extend(["--batch", "30"]);
    let mut child = spawn(folder.path(), &args);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let loaded = lines.find(|line| line.as_ref().unwrap().contains("\"loaded\""));
    assert!(loaded.is_some(), "the run begins");
    signal(&child, "-INT");
    // Until the first one is noticed, the second would be the same signal.
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(folder.path().join("runs/s/checkpoints")).unwrap().count(), 0);
}

/// Whoever reads may leave; the run goes on and is there when it ends.
#[cfg(unix)]
#[test]
fn a_run_outlives_its_reader() {
    let folder = folder();
    let mut args = vec!["train", "--name", "p"];
    args.extend(TINY);
    let mut child = spawn(folder.path(), &args);
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(folder.path().join("runs/p/checkpoints/4").is_dir());
}

/// What a run prints at its end can be pasted as it stands.
#[cfg(unix)]
#[test]
fn the_next_commands_work_as_printed() {
    let folder = folder();
    let mut args = vec!["train", "--name", "my run"];
    args.extend(TINY);
    let text = works(folder.path(), &args);
    let next: Vec<&str> = text.split("next ").nth(1).expect("next commands").lines().map(str::trim).collect();
    assert_eq!(next.len(), 2, "{text}");
    for line in next {
        let output = Command::new("sh").current_dir(folder.path()).args(["-c", line]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
    }
    assert!(folder.path().join("prediction.png").is_file());
}

#[cfg(unix)]
#[test]
fn a_stopped_run_goes_on_where_it_was() {
    let folder = folder();
    let mut args = vec!["train", "--log-format", "json", "--name", "r"];
    args.extend(TINY);
    let place = args.iter().position(|a| *a == "--steps").unwrap();
    args[place + 1] = "150";
    let mut child = spawn(folder.path(), &args);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    lines.find(|line| line.as_ref().unwrap().contains("\"step\"")).expect("a step").unwrap();
    signal(&child, "-INT");
    let rest: String = lines.map(|line| line.unwrap() + "\n").collect();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let stopped = json_lines(&rest).last().unwrap()["steps"].as_u64().unwrap();
    assert!(stopped < 150, "stopped at {stopped}");

    let events = json_lines(&works(folder.path(), &["resume", "runs/r", "--log-format", "json"]));
    assert_eq!(events[0]["steps_before"], stopped);
    let first = events.iter().find(|e| e["event"] == "step").unwrap();
    assert_eq!(first["step"], stopped + 1);
    let done = events.last().unwrap();
    assert_eq!((&done["steps"], &done["interrupted"]), (&150.into(), &false.into()));
    fails(folder.path(), &["resume", "runs/none"], 2, &["runs/none", "before its first step"]);

    // A run that is done is not done again.
    let text = works(folder.path(), &["resume", "runs/r"]);
    assert!(text.contains("complete") && text.contains("150 steps") && text.contains("--weights runs/r"), "{text}");
    assert!(!text.contains("validation"), "{text}");
}

/// Settings and flags of one command line are judged together.
/// In every format, and a format or policy that is none is refused before anything is written.
#[test]
fn half_precision_trains_and_goes_on() {
    let folder = folder();
    for format in ["f16", "bf16"] {
        let mut args = vec!["train", "--precision", format, "--name", format];
        args.extend(TINY);
        works(folder.path(), &args);
        let config = fs::read_to_string(folder.path().join("runs").join(format).join("config.toml")).unwrap();
        assert!(config.contains(&format!("format = \"{format}\"")), "{config}");
    }
    for (args, code, words) in [
        (["--precision", "f8"], 2, "bf16"),
        (["--set", "precision.format=f8"], 2, "precision.format"),
        (["--set", "precision.loss_scale=dynmic"], 2, "grad-norm"),
        (["--set", "precision.initial_scale=0"], 2, "precision.initial_scale"),
    ] {
        let mut all = vec!["train"];
        all.extend(TINY);
        all.extend(args);
        fails(folder.path(), &all, code, &[words]);
    }
}

/// No plan in f32 fits, one in f16 may: only `auto` goes on in f16, and says so in one line.
#[test]
fn a_budget_below_every_plan_in_f32_makes_auto_take_f16() {
    for (format, half) in [("f32", false), ("auto", true)] {
        let folder = folder();
        let mut args = vec!["train", "--precision", format, "--vram", "1MiB"];
        args.extend(TINY);
        let output = occam(folder.path(), &args);
        let lines = stderr(&output).lines().filter(|line| line.contains("precision: f16, because")).count();
        assert_eq!((output.status.code(), lines), (Some(3), usize::from(half)), "{}", stderr(&output));
    }
}

#[test]
fn a_grid_of_flags_and_settings_is_checked_as_a_whole() {
    let folder = folder();
    // With the counts of the preset this grid lies left of the sensor, and cannot be flipped.
    let args = ["train", "--no-gui", "--preset", "tiny", "--device", "cpu", "--steps", "1", "--name", "g"];
    let small = ["--set", "data.demo_train=2", "--set", "data.demo_validation=1"];
    let grid = ["--set", "grid.origin_m=[0.0, -30.0, -2.4]", "--grid", "16x64x8"];
    works(folder.path(), &[args.as_slice(), &small, &grid].concat());
    let config = fs::read_to_string(folder.path().join("runs/g/config.toml")).unwrap();
    assert!(config.contains("-30.0") && config.contains("64"), "{config}");
}

#[test]
fn the_data_decide_the_preset_and_the_header_says_so() {
    let folder = folder();
    semantic_kitti(folder.path(), 3, |_| vec![40; scan().len() / 16]);
    let args = ["train", ".", "--no-gui", "--device", "cpu", "--grid", "32x32x8", "--steps", "1"];
    let text = works(folder.path(), &args);
    assert!(text.contains("preset      semantic-kitti-small (chosen by the data)"), "{text}");
    assert!(text.contains("grid        32x32x8 voxels of 0.4 m"), "{text}");
}

/// Rows `x, y, z, label` as SurroundOcc has them, on 200x200x16 voxels of 0.5 m.
#[test]
fn pairs_of_a_benchmark_bring_its_grid() {
    let folder = folder();
    let rows: Vec<u8> = (90..110).flat_map(|x| [x, 100, 4, 11]).flat_map(|v| f64::from(v).to_le_bytes()).collect();
    let shape = "{'descr': '<f8', 'fortran_order': False, 'shape': (20, 4), }";
    let npy = [b"\x93NUMPY\x01\x00v\x00".as_slice(), format!("{shape:<117}\n").as_bytes(), &rows].concat();
    for name in ["a", "b"] {
        fs::write(folder.path().join(name).with_extension("bin"), scan()).unwrap();
        fs::write(folder.path().join(name).with_extension("npy"), &npy).unwrap();
    }
    let text = works(folder.path(), &["train", ".", "--no-gui", "--device", "cpu", "--steps", "1"]);
    assert!(text.contains("preset      demo (chosen by the data)"), "{text}");
    assert!(text.contains("grid        200x200x16 voxels of 0.5 m"), "{text}");
}
