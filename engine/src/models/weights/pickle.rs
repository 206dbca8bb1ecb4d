//! Looks through pickles before anything reads them.
//!
//! A pickle is a program for Python's object builder. Nothing here or in the reader behind it runs one; this pass makes
//! sure that what the reader meets is small, whole, and asks for nothing but tensors and plain values.

use super::file::plain;

/// Bytes of the pickles of one file at most. Those of LMSCNet with its optimizer take 60 kB.
pub const MAX_BYTES: u64 = 16 << 20;

/// Each opcode can become an object of about a hundred bytes.
const MAX_OPCODES: usize = 1 << 20;

/// Why a file is not read.
#[derive(Debug)]
pub struct Refusal {
    /// Byte offset in the file.
    pub at: u64,
    pub found: String,
    pub expected: String,
    pub hint: &'static str,
}

impl Refusal {
    pub fn new(at: u64, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { at, found: found.into(), expected: expected.into(), hint: "" }
    }
}

/// Looks through `count` pickles that follow each other from the start of `bytes`, which lie `offset` bytes into the file.
pub fn check(bytes: &[u8], offset: u64, count: usize) -> Result<(), Refusal> {
    let mut scan = Scan { bytes, at: 0, opcodes: 0 };
    for _ in 0..count {
        if let Err(mut refusal) = scan.pickle() {
            refusal.at += offset;
            return Err(refusal);
        }
    }
    Ok(())
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    opcodes: usize,
}

/// Strings that opcodes put on the stack last, as far as they are known, and those that were memorized: names of classes
/// are made of them in protocol 4.
#[derive(Default)]
struct Strings<'a> {
    last: [Option<&'a [u8]>; 2],
    memo: std::collections::BTreeMap<u64, Option<&'a [u8]>>,
}

impl<'a> Strings<'a> {
    fn push(&mut self, value: Option<&'a [u8]>) {
        self.last = [self.last[1], value];
    }
}

impl<'a> Scan<'a> {
    fn refuse<T>(&self, found: impl Into<String>, expected: &str) -> Result<T, Refusal> {
        Err(Refusal::new(self.at as u64, found, expected))
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], Refusal> {
        let rest = &self.bytes[self.at..];
        match usize::try_from(count).ok().and_then(|count| rest.get(..count)) {
            Some(taken) => {
                self.at += taken.len();
                Ok(taken)
            }
            None if self.bytes.len() as u64 >= MAX_BYTES => {
                self.refuse("a pickle of more than 16 MiB", "the description of a few hundred tensors")
            }
            None => self.refuse(format!("{} bytes left", rest.len()), &format!("{count} more: the file is cut off")),
        }
    }

    fn number(&mut self, bytes: u64) -> Result<u64, Refusal> {
        let taken = self.take(bytes)?;
        Ok(taken.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// A value after its length, which takes `bytes` bytes.
    fn counted(&mut self, bytes: u64) -> Result<&'a [u8], Refusal> {
        let count = self.number(bytes)?;
        self.take(count)
    }

    fn line(&mut self) -> Result<&'a [u8], Refusal> {
        let length = self.bytes[self.at..].iter().position(|byte| *byte == b'\n');
        let line = self.take(length.map_or(u64::MAX, |length| length as u64))?;
        self.take(1)?;
        Ok(line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn index(&mut self) -> Result<u64, Refusal> {
        let line = self.line()?;
        match std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()) {
            Some(index) => Ok(index),
            None => self.refuse("no number", "the number of a memorized value"),
        }
    }

    /// From here to the opcode that ends a pickle.
    fn pickle(&mut self) -> Result<(), Refusal> {
        let mut strings = Strings::default();
        loop {
            self.opcodes += 1;
            if self.opcodes > MAX_OPCODES {
                return self.refuse("more than a million opcodes", "the description of a few hundred tensors");
            }
            let at = self.at;
            match self.take(1)?[0] {
                b'.' => return Ok(()),
                // Protocol and frame say nothing about values.
                0x80 => drop(self.take(1)?),
                0x95 => drop(self.take(8)?),
                // Strings.
                b'X' | b'T' => strings.push(Some(self.counted(4)?)),
                b'U' | 0x8c => strings.push(Some(self.counted(1)?)),
                0x8d => strings.push(Some(self.counted(8)?)),
                b'V' => strings.push(Some(self.line()?)),
                // Memory.
                b'q' => drop(strings.memo.insert(self.number(1)?, strings.last[1])),
                b'r' => drop(strings.memo.insert(self.number(4)?, strings.last[1])),
                b'p' => drop(strings.memo.insert(self.index()?, strings.last[1])),
                0x94 => drop(strings.memo.insert(strings.memo.len() as u64, strings.last[1])),
                b'h' => strings.push(strings.memo.get(&self.number(1)?).copied().flatten()),
                b'j' => strings.push(strings.memo.get(&self.number(4)?).copied().flatten()),
                b'g' => strings.push(strings.memo.get(&self.index()?).copied().flatten()),
                // Classes and functions by name.
                b'c' => {
                    let (module, name) = (self.line()?, self.line()?);
                    check_name(at, module, name)?;
                    strings.push(None);
                }
                0x93 => {
                    let [Some(module), Some(name)] = strings.last else {
                        return self.refuse("a class whose name is put together", "tensors and plain values");
                    };
                    check_name(at, module, name)?;
                    strings.push(None);
                }
                opcode => {
                    match opcode {
                        b'K' => drop(self.take(1)?),
                        b'M' => drop(self.take(2)?),
                        b'J' => drop(self.take(4)?),
                        b'G' => drop(self.take(8)?),
                        b'C' | 0x8a => drop(self.counted(1)?),
                        b'B' | 0x8b => drop(self.counted(4)?),
                        0x8e | 0x96 => drop(self.counted(8)?),
                        b'I' | b'L' | b'F' | b'P' => drop(self.line()?),
                        b'('
                        | b')'
                        | b']'
                        | b'}'
                        | b'N'
                        | b'0'
                        | b'1'
                        | b'2'
                        | b'R'
                        | b'b'
                        | b'd'
                        | b'l'
                        | b't'
                        | b's'
                        | b'a'
                        | b'e'
                        | b'u'
                        | b'Q'
                        | 0x81
                        | 0x85..=0x89
                        | 0x8f..=0x92 => {}
                        _ => {
                            return Err(Refusal::new(
                                at as u64,
                                format!("the byte {opcode:#04x}"),
                                "an opcode that torch.save writes",
                            ));
                        }
                    }
                    strings.push(None);
                }
            }
        }
    }
}

fn check_name(at: usize, module: &[u8], name: &[u8]) -> Result<(), Refusal> {
    if let (Ok(module), Ok(name)) = (str::from_utf8(module), str::from_utf8(name))
        && is_known(module, name)
    {
        return Ok(());
    }
    let text = |bytes: &[u8]| plain(&String::from_utf8_lossy(&bytes[..bytes.len().min(80)]));
    let (module, name) = (text(module), text(name));
    Err(Refusal {
        hint: "Nothing was run. In Python, save the weights alone: torch.save(model.state_dict(), FILE)",
        ..Refusal::new(at as u64, format!("the Python object {module}.{name}"), "tensors and plain values")
    })
}

/// Names that stand for tensors, containers and numbers.
fn is_known(module: &str, name: &str) -> bool {
    match module {
        "collections" => matches!(name, "OrderedDict" | "defaultdict" | "Counter"),
        "builtins" | "__builtin__" => {
            matches!(
                name,
                "set" | "frozenset" | "dict" | "list" | "tuple" | "int" | "float" | "bool" | "str" | "complex"
            )
        }
        "torch" => {
            name.ends_with("Storage")
                || matches!(name, "Size" | "device" | "bool" | "half" | "float" | "double" | "int" | "long")
                || ["float", "bfloat", "int", "uint"].iter().any(|kind| {
                    let bits = name.strip_prefix(kind);
                    bits.is_some_and(|bits| !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit()))
                })
        }
        "torch.storage" => name.ends_with("Storage"),
        "torch._utils" => name.starts_with("_rebuild_tensor") || name.starts_with("_rebuild_parameter"),
        "torch.nn.parameter" => name == "Parameter",
        "torch._tensor" => name == "_rebuild_from_type_v2",
        "numpy.core.multiarray" | "numpy._core.multiarray" => matches!(name, "scalar" | "_reconstruct"),
        "numpy" => matches!(name, "dtype" | "ndarray"),
        "numpy.dtypes" => name.ends_with("DType"),
        "_codecs" => name == "encode",
        _ => false,
    }
}
