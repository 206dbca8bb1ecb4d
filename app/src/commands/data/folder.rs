//! Folders of data: SemanticKITTI's sequences, scans with a benchmark's ground truth, or somebody's own scans.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use occam_engine::data::{self, Layout, Pairs};
use occam_engine::scene::error::Result;
use occam_engine::scene::formats::{self, ReadOptions};
use occam_engine::train::TrainConfig;
use serde_json::json;

use super::{Facts, cloud};
use crate::print::{Table, human};

struct Sequence {
    name: String,
    scans: usize,
    labels: usize,
    /// Ground truth of the completion task.
    voxels: usize,
    poses: bool,
    calibration: bool,
    /// What is wrong with its files.
    notes: Vec<String>,
}

pub fn facts(path: &Path, options: &ReadOptions) -> anyhow::Result<Facts> {
    match data::layout(path)? {
        Layout::SemanticKitti => semantic_kitti(path),
        Layout::Pairs(pairs) => Ok(pairs_facts(path, &pairs)),
        Layout::Scans(folders) => own_scans(path, &folders),
        Layout::Cloud(file) => cloud::facts(&file, options, None),
    }
}

fn pairs_facts(path: &Path, pairs: &Pairs) -> Facts {
    let (benchmark, (drives, scans)) = (pairs.benchmark(), pairs.counts());
    let text = format!(
        "{}: scans with a ground truth of {benchmark}, {}, {}\n  frame      {}",
        path.display(),
        human::counted(drives, "drive"),
        human::counted(scans, "pair"),
        benchmark.frame()
    );
    let json = json!({
        "file": path.to_string_lossy(),
        "format": benchmark.name(),
        "frame": benchmark.frame().to_string(),
        "drives": drives,
        "scans": scans,
    });
    Facts { text, json }
}

/// As training with the preset for them would see them.
fn own_scans(path: &Path, folders: &[PathBuf]) -> anyhow::Result<Facts> {
    let config = TrainConfig::from_layers("own-scans", None, &[])?;
    let info = data::inspect(folders, &config.data, &config.grid)?;
    let scans = info.drives.iter().map(|drive| drive.scans).sum();
    let mut text = format!("{}: scans with poses, {}", path.display(), human::counted(scans, "scan"));
    for drive in &info.drives {
        let first = formats::read_cloud(&drive.first, &ReadOptions::default())?;
        let file = drive.first.file_name().unwrap_or_default().to_string_lossy();
        let _ = write!(
            text,
            "\n  {}: {}, {:.1} m apart on average; poses: {}; {file}: {}, {}",
            drive.name,
            human::counted(drive.scans, "scan"),
            drive.way_m / (drive.scans.max(2) - 1) as f64,
            drive.poses,
            first.format,
            human::counted(first.cloud.len(), "point"),
        );
    }
    let [training, validation] = info.split;
    let _ = write!(
        text,
        "\n  to train on {}, to validate on {}; {} of the points lie in the grid of the preset own-scans",
        human::count(training),
        human::count(validation),
        human::percent(info.inside)
    );
    for note in &info.notes {
        let _ = write!(text, "\n  note       {note}");
    }
    let drives: Vec<_> = info
        .drives
        .iter()
        .map(|drive| {
            json!({
                "name": drive.name,
                "scans": drive.scans,
                "poses": drive.poses,
                "way_m": drive.way_m,
                "first": drive.first.to_string_lossy(),
            })
        })
        .collect();
    let json = json!({
        "file": path.to_string_lossy(),
        "format": "scans with poses",
        "scans": scans,
        "drives": drives,
        "training": training,
        "validation": validation,
        "inside": info.inside,
        "notes": info.notes,
    });
    Ok(Facts { text, json })
}

fn semantic_kitti(path: &Path) -> anyhow::Result<Facts> {
    let mut folders = formats::sequence_folders(path)?;
    // Built voxels lie in sequences without scans.
    folders.extend(formats::folders_with(path, "voxels")?);
    folders.sort();
    folders.dedup();
    let sequences = folders.iter().map(|folder| sequence(folder)).collect::<Result<Vec<_>>>()?;
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
    let voxels: usize = sequences.iter().map(|s| s.voxels).sum();
    let title = format!(
        "{}: SemanticKITTI layout, {}, {}, {}",
        path.display(),
        human::counted(sequences.len(), "sequence"),
        human::counted(scans, "scan"),
        human::counted(voxels, "voxel target")
    );
    let mut text = format!("{title}\n{}", table.to_string().trim_end());
    for note in sequences.iter().flat_map(|sequence| &sequence.notes) {
        let _ = write!(text, "\n  note       {note}");
    }
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
                "notes": s.notes,
            })
        })
        .collect();
    let json = json!({
        "file": path.to_string_lossy(),
        "format": "SemanticKITTI layout",
        "scans": scans,
        "voxel_targets": voxels,
        "sequences": listed,
    });
    Ok(Facts { text, json })
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
        notes: flaws(folder)?,
    })
}

/// What a run on a sequence would stumble over. A file that is not there is told by the table.
fn flaws(folder: &Path) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let there = |name: &str| Some(folder.join(name)).filter(|file| file.is_file());
    let without_scans = formats::files_ending(&folder.join("velodyne"), "bin")?.is_empty();
    let scans = if without_scans { None } else { Some(formats::Sequence::open(folder)?) };
    let wrong = match (there("calib.txt"), there("poses.txt"), &scans) {
        (Some(_), Some(_), Some(sequence)) => sequence.poses().err(),
        (Some(calibration), _, _) => formats::read_camera_from_lidar(&calibration).err(),
        (None, Some(poses), _) => formats::read_poses(&poses).err(),
        (None, None, _) => None,
    };
    notes.extend(wrong.map(|error| error.to_string()));
    let stray = scans.map_or(Ok(Vec::new()), |sequence| sequence.labels_without_scan())?;
    if let Some(first) = stray.first() {
        let count = human::counted(stray.len(), "label file");
        notes.push(format!("{count} of no scan in velodyne/, such as {}", first.display()));
    }
    Ok(notes)
}
