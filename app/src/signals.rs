//! Ctrl-C and SIGTERM: the first asks the work to save and end, the second ends the program at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::fail;

/// What the user or the system asked for so far.
#[derive(Clone)]
pub struct Signals {
    interrupted: Arc<AtomicBool>,
    terminated: Arc<AtomicBool>,
}

/// A limit on the size of files (`ulimit -f`) then fails the write, which is reported with the file's name, instead of
/// ending the program without a word.
pub fn survive_file_size_limit() {
    // Where the handler cannot be had, the program is no worse off than without it.
    #[cfg(unix)]
    let _ = flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

impl Signals {
    /// Takes over both signals for the rest of the program's life.
    pub fn install() -> io::Result<Self> {
        let signals = Self { interrupted: Arc::default(), terminated: Arc::default() };
        for (signal, seen, code) in
            [(SIGINT, &signals.interrupted, fail::INTERRUPTED), (SIGTERM, &signals.terminated, fail::TERMINATED)]
        {
            // A second one ends the program with what the signal means, never with "saved".
            let code = if code == fail::TERMINATED { 128 + SIGTERM } else { i32::from(code) };
            // Registered before the flag is set by the next line's handler: only a second signal finds it raised.
            flag::register_conditional_shutdown(signal, code, Arc::clone(seen))?;
            flag::register(signal, Arc::clone(seen))?;
        }
        Ok(signals)
    }

    /// Whether to stop soon.
    pub fn stop_asked(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) || self.terminated.load(Ordering::Relaxed)
    }

    /// Exit code of a run that ended early on request and was saved.
    pub fn saved_exit_code(&self) -> u8 {
        if self.terminated.load(Ordering::Relaxed) { fail::TERMINATED } else { fail::INTERRUPTED }
    }

    /// Exit code of work that ended early on request and had nothing to save: 128 and the signal's number.
    pub fn exit_code(&self) -> u8 {
        128 + if self.terminated.load(Ordering::Relaxed) { SIGTERM } else { SIGINT } as u8
    }
}
