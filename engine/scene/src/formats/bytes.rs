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
    if is_utf_16(bytes) {
        return refuse("text in UTF-16", "bytes or plain text", "Save it as UTF-8, or without re-encoding it");
    }
    let foreign = if bytes.starts_with(b"LASF") {
        "a LAS or LAZ file"
    } else if bytes.starts_with(b"ASTM-E57") {
        "an E57 file"
    } else if starts("# .PCD") || (has_extension(path, &["pcd"]) && starts("VERSION")) {
        "a PCD file"
    } else if is_gzip(bytes) {
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

/// Two bytes alone would be met in one of 65,536 scans: deflate and the flags that exist belong to it.
fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x1f\x8b\x08") && bytes.get(3).is_some_and(|flags| *flags < 0x20)
}

/// A byte order mark and three letters of two bytes.
fn is_utf_16(bytes: &[u8]) -> bool {
    let little = bytes.starts_with(b"\xFF\xFE");
    if !little && !bytes.starts_with(b"\xFE\xFF") {
        return false;
    }
    let (letters, _) = bytes.get(2..8).unwrap_or_default().as_chunks::<2>();
    letters.len() == 3
        && letters.iter().all(|letter| letter[usize::from(little)] == 0 && letter[usize::from(!little)] != 0)
}

/// Whether the last extension is one of `extensions` (lower case), in any case.
pub(crate) fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .and_then(|e| e.to_str())
        .is_some_and(|e| extensions.iter().any(|known| e.eq_ignore_ascii_case(known)))
}

/// Whether a file lies in a folder of that name, also when its path starts in it.
pub fn is_in_folder(path: &Path, name: &str) -> bool {
    let absolute = std::path::absolute(path);
    absolute.is_ok_and(|path| path.parent().and_then(Path::file_name).is_some_and(|folder| folder == name))
}

/// Refuses a cloud that memory cannot hold: an allocation that fails would end the program.
pub(crate) fn check_room(path: &Path, points: usize) -> Result<()> {
    /// Positions, and as much again for the columns beside them.
    const BYTES_A_POINT: usize = 24;
    let mut room = Vec::<u8>::new();
    let bytes = points.saturating_mul(BYTES_A_POINT);
    room.try_reserve_exact(bytes).map_err(|_| {
        Error::new(path, Place::File, count(points as u64, "point"), "as many as fit in memory")
            .hint(format!("They take {} MiB and more: split the file", bytes >> 20))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, bytes: &[u8]) -> Option<String> {
        refuse_foreign(Path::new(name), bytes).err().map(|error| error.found)
    }

    #[test]
    fn what_is_packed_or_encoded_otherwise_is_told() {
        assert_eq!(refused("a.ply", b"\x1f\x8b\x08\x08\0\0\0\0").as_deref(), Some("a gzip archive"));
        for order in [u16::to_le_bytes, u16::to_be_bytes] {
            let text: Vec<u8> = "\u{feff}ply\r\n".encode_utf16().flat_map(order).collect();
            assert_eq!(refused("a.ply", &text).as_deref(), Some("text in UTF-16"));
        }
    }

    #[test]
    fn no_first_coordinate_looks_like_another_format() {
        // Every f32 from 1 mm to 200 m whose low bytes are those of a magic number.
        for low in [[0x1f, 0x8b], [0xff, 0xfe], [0xfe, 0xff], [b'P', b'K'], [b'L', b'A'], [b'<', b'h']] {
            for high in (0x3a83..=0x4348_u16).flat_map(|high| [high, high | 0x8000]) {
                let scan =
                    [&low, &high.to_le_bytes()[..], &[0x9a, 0x99, 0x11, 0x41, 0, 0, 0, 0x40, 0, 0, 0, 0]].concat();
                assert_eq!(refused("0.bin", &scan), None, "{scan:x?}");
            }
        }
    }

    #[test]
    fn points_beyond_all_memory_are_an_error() {
        assert_eq!(check_room(Path::new("a.bin"), 1 << 20), Ok(()));
        for points in [1 << 52, usize::MAX] {
            let error = check_room(Path::new("a.bin"), points).unwrap_err().to_string();
            assert!(
                error.contains(&format!("a.bin: found {points} points, expected as many as fit in memory")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_folder_is_known_by_name_from_inside_too() {
        let folder = std::env::current_dir().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        assert!(is_in_folder(Path::new("000000.bin"), &folder));
        assert!(is_in_folder(Path::new("any/voxels/000000.bin"), "voxels"));
        assert!(!is_in_folder(Path::new("voxels/any/000000.bin"), "voxels"));
    }
}
