//! Sizes at their limits: one less is read, one more is refused.

use super::*;

/// A binary file of two points whose header has `length` bytes.
fn with_header_of(length: usize) -> Vec<u8> {
    let plain = binary(LITTLE, &format!("comment \nelement vertex 2\n{XYZ}"), &[]);
    let filled = format!("comment {}\nelement vertex 2\n{XYZ}", "-".repeat(length - plain.len()));
    binary(LITTLE, &filled, &two_le())
}

#[test]
fn a_header_of_64_kib() {
    assert_two(with_header_of(64 << 10));
    assert_refused(with_header_of((64 << 10) + 1), &["found 64 KiB without it, expected the line end_header"]);
}

#[test]
fn a_header_without_end() {
    let endless = format!("ply\nformat ascii 1.0\n{}", "comment more\n".repeat(20_000));
    assert_refused(endless, &["found 64 KiB without it"]);
}

#[test]
fn properties_1024() {
    let more = |count: usize| (3..count).map(|i| format!("property char c{i}\n")).collect::<Vec<_>>().concat();
    let row = |row: usize, count: usize| [le(&TWO[row]), vec![7; count - 3]].concat();
    let file = |count| {
        binary(LITTLE, &format!("element vertex 2\n{XYZ}{}", more(count)), &[row(0, count), row(1, count)].concat())
    };
    assert_two(file(1024));
    assert_refused(
        file(1025),
        &["line 1028: found more than 1024 properties of the element vertex, expected at most 1024"],
    );
}

#[test]
fn equal_names_1024_are_noted_once() {
    let more = "property char c\n".repeat(1021);
    let read = assert_two(binary(
        LITTLE,
        &format!("element vertex 2\n{XYZ}{more}"),
        &[le(&TWO[0]), vec![7; 1021], le(&TWO[1]), vec![7; 1021]].concat(),
    ));
    assert_eq!(read.notes.len(), 2, "{:?}", read.notes);
    assert!(read.notes.iter().all(|note| note.len() < 200), "{:?}", read.notes);
}

#[test]
fn an_ascii_line_of_1_mib() {
    let line = |length: usize| format!("1 2{}3\n4 5 6\n", " ".repeat(length - 4));
    assert_two(ascii("2", "", &line(1 << 20)));
    let too_long = ["line 8: found more than 1 MiB without a line end, expected one row a line"];
    assert_refused(ascii("2", "", &line((1 << 20) + 1)), &too_long);
    // As one word, in what is ignored behind a row, in a list, and in an element that is skipped.
    assert_refused(ascii("2", "", &"1".repeat((1 << 20) + 1)), &too_long);
    assert_refused(ascii("2", "", &format!("1 2 3{}\n4 5 6\n", " 9".repeat(1 << 19))), &too_long);
    assert_refused(
        ascii("2", "property list uint char l\n", &format!("1 2 3 600000{}\n4 5 6 0\n", " 9".repeat(600_000))),
        &["line 9: found more than 1 MiB"],
    );
    let skipped = ascii("2", "", "").replace("element", "element s 1\nproperty list uint char l\nelement");
    assert_refused(
        format!("{skipped}600000{}\n1 2 3\n4 5 6\n", " 9".repeat(600_000)),
        &["line 10: found more than 1 MiB"],
    );
}

#[test]
fn sizes_around_memory_pages() {
    // A mapping that is read beyond its end fails only where the end meets a page.
    for length in (4096 - 13..4096 + 14).chain([8192]) {
        let elements = |comment: usize| format!("comment {}\nelement vertex 2\n{XYZ}", "-".repeat(comment));
        let bare = binary(LITTLE, &elements(0), &two_le()).len();
        let file = binary(LITTLE, &elements(length - bare), &two_le());
        assert_eq!(file.len(), length);
        assert_two(&file);
        assert_refused(&file[..length - 1], &["found 1 row in 23 bytes"]);
    }
}
