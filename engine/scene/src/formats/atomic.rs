//! Files that are either written whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Place, Result};

/// Writes a file beside `path`, syncs it and renames it to `path`.
///
/// A reader sees the old file or the new one, never a part; after an error nothing is left behind. Links are followed.
/// Pipes and devices, which cannot be renamed over, are written directly.
///
/// # Errors
///
/// One error that names `path`, whatever failed: the folder, the disk or `write` itself.
pub fn atomic_write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let failed = |error: io::Error| {
        Error::new(path, Place::File, error.to_string(), "a file that can be written")
            .hint("Check the folder, its permissions and the space left on the disk")
    };
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    match fs::metadata(&target) {
        Ok(kind) if kind.is_dir() => return Err(Error::new(path, Place::File, "a folder", "the name of a file")),
        Ok(kind) if !kind.is_file() => {
            let file = OpenOptions::new().write(true).open(&target).map_err(failed)?;
            return fill(&file, write).map_err(failed);
        }
        _ => {}
    }
    let beside = beside(&target);
    let written = File::create_new(&beside).and_then(|file| {
        fill(&file, write)?;
        file.sync_all()?;
        fs::rename(&beside, &target)
    });
    written.map_err(|error| {
        // It may not exist; the first error is the one that matters.
        let _ = fs::remove_file(&beside);
        failed(error)
    })
}

fn fill(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, file);
    write(&mut out)?;
    out.flush()
}

/// A name in the same folder that no other writer uses.
fn beside(target: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(format!(".{}-{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    target.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_failed_write_keeps_the_old_file_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        atomic_write(&path, |out| out.write_all(b"old")).unwrap();
        let error = atomic_write(&path, |out| {
            out.write_all(&vec![0; 100_000])?;
            Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on device"))
        })
        .unwrap_err();
        assert!(error.to_string().contains("out.bin: found no space left on device"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["out.bin"]);
    }

    #[test]
    fn a_missing_folder_is_one_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("no/such/out.bin");
        let error = atomic_write(&path, |out| out.write_all(b"new")).unwrap_err();
        assert_eq!(error.path, path);
        assert!(names(folder.path()).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real.bin");
        let link = folder.path().join("link.bin");
        fs::write(&real, b"old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        atomic_write(&link, |out| out.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"new");
    }
}
