//! Remarks on scans, each kind once: thousands of scans would say the same.

use std::collections::BTreeSet;

use crate::print::Output;

pub struct Notes {
    out: Output,
    said: BTreeSet<String>,
}

impl Notes {
    pub fn new(out: Output) -> Self {
        Self { out, said: BTreeSet::new() }
    }

    /// Prints the remark unless one of its kind was printed before.
    pub fn say(&mut self, scan: &str, note: &str) {
        if self.is_new(note) {
            self.out.note(format!("{scan}: {note}"));
        }
    }

    /// Remarks that differ in numbers alone are of one kind.
    fn is_new(&mut self, note: &str) -> bool {
        self.said.insert(note.chars().filter(|c| !c.is_ascii_digit() && !matches!(c, '-' | '.' | ',')).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_note_is_said_once() {
        let mut notes = Notes::new(Output::new(false, true));
        assert!(notes.is_new("as with --origin 7.20,-30.00,8.73"));
        assert!(!notes.is_new("as with --origin 11.50,4.25,-0.1"));
        assert!(notes.is_new("guessed 4 floats a point"));
    }
}
