//! Ascii bodies of PLY files.

use std::path::Path;

use super::super::bytes::quote;
use super::header::{Element, Kind, Property, Scalar};
use super::table::{Table, columns_of, fixed_stride};
use super::too_short;
use crate::error::{Error, Place, Result};

/// A row of 1,024 numbers takes 24 KiB; longer lines have lost their ends.
const LONGEST_LINE: usize = 1 << 20;

/// Blank-separated words of an ascii body. Rows may be split over lines and have blank lines between them.
pub(super) struct Words<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
    line: u64,
    line_start: usize,
}

impl<'a> Words<'a> {
    /// From `at`, where the line of number `line` begins.
    pub(super) fn new(path: &'a Path, bytes: &'a [u8], at: usize, line: u64) -> Self {
        Self { path, bytes, at, line, line_start: at }
    }

    pub(super) fn line(&self) -> u64 {
        self.line
    }

    pub(super) fn next(&mut self) -> Result<Option<&'a [u8]>> {
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
pub(super) fn ascii_rows<'a>(
    words: &mut Words,
    element: &Element,
    wanted: &[usize],
    rows_behind: u64,
    lenient: bool,
    notes: &mut Vec<String>,
) -> Result<Table<'a>> {
    let width = element.properties.len();
    if width == 0 {
        return Ok(Table::Columns { columns: Vec::new(), rows: 0 });
    }
    // A value takes a character and a blank at least.
    let left = words.bytes.len().saturating_sub(words.at);
    let fit = left / (2 * width) + 1;
    let mut columns = columns_of(element, wanted, usize::try_from(element.count).unwrap_or(usize::MAX).min(fit));
    let mut rows = 0;
    let mut slot_of = vec![None; width];
    for (slot, property) in wanted.iter().enumerate() {
        slot_of[*property] = Some(slot);
    }
    let mut row = vec![0.0; wanted.len()];
    let mut noted = false;
    let mut several_a_line = false;
    for number in 0..element.count {
        words.skip_blanks();
        let first_line = words.line;
        if ascii_row(words, element, &slot_of, lenient, &mut row)?.is_none() {
            if lenient {
                break;
            }
            return Err(too_short(words.path, Place::Line(words.line), element, number, " before the file ends"));
        }
        if lenient && words.at == words.bytes.len() && number + 1 < element.count {
            // The file ends within this row or right behind it: its last number may lack digits.
            break;
        }
        columns.iter_mut().zip(&row).for_each(|(column, value)| column.push(*value));
        rows += 1;
        if several_a_line {
            continue;
        }
        let rest = words.rest_of_line();
        let extra = words_of(rest);
        if extra > 0 && words.line != first_line {
            // Whole rows end with their line; this one took values of the next.
            let found = format!("values left over from the row that begins on line {first_line}");
            let expected = format!("{width} values in a row of the element {}", element.name);
            return Err(Error::new(words.path, Place::Line(words.line), found, expected)
                .hint("A row before lacks a value: export the file again"));
        }
        if extra > 0 && !noted {
            let rows_left = (element.count - number - 1).saturating_add(rows_behind);
            several_a_line = !lenient
                && fixed_stride(element).is_some()
                && extra.is_multiple_of(width)
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
    Ok(Table::Columns { columns, rows })
}

/// Lines with words behind this one.
fn lines_behind(words: &Words) -> u64 {
    let behind = words.bytes.get(words.at + words.rest_of_line().len()..).unwrap_or_default();
    behind.split(|byte| matches!(byte, b'\n' | b'\r')).filter(|line| !line.trim_ascii().is_empty()).count() as u64
}

/// `Ok(None)` at the end of the file.
fn ascii_row(
    words: &mut Words,
    element: &Element,
    slot_of: &[Option<usize>],
    lenient: bool,
    row: &mut [f64],
) -> Result<Option<()>> {
    for (property, slot) in element.properties.iter().zip(slot_of) {
        let Some(word) = words.next()? else { return Ok(None) };
        match property.kind {
            Kind::Scalar(kind) => {
                // Integers are checked where they are not used too: a row that lacks a value shifts into them.
                if slot.is_some() || (kind.range().is_some() && !row.is_empty()) {
                    let value = match number(word, kind) {
                        Some(value) => value,
                        None if lenient && words.at == words.bytes.len() => return Ok(None),
                        None => return Err(bad_number(words, word, property, kind)),
                    };
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
