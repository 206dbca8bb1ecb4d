//! The table of odd files: each was met in practice, each is read or refused in one way.

use super::*;

/// `name: bytes` is read as the points 1 2 3 and 4 5 6, without a word.
macro_rules! reads_two {
    ($($name:ident: $bytes:expr;)*) => { $(
        #[test]
        fn $name() {
            let read = assert_two($bytes);
            assert_eq!(read.cloud.dropped_non_finite, 0);
            assert_eq!(read.notes, Vec::<String>::new());
        }
    )* };
}

/// `name: bytes, note` is read as the points 1 2 3 and 4 5 6, with one note.
macro_rules! reads_two_and_notes {
    ($($name:ident: $bytes:expr, $note:expr;)*) => { $(
        #[test]
        fn $name() {
            let read = assert_two($bytes);
            assert_eq!(read.notes, [$note]);
        }
    )* };
}

/// `name: bytes, points, dropped`.
macro_rules! reads {
    ($($name:ident: $bytes:expr, $points:expr, $dropped:expr;)*) => { $(
        #[test]
        fn $name() {
            let read = read_file($bytes);
            assert_eq!(read.cloud.positions, $points);
            assert_eq!(read.cloud.dropped_non_finite, $dropped);
            let drops = read.notes.iter().filter(|note| note.contains("dropped")).count();
            assert_eq!(drops, usize::from($dropped > 0), "one warning: {:?}", read.notes);
        }
    )* };
}

/// `name: bytes, texts` is refused with a message that holds each text.
macro_rules! refuses {
    ($($name:ident: $bytes:expr, $texts:expr;)*) => { $(
        #[test]
        fn $name() {
            assert_refused($bytes, &$texts);
        }
    )* };
}

const ROWS: &str = "1 2 3\n4 5 6\n";

fn two() -> String {
    ascii("2", "", ROWS)
}

/// Two points and a fourth column of zeros.
fn with_column(declared: &str) -> String {
    ascii("2", &format!("property {declared}\n"), "1 2 3 0\n4 5 6 0\n")
}

fn latin_1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
}

fn mesh(vertices_and_faces: &str, body: &[u8]) -> Vec<u8> {
    binary(LITTLE, vertices_and_faces, body)
}

// Numbers.
reads! {
    ascii_nan: ascii("2", "", "1 2 3\nnan nan nan\n"), [[1.0, 2.0, 3.0]], 1;
    ascii_inf_and_minus_inf: ascii("3", "", "1 2 3\ninf -inf 1\n0 0 -inf\n"), [[1.0, 2.0, 3.0]], 2;
    ascii_nan_in_capitals: ascii("3", "", "1 2 3\nNaN 0 0\n0 INF 0\n"), [[1.0, 2.0, 3.0]], 2;
    ascii_numbers_with_a_bare_point: ascii("2", "", ".5 5. -.5\n4 5 6\n"), [[0.5, 5.0, -0.5], [4.0, 5.0, 6.0]], 0;
    ascii_exponent_in_capitals: ascii("2", "", "1E3 2e-3 3E+2\n4 5 6\n"), [[1000.0, 0.002, 300.0], [4.0, 5.0, 6.0]], 0;
    ascii_msvc_nan: ascii("2", "", "1.#QNAN -1.#IND 1.#SNAN\n4 5 6\n"), [[4.0, 5.0, 6.0]], 1;
    ascii_msvc_infinity: ascii("3", "", "1.#INF 0 0\n0 -1.#INF 0\n4 5 6\n"), [[4.0, 5.0, 6.0]], 2;
    ascii_msvc_nan_with_rounding: ascii("3", "", "1.#QNAN0 0 0\n-nan(ind) 0 0\n4 5 6\n"), [[4.0, 5.0, 6.0]], 2;
    ascii_integer_coordinates: two().replace("float", "int"), TWO, 0;
}
reads_two! {
    ascii_numbers_with_a_plus: ascii("2", "", "+1 +2 +3\n+4 5 6\n");
}

#[test]
fn ascii_uchar_written_with_a_point() {
    let more = "property uchar red\nproperty uchar green\nproperty uchar blue\n";
    let read = assert_two(ascii("2", more, "1 2 3 255.0 0 7.\n4 5 6 0 0 0\n"));
    assert_eq!(read.cloud.colour, Some(vec![[255, 0, 7], [0; 3]]));
}

refuses! {
    ascii_uchar_of_300: ascii("2", "property uchar red\nproperty uchar green\nproperty uchar blue\n", "1 2 3 0 0 0\n1 2 3 300 0 0\n"),
        ["line 12: found \"300\", expected a whole number of 0 to 255 for red"];
    ascii_uchar_of_300_in_a_column_that_is_not_used: ascii("2", "property uchar red\n", "1 2 3 300\n4 5 6 0\n"),
        ["line 9: found \"300\", expected a whole number of 0 to 255 for red"];
    ascii_uchar_with_a_fraction: ascii("1", "property uchar flag\n", "1 2 3 1.5\n"), ["line 9: found \"1.5\""];
    ascii_with_commas: ascii("2", "", "1,2,3\n4,5,6\n"),
        ["line 8: found \"1,2,3\", expected a number for x", "separated by blanks"];
}

// Line ends and blanks.
reads_two! {
    as_the_format_is_described: two();
    crlf_ascii: two().replace('\n', "\r\n");
    crlf_header_with_a_binary_body:
        [two().replace("ascii", LITTLE).replace(ROWS, "").replace('\n', "\r\n").as_bytes(), &two_le()].concat();
    cr_only_ascii: two().replace('\n', "\r");
    cr_only_header_with_a_binary_body:
        [two().replace("ascii", LITTLE).replace(ROWS, "").replace('\n', "\r").as_bytes(), &two_le()].concat();
    byte_order_mark_ascii: format!("\u{feff}{}", two());
    byte_order_mark_binary: [b"\xEF\xBB\xBF", &mesh(&format!("element vertex 2\n{XYZ}"), &two_le())[..]].concat();
    tabs_and_several_blanks: two().replace("property ", "property\t ").replace("1 2 3", "1\t2  3");
    blank_line_between_rows: ascii("2", "", "1 2 3\n\n4 5 6\n");
    blank_lines_in_the_header: two().replace("element", "\n \nelement");
    row_split_over_lines: ascii("2", "", "1 2\n3\n4 5 6\n");
    two_rows_on_one_line: ascii("2", "", "1 2 3 4 5 6\n");
    no_line_end_behind_the_last_row: ascii("2", "", "1 2 3\n4 5 6");
    blanks_before_rows: ascii("2", "", "   1 2 3\n\t4 5 6\n");
    blank_behind_the_format: two().replace("ascii 1.0", "ascii 1.0 ");
    blanks_behind_every_header_line: two().replace("\nproperty", "  \nproperty").replace("end_header", "end_header  ");
}
reads_two_and_notes! {
    values_beyond_the_declared_ones: ascii("2", "", "1 2 3 99\n4 5 6 99\n"),
        "line 8 has more values than the header declares; what is too much is ignored";
    rows_beyond_the_declared_ones: ascii("2", "", "1 2 3\n4 5 6\n7 8 9\n"),
        "line 10 and what follows is more than the header declares";
    bytes_beyond_the_declared_ones: mesh(&format!("element vertex 2\n{XYZ}"), &[two_le(), vec![0; 8]].concat()),
        "the file has 8 bytes more than its header declares: if the points look wrong, the header is";
}

#[test]
fn values_beyond_the_declared_ones_are_no_rows_even_if_they_could_be() {
    let read = assert_two(ascii("2", "", "1 2 3 7 8 9\n4 5 6 7 8 9\n"));
    assert_noted(&read, "line 8 has more values");
}

#[test]
fn rows_joined_on_lines_stay_whole_before_faces() {
    let faces = "element face 1\nproperty list uchar int vertex_indices\n";
    assert_two(ascii("2", faces, "1 2 3 4 5 6\n3 0 1 1\n"));
}

refuses! {
    a_row_that_lacks_a_value: ascii("3", "", "1 2\n4 5 6\n7 8 9\n"),
        ["line 9: found values left over from the row that begins on line 8", "lacks a value"];
    fewer_rows_than_declared: ascii("5", "", ROWS),
        ["found 2 rows before the file ends, expected 5 of the element vertex", "occam data info take --lenient"];
    fewer_bytes_than_declared: mesh(&format!("element vertex 3\n{XYZ}"), &[two_le(), vec![0; 11]].concat()),
        ["byte 115: found 2 rows in 35 bytes of body (12 a row), expected 3 of the element vertex", "--lenient"];
    header_cut_off: "ply\nformat binary_little_endian 1.0\nelement vertex 2\npropert",
        ["line 4: found the end of the file, expected the line end_header", "cut off"];
}

#[test]
fn numbers_as_text_behind_a_binary_header() {
    for encoding in [LITTLE, "binary_big_endian"] {
        let text = binary(encoding, &format!("element vertex 2\n{XYZ}"), b"1.25 2.5 3.75\n4 5 6\n-1 2e-3 3\n");
        assert_refused(text, &["line 8: found numbers as text, expected binary", "format ascii 1.0"]);
    }
    // Bytes that are digits without a blank are data.
    let digits =
        binary(LITTLE, "element vertex 8\nproperty uchar x\nproperty uchar y\nproperty uchar z\n", &[b'7'; 24]);
    assert_eq!(read_file(digits).cloud.positions, [[55.0; 3]; 8]);
}

#[test]
fn bytes_in_the_other_order_are_noted() {
    let read = read_file(binary("binary_big_endian", &format!("element vertex 2\n{XYZ}"), &two_le()));
    assert_noted(&read, "make no sense in metres: the byte order");
}

#[test]
fn fewer_rows_are_kept_leniently() {
    for file in [
        ascii("5", "", ROWS).into_bytes(),
        ascii("5", "", "1 2 3\n4 5 6\n7 8").into_bytes(),
        ascii("5", "", "1 2 3\n4 5 6\n7 8 9").into_bytes(),
        ascii("5", "", "1 2 3\n4 5 6\n7 8 9e-").into_bytes(),
        mesh(
            &format!("element vertex 5\n{XYZ}property list uchar int v\n"),
            &[le(&TWO[0]), vec![0], le(&TWO[1]), vec![0], le(&TWO[1]), vec![2, 0, 0]].concat(),
        ),
        mesh(&format!("element vertex 5\n{XYZ}"), &[two_le(), vec![0; 11]].concat()),
        mesh(
            &format!("element vertex 5\n{XYZ}property list uchar int v\n"),
            &[le(&TWO[0]), vec![0], le(&TWO[1]), vec![0, 0, 0]].concat(),
        ),
    ] {
        let read = read_leniently(&file);
        assert_eq!(read.cloud.positions, TWO);
        assert_noted(&read, "after 2 of 5 points");
    }
}

// Header: comments and names.
reads_two! {
    latin_1_in_a_comment: latin_1(&two().replace("element", "comment Müller\nelement"));
    comments_and_obj_info_anywhere: two()
        .replace("property float y", "obj_info Generated by CloudCompare!\ncomment\nproperty float y")
        .replace("end_header", "comment end_header is next\nobj_info\nend_header")
        .replace("format", "comment before the format\nformat");
    format_in_capitals: two().replace("ascii", "ASCII");
    keywords_and_types_in_capitals: two().replace("format", "FORMAT").replace("float y", "FLOAT y").replace("element", "Element");
    coordinates_in_capitals: two().replace("float x", "float X").replace("float y", "float Y").replace("float z", "float Z");
    types_with_their_size: two().replace("float", "float32");
}
reads_two_and_notes! {
    a_name_with_brackets: with_column("float scalar_GPS-Time(s)"), "not used: scalar_GPS-Time(s)";
    a_name_with_points: with_column("float f.rest.0"), "not used: f.rest.0";
    a_name_that_starts_with_a_digit: with_column("float 3dscore"), "not used: 3dscore";
    a_name_in_utf_8: with_column("float größe"), "not used: größe";
    a_name_in_latin_1: latin_1(&with_column("float größe")), "not used: gr\u{fffd}\u{fffd}e";
    an_int64_column: with_column("int64 t"), "not used: t";
    a_uint64_column: with_column("uint64 t"), "not used: t";
    the_first_of_two_equal_names_counts:
        mesh(&format!("element vertex 2\n{XYZ}property float x\n"), &le(&[1.0, 2.0, 3.0, 9.0, 4.0, 5.0, 6.0, 9.0])),
        "the element vertex has two properties x; the first is used";
    another_version: two().replace("1.0", "1.1"), "the header says PLY version 1.1; read as 1.0";
}

#[test]
fn three_equal_names_are_noted_once() {
    let read = assert_two(ascii("2", "property float x\nproperty float x\n", "1 2 3 8 9\n4 5 6 8 9\n"));
    assert_eq!(read.notes, ["the element vertex has two properties x; the first is used"]);
}

refuses! {
    a_negative_count: ascii("-1", "", "1 2 3\n"), ["line 3: found \"element vertex -1\"", "not negative"];
    end_header_with_a_blank: mesh(&format!("element vertex 2\n{XYZ}end header\n"), &two_le()),
        ["line 7: found \"end header\"", "Did the writer mean end_header?"];
    property_mistyped: with_column("float w").replace("property float w", "proprety float w"),
        ["line 7: found \"proprety float w\"", "Did the writer mean property?"];
    two_formats: two().replace("element", "format binary_big_endian 1.0\nelement"),
        ["line 3: found \"format binary_big_endian 1.0\", expected one format"];
}

// Elements and lists.
reads_two! {
    an_element_without_properties_ascii: ascii("2", "", ROWS).replace("element", "element junk 10000000000\nelement");
    an_element_without_properties_binary: mesh(&format!("element junk 10000000000\nelement vertex 2\n{XYZ}"), &two_le());
    an_element_without_properties_behind: mesh(&format!("element vertex 2\n{XYZ}element junk 10000000000\n"), &two_le());
    elements_of_zero_rows_before: mesh(&format!("element face 0\nproperty list uchar int i\nelement camera 0\nproperty double f\nelement vertex 2\n{XYZ}"), &two_le());
    faces_before_the_points_ascii: two().replace("element", "element face 2\nproperty list uchar int vertex_indices\nelement").replace(ROWS, &format!("3 0 1 0\n0\n{ROWS}"));
    faces_before_the_points_binary: mesh(
        &format!("element face 2\nproperty list uchar int vertex_indices\nelement vertex 2\n{XYZ}"),
        &[vec![2, 1, 0, 0, 0, 2, 0, 0, 0, 0], two_le()].concat(),
    );
    a_scalar_element_before_the_points: mesh(
        &format!("element camera 1\nproperty double f\nelement vertex 2\n{XYZ}"),
        &[1.5_f64.to_le_bytes().to_vec(), two_le()].concat(),
    );
    an_element_behind_the_points: ascii("2", "element camera 1\nproperty float a\nproperty float b\n", "1 2 3\n4 5 6\n9 8\n");
    an_element_behind_the_points_with_lists_of_uint: ascii("2", "element face 1\nproperty list uint uint vertex_indices\n", "1 2 3\n4 5 6\n3 0 0 0\n");
    an_element_behind_the_points_that_is_cut_off: mesh(&format!("element vertex 2\n{XYZ}element edge 9\nproperty int a\n"), &two_le());
}
reads_two_and_notes! {
    a_list_on_points_before_the_coordinates: mesh(
        "element vertex 2\nproperty list uchar ushort view\nproperty float x\nproperty float y\nproperty float z\n",
        &[vec![2, 7, 0, 8, 0], le(&TWO[0]), vec![0], le(&TWO[1])].concat(),
    ), "not used: view";
    a_list_on_points_between_the_coordinates: mesh(
        "element vertex 2\nproperty float x\nproperty list uchar ushort view\nproperty float y\nproperty float z\n",
        &[le(&[1.0]), vec![1, 7, 0], le(&[2.0, 3.0, 4.0]), vec![0], le(&[5.0, 6.0])].concat(),
    ), "not used: view";
    a_list_on_points_behind_the_coordinates: mesh(
        &format!("element vertex 2\n{XYZ}property list uint float view\nelement face 0\n"),
        &[le(&TWO[0]), vec![1, 0, 0, 0, 9, 9, 9, 9], le(&TWO[1]), vec![0; 4]].concat(),
    ), "not used: view";
    a_list_on_points_in_ascii: ascii("2", "property list uchar ushort view\n", "1 2 3 2 7 8\n4 5 6 0\n"), "not used: view";
}

refuses! {
    a_count_of_a_million_millions: mesh(&format!("element vertex 1000000000000\n{XYZ}"), &two_le()),
        ["found 2 rows in 24 bytes of body (12 a row), expected 1000000000000 of the element vertex"];
    a_count_of_a_million_millions_in_ascii: ascii("1000000000000", "", "1 2 3\n"),
        ["found 1 row before the file ends, expected 1000000000000"];
    a_count_of_a_million_millions_before_the_points:
        mesh(&format!("element face 1000000000000\nproperty int a\nelement vertex 2\n{XYZ}"), &two_le()),
        ["1000000000000 of the element face"];
    the_largest_count_of_rows_with_lists:
        mesh(&format!("element vertex 18446744073709551615\n{XYZ}property list uchar int v\n"), &two_le()),
        ["18446744073709551615 of the element vertex"];
    a_list_of_four_thousand_millions: mesh(&format!("element vertex 1\n{XYZ}property list uint double w\n"), &[le(&TWO[0]), vec![0xff; 4], b"1234".to_vec()].concat()),
        ["byte 155: found a list of 4294967295 entries with 4 bytes left", "a length of w that the file can hold"];
    a_list_of_minus_one: mesh(&format!("element vertex 1\n{XYZ}property list int uchar w\n"), &[le(&TWO[0]), vec![0xff; 4], b"1234".to_vec()].concat()),
        ["found a list of -1 entries"];
    a_list_of_four_thousand_millions_in_ascii: ascii("1", "property list uint double w\n", "1 2 3 4294967295 1 2\n"),
        ["line 9: found \"4294967295\", expected a length of w that the file can hold"];
    a_list_of_minus_one_in_ascii: ascii("1", "property list int double w\n", "1 2 3 -1\n"),
        ["line 9: found \"-1\", expected a length of w"];
    a_list_of_half_an_entry_in_ascii: ascii("1", "property list int double w\n", "1 2 3 0.5\n"), ["found \"0.5\""];
    a_list_one_entry_longer_than_the_file: mesh(&format!("element vertex 1\n{XYZ}property list uchar int w\n"), &[le(&TWO[0]), vec![2, 0, 0, 0, 0, 0, 0, 0]].concat()),
        ["found a list of 2 entries with 7 bytes left"];
    coordinates_that_are_lists: mesh("element vertex 1\nproperty list uchar float x\nproperty float y\nproperty float z\n", &[0; 9]),
        ["found the properties x (a list), y, z, expected x, y and z"];
}

// What is no PLY at all.
refuses! {
    an_empty_file: "", ["found an empty file", "fetch the file again"];
    a_web_page: "<!DOCTYPE html><html>404</html>\n", ["found a web page", "download the file itself"];
    a_git_lfs_pointer: "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12345\n", ["found a Git LFS pointer", "git lfs pull"];
}
