//! What the tests of the program share. Each test binary uses a part of it.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use assert_cmd::cargo::cargo_bin;
use serde_json::Value;
use tempfile::TempDir;

pub fn occam(folder: &Path, args: &[&str]) -> Output {
    Command::new(cargo_bin("occam")).current_dir(folder).args(args).stdin(Stdio::null()).output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Runs a command that has to work; gives its stdout.
pub fn works(folder: &Path, args: &[&str]) -> String {
    let output = occam(folder, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}\n{}\n{}", stdout(&output), stderr(&output));
    stdout(&output)
}

/// Runs a command that has to fail with `code`, with one error that holds every one of `words`.
pub fn refuses(folder: &Path, args: &[&str], code: i32, words: &[&str]) {
    let output = occam(folder, args);
    let (out, err) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    let errors: Vec<&str> = err.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{args:?}: one error expected in\n{err}");
    for word in words {
        assert!(err.contains(word), "{args:?}: {word:?} expected in\n{err}");
    }
    assert!(!err.contains("panicked"), "{err}");
}

/// As [`refuses`], with every file of the folder as it was.
pub fn fails(folder: &Path, args: &[&str], code: i32, words: &[&str]) {
    let before = listing(folder);
    refuses(folder, args, code, words);
    let after = listing(folder);
    let new: Vec<_> = after.iter().filter(|entry| !before.contains(entry)).map(|(path, _)| path).collect();
    assert!(new.is_empty() && after.len() == before.len(), "{args:?} left behind {new:?}");
}

/// Every file and folder below, with its bytes.
pub fn listing(folder: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path.clone());
                found.push((path, None));
            } else {
                let bytes = fs::read(&path).unwrap();
                found.push((path, Some(bytes)));
            }
        }
    }
    found.sort();
    found
}

/// Every line of stdout as JSON; fails on any other line.
pub fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// Little-endian floats.
pub fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A street-like KITTI scan: ground and a wall around the sensor.
pub fn scan() -> Vec<u8> {
    let mut values = Vec::new();
    for i in 0..40 {
        for j in 0..40 {
            let (x, y) = (i as f32 * 0.25 - 5.0, j as f32 * 0.25 - 5.0);
            values.extend([x, y, -1.7, 0.3]);
            values.extend([x, 4.9, -1.7 + j as f32 * 0.05, 0.5]);
        }
    }
    floats(&values)
}

/// Files that are no scans: name, bytes, and a word that the error about them holds.
pub fn no_scans() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let huge = "ply\nformat binary_little_endian 1.0\nelement vertex 1000000000000\nproperty float x\n\
                property float y\nproperty float z\nend_header\n";
    let truncated = huge.replace("1000000000000", "1000");
    let bare = "ply\nformat ascii 1.0\nelement vertex 3\nend_header\n1 2 3\n";
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("empty.ply", Vec::new(), "empty"),
        ("empty.bin", Vec::new(), "empty"),
        ("lfs.ply", text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"), "LFS"),
        ("page.ply", text("<!DOCTYPE html><html><body>Sign in</body></html>"), "web page"),
        ("huge.ply", text(huge), "1000000000000"),
        ("truncated.ply", text(&truncated), "1000"),
        ("bare.ply", text(bare), "vertex"),
        ("ragged.bin", vec![0; 17], "17"),
        ("unknown.xyz9", text("1 2 3\n"), "unknown"),
    ]
}
