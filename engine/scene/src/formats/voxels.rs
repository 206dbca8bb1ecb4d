//! SemanticKITTI voxel files: `.label` (u16 a voxel, ids of the data set) and `.bin`, `.invalid`, `.occluded` (one bit a
//! voxel, most significant first), all with x slowest and z fastest (Behley et al., "SemanticKITTI", ICCV 2019).

use std::path::Path;

use super::{atomic_write, bytes};
use crate::error::{Error, Place, Result};
use crate::grid::{AxisOrder, GridSpec, VoxelGrid};
use crate::labels::LabelMap;

/// Reads a voxel `.label` into a grid of `spec` with the class ids of `map`.
///
/// # Errors
///
/// When the length is not two bytes a voxel, or an id is not in the map.
pub fn read_voxel_labels(path: &Path, spec: &GridSpec, map: &LabelMap) -> Result<VoxelGrid> {
    let bytes = load_labels(path, spec)?;
    let known = map.lookup();
    let (words, _) = bytes.as_chunks::<2>();
    let mut labels = Vec::with_capacity(words.len());
    for (index, word) in words.iter().enumerate() {
        let id = u16::from_le_bytes(*word);
        let class = known.get(&id).ok_or_else(|| {
            Error::new(
                path,
                Place::Byte(2 * index as u64),
                format!("class id {id}"),
                format!("an id of the label map \"{}\"", map.name),
            )
            .hint("Choose the label map of the data set, or add the id to it")
        })?;
        labels.push(*class);
    }
    let on_disk = GridSpec { axis_order: AxisOrder::Xyz, ..*spec };
    let grid = VoxelGrid { spec: on_disk, labels, visibility: None, flow: None };
    Ok(if spec.axis_order == AxisOrder::Xyz { grid } else { grid.reordered(spec.axis_order) })
}

/// The grid of SemanticKITTI's voxel files: 256 x 256 x 32 voxels of 0.2 m in front of the sensor.
pub fn voxel_grid() -> GridSpec {
    GridSpec::new([0.0, -25.6, -2.0], [0.2; 3], [256, 256, 32])
}

/// By how much a grid is coarser than [`voxel_grid`] along each axis; `None` for one of another extent.
pub fn voxel_factor(spec: &GridSpec) -> Option<usize> {
    let fine = voxel_grid();
    let factor = fine.counts[0] / spec.counts[0].max(1);
    let same = (0..3).all(|axis| {
        spec.counts[axis] * factor == fine.counts[axis]
            && (spec.origin_m[axis] - fine.origin_m[axis]).abs() < 1e-3
            && (spec.voxel_size_m[axis] - fine.voxel_size_m[axis] * factor as f32).abs() < 1e-4
    });
    same.then_some(factor)
}

/// A grid on [`voxel_grid`]: every voxel takes the label of the one that holds it. `None` for one of another extent.
pub fn on_voxel_grid(grid: &VoxelGrid) -> Option<VoxelGrid> {
    let factor = voxel_factor(&grid.spec)?;
    let fine = GridSpec { empty_id: grid.spec.empty_id, ignore_id: grid.spec.ignore_id, ..voxel_grid() };
    let label = |index| grid.label(fine.voxel_at(index).map(|place| place / factor));
    Some(VoxelGrid { labels: (0..fine.len()).map(label).collect(), ..VoxelGrid::empty(fine) })
}

/// Reads a voxel `.label` with the `.invalid` beside it, whose voxels are ignored: what the completion task scores.
///
/// # Errors
///
/// As [`read_voxel_labels`] and [`read_voxel_bits`], for either file.
pub fn read_voxel_target(label: &Path, spec: &GridSpec, map: &LabelMap) -> Result<VoxelGrid> {
    let on_disk = GridSpec { axis_order: AxisOrder::Xyz, ..*spec };
    let mut grid = read_voxel_labels(label, &on_disk, map)?;
    let invalid = read_voxel_bits(&label.with_extension("invalid"), &on_disk)?;
    for (label, _) in grid.labels.iter_mut().zip(invalid).filter(|(_, invalid)| *invalid) {
        *label = spec.ignore_id;
    }
    Ok(if spec.axis_order == AxisOrder::Xyz { grid } else { grid.reordered(spec.axis_order) })
}

/// Writes ids of the data set, one a voxel in the order of the file (z fastest), as a voxel `.label`.
///
/// # Errors
///
/// When the file cannot be written.
pub fn write_voxel_ids(path: &Path, ids: &[u16]) -> Result<()> {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    atomic_write(path, |out| out.write_all(&bytes))
}

/// Writes one bit a voxel, given in the order of the file (z fastest).
///
/// # Errors
///
/// When the file cannot be written.
pub fn write_voxel_bits(path: &Path, bits: &[bool]) -> Result<()> {
    let pack =
        |bits: &[bool]| bits.iter().enumerate().fold(0, |byte, (place, bit)| byte | u8::from(*bit) << (7 - place));
    let bytes: Vec<u8> = bits.chunks(8).map(pack).collect();
    atomic_write(path, |out| out.write_all(&bytes))
}

/// Writes a grid as a voxel `.label` with the file ids of `map`, as the benchmark wants predictions.
///
/// # Errors
///
/// When the file cannot be written.
pub fn write_voxel_labels(path: &Path, grid: &VoxelGrid, map: &LabelMap) -> Result<()> {
    let on_disk = GridSpec { axis_order: AxisOrder::Xyz, ..grid.spec };
    let ids: [u16; 256] = std::array::from_fn(|class| map.file_id(class as u8));
    atomic_write(path, |out| {
        for index in 0..on_disk.len() {
            let class = grid.label(on_disk.voxel_at(index));
            out.write_all(&ids[usize::from(class)].to_le_bytes())?;
        }
        Ok(())
    })
}

/// Reads one bit a voxel, in the axis order of the file (z fastest).
///
/// # Errors
///
/// When the length is not one bit a voxel.
pub fn read_voxel_bits(path: &Path, spec: &GridSpec) -> Result<Vec<bool>> {
    let bytes = load(path, spec, "one bit a voxel", |voxels| Some(voxels.div_ceil(8)))?;
    let bits = bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte & (0x80 >> bit) != 0));
    Ok(bits.take(spec.len()).collect())
}

/// The bytes of a voxel `.label`, two for each voxel of `spec`.
pub(super) fn load_labels(path: &Path, spec: &GridSpec) -> Result<bytes::Bytes> {
    load(path, spec, "two bytes a voxel", |voxels| voxels.checked_mul(2))
}

fn load(path: &Path, spec: &GridSpec, unit: &str, size: impl Fn(usize) -> Option<usize>) -> Result<bytes::Bytes> {
    let bytes = bytes::load(path)?;
    bytes::refuse_foreign(path, &bytes)?;
    let expected = spec.checked_len().and_then(size);
    if expected != Some(bytes.len()) {
        let [x, y, z] = spec.counts;
        let expected = expected.map_or_else(|| "fewer voxels".into(), |e| bytes::count(e as u64, "byte"));
        let expected = format!("{expected}: {unit} of a {x}x{y}x{z} grid");
        return Err(Error::new(path, Place::File, bytes::count(bytes.len() as u64, "byte"), expected)
            .hint("The grid of the configuration differs from that of the file, or the file was cut off"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn spec() -> GridSpec {
        GridSpec::new([0.0; 3], [0.2; 3], [2, 3, 4])
    }

    #[test]
    fn bits_come_most_significant_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.bin");
        fs::write(&path, [0b1000_0001, 0, 0b0100_0000]).unwrap();
        let bits = read_voxel_bits(&path, &spec()).unwrap();
        let set: Vec<usize> = (0..24).filter(|i| bits[*i]).collect();
        assert_eq!(set, [0, 7, 17]);
    }

    #[test]
    fn labels_are_written_with_z_fastest_whatever_the_order_of_the_grid() {
        let map = LabelMap::built_in("semantic-kitti").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.label");
        let mut grid = VoxelGrid::empty(GridSpec { axis_order: AxisOrder::Zyx, ..spec() });
        let at = grid.spec.index([1, 0, 2]);
        grid.labels[at] = 1;
        write_voxel_labels(&path, &grid, &map).unwrap();
        let bytes = fs::read(&path).unwrap();
        // Voxel (1, 0, 2) is number (1 * 3 + 0) * 4 + 2 = 14; class 1 is the car, id 10.
        let expected: Vec<u8> = (0..48).map(|b| if b == 28 { 10 } else { 0 }).collect();
        assert_eq!(bytes, expected);
        assert_eq!(read_voxel_labels(&path, &grid.spec, &map).unwrap(), grid);
    }

    #[test]
    fn an_id_outside_the_map_is_named_with_its_place() {
        let map = LabelMap::built_in("semantic-kitti").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.label");
        let mut bytes = vec![0; 48];
        bytes[10..12].copy_from_slice(&777_u16.to_le_bytes());
        fs::write(&path, bytes).unwrap();
        let error = read_voxel_labels(&path, &spec(), &map).unwrap_err().to_string();
        assert!(error.contains("byte 10: found class id 777"), "{error}");
    }

    #[test]
    fn another_length_names_the_grid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.label");
        fs::write(&path, [0; 46]).unwrap();
        let map = LabelMap::built_in("semantic-kitti").unwrap();
        let error = read_voxel_labels(&path, &spec(), &map).unwrap_err().to_string();
        assert!(error.contains("found 46 bytes, expected 48 bytes: two bytes a voxel of a 2x3x4 grid"), "{error}");
        assert!(read_voxel_bits(&path, &spec()).is_err());
    }

    #[test]
    fn bits_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.bin");
        // Not a multiple of eight: the last byte is filled up with zeros.
        let spec = GridSpec::new([0.0; 3], [0.2; 3], [1, 3, 4]);
        let bits: Vec<bool> = (0..12).map(|i| i % 3 == 0).collect();
        write_voxel_bits(&path, &bits).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [0b1001_0010, 0b0100_0000]);
        assert_eq!(read_voxel_bits(&path, &spec).unwrap(), bits);
    }

    #[test]
    fn a_target_is_ignored_where_it_is_invalid_or_has_no_class() {
        let map = LabelMap::built_in("semantic-kitti").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.label");
        let mut ids = vec![0; 24];
        // Voxels 1 to 4: outlier, other structure, other object, moving car. Voxel 5: a road that nobody can see.
        ids[1..6].copy_from_slice(&[1, 52, 99, 252, 40]);
        write_voxel_ids(&path, &ids).unwrap();
        let missing = read_voxel_target(&path, &spec(), &map).unwrap_err().to_string();
        assert!(missing.contains("0.invalid"), "{missing}");
        let invalid: Vec<bool> = (0..24).map(|voxel| voxel == 5 || voxel == 6).collect();
        write_voxel_bits(&path.with_extension("invalid"), &invalid).unwrap();
        let grid = read_voxel_target(&path, &spec(), &map).unwrap();
        assert_eq!(grid.labels[..8], [0, 255, 255, 255, 1, 255, 255, 0]);
        let turned = read_voxel_target(&path, &GridSpec { axis_order: AxisOrder::Zyx, ..spec() }, &map).unwrap();
        assert_eq!(turned.label([0, 1, 0]), 1, "voxel 4 of 2 x 3 x 4");
        assert_eq!(turned.label([0, 1, 1]), 255);
        fs::write(path.with_extension("invalid"), [0; 4]).unwrap();
        let text = read_voxel_target(&path, &spec(), &map).unwrap_err().to_string();
        assert!(text.contains("0.invalid: found 4 bytes, expected 3 bytes: one bit a voxel"), "{text}");
    }

    #[test]
    fn a_coarse_grid_is_blown_up_to_that_of_the_files() {
        let coarse =
            GridSpec { axis_order: AxisOrder::Zyx, ..GridSpec::new([0.0, -25.6, -2.0], [1.6; 3], [32, 32, 4]) };
        assert_eq!((voxel_factor(&coarse), voxel_factor(&voxel_grid())), (Some(8), Some(1)));
        let mut grid = VoxelGrid::empty(coarse);
        let at = coarse.index([3, 31, 1]);
        grid.labels[at] = 7;
        let fine = on_voxel_grid(&grid).unwrap();
        assert_eq!((fine.spec, fine.occupied()), (voxel_grid(), 512));
        for (voxel, label) in [([24, 248, 8], 7), ([31, 255, 15], 7), ([23, 248, 8], 0), ([24, 248, 16], 0)] {
            assert_eq!(fine.label(voxel), label, "{voxel:?}");
        }
        for other in [
            GridSpec { counts: [32, 32, 3], ..coarse },
            GridSpec { origin_m: [0.0, -25.6, -1.0], ..coarse },
            GridSpec { voxel_size_m: [1.6, 1.6, 1.5], ..coarse },
            GridSpec { counts: [512, 512, 64], voxel_size_m: [0.1; 3], ..coarse },
        ] {
            assert_eq!(on_voxel_grid(&VoxelGrid::empty(other)).map(|grid| grid.spec), None);
        }
    }
}
