//! The body of a PLY file: rows of the point element, whatever stands before it skipped.

use std::path::Path;

use super::super::bytes::count;
use super::super::origin::SHIFT_FROM_M;
use super::ascii::{Words, ascii_rows};
use super::header::{Element, Encoding, Header, Kind, Property, Scalar};
use super::too_short;
use crate::error::{Error, Place, Result};

/// Numbers of the rows, one slot for each property that was asked for.
pub(super) enum Table<'a> {
    /// Rows of one size, read where they lie.
    Fixed { body: &'a [u8], stride: usize, rows: usize, slots: Vec<(usize, Scalar)>, big_endian: bool },
    /// One column a slot.
    Columns { columns: Vec<Column>, rows: usize },
}

impl Table<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Fixed { rows, .. } | Self::Columns { rows, .. } => *rows,
        }
    }

    /// 64-bit integers beyond 2^53 are rounded.
    #[inline]
    pub(super) fn value(&self, row: usize, slot: usize) -> f64 {
        match self {
            Self::Fixed { body, stride, slots, big_endian, .. } => {
                let (offset, kind) = slots[slot];
                scalar(&body[row * stride + offset..], kind, *big_endian).unwrap_or_default()
            }
            Self::Columns { columns, .. } => columns[slot].value(row),
        }
    }
}

/// Values of one property in as few bytes as they need.
pub(super) enum Column {
    Bytes(Vec<u8>),
    /// Each exact, or declared as float and below [`SHIFT_FROM_M`].
    Narrow {
        values: Vec<f32>,
        float: bool,
    },
    Wide(Vec<f64>),
}

impl Column {
    fn new(kind: Scalar, rows: usize) -> Self {
        match kind {
            Scalar::U8 => Self::Bytes(Vec::with_capacity(rows)),
            _ => Self::Narrow { values: Vec::with_capacity(rows), float: kind == Scalar::F32 },
        }
    }

    /// `value` is one of the type that the column was made for.
    pub(super) fn push(&mut self, value: f64) {
        match self {
            Self::Bytes(values) => values.push(value as u8),
            Self::Narrow { values, float } => {
                let narrow = value as f32;
                // Text may hold more digits than its declared type: where they matter they are kept.
                let enough = *float && value.abs() < SHIFT_FROM_M;
                if enough || value.is_nan() || f64::from(narrow) == value {
                    values.push(narrow);
                } else {
                    let mut wide: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
                    wide.push(value);
                    *self = Self::Wide(wide);
                }
            }
            Self::Wide(values) => values.push(value),
        }
    }

    fn value(&self, row: usize) -> f64 {
        match self {
            Self::Bytes(values) => values[row].into(),
            Self::Narrow { values, .. } => values[row].into(),
            Self::Wide(values) => values[row],
        }
    }
}

/// Columns for the properties `wanted`, with room for `rows`.
pub(super) fn columns_of(element: &Element, wanted: &[usize], rows: usize) -> Vec<Column> {
    let kinds = wanted.iter().filter_map(|property| match element.properties.get(*property)?.kind {
        Kind::Scalar(kind) => Some(kind),
        Kind::List { .. } => None,
    });
    kinds.map(|kind| Column::new(kind, rows)).collect()
}

/// Number at the start of `bytes`; `None` when they are too few.
#[inline]
fn scalar(bytes: &[u8], kind: Scalar, big_endian: bool) -> Option<f64> {
    fn first<const N: usize>(bytes: &[u8], big_endian: bool) -> Option<[u8; N]> {
        let mut item = *bytes.first_chunk::<N>()?;
        if big_endian {
            item.reverse();
        }
        Some(item)
    }
    Some(match kind {
        Scalar::I8 => i8::from_le_bytes(first(bytes, big_endian)?).into(),
        Scalar::U8 => u8::from_le_bytes(first(bytes, big_endian)?).into(),
        Scalar::I16 => i16::from_le_bytes(first(bytes, big_endian)?).into(),
        Scalar::U16 => u16::from_le_bytes(first(bytes, big_endian)?).into(),
        Scalar::I32 => i32::from_le_bytes(first(bytes, big_endian)?).into(),
        Scalar::U32 => u32::from_le_bytes(first(bytes, big_endian)?).into(),
        Scalar::I64 => i64::from_le_bytes(first(bytes, big_endian)?) as f64,
        Scalar::U64 => u64::from_le_bytes(first(bytes, big_endian)?) as f64,
        Scalar::F32 => f32::from_le_bytes(first(bytes, big_endian)?).into(),
        Scalar::F64 => f64::from_le_bytes(first(bytes, big_endian)?),
    })
}

/// Reads the rows of the element number `index`; `wanted` are its properties to keep.
pub(super) fn read<'a>(
    path: &Path,
    bytes: &'a [u8],
    header: &Header,
    index: usize,
    wanted: &[usize],
    lenient: bool,
    notes: &mut Vec<String>,
) -> Result<Table<'a>> {
    let (before, element, behind) = (&header.elements[..index], &header.elements[index], &header.elements[index + 1..]);
    let table = match header.encoding {
        Encoding::Ascii => {
            let mut words = Words::new(path, bytes, header.body, header.body_line);
            let mut rows_behind = header.elements.iter().fold(0_u64, |sum, e| sum.saturating_add(e.count));
            for skipped in before {
                rows_behind = rows_behind.saturating_sub(skipped.count);
                ascii_rows(&mut words, skipped, &[], rows_behind, false, &mut Vec::new())?;
            }
            rows_behind = rows_behind.saturating_sub(element.count);
            let table = ascii_rows(&mut words, element, wanted, rows_behind, lenient, notes)?;
            if rows_behind == 0 && words.next()?.is_some() {
                notes.push(format!("line {} and what follows is more than the header declares", words.line()));
            }
            table
        }
        Encoding::Little | Encoding::Big => {
            let mut body = Body { bytes, at: header.body, big_endian: header.encoding == Encoding::Big };
            refuse_text(path, &body, header)?;
            for skipped in before {
                binary_rows(path, &mut body, skipped, &[], false)?;
            }
            let table = binary_rows(path, &mut body, element, wanted, lenient)?;
            note_bytes_behind(&body, behind, notes);
            table
        }
    };
    if (table.len() as u64) < element.count {
        notes.push(format!("the file ends after {} of {} points", table.len(), element.count));
    }
    Ok(table)
}

/// Numbers as text where the header says binary: as floats they would be points that look like any.
fn refuse_text(path: &Path, body: &Body, header: &Header) -> Result<()> {
    /// As many bytes of other data are not met to be digits and blanks alone.
    const FEWEST: usize = 16;
    const LOOKED_AT: usize = 1024;
    let start = body.left().get(..LOOKED_AT).unwrap_or(body.left());
    let is_number = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_whitespace() || b"+-.eE".contains(byte);
    if start.len() < FEWEST || !start.iter().all(is_number) || !start.iter().any(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let expected = format!("{}, as the header says", header.encoding.name());
    Err(Error::new(path, Place::Line(header.body_line), "numbers as text", expected)
        .hint("Write \"format ascii 1.0\" in the header"))
}

/// More bytes than declared often mean that the header lacks a property, and that the points are wrong.
fn note_bytes_behind(body: &Body, behind: &[Element], notes: &mut Vec<String>) {
    let mut expected = 0_u64;
    for element in behind {
        let Some(stride) = fixed_stride(element) else { return };
        expected = expected.saturating_add(element.count.saturating_mul(stride as u64));
    }
    let left = body.left().len() as u64;
    if left > expected {
        let more = count(left - expected, "byte");
        notes.push(format!(
            "the file has {more} more than its header declares: if the points look wrong, the header is"
        ));
    }
}

/// Bytes of a row, where all rows have the same.
pub(super) fn fixed_stride(element: &Element) -> Option<usize> {
    element.properties.iter().try_fold(0, |stride, property| match property.kind {
        Kind::Scalar(kind) => Some(stride + kind.size()),
        Kind::List { .. } => None,
    })
}

/// Place in a binary body.
struct Body<'a> {
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
}

impl<'a> Body<'a> {
    fn left(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn scalar(&mut self, kind: Scalar) -> Option<f64> {
        let value = scalar(self.left(), kind, self.big_endian)?;
        self.at += kind.size();
        Some(value)
    }

    fn skip(&mut self, size: usize) -> Option<()> {
        if size > self.left().len() {
            return None;
        }
        self.at += size;
        Some(())
    }
}

fn binary_rows<'a>(
    path: &Path,
    body: &mut Body<'a>,
    element: &Element,
    wanted: &[usize],
    lenient: bool,
) -> Result<Table<'a>> {
    let mut stride = 0;
    let mut scalars = Vec::with_capacity(element.properties.len());
    for property in &element.properties {
        if let Kind::Scalar(kind) = property.kind {
            scalars.push((stride, kind));
            stride += kind.size();
        }
    }
    if scalars.len() < element.properties.len() {
        return binary_rows_with_lists(path, body, element, wanted, lenient);
    }
    let left = body.left();
    // Rows without properties take no bytes, however many there are.
    let fit = left.len().checked_div(stride).unwrap_or(usize::MAX);
    let rows = usize::try_from(element.count).unwrap_or(usize::MAX).min(fit);
    if (rows as u64) < element.count && !lenient {
        let bytes = format!(" in {} of body ({stride} a row)", count(left.len() as u64, "byte"));
        return Err(too_short(path, Place::Byte(body.at as u64), element, rows as u64, &bytes));
    }
    body.at += rows.saturating_mul(stride).min(left.len());
    let slots = wanted.iter().filter_map(|property| scalars.get(*property).copied()).collect();
    Ok(Table::Fixed { body: left, stride, rows, slots, big_endian: body.big_endian })
}

fn binary_rows_with_lists<'a>(
    path: &Path,
    body: &mut Body<'a>,
    element: &Element,
    wanted: &[usize],
    lenient: bool,
) -> Result<Table<'a>> {
    // Each row has a byte at least, so the loop ends with the file.
    let mut columns = columns_of(element, wanted, 0);
    let mut rows = 0;
    let mut row = vec![0.0; element.properties.len()];
    for number in 0..element.count {
        let start = body.at;
        if binary_row(path, body, element, lenient, &mut row)?.is_none() {
            if lenient {
                break;
            }
            return Err(too_short(path, Place::Byte(start as u64), element, number, " before the file ends"));
        }
        columns.iter_mut().zip(wanted).for_each(|(column, property)| column.push(row[*property]));
        rows += 1;
    }
    Ok(Table::Columns { columns, rows })
}

/// `Ok(None)` at the end of the file.
fn binary_row(path: &Path, body: &mut Body, element: &Element, lenient: bool, row: &mut [f64]) -> Result<Option<()>> {
    for (Property { name, kind }, value) in element.properties.iter().zip(row) {
        match *kind {
            Kind::Scalar(kind) => match body.scalar(kind) {
                Some(number) => *value = number,
                None => return Ok(None),
            },
            Kind::List { count: length_kind, item } => {
                let start = body.at as u64;
                let Some(length) = body.scalar(length_kind) else { return Ok(None) };
                let left = body.left().len();
                let size = length * item.size() as f64;
                if lenient && length >= 0.0 && size > left as f64 {
                    return Ok(None);
                }
                if length < 0.0 || size > left as f64 {
                    let found = format!("a list of {length} entries with {} left", count(left as u64, "byte"));
                    let expected = format!("a length of {name} that the file can hold");
                    return Err(Error::new(path, Place::Byte(start), found, expected)
                        .hint("The file was cut off or its header does not match its body"));
                }
                if body.skip(size as usize).is_none() {
                    return Ok(None);
                }
            }
        }
    }
    Ok(Some(()))
}
