//! What a folder holds: its sequences, what makes their targets, and which scans train and which validate.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use glam::DMat4;
use occam_scene::completion::{TargetRules, check_voxels};
use occam_scene::error::Place;
use occam_scene::formats::{Sequence, folders_with, sequence_folders, voxel_factor, voxel_grid};
use occam_scene::{GridSpec, LabelMap};

use super::super::{DataConfig, TargetSource, first_validation};
use super::build::made_by;
use super::{Recording, Source};
use crate::{Error, Result};

/// What a folder must look like.
const LAYOUT: &str = "SemanticKITTI's: sequences/NN/ (or one such NN folder) that holds velodyne/000000.bin and so on (the \
                      scans), labels/000000.label and so on (one file a scan), poses.txt (one line a scan) and \
                      calib.txt (with a line Tr:); or, instead of the last three, voxels/000000.label and \
                      voxels/000000.invalid and so on";

/// Every sequence below a folder.
pub(super) fn sequences(path: &Path) -> Result<Vec<Sequence>> {
    let folders = sequence_folders(path)?;
    if folders.is_empty() {
        if let Some(without) = folders_with(path, "voxels")?.first() {
            let error = occam_scene::Error::new(
                without,
                Place::File,
                "voxels/ without velodyne/",
                "the scans themselves, which the network reads: velodyne/000000.bin and so on",
            );
            return Err(error
                .hint("They are KITTI odometry's data_odometry_velodyne.zip; unpack it over the folder")
                .into());
        }
        let found = match fs::metadata(path) {
            Err(error) => error.to_string(),
            Ok(meta) if meta.is_dir() => "a folder of another layout".into(),
            Ok(_) => "a file".into(),
        };
        return Err(occam_scene::Error::new(path, Place::File, found, LAYOUT).into());
    }
    Ok(folders.iter().map(|folder| Sequence::open(folder)).collect::<Result<_, _>>()?)
}

/// The sequences that have targets, with what makes them, and what the user should know about them.
pub(super) fn recordings(path: &Path, config: &DataConfig, spec: &GridSpec) -> Result<(Vec<Recording>, Vec<String>)> {
    let sequences = sequences(path)?;
    let (mut recordings, mut notes) = (Vec::new(), Vec::new());
    // Who names voxel files wants them.
    let asked = config.target == TargetSource::Auto && config.voxels.is_some();
    let wanted = if asked { TargetSource::Voxels } else { config.target };
    for sequence in &sequences {
        let voxels = voxel_folder(sequence, config)?;
        let mut files = sequence.voxel_labels(&voxels);
        let any = files.iter().any(Option::is_some);
        let source = match wanted {
            TargetSource::Voxels | TargetSource::Auto if any && voxel_factor(spec).is_some() => {
                notes.extend(leave_out_those_alone(sequence, &voxels, &mut files));
                Source::Voxels(files)
            }
            TargetSource::Voxels if any => {
                let fine = voxel_grid();
                return Err(Error::Usage(format!(
                    "{} with a grid of {:?} voxels of {:?} m from {:?} m, expected {:?} voxels of \
                     {:?} m from {:?} m, the grid of the voxel files, or one coarser by a whole number. Use such a grid, \
                     or data.target=scans",
                    if asked { "data.voxels" } else { "data.target = \"voxels\"" },
                    spec.counts,
                    spec.voxel_size_m,
                    spec.origin_m,
                    fine.counts,
                    fine.voxel_size_m,
                    fine.origin_m
                )));
            }
            TargetSource::Auto | TargetSource::Scans if sequence.has_labels()? => {
                warn_of_spare_labels(sequence)?;
                let world_from_lidar = sequence.poses()?;
                notes.extend(pose_notes(sequence, &world_from_lidar)?);
                Source::Scans { labels: sequence.labels()?, world_from_lidar }
            }
            _ => continue,
        };
        recordings.push(Recording { sequence: sequence.clone(), source });
    }
    if recordings.is_empty() {
        let (found, hint) = match wanted {
            TargetSource::Voxels => {
                ("no voxels/NNNNNN.label of any scan", "Make them from labelled scans: occam data build")
            }
            TargetSource::Scans => {
                ("scans without labels", "Put labels/NNNNNN.label beside velodyne/, one file a scan")
            }
            TargetSource::Auto => (
                "scans without labels/ or voxels/",
                "Put labels/NNNNNN.label (one a scan) or voxels/NNNNNN.label beside velodyne/",
            ),
        };
        return Err(occam_scene::Error::new(path, Place::File, found, LAYOUT).hint(hint).into());
    }
    Ok((recordings, notes))
}

/// What looks odd about the poses of a sequence.
pub(super) fn pose_notes(sequence: &Sequence, world_from_lidar: &[DMat4]) -> Result<Vec<String>> {
    let poses = sequence.folder.join("poses.txt");
    let mut notes = Vec::new();
    if world_from_lidar.len() > 1 && world_from_lidar.windows(2).all(|two| two[0].w_axis == two[1].w_axis) {
        notes.push(format!(
            "{}: all {} scans were taken at one place: were the poses recorded?",
            poses.display(),
            world_from_lidar.len()
        ));
    }
    let spare = sequence.poses_without_scan()?;
    if spare > 0 {
        notes.push(format!(
            "{}: {spare} poses after that of the last scan, {}: are they those of this sequence?",
            poses.display(),
            sequence.id(sequence.scans.len() - 1)
        ));
    }
    Ok(notes)
}

/// Takes away the targets that `occam data build` made from the anchor's own scan alone, because the sequence ends there:
/// they hold what the network sees, and nothing else. They stay where fewer than two others are.
fn leave_out_those_alone(sequence: &Sequence, voxels: &Path, files: &mut [Option<PathBuf>]) -> Option<String> {
    let rules = made_by(voxels)?.ok()?;
    let is_alone = |anchor: usize| rules.window(anchor, sequence.scans.len()).len() == 1;
    if rules.prior_scans.saturating_add(rules.future_scans) == 0 {
        return None;
    }
    let there = files.iter().flatten().count();
    let alone: Vec<usize> = (0..files.len()).filter(|scan| files[*scan].is_some() && is_alone(*scan)).collect();
    let last = *alone.last()?;
    let what =
        format!("the target of {} is made from its own scan alone, at the end of the sequence", sequence.id(last));
    if there < alone.len() + 2 {
        return Some(format!("{what}: it holds no more than the network sees, scores on it tell nothing"));
    }
    for scan in alone {
        files[scan] = None;
    }
    Some(format!("{what}: it is left out"))
}

/// Where the voxel files of a sequence lie.
fn voxel_folder(sequence: &Sequence, config: &DataConfig) -> Result<PathBuf> {
    let Some(elsewhere) = &config.voxels else { return Ok(sequence.folder.join("voxels")) };
    let folders = folders_with(elsewhere, "voxels")?;
    if folders.is_empty() {
        let error = occam_scene::Error::new(elsewhere, Place::File, "no voxels/ folder", "sequences/NN/voxels/");
        return Err(error.hint("data.voxels names a folder that occam data build -o wrote").into());
    }
    let own = folders.iter().find(|folder| folder.file_name().is_some_and(|name| *name == *sequence.name));
    Ok(own.map_or_else(|| elsewhere.join(&sequence.name), Clone::clone).join("voxels"))
}

fn warn_of_spare_labels(sequence: &Sequence) -> Result<()> {
    let spare = sequence.labels_without_scan()?;
    if let Some(first) = spare.first() {
        let rest = if spare.len() > 1 { format!(" and {} more", spare.len() - 1) } else { String::new() };
        tracing::warn!("{}{rest}: labels without a scan in velodyne/ are passed over", first.display());
    }
    Ok(())
}

/// Recording and scan of each sample.
type Samples = Vec<(usize, usize)>;

/// The samples to train on, and those to validate on.
pub(super) fn split(recordings: &[Recording], config: &DataConfig, rules: &TargetRules) -> (Samples, Samples) {
    let named: BTreeSet<&str> = config.validation_sequences.split(',').map(str::trim).collect();
    let validates = |recording: &Recording| named.contains(recording.sequence.name.as_str());
    let apart = recordings.iter().any(validates) && !recordings.iter().all(validates);
    let (mut training, mut validation) = (Vec::new(), Vec::new());
    for (number, recording) in recordings.iter().enumerate() {
        let samples: Vec<usize> = match &recording.source {
            Source::Voxels(files) => (0..files.len()).filter(|scan| files[*scan].is_some()).collect(),
            Source::Scans { labels, .. } => {
                let scans = labels.len();
                let around = rules.prior_scans.saturating_add(rules.future_scans);
                if scans > around {
                    (rules.prior_scans..scans - rules.future_scans).collect()
                } else {
                    (0..scans).collect()
                }
            }
        };
        let first = match (apart, validates(recording)) {
            (true, true) => 0,
            (true, false) => samples.len(),
            (false, _) => first_validation(samples.len(), config.validation_share),
        };
        training.extend(samples[..first].iter().map(|scan| (number, *scan)));
        validation.extend(samples[first..].iter().map(|scan| (number, *scan)));
    }
    (training, validation)
}

/// What the user should know before training: voxels that are not those of their scan (the first of each sequence is
/// looked at; what cannot be read is told when it is needed), and what the split means.
pub(super) fn notes(
    recordings: &[Recording],
    labels: &LabelMap,
    training: &[(usize, usize)],
    validation: &[(usize, usize)],
    kept: usize,
) -> Vec<String> {
    let mut notes = Vec::new();
    for Recording { sequence, source } in recordings {
        let Source::Voxels(files) = source else { continue };
        let first = files.iter().zip(&sequence.scans).find_map(|(file, scan)| Some((file.as_ref()?, scan)));
        let Some((label, scan)) = first else { continue };
        for finding in check_voxels(label, scan, labels).unwrap_or_default() {
            notes.push(format!("{}: {finding}", label.display()));
        }
    }
    let numbers = |part: &[(usize, usize)]| part.iter().map(|(number, _)| *number).collect::<BTreeSet<_>>();
    if !numbers(training).is_disjoint(&numbers(validation)) {
        notes.push(
            "training and validation scans of one sequence see some of the same street: for scores to publish, validate on a \
             sequence of its own (data.validation_sequences)"
                .into(),
        );
    }
    let targets = |recording: &Recording| match &recording.source {
        Source::Voxels(files) => files.iter().flatten().count(),
        Source::Scans { labels, .. } => labels.len(),
    };
    let scans: usize = recordings.iter().map(targets).sum();
    let left_out = scans - training.len() - validation.len();
    if left_out > 0 {
        notes.push(format!(
            "{left_out} of {scans} scans are left out: not all scans that their targets want are in the sequence"
        ));
    }
    let made = |(number, _): &&(usize, usize)| matches!(recordings[*number].source, Source::Scans { .. });
    let made = training.iter().chain(validation).filter(made).count();
    if made > kept {
        notes.push(format!(
            "{made} targets are made from scans, {kept} of them are kept in memory: occam data build makes all of them once"
        ));
    }
    notes
}
