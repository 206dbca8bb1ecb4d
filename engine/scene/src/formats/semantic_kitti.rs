//! SemanticKITTI's folders: where sequences lie, and the files in them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Place, Result};

/// Folders of sequences, those that hold `velodyne/`, in order of their names: `path` itself, else those in
/// `path/dataset/sequences`, `path/sequences` or `path`, the first of them that has any. Empty when none has.
///
/// # Errors
/// For a folder that cannot be listed, and a link to nothing.
pub fn sequence_folders(path: &Path) -> Result<Vec<PathBuf>> {
    folders_with(path, "velodyne")
}

/// As [`sequence_folders`], of the folders that hold a folder `name`.
///
/// # Errors
/// For a folder that cannot be listed, and a link to nothing.
pub fn folders_with(path: &Path, name: &str) -> Result<Vec<PathBuf>> {
    if is_folder(&path.join(name))? {
        return Ok(vec![path.to_path_buf()]);
    }
    for (root, of_sequences) in
        [(path.join("dataset/sequences"), true), (path.join("sequences"), true), (path.to_path_buf(), false)]
    {
        let (mut folders, mut broken) = (Vec::new(), None);
        for folder in list(&root)? {
            match is_folder(&folder).and_then(|is| Ok(is && is_folder(&folder.join(name))?)) {
                Ok(true) => folders.push(folder),
                Ok(false) => {}
                Err(error) => broken = broken.or(Some(error)),
            }
        }
        // Elsewhere there may be anything.
        if let Some(error) = broken.filter(|_| of_sequences || !folders.is_empty()) {
            return Err(error);
        }
        if !folders.is_empty() {
            return Ok(folders);
        }
    }
    Ok(Vec::new())
}

/// Whether there is such a folder.
///
/// # Errors
/// When nobody can tell: a link to nothing or to itself, or a folder that may not be looked into.
fn is_folder(path: &Path) -> Result<bool> {
    let failed = |found: String| {
        let error = Error::new(path, Place::File, found, "a folder that can be read");
        Err(error.hint("Mend it or take it away"))
    };
    match fs::metadata(path) {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if fs::symlink_metadata(path).is_ok() {
                failed("a link to nothing".into())
            } else {
                Ok(false)
            }
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(false),
        Err(error) => failed(error.to_string()),
    }
}

/// Files of a folder that end in `.extension`, in order of their names; none where there is no such folder.
///
/// # Errors
/// For a folder that cannot be listed, and a link to nothing.
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
    if !is_folder(folder)? {
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

    #[cfg(unix)]
    #[test]
    fn broken_sequences_are_named() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("sequences");
        fs::create_dir_all(root.join("00/velodyne")).unwrap();
        fs::create_dir_all(root.join("02")).unwrap();
        for (link, target, expected) in
            [("01", "gone", "a link to nothing"), ("01", "01", "symbolic link"), ("02/velodyne", "gone", "to nothing")]
        {
            symlink(target, root.join(link)).unwrap();
            for path in [folder.path(), &root] {
                let text = sequence_folders(path).unwrap_err().to_string();
                assert!(text.contains(&root.join(link).display().to_string()) && text.contains(expected), "{text}");
            }
            fs::remove_file(root.join(link)).unwrap();
        }
        // Where there are no sequences, a broken link is none of them.
        symlink("gone", folder.path().join("scan.bin")).unwrap();
        assert!(sequence_folders(&root.join("02")).unwrap().is_empty());
        assert!(files_ending(&root.join("02"), "bin").unwrap().is_empty());
        assert!(files_ending(folder.path(), "bin").unwrap().len() == 1);
        assert_eq!(sequence_folders(folder.path()).unwrap(), [root.join("00")]);
    }
}
