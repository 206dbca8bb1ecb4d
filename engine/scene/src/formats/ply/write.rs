//! Writing PLY through `ply_rs`, row by row: nothing is held twice in memory.

use std::io::{self, Write};
use std::path::Path;

use ply_rs::ply::{ElementDef, Encoding, Header, PropertyAccess, PropertyDef, PropertyType, ScalarType};
use ply_rs::writer::Writer;

use super::super::atomic_write;
use crate::cloud::PointCloud;
use crate::error::{Error, Place, Result};
use crate::grid::VoxelGrid;
use crate::labels::LabelMap;

/// How occupied voxels are drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VoxelShape {
    /// Eight corners and six quads a voxel, coloured by class.
    #[default]
    Cubes,
    /// One point at the centre of a voxel, with class and colour.
    Points,
}

/// Writes a cloud with every column it has, binary little-endian.
///
/// Coordinates are those of the file the cloud came from (origin added): f32 where the origin is 0, f64 otherwise.
///
/// # Errors
///
/// When a column has another length than the positions, or the file cannot be written.
pub fn write_cloud_ply(path: &Path, cloud: &PointCloud) -> Result<()> {
    let columns = [
        cloud.intensity.as_ref().map(|c| ("intensity", c.len())),
        cloud.colour.as_ref().map(|c| ("colour", c.len())),
        cloud.label.as_ref().map(|c| ("label", c.len())),
        cloud.instance.as_ref().map(|c| ("instance", c.len())),
        cloud.ring.as_ref().map(|c| ("ring", c.len())),
        cloud.time.as_ref().map(|c| ("time", c.len())),
    ];
    if let Some((name, length)) = columns.into_iter().flatten().find(|(_, length)| *length != cloud.len()) {
        let found = format!("{length} values of {name}");
        return Err(Error::new(path, Place::File, found, format!("one for each of {} points", cloud.len())));
    }
    let shifted = cloud.origin != [0.0; 3];
    let mut properties = scalars(&["x", "y", "z"], &if shifted { ScalarType::Double } else { ScalarType::Float });
    if cloud.intensity.is_some() {
        properties.extend(scalars(&["intensity"], &ScalarType::Float));
    }
    if cloud.colour.is_some() {
        properties.extend(scalars(&["red", "green", "blue"], &ScalarType::UChar));
    }
    if cloud.label.is_some() {
        properties.extend(scalars(&["label"], &ScalarType::UShort));
    }
    if cloud.instance.is_some() {
        properties.extend(scalars(&["instance"], &ScalarType::UInt));
    }
    if cloud.ring.is_some() {
        properties.extend(scalars(&["ring"], &ScalarType::UShort));
    }
    if cloud.time.is_some() {
        properties.extend(scalars(&["time"], &ScalarType::Double));
    }
    let vertex = element("vertex", cloud.len(), properties);
    atomic_write(path, |out| {
        let mut rows = Rows::start(out, &[&vertex])?;
        (0..cloud.len()).try_for_each(|index| rows.write(&CloudRow { cloud, index }, &vertex))
    })
}

/// Writes the voxels that are neither empty nor ignored, with the colours of `map`, binary little-endian.
///
/// # Errors
///
/// When there are more cubes than 32-bit vertex numbers, or the file cannot be written.
pub fn write_voxels_ply(path: &Path, grid: &VoxelGrid, map: &LabelMap, shape: VoxelShape) -> Result<()> {
    let occupied = grid.occupied();
    let mut properties = scalars(&["x", "y", "z"], &ScalarType::Float);
    properties.extend(scalars(&["red", "green", "blue"], &ScalarType::UChar));
    properties.extend(scalars(&["label"], &ScalarType::UShort));
    let per_voxel = if shape == VoxelShape::Cubes { 8 } else { 1 };
    let vertices = occupied.checked_mul(per_voxel).filter(|n| i32::try_from(*n).is_ok()).ok_or_else(|| {
        Error::new(path, Place::File, format!("{occupied} occupied voxels"), "at most 268 million cubes in one file")
            .hint("Write them as points")
    })?;
    let vertex = element("vertex", vertices, properties);
    let indices = PropertyType::List(ScalarType::UChar, ScalarType::Int);
    let face = element("face", 6 * occupied, vec![PropertyDef::new("vertex_indices".into(), indices)]);
    let voxels = || {
        let spec = &grid.spec;
        grid.labels
            .iter()
            .enumerate()
            .filter(|(_, class)| **class != spec.empty_id && **class != spec.ignore_id)
            .map(|(index, class)| (spec.centre_m(spec.voxel_at(index)), *class))
    };
    atomic_write(path, |out| {
        let elements: &[&ElementDef] = if shape == VoxelShape::Cubes { &[&vertex, &face] } else { &[&vertex] };
        let mut rows = Rows::start(out, elements)?;
        for (centre, class) in voxels() {
            let (colour, label) = (map.colour(class), map.file_id(class));
            if shape == VoxelShape::Points {
                rows.write(&VoxelRow { position: centre, colour, label }, &vertex)?;
                continue;
            }
            for corner in 0..8 {
                let half = grid.spec.voxel_size_m.map(|size| size / 2.0);
                let sign = |axis: usize| if corner >> axis & 1 == 1 { 1.0 } else { -1.0 };
                let position = std::array::from_fn(|axis| centre[axis] + sign(axis) * half[axis]);
                rows.write(&VoxelRow { position, colour, label }, &vertex)?;
            }
        }
        if shape == VoxelShape::Cubes {
            for cube in 0..occupied as i32 {
                for quad in QUADS {
                    rows.write(&FaceRow(quad.map(|corner| 8 * cube + corner)), &face)?;
                }
            }
        }
        Ok(())
    })
}

/// Corners of a cube's sides, counter-clockwise seen from outside. Bits 0, 1, 2 of a corner: high along x, y, z.
const QUADS: [[i32; 4]; 6] = [[0, 4, 6, 2], [1, 3, 7, 5], [0, 1, 5, 4], [2, 6, 7, 3], [0, 2, 3, 1], [4, 5, 7, 6]];

fn scalars(names: &[&str], kind: &ScalarType) -> Vec<PropertyDef> {
    names.iter().map(|name| PropertyDef::new((*name).into(), PropertyType::Scalar(kind.clone()))).collect()
}

fn element(name: &str, count: usize, properties: Vec<PropertyDef>) -> ElementDef {
    let mut element = ElementDef::new(name.into());
    element.count = count;
    element.properties = properties.into_iter().map(|p| (p.name.clone(), p)).collect();
    element
}

/// A file whose header is written.
struct Rows<'a> {
    out: &'a mut dyn Write,
}

impl<'a> Rows<'a> {
    fn start(mut out: &'a mut dyn Write, elements: &[&ElementDef]) -> io::Result<Self> {
        let mut header = Header::new();
        header.encoding = Encoding::BinaryLittleEndian;
        header.comments.push("written by Occam".into());
        header.elements = elements.iter().map(|e| (e.name.clone(), (*e).clone())).collect();
        Writer::<VoxelRow>::new().write_header(&mut out, &header)?;
        Ok(Self { out })
    }

    fn write<E: PropertyAccess>(&mut self, row: &E, element: &ElementDef) -> io::Result<()> {
        Writer::new().write_little_endian_element(&mut self.out, row, element).map(drop)
    }
}

/// `ply_rs` makes empty rows only to read into them, which rows that borrow cannot offer: `new` gives rows of nothing.
struct CloudRow<'a> {
    cloud: &'a PointCloud,
    index: usize,
}

static NO_POINTS: PointCloud = PointCloud {
    origin: [0.0; 3],
    positions: Vec::new(),
    intensity: None,
    colour: None,
    label: None,
    instance: None,
    ring: None,
    time: None,
    sensor: None,
    dropped_non_finite: 0,
};

impl PropertyAccess for CloudRow<'_> {
    fn new() -> Self {
        Self { cloud: &NO_POINTS, index: 0 }
    }

    fn get_float(&self, name: &str) -> Option<f32> {
        match axis(name) {
            Some(axis) => Some(self.cloud.positions.get(self.index)?[axis]),
            None => self.cloud.intensity.as_ref()?.get(self.index).copied(),
        }
    }

    fn get_double(&self, name: &str) -> Option<f64> {
        match axis(name) {
            Some(axis) => Some(f64::from(self.cloud.positions.get(self.index)?[axis]) + self.cloud.origin[axis]),
            None => self.cloud.time.as_ref()?.get(self.index).copied(),
        }
    }

    fn get_uchar(&self, name: &str) -> Option<u8> {
        Some(self.cloud.colour.as_ref()?.get(self.index)?[channel(name)?])
    }

    fn get_ushort(&self, name: &str) -> Option<u16> {
        let column = if name == "ring" { &self.cloud.ring } else { &self.cloud.label };
        column.as_ref()?.get(self.index).copied()
    }

    fn get_uint(&self, _name: &str) -> Option<u32> {
        self.cloud.instance.as_ref()?.get(self.index).copied()
    }
}

#[derive(Default)]
struct VoxelRow {
    position: [f32; 3],
    colour: [u8; 3],
    label: u16,
}

impl PropertyAccess for VoxelRow {
    fn new() -> Self {
        Self::default()
    }

    fn get_float(&self, name: &str) -> Option<f32> {
        Some(self.position[axis(name)?])
    }

    fn get_uchar(&self, name: &str) -> Option<u8> {
        Some(self.colour[channel(name)?])
    }

    fn get_ushort(&self, _name: &str) -> Option<u16> {
        Some(self.label)
    }
}

#[derive(Default)]
struct FaceRow([i32; 4]);

impl PropertyAccess for FaceRow {
    fn new() -> Self {
        Self::default()
    }

    fn get_list_int(&self, _name: &str) -> Option<&[i32]> {
        Some(&self.0)
    }
}

fn axis(name: &str) -> Option<usize> {
    ["x", "y", "z"].iter().position(|known| *known == name)
}

fn channel(name: &str) -> Option<usize> {
    ["red", "green", "blue"].iter().position(|known| *known == name)
}
