//! Thousands of seeded edits of good files, in a child process with little memory: every reader returns, with a cloud
//! or an error. A panic, an abort (an allocation as large as a damaged file claims) and a hang fail the test with the
//! number of the edit that did it.

use std::fs;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{ReadOptions, drop_non_finite, parse_every_point};

/// Of each PLY encoding; 20,000 and more in all.
const EDITS_OF_PLY: u64 = 10_000;
const EDITS_OF_OTHERS: u64 = 4000;
/// Address space of the child. The files have some hundred bytes; most of this is the program itself.
const CHILD_KIB: u64 = 512 << 10;
/// One edit takes microseconds; this long without the next is a hang.
const HANG: Duration = Duration::from_mins(1);
/// Set in the child: the file that says what it is at.
const PROGRESS: &str = "OCCAM_TEST_PROGRESS";
const DONE: &str = "done";
/// Letters of a progress message, so that each covers the one before.
const WIDTH: usize = 24;

/// xorshift64*: the same edits on every machine.
struct Random(u64);

impl Random {
    /// Edits have their own numbers, so that one can be done again without those before it.
    fn of_edit(number: u64) -> Self {
        let mut random = Self((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 33) as usize) % end.max(1)
    }
}

/// One to five edits.
fn edited(good: &[u8], number: u64) -> Vec<u8> {
    let mut random = Random::of_edit(number);
    let mut bytes = good.to_vec();
    for _ in 0..=random.below(5) {
        if !bytes.is_empty() {
            edit(&mut bytes, &mut random);
        }
    }
    bytes
}

fn edit(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(11) {
        0 => bytes[at] = random.next() as u8,
        1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes[at] = b"0123456789-+.eE \n\r,"[random.below(19)],
        3 => {
            // Lengths and counts of binary files.
            let word = [[0xff; 4], [0xff, 0xff, 0xff, 0x7f], [0, 0, 0, 0x80], [0; 4], [0, 0, 0, 1]][random.below(5)];
            for (byte, new) in bytes[at..].iter_mut().zip(word) {
                *byte = new;
            }
        }
        4 => bytes.truncate(at),
        5 => {
            let piece = bytes[at..(at + random.below(20)).min(bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
        6 => drop(bytes.drain(at..(at + random.below(20)).min(bytes.len()))),
        7 => {
            let line = line_at(bytes, at);
            let copy = bytes[line.clone()].to_vec();
            bytes.splice(line.start..line.start, copy);
        }
        8 => drop(bytes.drain(line_at(bytes, at))),
        9 => {
            // Counts of headers, blown up.
            if let Some(digit) = bytes[at..].iter().position(u8::is_ascii_digit).map(|offset| at + offset) {
                let digits = (0..random.below(20)).map(|_| b'0' + random.below(10) as u8).collect::<Vec<_>>();
                bytes.splice(digit..digit, digits);
            }
        }
        _ => {
            let words: [&[u8]; 8] =
                [b"uint", b"double", b"list", b"int64", b"char", b"-1", b"nan", b"property list uint uchar w\n"];
            let word = words[random.below(words.len())];
            let end = bytes[at..].iter().position(u8::is_ascii_whitespace).map_or(bytes.len(), |length| at + length);
            bytes.splice(at..end, word.iter().copied());
        }
    }
}

/// The line around `at`, with its end.
fn line_at(bytes: &[u8], at: usize) -> std::ops::Range<usize> {
    let start = bytes[..at].iter().rposition(|b| *b == b'\n').map_or(0, |before| before + 1);
    let end = bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |length| at + length + 1);
    start..end
}

/// Runs `edits` of the base files `name` in a child process.
fn survive(test: &str, name: &str, edits: u64, bases: &[Vec<u8>]) {
    in_child(&format!("mutation_tests::{test}"), name, |tell| read_edited(tell, name, edits, bases));
}

/// Runs `work` in a child process with little memory, which is the test `test` (in the formats) once more. `work` tells
/// what it is at.
pub(super) fn in_child(test: &str, name: &str, work: impl FnOnce(&mut dyn FnMut(&str))) {
    if let Some(progress) = std::env::var_os(PROGRESS) {
        let mut file = fs::File::create(progress).unwrap();
        let mut tell = |text: &str| {
            file.rewind().unwrap();
            file.write_all(format!("{text:<WIDTH$}").as_bytes()).unwrap();
        };
        work(&mut tell);
        return tell(DONE);
    }
    let folder = tempfile::tempdir().unwrap();
    let progress = folder.path().join("progress");
    let output = folder.path().join("output");
    let log = fs::File::create(&output).unwrap();
    let mut child = limited(&format!("formats::{test}"))
        .env(PROGRESS, &progress)
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let problem = wait(&mut child, &progress);
    let last = fs::read_to_string(&progress).unwrap_or_default();
    if let Some(problem) = problem {
        let output = fs::read_to_string(&output).unwrap_or_default();
        panic!("{problem} at {name} {}:\n{output}", last.trim());
    }
    assert_eq!(last.trim(), DONE, "the child ran another test");
}

/// This program, to run one test with little memory. Where there is no shell to set the limit, it runs without.
fn limited(test: &str) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = if cfg!(unix) {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("ulimit -v {CHILD_KIB}; exec \"$0\" \"$@\"")).arg(program);
        shell
    } else {
        Command::new(program)
    };
    // Threads reserve address space of their own.
    command.args([test, "--exact", "--nocapture"]).env("RAYON_NUM_THREADS", "1").env("MALLOC_ARENA_MAX", "1");
    command
}

/// What went wrong, if anything did.
fn wait(child: &mut Child, progress: &Path) -> Option<String> {
    let (mut seen, mut since) = (String::new(), Instant::now());
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (!status.success()).then(|| status.to_string());
        }
        let now = fs::read_to_string(progress).unwrap_or_default();
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() > HANG {
            child.kill().unwrap();
            child.wait().unwrap();
            return Some(format!("no end within {} s", HANG.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Both outcomes must occur, or the edits test nothing.
fn read_edited(tell: &mut dyn FnMut(&str), name: &str, edits: u64, bases: &[Vec<u8>]) {
    let path = Path::new(name);
    let (mut read_well, mut refused) = (0, 0);
    for (index, good) in bases.iter().enumerate() {
        assert!(parse_every_point(path, good, &ReadOptions::default()).is_ok(), "base {index} of {name}");
    }
    for number in 0..edits {
        tell(&format!("edit {number}"));
        let bytes = edited(&bases[number as usize % bases.len()], number);
        let options = ReadOptions { lenient: number % 3 == 0, ..ReadOptions::default() };
        match parse_every_point(path, &bytes, &options) {
            Ok(mut read) => {
                read_well += 1;
                drop_non_finite(&mut read);
                let points = read.cloud.len();
                let lengths = [
                    read.cloud.intensity.as_ref().map(Vec::len),
                    read.cloud.colour.as_ref().map(Vec::len),
                    read.cloud.label.as_ref().map(Vec::len),
                    read.cloud.instance.as_ref().map(Vec::len),
                    read.cloud.ring.as_ref().map(Vec::len),
                    read.cloud.time.as_ref().map(Vec::len),
                ];
                assert!(lengths.iter().flatten().all(|length| *length == points), "{lengths:?} of {points}");
                assert!(read.cloud.positions.as_flattened().iter().all(|c| c.is_finite()));
                assert!(read.describe().notes.iter().all(|note| note.len() < 2000));
            }
            Err(error) => {
                refused += 1;
                assert!(error.to_string().len() < 2000, "{error}");
            }
        }
    }
    assert!(read_well > edits / 100 && refused > edits / 100, "{name}: {read_well} read, {refused} refused");
}

fn numbers(encoding: &str, number: &[u8]) -> Vec<u8> {
    let mut number = number.to_vec();
    if encoding == "binary_big_endian" {
        number.reverse();
    }
    number
}

/// Faces first, then points with a column of each kind and a list.
fn mixed_header(encoding: &str) -> Vec<u8> {
    format!(
        "ply\nformat {encoding} 1.0\ncomment mixed\nelement face 2\nproperty list uchar int vertex_indices\n\
         element vertex 8\nproperty float x\nproperty double y\nproperty short z\nproperty uchar red\n\
         property uchar green\nproperty uchar blue\nproperty list uchar ushort view\nproperty uint label\n\
         property double time\nelement edge 1\nproperty int a\nend_header\n"
    )
    .into_bytes()
}

fn mixed_ply(encoding: &str) -> Vec<u8> {
    let mut bytes = mixed_header(encoding);
    let mut put = |number: &[u8]| bytes.extend(numbers(encoding, number));
    for face in 0..2_i32 {
        put(&[3]);
        (0..3).for_each(|corner| put(&(face + corner).to_le_bytes()));
    }
    for i in 0..8_u8 {
        put(&f32::from(i).to_le_bytes());
        put(&(f64::from(i) * 1e5).to_le_bytes());
        put(&i16::from(i).to_le_bytes());
        (0..3).for_each(|c| put(&[i + c]));
        put(&[1]);
        put(&7_u16.to_le_bytes());
        put(&u32::from(i).to_le_bytes());
        put(&f64::from(i).to_le_bytes());
    }
    put(&9_i32.to_le_bytes());
    bytes
}

/// Rows of one size, more of them.
fn plain_ply(encoding: &str) -> Vec<u8> {
    let mut bytes = format!(
        "ply\nformat {encoding} 1.0\nelement vertex 64\nproperty float x\nproperty float y\nproperty float z\n\
         property float intensity\nend_header\n"
    )
    .into_bytes();
    for i in 0..256_u16 {
        if encoding == "ascii" {
            let end = if i % 4 == 3 { '\n' } else { ' ' };
            bytes.extend(format!("{}{end}", f32::from(i) * 0.25).bytes());
        } else {
            bytes.extend(numbers(encoding, &(f32::from(i) * 0.25).to_le_bytes()));
        }
    }
    bytes
}

#[test]
fn edited_ascii_ply() {
    let mut mixed = mixed_header("ascii");
    mixed.extend(b"3 0 1 2\n3 1 2 3\n");
    mixed.extend((0..8).flat_map(|i| format!("{i}.5 -{i}e5 {i} {i} 0 255 1 7 4{i} 0.{i}\n").into_bytes()));
    mixed.extend(b"9\n");
    survive("edited_ascii_ply", "ascii.ply", EDITS_OF_PLY, &[mixed, plain_ply("ascii")]);
}

#[test]
fn edited_little_endian_ply() {
    let encoding = "binary_little_endian";
    survive("edited_little_endian_ply", "little.ply", EDITS_OF_PLY, &[mixed_ply(encoding), plain_ply(encoding)]);
}

#[test]
fn edited_big_endian_ply() {
    let encoding = "binary_big_endian";
    survive("edited_big_endian_ply", "big.ply", EDITS_OF_PLY, &[mixed_ply(encoding), plain_ply(encoding)]);
}

#[test]
fn edited_npy() {
    let base = |order: &str| {
        let header = format!("{{'descr': '<f4', 'fortran_order': {order}, 'shape': (4, 5), }}");
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        bytes.extend(format!("{header:<117}\n").bytes());
        bytes.extend((0..20_u8).flat_map(|i| f32::from(i).to_le_bytes()));
        bytes
    };
    survive("edited_npy", "a.npy", EDITS_OF_OTHERS, &[base("False"), base("True")]);
}

#[test]
fn edited_npz() {
    use npyz::WriterBuilder;
    let mut archive = npyz::npz::NpzWriter::new(std::io::Cursor::new(Vec::new()));
    let mut array = archive
        .array::<f32>("points", super::npz::deflated())
        .unwrap()
        .default_dtype()
        .shape(&[8, 3])
        .begin_nd()
        .unwrap();
    array.extend((0..24_u8).map(f32::from)).unwrap();
    array.finish().unwrap();
    let bytes = archive.zip_writer().finish().unwrap().into_inner();
    survive("edited_npz", "a.npz", EDITS_OF_OTHERS, &[bytes]);
}

#[test]
fn edited_bin() {
    let bytes: Vec<u8> = (0..80_u8).flat_map(|i| (f32::from(i) / 80.0).to_le_bytes()).collect();
    survive("edited_bin", "a.bin", EDITS_OF_OTHERS, &[bytes]);
}
