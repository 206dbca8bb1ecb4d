use std::fs;

use npyz::WriterBuilder;

use super::super::ReadOptions;
use super::*;

/// A file as numpy writes it: header padded to a multiple of 64.
fn npy(header: &str, body: &[u8]) -> Vec<u8> {
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((padded as u16).to_le_bytes());
    bytes.extend(format!("{header:<width$}\n", width = padded - 1).bytes());
    bytes.extend(body);
    bytes
}

fn header(descr: &str, fortran: bool, shape: &str) -> String {
    let fortran = if fortran { "True" } else { "False" };
    format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}")
}

fn parsed(bytes: &[u8]) -> Result<Array> {
    parse(Path::new("a.npy"), "", bytes)
}

fn refused(bytes: &[u8]) -> String {
    parsed(bytes).unwrap_err().to_string()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// `name: header, body => shape, values`.
macro_rules! reads {
    ($($name:ident: $header:expr, $body:expr => $shape:expr, $values:expr;)*) => { $(
        #[test]
        fn $name() {
            let array = parsed(&npy(&$header, &$body)).unwrap();
            assert_eq!(array.shape, $shape);
            assert_eq!(array.values, $values);
        }
    )* };
}

/// `name: bytes, texts` is refused with a message that holds each text.
macro_rules! refuses {
    ($($name:ident: $bytes:expr, $texts:expr;)*) => { $(
        #[test]
        fn $name() {
            let error = refused(&$bytes);
            for text in $texts {
                assert!(error.contains(text), "{text:?} not in {error:?}");
            }
        }
    )* };
}

const SIX: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

fn six() -> Vec<u8> {
    floats(&SIX)
}

/// A header of another version, whose length has four bytes.
fn versioned(version: u8, length: u32) -> Vec<u8> {
    let text = format!("{:<117}\n", header("<f4", false, "(2, 3)"));
    [b"\x93NUMPY".as_slice(), &[version, 0], &length.to_le_bytes(), text.as_bytes(), &six()].concat()
}

reads! {
    little_endian: header("<f4", false, "(2, 3)"), six() => [2, 3], Values::F32(SIX.to_vec());
    big_endian: header(">f4", false, "(2, 3)"), SIX.map(f32::to_be_bytes).concat() => [2, 3], Values::F32(SIX.to_vec());
    fortran_order: header("<f4", true, "(2, 3)"), floats(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]) => [2, 3], Values::F32(SIX.to_vec());
    half_floats: header("<f2", false, "(2,)"), [0x00, 0x3c, 0x00, 0xc1] => [2], Values::F32(vec![1.0, -2.5]);
    double_floats: header("<f8", false, "(1,)"), 0.1_f64.to_le_bytes() => [1], Values::F64(vec![0.1]);
    a_scalar: header("<f4", false, "()"), floats(&[7.0]) => [0_usize; 0], Values::F32(vec![7.0]);
    an_empty_array: header("<f4", false, "(0, 3)"), [] => [0, 3], Values::F32(vec![]);
    an_empty_array_in_fortran_order: header("<f4", true, "(0, 3)"), [] => [0, 3], Values::F32(vec![]);
    an_empty_array_with_a_huge_side: header("<f4", true, "(0, 9223372036854775807)"), [] => [0, i64::MAX as usize], Values::F32(vec![]);
    trailing_bytes: header("|u1", false, "(1,)"), [5, 6] => [1], Values::U8(vec![5]);
    python_2_sides: header("|u1", false, "(2L, 1L)"), [5, 6] => [2, 1], Values::U8(vec![5, 6]);
    python_2_sides_of_a_grid: header("|u1", false, "(200L, 200L, 16L)"), vec![3; 640_000] => [200, 200, 16], Values::U8(vec![3; 640_000]);
    booleans: header("|b1", false, "(3,)"), [0, 1, 1] => [3], Values::U8(vec![0, 1, 1]);
    masks_of_int64: header("<i8", false, "(2,)"), [1, 0].map(i64::to_le_bytes).concat() => [2], Values::I64(vec![1, 0]);
}

refuses! {
    a_shape_of_a_million_millions: npy(&header("<f4", false, "(1000000000000,)"), &six()),
        ["found 24 bytes of data, expected 4000000000000 bytes for shape [1000000000000]", "cut off"];
    a_shape_of_8_gb: npy(&header("<f4", false, "(2000000000,)"), &six()), ["expected 8000000000 bytes"];
    a_shape_whose_product_overflows: npy(&header("<f4", false, "(9999999999, 9999999999, 9999999999)"), &six()),
        ["more bytes than memory has"];
    a_shape_whose_bytes_overflow: npy(&header("<f8", false, "(4611686018427387904,)"), &six()), ["more bytes than memory has"];
    a_side_that_overflows: npy(&header("<f4", false, "(99999999999999999999999,)"), &six()), ["sides that are whole numbers"];
    a_negative_side: npy(&header("<f4", false, "(-1, 3)"), &six()), ["found \"-1, 3)", "not negative"];
    a_header_of_4_gib: versioned(2, u32::MAX), ["byte 8: found a header of 4294967295 bytes, expected at most 65536"];
    a_header_longer_than_the_file: versioned(2, 60_000), ["a header that is cut off"];
    a_body_that_is_cut_off: npy(&header("<f4", false, "(2, 3)"), &six()[..11]), ["found 11 bytes of data, expected 24 bytes"];
    pickled_objects: npy(&header("|O", false, "(2,)"), b"\x80\x04."), ["pickled Python objects", "re-save it without pickle"];
    version_9: versioned(9, 118), ["byte 6: found format version 9, expected version 1, 2 or 3"];
    an_archive_by_the_name_of_an_array: Vec::from(b"PK\x03\x040000000000"), ["byte 0: found \"PK", "expected a numpy array"];
    text_arrays: npy(&header("<U5", false, "(1,)"), &[0; 20]), ["the type \"<U5\"", "plain numbers"];
    complex_numbers: npy(&header("<c8", false, "(1,)"), &[0; 8]), ["the type \"<c8\""];
}

#[test]
fn versions_2_and_3() {
    for version in [2, 3] {
        assert_eq!(parsed(&versioned(version, 118)).unwrap().values, Values::F32(SIX.to_vec()));
    }
}

#[test]
fn arrays_that_npyz_writes_come_back() {
    let mut bytes = Vec::new();
    let values: Vec<f32> = (0..24).map(|i| i as f32 * 0.5 - 3.0).collect();
    let mut writer = npyz::WriteOptions::new().default_dtype().shape(&[2, 3, 4]).writer(&mut bytes).begin_nd().unwrap();
    writer.extend(values.iter()).unwrap();
    writer.finish().unwrap();
    let array = parsed(&bytes).unwrap();
    assert_eq!(array.shape, [2, 3, 4]);
    assert_eq!(array.dtype, "<f4");
    assert_eq!(array.values, Values::F32(values));
}

#[test]
fn fortran_order_is_turned() {
    // Column by column: 1 4, 2 5, 3 6.
    let bytes = npy(&header("<f4", true, "(2, 3)"), &floats(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
    assert_eq!(parsed(&bytes).unwrap().values, Values::F32(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
}

#[test]
fn fortran_order_agrees_with_npyz_in_three_axes() {
    let body: Vec<u8> = (0..24).collect();
    let bytes = npy(&header("|u1", true, "(2, 3, 4)"), &body);
    let file = npyz::NpyFile::new(&bytes[..]).unwrap();
    let strides = file.strides().to_vec();
    let expected: Vec<u8> = (0..2)
        .flat_map(|i| (0..3).flat_map(move |j| (0..4).map(move |k| [i, j, k])))
        .map(|at| body[at.iter().zip(&strides).map(|(a, s)| a * *s as usize).sum::<usize>()])
        .collect();
    assert_eq!(parsed(&bytes).unwrap().values, Values::U8(expected));
}

#[test]
fn every_number_type_is_read() {
    let read = |descr: &str, body: &[u8]| parsed(&npy(&header(descr, false, "(1,)"), body)).unwrap().values;
    assert_eq!(read("|b1", &[1]), Values::U8(vec![1]));
    assert_eq!(read("|u1", &[200]), Values::U8(vec![200]));
    assert_eq!(read("|i1", &[0xff]), Values::I64(vec![-1]));
    assert_eq!(read("<u2", &[1, 2]), Values::I64(vec![513]));
    assert_eq!(read(">u2", &[1, 2]), Values::I64(vec![258]));
    assert_eq!(read("<i2", &[0xfe, 0xff]), Values::I64(vec![-2]));
    assert_eq!(read(">i4", &[0, 0, 1, 0]), Values::I64(vec![256]));
    assert_eq!(read("<u4", &[0xff; 4]), Values::I64(vec![4_294_967_295]));
    assert_eq!(read("<i8", &[0xff; 8]), Values::I64(vec![-1]));
    assert_eq!(read("<f2", &[0x00, 0xc1]), Values::F32(vec![-2.5]));
    assert_eq!(read(">f4", &1.5_f32.to_be_bytes()), Values::F32(vec![1.5]));
    assert_eq!(read("<f8", &0.1_f64.to_le_bytes()), Values::F64(vec![0.1]));
}

#[test]
fn pickled_and_structured_arrays_are_refused_with_advice() {
    assert!(refused(&npy(&header("|O", false, "(1,)"), &[0; 3])).contains("without pickle"));
    let structured = "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }";
    assert!(refused(&npy(structured, &[0; 4])).contains("structured"));
}

#[test]
fn other_magic_versions_and_nesting_are_refused() {
    assert!(refused(b"\x93NUMPZ\x01\x00").contains("numpy array"));
    assert!(refused(b"\x93NUMPY\x09\x00\x00\x00\x00\x00").contains("version 9"));
    assert!(refused(b"\x93NUMPY\x01").contains("cut off"));
    let deep = format!("{{'shape': {}", "(".repeat(60_000));
    assert!(refused(&npy(&deep, &[])).contains("whole numbers"));
}

#[test]
fn an_unsigned_value_beyond_i64_is_refused() {
    assert!(refused(&npy(&header("<u8", false, "(1,)"), &[0xff; 8])).contains("smaller integers"));
}

#[test]
fn points_of_every_type_and_order_are_the_same_cloud() {
    let cloud = |bytes: &[u8]| read_cloud(Path::new("a.npy"), "", bytes).unwrap().cloud.positions;
    let expected = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let columns = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
    assert_eq!(cloud(&npy(&header("<f4", false, "(2, 3)"), &six())), expected);
    assert_eq!(cloud(&npy(&header("<f4", true, "(2, 3)"), &floats(&columns))), expected);
    assert_eq!(
        cloud(&npy(&header(">f8", true, "(2, 3)"), &columns.map(|v| f64::from(v).to_be_bytes()).concat())),
        expected
    );
    assert_eq!(cloud(&npy(&header("|u1", false, "(2, 3)"), &[1, 2, 3, 4, 5, 6])), expected);
    assert_eq!(cloud(&npy(&header("|i1", false, "(2, 3)"), &[1, 2, 3, 4, 5, 6])), expected);
    assert_eq!(
        cloud(&npy(&header(">i2", false, "(2, 3)"), &[1_i16, 2, 3, 4, 5, 6].map(i16::to_be_bytes).concat())),
        expected
    );
    assert_eq!(
        cloud(&npy(&header("<u8", false, "(2, 3)"), &[1_u64, 2, 3, 4, 5, 6].map(u64::to_le_bytes).concat())),
        expected
    );
    assert_eq!(
        cloud(&npy(&header("<f2", false, "(2, 3)"), &SIX.map(|v| half::f16::from_f32(v).to_le_bytes()).concat())),
        expected
    );
}

#[test]
fn rows_of_three_and_more_are_a_cloud() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("points.npy");
    fs::write(&path, npy(&header("<f4", false, "(2, 4)"), &floats(&[1.0, 2.0, 3.0, 0.5, 4.0, 5.0, 6.0, 0.25])))
        .unwrap();
    let read = super::super::read_cloud(&path, &ReadOptions::default()).unwrap();
    assert_eq!(read.cloud.positions, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    assert_eq!(read.cloud.intensity, Some(vec![0.5, 0.25]));
    fs::write(&path, npy(&header("<f4", false, "(4, 2)"), &[0; 32])).unwrap();
    let error = super::super::read_cloud(&path, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("shape [4, 2]"), "{error}");
}
