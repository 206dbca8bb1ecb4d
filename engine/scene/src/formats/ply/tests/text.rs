//! Numbers, lines and header lines beyond the table of cases.

use super::*;

#[test]
fn a_cloud_of_nan_alone_stays_readable() {
    let read = read_file(ascii("2", "", "nan nan nan\nnan nan nan\n"));
    assert_eq!((read.cloud.len(), read.cloud.dropped_non_finite), (0, 2));
    assert!(read.notes.iter().any(|n| n.contains("no points are left")), "{:?}", read.notes);
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
fn values_beyond_the_declared_ones_are_dropped_and_noted_once() {
    let read = assert_two(ascii("2", "", "1 2 3 99\n4 5 6 99 98\n"));
    assert_eq!(read.notes.iter().filter(|n| n.contains("more values than the header")).count(), 1);
}

#[test]
fn names_with_blanks() {
    assert_two(ascii("2", "property float volume density\n", "1 2 3 0\n4 5 6 0\n"));
}

#[test]
fn capitals_everywhere() {
    let file = ascii("2", "", "1 2 3\n4 5 6\n").replace("float x", "FLOAT X").replace("float y", "Float Y");
    assert_two(
        file.replace("float z", "float32 Z").replace("format ascii", "FORMAT ASCII").replace("vertex", "Vertex"),
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
