//! `voxels/` from labelled scans: the four files that the completion task wants for each anchor.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{Device, Int, Tensor, TensorData};
use glam::DMat4;
use occam_scene::completion::{CompletionTarget, LabelledScan, TargetRules};
use occam_scene::error::Place;
use occam_scene::formats::{Sequence, atomic_write, voxel_grid, write_voxel_bits, write_voxel_ids};
use occam_scene::rays::{self, Occlusion};
use occam_scene::{GridSpec, LabelMap};
use rayon::prelude::*;

use super::{open, target};
use crate::{Error, Progress, ProgressFn, Result, ops};

/// What to build, and where.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Folder in SemanticKITTI's layout.
    pub data: PathBuf,
    /// Folder that gets `sequences/NN/voxels/`; else they go beside the scans.
    pub output: Option<PathBuf>,
    pub rules: TargetRules,
    /// Every how many scans is an anchor, by the number of the scan.
    pub stride: usize,
    /// Names of the sequences to build; empty: those with labels.
    pub sequences: Vec<String>,
    /// Builds every anchor anew, over whatever is there.
    pub force: bool,
}

/// What was built.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BuildReport {
    pub sequences: Vec<BuiltSequence>,
    /// What looks odd about the sequences.
    pub notes: Vec<String>,
    /// Time that the built anchors took together.
    pub seconds: f64,
}

/// What was built of one sequence.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BuiltSequence {
    pub name: String,
    /// The folder that was written to.
    pub folder: PathBuf,
    pub built: usize,
    /// Anchors that were there before.
    pub kept: usize,
    /// Anchors, of both kinds, that fewer scans follow or precede than the rules ask for.
    pub short: usize,
}

/// Stands in a folder of voxels that this program made, and says how.
const MARK: &str = "occam.json";

/// Endings of an anchor's files in order of writing: an anchor with the last one is finished.
const ENDINGS: [&str; 4] = ["bin", "occluded", "invalid", "label"];

/// Makes the voxel files of every `stride`-th scan, on the grid of the published ones.
///
/// Each file is written whole or not at all, the label file last. Anchors that are finished are passed over, so that a
/// build that was stopped goes on. At most one window of scans is in memory. Rays are cast on `device`, or by the CPU
/// without one: the result is the same.
///
/// # Errors
/// [`Error::Input`] for a folder of another layout and for files that are missing, damaged or do not belong together;
/// [`Error::Usage`] for sequences that are not there and for a folder of voxels that was made by others or by other
/// rules, unless `force`; [`Error::Interrupted`] between two anchors when `progress` says so.
pub fn build_targets(options: &BuildOptions, device: Option<&Device>, progress: ProgressFn<'_>) -> Result<BuildReport> {
    let map = super::super::built_in_labels("semantic-kitti")?;
    let (mut jobs, mut notes) = (Vec::new(), Vec::new());
    for sequence in chosen(options)? {
        let labels = sequence.labels()?;
        let world_from_lidar = sequence.poses()?;
        notes.extend(open::pose_notes(&sequence, &world_from_lidar)?);
        let anchors =
            (0..sequence.scans.len()).filter(|scan| sequence.number(*scan).is_multiple_of(options.stride.max(1)));
        let folder = match &options.output {
            Some(output) => output.join("sequences").join(&sequence.name).join("voxels"),
            None => sequence.folder.join("voxels"),
        };
        let anchors: Vec<usize> = anchors.collect();
        let left = claim(&folder, options, &sequence, &anchors)?;
        jobs.push(Job { sequence, labels, world_from_lidar, folder, anchors, left });
    }
    let total = jobs.iter().map(|job| job.left.len()).sum();
    let mut done = 0;
    let mut step = || {
        let progress = progress(Progress { what: "building targets", done, total });
        done += 1;
        if progress == ControlFlow::Break(()) { Err(Error::Interrupted) } else { Ok(()) }
    };
    let began = Instant::now();
    let mut report = BuildReport { notes, ..BuildReport::default() };
    for job in &jobs {
        job.build(options, device, &map, &mut step)?;
        report.sequences.push(job.report(&options.rules));
    }
    step()?;
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

/// The sequences that the options name, or all that have labels.
fn chosen(options: &BuildOptions) -> Result<Vec<Sequence>> {
    let all = open::sequences(&options.data)?;
    let names: Vec<String> = all.iter().map(|sequence| sequence.name.clone()).collect();
    if let Some(missing) = options.sequences.iter().find(|name| !names.contains(name)) {
        return Err(Error::Usage(format!(
            "--sequence {missing}: {} holds the sequences {}",
            options.data.display(),
            names.join(", ")
        )));
    }
    let mut chosen = Vec::new();
    for sequence in all {
        if if options.sequences.is_empty() {
            sequence.has_labels()?
        } else {
            options.sequences.contains(&sequence.name)
        } {
            chosen.push(sequence);
        }
    }
    if chosen.is_empty() {
        let error = occam_scene::Error::new(&options.data, Place::File, "scans without labels", "labels/NNNNNN.label");
        return Err(error
            .hint("Targets are made from labelled scans: put one label file a scan beside velodyne/")
            .into());
    }
    Ok(chosen)
}

/// Makes the folder of a sequence's voxels ours; gives the anchors that are not finished.
fn claim(folder: &Path, options: &BuildOptions, sequence: &Sequence, anchors: &[usize]) -> Result<Vec<usize>> {
    let failed = |error: std::io::Error| {
        occam_scene::Error::new(folder, Place::File, error.to_string(), "a folder that can be written")
            .hint("Choose another place with -o; training finds it by data.voxels")
    };
    fs::create_dir_all(folder).map_err(failed)?;
    let made_by = made_by(folder);
    if options.force {
        // Until the last anchor is done the folder holds targets of two kinds.
        if made_by.is_some() {
            fs::remove_file(folder.join(MARK)).map_err(failed)?;
        }
        return Ok(anchors.to_vec());
    }
    if let Some(made_by) = made_by {
        let made_by = made_by?;
        if made_by != options.rules {
            return Err(Error::Usage(format!(
                "{}: made by other rules ({}), expected {}. Use the same flags, another -o, or --force to build all anew",
                folder.display(),
                in_words(&made_by),
                in_words(&options.rules)
            )));
        }
    } else {
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|found| ENDINGS.iter().any(|ending| found == *ending)) {
                return Err(Error::Usage(format!(
                    "{}: holds voxels that occam did not make, or a --force build that was stopped. Build elsewhere with \
                     -o, or over them with --force",
                    folder.display()
                )));
            }
        }
        write_mark(folder, &options.rules)?;
    }
    let voxels = voxel_grid().len() as u64;
    let whole = |anchor: usize, ending: &str| {
        let bytes = if ending == "label" { 2 * voxels } else { voxels / 8 };
        fs::metadata(file(folder, sequence, anchor, ending)).is_ok_and(|found| found.is_file() && found.len() == bytes)
    };
    let finished = |anchor: &usize| ENDINGS.iter().all(|ending| whole(*anchor, ending));
    Ok(anchors.iter().copied().filter(|anchor| !finished(anchor)).collect())
}

/// The rules that the voxels of a folder were made by; `None` for voxels that this program did not make.
pub(super) fn made_by(folder: &Path) -> Option<occam_scene::Result<TargetRules>> {
    let mark = folder.join(MARK);
    let bytes = fs::read(&mark).ok()?;
    Some(serde_json::from_slice(&bytes).map_err(|error| {
        occam_scene::Error::new(&mark, Place::File, error.to_string(), "the rules that its voxels were made by")
            .hint("--force builds them anew")
    }))
}

fn write_mark(folder: &Path, rules: &TargetRules) -> Result<()> {
    let text = serde_json::to_vec_pretty(rules).map_err(|error| Error::Failed(error.to_string()))?;
    Ok(atomic_write(&folder.join(MARK), |out| out.write_all(&text))?)
}

fn in_words(rules: &TargetRules) -> String {
    format!(
        "{} scans before, {} after, {} to {} m{}",
        rules.prior_scans,
        rules.future_scans,
        rules.min_range_m,
        rules.max_range_m,
        if rules.static_only { ", moving things in their own scan only" } else { "" }
    )
}

fn file(folder: &Path, sequence: &Sequence, anchor: usize, ending: &str) -> PathBuf {
    folder.join(sequence.stem(anchor)).with_extension(ending)
}

/// As [`rays::occlusion`], on a device.
fn occlusion_on(device: &Device, spec: &GridSpec, occupied: &[bool], sensors: &[[f32; 3]]) -> Result<Occlusion> {
    let states: Vec<i32> = occupied.iter().map(|occupied| i32::from(*occupied)).collect();
    let states = Tensor::<1, Int>::from_data(TensorData::new(states, [occupied.len()]), device);
    let hidden = ops::rays::occlusion(states, sensors, spec)?
        .try_into_data()
        .map_err(|error| Error::Failed(format!("the device failed: {error}. --device cpu does without it")))?;
    let hidden: Vec<i64> = hidden.iter::<i64>().collect();
    Ok(Occlusion {
        occluded: hidden.iter().map(|hidden| *hidden > 0).collect(),
        invalid: hidden.iter().map(|hidden| *hidden > 1).collect(),
    })
}

/// The anchors of one sequence.
struct Job {
    sequence: Sequence,
    labels: Vec<PathBuf>,
    world_from_lidar: Vec<DMat4>,
    folder: PathBuf,
    anchors: Vec<usize>,
    /// Anchors that are not finished, in order.
    left: Vec<usize>,
}

impl Job {
    fn build(
        &self,
        options: &BuildOptions,
        device: Option<&Device>,
        map: &LabelMap,
        step: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let rules = &options.rules;
        let spec = voxel_grid();
        let mut window: BTreeMap<usize, Arc<LabelledScan>> = BTreeMap::new();
        for &anchor in &self.left {
            step()?;
            let wanted = rules.window(anchor, self.sequence.scans.len());
            window.retain(|scan, _| wanted.contains(scan));
            let missing: Vec<usize> = wanted.filter(|scan| !window.contains_key(scan)).collect();
            let read = |scan: &usize| {
                let (read, _) = LabelledScan::read(&self.sequence.scans[*scan], &self.labels[*scan], map, rules)?;
                Ok((*scan, Arc::new(read)))
            };
            window.extend(missing.par_iter().map(read).collect::<Result<Vec<_>>>()?);
            let mut of = |scan: usize| {
                window.get(&scan).cloned().ok_or_else(|| Error::Failed(format!("scan {scan} is not in the window")))
            };
            let own = of(anchor)?;
            let cast = |spec: &GridSpec, occupied: &[bool], sensors: &[[f32; 3]]| match device {
                Some(device) => occlusion_on(device, spec, occupied, sensors),
                None => Ok(rays::occlusion(spec, occupied, sensors)),
            };
            let target = target(&spec, rules, &self.world_from_lidar, anchor, &own, &mut of, cast)?;
            if !target.input.contains(&true) {
                return Err(self.sees_nothing(anchor, &own, rules).into());
            }
            self.write(anchor, &target)?;
        }
        if options.force { write_mark(&self.folder, rules) } else { Ok(()) }
    }

    /// The error about an anchor whose own scan has no point in the grid.
    fn sees_nothing(&self, anchor: usize, own: &LabelledScan, rules: &TargetRules) -> occam_scene::Error {
        let range = format!("{} to {} m from the sensor", rules.min_range_m, rules.max_range_m);
        let found = match own.positions.len() {
            0 => format!("no point {range}"),
            points => format!("none of the {points} points {range} in the grid"),
        };
        let expected = "points in metres around the sensor, in the grid of the voxel files";
        occam_scene::Error::new(&self.sequence.scans[anchor], Place::File, found, expected)
            .hint("Are the coordinates other units than metres, or no numbers? occam data info of the scan tells")
    }

    fn write(&self, anchor: usize, target: &CompletionTarget) -> Result<()> {
        for ending in ENDINGS {
            let path = file(&self.folder, &self.sequence, anchor, ending);
            match ending {
                "bin" => write_voxel_bits(&path, &target.input)?,
                "occluded" => write_voxel_bits(&path, &target.occluded)?,
                "invalid" => write_voxel_bits(&path, &target.invalid)?,
                _ => write_voxel_ids(&path, &target.ids)?,
            }
        }
        Ok(())
    }

    fn report(&self, rules: &TargetRules) -> BuiltSequence {
        let scans = self.sequence.scans.len();
        let whole = rules.prior_scans.saturating_add(rules.future_scans).saturating_add(1);
        BuiltSequence {
            name: self.sequence.name.clone(),
            folder: self.folder.clone(),
            built: self.left.len(),
            kept: self.anchors.len() - self.left.len(),
            short: self.anchors.iter().filter(|anchor| rules.window(**anchor, scans).len() < whole).count(),
        }
    }
}
