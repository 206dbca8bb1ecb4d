//! One test for each oddity that PLY files were found with, and for each way a file can be wrong.

mod cases;
mod columns;
mod foreign;
mod limits;
mod peer;
mod reports;
mod text;

use std::fs;

use super::super::{ReadCloud, ReadOptions, read_cloud};
use super::*;
use crate::cloud::PointCloud;

fn read_with(bytes: &[u8], options: ReadOptions) -> Result<ReadCloud> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scan.ply");
    fs::write(&path, bytes).unwrap();
    read_cloud(&path, &options)
}

fn read_file(bytes: impl AsRef<[u8]>) -> ReadCloud {
    read_with(bytes.as_ref(), ReadOptions::default()).unwrap()
}

fn refused(bytes: impl AsRef<[u8]>) -> String {
    read_with(bytes.as_ref(), ReadOptions::default()).unwrap_err().to_string()
}

/// An ascii file of x, y, z and what `more` declares.
fn ascii(count: &str, more: &str, body: &str) -> String {
    format!(
        "ply\nformat ascii 1.0\nelement vertex {count}\nproperty float x\nproperty float y\nproperty float z\n{more}end_header\n{body}"
    )
}

fn binary(encoding: &str, elements: &str, body: &[u8]) -> Vec<u8> {
    [format!("ply\nformat {encoding} 1.0\n{elements}end_header\n").as_bytes(), body].concat()
}

const XYZ: &str = "property float x\nproperty float y\nproperty float z\n";
const LITTLE: &str = "binary_little_endian";
const TWO: [[f32; 3]; 2] = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];

fn le(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn two_le() -> Vec<u8> {
    le(TWO.as_flattened())
}

fn assert_two(bytes: impl AsRef<[u8]>) -> ReadCloud {
    let read = read_file(bytes);
    assert_eq!(read.cloud.positions, TWO);
    read
}

fn assert_noted(read: &ReadCloud, text: &str) {
    assert!(read.notes.iter().any(|note| note.contains(text)), "{text:?} not in {:?}", read.notes);
}

/// Refused with a message that holds each of `texts`.
fn assert_refused(bytes: impl AsRef<[u8]>, texts: &[&str]) {
    let error = refused(bytes);
    for text in texts {
        assert!(error.contains(text), "{text:?} not in {error:?}");
    }
}

fn read_leniently(bytes: impl AsRef<[u8]>) -> ReadCloud {
    read_with(bytes.as_ref(), ReadOptions { lenient: true, ..ReadOptions::default() }).unwrap()
}
