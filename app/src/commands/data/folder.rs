//! Folders in SemanticKITTI's layout: which sequences, how many scans and labels.

use std::fs;
use std::path::{Path, PathBuf};

use occam_engine::scene::error::{Error, Place, Result};
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
    let sequences = sequences(path)?;
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
    let json = json!({ "file": path.to_string_lossy(), "format": "SemanticKITTI layout", "scans": scans, "sequences": listed });
    Ok(Facts { text: format!("{title}\n{table}"), json })
}

/// The sequences below `path`, `path/sequences` or `path/dataset/sequences`, or `path` itself, by name.
fn sequences(path: &Path) -> Result<Vec<Sequence>> {
    if path.join("velodyne").is_dir() {
        return Ok(vec![sequence(path)?]);
    }
    for root in [path.join("dataset/sequences"), path.join("sequences"), path.to_path_buf()] {
        if root.is_dir() {
            let mut folders: Vec<PathBuf> = list(&root)?.into_iter().filter(|f| f.join("velodyne").is_dir()).collect();
            folders.sort();
            return folders.iter().map(|folder| sequence(folder)).collect();
        }
    }
    Ok(Vec::new())
}

fn sequence(folder: &Path) -> Result<Sequence> {
    let count = |name: &str, ending: &str| -> Result<usize> {
        let folder = folder.join(name);
        if !folder.is_dir() {
            return Ok(0);
        }
        Ok(list(&folder)?.iter().filter(|file| file.extension().is_some_and(|e| e == ending)).count())
    };
    Ok(Sequence {
        name: folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned(),
        scans: count("velodyne", "bin")?,
        labels: count("labels", "label")?,
        voxels: count("voxels", "label")?,
        poses: folder.join("poses.txt").is_file(),
        calibration: folder.join("calib.txt").is_file(),
    })
}

fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| Error::io(folder, &error))?;
    entries.map(|entry| entry.map(|e| e.path()).map_err(|error| Error::io(folder, &error))).collect()
}
