//! Scans that people bring, without labels: a folder of scans with poses, or one dense cloud.
//!
//! The target of a scan is what the scans around it say about the voxels of its grid. Each is moved into its frame by the
//! poses. A voxel that holds a point of any of them is occupied; a voxel that a ray of any of them passed, from its sensor
//! to its point, and that holds no point is empty; nobody knows the others, they are ignored. So things that moved while
//! the scans were taken stay occupied wherever they were.
//!
//! A dense cloud is turned into such scans: a virtual sensor is put up in many places on its ground, and its rays are
//! cast through the cloud. Occupied is then what holds a point of the cloud itself.

mod dense;
mod folder;
mod look;
mod sensors;
mod target;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use occam_scene::error::Place;
use occam_scene::{GridSpec, LabelMap, PointCloud};

use super::kept::Kept;
use super::{DataConfig, Dataset, Sample, Splits};
use crate::{Error, Result};

pub(super) use folder::has_poses;
pub use folder::{DriveInfo, find_scans, sensor_pose};

use folder::Drives;
use sensors::VirtualScans;
use target::{Classes, Target};

/// Targets that are kept at most, bytes; those beyond are made again each time.
const CACHE_BYTES: usize = 1 << 29;

/// Where scans come from.
#[derive(Debug)]
enum Source {
    Drives(Drives),
    Virtual(Box<VirtualScans>),
}

/// What the training and the validation part of the data share.
#[derive(Debug)]
struct Shared {
    name: String,
    source: Source,
    spec: GridSpec,
    labels: LabelMap,
    /// Of the label column; `None`: empty and occupied.
    classes: Option<Classes>,
    config: DataConfig,
    /// Labels of targets that were made, by sample.
    made: Kept<usize, [u8]>,
}

/// A part of somebody's scans. A sample is named by its number over all scans.
#[derive(Debug, Clone)]
pub struct OwnScans {
    shared: Arc<Shared>,
    samples: Vec<usize>,
}

/// Opens folders of scans with poses. The last `validation_share` of each validates. Of the scans before those, as many
/// as `future_scans`, but at most a quarter, are left out: their targets reach into what validates.
///
/// # Errors
/// [`Error::Input`] for missing or different numbers of files and poses.
pub fn open_folders(path: &Path, folders: &[PathBuf], config: &DataConfig, spec: &GridSpec) -> Result<Splits> {
    let drives = Drives::open(folders)?;
    let (_, mut notes) = look::folders(&drives, config, spec)?;
    let (training, validation) = drives.split(config);
    let left_out = drives.len() - training.len() - validation.len();
    if left_out > 0 {
        notes.push(format!(
            "{left_out} of {} scans are left out: their targets would reach into the scans that validate, or beyond the end \
             of a drive",
            drives.len()
        ));
    }
    splits(path, Source::Drives(drives), training, validation, config, spec, notes)
}

/// What folders of scans hold.
#[derive(Debug, Clone)]
pub struct ScansInfo {
    pub drives: Vec<DriveInfo>,
    /// Samples to train on and to validate on.
    pub split: [usize; 2],
    /// Share of the points of a few scans that lie in the grid.
    pub inside: f64,
    /// What looks odd, and what to do about it.
    pub notes: Vec<String>,
}

/// Looks into folders of scans as training on them would.
///
/// # Errors
/// As [`open_folders`].
pub fn inspect(folders: &[PathBuf], config: &DataConfig, spec: &GridSpec) -> Result<ScansInfo> {
    let drives = Drives::open(folders)?;
    let (inside, notes) = look::folders(&drives, config, spec)?;
    let (training, validation) = drives.split(config);
    Ok(ScansInfo { drives: drives.info(), split: [training.len(), validation.len()], inside, notes })
}

/// Opens one dense cloud and places virtual sensors in it.
///
/// # Errors
/// [`Error::Input`] for a cloud that cannot be read, that is too large for its resolution, or in which no sensor finds
/// a place.
pub fn open_cloud(path: &Path, config: &DataConfig, spec: &GridSpec, seed: u64) -> Result<Splits> {
    let (scans, split, notes) = VirtualScans::open(path, config, spec, seed)?;
    splits(path, Source::Virtual(Box::new(scans)), split.training, split.validation, config, spec, notes)
}

fn splits(
    path: &Path,
    source: Source,
    training: Vec<usize>,
    validation: Vec<usize>,
    config: &DataConfig,
    spec: &GridSpec,
    notes: Vec<String>,
) -> Result<Splits> {
    let labels = match &config.labels {
        None => super::built_in_labels("occupancy")?,
        Some(name) => LabelMap::find(name)?,
    };
    super::check_ids(spec, &labels)?;
    let classes = config.labels.is_some().then(|| Classes::new(&labels));
    if let (Some(classes), Some(name)) = (&classes, &config.labels) {
        if labels.len() < 2 {
            let found = format!("{} class", labels.len());
            return Err(occam_scene::Error::new(name, Place::File, found, "free space and a class or more").into());
        }
        check_meaning(&source, classes, name, config)?;
    }
    let shared = Arc::new(Shared {
        name: path.display().to_string(),
        source,
        spec: *spec,
        labels,
        classes,
        config: config.clone(),
        made: Kept::new(CACHE_BYTES / spec.len().max(1)),
    });
    let part = |samples| Arc::new(OwnScans { shared: Arc::clone(&shared), samples });
    Ok(Splits { training: part(training), validation: part(validation), notes })
}

/// Whether any label means a class of the map `name`: else there is nothing to learn. Scans are read until one does.
fn check_meaning(source: &Source, classes: &Classes, name: &str, config: &DataConfig) -> Result<()> {
    let mut ids = BTreeSet::new();
    match source {
        Source::Virtual(scans) => ids.extend(scans.labels().into_iter().flatten().copied()),
        Source::Drives(drives) => {
            for scan in 0..drives.len() {
                ids.extend(drives.read(scan, config.frame)?.label.into_iter().flatten());
                if ids.iter().any(|id| !classes.means_nothing(*id)) {
                    break;
                }
            }
        }
    }
    // What is missing or unknown is told with its file, when it is needed.
    if ids.is_empty() || ids.iter().any(|id| !classes.means_nothing(*id)) {
        return Ok(());
    }
    let shown: Vec<String> = ids.iter().take(10).map(u16::to_string).collect();
    let more = if ids.len() > shown.len() { " and more" } else { "" };
    let found = format!("only ignored or free ids among those of the scans ({}{more})", shown.join(", "));
    let error = occam_scene::Error::new(name, Place::File, found, "a class with file_ids that the scans have");
    Err(error.hint("Is this the label map of these scans (data.labels)?").into())
}

impl Dataset for OwnScans {
    fn name(&self) -> String {
        self.shared.name.clone()
    }

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn spec(&self) -> &GridSpec {
        &self.shared.spec
    }

    fn labels(&self) -> &LabelMap {
        &self.shared.labels
    }

    fn sample(&self, index: usize) -> Result<Sample> {
        let Some(&scan) = self.samples.get(index) else {
            return Err(Error::Failed(format!("sample {index} of {}", self.samples.len())));
        };
        self.shared.sample(scan)
    }
}

impl Shared {
    fn sample(&self, scan: usize) -> Result<Sample> {
        let (id, cloud) = match &self.source {
            Source::Drives(drives) => (drives.id(scan), drives.read(scan, self.config.frame)?),
            Source::Virtual(scans) => (format!("place-{scan}"), PointCloud::clone(&*scans.scan(scan))),
        };
        let labels = self.made.get(scan, || Ok(self.target(scan, &cloud)?.into()))?;
        let target = occam_scene::VoxelGrid { labels: labels.to_vec(), ..occam_scene::VoxelGrid::empty(self.spec) };
        Ok(Sample { id, cloud, target })
    }

    fn target(&self, anchor: usize, own: &PointCloud) -> Result<Vec<u8>> {
        let mut target = Target::new(&self.spec, self.classes.as_ref());
        match &self.source {
            Source::Drives(drives) => {
                let anchor_from_world = drives.world_from_sensor(anchor).inverse();
                for scan in drives.window(anchor, &self.config) {
                    let read;
                    let cloud = if scan == anchor {
                        own
                    } else {
                        read = drives.read(scan, self.config.frame)?;
                        &read
                    };
                    let motion = anchor_from_world * drives.world_from_sensor(scan);
                    let labels = target.add_scan(cloud, &motion, self.config.min_range_m);
                    labels.map_err(|why| drives.error(scan, &why))?;
                }
            }
            Source::Virtual(scans) => {
                let anchor_from_cloud = scans.cloud_from_sensor(anchor).inverse();
                for scan in scans.around(anchor, self.config.prior_scans + self.config.future_scans) {
                    let motion = anchor_from_cloud * scans.cloud_from_sensor(scan);
                    target.add_rays(&scans.scan(scan), &motion, 0.0);
                }
                let labels = scans.add_points(&anchor_from_cloud, &mut target);
                labels.map_err(|why| occam_scene::Error::new(&self.name, Place::File, why, LABEL_COLUMN))?;
            }
        }
        Ok(target.finish())
    }
}

/// What `data.labels` asks of a file.
const LABEL_COLUMN: &str = "a column `label` with ids of the label map that data.labels names";
