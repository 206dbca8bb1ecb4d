//! What the program writes: for people, or as JSON lines.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

pub mod bench;
pub mod human;
pub mod plan;
pub mod scores;
mod table;
mod train;

pub use table::Table;
pub use train::TrainPrinter;

/// Where output goes and how much of it. JSON mode keeps everything but JSON off stdout.
#[derive(Clone, Copy)]
pub struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    pub fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet }
    }

    pub fn is_json(self) -> bool {
        self.json
    }

    pub fn is_quiet(self) -> bool {
        self.quiet
    }

    /// Whether a progress bar makes sense: somebody watches, and nothing parses.
    pub fn wants_bar(self) -> bool {
        !self.json && !self.quiet && io::stdout().is_terminal() && io::stderr().is_terminal()
    }

    /// A progress bar over `len` steps where one makes sense. `text`, as indicatif has it, stands behind the numbers.
    pub fn bar(self, len: usize, text: &str) -> Option<ProgressBar> {
        let style = ProgressStyle::with_template(&format!("[{{bar:24}}] {{pos}}/{{len}} {text}  ETA {{eta}}"));
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ");
        self.wants_bar().then(|| ProgressBar::new(len as u64).with_style(style))
    }

    /// A line on what is going on; `--quiet` and JSON drop it.
    pub fn line(self, text: impl Display) -> io::Result<()> {
        if self.json || self.quiet { Ok(()) } else { writeln!(io::stdout().lock(), "{text}") }
    }

    /// What the command was asked for, as text; JSON drops it.
    pub fn result(self, text: impl Display) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let text = text.to_string();
        writeln!(io::stdout().lock(), "{}", text.trim_end())
    }

    /// One object on a line of its own; text mode drops it.
    pub fn json(self, value: &Value) -> io::Result<()> {
        if self.json { writeln!(io::stdout().lock(), "{value}") } else { Ok(()) }
    }

    /// A line that matters whatever the mode; on stderr.
    pub fn warning(text: impl Display) {
        // A closed stderr is no reason to stop.
        let _ = writeln!(io::stderr(), "warning: {text}");
    }

    /// A remark for people that is no result; on stderr, so that a pipe stays clean.
    pub fn note(self, text: impl Display) {
        if !self.json && !self.quiet {
            let _ = writeln!(io::stderr(), "note: {text}");
        }
    }
}

/// How to start this program again from here: by its name where the shell found it, else by its path.
pub fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    if called.components().count() < 2 {
        return env!("CARGO_BIN_NAME").into();
    }
    let here = std::env::current_dir().unwrap_or_default();
    shell_word(&called.strip_prefix(here).unwrap_or(&called).to_string_lossy())
}

/// Text as one word of a POSIX shell, for commands to paste.
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:,@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_to_paste_survive_spaces_and_quotes() {
        assert_eq!(shell_word("runs/demo-1"), "runs/demo-1");
        assert_eq!(shell_word("my runs/a"), "'my runs/a'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }
}
