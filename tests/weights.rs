//! Weights that others trained, from a file of PyTorch to a picture, by the program itself.

mod common;

use std::path::Path;

use common::{fails, folder, json_lines, works};

/// Files of tests/generators/weights.py: LMSCNet-SS and SSCNet for grids 8 voxels high and 3 classes.
fn weights(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("engine/tests/golden/weights").join(name).to_str().unwrap().to_owned()
}

#[test]
fn weights_of_pytorch_become_a_run_that_predicts_and_trains_on() {
    let folder = folder();
    let pt = weights("lmscnet-ss.pt");
    let grid = ["--grid", "16x24", "--voxel", "0.8,0.8,0.4", "--origin", "-6.4,-9.6,-2"];
    let args = [["import", &pt, "-o", "runs/theirs", "--log-format", "json"].as_slice(), &grid].concat();
    let events = json_lines(&works(folder.path(), &args));
    assert_eq!(events[0]["event"], "imported");
    assert_eq!(events[0]["network"], "lmscnet-ss");
    // The height and the classes are the file's.
    assert_eq!(events[0]["grid"], serde_json::json!([16, 24, 8]));
    assert_eq!(events[0]["classes"], serde_json::json!(["free", "class 1", "class 2"]));
    works(folder.path(), &["predict", "runs/theirs", "--device", "cpu", "-o", "out.npz"]);
    assert!(folder.path().join("out.npz").is_file());
    let state = folder.path().join("runs/theirs/checkpoints/0/state.json");
    let text = std::fs::read_to_string(&state).unwrap();
    let predict = ["predict", "runs/theirs", "--device", "cpu", "-o", "again.npz"];
    for (old, new, word) in [
        ("\"lmscnet-ss\"", "\"lmscnet-xs\"", "did you mean \"lmscnet-ss\""),
        ("[16,24,8]", "[16,20,8]", "20 voxels along y"),
    ] {
        assert!(text.contains(old), "{old} in {text}");
        std::fs::write(&state, text.replace(old, new)).unwrap();
        fails(folder.path(), &predict, 2, &["runs/theirs/checkpoints/0/state.json", word]);
    }
    std::fs::write(&state, &text).unwrap();
    fails(folder.path(), &["eval", "runs/theirs", "--device", "cpu"], 2, &["no validation data", "name DATA"]);
    fails(folder.path(), &["resume", "runs/theirs"], 2, &["imported weights", "--weights runs/theirs"]);
    fails(folder.path(), &args, 2, &["theirs exists already"]);
    // The demo world has other classes.
    let train = ["train", "--no-gui", "--preset", "tiny", "--device", "cpu", "--steps", "1", "--weights"];
    let demo = [train.as_slice(), &[pt.as_str(), "--grid", "16x16x8"]].concat();
    fails(
        folder.path(),
        &demo,
        2,
        &["lmscnet-ss.pt", "expected shape", "lmscnet-ss for 3 classes, grids 8 voxels high", "for 12 classes"],
    );
    // A run of ours can be trained on from.
    works(folder.path(), &[train[..8].to_vec(), vec!["--name", "first"]].concat());
    works(folder.path(), &[train.as_slice(), &["runs/first", "--name", "second"]].concat());
}

#[test]
fn an_import_that_lacks_something_says_what() {
    let folder = folder();
    let (pt, sscnet) = (weights("lmscnet-ss.pt"), weights("sscnet.pt"));
    fails(folder.path(), &["import", &pt], 2, &["lmscnet-ss for 3 classes, grids 8 voxels high", "--like", "--origin"]);
    let place = ["--voxel", "0.4", "--origin", "0,0,0"];
    let flat = [["import", &sscnet, "--grid", "16x16"].as_slice(), &place].concat();
    fails(folder.path(), &flat, 2, &["sscnet for 3 classes", "--grid with three numbers"]);
    let odd = [["import", &sscnet, "--grid", "16x16x6"].as_slice(), &place].concat();
    fails(folder.path(), &odd, 2, &["6 voxels along z", "take 4 or 8"]);
    let high = [["import", &pt, "--grid", "16x16x16"].as_slice(), &place].concat();
    fails(folder.path(), &high, 2, &["expected shape [16]", "grids 8 voxels high"]);
    fails(folder.path(), &["import", &pt, "--like", "kitty"], 2, &["kitty", "semantic-kitti"]);
    fails(folder.path(), &["import", &pt, "--like", "semantic-kitti"], 2, &["3 classes", "semantic-kitti has 20"]);
    fails(folder.path(), &["import", &weights("hostile.pt")], 2, &["hostile.pt", "posix.system", "Nothing was run"]);
    fails(folder.path(), &["import", "none.pt"], 2, &["none.pt"]);
}
