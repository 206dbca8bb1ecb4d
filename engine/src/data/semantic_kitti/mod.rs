//! SemanticKITTI's folders: the input is one scan, the target comes from voxel files or from the labelled scans around it.

mod build;
mod open;
#[cfg(test)]
mod tests;

pub use build::{BuildOptions, BuildReport, BuiltSequence, build_targets};

use std::path::{Path, PathBuf};
use std::sync::Arc;

use glam::DMat4;
use occam_scene::completion::{CompletionTarget, LabelledScan, TargetBuilder, TargetRules};
use occam_scene::formats::{ReadOptions, Sequence, read_cloud, read_voxel_target, voxel_factor, voxel_grid};
use occam_scene::rays::{self, Occlusion};
use occam_scene::{AxisOrder, GridSpec, LabelMap, VoxelGrid, downscale_target};

use super::kept::Kept;
use super::{DataConfig, Dataset, Moment, Sample};
use crate::{Error, Result};

/// One sequence and what makes its targets.
#[derive(Debug)]
struct Recording {
    sequence: Sequence,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// The voxel label of each scan that has one.
    Voxels(Vec<Option<PathBuf>>),
    /// The labels and the pose of each scan.
    Scans { labels: Vec<PathBuf>, world_from_lidar: Vec<DMat4> },
}

/// Scans of a folder; shared by its training and its validation part.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    recordings: Vec<Recording>,
    spec: GridSpec,
    labels: LabelMap,
    rules: TargetRules,
    /// For the user, before training.
    notes: Vec<String>,
    /// Targets made from scans, by recording and scan, as many as fit in [`KEPT_BYTES`].
    made: Kept<(usize, usize), VoxelGrid>,
}

/// Targets made from scans are kept up to this size in all: making one reads a whole window of scans.
const KEPT_BYTES: usize = 256 << 20;

/// Some of the scans of a folder.
///
/// Targets are those of [`occam_scene::completion`]: the majority of the labelled points in each voxel over a window of
/// scans, ignored where no scan of the window could see. Voxel files hold the same for the published grid, so that
/// scores on them compare with published ones; a coarser grid of the same extent takes the majority of each block
/// ([`downscale_target`]).
#[derive(Debug, Clone)]
pub struct SemanticKittiFolder {
    folder: Arc<Folder>,
    /// Recording and scan.
    samples: Vec<(usize, usize)>,
}

impl SemanticKittiFolder {
    /// Opens a folder and splits it into training and validation.
    ///
    /// The sequences named by `validation_sequences` validate; without any of them in the folder, the last
    /// `validation_share` of each sequence does: then scans on both sides of the split see some of the same street.
    /// With voxel files, the scans that have one are samples. Otherwise a scan is one when all scans that its target
    /// wants are there; in a sequence too short for that, every scan is, with what there is. Sequences without targets
    /// are left out where others have some.
    ///
    /// # Errors
    /// [`Error::Input`] for a folder of another layout, with the layout expected, and for files that are missing or do
    /// not belong together; [`Error::Usage`] for voxel files on a grid that does not suit them.
    pub fn open(path: &Path, config: &DataConfig, spec: &GridSpec) -> Result<(Self, Self)> {
        let labels = super::built_in_labels("semantic-kitti")?;
        super::check_ids(spec, &labels)?;
        let (recordings, mut notes) = open::recordings(path, config, spec)?;
        let rules = config.rules();
        let (training, validation) = open::split(&recordings, config, &rules);
        let most_kept = KEPT_BYTES / spec.len().max(1);
        notes.extend(open::notes(&recordings, &labels, &training, &validation, most_kept));
        let folder = Arc::new(Folder {
            path: path.to_path_buf(),
            recordings,
            spec: *spec,
            labels,
            rules,
            notes,
            made: Kept::new(most_kept),
        });
        let part = |samples| Self { folder: Arc::clone(&folder), samples };
        Ok((part(training), part(validation)))
    }

    /// What the user should know about the folder and its split before training.
    pub fn notes(&self) -> &[String] {
        &self.folder.notes
    }

    fn place(&self, index: usize) -> Result<(usize, usize)> {
        let missing = || Error::Failed(format!("sample {index} of {}", self.samples.len()));
        self.samples.get(index).copied().ok_or_else(missing)
    }
}

impl Dataset for SemanticKittiFolder {
    fn name(&self) -> String {
        self.folder.path.display().to_string()
    }

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn spec(&self) -> &GridSpec {
        &self.folder.spec
    }

    fn labels(&self) -> &LabelMap {
        &self.folder.labels
    }

    fn sample(&self, index: usize) -> Result<Sample> {
        let (number, scan) = self.place(index)?;
        let Folder { recordings, spec, labels: map, rules, .. } = &*self.folder;
        let Recording { sequence, source } = &recordings[number];
        let id = sequence.id(scan);
        match source {
            Source::Voxels(files) => {
                let file = files[scan].as_ref().ok_or_else(|| Error::Failed(format!("{id} has no voxel label")))?;
                let mut cloud = read_cloud(&sequence.scans[scan], &ReadOptions::default())?.cloud;
                rules.keep_in_range(&mut cloud);
                Ok(Sample { id, cloud, target: on_grid(read_voxel_target(file, &voxel_grid(), map)?, spec) })
            }
            Source::Scans { labels, .. } => {
                let (anchor, cloud) = LabelledScan::read(&sequence.scans[scan], &labels[scan], map, rules)?;
                let target = self.folder.made.get((number, scan), || self.folder.make((number, scan), &anchor))?;
                Ok(Sample { id, cloud, target: VoxelGrid::clone(&target) })
            }
        }
    }

    fn moment(&self, index: usize) -> Option<Moment> {
        let (recording, place) = *self.samples.get(index)?;
        let sequence = &self.folder.recordings[recording].sequence;
        Some(Moment { recording, scan: sequence.number(place) })
    }
}

impl Folder {
    /// The target of a scan, made from the scans around it.
    fn make(&self, (number, scan): (usize, usize), anchor: &LabelledScan) -> Result<Arc<VoxelGrid>> {
        let Recording { sequence, source: Source::Scans { labels, world_from_lidar } } = &self.recordings[number]
        else {
            return Err(Error::Failed(format!("sequence {number} has no labelled scans")));
        };
        let mut read = |other: usize| {
            let (read, _) = LabelledScan::read(&sequence.scans[other], &labels[other], &self.labels, &self.rules)?;
            Ok(Arc::new(read))
        };
        let cast =
            |spec: &GridSpec, occupied: &[bool], sensors: &[[f32; 3]]| Ok(rays::occlusion(spec, occupied, sensors));
        let target = target(&self.spec, &self.rules, world_from_lidar, scan, anchor, &mut read, cast)?;
        Ok(Arc::new(target.classes(&self.labels).map_err(Error::Failed)?))
    }
}

/// The target of scan `anchor` from the scans of its window; `read` gives those other than the anchor's own, `cast` what
/// their sensors cannot see.
fn target(
    spec: &GridSpec,
    rules: &TargetRules,
    world_from_lidar: &[DMat4],
    anchor: usize,
    own: &LabelledScan,
    read: &mut dyn FnMut(usize) -> Result<Arc<LabelledScan>>,
    cast: impl FnOnce(&GridSpec, &[bool], &[[f32; 3]]) -> Result<Occlusion>,
) -> Result<CompletionTarget> {
    let mut builder = TargetBuilder::new(spec, own, rules.static_only);
    let anchor_from_world = world_from_lidar[anchor].inverse();
    for other in rules.window(anchor, world_from_lidar.len()).filter(|other| *other != anchor) {
        builder.add(&*read(other)?, &(anchor_from_world * world_from_lidar[other]));
    }
    builder.finish(cast)
}

/// A target of the voxel files' grid on a grid of the same extent.
fn on_grid(fine: VoxelGrid, spec: &GridSpec) -> VoxelGrid {
    let factor = voxel_factor(spec).unwrap_or(1);
    let labels = if factor == 1 {
        fine.labels
    } else {
        downscale_target(&fine.labels, fine.spec.counts, factor, spec.empty_id, spec.ignore_id)
    };
    let grid = VoxelGrid { labels, ..VoxelGrid::empty(GridSpec { axis_order: AxisOrder::Xyz, ..*spec }) };
    if spec.axis_order == AxisOrder::Xyz { grid } else { grid.reordered(spec.axis_order) }
}
