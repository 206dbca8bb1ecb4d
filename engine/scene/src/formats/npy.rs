//! numpy `.npy` arrays.
//!
//! The header is read here: three keys need no Python parser, and one that recurses or multiplies unchecked is a way
//! to end the program from a file. Sizes are compared with the file before anything is allocated.

#[cfg(test)]
mod tests;

use std::path::Path;

use super::bytes::{self, count, quote};
use super::{ReadCloud, origin};
use crate::cloud::PointCloud;
use crate::error::{Error, Place, Result};

pub(super) const MAGIC: &[u8] = b"\x93NUMPY";
/// numpy writes 118 bytes for plain arrays; version 2 headers may claim 4 GiB.
const LONGEST_HEADER: usize = 64 << 10;
/// numpy itself stops at 64.
const MOST_AXES: usize = 64;

/// Numbers of an array, in the narrowest of four types that holds the one on disk.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// From bool (0 and 1) and u8.
    U8(Vec<u8>),
    /// From every other integer type.
    I64(Vec<i64>),
    /// From f16 and f32.
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Values {
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Value as f64; integers beyond 2^53 are rounded. 0 outside the array.
    pub fn at(&self, index: usize) -> f64 {
        match self {
            Self::U8(v) => v.get(index).copied().map_or(0.0, f64::from),
            Self::I64(v) => v.get(index).copied().map_or(0.0, |i| i as f64),
            Self::F32(v) => v.get(index).copied().map_or(0.0, f64::from),
            Self::F64(v) => v.get(index).copied().unwrap_or(0.0),
        }
    }
}

/// An array with its last axis fastest, whatever the order on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    pub shape: Vec<usize>,
    /// Type on disk in numpy's letters: `<f4`, `|u1`, `>i8`.
    pub dtype: String,
    pub values: Values,
}

impl Array {
    /// The values as class ids or masks.
    ///
    /// # Errors
    ///
    /// When a value is no whole number of 0..255; `path` is for the message.
    pub fn into_u8(self, path: &Path) -> Result<Vec<u8>> {
        if let Values::U8(values) = self.values {
            return Ok(values);
        }
        (0..self.values.len())
            .map(|index| {
                let value = self.values.at(index);
                if value.fract() == 0.0 && (0.0..=255.0).contains(&value) {
                    Ok(value as u8)
                } else {
                    let found = format!("the value {value} at index {index}");
                    Err(Error::new(path, Place::File, found, "whole numbers of 0 to 255"))
                }
            })
            .collect()
    }
}

/// Reads an array of booleans, integers or floats, of either byte order and either memory order.
///
/// # Errors
///
/// For anything else: pickled objects, structured types, headers over 64 KiB, sizes that the file does not have.
pub fn read_npy(path: &Path) -> Result<Array> {
    let bytes = bytes::load(path)?;
    bytes::refuse_foreign(path, &bytes)?;
    parse(path, "", &bytes)
}

/// Parses the bytes of a `.npy`; `entry` names the member of an archive, or is empty.
pub(super) fn parse(path: &Path, entry: &str, bytes: &[u8]) -> Result<Array> {
    let raw = Raw::open(path, entry, bytes)?;
    let values = raw.kind.decode(raw.body, raw.big_endian).ok_or_else(|| {
        let of = if entry.is_empty() { String::new() } else { format!(" in {entry}") };
        Error::new(path, Place::File, format!("an integer above 9223372036854775807{of}"), "smaller integers")
    })?;
    let Header { descr, fortran_order, shape } = raw.header;
    let values = if fortran_order && !values.is_empty() { reorder(values, &shape) } else { values };
    Ok(Array { shape, dtype: descr, values })
}

/// An array where it lies; its size was compared with the file.
struct Raw<'a> {
    header: Header,
    kind: Kind,
    big_endian: bool,
    /// The items and nothing more.
    body: &'a [u8],
}

impl Raw<'_> {
    /// Number in an array of two axes.
    fn at(&self, row: usize, column: usize) -> f64 {
        let &[rows, columns] = self.header.shape.as_slice() else { return 0.0 };
        let item = if self.header.fortran_order { column * rows + row } else { row * columns + column };
        self.kind.number(self.body.get(item * self.kind.size()..).unwrap_or_default(), self.big_endian)
    }
}

impl<'a> Raw<'a> {
    fn open(path: &Path, entry: &str, bytes: &'a [u8]) -> Result<Self> {
        let of = if entry.is_empty() { String::new() } else { format!(" in {entry}") };
        let error = |at: usize, found: String, expected: &str| {
            Error::new(path, Place::Byte(at as u64), format!("{found}{of}"), expected)
        };
        let file = |found: String, expected: String| Error::new(path, Place::File, format!("{found}{of}"), expected);
        if !bytes.starts_with(MAGIC) {
            return Err(error(0, quote(bytes.get(..8).unwrap_or(bytes)), "a numpy array (\\x93NUMPY)"));
        }
        let cut = || file("a header that is cut off".into(), "a whole .npy file".into());
        let version = *bytes.get(6).ok_or_else(cut)?;
        let (length, start) = match version {
            1 => {
                let field = bytes.get(8..10).and_then(|b| b.try_into().ok()).ok_or_else(cut)?;
                (usize::from(u16::from_le_bytes(field)), 10)
            }
            2 | 3 => {
                let field = bytes.get(8..12).and_then(|b| b.try_into().ok()).ok_or_else(cut)?;
                (u32::from_le_bytes(field) as usize, 12)
            }
            _ => return Err(error(6, format!("format version {version}"), "version 1, 2 or 3")),
        };
        if length > LONGEST_HEADER {
            return Err(error(8, format!("a header of {length} bytes"), "at most 65536"));
        }
        let text = bytes.get(start..start + length).ok_or_else(cut)?;
        let header =
            Header::parse(text).map_err(|problem| error(start + problem.at, problem.found, problem.expected))?;
        let (kind, big_endian) = Kind::of(&header.descr).ok_or_else(|| {
            let hint = if header.descr.contains('O') {
                "It holds pickled Python objects: re-save it without pickle, as plain numbers"
            } else {
                "Re-save it as plain numbers"
            };
            error(start, format!("the type {}", quote(header.descr.as_bytes())), "booleans, integers or floats")
                .hint(hint)
        })?;
        let items = header.shape.iter().try_fold(1_usize, |product, side| product.checked_mul(*side));
        let body = bytes.get(start + length..).unwrap_or_default();
        let needed = items.and_then(|items| items.checked_mul(kind.size()));
        let Some(length) = needed.filter(|needed| *needed <= body.len()) else {
            let needed = needed.map_or_else(|| "more bytes than memory has".into(), |n| count(n as u64, "byte"));
            return Err(file(
                count(body.len() as u64, "byte") + " of data",
                format!("{needed} for shape {:?}", header.shape),
            )
            .hint("The file was cut off, or its header is damaged"));
        };
        Ok(Self { header, kind, big_endian, body: &body[..length] })
    }
}

/// Number types, with their sizes on disk.
#[derive(Clone, Copy)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
}

impl Kind {
    fn of(descr: &str) -> Option<(Self, bool)> {
        let (order, name) = descr.split_at_checked(1)?;
        let kind = match name {
            "b1" | "u1" => Self::U8,
            "i1" => Self::I8,
            "u2" => Self::U16,
            "i2" => Self::I16,
            "u4" => Self::U32,
            "i4" => Self::I32,
            "u8" => Self::U64,
            "i8" => Self::I64,
            "f2" => Self::F16,
            "f4" => Self::F32,
            "f8" => Self::F64,
            _ => return None,
        };
        match order {
            ">" => Some((kind, true)),
            "<" | "|" | "=" => Some((kind, false)),
            _ => None,
        }
    }

    fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Number at the start of `bytes`; integers beyond 2^53 are rounded. 0 when the bytes are too few.
    fn number(self, bytes: &[u8], big_endian: bool) -> f64 {
        fn first<const N: usize>(bytes: &[u8], big_endian: bool) -> [u8; N] {
            let mut item = bytes.first_chunk::<N>().copied().unwrap_or([0; N]);
            if big_endian {
                item.reverse();
            }
            item
        }
        match self {
            Self::U8 => f64::from(u8::from_le_bytes(first(bytes, big_endian))),
            Self::I8 => f64::from(i8::from_le_bytes(first(bytes, big_endian))),
            Self::U16 => f64::from(u16::from_le_bytes(first(bytes, big_endian))),
            Self::I16 => f64::from(i16::from_le_bytes(first(bytes, big_endian))),
            Self::U32 => f64::from(u32::from_le_bytes(first(bytes, big_endian))),
            Self::I32 => f64::from(i32::from_le_bytes(first(bytes, big_endian))),
            Self::U64 => u64::from_le_bytes(first(bytes, big_endian)) as f64,
            Self::I64 => i64::from_le_bytes(first(bytes, big_endian)) as f64,
            Self::F16 => half::f16::from_le_bytes(first(bytes, big_endian)).to_f64(),
            Self::F32 => f64::from(f32::from_le_bytes(first(bytes, big_endian))),
            Self::F64 => f64::from_le_bytes(first(bytes, big_endian)),
        }
    }

    /// `None` when an unsigned 64-bit value does not fit in i64.
    fn decode(self, body: &[u8], big_endian: bool) -> Option<Values> {
        fn each<const N: usize, T>(body: &[u8], big_endian: bool, value: impl Fn([u8; N]) -> T) -> Vec<T> {
            let (items, _) = body.as_chunks::<N>();
            items
                .iter()
                .map(|item| {
                    let mut item = *item;
                    if big_endian {
                        item.reverse();
                    }
                    value(item)
                })
                .collect()
        }
        Some(match self {
            Self::U8 => Values::U8(body.to_vec()),
            Self::I8 => Values::I64(each(body, big_endian, |b| i8::from_le_bytes(b).into())),
            Self::U16 => Values::I64(each(body, big_endian, |b| u16::from_le_bytes(b).into())),
            Self::I16 => Values::I64(each(body, big_endian, |b| i16::from_le_bytes(b).into())),
            Self::U32 => Values::I64(each(body, big_endian, |b| u32::from_le_bytes(b).into())),
            Self::I32 => Values::I64(each(body, big_endian, |b| i32::from_le_bytes(b).into())),
            Self::U64 => {
                let values = each(body, big_endian, |b| i64::try_from(u64::from_le_bytes(b)).ok());
                Values::I64(values.into_iter().collect::<Option<_>>()?)
            }
            Self::I64 => Values::I64(each(body, big_endian, i64::from_le_bytes)),
            Self::F16 => Values::F32(each(body, big_endian, |b| half::f16::from_le_bytes(b).to_f32())),
            Self::F32 => Values::F32(each(body, big_endian, f32::from_le_bytes)),
            Self::F64 => Values::F64(each(body, big_endian, f64::from_le_bytes)),
        })
    }
}

/// First axis fastest to last axis fastest.
fn reorder(values: Values, shape: &[usize]) -> Values {
    fn turn<T: Copy>(values: &[T], shape: &[usize]) -> Vec<T> {
        let mut strides = vec![1; shape.len()];
        for axis in 1..shape.len() {
            strides[axis] = strides[axis - 1] * shape[axis - 1];
        }
        let from = |mut index: usize| {
            let mut at = 0;
            for axis in (0..shape.len()).rev() {
                at += index % shape[axis] * strides[axis];
                index /= shape[axis];
            }
            at
        };
        (0..values.len()).map(|index| values[from(index)]).collect()
    }
    match values {
        Values::U8(v) => Values::U8(turn(&v, shape)),
        Values::I64(v) => Values::I64(turn(&v, shape)),
        Values::F32(v) => Values::F32(turn(&v, shape)),
        Values::F64(v) => Values::F64(turn(&v, shape)),
    }
}

#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

struct Problem {
    at: usize,
    found: String,
    expected: &'static str,
}

impl Header {
    /// `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`, in any order of the keys. Python 2 wrote `2L`.
    fn parse(text: &[u8]) -> Result<Self, Problem> {
        let mut cursor = Cursor { text, at: 0 };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        cursor.expect(b'{', "a Python dictionary")?;
        while !cursor.take(b'}') {
            let key = cursor.string()?;
            cursor.expect(b':', "a colon")?;
            match key.as_str() {
                "descr" if cursor.peek() == Some(b'[') => {
                    return Err(cursor.problem("a plain type: structured arrays are not read, save one array a column"));
                }
                "descr" => descr = Some(cursor.string()?),
                "fortran_order" => fortran_order = Some(cursor.boolean()?),
                "shape" => shape = Some(cursor.shape()?),
                _ => return Err(cursor.problem("only the keys descr, fortran_order and shape")),
            }
            if !cursor.take(b',') && cursor.peek() != Some(b'}') {
                return Err(cursor.problem("a comma"));
            }
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => Ok(Self { descr, fortran_order, shape }),
            _ => Err(cursor.problem("the keys descr, fortran_order and shape")),
        }
    }
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    /// Next byte that is not blank.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn problem(&mut self, expected: &'static str) -> Problem {
        let found = match self.peek() {
            Some(_) => quote(self.text[self.at..].trim_ascii_end()),
            None => "the end of the header".into(),
        };
        Problem { at: self.at, found, expected }
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), Problem> {
        if self.take(byte) { Ok(()) } else { Err(self.problem(expected)) }
    }

    /// Bytes as long as `belongs` holds, from the next that is not blank.
    fn run(&mut self, belongs: impl Fn(u8) -> bool) -> &[u8] {
        self.peek();
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|b| !belongs(*b)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn string(&mut self) -> Result<String, Problem> {
        let Some(quote @ (b'\'' | b'"')) = self.peek() else { return Err(self.problem("a string")) };
        self.at += 1;
        let text = String::from_utf8_lossy(self.run(|b| b != quote)).into_owned();
        self.expect(quote, "the end of a string")?;
        Ok(text)
    }

    fn boolean(&mut self) -> Result<bool, Problem> {
        let start = self.at;
        match self.run(|b| b.is_ascii_alphabetic()) {
            b"True" => Ok(true),
            b"False" => Ok(false),
            _ => {
                self.at = start;
                Err(self.problem("True or False"))
            }
        }
    }

    fn shape(&mut self) -> Result<Vec<usize>, Problem> {
        self.expect(b'(', "a tuple of sides")?;
        let mut shape = Vec::new();
        while !self.take(b')') {
            let start = self.at;
            let side =
                std::str::from_utf8(self.run(|b| b.is_ascii_digit())).ok().and_then(|digits| digits.parse().ok());
            let (Some(side), true) = (side, shape.len() < MOST_AXES) else {
                self.at = start;
                return Err(self.problem("up to 64 sides that are whole numbers, not negative"));
            };
            shape.push(side);
            self.take(b'L');
            if !self.take(b',') && self.peek() != Some(b')') {
                return Err(self.problem("a comma"));
            }
        }
        Ok(shape)
    }
}

/// N x 3 and wider arrays are points; `entry` as in [`parse`].
pub(super) fn read_cloud(path: &Path, entry: &str, file: &[u8]) -> Result<ReadCloud> {
    let array = Raw::open(path, entry, file)?;
    let of = if entry.is_empty() { String::new() } else { format!(" in {entry}") };
    let (points, columns) = match array.header.shape.as_slice() {
        &[points, columns] if columns >= 3 => (points, columns),
        shape => {
            let found = format!("an array of shape {shape:?}{of}");
            return Err(Error::new(path, Place::File, found, "N rows of x, y, z and more"));
        }
    };
    bytes::check_room(path, points)?;
    let value = |row: usize, column: usize| array.at(row, column);
    let mut cloud = PointCloud::default();
    origin::set_positions(&mut cloud, points, |row| [value(row, 0), value(row, 1), value(row, 2)]);
    let mut notes = Vec::new();
    if columns > 3 {
        cloud.intensity = Some((0..points).map(|row| value(row, 3) as f32).collect());
        notes.push("column 4 was taken as intensity".into());
    }
    if columns > 4 {
        notes.push(format!("columns 5 to {columns} are not used"));
    }
    let format = format!("numpy {}, {points} x {columns}{of}", array.header.descr);
    Ok(ReadCloud { cloud, format, notes })
}
