//! One error for everything that comes from outside: it names the file, the place in it, what was found, what was
//! expected, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Where in a file something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    File,
    /// One-based line number.
    Line(u64),
    /// Zero-based byte offset.
    Byte(u64),
}

/// Bad input. `Display` is one sentence a user can act on:
/// `scan.ply, line 7: found "list", expected a scalar type. Write the file again with ...`
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    pub path: PathBuf,
    pub place: Place,
    pub found: String,
    pub expected: String,
    /// What the user can do; empty when the rest says it.
    pub hint: String,
}

impl Error {
    pub fn new(path: impl AsRef<Path>, place: Place, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            path: path.as_ref().to_path_buf(),
            place,
            found: found.into(),
            expected: expected.into(),
            hint: String::new(),
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// An operating system error about `path`.
    pub fn io(path: impl AsRef<Path>, error: &std::io::Error) -> Self {
        Self::new(path, Place::File, error.to_string(), "a readable file")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.as_os_str().is_empty() {
            write!(f, "{}", self.path.display())?;
            match self.place {
                Place::File => write!(f, ": ")?,
                Place::Line(line) => write!(f, ", line {line}: ")?,
                Place::Byte(byte) => write!(f, ", byte {byte}: ")?,
            }
        }
        write!(f, "found {}, expected {}", self.found, self.expected)?;
        if !self.hint.is_empty() {
            write!(f, ". {}", self.hint)?;
        }
        Ok(())
    }
}
