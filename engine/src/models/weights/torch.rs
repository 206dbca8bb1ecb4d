//! Files of `torch.save`: what has to be so before the reader may look at one.
//!
//! The reader (Burn's `pytorch_reader`) executes nothing and checks lengths against the file, but it believes an archive
//! that claims a hundred megabytes of pickle, and makes an object of every byte of one. The checks here come first.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use super::pickle::{self, MAX_BYTES, Refusal};

/// Begins the zip archives that PyTorch writes since 1.6.
pub const ZIP: &[u8] = b"PK\x03\x04";

/// The number that begins the files of PyTorch 0.1.10 to 1.5, in its two spellings.
const LEGACY: [&[u8]; 2] = [&[0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19], b"119547037146038801333356"];

/// Whether a file that begins with `head` is one of PyTorch 0.1.10 to 1.5.
pub fn is_legacy(head: &[u8]) -> bool {
    LEGACY.iter().any(|magic| head[..head.len().min(64)].windows(magic.len()).any(|bytes| bytes == *magic))
}

/// Either the operating system's error or what is wrong with the file.
pub type Checked<T> = io::Result<Result<T, Refusal>>;

/// Checks a file of PyTorch 0.1.10 to 1.5: number, version, system, object and list of storages are pickles, one after
/// the other.
pub fn check_legacy(file: &mut File) -> Checked<()> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(pickle::check(&bytes, 0, 5))
}

/// Ends of a zip archive.
const END: usize = 22;
const END_64: usize = 56;
const LOCATOR_64: usize = 20;
/// Before the name of an entry, in the directory and beside the entry.
const ENTRY: usize = 46;
const LOCAL: usize = 30;

/// Bytes of a directory at most: that of LMSCNet takes 5 kB.
const MAX_DIRECTORY: u64 = 16 << 20;

fn u16_at(bytes: &[u8], at: usize) -> u64 {
    little_endian(bytes, at, 2)
}

fn u32_at(bytes: &[u8], at: usize) -> u64 {
    little_endian(bytes, at, 4)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    little_endian(bytes, at, 8)
}

/// 0 beyond the end; callers hold buffers of a known size.
fn little_endian(bytes: &[u8], at: usize, count: usize) -> u64 {
    let bytes = bytes.get(at..at + count).unwrap_or_default();
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Checks a zip archive: whole, without compression, and with one pickle that asks for tensors only.
pub fn check_zip(file: &mut File) -> Checked<()> {
    let length = file.seek(SeekFrom::End(0))?;
    let directory = match directory(file, length)? {
        Ok(directory) => directory,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let (at, size) = match entries(&directory) {
        Ok(pickle) => pickle,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let local = read_at(file, at, LOCAL)?;
    let start = at + LOCAL as u64 + u16_at(&local, 26) + u16_at(&local, 28);
    if !local.starts_with(ZIP) || start + size > directory.start {
        return Ok(Err(Refusal::new(at, "no entry of the archive", "data.pkl, where the directory says it is")));
    }
    let bytes = read_at(file, start, size as usize)?;
    Ok(pickle::check(&bytes, start, 1))
}

fn read_at(file: &mut File, at: u64, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

struct Directory {
    bytes: Vec<u8>,
    start: u64,
    entries: u64,
}

fn directory(file: &mut File, length: u64) -> Checked<Directory> {
    let cut_off =
        |at: u64| Ok(Err(Refusal::new(at, "no directory of a zip archive", "one at the end: is it cut off?")));
    let Some(end_at) = length.checked_sub(END as u64) else { return cut_off(0) };
    let end = read_at(file, end_at, END)?;
    if !end.starts_with(b"PK\x05\x06") || u16_at(&end, 20) != 0 {
        return cut_off(end_at);
    }
    let (mut entries, mut size, mut start) = (u16_at(&end, 10), u32_at(&end, 12), u32_at(&end, 16));
    let mut directory_end = end_at;
    // PyTorch always writes the long form beside the short one.
    if let Some(long_at) = end_at.checked_sub((END_64 + LOCATOR_64) as u64) {
        let long = read_at(file, long_at, END_64 + LOCATOR_64)?;
        if long[END_64..].starts_with(b"PK\x06\x07") {
            if !long.starts_with(b"PK\x06\x06") || u64_at(&long, END_64 + 8) != long_at {
                return cut_off(long_at);
            }
            (entries, size, start) = (u64_at(&long, 32), u64_at(&long, 40), u64_at(&long, 48));
            directory_end = long_at;
        }
    }
    if start.checked_add(size) != Some(directory_end) {
        return cut_off(directory_end);
    }
    if size > MAX_DIRECTORY || entries.checked_mul(ENTRY as u64).is_none_or(|least| least > size) {
        let found = format!("{entries} entries in a directory of {size} bytes");
        return Ok(Err(Refusal::new(start, found, "a few hundred entries")));
    }
    Ok(Ok(Directory { bytes: read_at(file, start, size as usize)?, start, entries }))
}

/// Looks at every entry; place of the pickle's entry and bytes of the pickle.
fn entries(directory: &Directory) -> Result<(u64, u64), Refusal> {
    let mut rest = directory.bytes.as_slice();
    let (mut pickle, mut names, mut total) = (None, BTreeSet::new(), 0u64);
    for _ in 0..directory.entries {
        let place = directory.start + (directory.bytes.len() - rest.len()) as u64;
        let refuse = |found: String, expected: &str| Err(Refusal::new(place, found, expected));
        let lengths = [28, 30, 32].map(|at| u16_at(rest, at) as usize);
        let whole = ENTRY + lengths.iter().sum::<usize>();
        if !rest.starts_with(b"PK\x01\x02") || rest.len() < whole {
            return refuse("no entry of a directory".into(), "one a file in the archive");
        }
        let (entry, after) = rest.split_at(whole);
        rest = after;
        let name = String::from_utf8_lossy(&entry[ENTRY..ENTRY + lengths[0]]).into_owned();
        let shown: String = name.chars().take(80).collect();
        if name.starts_with(['/', '\\']) || name.split(['/', '\\']).any(|part| part == "..") {
            return refuse(format!("the entry {shown:?}"), "names that stay inside the archive");
        }
        if !names.insert(name.clone()) {
            return refuse(format!("two entries {shown:?}"), "one of each name");
        }
        let (packed, size, at) = sizes(entry, &entry[ENTRY + lengths[0]..][..lengths[1]]);
        if u16_at(entry, 10) != 0 || u16_at(entry, 8) & 1 != 0 || packed != size {
            return refuse(
                format!("the entry {shown:?}, compressed or encrypted"),
                "entries as torch.save stores them, as they are",
            );
        }
        total = total.saturating_add(size);
        let end = at.checked_add(LOCAL as u64).and_then(|start| start.checked_add(size));
        if end.is_none_or(|end| end > directory.start) || total > directory.start {
            return refuse(format!("the entry {shown:?} of {size} bytes"), "no more than the file holds");
        }
        if name == "data.pkl" || name.ends_with("/data.pkl") {
            if pickle.is_some() {
                return refuse(format!("a second description of tensors, {shown:?}"), "one data.pkl");
            }
            if size > MAX_BYTES {
                return refuse(format!("the entry {shown:?} of {size} bytes"), "at most 16 MiB");
            }
            pickle = Some((at, size));
        }
    }
    pickle.ok_or_else(|| Refusal::new(0, "a zip archive without data.pkl", "one that torch.save wrote"))
}

/// Stored size, size and place of an entry; `extra` holds those that do not fit in 32 bits.
fn sizes(entry: &[u8], extra: &[u8]) -> (u64, u64, u64) {
    let (mut packed, mut size, mut at) = (u32_at(entry, 20), u32_at(entry, 24), u32_at(entry, 42));
    let mut rest = extra;
    while rest.len() >= 4 {
        let length = (u16_at(rest, 2) as usize).min(rest.len() - 4);
        if u16_at(rest, 0) == 1 {
            let mut place = 4;
            for value in [&mut size, &mut packed, &mut at] {
                if *value == u64::from(u32::MAX) && place + 8 <= 4 + length {
                    *value = u64_at(rest, place);
                    place += 8;
                }
            }
        }
        rest = &rest[4 + length..];
    }
    (packed, size, at)
}
