//! One test for each oddity that PLY files were found with, and for each way a file can be wrong.

use std::fs;
use std::io::{Seek, SeekFrom, Write};

use ply_rs::parser::Parser;
use ply_rs::ply::{DefaultElement, Property};

use super::super::{ReadCloud, ReadOptions, read_cloud};
use super::*;
use crate::cloud::PointCloud;
use crate::grid::{GridSpec, VoxelGrid};
use crate::labels::LabelMap;

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

// --- numbers in ascii ---

#[test]
fn nan_and_infinity_are_dropped_and_counted() {
    let read = read_file(ascii("4", "", "nan 0 0\n1 2 3\n0 inf 0\n0 0 -inf\n"));
    assert_eq!(read.cloud.positions, [[1.0, 2.0, 3.0]]);
    assert_eq!(read.cloud.dropped_non_finite, 3);
    assert!(read.notes.iter().any(|n| n.contains("dropped 3 points")), "{:?}", read.notes);
}

#[test]
fn msvc_nan_is_nan() {
    let read = read_file(ascii("5", "", "1.#QNAN 0 0\n-1.#IND 0 0\n1.#INF 0 0\n-nan(ind) 0 0\n1 2 3\n"));
    assert_eq!(read.cloud.positions, [[1.0, 2.0, 3.0]]);
    assert_eq!(read.cloud.dropped_non_finite, 4);
}

#[test]
fn a_cloud_of_nan_alone_stays_readable() {
    let read = read_file(ascii("2", "", "nan nan nan\nnan nan nan\n"));
    assert_eq!((read.cloud.len(), read.cloud.dropped_non_finite), (0, 2));
    assert!(read.notes.iter().any(|n| n.contains("no points are left")), "{:?}", read.notes);
}

#[test]
fn bare_points_plus_signs_and_capital_exponents_are_numbers() {
    let read = read_file(ascii("2", "", ".5 5. -.5\n1E3 +1 2e-1\n"));
    assert_eq!(read.cloud.positions, [[0.5, 5.0, -0.5], [1000.0, 1.0, 0.2]]);
}

#[test]
fn a_uchar_may_be_written_with_a_point() {
    let more = "property uchar red\nproperty uchar green\nproperty uchar blue\n";
    let read = read_file(ascii("1", more, "1 2 3 255.0 0 7\n"));
    assert_eq!(read.cloud.colour, Some(vec![[255, 0, 7]]));
}

#[test]
fn a_number_outside_its_type_is_an_error_with_its_line() {
    let more = "property uchar red\nproperty uchar green\nproperty uchar blue\n";
    let error = refused(ascii("2", more, "1 2 3 0 0 0\n1 2 3 300 0 0\n"));
    assert!(error.contains("line 12: found \"300\", expected a whole number of 0 to 255 for red"), "{error}");
}

#[test]
fn integers_of_columns_that_are_not_used_are_checked_too() {
    // A value that is missing or too many shows where a float falls into an integer column.
    let error = refused(ascii("1", "property uchar flag\n", "1 2 3 300\n"));
    assert!(error.contains("line 9: found \"300\", expected a whole number of 0 to 255 for flag"), "{error}");
}

#[test]
fn a_word_that_is_no_number_is_an_error_with_its_line() {
    let error = refused(ascii("1", "", "\n1 2 three\n"));
    assert!(error.contains("line 9: found \"three\", expected a number for z"), "{error}");
}

#[test]
fn commas_are_refused_with_advice() {
    let error = refused(ascii("2", "", "1,2,3\n4,5,6\n"));
    assert!(error.contains("found \"1,2,3\"") && error.contains("separated by blanks"), "{error}");
}

// --- lines ---

#[test]
fn crlf_ascii() {
    assert_two(ascii("2", "", "1 2 3\n4 5 6\n").replace('\n', "\r\n"));
}

#[test]
fn crlf_header_with_a_binary_body() {
    let header = format!("ply\nformat {LITTLE} 1.0\nelement vertex 2\n{XYZ}end_header\n").replace('\n', "\r\n");
    assert_two([header.as_bytes(), &two_le()].concat());
}

#[test]
fn cr_only_ascii() {
    assert_two(ascii("2", "", "1 2 3\n4 5 6\n").replace('\n', "\r"));
}

#[test]
fn cr_only_ascii_counts_lines() {
    let error = refused(ascii("2", "", "1 2 3\n4 5 x\n").replace('\n', "\r"));
    assert!(error.contains("line 9: found \"x\""), "{error}");
}

#[test]
fn cr_only_header_with_a_body_that_starts_with_a_line_feed() {
    let header = format!("ply\nformat {LITTLE} 1.0\nelement vertex 1\n{XYZ}end_header\n").replace('\n', "\r");
    let x = f32::from_le_bytes([b'\n', 0, 0x80, 0x3f]);
    let read = read_file([header.as_bytes(), &le(&[x, 2.0, 3.0])].concat());
    assert_eq!(read.cloud.positions, [[x, 2.0, 3.0]]);
}

#[test]
fn utf8_byte_order_mark() {
    assert_two(format!("\u{feff}{}", ascii("2", "", "1 2 3\n4 5 6\n")));
}

#[test]
fn tabs_blank_lines_and_rows_split_over_lines() {
    assert_two(ascii("2", "", "\n1\t2\n\n3\n  4 5   6"));
}

#[test]
fn values_beyond_the_declared_ones_are_dropped_and_noted_once() {
    let read = assert_two(ascii("2", "", "1 2 3 99\n4 5 6 99 98\n"));
    assert_eq!(read.notes.iter().filter(|n| n.contains("more values than the header")).count(), 1);
}

#[test]
fn fewer_rows_than_declared() {
    let file = ascii("5", "", "1 2 3\n4 5 6\n");
    let error = refused(&file);
    assert!(error.contains("found 2 rows before the file ends, expected 5 of the element vertex"), "{error}");
    let read = read_with(file.as_bytes(), ReadOptions { lenient: true, ..ReadOptions::default() }).unwrap();
    assert_eq!(read.cloud.positions, TWO);
    assert!(read.notes.iter().any(|n| n.contains("after 2 of 5 points")), "{:?}", read.notes);
}

// --- header ---

#[test]
fn latin_1_in_comments_and_obj_info_anywhere() {
    let file = ascii("2", "", "1 2 3\n4 5 6\n");
    let file = file.replace(
        "property float y\n",
        "obj_info Generated by CloudCompare!\ncomment gr\u{f6}\u{df}e\nproperty float y\n",
    );
    let latin_1: Vec<u8> = file.chars().map(|c| c as u8).collect();
    assert_two(latin_1);
}

#[test]
fn odd_property_names() {
    let more =
        "property float scalar_GPS-Time(s)\nproperty float f.rest.0\nproperty float 3dscore\nproperty float größe\n";
    let read = assert_two(ascii("2", more, "1 2 3 0 0 0 0\n4 5 6 0 0 0 0\n"));
    assert!(
        read.notes.iter().any(|n| n == "not used: scalar_GPS-Time(s), f.rest.0, 3dscore, größe"),
        "{:?}",
        read.notes
    );
}

#[test]
fn names_with_blanks() {
    assert_two(ascii("2", "property float volume density\n", "1 2 3 0\n4 5 6 0\n"));
}

#[test]
fn the_first_of_two_equal_properties_counts_and_the_layout_stays() {
    let body = le(&[1.0, 2.0, 3.0, 9.0, 4.0, 5.0, 6.0, 9.0]);
    let read = assert_two(binary(LITTLE, &format!("element vertex 2\n{XYZ}property float x\n"), &body));
    assert!(read.notes.iter().any(|n| n.contains("two properties x; the first is used")), "{:?}", read.notes);
}

#[test]
fn capitals_everywhere() {
    let file = ascii("2", "", "1 2 3\n4 5 6\n").replace("float x", "FLOAT X").replace("float y", "Float Y");
    assert_two(
        file.replace("float z", "float32 Z").replace("format ascii", "FORMAT ASCII").replace("vertex", "Vertex"),
    );
}

#[test]
fn blanks_behind_header_lines() {
    assert_two(
        ascii("2", "", "1 2 3\n4 5 6\n").replace("ascii 1.0", "ascii 1.0 ").replace("end_header", "end_header  "),
    );
}

#[test]
fn a_mistyped_keyword_names_line_and_nearest() {
    let header = format!("ply\nformat {LITTLE} 1.0\nelement vertex 2\n{XYZ}end header\n");
    let error = refused([header.as_bytes(), &two_le()].concat());
    assert!(
        error.contains("line 7: found \"end header\"") && error.contains("Did the writer mean end_header?"),
        "{error}"
    );
    let error = refused(ascii("2", "proprety float w\n", "1 2 3 4\n4 5 6 7\n"));
    assert!(error.contains("Did the writer mean property?"), "{error}");
}

#[test]
fn a_header_without_end_is_refused() {
    let error = refused("ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\n");
    assert!(error.contains("line 5: found the end of the file, expected the line end_header"), "{error}");
    let endless = format!("ply\nformat ascii 1.0\n{}", "comment more\n".repeat(20_000));
    assert!(refused(endless).contains("found 64 KiB without it"));
}

#[test]
fn header_lines_that_make_no_sense_are_refused_with_their_line() {
    let good = ascii("1", "", "1 2 3\n");
    let line = |from: &str, to: &str| refused(good.replace(from, to));
    assert!(line("vertex 1", "vertex -1").contains("line 3: found \"element vertex -1\""));
    assert!(line("vertex 1", "vertex").contains("line 3"));
    assert!(line("vertex 1", "vertex 99999999999999999999").contains("line 3"));
    assert!(line("float x", "floaty x").contains("line 4: found \"property floaty x\", expected one of the types"));
    assert!(line("float x", "float").contains("a name behind the type"));
    assert!(line("float x", "list float int x").contains("an integer type for the length"));
    assert!(line("ascii 1.0", "binary 1.0").contains("line 2: found \"format binary 1.0\""));
    assert!(line("format ascii 1.0\n", "").contains("a line with the format"));
    assert!(line("element vertex 1\n", "").contains("an element before its properties"));
    assert!(line("ply\n", "plx\n").contains("line 1: found \"plx\""));
}

#[test]
fn a_file_without_points_says_what_it_has() {
    assert!(refused("ply\nformat ascii 1.0\nelement face 0\nend_header\n").contains("found only face"));
    assert!(refused("ply\nformat ascii 1.0\nend_header\n").contains("found no element"));
    assert!(
        refused("ply\nformat ascii 1.0\nelement vertex 1000000000000\nend_header\n").contains("found no properties")
    );
    let error = refused(ascii("1", "", "1 2 3\n").replace("float z", "float height"));
    assert!(error.contains("found the properties x, y, height, expected x, y and z"), "{error}");
}

#[test]
fn zero_points_are_a_cloud() {
    let read = read_file(ascii("0", "", ""));
    assert!(read.cloud.is_empty());
    assert!(read_file(ascii("0", "", "").trim_end()).cloud.is_empty());
}

// --- elements and lists ---

#[test]
fn an_element_without_properties_is_skipped_at_once() {
    let elements = |name: &str| format!("element {name} 10000000000\nelement vertex 2\n{XYZ}");
    assert_two(binary(LITTLE, &elements("junk"), &two_le()));
    assert_two(binary("ascii", &elements("junk"), b"1 2 3\n4 5 6\n"));
}

#[test]
fn elements_before_and_behind_the_points_are_skipped() {
    let elements = format!(
        "element camera 1\nproperty double f\nelement face 2\nproperty list uchar int vertex_index\nelement vertex 2\n{XYZ}element edge 7\nproperty int a\n"
    );
    let mut body = 1.5_f64.to_le_bytes().to_vec();
    body.extend([3, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0]);
    body.extend(two_le());
    assert_two(binary(LITTLE, &elements, &body));
    assert_two(binary("ascii", &elements, b"1.5\n3 1 2 3\n0\n1 2 3\n4 5 6\n9\n"));
}

#[test]
fn a_mesh_of_doubles_with_colours_and_faces() {
    // As pytorch3d users have them: doubles, bytes and unsigned face indices in one ascii file.
    let elements = "element vertex 2\nproperty double x\nproperty double y\nproperty double z\nproperty uchar red\nproperty uchar green\nproperty uchar blue\nelement face 1\nproperty list uchar uint vertex_indices\n";
    let read = assert_two(binary("ascii", elements, b"1.0 2.0 3.0 10 20 30\n4 5 6 0 0 255\n3 0 1 1\n"));
    assert_eq!(read.cloud.colour, Some(vec![[10, 20, 30], [0, 0, 255]]));
}

#[test]
fn lists_of_a_point_are_skipped() {
    // CloudCompare and VisualSFM write `view` lists on points.
    let elements = "element vertex 2\nproperty float x\nproperty list uchar ushort view\nproperty float y\nproperty float z\nelement face 0\n";
    let mut body = le(&[1.0]);
    body.extend([2, 7, 0, 8, 0]);
    body.extend(le(&[2.0, 3.0, 4.0]));
    body.push(0);
    body.extend(le(&[5.0, 6.0]));
    assert_two(binary(LITTLE, elements, &body));
    assert_two(binary("ascii", elements, b"1 2 7 8 2 3\n4 0 5 6\n"));
}

#[test]
fn list_lengths_beyond_the_file_or_below_zero_are_refused() {
    let elements =
        |kind: &str| format!("element face 1\nproperty list {kind} int vertex_indices\nelement vertex 2\n{XYZ}");
    let body = [&[0xff; 4], two_le().as_slice()].concat();
    let error = refused(binary(LITTLE, &elements("uint"), &body));
    assert!(error.contains("found a list of 4294967295 entries with 24 bytes left"), "{error}");
    let error = refused(binary(LITTLE, &elements("int"), &body));
    assert!(error.contains("found a list of -1 entries"), "{error}");
    let error = refused(binary("ascii", &elements("int"), b"-1 5\n1 2 3\n4 5 6\n"));
    assert!(error.contains("found \"-1\", expected a length of vertex_indices"), "{error}");
    let error = refused(binary("ascii", &elements("uint"), b"4000000000 5\n1 2 3\n"));
    assert!(error.contains("that the file can hold"), "{error}");
}

#[test]
fn counts_of_a_million_millions_are_refused_before_anything_is_allocated() {
    let error = refused(binary(LITTLE, &format!("element vertex 1000000000000\n{XYZ}"), &two_le()));
    assert!(
        error.contains("found 2 rows in 24 bytes of body (12 a row), expected 1000000000000 of the element vertex"),
        "{error}"
    );
    assert!(refused(ascii("1000000000000", "", "1 2 3\n")).contains("found 1 row before the file ends"));
    let error = refused(binary(
        LITTLE,
        &format!("element face 1000000000000\nproperty int a\nelement vertex 2\n{XYZ}"),
        &two_le(),
    ));
    assert!(error.contains("1000000000000 of the element face"), "{error}");
    let list = format!("element vertex 18446744073709551615\n{XYZ}property list uchar int v\n");
    assert!(refused(binary(LITTLE, &list, &two_le())).contains("18446744073709551615 of the element vertex"));
}

#[test]
fn a_truncated_body_is_refused_or_read_leniently() {
    let file = binary(LITTLE, &format!("element vertex 3\n{XYZ}"), &[two_le(), vec![0; 11]].concat());
    let error = refused(&file);
    assert!(error.contains("found 2 rows in 35 bytes of body"), "{error}");
    let read = read_with(&file, ReadOptions { lenient: true, ..ReadOptions::default() }).unwrap();
    assert_eq!(read.cloud.positions, TWO);
}

// --- columns ---

#[test]
fn every_scalar_type_in_both_byte_orders() {
    let names = ["char", "uint8", "int16", "ushort", "int", "uint32", "int64", "uint64", "float32", "double"];
    for name in names {
        let elements =
            format!("element vertex 1\nproperty {name} x\nproperty uchar pad\nproperty {name} y\nproperty {name} z\n");
        let little: fn(i64, &str) -> Vec<u8> = |v, name| match name {
            "char" => (v as i8).to_le_bytes().to_vec(),
            "uint8" => (v as u8).to_le_bytes().to_vec(),
            "int16" => (v as i16).to_le_bytes().to_vec(),
            "ushort" => (v as u16).to_le_bytes().to_vec(),
            "int" => (v as i32).to_le_bytes().to_vec(),
            "uint32" => (v as u32).to_le_bytes().to_vec(),
            "int64" => v.to_le_bytes().to_vec(),
            "uint64" => (v as u64).to_le_bytes().to_vec(),
            "float32" => (v as f32).to_le_bytes().to_vec(),
            _ => (v as f64).to_le_bytes().to_vec(),
        };
        let first = if name.starts_with('u') { 100 } else { -100 };
        let little_body = [little(first, name), vec![0xee], little(2, name), little(3, name)].concat();
        let big = |v| little(v, name).into_iter().rev().collect::<Vec<u8>>();
        let big_body = [big(first), vec![0xee], big(2), big(3)].concat();
        for (encoding, body) in [(LITTLE, little_body), ("binary_big_endian", big_body)] {
            let read = read_file(binary(encoding, &elements, &body));
            assert_eq!(read.cloud.positions, [[first as f32, 2.0, 3.0]], "{name} {encoding}");
            assert_eq!(read.format, format!("PLY {encoding}"));
        }
    }
}

#[test]
fn int64_in_ascii_and_integer_coordinates() {
    let file = ascii("2", "property int64 stamp\n", "1 2 3 1234567890123\n4 5 6 0\n").replace("float x", "int x");
    assert_two(file);
}

#[test]
fn f64_coordinates_keep_millimetres_behind_an_origin() {
    let elements = "element vertex 2\nproperty double x\nproperty double y\nproperty double z\n";
    let values: [f64; 6] = [500_000.125, 5_400_000.25, 312.5, 500_001.5, 5_400_002.75, 313.0];
    let body: Vec<u8> = values.iter().flat_map(|v| v.to_be_bytes()).collect();
    let cloud = read_file(binary("binary_big_endian", elements, &body)).cloud;
    for (row, p) in cloud.positions.iter().enumerate() {
        for axis in 0..3 {
            assert_eq!(f64::from(p[axis]) + cloud.origin[axis], values[3 * row + axis]);
        }
    }
    assert_eq!(cloud.origin[2], 0.0);
}

#[test]
fn point_elements_and_coordinates_by_other_names() {
    let file = ascii("2", "", "1 2 3\n4 5 6\n");
    for name in ["vertices", "point", "Points"] {
        assert_two(file.replace("vertex", name));
    }
    assert_two(file.replace("float x", "float px").replace("float y", "float py").replace("float z", "float pz"));
    assert_two(
        file.replace("float x", "float scalar_X")
            .replace("float y", "float scalar_Y")
            .replace("float z", "float scalar_Z"),
    );
}

#[test]
fn colours_of_every_name_and_depth() {
    let read = |names: [&str; 3], kind: &str, values: &str| {
        let more = names.map(|name| format!("property {kind} {name}\n")).concat();
        read_file(ascii("1", &more, &format!("1 2 3 {values}\n"))).cloud.colour.unwrap()[0]
    };
    assert_eq!(read(["red", "green", "blue"], "uchar", "1 2 255"), [1, 2, 255]);
    assert_eq!(read(["r", "g", "b"], "uchar", "1 2 255"), [1, 2, 255]);
    assert_eq!(read(["diffuse_red", "diffuse_green", "diffuse_blue"], "uchar", "1 2 255"), [1, 2, 255]);
    assert_eq!(read(["scalar_R", "scalar_G", "scalar_B"], "float", "1 2 255"), [1, 2, 255]);
    assert_eq!(read(["red", "green", "blue"], "float", "0 0.5 1"), [0, 128, 255]);
    assert_eq!(read(["red", "green", "blue"], "ushort", "0 257 65535"), [0, 1, 255]);
    // Eight-bit colours in sixteen-bit fields.
    assert_eq!(read(["red", "green", "blue"], "ushort", "0 128 255"), [0, 128, 255]);
}

#[test]
fn intensity_label_instance_ring_and_time_by_their_names() {
    let more = "property float scalar_Intensity\nproperty int Classification\nproperty uint instance_id\nproperty uchar ring\nproperty double gps_time\n";
    let cloud = read_file(ascii("1", more, "1 2 3 0.5 40 70000 31 0.125\n")).cloud;
    assert_eq!(cloud.intensity, Some(vec![0.5]));
    assert_eq!(cloud.label, Some(vec![40]));
    assert_eq!(cloud.instance, Some(vec![70_000]));
    assert_eq!(cloud.ring, Some(vec![31]));
    assert_eq!(cloud.time, Some(vec![0.125]));
    for name in ["reflectance", "intensity"] {
        assert!(read_file(ascii("1", &format!("property float {name}\n"), "1 2 3 9\n")).cloud.intensity.is_some());
    }
    for name in ["label", "class", "semantic", "scalar_Label"] {
        assert!(read_file(ascii("1", &format!("property float {name}\n"), "1 2 3 9\n")).cloud.label.is_some());
    }
}

#[test]
fn labels_that_are_no_ids_are_counted() {
    let read = read_file(ascii("4", "property float label\n", "0 0 0 -1\n0 0 0 7\n0 0 0 1.5\n0 0 0 70000\n"));
    assert_eq!(read.cloud.label, Some(vec![65_535, 7, 65_535, 65_535]));
    assert!(read.notes.iter().any(|n| n.contains("3 values fit no label of 16 bits")), "{:?}", read.notes);
}

// --- files that are something else ---

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

// --- against ply_rs ---

/// Numbers of a property, read by `ply_rs`.
fn oracle(bytes: &[u8], name: &str) -> Vec<f64> {
    let ply = Parser::<DefaultElement>::new().read_ply(&mut &bytes[..]).unwrap();
    ply.payload["vertex"]
        .iter()
        .map(|row| match &row[name] {
            Property::UChar(v) => f64::from(*v),
            Property::UShort(v) => f64::from(*v),
            Property::UInt(v) => f64::from(*v),
            Property::Float(v) => f64::from(*v),
            Property::Double(v) => *v,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// A file with every column, faces before and behind, in one of the encodings, written by `ply_rs`.
fn full_file(encoding: ply_rs::ply::Encoding, points: usize) -> Vec<u8> {
    use ply_rs::ply::{ElementDef, Ply, PropertyDef, PropertyType, ScalarType};
    let mut ply = Ply::<DefaultElement>::new();
    ply.header.encoding = encoding;
    let mut vertex = ElementDef::new("vertex".into());
    let columns = [
        ("x", ScalarType::Float),
        ("red", ScalarType::UChar),
        ("y", ScalarType::Float),
        ("green", ScalarType::UChar),
        ("z", ScalarType::Float),
        ("blue", ScalarType::UChar),
        ("label", ScalarType::UShort),
        ("instance", ScalarType::UInt),
        ("time", ScalarType::Double),
    ];
    for (name, kind) in &columns {
        vertex.properties.insert((*name).into(), PropertyDef::new((*name).into(), PropertyType::Scalar(kind.clone())));
    }
    let mut face = ElementDef::new("face".into());
    let list = PropertyType::List(ScalarType::UChar, ScalarType::Int);
    face.properties.insert("vertex_indices".into(), PropertyDef::new("vertex_indices".into(), list));
    ply.header.elements.insert("face".into(), face);
    ply.header.elements.insert("vertex".into(), vertex);
    let faces = (0..3)
        .map(|i| [("vertex_indices".to_owned(), Property::ListInt((0..i).collect()))].into_iter().collect())
        .collect();
    ply.payload.insert("face".into(), faces);
    let row = |i: usize| -> DefaultElement {
        let v = |k: usize| (i * 37 + k * 101) as f64 * 0.173 - 40.0;
        columns
            .iter()
            .enumerate()
            .map(|(k, (name, kind))| {
                let value = match kind {
                    ScalarType::UChar => Property::UChar((i * 7 + k * 31) as u8),
                    ScalarType::UShort => Property::UShort((i * 251 + k) as u16),
                    ScalarType::UInt => Property::UInt((i * 100_003 + k) as u32),
                    ScalarType::Float => Property::Float(v(k) as f32),
                    _ => Property::Double(v(k)),
                };
                ((*name).to_owned(), value)
            })
            .collect()
    };
    ply.payload.insert("vertex".into(), (0..points).map(row).collect());
    let mut bytes = Vec::new();
    ply_rs::writer::Writer::new().write_ply(&mut bytes, &mut ply).unwrap();
    bytes
}

#[test]
fn ply_rs_reads_the_same_from_every_encoding() {
    use ply_rs::ply::Encoding::{Ascii, BinaryBigEndian, BinaryLittleEndian};
    for encoding in [Ascii, BinaryBigEndian, BinaryLittleEndian] {
        let bytes = full_file(encoding, 200);
        let cloud = read_file(&bytes).cloud;
        assert_eq!(cloud.len(), 200);
        let columns: [(&str, Vec<f64>); 9] = [
            ("x", cloud.positions.iter().map(|p| p[0].into()).collect()),
            ("y", cloud.positions.iter().map(|p| p[1].into()).collect()),
            ("z", cloud.positions.iter().map(|p| p[2].into()).collect()),
            ("red", cloud.colour.as_ref().unwrap().iter().map(|c| c[0].into()).collect()),
            ("green", cloud.colour.as_ref().unwrap().iter().map(|c| c[1].into()).collect()),
            ("blue", cloud.colour.as_ref().unwrap().iter().map(|c| c[2].into()).collect()),
            ("label", cloud.label.as_ref().unwrap().iter().map(|l| (*l).into()).collect()),
            ("instance", cloud.instance.as_ref().unwrap().iter().map(|i| (*i).into()).collect()),
            ("time", cloud.time.clone().unwrap()),
        ];
        for (name, ours) in columns {
            assert_eq!(ours, oracle(&bytes, name), "{name} {encoding}");
        }
    }
}

// --- writing ---

fn written(write: impl FnOnce(&Path) -> Result<()>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.ply");
    write(&path).unwrap();
    fs::read(&path).unwrap()
}

#[test]
fn a_cloud_with_every_column_comes_back() {
    let cloud = PointCloud {
        positions: vec![[1.0, -2.5, 3.25], [0.1, 0.2, 0.3]],
        intensity: Some(vec![0.5, 7.0]),
        colour: Some(vec![[1, 2, 3], [255, 0, 128]]),
        label: Some(vec![10, 65_000]),
        instance: Some(vec![0, 4_000_000_000]),
        ring: Some(vec![0, 63]),
        time: Some(vec![0.0, 0.1]),
        ..PointCloud::default()
    };
    let bytes = written(|path| write_cloud_ply(path, &cloud));
    assert_eq!(read_file(&bytes).cloud, cloud);
    assert_eq!(oracle(&bytes, "instance"), [0.0, 4e9]);
}

#[test]
fn an_origin_is_written_in_f64() {
    let cloud =
        PointCloud { origin: [500_000.0, 5.4e6, 0.0], positions: vec![[0.25, 0.5, 1.0]], ..PointCloud::default() };
    let bytes = written(|path| write_cloud_ply(path, &cloud));
    assert_eq!(oracle(&bytes, "y"), [5_400_000.5]);
}

#[test]
fn a_column_of_another_length_is_refused() {
    let cloud = PointCloud { positions: vec![[0.0; 3]; 2], label: Some(vec![1]), ..PointCloud::default() };
    let error = write_cloud_ply(Path::new("out.ply"), &cloud).unwrap_err().to_string();
    assert!(error.contains("found 1 values of label, expected one for each of 2 points"), "{error}");
}

fn small_grid() -> VoxelGrid {
    let mut grid = VoxelGrid::empty(GridSpec::new([10.0, 0.0, -1.0], [2.0, 1.0, 0.5], [2, 2, 2]));
    let (car, ignored) = (grid.spec.index([1, 0, 1]), grid.spec.index([0, 0, 0]));
    grid.labels[car] = 1;
    grid.labels[ignored] = 255;
    grid
}

#[test]
fn occupied_voxels_are_points_at_their_centres() {
    let map = LabelMap::built_in("semantic-kitti").unwrap();
    let bytes = written(|path| write_voxels_ply(path, &small_grid(), &map, VoxelShape::Points));
    let cloud = read_file(&bytes).cloud;
    assert_eq!(cloud.positions, [[13.0, 0.5, -0.25]]);
    assert_eq!(cloud.label, Some(vec![10]));
    assert_eq!(cloud.colour, Some(vec![[100, 150, 245]]));
}

#[test]
fn a_cube_has_six_sides_that_face_outwards() {
    let map = LabelMap::built_in("semantic-kitti").unwrap();
    let bytes = written(|path| write_voxels_ply(path, &small_grid(), &map, VoxelShape::Cubes));
    let ply = Parser::<DefaultElement>::new().read_ply(&mut &bytes[..]).unwrap();
    let corners = read_file(&bytes).cloud;
    assert_eq!(corners.len(), 8);
    assert_eq!(corners.bounds(), Some(([12.0, 0.0, -0.5], [14.0, 1.0, 0.0])));
    let centre = glam::Vec3::new(13.0, 0.5, -0.25);
    let mut sides = 0;
    for face in &ply.payload["face"] {
        let Property::ListInt(quad) = &face["vertex_indices"] else { panic!("{face:?}") };
        let at = |k: usize| glam::Vec3::from_array(corners.positions[quad[k] as usize]);
        let normal = (at(1) - at(0)).cross(at(2) - at(0));
        let middle = (at(0) + at(1) + at(2) + at(3)) / 4.0;
        assert!(normal.dot(middle - centre) > 0.0, "{quad:?}");
        // All four corners in the plane of the side.
        assert_eq!(normal.dot(at(3) - at(0)), 0.0, "{quad:?}");
        sides += 1;
    }
    assert_eq!(sides, 6);
}
