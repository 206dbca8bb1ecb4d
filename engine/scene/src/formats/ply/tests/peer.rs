//! Against `ply_rs`: what it writes is read, and what is written it reads.

use ply_rs::parser::Parser;
use ply_rs::ply::{DefaultElement, Property};

use super::*;
use crate::grid::{GridSpec, VoxelGrid};
use crate::labels::LabelMap;

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
            let mut theirs = oracle(&bytes, name);
            if name == "time" {
                let start = theirs[0];
                for time in &mut theirs {
                    *time -= start;
                }
            }
            assert_eq!(ours, theirs, "{name} {encoding}");
        }
    }
}

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
