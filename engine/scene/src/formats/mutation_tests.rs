//! Thousands of seeded edits of good files: every reader returns, with a cloud or an error, and never panics.

use std::path::Path;

use super::{ReadCloud, ReadOptions, bin, npy, npz, ply};
use crate::error::Result;

const EDITS: usize = 3000;

/// xorshift64*: the same edits on every machine.
struct Random(u64);

impl Random {
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

/// Bytes overwritten, four-byte words of all ones or a large count, digits, cuts and repeated pieces.
fn edit(good: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] = b"0123456789-+.eE \n\r,"[random.below(19)],
            2 => {
                let word = [[0xff; 4], [0xff, 0xff, 0xff, 0x7f], [0, 0, 0, 0x80], [0; 4]][random.below(4)];
                for (byte, new) in bytes[at..].iter_mut().zip(word) {
                    *byte = new;
                }
            }
            3 => bytes.truncate(at),
            4 => {
                let end = (at + random.below(20)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let end = (at + random.below(20)).min(bytes.len());
                bytes.drain(at..end);
            }
        }
    }
    bytes
}

/// Both outcomes must occur, or the edits test nothing.
fn survive(name: &str, good: &[u8], read: impl Fn(&[u8]) -> Result<ReadCloud>) {
    assert!(read(good).is_ok(), "{name}");
    let mut random = Random(0x0cca_3000 + name.len() as u64);
    let (mut read_well, mut refused) = (0, 0);
    for _ in 0..EDITS {
        let bytes = edit(good, &mut random);
        match read(&bytes) {
            Ok(read) => {
                read_well += 1;
                let _ = read.describe();
            }
            Err(error) => {
                refused += 1;
                assert!(error.to_string().len() < 2000, "{error}");
            }
        }
    }
    assert!(read_well > 0 && refused > 0, "{name}: {read_well} read, {refused} refused");
}

fn ply_bytes(encoding: &str) -> Vec<u8> {
    let header = format!(
        "ply\nformat {encoding} 1.0\nelement face 2\nproperty list uchar int vertex_indices\nelement vertex 8\n\
         property float x\nproperty double y\nproperty short z\nproperty uchar red\nproperty uchar green\n\
         property uchar blue\nproperty list uchar ushort view\nproperty uint label\nend_header\n"
    );
    let mut bytes = header.into_bytes();
    let big = encoding == "binary_big_endian";
    let mut put = |number: &[u8]| {
        let mut number = number.to_vec();
        if big {
            number.reverse();
        }
        bytes.extend(number);
    };
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
    }
    bytes
}

fn read_ply(lenient: bool) -> impl Fn(&[u8]) -> Result<ReadCloud> {
    move |bytes| ply::read(Path::new("a.ply"), bytes, &ReadOptions { lenient, ..ReadOptions::default() })
}

#[test]
fn edited_ascii_ply() {
    let rows: Vec<String> = (0..8).map(|i| format!("{i}.5 -{i}e5 {i} {i} 0 255 1 7 4{i}\n")).collect();
    let header = String::from_utf8_lossy(&ply_bytes("ascii")).into_owned();
    let end = header.find("end_header\n").unwrap() + "end_header\n".len();
    let file = format!("{}3 0 1 2\n3 1 2 3\n{}", &header[..end], rows.concat());
    survive("ascii", file.as_bytes(), read_ply(false));
    survive("lenient ascii", file.as_bytes(), read_ply(true));
}

#[test]
fn edited_little_endian_ply() {
    survive("little", &ply_bytes("binary_little_endian"), read_ply(false));
    survive("lenient little", &ply_bytes("binary_little_endian"), read_ply(true));
}

#[test]
fn edited_big_endian_ply() {
    survive("big", &ply_bytes("binary_big_endian"), read_ply(false));
}

#[test]
fn edited_fixed_rows_of_ply() {
    let mut bytes =
        b"ply\nformat binary_little_endian 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\nend_header\n"
            .to_vec();
    bytes.extend((0..12_u8).flat_map(|i| f32::from(i).to_le_bytes()));
    survive("fixed", &bytes, read_ply(true));
}

#[test]
fn edited_npy() {
    for order in [false, true] {
        let text = if order { "True" } else { "False" };
        let header = format!("{{'descr': '<f4', 'fortran_order': {text}, 'shape': (4, 5), }}");
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        bytes.extend(format!("{header:<117}\n").bytes());
        bytes.extend((0..20_u8).flat_map(|i| f32::from(i).to_le_bytes()));
        survive("npy", &bytes, |bytes| npy::read_cloud(Path::new("a.npy"), bytes));
    }
}

#[test]
fn edited_npz() {
    use npyz::WriterBuilder;
    let mut archive = npyz::npz::NpzWriter::new(std::io::Cursor::new(Vec::new()));
    let mut array =
        archive.array::<f32>("points", npz::deflated()).unwrap().default_dtype().shape(&[8, 3]).begin_nd().unwrap();
    array.extend((0..24_u8).map(f32::from)).unwrap();
    array.finish().unwrap();
    let bytes = archive.zip_writer().finish().unwrap().into_inner();
    survive("npz", &bytes, |bytes| npz::read_cloud(Path::new("a.npz"), bytes));
}

#[test]
fn edited_bin() {
    let bytes: Vec<u8> = (0..80_u8).flat_map(|i| (f32::from(i) / 80.0).to_le_bytes()).collect();
    survive("bin", &bytes, |bytes| bin::read(Path::new("a.bin"), bytes, &ReadOptions::default()));
}
