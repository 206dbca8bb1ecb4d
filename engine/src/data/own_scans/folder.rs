//! Folders of scans with poses.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use glam::DMat4;
use occam_scene::PointCloud;
use occam_scene::error::Place;
use occam_scene::formats::{
    ReadOptions, lidar_poses, list, read_camera_from_lidar, read_cloud, read_poses, read_trajectory,
};

use super::super::layout::LAYOUTS;
use super::super::{DataConfig, Frame, first_validation};
use crate::{Error, Result};

/// Endings of files that hold a scan.
const SCANS: [&str; 3] = ["ply", "bin", "npy"];

/// Folders that scans may lie in, below the one that the user names.
const SCAN_FOLDERS: [&str; 3] = ["", "scans", "velodyne"];

/// Names of a file with one pose a line.
const POSE_FILES: [&str; 4] = ["poses.txt", "trajectory.txt", "poses.tum", "poses.csv"];

/// Folders with one file a pose.
const POSE_FOLDERS: [&str; 2] = ["poses", "pose"];

/// Folders of scans, each a drive: no target mixes two of them. Scans are numbered through.
#[derive(Debug)]
pub struct Drives(Vec<Drive>);

#[derive(Debug)]
struct Drive {
    name: String,
    /// Number of its first scan.
    first: usize,
    scans: Vec<PathBuf>,
    world_from_sensor: Vec<DMat4>,
    /// Where the poses were found and how they are written, for people.
    poses: String,
    /// What looks odd about them.
    notes: Vec<String>,
}

/// What a folder of scans with poses holds.
#[derive(Debug, Clone)]
pub struct DriveInfo {
    pub name: String,
    pub scans: usize,
    /// Where the poses were found and how they are written, for people.
    pub poses: String,
    /// Length of the sensor's way, metres.
    pub way_m: f64,
    /// The first scan.
    pub first: PathBuf,
}

/// Files of `folder`, or of the folder for scans in it, that hold scans; numbers in names count as numbers: scan 10
/// follows scan 9.
///
/// # Errors
/// For a folder that cannot be listed.
pub fn find_scans(folder: &Path) -> Result<Vec<PathBuf>> {
    for name in SCAN_FOLDERS {
        let folder = if name.is_empty() { folder.to_path_buf() } else { folder.join(name) };
        let mut scans = list(&folder)?;
        scans.retain(|path| {
            let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
            SCANS.contains(&ending.as_str()) && path.is_file()
        });
        if !scans.is_empty() {
            scans.sort_by_cached_key(|path| natural(&path.file_name().unwrap_or_default().to_string_lossy()));
            return Ok(scans);
        }
    }
    Ok(Vec::new())
}

/// Parts of a name in an order that people expect: text as text, digits as numbers (by length, then by value).
fn natural(name: &str) -> Vec<(bool, usize, String)> {
    let chars: Vec<char> = name.chars().collect();
    let parts = chars.chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()).map(|part| {
        let text: String = part.iter().collect();
        if !part.first().is_some_and(char::is_ascii_digit) {
            return (true, 0, text);
        }
        let digits = text.trim_start_matches('0');
        (false, digits.len(), digits.to_owned())
    });
    // Names that differ in leading zeros alone stay apart.
    parts.chain([(true, 0, name.to_owned())]).collect()
}

/// Whether there is something that looks like poses of these scans.
pub fn has_poses(folder: &Path, scans: &[PathBuf]) -> bool {
    POSE_FILES.iter().any(|name| folder.join(name).is_file())
        || scans.first().is_some_and(|scan| pose_beside(folder, scan).is_some())
}

/// The file with the pose of one scan.
fn pose_beside(folder: &Path, scan: &Path) -> Option<PathBuf> {
    let stem = scan.file_stem()?.to_string_lossy();
    let beside = [scan.with_file_name(format!("{stem}.pose.txt")), scan.with_file_name(format!("{stem}.txt"))];
    let elsewhere = POSE_FOLDERS.iter().map(|name| folder.join(name).join(format!("{stem}.txt")));
    elsewhere.chain(beside).find(|file| file.is_file())
}

/// World from sensor of a scan that lies in a folder of scans with poses; `None` for a scan without.
///
/// # Errors
/// For poses that cannot be read or do not fit the scans of the folder.
pub fn sensor_pose(scan: &Path) -> Result<Option<DMat4>> {
    let Ok(scan) = fs::canonicalize(scan) else { return Ok(None) };
    for folder in scan.ancestors().skip(1).take(2) {
        let scans = find_scans(folder)?;
        if let Some(place) = scans.iter().position(|other| *other == scan).filter(|_| has_poses(folder, &scans)) {
            return Ok(poses(folder, &scans)?.world_from_sensor.get(place).copied());
        }
    }
    Ok(None)
}

impl Drives {
    pub fn open(folders: &[PathBuf]) -> Result<Self> {
        let mut drives = Vec::new();
        let mut first = 0;
        for folder in folders {
            let drive = Drive::open(folder, first)?;
            first += drive.scans.len();
            drives.push(drive);
        }
        Ok(Self(drives))
    }

    /// Scans in all.
    pub fn len(&self) -> usize {
        self.0.iter().map(|drive| drive.scans.len()).sum()
    }

    /// What each drive holds.
    pub fn info(&self) -> Vec<DriveInfo> {
        let info = |drive: &Drive| DriveInfo {
            name: drive.name.clone(),
            scans: drive.scans.len(),
            poses: drive.poses.clone(),
            way_m: drive.steps_m().sum(),
            first: drive.scans[0].clone(),
        };
        self.0.iter().map(info).collect()
    }

    /// Distances from each scan to the next of its drive, metres.
    pub fn steps_m(&self) -> Vec<f64> {
        self.0.iter().flat_map(Drive::steps_m).collect()
    }

    /// What looks odd about the poses.
    pub fn notes(&self) -> Vec<String> {
        self.0.iter().flat_map(|drive| drive.notes.iter().cloned()).collect()
    }

    fn find(&self, scan: usize) -> (&Drive, usize) {
        let drive = self.0.partition_point(|drive| drive.first <= scan).saturating_sub(1);
        let drive = &self.0[drive];
        (drive, scan - drive.first)
    }

    pub fn file(&self, scan: usize) -> &Path {
        let (drive, scan) = self.find(scan);
        &drive.scans[scan]
    }

    pub fn world_from_sensor(&self, scan: usize) -> DMat4 {
        let (drive, scan) = self.find(scan);
        drive.world_from_sensor[scan]
    }

    pub fn id(&self, scan: usize) -> String {
        let stem = self.file(scan).file_stem().unwrap_or_default().to_string_lossy();
        format!("{}/{stem}", self.find(scan).0.name)
    }

    /// A scan in the frame of its sensor.
    pub fn read(&self, scan: usize, frame: Frame) -> Result<PointCloud> {
        let mut cloud = read_cloud(self.file(scan), &ReadOptions::default())?.cloud;
        match frame {
            Frame::Sensor if cloud.origin == [0.0; 3] => {}
            Frame::Sensor => cloud.transform(&DMat4::IDENTITY),
            Frame::World => cloud.transform(&self.world_from_sensor(scan).inverse()),
        }
        cloud.sensor = Some([0.0; 3]);
        Ok(cloud)
    }

    /// Scans that make the target of `anchor`, itself included.
    pub fn window(&self, anchor: usize, config: &DataConfig) -> Range<usize> {
        let (drive, scan) = self.find(anchor);
        let first = scan.saturating_sub(config.prior_scans);
        let last = scan.saturating_add(config.future_scans).min(drive.scans.len() - 1);
        drive.first + first..drive.first + last + 1
    }

    /// Scans to train on and to validate on.
    pub fn split(&self, config: &DataConfig) -> (Vec<usize>, Vec<usize>) {
        let (mut training, mut validation) = (Vec::new(), Vec::new());
        for drive in &self.0 {
            let scans = drive.scans.len();
            // A target wants all scans that follow; a drive too short for that does with what there is.
            let samples = if scans > 2 * config.future_scans { scans - config.future_scans } else { scans };
            let border = first_validation(samples, config.validation_share);
            let gap = config.future_scans.min(border / 4);
            training.extend(drive.first..drive.first + border - gap);
            validation.extend(drive.first + border..drive.first + samples);
        }
        (training, validation)
    }

    pub fn error(&self, scan: usize, found: &str) -> Error {
        occam_scene::Error::new(self.file(scan), Place::File, found, super::LABEL_COLUMN).into()
    }
}

impl Drive {
    fn open(folder: &Path, first: usize) -> Result<Self> {
        let scans = find_scans(folder)?;
        if scans.is_empty() {
            return Err(occam_scene::Error::new(folder, Place::File, "a folder without scans", LAYOUTS).into());
        }
        let Poses { world_from_sensor, said: poses, notes } = poses(folder, &scans)?;
        let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { name, first, scans, world_from_sensor, poses, notes })
    }

    fn steps_m(&self) -> impl Iterator<Item = f64> {
        let place = |pose: &DMat4| pose.w_axis.truncate();
        self.world_from_sensor.windows(2).map(move |two| place(&two[0]).distance(place(&two[1])))
    }
}

/// A pose for each scan.
struct Poses {
    world_from_sensor: Vec<DMat4>,
    /// Where they were found and how they are written, for people.
    said: String,
    /// What looks odd.
    notes: Vec<String>,
}

fn poses(folder: &Path, scans: &[PathBuf]) -> Result<Poses> {
    let mut files = POSE_FILES.iter().map(|name| folder.join(name)).filter(|file| file.is_file());
    let Some(file) = files.next() else {
        return single_poses(folder, scans);
    };
    let other = files.next().or_else(|| scans.first().and_then(|scan| pose_beside(folder, scan)));
    let unused = |other: PathBuf| format!("{} is used, {} is not: take one away", file.display(), other.display());
    let notes: Vec<String> = other.map(unused).into_iter().collect();
    let calibration = folder.join("calib.txt");
    let (poses, format) = if calibration.is_file() {
        let camera_from_lidar = read_camera_from_lidar(&calibration)?;
        (lidar_poses(&read_poses(&file)?, &camera_from_lidar), "KITTI's camera poses, with calib.txt")
    } else {
        let (poses, format) = read_trajectory(&file)?;
        (poses, format.name())
    };
    let shown = file.file_name().unwrap_or_default().to_string_lossy();
    let said = format!("{} in {shown} ({format})", poses.len());
    if poses.len() == scans.len() {
        return Ok(Poses { world_from_sensor: poses, said, notes });
    }
    // In KITTI's folders a scan is named by the number of its pose: some may have been left out.
    let numbers = scans.iter().map(|scan| scan.file_stem()?.to_str()?.parse::<usize>().ok());
    let picked: Option<Vec<DMat4>> = numbers.map(|number| poses.get(number?).copied()).collect();
    if let Some(picked) = picked.filter(|_| calibration.is_file()) {
        return Ok(Poses { world_from_sensor: picked, said, notes });
    }
    let [found, expected] = [(poses.len(), "pose"), (scans.len(), "scan")]
        .map(|(n, thing)| format!("{n} {thing}{}", if n == 1 { "" } else { "s" }));
    let hint = format!(
        "The first scan is {}, the last {}: drop the poses or scans that have no partner",
        shown_name(scans.first()),
        shown_name(scans.last())
    );
    Err(occam_scene::Error::new(&file, Place::File, found, format!("one for each of {expected}")).hint(hint).into())
}

fn shown_name(path: Option<&PathBuf>) -> String {
    path.and_then(|path| path.file_name()).unwrap_or_default().to_string_lossy().into_owned()
}

fn single_poses(folder: &Path, scans: &[PathBuf]) -> Result<Poses> {
    let mut poses = Vec::with_capacity(scans.len());
    for scan in scans {
        let Some(file) = pose_beside(folder, scan) else {
            let found = if poses.is_empty() { "no poses".into() } else { format!("no pose for {}", scan.display()) };
            return Err(occam_scene::Error::new(folder, Place::File, found, LAYOUTS).into());
        };
        let (read, _) = read_trajectory(&file)?;
        let &[pose] = read.as_slice() else {
            let found = format!("{} poses", read.len());
            return Err(occam_scene::Error::new(&file, Place::File, found, "the pose of one scan").into());
        };
        poses.push(pose);
    }
    let said = format!("{} in one file a scan", scans.len());
    Ok(Poses { world_from_sensor: poses, said, notes: Vec::new() })
}
