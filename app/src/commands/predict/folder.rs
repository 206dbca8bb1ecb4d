//! Folders in SemanticKITTI's layout: their scans, and where the benchmark's evaluator looks for predictions.

use std::path::{Path, PathBuf};

use occam_engine::scene::error::{Error, Place};
use occam_engine::scene::formats::{self, Sequence};
use occam_engine::scene::{LabelMap, VoxelGrid};

use crate::fail::usage;

/// A scan of a folder.
pub struct Recorded {
    pub scan: PathBuf,
    /// Its prediction's path below the output folder, without ending.
    pub stem: String,
}

/// The scans of a folder that the benchmark scores, those with a file in `voxels/`; every scan of a sequence without.
///
/// # Errors
/// A folder of another layout.
pub fn scans(folder: &Path) -> anyhow::Result<Vec<Recorded>> {
    let mut found = Vec::new();
    for sequence in formats::sequence_folders(folder)? {
        let sequence = Sequence::open(&sequence)?;
        let voxels = sequence.folder.join("voxels");
        let scored = |stem: &str| ["bin", "label"].iter().any(|e| voxels.join(stem).with_extension(e).is_file());
        let stems: Vec<String> = (0..sequence.scans.len()).map(|scan| sequence.stem(scan)).collect();
        let any = stems.iter().any(|stem| scored(stem));
        for (scan, stem) in sequence.scans.iter().zip(stems).filter(|(_, stem)| !any || scored(stem)) {
            found
                .push(Recorded { scan: scan.clone(), stem: format!("sequences/{}/predictions/{stem}", sequence.name) });
        }
    }
    if found.is_empty() {
        return Err(Error::new(
            folder,
            Place::File,
            "a folder of another layout",
            "scans in sequences/NN/velodyne/*.bin",
        )
        .hint("Name the scans themselves, such as FOLDER/*.ply")
        .into());
    }
    Ok(found)
}

/// A prediction as the evaluator reads it: on its grid, in its classes.
///
/// # Errors
/// A model of other classes or of a grid that does not divide the evaluator's.
pub fn as_scored(grid: &VoxelGrid, labels: &LabelMap) -> anyhow::Result<VoxelGrid> {
    if labels.name != "semantic-kitti" {
        return Err(usage(format!(
            "the model predicts the classes of {}, SemanticKITTI's evaluator expects its own. Predict the scans one by one, \
             or --format ply,npz,png",
            labels.name
        )));
    }
    formats::on_voxel_grid(grid).ok_or_else(|| {
        let (spec, scored) = (&grid.spec, formats::voxel_grid());
        usage(format!(
            "the model predicts {:?} voxels of {:?} m, SemanticKITTI's evaluator expects {:?} voxels of {:?} m or a grid \
             coarser by a whole number. Predict the scans one by one, or --format ply,npz,png",
            spec.counts, spec.voxel_size_m, scored.counts, scored.voxel_size_m
        ))
    })
}
