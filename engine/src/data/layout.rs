//! What kind of data a path holds.

use std::fs;
use std::path::{Path, PathBuf};

use occam_scene::error::Place;
use occam_scene::formats::{files_ending, folders_with, sequence_folders};

use super::own_scans::{find_scans, has_poses};
use super::paired::Pairs;
use crate::Result;

/// Data that a run can train on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// Labelled scans in SemanticKITTI's folders.
    SemanticKitti,
    /// Scans with a ground truth of a benchmark each.
    Pairs(Pairs),
    /// Folders of your own scans with poses, each a drive of its own.
    Scans(Vec<PathBuf>),
    /// One dense cloud.
    Cloud(PathBuf),
}

/// What a path must look like.
pub(super) const LAYOUTS: &str = "one of these: (1) your own scans: a folder with *.ply, *.bin or *.npy, one file a scan (or those in its scans/ or \
     velodyne/), and poses.txt with one line a scan, world from sensor: 12 numbers (3 x 4 matrix, as KITTI), 16 (4 x 4) or \
     8 (time x y z qx qy qz qw, as TUM); with a calib.txt the poses are the camera's, as in KITTI; (2) one dense cloud: the \
     file; (3) SemanticKITTI's: sequences/NN/ (or one such NN folder) that holds velodyne/000000.bin and so on, \
     labels/000000.label and so on, poses.txt and calib.txt; (4) CarlaSC's: Train/ and Val/, scenes, or one scene, with \
     cartesian/velodyne and cartesian/evaluation; (5) pairs: NAME.bin or NAME.ply beside NAME.npz or NAME.npy, the ground \
     truth of an occupancy benchmark in the same frame";

/// Finds out what `path` holds, by names alone where names tell.
///
/// # Errors
/// [`crate::Error::Input`] with the layouts there are.
pub fn layout(path: &Path) -> Result<Layout> {
    let other = |found: String| occam_scene::Error::new(path, Place::File, found, LAYOUTS);
    let kind = fs::metadata(path).map_err(|error| other(error.to_string()))?;
    if kind.is_file() {
        return Ok(Layout::Cloud(path.to_path_buf()));
    }
    // First: a scene of CarlaSC has all that a sequence of SemanticKITTI has.
    if let Some(pairs) = Pairs::find(path)? {
        return Ok(Layout::Pairs(pairs));
    }
    let sequences = sequence_folders(path)?;
    if !sequences.is_empty() {
        let mut labelled = false;
        for sequence in &sequences {
            for folder in ["labels", "voxels"] {
                labelled |= !files_ending(&sequence.join(folder), "label")?.is_empty();
            }
        }
        return Ok(if labelled { Layout::SemanticKitti } else { Layout::Scans(sequences) });
    }
    // Voxels alone: what is missing is told by the reader.
    if !folders_with(path, "voxels")?.is_empty() {
        return Ok(Layout::SemanticKitti);
    }
    let scans = find_scans(path)?;
    match scans.as_slice() {
        [] => Err(other("a folder without scans".into()).into()),
        _ if has_poses(path, &scans) => Ok(Layout::Scans(vec![path.to_path_buf()])),
        [only] => Ok(Layout::Cloud(only.clone())),
        many => Err(other(format!("{} scans and no poses", many.len())).into()),
    }
}
