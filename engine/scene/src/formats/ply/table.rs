//! The body of a PLY file: rows of the point element, whatever stands before it skipped.

use std::path::Path;

use super::super::bytes::{count, quote};
use super::header::{Element, Encoding, Header, Kind, Property, Scalar};
use super::too_short;
use crate::error::{Error, Place, Result};

/// A row of 1,024 numbers takes 24 KiB; longer lines have lost their ends.
const LONGEST_LINE: usize = 1 << 20;

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
            let mut words = Words { path, bytes, at: header.body, line: header.body_line, line_start: header.body };
            let mut rows_behind = header.elements.iter().fold(0_u64, |sum, e| sum.saturating_add(e.count));
            for skipped in before {
                rows_behind = rows_behind.saturating_sub(skipped.count);
                ascii_rows(&mut words, skipped, &[], rows_behind, false, &mut Vec::new())?;
            }
            rows_behind = rows_behind.saturating_sub(element.count);
            let table = ascii_rows(&mut words, element, wanted, rows_behind, lenient, notes)?;
            if rows_behind == 0 && words.next()?.is_some() {
                notes.push(format!("line {} and what follows is more than the header declares", words.line));
            }
            table
        }
        Encoding::Little | Encoding::Big => {
            let mut body = Body { bytes, at: header.body, big_endian: header.encoding == Encoding::Big };
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
fn fixed_stride(element: &Element) -> Option<usize> {
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
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
    line: u64,
    line_start: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<Option<&'a [u8]>> {
        self.skip_blanks();
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let length = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        self.at += length;
        self.check_line()?;
        Ok(Some(&rest[..length]))
    }

    fn skip_blanks(&mut self) {
        while let Some(byte) = self.bytes.get(self.at).copied().filter(u8::is_ascii_whitespace) {
            self.step_over(byte);
        }
    }

    /// Moves past a blank and counts the line it ends: LF, CR LF, or a CR alone.
    fn step_over(&mut self, byte: u8) {
        self.at += 1;
        if byte == b'\n' || (byte == b'\r' && self.bytes.get(self.at) != Some(&b'\n')) {
            self.line += 1;
            self.line_start = self.at;
        }
    }

    fn check_line(&self) -> Result<()> {
        if self.at - self.line_start <= LONGEST_LINE {
            return Ok(());
        }
        Err(Error::new(self.path, Place::Line(self.line), "more than 1 MiB without a line end", "one row a line")
            .hint("The line ends were lost, or the body is binary and the header says ascii"))
    }

    /// What is left of this line, without moving.
    fn rest_of_line(&self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
        &rest[..length]
    }
}

fn words_of(line: &[u8]) -> usize {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count()
}

/// `rows_behind`: rows of all elements that follow.
fn ascii_rows<'a>(
    words: &mut Words,
    element: &Element,
    wanted: &[usize],
    rows_behind: u64,
    lenient: bool,
    notes: &mut Vec<String>,
) -> Result<Table<'a>> {
    let width = wanted.len().max(1);
    let columns = element.properties.len();
    if columns == 0 {
        return Ok(Table::Flat { values: Vec::new(), width });
    }
    // A value takes a character and a blank at least.
    let left = words.bytes.len().saturating_sub(words.at);
    let fit = left / (2 * columns) + 1;
    let mut values = Vec::with_capacity(usize::try_from(element.count).unwrap_or(usize::MAX).min(fit) * wanted.len());
    let mut slot_of = vec![None; columns];
    for (slot, property) in wanted.iter().enumerate() {
        slot_of[*property] = Some(slot);
    }
    let mut row = vec![0.0; wanted.len()];
    let mut noted = false;
    let mut several_a_line = false;
    for number in 0..element.count {
        words.skip_blanks();
        let first_line = words.line;
        if ascii_row(words, element, &slot_of, &mut row)?.is_none() {
            if lenient {
                break;
            }
            return Err(too_short(words.path, Place::Line(words.line), element, number, " before the file ends"));
        }
        values.extend_from_slice(&row);
        if several_a_line {
            continue;
        }
        let rest = words.rest_of_line();
        let extra = words_of(rest);
        if extra > 0 && words.line != first_line {
            // Whole rows end with their line; this one took values of the next.
            let found = format!("values left over from the row that begins on line {first_line}");
            let expected = format!("{} values in a row of the element {}", columns, element.name);
            return Err(Error::new(words.path, Place::Line(words.line), found, expected)
                .hint("A row before lacks a value: export the file again"));
        }
        if extra > 0 && !noted {
            let rows_left = (element.count - number - 1).saturating_add(rows_behind);
            several_a_line = !lenient
                && fixed_stride(element).is_some()
                && extra.is_multiple_of(columns)
                && lines_behind(words) < rows_left;
            if several_a_line {
                continue;
            }
            noted = true;
            let line = words.line;
            notes.push(format!("line {line} has more values than the header declares; what is too much is ignored"));
        }
        words.at += rest.len();
        words.check_line()?;
    }
    Ok(Table::Flat { values, width })
}

/// Lines with words behind this one.
fn lines_behind(words: &Words) -> u64 {
    let behind = words.bytes.get(words.at + words.rest_of_line().len()..).unwrap_or_default();
    behind.split(|byte| matches!(byte, b'\n' | b'\r')).filter(|line| !line.trim_ascii().is_empty()).count() as u64
}

/// `Ok(None)` at the end of the file.
fn ascii_row(words: &mut Words, element: &Element, slot_of: &[Option<usize>], row: &mut [f64]) -> Result<Option<()>> {
    for (property, slot) in element.properties.iter().zip(slot_of) {
        let Some(word) = words.next()? else { return Ok(None) };
        match property.kind {
            Kind::Scalar(kind) => {
                // Integers are checked where they are not used too: a row that lacks a value shifts into them.
                if slot.is_some() || (kind.range().is_some() && !row.is_empty()) {
                    let value = number(word, kind).ok_or_else(|| bad_number(words, word, property, kind))?;
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
                    Error::new(words.path, Place::Line(words.line), quote(word), expected)
                })?;
                for _ in 0..length as u64 {
                    if words.next()?.is_none() {
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

fn bad_number(words: &Words, word: &[u8], property: &Property, kind: Scalar) -> Error {
    let expected = match kind.range() {
        Some((low, high)) => format!("a whole number of {low} to {high} for {}", property.name),
        None => format!("a number for {}", property.name),
    };
    let hint = if word.contains(&b',') { "Values are separated by blanks, with a point before decimals" } else { "" };
    Error::new(words.path, Place::Line(words.line), quote(word), expected).hint(hint)
}
