//! The header of a PLY file, parsed over bytes: names and comments may be in any encoding.

use std::path::Path;

use super::super::bytes::{quote, without_bom};
use crate::error::{Error, Place, Result};

/// Headers of real files stay under 10 KiB; a longer search would read a body.
const LONGEST_HEADER: usize = 64 << 10;
/// Splats have about 60; more come from a damaged header.
const MOST_PROPERTIES: usize = 1024;
const KEYWORDS: [&str; 6] = ["format", "comment", "obj_info", "element", "property", "end_header"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Ascii,
    Little,
    Big,
}

impl Encoding {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ascii => "ascii",
            Self::Little => "binary_little_endian",
            Self::Big => "binary_big_endian",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl Scalar {
    fn parse(word: &[u8]) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_slice() {
            b"char" | b"int8" | b"schar" => Self::I8,
            b"uchar" | b"uint8" | b"byte" => Self::U8,
            b"short" | b"int16" => Self::I16,
            b"ushort" | b"uint16" => Self::U16,
            b"int" | b"int32" => Self::I32,
            b"uint" | b"uint32" => Self::U32,
            b"int64" | b"long" => Self::I64,
            b"uint64" | b"ulong" => Self::U64,
            b"float" | b"float32" => Self::F32,
            b"double" | b"float64" => Self::F64,
            _ => return None,
        })
    }

    pub(super) fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Smallest and largest value of an integer type.
    pub(super) fn range(self) -> Option<(f64, f64)> {
        Some(match self {
            Self::I8 => (f64::from(i8::MIN), f64::from(i8::MAX)),
            Self::U8 => (0.0, f64::from(u8::MAX)),
            Self::I16 => (f64::from(i16::MIN), f64::from(i16::MAX)),
            Self::U16 => (0.0, f64::from(u16::MAX)),
            Self::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
            Self::U32 => (0.0, f64::from(u32::MAX)),
            Self::I64 => (i64::MIN as f64, i64::MAX as f64),
            Self::U64 => (0.0, u64::MAX as f64),
            Self::F32 | Self::F64 => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Scalar(Scalar),
    List { count: Scalar, item: Scalar },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Property {
    pub name: String,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Element {
    pub name: String,
    /// As the header claims; not yet compared with the file.
    pub count: u64,
    pub properties: Vec<Property>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub encoding: Encoding,
    pub elements: Vec<Element>,
    /// Offset of the first byte behind the header.
    pub body: usize,
    /// One-based number of the line that starts there.
    pub body_line: u64,
    pub notes: Vec<String>,
}

impl Header {
    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        if !super::is_ply(bytes) {
            let first = without_bom(bytes).split(|b| matches!(b, b'\n' | b'\r')).next().unwrap_or_default();
            return Err(Error::new(path, Place::Line(1), quote(first), "the word ply: this is no PLY file"));
        }
        let start = bytes.len() - without_bom(bytes).len();
        let limit = bytes.len().min(LONGEST_HEADER);
        let head = bytes.get(..limit).unwrap_or_default();
        // Lines end as the first one does; a line feed behind a lone CR would belong to a binary body.
        let line_end = head.iter().copied().skip(start).find(|b| matches!(b, b'\n' | b'\r'));
        let crlf =
            head.get(start..).is_some_and(|h| h.windows(2).find(|w| w[0] == b'\r' || w[0] == b'\n') == Some(b"\r\n"));
        let line_end = if crlf { b'\n' } else { line_end.unwrap_or(b'\n') };

        let mut encoding = None;
        let mut elements: Vec<Element> = Vec::new();
        let mut notes = Vec::new();
        let (mut at, mut number) = (start, 0);
        while let Some(length) = head[at..].iter().position(|b| *b == line_end) {
            let line = head[at..at + length].trim_ascii();
            at += length + 1;
            number += 1;
            let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).collect();
            let error = |found: String, expected: &str| Error::new(path, Place::Line(number), found, expected);
            let [keyword, arguments @ ..] = words.as_slice() else { continue };
            match keyword.to_ascii_lowercase().as_slice() {
                // The first line and remarks.
                b"ply" if number == 1 => {}
                b"comment" | b"obj_info" => {}
                b"format" => {
                    let parsed = parse_format(arguments, &mut notes).ok_or_else(|| {
                        error(quote(line), "format ascii, binary_little_endian or binary_big_endian, then 1.0")
                    })?;
                    if encoding.is_some_and(|before| before != parsed) {
                        return Err(error(quote(line), "one format: a line before names another"));
                    }
                    encoding = Some(parsed);
                }
                b"element" => {
                    elements.push(parse_element(arguments).ok_or_else(|| {
                        error(quote(line), "element, a name and a count that is a whole number, not negative")
                    })?);
                }
                b"property" => {
                    let property = parse_property(arguments).map_err(|expected| error(quote(line), expected))?;
                    let element =
                        elements.last_mut().ok_or_else(|| error(quote(line), "an element before its properties"))?;
                    if element.properties.len() == MOST_PROPERTIES {
                        let found = format!("more than {MOST_PROPERTIES} properties of the element {}", element.name);
                        return Err(error(found, "at most 1024").hint("The header is damaged"));
                    }
                    // Once a name: it is the second of how many there may be.
                    if element.properties.iter().filter(|p| p.name == property.name).count() == 1 {
                        let Element { name, .. } = element;
                        notes.push(format!(
                            "the element {name} has two properties {}; the first is used",
                            property.name
                        ));
                    }
                    element.properties.push(property);
                }
                b"end_header" => {
                    let encoding = encoding.ok_or_else(|| error(quote(line), "a line with the format before it"))?;
                    return Ok(Self { encoding, elements, body: at, body_line: number + 1, notes });
                }
                _ => return Err(unknown_keyword(path, number, line, keyword)),
            }
        }
        let end = head.get(at..).unwrap_or_default().trim_ascii();
        if end.eq_ignore_ascii_case(b"end_header") && limit == bytes.len() {
            // The last byte of a file without a body may be missing.
            if let Some(encoding) = encoding {
                return Ok(Self { encoding, elements, body: limit, body_line: number + 1, notes });
            }
        }
        let found = if limit < bytes.len() { "64 KiB without it" } else { "the end of the file" };
        Err(Error::new(path, Place::Line(number + 1), found, "the line end_header")
            .hint("The file was cut off, or it is no PLY file"))
    }
}

fn parse_format(arguments: &[&[u8]], notes: &mut Vec<String>) -> Option<Encoding> {
    let encoding = match arguments.first()?.to_ascii_lowercase().as_slice() {
        b"ascii" => Encoding::Ascii,
        b"binary_little_endian" => Encoding::Little,
        b"binary_big_endian" => Encoding::Big,
        _ => return None,
    };
    if let Some(version) = arguments.get(1).filter(|v| **v != b"1.0") {
        notes.push(format!("the header says PLY version {}; read as 1.0", String::from_utf8_lossy(version)));
    }
    Some(encoding)
}

fn parse_element(arguments: &[&[u8]]) -> Option<Element> {
    let [name, count, ..] = arguments else { return None };
    let count = std::str::from_utf8(count).ok()?.parse().ok()?;
    Some(Element { name: String::from_utf8_lossy(name).into_owned(), count, properties: Vec::new() })
}

/// A name is whatever stands behind the type; blanks inside become part of it.
fn parse_property(arguments: &[&[u8]]) -> Result<Property, &'static str> {
    const TYPES: &str = "one of the types char, uchar, short, ushort, int, uint, int64, uint64, float, double";
    let (kind, name) = match arguments {
        [list, count, item, name @ ..] if list.eq_ignore_ascii_case(b"list") => {
            let (Some(count), Some(item)) = (Scalar::parse(count), Scalar::parse(item)) else { return Err(TYPES) };
            if count.range().is_none() {
                return Err("an integer type for the length of a list");
            }
            (Kind::List { count, item }, name)
        }
        [scalar, name @ ..] => (Kind::Scalar(Scalar::parse(scalar).ok_or(TYPES)?), name),
        [] => return Err("property, a type and a name"),
    };
    if name.is_empty() {
        return Err("a name behind the type");
    }
    Ok(Property { name: String::from_utf8_lossy(&name.join(&b' ')).into_owned(), kind })
}

fn unknown_keyword(path: &Path, line_number: u64, line: &[u8], keyword: &[u8]) -> Error {
    // The whole line counts too: "end header" is nearest to end_header, "end" alone is not.
    let spellings = [String::from_utf8_lossy(keyword), String::from_utf8_lossy(line.get(..16).unwrap_or(line))];
    let distance = |known: &str| {
        spellings
            .iter()
            .map(|s| strsim::damerau_levenshtein(&s.to_ascii_lowercase(), known))
            .min()
            .unwrap_or(usize::MAX)
    };
    let nearest = KEYWORDS.iter().copied().min_by_key(|known| distance(known)).filter(|known| distance(known) <= 3);
    let hint = nearest.map(|known| format!("Did the writer mean {known}?")).unwrap_or_default();
    let expected = format!("a header line starting with {}", KEYWORDS.join(", "));
    Error::new(path, Place::Line(line_number), quote(line), expected).hint(hint)
}
