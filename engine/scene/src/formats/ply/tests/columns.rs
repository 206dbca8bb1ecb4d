//! What the columns of a point become.

use super::*;

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
    assert_eq!(cloud.time, Some(vec![0.0]));
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

#[test]
fn intensities_that_are_no_numbers_become_0_and_are_counted() {
    let read = read_file(ascii("3", "property float intensity\n", "1 2 3 nan\n4 5 6 -inf\n7 8 9 0.5\n"));
    assert_eq!(read.cloud.intensity, Some(vec![0.0, 0.0, 0.5]));
    assert_noted(&read, "2 intensity values that are NaN or infinite became 0");
}

#[test]
fn times_count_from_the_first() {
    let times = |kind: &str, values: [&str; 3]| {
        let body = values.map(|time| format!("1 2 3 {time}\n")).concat();
        read_file(ascii("3", &format!("property {kind} gps_time\n"), &body))
    };
    let read = times("double", ["1311720053.25", "1311720053.0", "1311720054.5"]);
    assert_eq!(read.cloud.time, Some(vec![0.25, 0.0, 1.5]));
    assert_noted(&read, "times count from the first one, 1311720053");
    let read = times("double", ["0", "0.05", "0.1"]);
    assert_eq!(read.cloud.time, Some(vec![0.0, 0.05, 0.1]));
    assert!(read.notes.is_empty(), "{:?}", read.notes);
    let read = times("double", ["-0.5", "nan", "0"]);
    let time = read.cloud.time.unwrap();
    assert!(time[0] == 0.0 && time[1].is_nan() && time[2] == 0.5, "{time:?}");
    assert_noted(&times("uint64", ["5", "6", "7"]), "whole numbers");
}

#[test]
fn a_list_is_no_column() {
    let read = assert_two(ascii("2", "property list uchar float intensity\n", "1 2 3 1 9\n4 5 6 0\n"));
    assert_eq!(read.cloud.intensity, None);
}

#[test]
fn digits_of_text_that_floats_do_not_hold_are_kept_where_they_matter() {
    // Easting and northing as text, declared as float: f32 would round them to 1/32 and 1/2 m.
    let body = "0.1 0.2 0.3\n500000.12 5400000.34 0.6\n500001.56 5400001.78 0.9\n";
    let cloud = read_file(ascii("3", "", body)).cloud;
    let expected = [[0.1, 0.2, 0.3], [500_000.12, 5_400_000.34, 0.6], [500_001.56, 5_400_001.78, 0.9]];
    for (position, expected) in cloud.positions[1..].iter().zip(&expected[1..]) {
        for axis in 0..3 {
            let found = f64::from(position[axis]) + cloud.origin[axis];
            assert!((found - expected[axis]).abs() < 1e-6, "{found} {}", expected[axis]);
        }
    }
    assert_eq!(cloud.origin, [500_000.0, 5_400_000.0, 0.0]);
}

#[test]
fn integers_that_f32_does_not_hold_are_kept() {
    let body = "1 2 3 16777216\n1 2 3 16777217\n1 2 3 4294967295\n1 2 3 7\n";
    let cloud = read_file(ascii("4", "property uint instance\n", body)).cloud;
    assert_eq!(cloud.instance, Some(vec![16_777_216, 16_777_217, u32::MAX, 7]));
    let elements = format!("element vertex 2\n{XYZ}property uint instance\nproperty list uchar int view\n");
    let row = |row: usize, instance: u32| [le(&TWO[row]), instance.to_le_bytes().to_vec(), vec![0]].concat();
    let cloud = read_file(binary(LITTLE, &elements, &[row(0, 5), row(1, 16_777_217)].concat())).cloud;
    assert_eq!((cloud.positions.as_slice(), cloud.instance), (&TWO[..], Some(vec![5, 16_777_217])));
}
