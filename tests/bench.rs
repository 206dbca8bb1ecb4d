//! `occam bench kernels` as its users meet it.

mod common;

use std::fs;

use common::{fails, folder, json_lines, works};
use serde_json::Value;

/// Small, on the CPU, each side once or a little more.
const QUICK: [&str; 8] = ["bench", "kernels", "--device", "cpu", "--seconds", "0", "--filter", "square 64"];

#[test]
fn a_case_is_timed_beside_burns_and_two_files_compare() {
    let folder = folder();
    let text = works(folder.path(), &[&QUICK[..], &["--json", "a.json"]].concat());
    for word in ["gemm nn forward", "ratio", "Burn 0.22.1, autotune off", "fastest", "on the CPU"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let report: Value = serde_json::from_slice(&fs::read(folder.path().join("a.json")).unwrap()).unwrap();
    assert_eq!(report["kind"], "occam bench kernels");
    assert_eq!((&report["burn"], &report["autotune"]), (&"0.22.1".into(), &false.into()));
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 1);
    // 64 products of 64 x 64 x 64, two operations each.
    assert_eq!((&cases[0]["flops"], &cases[0]["precision"]), (&(2u64 << 24).into(), &"f32".into()));
    assert!(
        cases[0]["ours"]["seconds"].as_f64().unwrap() > 0.0 && cases[0]["burns"]["seconds"].as_f64().unwrap() > 0.0
    );
    assert!(cases[0]["difference"].as_f64().unwrap() < 1e-5, "{cases:?}");

    let text = works(folder.path(), &["bench", "kernels", "--compare", "a.json", "a.json"]);
    assert!(text.contains("square 64 x 64 gemm nn forward f32") && text.contains("B is 1.00 times as fast"), "{text}");
    let events = json_lines(&works(
        folder.path(),
        &["bench", "kernels", "--compare", "a.json", "a.json", "--log-format", "json"],
    ));
    assert_eq!((&events[0]["event"], &events[0]["median_speedup"]), (&"compared".into(), &1.0.into()));
}

#[test]
fn in_json_mode_each_case_is_an_event() {
    let folder = folder();
    let arguments = [&QUICK[..], &["--precision", "both", "--log-format", "json"]].concat();
    let events = json_lines(&works(folder.path(), &arguments));
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(kinds, ["started", "case", "case", "done"]);
    assert_eq!((&events[0]["cases"], &events[2]["precision"]), (&2.into(), &"f16".into()));
    assert!(events[1]["ratio"].as_f64().unwrap() > 0.0, "{events:?}");
}

#[test]
fn what_cannot_be_done_is_one_clear_error() {
    let folder = folder();
    let bench = |arguments: &[&'static str]| [&["bench", "kernels"], arguments].concat();
    fails(folder.path(), &bench(&["--filter", "conv5d"]), 2, &["conv5d", "lmscnet 64x64x16", "max pool", "gemm tn"]);
    fails(folder.path(), &bench(&["--filter", "256x256x32"]), 2, &["--all"]);
    fails(folder.path(), &bench(&["--seconds=-1"]), 2, &["seconds"]);
    fails(folder.path(), &bench(&["--json", "none/a.json", "--device", "cpu"]), 2, &["none/a.json", "folder"]);
    fails(folder.path(), &bench(&["--device", "no such card"]), 2, &["no such card"]);
    fs::write(folder.path().join("bad.json"), "{\"cases\": 3}\n").unwrap();
    fails(folder.path(), &bench(&["--compare", "bad.json", "bad.json"]), 2, &["bad.json", "found", "bench kernels"]);
    fails(folder.path(), &bench(&["--compare", "none.json", "bad.json"]), 2, &["none.json"]);
    fails(folder.path(), &bench(&["--compare", "bad.json"]), 2, &["--compare"]);
    fails(folder.path(), &bench(&["--compare", "a.json", "b.json", "--all"]), 2, &["--all"]);
}

/// One coordinate of 200.3 m: f16 has steps of 0.125 m there and bf16 of 1 m, so they are off by 0.05 m and by 0.3 m. In its
/// block of 10 m it is 0.3, and the other two are 0.
#[test]
fn coordinates_lose_what_their_formats_say() {
    let folder = folder();
    fs::write(folder.path().join("a.bin"), common::floats(&[200.3, 0.0, 0.0, 0.5].repeat(20))).unwrap();
    let text = works(folder.path(), &["bench", "precision", "a.bin", "--stride", "4", "--json", "a.json"]);
    for word in ["from 100 m", "0.05000", "0.30000", "f16 keeps them 6.0 times better than bf16"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let found: Value = serde_json::from_slice(&fs::read(folder.path().join("a.json")).unwrap()).unwrap();
    assert_eq!((&found["kind"], &found["points"]), (&"occam bench precision".into(), &20.into()));
    let lines =
        json_lines(&works(folder.path(), &["bench", "precision", "a.bin", "--stride", "4", "--log-format", "json"]));
    assert_eq!(lines, [found]);
    fails(folder.path(), &["bench", "precision", "none.ply"], 2, &["none.ply"]);
    fails(folder.path(), &["bench", "precision", "a.bin", "--block", "0"], 2, &["--block"]);
}

#[test]
fn files_of_other_devices_are_compared_with_a_warning() {
    let folder = folder();
    works(folder.path(), &[&QUICK[..], &["--json", "a.json"]].concat());
    let text = fs::read_to_string(folder.path().join("a.json")).unwrap();
    fs::write(folder.path().join("b.json"), text.replace("\"device\": \"CPU", "\"device\": \"TPU")).unwrap();
    let output = common::occam(folder.path(), &["bench", "kernels", "--compare", "a.json", "b.json"]);
    assert_eq!(output.status.code(), Some(0));
    let warnings = common::stderr(&output);
    assert!(warnings.contains("warning: the device differs: CPU") && warnings.contains("TPU"), "{warnings}");
}
