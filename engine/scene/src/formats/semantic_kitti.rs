//! SemanticKITTI's folders: where sequences lie, and the files in them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Folders of sequences, those that hold `velodyne/`, in order of their names: `path` itself, else those in
/// `path/dataset/sequences`, `path/sequences` or `path`, the first of them that has any. Empty when none has.
///
/// # Errors
/// For a folder that cannot be listed.
pub fn sequence_folders(path: &Path) -> Result<Vec<PathBuf>> {
    folders_with(path, "velodyne")
}

/// As [`sequence_folders`], of the folders that hold a folder `name`.
///
/// # Errors
/// For a folder that cannot be listed.
pub fn folders_with(path: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let is_sequence = |folder: &PathBuf| folder.join(name).is_dir();
    if is_sequence(&path.to_path_buf()) {
        return Ok(vec![path.to_path_buf()]);
    }
    for root in [path.join("dataset/sequences"), path.join("sequences"), path.to_path_buf()] {
        let folders: Vec<PathBuf> = list(&root)?.into_iter().filter(is_sequence).collect();
        if !folders.is_empty() {
            return Ok(folders);
        }
    }
    Ok(Vec::new())
}

/// Files of a folder that end in `.extension`, in order of their names; none where there is no such folder.
///
/// # Errors
/// For a folder that cannot be listed.
pub fn files_ending(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = list(folder)?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == extension));
    Ok(files)
}

/// Files and folders in a folder, in order of their names; none where there is no such folder.
///
/// # Errors
/// For a folder that cannot be listed.
pub fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |error: std::io::Error| Error::io(folder, &error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_found_wherever_people_unpack_them() {
        for root in ["dataset/sequences", "sequences", "."] {
            let folder = tempfile::tempdir().unwrap();
            let top = folder.path();
            assert!(sequence_folders(top).unwrap().is_empty());
            for name in ["08", "00", "notes"] {
                fs::create_dir_all(top.join(root).join(name)).unwrap();
            }
            assert!(sequence_folders(top).unwrap().is_empty(), "folders without scans");
            for name in ["08", "00"] {
                fs::create_dir_all(top.join(root).join(name).join("velodyne")).unwrap();
            }
            let expected = ["00", "08"].map(|name| top.join(root).join(name));
            assert_eq!(sequence_folders(top).unwrap(), expected, "{root}");
            assert_eq!(sequence_folders(&expected[1]).unwrap(), expected[1..]);
        }
        assert!(sequence_folders(Path::new("no/such/folder")).unwrap().is_empty());
    }

    #[test]
    fn files_are_picked_by_their_ending_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["000002.bin", "000001.bin", "000001.label", "bin"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let expected = ["000001.bin", "000002.bin"].map(|name| folder.path().join(name));
        assert_eq!(files_ending(folder.path(), "bin").unwrap(), expected);
        assert!(files_ending(&folder.path().join("none"), "bin").unwrap().is_empty());
    }
}
