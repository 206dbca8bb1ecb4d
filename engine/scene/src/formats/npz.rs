//! numpy `.npz` archives.

use std::io::{self, Cursor};
use std::path::Path;

use npyz::WriterBuilder;
use npyz::npz::NpzWriter;

use super::archive::Archive;
use super::npy::{self, Array};
use super::{ReadCloud, atomic_write, bytes};
use crate::error::{Error, Place, Result};
use crate::grid::{AxisOrder, VoxelGrid};

pub(super) const MAGIC: &[u8] = b"PK\x03\x04";

/// Reads every array of an archive, with its name, in the order of the archive.
///
/// # Errors
///
/// As [`super::read_npy`]; also when a member is packed in a way no array is (archive bombs) or damaged.
pub fn read_npz(path: &Path) -> Result<Vec<(String, Array)>> {
    let bytes = bytes::load(path)?;
    bytes::refuse_foreign(path, &bytes)?;
    let mut archive = Archive::open(path, &bytes)?;
    let names: Vec<String> = archive.names().map(str::to_owned).collect();
    names.into_iter().enumerate().map(|(number, name)| Ok((name, archive.read(number)?))).collect()
}

/// Writes the class ids of a grid as `semantics`, u8 in the order x, y, z (z fastest), as the Occ3D benchmark reads it.
///
/// # Errors
///
/// When the file cannot be written.
pub fn write_npz_semantics(path: &Path, grid: &VoxelGrid) -> Result<()> {
    let turned;
    let grid = if grid.spec.axis_order == AxisOrder::Xyz {
        grid
    } else {
        turned = grid.reordered(AxisOrder::Xyz);
        &turned
    };
    let pack = || -> io::Result<Vec<u8>> {
        let mut archive = NpzWriter::new(Cursor::new(Vec::new()));
        let shape = grid.spec.counts.map(|n| n as u64);
        let mut array = archive.array::<u8>("semantics", deflated())?.default_dtype().shape(&shape).begin_nd()?;
        array.extend(grid.labels.iter().copied())?;
        array.finish()?;
        Ok(archive.zip_writer().finish()?.into_inner())
    };
    atomic_write(path, |out| out.write_all(&pack()?))
}

/// Deflate, as numpy packs. The type belongs to the `zip` of `npyz`, which has no name here.
pub(super) fn deflated<T: Default>() -> T {
    T::default()
}

/// The only array of an archive, or the one that is called points. Others are not unpacked.
pub(super) fn read_cloud(path: &Path, bytes: &[u8]) -> Result<ReadCloud> {
    const NAMES: [&str; 6] = ["points", "xyz", "positions", "pc", "data", "arr_0"];
    let mut archive = Archive::open(path, bytes)?;
    let names: Vec<String> = archive.names().map(str::to_owned).collect();
    let named = NAMES.iter().find_map(|wanted| names.iter().position(|name| name == wanted));
    let only = (names.len() == 1).then_some(0);
    match named.or(only).map(|number| (number, &names[number])) {
        Some((number, name)) if name != "semantics" => {
            npy::read_cloud(path, &format!("{name}.npy"), &archive.unpack(number)?)
        }
        _ => {
            let grid = names.iter().any(|name| name == "semantics");
            let hint = if grid { "It is an occupancy grid, not a scan" } else { "" };
            let found = if names.is_empty() { "no array".into() } else { format!("the arrays {}", names.join(", ")) };
            Err(Error::new(path, Place::File, found, "an array named points").hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::ReadOptions;
    use super::*;
    use crate::grid::GridSpec;

    /// An archive as numpy's `savez_compressed` packs it.
    fn write_npz(path: &Path, arrays: &[(&str, &[u64], &[u8])]) {
        let mut archive = NpzWriter::new(fs::File::create(path).unwrap());
        for (name, shape, values) in arrays {
            let mut array =
                archive.array::<u8>(name, deflated()).unwrap().default_dtype().shape(shape).begin_nd().unwrap();
            array.extend(values.iter().copied()).unwrap();
            array.finish().unwrap();
        }
        archive.zip_writer().finish().unwrap();
    }

    #[test]
    fn a_changed_byte_is_found_by_the_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npz");
        let values: Vec<u8> = (0..4000u32).map(|i| (i * i / 7) as u8).collect();
        write_npz(&path, &[("semantics", &[4000], &values)]);
        let whole = fs::read(&path).unwrap();
        let mut read_as_good = 0;
        for byte in (100..whole.len() - 200).step_by(37) {
            let mut bytes = whole.clone();
            bytes[byte] ^= 0x20;
            fs::write(&path, &bytes).unwrap();
            read_as_good += usize::from(read_npz(&path).is_ok());
        }
        assert_eq!(read_as_good, 0);
    }

    #[test]
    fn predictions_come_back_in_x_y_z_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prediction.npz");
        let spec = GridSpec { axis_order: AxisOrder::Zyx, ..GridSpec::new([0.0; 3], [1.0; 3], [2, 3, 4]) };
        let mut grid = VoxelGrid::empty(spec);
        grid.labels.iter_mut().enumerate().for_each(|(i, label)| *label = i as u8);
        write_npz_semantics(&path, &grid).unwrap();
        let (name, array) = read_npz(&path).unwrap().remove(0);
        assert_eq!((name.as_str(), array.shape.as_slice()), ("semantics", &[2, 3, 4][..]));
        let values = array.into_u8(&path).unwrap();
        assert_eq!(values, grid.reordered(AxisOrder::Xyz).labels);
        assert_ne!(values, grid.labels);
    }

    #[test]
    fn a_cut_off_archive_is_one_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labels.npz");
        write_npz(&path, &[("semantics", &[600], &[7; 600])]);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(read_npz(&path).unwrap_err().to_string().contains("damaged archive"));
    }

    #[test]
    fn a_member_that_claims_what_deflate_cannot_do_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bomb.npz");
        write_npz(&path, &[("semantics", &[600], &[7; 600])]);
        let mut bytes = fs::read(&path).unwrap();
        // Unpacked size in the central directory, 24 bytes behind its signature.
        let at = bytes.windows(4).position(|w| w == b"PK\x01\x02").unwrap() + 24;
        bytes[at..at + 4].copy_from_slice(&0xffff_fff0_u32.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        let error = read_npz(&path).unwrap_err().to_string();
        assert!(error.contains("4294967280 bytes, packed into"), "{error}");
    }

    #[test]
    fn a_grid_is_no_scan() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labels.npz");
        write_npz(&path, &[("semantics", &[2], &[0, 0])]);
        let error = super::super::read_cloud(&path, &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains("occupancy grid"), "{error}");
    }
}
