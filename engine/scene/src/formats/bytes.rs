//! The bytes of an input file, and what they look like before any reader sees them.

use std::fs::File;
use std::io::Read;
use std::ops::Deref;
use std::path::Path;

use crate::error::{Error, Place, Result};

/// Files from here on are mapped instead of copied.
const MAP_FROM_BYTES: u64 = 64 << 20;

/// A whole file in memory.
pub(crate) enum Bytes {
    Owned(Vec<u8>),
    Mapped(memmap2::Mmap),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

/// Opens a regular file that holds at least one byte. Files under 64 MiB are copied, larger ones mapped.
pub(crate) fn load(path: &Path) -> Result<Bytes> {
    let io = |error: std::io::Error| Error::io(path, &error);
    // Looked at before it is opened: opening a pipe waits for its other end.
    let kind = std::fs::metadata(path).map_err(io)?;
    if kind.is_dir() {
        return Err(Error::new(path, Place::File, "a folder", "a file"));
    }
    if !kind.is_file() {
        return Err(Error::new(path, Place::File, "a pipe or device", "a regular file"));
    }
    let mut file = File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    let bytes = if length >= MAP_FROM_BYTES {
        // SAFETY: the map is read-only and lives no longer than the read. A program that shortens the file meanwhile
        // ends this one with SIGBUS; only large files run that risk, smaller ones are copied.
        #[allow(unsafe_code)]
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
        Bytes::Mapped(map)
    } else {
        let mut bytes = Vec::with_capacity(length as usize);
        file.read_to_end(&mut bytes).map_err(io)?;
        Bytes::Owned(bytes)
    };
    if bytes.is_empty() {
        return Err(Error::new(path, Place::File, "an empty file", "data")
            .hint("The download or copy may have failed: fetch the file again"));
    }
    Ok(bytes)
}

/// Removes a UTF-8 byte order mark.
pub(crate) fn without_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes)
}

/// Refuses what is no data at all (pointers, web pages) or a format that has no reader here.
pub(crate) fn refuse_foreign(path: &Path, bytes: &[u8]) -> Result<()> {
    let text = without_bom(bytes).trim_ascii_start();
    let starts = |prefix: &str| text.get(..prefix.len()).is_some_and(|t| t.eq_ignore_ascii_case(prefix.as_bytes()));
    let refuse =
        |found: &str, expected: &str, hint: &str| Err(Error::new(path, Place::File, found, expected).hint(hint));
    if starts("version https://git-lfs") {
        return refuse("a Git LFS pointer", "the data it stands for", "Run `git lfs pull` where it was cloned");
    }
    if ["<!doctype", "<html", "<head", "<body", "<?xml"].iter().any(|tag| starts(tag)) {
        return refuse(
            "a web page",
            "point data",
            "The link may have led to a login or preview page: download the file itself",
        );
    }
    let foreign = if bytes.starts_with(b"LASF") {
        "a LAS or LAZ file"
    } else if bytes.starts_with(b"ASTM-E57") {
        "an E57 file"
    } else if starts("# .PCD") || (has_extension(path, &["pcd"]) && starts("VERSION")) {
        "a PCD file"
    } else if bytes.starts_with(b"\x1f\x8b") {
        return refuse("a gzip archive", "an unpacked file", "Unpack it first");
    } else {
        return Ok(());
    };
    refuse(
        foreign,
        "a format Occam reads",
        "It is not read yet: convert it to PLY, for example with CloudCompare or PDAL",
    )
}

/// Whether the last extension is one of `extensions` (lower case), in any case.
pub(crate) fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .and_then(|e| e.to_str())
        .is_some_and(|e| extensions.iter().any(|known| e.eq_ignore_ascii_case(known)))
}

/// Text of the file for an error message: readable, quoted and short.
pub(crate) fn quote(bytes: &[u8]) -> String {
    const LONGEST: usize = 40;
    let text = String::from_utf8_lossy(bytes.get(..LONGEST).unwrap_or(bytes));
    let dots = if bytes.len() > LONGEST { "..." } else { "" };
    format!("\"{}{dots}\"", text.escape_debug())
}

/// `n` things, with a plural s where one is due.
pub(crate) fn count(n: u64, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}
