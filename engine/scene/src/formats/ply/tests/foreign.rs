//! Files that are something else, missing or mapped.

use std::io::{Seek, SeekFrom, Write};

use super::*;

#[test]
fn what_is_no_ply_says_what_it_is() {
    assert!(refused("").contains("found an empty file"));
    assert!(
        refused("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n").contains("Git LFS pointer")
    );
    assert!(refused("<!DOCTYPE html>\n<html></html>\n").contains("found a web page"));
    assert!(refused("# .PCD v0.7 - Point Cloud Data file format\n").contains("found a PCD file"));
    assert!(refused("LASF\0\0\0\0").contains("found a LAS or LAZ file"));
    assert!(refused("ASTM-E57\0\0").contains("found an E57 file"));
}

#[test]
fn a_missing_file_and_a_folder_are_one_error_each() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no.ply");
    let error = read_cloud(&missing, &ReadOptions::default()).unwrap_err();
    assert_eq!(error.path, missing);
    assert!(error.to_string().contains("No such file"), "{error}");
    let error = read_cloud(folder.path(), &ReadOptions::default()).unwrap_err();
    assert!(error.to_string().contains("found a folder"), "{error}");
}

#[test]
fn the_content_decides_before_the_extension() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scan.bin");
    fs::write(&path, ascii("2", "", "1 2 3\n4 5 6\n")).unwrap();
    assert_eq!(read_cloud(&path, &ReadOptions::default()).unwrap().format, "PLY ascii");
    let path = folder.path().join("scan.xyz");
    fs::write(&path, "1 2 3\n").unwrap();
    assert!(read_cloud(&path, &ReadOptions::default()).unwrap_err().to_string().contains("unknown kind of file"));
}

#[test]
fn a_file_that_is_mapped_reads_as_one_that_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.ply");
    // Zeros up to 64 MiB, then one point; the file is sparse, so it costs little disk.
    let rows = (64 << 20) / 12 + 1;
    let header = binary(LITTLE, &format!("element vertex {rows}\n{XYZ}"), &[]);
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(&header).unwrap();
    file.seek(SeekFrom::Start((header.len() + (rows - 1) * 12) as u64)).unwrap();
    file.write_all(&le(&TWO[1])).unwrap();
    let cloud = read_cloud(&path, &ReadOptions::default()).unwrap().cloud;
    assert_eq!(cloud.len(), rows);
    assert_eq!(cloud.positions[rows - 2..], [[0.0; 3], TWO[1]]);
}
