//! SemanticKITTI scans on disk, with targets made from the labelled scans themselves.
//!
//! The input is one scan. Its target holds, for each voxel, the majority of the labelled points of this scan and of the
//! scans that follow, moved into its frame by the poses; ties go to the lowest class. Points that the completion rule
//! ignores vote for "ignored". A voxel that no point ever fell into is empty: what no scan could see is not told apart
//! from free space yet, so that scores differ from those on the official voxels (Behley et al., ICCV 2019), which mark
//! it as invalid.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use glam::{DMat4, DVec3};
use occam_scene::error::Place;
use occam_scene::formats::{
    ReadOptions, files_ending, lidar_poses, read_calibration, read_labelled_cloud, read_poses, sequence_folders,
};
use occam_scene::{GridSpec, LabelMap, PointCloud, VoxelGrid};

use super::{DataConfig, Dataset, Sample};
use crate::{Error, Result};

/// What a folder must look like.
const LAYOUT: &str = "SemanticKITTI's: sequences/NN/ (or one such NN folder) that holds velodyne/000000.bin and so on (the \
                      scans), labels/000000.label and so on (one file a scan), poses.txt (one line a scan) and \
                      calib.txt (with a line Tr:)";

/// One sequence: its files and poses, scan by scan.
#[derive(Debug)]
struct Sequence {
    name: String,
    scans: Vec<PathBuf>,
    labels: Vec<PathBuf>,
    world_from_lidar: Vec<DMat4>,
}

/// Scans of a folder; shared by its training and its validation part.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    sequences: Vec<Sequence>,
    spec: GridSpec,
    labels: LabelMap,
    /// File id to class id.
    classes: BTreeMap<u16, u8>,
    future_scans: usize,
}

/// Some of the scans of a folder.
#[derive(Debug, Clone)]
pub struct SemanticKittiFolder {
    folder: Arc<Folder>,
    /// Sequence and scan.
    samples: Vec<(usize, usize)>,
}

impl SemanticKittiFolder {
    /// Opens a folder and splits it: the last `validation_share` of each sequence validates. A scan is a sample when all
    /// `future_scans` that its target wants follow it; in a sequence too short for that, every scan is, with what follows.
    /// Scans on both sides of the split see some of the same street: for numbers to publish, validate on a sequence of
    /// its own.
    ///
    /// # Errors
    /// [`Error::Input`] for a folder of another layout, with the layout expected, and for files that are missing or do
    /// not belong together.
    pub fn open(path: &Path, config: &DataConfig, spec: &GridSpec) -> Result<(Self, Self)> {
        let labels = super::built_in_labels("semantic-kitti")?;
        super::check_ids(spec, &labels)?;
        let sequences = find_sequences(path)?.into_iter().map(|p| Sequence::open(&p)).collect::<Result<Vec<_>>>()?;
        let (mut training, mut validation) = (Vec::new(), Vec::new());
        for (number, sequence) in sequences.iter().enumerate() {
            let scans = sequence.scans.len();
            let samples = if scans > config.future_scans { scans - config.future_scans } else { scans };
            let first = first_validation(samples, config.validation_share);
            training.extend((0..first).map(|scan| (number, scan)));
            validation.extend((first..samples).map(|scan| (number, scan)));
        }
        let folder = Arc::new(Folder {
            path: path.to_path_buf(),
            sequences,
            spec: *spec,
            classes: labels.lookup(),
            labels,
            future_scans: config.future_scans,
        });
        let part = |samples| Self { folder: Arc::clone(&folder), samples };
        Ok((part(training), part(validation)))
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
        let Some(&(number, scan)) = self.samples.get(index) else {
            return Err(Error::Failed(format!("sample {index} of {}", self.samples.len())));
        };
        let sequence = &self.folder.sequences[number];
        let last = (sequence.scans.len() - 1).min(scan + self.folder.future_scans);
        let mut votes = Votes::default();
        let mut cloud = PointCloud::default();
        let lidar_from_world = sequence.world_from_lidar[scan].inverse();
        for other in scan..=last {
            let read = read_labelled_cloud(&sequence.scans[other], &sequence.labels[other], &ReadOptions::default())?;
            let motion = lidar_from_world * sequence.world_from_lidar[other];
            self.folder.vote(&read.cloud, &motion, &sequence.labels[other], &mut votes)?;
            if other == scan {
                cloud = read.cloud;
            }
        }
        let stem = sequence.scans[scan].file_stem().unwrap_or_default().to_string_lossy();
        Ok(Sample { id: format!("{}/{stem}", sequence.name), cloud, target: votes.majority(&self.folder.spec) })
    }
}

impl Folder {
    fn vote(&self, cloud: &PointCloud, motion: &DMat4, labels: &Path, votes: &mut Votes) -> Result<()> {
        let ids = cloud.label.iter().flatten();
        for (number, (position, id)) in cloud.positions.iter().zip(ids).enumerate() {
            // Looked at wherever the point lies: a file of other ids is the wrong file.
            // A labelled point is never free space: id 0 means that nobody knows.
            let class = match self.classes.get(id) {
                Some(class) if *class == self.spec.empty_id => self.spec.ignore_id,
                Some(class) => *class,
                None => {
                    return Err(occam_scene::Error::new(
                        labels,
                        Place::File,
                        format!("label id {id} at point {number}"),
                        "an id of the label map semantic-kitti",
                    )
                    .into());
                }
            };
            let moved = motion.transform_point3(DVec3::from_array(position.map(f64::from)));
            if let Some(voxel) = self.spec.voxel_of(moved.as_vec3().to_array()) {
                votes.add(self.spec.index(voxel), class);
            }
        }
        Ok(())
    }
}

/// Votes of points, one entry a point: its voxel (high) and class (low eight bits).
#[derive(Default)]
struct Votes(Vec<u64>);

impl Votes {
    fn add(&mut self, voxel: usize, class: u8) {
        self.0.push((voxel as u64) << 8 | u64::from(class));
    }

    /// The class with the most votes in each voxel; the lowest of equals.
    fn majority(mut self, spec: &GridSpec) -> VoxelGrid {
        self.0.sort_unstable();
        let mut grid = VoxelGrid::empty(*spec);
        let mut best = (u64::MAX, 0);
        for same in self.0.chunk_by(|a, b| a == b) {
            let voxel = same[0] >> 8;
            if voxel != best.0 || same.len() > best.1 {
                best = (voxel, same.len());
                grid.labels[voxel as usize] = same[0] as u8;
            }
        }
        grid
    }
}

impl Sequence {
    fn open(path: &Path) -> Result<Self> {
        let scans = files(&path.join("velodyne"), "bin")?;
        let labels: Vec<PathBuf> = scans
            .iter()
            .map(|scan| path.join("labels").join(scan.file_stem().unwrap_or_default()).with_extension("label"))
            .collect();
        if let Some(missing) = labels.iter().find(|file| !file.is_file()) {
            return Err(occam_scene::Error::new(missing, Place::File, "nothing", "one label file for each scan").into());
        }
        let calibration = path.join("calib.txt");
        let Some(camera_from_lidar) = read_calibration(&calibration)?.remove("Tr") else {
            let error =
                occam_scene::Error::new(&calibration, Place::File, "no line Tr:", "the LiDAR's pose as Tr: ...");
            return Err(error.into());
        };
        let pose_file = path.join("poses.txt");
        let poses = read_poses(&pose_file)?;
        // Scans are numbered by their place in the sequence: a folder may hold only some of them.
        let world_from_lidar = lidar_poses(&poses, &camera_from_lidar);
        let picked = scans
            .iter()
            .enumerate()
            .map(|(place, scan)| {
                let number = scan.file_stem().and_then(|s| s.to_str()?.parse::<usize>().ok()).unwrap_or(place);
                world_from_lidar.get(number).copied().ok_or_else(|| {
                    let found = format!("{} poses", poses.len());
                    let expected = format!("one for scan {number} ({})", scan.display());
                    Error::from(occam_scene::Error::new(&pose_file, Place::File, found, expected))
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, scans, labels, world_from_lidar: picked })
    }
}

/// First of `samples` that validates: the last `share` do, at least one, and at least one trains where there are two.
pub(super) fn first_validation(samples: usize, share: f64) -> usize {
    let validating = ((samples as f64 * share).round() as usize).clamp(1, samples.saturating_sub(1).max(1));
    samples - validating.min(samples)
}

fn find_sequences(path: &Path) -> Result<Vec<PathBuf>> {
    let sequences = sequence_folders(path)?;
    if sequences.is_empty() {
        let found = match fs::metadata(path) {
            Err(error) => error.to_string(),
            Ok(meta) if meta.is_dir() => "a folder of another layout".into(),
            Ok(_) => "a file".into(),
        };
        return Err(occam_scene::Error::new(path, Place::File, found, LAYOUT).into());
    }
    Ok(sequences)
}

/// Files of a folder with an extension, in order of their names; at least one.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let files = files_ending(folder, extension)?;
    if files.is_empty() {
        let error = occam_scene::Error::new(folder, Place::File, "no scans", format!("files that end in .{extension}"));
        return Err(error.into());
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: &str = "0 -1 0 0 0 0 -1 0 1 0 0 0";

    /// A sequence of scans, each of points with x, y, z and label; scan `i` was taken `i` metres further ahead.
    fn write_sequence(folder: &Path, scans: &[&[([f32; 3], u32)]]) {
        for name in ["velodyne", "labels"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        // The camera looks ahead along its z axis: Tr turns x forward into z forward.
        fs::write(folder.join("calib.txt"), format!("Tr: {TURN}\n")).unwrap();
        let poses: Vec<String> = (0..scans.len()).map(|i| format!("1 0 0 0 0 1 0 0 0 0 1 {i}\n")).collect();
        fs::write(folder.join("poses.txt"), poses.concat()).unwrap();
        for (i, points) in scans.iter().enumerate() {
            let scan: Vec<u8> =
                points.iter().flat_map(|(p, _)| [p[0], p[1], p[2], 0.5]).flat_map(f32::to_le_bytes).collect();
            fs::write(folder.join(format!("velodyne/{i:06}.bin")), scan).unwrap();
            let labels: Vec<u8> = points.iter().flat_map(|(_, l)| l.to_le_bytes()).collect();
            fs::write(folder.join(format!("labels/{i:06}.label")), labels).unwrap();
        }
    }

    fn config(future_scans: usize, validation_share: f64) -> DataConfig {
        let defaults = crate::train::TrainConfig::from_layers("demo", None, &[]).unwrap().data;
        DataConfig { validation_share, future_scans, ..defaults }
    }

    fn spec() -> GridSpec {
        GridSpec::new([0.0, -4.0, -1.0], [1.0; 3], [8, 8, 2])
    }

    #[test]
    fn the_target_is_the_majority_over_this_scan_and_those_that_follow() {
        let folder = tempfile::tempdir().unwrap();
        let (car, road, building, outlier, unlabelled) = (10, 40, 50, 1, 0);
        write_sequence(
            &folder.path().join("sequences/03"),
            &[
                &[([2.5, 0.5, 0.5], car), ([4.5, 1.5, 0.5], outlier), ([6.5, 2.5, 0.5], road)],
                // One metre further ahead, the same places are one metre nearer. Instance ids stand in the high half.
                &[([1.5, 0.5, 0.5], building | 7 << 16), ([1.5, 0.5, 0.6], building), ([6.5, 0.5, 0.5], unlabelled)],
                &[([0.5, 0.5, 0.5], car)],
                &[([2.5, -2.5, 0.5], car)],
            ],
        );
        let (training, validation) = SemanticKittiFolder::open(folder.path(), &config(2, 0.25), &spec()).unwrap();
        assert_eq!((training.len(), validation.len()), (1, 1), "two of four scans are followed by two");
        let sample = training.sample(0).unwrap();
        assert_eq!(sample.id, "03/000000");
        assert_eq!(sample.cloud.len(), 3);
        let target = sample.target;
        // Two cars, two buildings: the lower class. Class 1 is car, 13 building, 9 road.
        assert_eq!(target.label([2, 4, 1]), 1);
        assert_eq!(target.label([4, 5, 1]), 255, "an ignored point is neither free nor a class");
        assert_eq!(target.label([6, 6, 1]), 9);
        assert_eq!(target.label([7, 4, 1]), 255, "id 0 means unlabelled, never free");
        assert_eq!(target.label([5, 1, 1]), 0, "the fourth scan is not one of the two that follow");
        assert_eq!(target.occupied(), 2);
        // Without the third scan the buildings win; without any other the car stands alone.
        for (future, class) in [(1, 13), (0, 1)] {
            let (training, _) = SemanticKittiFolder::open(folder.path(), &config(future, 0.25), &spec()).unwrap();
            assert_eq!(training.sample(0).unwrap().target.label([2, 4, 1]), class);
        }
        // The fourth scan stood two metres ahead of the second.
        assert_eq!(validation.sample(0).unwrap().id, "03/000001");
        assert_eq!(validation.sample(0).unwrap().target.label([4, 1, 1]), 1);
        // Too short for its window: every scan is a sample.
        let (training, validation) = SemanticKittiFolder::open(folder.path(), &config(9, 0.25), &spec()).unwrap();
        assert_eq!((training.len(), validation.len()), (3, 1));
        assert_eq!(training.sample(0).unwrap().target.label([5, 1, 1]), 1);
    }

    #[test]
    fn one_sequence_folder_is_enough_and_the_last_scans_validate() {
        let folder = tempfile::tempdir().unwrap();
        let scan: &[([f32; 3], u32)] = &[([0.5; 3], 10)];
        write_sequence(folder.path(), &[scan; 10]);
        for (share, expected) in [(0.1, (9, 1)), (0.3, (7, 3)), (0.0, (9, 1)), (0.9, (1, 9))] {
            let (training, validation) = SemanticKittiFolder::open(folder.path(), &config(0, share), &spec()).unwrap();
            assert_eq!((training.len(), validation.len()), expected);
        }
        let (_, validation) = SemanticKittiFolder::open(folder.path(), &config(0, 0.2), &spec()).unwrap();
        assert!(validation.sample(1).unwrap().id.ends_with("/000009"));
    }

    #[test]
    fn bad_folders_are_told_by_the_file_that_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let open =
            |path: &Path| SemanticKittiFolder::open(path, &config(0, 0.5), &spec()).map(|(training, _)| training);
        let message = |path: &Path| open(path).unwrap_err().to_string();
        let text = message(folder.path());
        assert!(text.contains("another layout") && text.contains("velodyne/000000.bin"), "{text}");
        assert!(message(&folder.path().join("none")).contains("velodyne/"));

        let scans: &[&[([f32; 3], u32)]] = &[&[([0.5; 3], 10)], &[([0.5; 3], 9999)]];
        let sequence = |name: &str| {
            let path = folder.path().join(name);
            write_sequence(&path, scans);
            path
        };
        let path = sequence("a");
        fs::remove_file(path.join("labels/000001.label")).unwrap();
        assert!(message(&path).contains("000001.label"));
        let path = sequence("b");
        fs::write(path.join("poses.txt"), "1 0 0 0 0 1 0 0 0 0 1 0\n").unwrap();
        assert!(message(&path).contains("poses.txt: found 1 poses"), "{}", message(&path));
        let path = sequence("c");
        fs::write(path.join("calib.txt"), "P0: 1\n").unwrap();
        assert!(message(&path).contains("calib.txt"));
        let path = sequence("d");
        let (_, validation) = SemanticKittiFolder::open(&path, &config(0, 0.5), &spec()).unwrap();
        let text = validation.sample(0).unwrap_err().to_string();
        assert!(text.contains("000001.label") && text.contains("9999"), "{text}");
        let path = folder.path().join("far");
        write_sequence(&path, &[&[([0.5; 3], 10)], &[([0.5; 3], 10), ([99.0; 3], 9998)]]);
        let (_, validation) = SemanticKittiFolder::open(&path, &config(0, 0.5), &spec()).unwrap();
        let text = validation.sample(0).unwrap_err().to_string();
        assert!(text.contains("9998"), "a point outside the grid has an id outside the map: {text}");
        let path = sequence("e");
        fs::write(path.join("labels/000000.label"), [0; 8]).unwrap();
        let text = open(&path).unwrap().sample(0).unwrap_err().to_string();
        assert!(text.contains("000000.label") && text.contains("000000.bin"), "{text}");
    }
}
