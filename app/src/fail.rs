//! From errors to one line on stderr and an exit code; and from panics, which are bugs, to one line too.

use std::io::{self, Write};
use std::panic;
use std::sync::{Mutex, PoisonError};

use occam_engine::Error;
use serde_json::json;

use crate::print::Output;

/// Exit code of a run that the user interrupted.
pub const INTERRUPTED: u8 = 130;
/// Exit code of a run that was saved because the system asked the program to end.
pub const TERMINATED: u8 = 75;

/// A mistake in what the user asked for.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Error::Usage(message.into()).into()
}

/// Exit code of an error; 0 for a reader of our output that left early.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<Error>() {
            return error.exit_code();
        }
        if cause.is::<occam_engine::scene::Error>() {
            return 2;
        }
        if cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) {
            return 0;
        }
    }
    1
}

/// Prints the error as one line on stderr and, in JSON mode, as an event on stdout, unless nobody is to be told, and gives
/// its exit code.
pub fn report(error: &anyhow::Error, out: Output) -> u8 {
    let code = exit_code(error);
    if code != 0 {
        let message = one_line(&format!("{error:#}"));
        // Nothing helps when stderr is closed as well.
        let _ = writeln!(io::stderr(), "error: {message}");
        let _ = out.json(&json!({ "event": "failed", "message": message, "exit_code": code }));
    }
    code
}

/// Text with its line breaks folded, so that an error stays one line in a log.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the last panic said. The engine catches panics of the libraries it stands on and turns them into errors, so a
/// panic is not printed where it happens, but by whoever finds the program ended by it.
static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

pub fn install_panic_hook() {
    panic::set_hook(Box::new(|info| {
        let message = one_line(info.payload_as_str().unwrap_or("unknown cause"));
        let place = info.location().map(|l| format!(" ({}:{})", l.file(), l.line())).unwrap_or_default();
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{message}{place}"));
    }));
}

/// The error for a program or thread that ended by a panic: a bug of ours, in one line.
pub fn bug() -> anyhow::Error {
    let panic = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
    let panic = panic.unwrap_or_else(|| "a thread ended without saying why".into());
    Error::Failed(format!("bug in occam {}: {panic}. Please report this line", env!("CARGO_PKG_VERSION"))).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use occam_engine::scene::error::Place;

    #[test]
    fn each_kind_of_error_has_its_exit_code() {
        let input = occam_engine::scene::Error::new("a.ply", Place::File, "nothing", "a header");
        assert_eq!(exit_code(&input.clone().into()), 2);
        assert_eq!(exit_code(&Error::from(input).into()), 2);
        assert_eq!(exit_code(&usage("no such preset")), 2);
        assert_eq!(exit_code(&Error::TooLarge("x".into()).into()), 3);
        assert_eq!(exit_code(&Error::Failed("x".into()).into()), 1);
        assert_eq!(exit_code(&Error::Interrupted.into()), INTERRUPTED);
        assert_eq!(exit_code(&io::Error::from(io::ErrorKind::BrokenPipe).into()), 0);
        assert_eq!(exit_code(&io::Error::from(io::ErrorKind::StorageFull).into()), 1);
    }
}
