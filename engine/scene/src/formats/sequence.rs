//! One sequence in SemanticKITTI's layout: its scans, and what stands beside each of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use glam::DMat4;

use super::{files_ending, lidar_poses, read_camera_from_lidar, read_poses};
use crate::error::{Error, Place, Result};

/// A sequence's folder and its scans; everything else is looked for when it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Such as `00`.
    pub name: String,
    pub folder: PathBuf,
    /// `velodyne/*.bin` in order of their names; at least one.
    pub scans: Vec<PathBuf>,
}

impl Sequence {
    /// Lists the scans of a sequence.
    ///
    /// # Errors
    /// For a folder that cannot be listed or holds no scans.
    pub fn open(folder: &Path) -> Result<Self> {
        let velodyne = folder.join("velodyne");
        let scans = files_ending(&velodyne, "bin")?;
        if scans.is_empty() {
            return Err(Error::new(velodyne, Place::File, "no scans", "files that end in .bin"));
        }
        // `.` and `..` have no name of their own.
        let whole = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
        let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, folder: folder.to_path_buf(), scans })
    }

    /// Name of a scan's files without ending, such as `000012`.
    pub fn stem(&self, scan: usize) -> String {
        self.scans.get(scan).and_then(|path| path.file_stem()).unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Number of a scan in the recording: what its name says, else its place in the folder.
    pub fn number(&self, scan: usize) -> usize {
        self.stem(scan).parse().unwrap_or(scan)
    }

    /// A scan as messages name it, such as `00/000012`.
    pub fn id(&self, scan: usize) -> String {
        format!("{}/{}", self.name, self.stem(scan))
    }

    /// Whether any label file is there.
    ///
    /// # Errors
    /// For a folder that cannot be listed.
    pub fn has_labels(&self) -> Result<bool> {
        Ok(!files_ending(&self.folder.join("labels"), "label")?.is_empty())
    }

    /// The label file of every scan.
    ///
    /// # Errors
    /// For a scan without one, with the numbers of both.
    pub fn labels(&self) -> Result<Vec<PathBuf>> {
        let folder = self.folder.join("labels");
        let labels: Vec<PathBuf> =
            (0..self.scans.len()).map(|scan| folder.join(self.stem(scan)).with_extension("label")).collect();
        if let Some(missing) = labels.iter().find(|file| !file.is_file()) {
            let there = files_ending(&folder, "label")?.len();
            let found = format!("no such file ({there} label files for {} scans)", self.scans.len());
            return Err(Error::new(missing, Place::File, found, "one label file for each scan")
                .hint("Get the missing labels, or leave out the scans that have none"));
        }
        Ok(labels)
    }

    /// Label files that belong to no scan: parts of a download that is not complete.
    ///
    /// # Errors
    /// For a folder that cannot be listed.
    pub fn labels_without_scan(&self) -> Result<Vec<PathBuf>> {
        let stems: BTreeSet<String> = (0..self.scans.len()).map(|scan| self.stem(scan)).collect();
        let mut files = files_ending(&self.folder.join("labels"), "label")?;
        files.retain(|file| file.file_stem().is_none_or(|stem| !stems.contains(&*stem.to_string_lossy())));
        Ok(files)
    }

    /// The sensor's pose at every scan, world from sensor, by `poses.txt` and `Tr` of `calib.txt`. The number of a scan
    /// is the line of its pose, so that a folder may hold a part of a recording.
    ///
    /// # Errors
    /// For files that are missing or broken, a calibration without `Tr`, and poses that do not fit the scans.
    pub fn poses(&self) -> Result<Vec<DMat4>> {
        let camera_from_lidar = read_camera_from_lidar(&self.folder.join("calib.txt"))?;
        let path = self.folder.join("poses.txt");
        let poses = lidar_poses(&read_poses(&path)?, &camera_from_lidar);
        let (found, scans) = (poses.len(), self.scans.len());
        let numbered = (0..scans).all(|scan| self.stem(scan).parse::<usize>().is_ok());
        if !numbered && found != scans {
            return Err(Error::new(&path, Place::File, format!("{found} poses"), format!("{scans}, one a scan"))
                .hint("Names of scans that are numbers, such as 000012.bin, tell which pose belongs to which"));
        }
        (0..scans)
            .map(|scan| {
                let number = self.number(scan);
                poses.get(number).copied().ok_or_else(|| {
                    let last = self.scans[scan].display();
                    let expected = format!("at least {} for {scans} scans: scan {number} is {last}", number + 1);
                    Error::new(&path, Place::File, format!("{found} poses"), expected)
                        .hint("Line N + 1 is the pose of scan N; the files may be of different sequences")
                })
            })
            .collect()
    }

    /// Poses that `poses.txt` holds after that of the last scan: often those of another drive.
    ///
    /// # Errors
    /// As [`Self::poses`].
    pub fn poses_without_scan(&self) -> Result<usize> {
        let poses = read_poses(&self.folder.join("poses.txt"))?.len();
        let wanted = (0..self.scans.len()).map(|scan| self.number(scan).saturating_add(1)).max().unwrap_or(0);
        Ok(poses.saturating_sub(wanted))
    }

    /// The voxel label of every scan that has one, in a folder such as `voxels`.
    pub fn voxel_labels(&self, voxels: &Path) -> Vec<Option<PathBuf>> {
        let file = |scan| voxels.join(self.stem(scan)).with_extension("label");
        (0..self.scans.len()).map(|scan| Some(file(scan)).filter(|path| path.is_file())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const POSE: &str = "1 0 0 0 0 1 0 0 0 0 1 0\n";

    /// A sequence of scans with these names, a label each, and `poses` poses.
    fn sequence(folder: &Path, names: &[&str], poses: usize) -> Sequence {
        for (part, ending) in [("velodyne", "bin"), ("labels", "label")] {
            fs::create_dir_all(folder.join(part)).unwrap();
            for name in names {
                fs::write(folder.join(part).join(name).with_extension(ending), "x").unwrap();
            }
        }
        fs::write(folder.join("poses.txt"), POSE.repeat(poses)).unwrap();
        fs::write(folder.join("calib.txt"), format!("Tr: {POSE}")).unwrap();
        Sequence::open(folder).unwrap()
    }

    #[test]
    fn the_number_of_a_scan_is_the_line_of_its_pose() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("07");
        // A part of a recording: poses for scans that are not there are no mistake.
        let part = sequence(&path, &["000002", "000004"], 9);
        assert_eq!((part.name.as_str(), part.number(1), part.id(1).as_str()), ("07", 4, "07/000004"));
        assert_eq!((part.poses().unwrap().len(), part.poses_without_scan().unwrap()), (2, 4));
        fs::write(path.join("poses.txt"), POSE.repeat(4)).unwrap();
        let text = part.poses().unwrap_err().to_string();
        assert!(text.contains("poses.txt: found 4 poses, expected at least 5 for 2 scans: scan 4"), "{text}");
    }

    #[test]
    fn names_without_numbers_want_as_many_poses_as_scans() {
        let folder = tempfile::tempdir().unwrap();
        let named = |poses| sequence(folder.path(), &["a", "b"], poses).poses().map_err(|error| error.to_string());
        assert_eq!(named(2).unwrap().len(), 2);
        for poses in [1, 3] {
            let text = named(poses).unwrap_err();
            assert!(text.contains(&format!("found {poses} poses, expected 2, one a scan")), "{text}");
        }
    }

    #[test]
    fn what_is_missing_beside_the_scans_is_named_with_counts() {
        let folder = tempfile::tempdir().unwrap();
        let whole = sequence(folder.path(), &["0", "1", "2"], 3);
        assert!(whole.has_labels().unwrap());
        assert_eq!(whole.labels().unwrap().len(), 3);
        assert!(whole.labels_without_scan().unwrap().is_empty());
        let label = |name: &str| folder.path().join("labels").join(name);
        fs::rename(label("1.label"), label("7.label")).unwrap();
        let text = whole.labels().unwrap_err().to_string();
        assert!(text.contains("1.label: found no such file (3 label files for 3 scans)"), "{text}");
        assert_eq!(whole.labels_without_scan().unwrap(), [label("7.label")]);
        for (calibration, expected) in
            [("P0: 1\n", "no line Tr"), (&*format!("Tr:{}\n", " 0".repeat(12)), "no rotation")]
        {
            fs::write(folder.path().join("calib.txt"), calibration).unwrap();
            let text = whole.poses().unwrap_err().to_string();
            assert!(text.contains("calib.txt") && text.contains(expected), "{text}");
        }
        fs::remove_dir_all(folder.path().join("velodyne")).unwrap();
        fs::create_dir(folder.path().join("velodyne")).unwrap();
        assert!(Sequence::open(folder.path()).unwrap_err().to_string().contains("no scans"));
    }

    #[test]
    fn a_scan_has_a_voxel_label_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let whole = sequence(folder.path(), &["000000", "000001"], 2);
        let voxels = folder.path().join("voxels");
        assert_eq!(whole.voxel_labels(&voxels), [None, None]);
        fs::create_dir(&voxels).unwrap();
        fs::write(voxels.join("000001.label"), "x").unwrap();
        assert_eq!(whole.voxel_labels(&voxels), [None, Some(voxels.join("000001.label"))]);
    }
}
