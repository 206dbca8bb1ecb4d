//! Folders in SemanticKITTI's layout: which sequences, how many scans and labels.

use std::path::Path;

use occam_engine::scene::error::{Error, Place, Result};
use occam_engine::scene::formats;
use serde_json::json;

use super::Facts;
use crate::print::{Table, human};

struct Sequence {
    name: String,
    scans: usize,
    labels: usize,
    /// Ground truth of the completion task.
    voxels: usize,
    poses: bool,
    calibration: bool,
}

pub fn facts(path: &Path) -> anyhow::Result<Facts> {
    let folders = formats::sequence_folders(path)?;
    let sequences = folders.iter().map(|folder| sequence(folder)).collect::<Result<Vec<_>>>()?;
    if sequences.is_empty() {
        return Err(Error::new(path, Place::File, "a folder without sequences", "SemanticKITTI's layout")
            .hint("The scans of sequence 00 belong in sequences/00/velodyne/*.bin, their labels in sequences/00/labels")
            .into());
    }
    let yes = |there: bool| if there { "yes" } else { "no" }.to_owned();
    let mut table = Table::new(["  sequence", "scans", "labels", "voxel labels", "poses", "calibration"]);
    for sequence in &sequences {
        table.row([
            format!("  {}", sequence.name),
            human::count(sequence.scans),
            human::count(sequence.labels),
            human::count(sequence.voxels),
            yes(sequence.poses),
            yes(sequence.calibration),
        ]);
    }
    let scans = sequences.iter().map(|s| s.scans).sum();
    let title = format!(
        "{}: SemanticKITTI layout, {}, {}",
        path.display(),
        human::counted(sequences.len(), "sequence"),
        human::counted(scans, "scan")
    );
    let listed: Vec<_> = sequences
        .iter()
        .map(|s| {
            json!({
                "sequence": s.name,
                "scans": s.scans,
                "labels": s.labels,
                "voxel_labels": s.voxels,
                "poses": s.poses,
                "calibration": s.calibration,
            })
        })
        .collect();
    let json = json!({
        "file": path.to_string_lossy(),
        "format": "SemanticKITTI layout",
        "scans": scans,
        "sequences": listed,
    });
    Ok(Facts { text: format!("{title}\n{table}"), json })
}

fn sequence(folder: &Path) -> Result<Sequence> {
    let count = |name: &str, ending: &str| formats::files_ending(&folder.join(name), ending).map(|files| files.len());
    Ok(Sequence {
        name: folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned(),
        scans: count("velodyne", "bin")?,
        labels: count("labels", "label")?,
        voxels: count("voxels", "label")?,
        poses: folder.join("poses.txt").is_file(),
        calibration: folder.join("calib.txt").is_file(),
    })
}
