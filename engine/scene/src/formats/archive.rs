//! The arrays of a zip archive, as numpy packs them. Whatever an archive claims is held against its length before
//! anything is unpacked, and unpacking stops where the claim ends. Nothing is ever written to the disk.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io::{Cursor, Read};
use std::path::Path;

use npyz::npz::NpzArchive;

use super::npy::{self, Array};
use crate::error::{Error, Place, Result};

/// Deflate cannot pack 1,032 bytes into less than one; a member that claims more is no array.
const LARGEST_RATIO: u64 = 1040;
/// A grid of one class packs about as well as that; whole archives that large do not.
const LARGEST_RATIO_OF_LARGE: u64 = 100;
/// Archives may always unpack to this; a full SemanticKITTI grid of f32 class scores is 160 MiB.
const ALWAYS_ALLOWED: u64 = 256 << 20;
const NEVER_ALLOWED: u64 = 4 << 30;
/// The 16 bits of a plain archive; one that claims more would make room for them first.
const MOST_MEMBERS: u64 = 65_535;

/// An archive that was looked through, and of which nothing was unpacked yet.
pub(super) struct Archive<'a> {
    path: &'a Path,
    zip: NpzArchive<Cursor<&'a [u8]>>,
    members: Vec<Member>,
}

struct Member {
    /// Name of the array.
    name: String,
    file_name: String,
    /// Number in the archive.
    index: usize,
    size: u64,
}

impl<'a> Archive<'a> {
    pub(super) fn open(path: &'a Path, bytes: &'a [u8]) -> Result<Self> {
        if let Some(count) = claimed_members(bytes).filter(|count| *count > MOST_MEMBERS) {
            return Err(Error::new(path, Place::File, format!("{count} members"), format!("at most {MOST_MEMBERS}")));
        }
        let mut zip = NpzArchive::new(Cursor::new(bytes)).map_err(|e| damaged(path, &e.to_string()))?;
        let archive = zip.zip_archive();
        let mut members = Vec::new();
        let mut names = HashSet::new();
        let mut unpacked = 0_u64;
        for index in 0..archive.len() {
            let member = archive.by_index_raw(index).map_err(|e| damaged(path, &e.to_string()))?;
            let file_name = member.name().to_owned();
            let Some(name) = npyz::npz::array_name_from_file_name(&file_name).map(str::to_owned) else { continue };
            if climbs(&file_name) {
                let found = format!("the member {file_name:?}");
                return Err(Error::new(path, Place::File, found, "names inside the archive")
                    .hint("It was made to write outside the folder it is unpacked in: do not unpack it"));
            }
            if !names.insert(name.clone()) {
                let found = format!("two members {file_name}");
                return Err(Error::new(path, Place::File, found, "one array of a name")
                    .hint("It is not told which one counts: save it again"));
            }
            let (size, packed) = (member.size(), member.compressed_size());
            if size > packed.min(bytes.len() as u64).saturating_mul(LARGEST_RATIO) {
                let found = format!("the member {file_name} of {size} bytes, packed into {packed}");
                return Err(Error::new(path, Place::File, found, "a size that deflate can reach"));
            }
            unpacked = unpacked.saturating_add(size);
            members.push(Member { name, file_name, index, size });
        }
        let length = bytes.len() as u64;
        let allowed = length.saturating_mul(LARGEST_RATIO_OF_LARGE).clamp(ALWAYS_ALLOWED, NEVER_ALLOWED).max(length);
        if unpacked > allowed {
            let found = format!("an archive of {length} bytes that unpacks to {unpacked}");
            return Err(Error::new(path, Place::File, found, format!("at most {allowed}"))
                .hint("If you trust it, save it again without compression (numpy.savez)"));
        }
        Ok(Self { path, zip, members })
    }

    /// Names of the arrays, in the order of the archive.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.name.as_str())
    }

    /// Unpacks an array; `number` counts those of [`Self::names`].
    pub(super) fn read(&mut self, number: usize) -> Result<Array> {
        let bytes = self.unpack(number)?;
        npy::parse(self.path, self.members.get(number).map_or("", |member| &member.file_name), &bytes)
    }

    /// The bytes of an array, as a `.npy` has them.
    pub(super) fn unpack(&mut self, number: usize) -> Result<Vec<u8>> {
        let path = self.path;
        let Some(Member { file_name, index, size, .. }) = self.members.get(number) else {
            return Err(Error::new(path, Place::File, format!("{} arrays", self.members.len()), "one more"));
        };
        let file = self.zip.zip_archive().by_index(*index).map_err(|e| {
            let problem = e.to_string();
            // Encrypted, or packed by a method that numpy does not use.
            if let Some((_, reason)) = problem.split_once("unsupported Zip archive: ") {
                let found = format!("the member {file_name}, which cannot be unpacked ({reason})");
                return Error::new(path, Place::File, found, "members stored or deflated, without a password")
                    .hint("Save it again with numpy");
            }
            damaged(path, &format!("{file_name}: {problem}"))
        })?;
        // One byte more than claimed: only at its end does a member's checksum get compared.
        let mut unpacked = Vec::new();
        file.take(size + 1)
            .read_to_end(&mut unpacked)
            .map_err(|e| damaged(path, &format!("{file_name}: {}", e.to_string().to_lowercase())))?;
        if unpacked.len() as u64 != *size {
            return Err(damaged(path, &format!("{file_name} holds other than the {size} bytes it claims")));
        }
        Ok(unpacked)
    }
}

fn damaged(path: &Path, problem: &str) -> Error {
    Error::new(path, Place::File, format!("a damaged archive ({problem})"), "a .npz of numpy")
        .hint("The download or copy was probably cut off or changed: fetch the file again")
}

/// Whether a path leads out of the folder that it starts in, on any system.
fn climbs(file_name: &str) -> bool {
    let mut parts = file_name.split(['/', '\\']);
    file_name.starts_with(['/', '\\']) || file_name.get(1..2) == Some(":") || parts.any(|part| part == "..")
}

/// Members that a zip64 archive claims to have; `None` for plain archives, which cannot claim many.
fn claimed_members(bytes: &[u8]) -> Option<u64> {
    const END: &[u8] = b"PK\x05\x06";
    const END_64: &[u8] = b"PK\x06\x06";
    const LOCATOR: &[u8] = b"PK\x06\x07";
    const LONGEST_END: usize = 22 + 65_535;
    let eight = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let tail_start = bytes.len().saturating_sub(LONGEST_END);
    let end = tail_start + bytes.get(tail_start..)?.windows(4).rposition(|window| window == END)?;
    let comment = u16::from_le_bytes(bytes.get(end + 20..end + 22)?.try_into().ok()?);
    let locator = bytes.len().checked_sub(20 + 22 + usize::from(comment))?;
    if !bytes.get(locator..)?.starts_with(LOCATOR) {
        return None;
    }
    let from = usize::try_from(eight(locator + 8)?).ok()?;
    let end_64 = from + bytes.get(from..end)?.windows(4).position(|window| window == END_64)?;
    eight(end_64 + 32)
}
