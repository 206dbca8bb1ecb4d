//! The body of a PLY file: rows of the point element, whatever stands before it skipped.

use std::path::Path;

use super::super::bytes::{count, quote};
use super::header::{Element, Encoding, Header, Kind, Property, Scalar};
use super::too_short;
use crate::error::{Error, Place, Result};

/// Numbers of the rows, one slot for each property that was asked for.
pub(super) enum Table<'a> {
    /// Rows of one size, read where they lie.
    Fixed { body: &'a [u8], stride: usize, rows: usize, slots: Vec<(usize, Scalar)>, big_endian: bool },
    /// Row after row, `width` numbers each.
    Flat { values: Vec<f64>, width: usize },
}

impl Table<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Fixed { rows, .. } => *rows,
            Self::Flat { values, width } => values.len() / width,
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
            Self::Flat { values, width } => values[row * width + slot],
        }
    }
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

/// Reads the rows of `element`, which stands behind the elements `before`; `wanted` are its properties to keep.
#[allow(clippy::too_many_arguments)]
pub(super) fn read<'a>(
    path: &Path,
    bytes: &'a [u8],
    header: &Header,
    before: &[Element],
    element: &Element,
    wanted: &[usize],
    lenient: bool,
    notes: &mut Vec<String>,
) -> Result<Table<'a>> {
    let table = match header.encoding {
        Encoding::Ascii => {
            let mut words = Words { bytes, at: header.body, line: header.body_line };
            for skipped in before {
                ascii_rows(path, &mut words, skipped, &[], false, &mut Vec::new())?;
            }
            ascii_rows(path, &mut words, element, wanted, lenient, notes)?
        }
        Encoding::Little | Encoding::Big => {
            let mut body = Body { bytes, at: header.body, big_endian: header.encoding == Encoding::Big };
            for skipped in before {
                binary_rows(path, &mut body, skipped, &[], false)?;
            }
            binary_rows(path, &mut body, element, wanted, lenient)?
        }
    };
    if (table.len() as u64) < element.count {
        notes.push(format!("the file ends after {} of {} points", table.len(), element.count));
    }
    Ok(table)
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
    let mut values = Vec::new();
    let width = wanted.len().max(1);
    let mut row = vec![0.0; element.properties.len()];
    for number in 0..element.count {
        let start = body.at;
        if binary_row(path, body, element, &mut row)?.is_none() {
            if lenient {
                break;
            }
            return Err(too_short(path, Place::Byte(start as u64), element, number, " before the file ends"));
        }
        values.extend(wanted.iter().map(|property| row[*property]));
    }
    Ok(Table::Flat { values, width })
}

/// `Ok(None)` at the end of the file.
fn binary_row(path: &Path, body: &mut Body, element: &Element, row: &mut [f64]) -> Result<Option<()>> {
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

/// Blank-separated words of an ascii body. Rows may be split over lines and have blank lines between them.
struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
    line: u64,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let byte = *self.bytes.get(self.at)?;
            if !byte.is_ascii_whitespace() {
                break;
            }
            self.step_over(byte);
        }
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        self.at += length;
        Some(&rest[..length])
    }

    /// Moves past a blank and counts the line it ends: LF, CR LF, or a CR alone.
    fn step_over(&mut self, byte: u8) {
        self.at += 1;
        if byte == b'\n' || (byte == b'\r' && self.bytes.get(self.at) != Some(&b'\n')) {
            self.line += 1;
        }
    }

    /// Drops the words left on this line and says whether there were any.
    fn finish_line(&mut self) -> bool {
        let mut words = false;
        while let Some(byte) = self.bytes.get(self.at).copied() {
            if byte == b'\n' || byte == b'\r' {
                break;
            }
            words |= !byte.is_ascii_whitespace();
            self.at += 1;
        }
        words
    }
}

fn ascii_rows<'a>(
    path: &Path,
    words: &mut Words,
    element: &Element,
    wanted: &[usize],
    lenient: bool,
    notes: &mut Vec<String>,
) -> Result<Table<'a>> {
    let width = wanted.len().max(1);
    if element.properties.is_empty() {
        return Ok(Table::Flat { values: Vec::new(), width });
    }
    // A value takes a character and a blank at least.
    let left = words.bytes.len().saturating_sub(words.at);
    let fit = left / (2 * element.properties.len()) + 1;
    let mut values = Vec::with_capacity(usize::try_from(element.count).unwrap_or(usize::MAX).min(fit) * wanted.len());
    let mut slot_of = vec![None; element.properties.len()];
    for (slot, property) in wanted.iter().enumerate() {
        slot_of[*property] = Some(slot);
    }
    let mut row = vec![0.0; wanted.len()];
    let mut extra_words = false;
    for number in 0..element.count {
        if ascii_row(path, words, element, &slot_of, &mut row)?.is_none() {
            if lenient {
                break;
            }
            return Err(too_short(path, Place::Line(words.line), element, number, " before the file ends"));
        }
        values.extend_from_slice(&row);
        if words.finish_line() && !extra_words {
            extra_words = true;
            let line = words.line;
            notes.push(format!("line {line} has more values than the header declares; what is too much is ignored"));
        }
    }
    Ok(Table::Flat { values, width })
}

/// `Ok(None)` at the end of the file.
fn ascii_row(
    path: &Path,
    words: &mut Words,
    element: &Element,
    slot_of: &[Option<usize>],
    row: &mut [f64],
) -> Result<Option<()>> {
    for (property, slot) in element.properties.iter().zip(slot_of) {
        let Some(word) = words.next() else { return Ok(None) };
        match property.kind {
            Kind::Scalar(kind) => {
                // Integers are checked where they are not used too: a row that lacks a value shifts into them.
                if slot.is_some() || (kind.range().is_some() && !row.is_empty()) {
                    let value = number(word, kind).ok_or_else(|| bad_number(path, words.line, word, property, kind))?;
                    if let Some(slot) = *slot {
                        row[slot] = value;
                    }
                }
            }
            Kind::List { count: kind, .. } => {
                let left = words.bytes.len() - words.at;
                let length = number(word, kind).filter(|length| *length >= 0.0 && *length <= left as f64);
                let length = length.ok_or_else(|| {
                    let expected = format!("a length of {} that the file can hold", property.name);
                    Error::new(path, Place::Line(words.line), quote(word), expected)
                })?;
                for _ in 0..length as u64 {
                    if words.next().is_none() {
                        return Ok(None);
                    }
                }
            }
        }
    }
    Ok(Some(()))
}

/// A number that fits its type; integers may be written as 255.0.
fn number(word: &[u8], kind: Scalar) -> Option<f64> {
    let value = parse_number(word)?;
    match kind.range() {
        Some((low, high)) => (value.fract() == 0.0 && (low..=high).contains(&value)).then_some(value),
        None => Some(value),
    }
}

/// What Rust parses (`.5`, `5.`, `1E3`, `+1`, `nan`, `-inf`), and how C runtimes of Windows spell NaN and infinity.
fn parse_number(word: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(word).ok()?;
    if let Ok(value) = text.parse() {
        return Some(value);
    }
    let lower = text.to_ascii_lowercase();
    let (negative, magnitude) = match lower.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, lower.strip_prefix('+').unwrap_or(&lower)),
    };
    let value = if magnitude.starts_with("1.#inf") {
        f64::INFINITY
    } else if ["1.#qnan", "1.#snan", "1.#ind", "1.#nan", "nan("].iter().any(|nan| magnitude.starts_with(nan)) {
        f64::NAN
    } else {
        return None;
    };
    Some(if negative { -value } else { value })
}

fn bad_number(path: &Path, line: u64, word: &[u8], property: &Property, kind: Scalar) -> Error {
    let expected = match kind.range() {
        Some((low, high)) => format!("a whole number of {low} to {high} for {}", property.name),
        None => format!("a number for {}", property.name),
    };
    let hint = if word.contains(&b',') { "Values are separated by blanks, with a point before decimals" } else { "" };
    Error::new(path, Place::Line(line), quote(word), expected).hint(hint)
}
