//! File formats: each reader checks the sizes a file claims against its length before it allocates.
//!
//! [`read_cloud`] reads whatever holds points; the other functions read and write one format each. Everything that is
//! written goes through [`atomic_write`].

mod archive;
mod atomic;
pub mod benchmarks;
mod bin;
mod bytes;
mod describe;
mod label;
mod npy;
mod npz;
mod origin;
mod ply;
mod poses;
mod semantic_kitti;
mod sequence;
mod trajectory;
mod voxels;

#[cfg(test)]
mod mutation_tests;

use std::path::Path;

use crate::cloud::PointCloud;
use crate::error::{Error, Place, Result};

pub use atomic::atomic_write;
pub use bytes::is_in_folder;
pub use describe::{ColumnRange, Description};
pub use label::{LabelFile, read_label_file, read_labels, write_labels};
pub use npy::{Array, Values, read_npy};
pub use npz::{read_npz, write_npz_semantics};
pub use ply::{VoxelShape, write_cloud_ply, write_voxels_ply};
pub use poses::{lidar_poses, read_calibration, read_camera_from_lidar, read_poses};
pub use semantic_kitti::{files_ending, folders_with, list, sequence_folders};
pub use sequence::Sequence;
pub use trajectory::{PoseFormat, read_trajectory, write_trajectory};
pub use voxels::{
    on_voxel_grid, read_voxel_bits, read_voxel_labels, read_voxel_target, voxel_factor, voxel_grid, write_voxel_bits,
    write_voxel_ids, write_voxel_labels,
};

/// How to read a cloud where the file alone does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// 32-bit floats a point in a `.bin`; guessed from the values when absent.
    pub bin_stride: Option<usize>,
    /// Keep the points that are there when a PLY file ends early, instead of refusing it.
    pub lenient: bool,
}

/// A cloud as it stood in its file.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadCloud {
    pub cloud: PointCloud,
    /// For people: "PLY binary_little_endian", "KITTI .bin, 4 floats a point".
    pub format: String,
    /// To be printed once: guesses, dropped points, ignored columns.
    pub notes: Vec<String>,
}

/// Reads points from PLY, KITTI or nuScenes `.bin`, `.npy` (N x 3 or more) or `.npz` (one such array).
///
/// The content decides where it can (PLY, numpy), the extension otherwise (`.bin`). Points with a coordinate that is
/// NaN, infinite or beyond the range of f32 are dropped and counted.
///
/// Coordinates are brought to f32 behind an f64 origin: axis by axis 0 when the median of up to 1,023 evenly picked points
/// is less than 8,192 m from 0 (f32 then resolves 1 mm), and that median in whole metres otherwise.
///
/// # Errors
///
/// One [`Error`] for whatever is wrong with the file: missing, empty, a Git LFS pointer, a web page, a format without
/// a reader, cut off, or at odds with itself.
pub fn read_cloud(path: &Path, options: &ReadOptions) -> Result<ReadCloud> {
    let mut read = read_every_point(path, options)?;
    drop_non_finite(&mut read);
    Ok(read)
}

/// Reads a scan and its SemanticKITTI `.label` file; labels and instances replace those of the scan, if it had any.
///
/// # Errors
///
/// As [`read_cloud`] and [`read_labels`]. The counts are compared before points are dropped.
pub fn read_labelled_cloud(path: &Path, labels: &Path, options: &ReadOptions) -> Result<ReadCloud> {
    let mut read = read_every_point(path, options)?;
    let (label, instance) = read_labels(labels, path, read.cloud.len())?;
    read.cloud.label = Some(label);
    read.cloud.instance = Some(instance);
    drop_non_finite(&mut read);
    Ok(read)
}

fn read_every_point(path: &Path, options: &ReadOptions) -> Result<ReadCloud> {
    parse_every_point(path, &bytes::load(path)?, options)
}

/// `path` tells the extension and stands in messages; only `bytes` are read.
fn parse_every_point(path: &Path, bytes: &[u8], options: &ReadOptions) -> Result<ReadCloud> {
    bytes::refuse_foreign(path, bytes)?;
    if ply::is_ply(bytes) || bytes::has_extension(path, &["ply"]) {
        ply::read(path, bytes, options)
    } else if bytes.starts_with(npy::MAGIC) || bytes::has_extension(path, &["npy"]) {
        npy::read_cloud(path, "", bytes)
    } else if bytes.starts_with(npz::MAGIC) || bytes::has_extension(path, &["npz"]) {
        npz::read_cloud(path, bytes)
    } else if bytes::has_extension(path, &["bin"]) {
        bin::read(path, bytes, options)
    } else if bytes::has_extension(path, &["label"]) {
        Err(Error::new(path, Place::File, "labels", "points").hint("Name the scan that they belong to"))
    } else {
        Err(Error::new(path, Place::File, "an unknown kind of file", "PLY, KITTI .bin, .npy or .npz")
            .hint("Convert it to PLY, or give it its usual extension"))
    }
}

fn drop_non_finite(read: &mut ReadCloud) {
    read.cloud.drop_non_finite();
    let odd = read.cloud.intensity.iter_mut().flatten().filter(|value| !value.is_finite());
    let odd = odd.map(|value| *value = 0.0).count();
    if odd > 0 {
        read.notes.push(format!("{} that are NaN or infinite became 0", bytes::count(odd as u64, "intensity value")));
    }
    if read.cloud.dropped_non_finite > 0 {
        let dropped = bytes::count(read.cloud.dropped_non_finite as u64, "point");
        read.notes
            .push(format!("dropped {dropped} with a coordinate that is NaN, infinite or beyond the range of f32"));
    }
    if read.cloud.is_empty() {
        read.notes.push("no points are left".into());
    }
}
