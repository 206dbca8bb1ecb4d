//! Which benchmark a file belongs to, where its name or arrays tell.

use std::path::Path;

use super::Benchmark;
use super::rows::Rows;
use crate::error::Result;
use crate::formats::bytes::{has_extension, is_in_folder};
use crate::formats::npy::{Array, read_npy};
use crate::formats::npz::read_npz;

/// What a file holds, unpacked once.
pub(super) enum Content {
    Npz(Vec<(String, Array)>),
    Npy(Array),
    /// Read by whoever knows its size.
    Other,
}

impl Content {
    pub fn load(path: &Path) -> Result<Self> {
        Ok(if has_extension(path, &["npz"]) {
            Self::Npz(read_npz(path)?)
        } else if has_extension(path, &["npy"]) {
            Self::Npy(read_npy(path)?)
        } else {
            Self::Other
        })
    }

    pub fn detect(&self, path: &Path) -> Option<Benchmark> {
        match self {
            Self::Npz(arrays) => archive(arrays),
            Self::Npy(array) => list(path, array),
            Self::Other => {
                [Benchmark::SemanticKitti, Benchmark::CarlaSc].into_iter().find(|benchmark| name_fits(path, *benchmark))
            }
        }
    }
}

/// Whether a file of a folder can be a ground truth of the benchmark, going by its name.
pub(super) fn name_fits(path: &Path, benchmark: Benchmark) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match benchmark {
        Benchmark::SemanticKitti => has_extension(path, &["label"]) && is_in_folder(path, "voxels"),
        Benchmark::Occ3dNuscenes | Benchmark::OpenOcc => has_extension(path, &["npz"]),
        Benchmark::OccNet => name.ends_with("_occ.npy"),
        Benchmark::SurroundOcc | Benchmark::OpenOccupancy => has_extension(path, &["npy"]),
        Benchmark::CarlaSc => has_extension(path, &["label"]) && is_in_folder(path, "evaluation"),
    }
}

fn archive(arrays: &[(String, Array)]) -> Option<Benchmark> {
    let has = |name: &str| arrays.iter().any(|(known, _)| known == name);
    let (_, semantics) = arrays.iter().find(|(name, _)| name == "semantics")?;
    // In whichever order: a transposed array is to be refused with a reason, a grid of another size is somebody's own.
    let mut sides = semantics.shape.clone();
    sides.sort_unstable();
    if sides != [16, 200, 200] {
        return None;
    }
    if has("flow") {
        return Some(Benchmark::OpenOcc);
    }
    if has("mask_lidar") || has("mask_camera") {
        return Some(Benchmark::Occ3dNuscenes);
    }
    let count = |id: f64| (0..semantics.values.len()).filter(|i| semantics.values.at(*i) == id).count();
    let half = semantics.values.len() / 2;
    if count(17.0) > half {
        Some(Benchmark::Occ3dNuscenes)
    } else if count(16.0) > half {
        Some(Benchmark::OpenOcc)
    } else {
        None
    }
}

fn list(path: &Path, array: &Array) -> Option<Benchmark> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match array.shape.as_slice() {
        [_, 2] if name.ends_with("_occ.npy") => Some(Benchmark::OccNet),
        [_, 4 | 7] if is_in_folder(path, "occupancy") => Some(Benchmark::OpenOccupancy),
        // Points have seven columns as well; voxels have whole numbers.
        [_, 7] => within(array, [40, 512, 512], 6).then_some(Benchmark::OpenOccupancy),
        [_, 4] => match (within(array, [200, 200, 16], 3), within(array, [40, 512, 512], 3)) {
            (true, false) => Some(Benchmark::SurroundOcc),
            (false, true) => Some(Benchmark::OpenOccupancy),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the first three columns are voxels of such a grid, and column `label` ids of classes.
fn within(array: &Array, ends: [i64; 3], label: usize) -> bool {
    let columns = array.shape.last().copied().unwrap_or(0);
    let rows = Rows { values: &array.values, columns };
    rows.len() > 0
        && (0..rows.len()).all(|row| {
            (0..3).all(|axis| rows.whole(row, axis).is_some_and(|v| (0..ends[axis]).contains(&v)))
                && rows.whole(row, label).is_some_and(|id| (0..256).contains(&id))
        })
}
