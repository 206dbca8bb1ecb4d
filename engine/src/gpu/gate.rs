//! The one gate that every request of training passes before it takes memory, and a switch that makes it fail.
//!
//! A request stands before the forward pass of a segment, its second run and its gradient, before every part of a loss,
//! before each parameter of the optimizer, before a snapshot or checkpoint is read back, and before every kernel of our
//! own. Requests of a process are counted; the switch ([`fail_request`], or the environment variable
//! `OCCAM_FAIL_REQUEST` for a whole run) makes some of them fail, which is how tests see what a run does when memory
//! ends at any place of a step.
//!
//! A kernel runs inside operations that cannot fail. Its refusal is written down, the operation goes on, and the next
//! request, or [`settle`] before a step changes anything, gives the error. So it goes with an allocation that failed and
//! got memory from what was set aside ([`super::Reserve`]).

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::reserve;
use crate::{Error, Result};

/// What is about to take memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// A segment's forward pass.
    Forward,
    /// A segment's second run.
    Recompute,
    /// A segment's gradient.
    Gradient,
    /// A loss over some planes of the grid, with its gradient.
    Loss,
    /// New weights and moments of one parameter.
    Optimizer,
    /// A prediction that is read back.
    Snapshot,
    /// Weights and moments that are read back.
    Checkpoint,
    /// A kernel of our own.
    Kernel,
}

impl Request {
    fn name(self) -> &'static str {
        match self {
            Self::Forward => "the forward pass of",
            Self::Recompute => "the second run of",
            Self::Gradient => "the gradient of",
            Self::Loss => "the loss over",
            Self::Optimizer => "the optimizer's step for",
            Self::Snapshot => "reading back",
            Self::Checkpoint => "saving",
            Self::Kernel => "the kernel",
        }
    }
}

/// Requests since the program began.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// First and last request that the switch makes fail, in the numbers of [`COUNT`]; 0 for none.
static FAIL_FROM: AtomicU64 = AtomicU64::new(0);
static FAIL_TO: AtomicU64 = AtomicU64::new(0);
/// A refusal that could not be given back where it happened.
static WRITTEN_DOWN: Mutex<Option<String>> = Mutex::new(None);
/// Whether [`WRITTEN_DOWN`] holds one: the only look a request that is granted takes.
static ANY_WRITTEN_DOWN: AtomicBool = AtomicBool::new(false);

/// Asks to go on; `what` names the segment, parameter or loss.
///
/// # Errors
/// [`Error::OutOfMemory`] when there was no memory for something since the last request, or the switch makes this one
/// fail.
pub fn request(kind: Request, what: &str) -> Result<()> {
    settle()?;
    if counts_as_refused() { Err(refused(kind, what)) } else { Ok(()) }
}

/// Asks to run a kernel, where no error can be given back: a refusal is written down.
pub fn request_kernel(what: &str) {
    if counts_as_refused() {
        write_down(refused(Request::Kernel, what).to_string());
    }
}

/// What was refused and written down since the last request. Stands where a step is about to change weights.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn settle() -> Result<()> {
    reserve::mark_request();
    if let Some(bytes) = reserve::take_failure() {
        forget_written_down();
        return Err(Error::OutOfMemory(format!("the system had no memory for {} more", crate::bytes_text(bytes))));
    }
    forget_written_down().map_or(Ok(()), |text| Err(Error::OutOfMemory(text)))
}

/// Forgets what was written down: whoever does it gives up what the refusal was about.
pub fn forget_refusals() {
    // The error was given before, or what failed is thrown away.
    let _ = settle();
}

fn forget_written_down() -> Option<String> {
    if !ANY_WRITTEN_DOWN.load(Relaxed) {
        return None;
    }
    ANY_WRITTEN_DOWN.store(false, Relaxed);
    WRITTEN_DOWN.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn write_down(text: String) {
    WRITTEN_DOWN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
    ANY_WRITTEN_DOWN.store(true, Relaxed);
}

fn counts_as_refused() -> bool {
    let number = COUNT.fetch_add(1, Relaxed) + 1;
    let from = FAIL_FROM.load(Relaxed);
    from > 0 && (from..=FAIL_TO.load(Relaxed)).contains(&number)
}

fn refused(kind: Request, what: &str) -> Error {
    Error::OutOfMemory(format!("no memory for {} {what}", kind.name()))
}

/// Requests that were made since the program began, on all threads.
pub fn requests() -> u64 {
    COUNT.load(Relaxed)
}

/// A switch for tests: the `k`-th request from now, counted from 1, fails once; `None` for none.
pub fn fail_request(k: Option<u64>) {
    fail_requests(k.map(|k| k..=k));
}

/// As [`fail_request`], for a range of requests.
pub fn fail_requests(range: Option<RangeInclusive<u64>>) {
    let (from, to) = range.map_or((0, 0), |range| {
        let now = COUNT.load(Relaxed);
        (now + (*range.start()).max(1), now.saturating_add(*range.end()))
    });
    FAIL_TO.store(to, Relaxed);
    FAIL_FROM.store(from, Relaxed);
}

/// Heeds `OCCAM_FAIL_REQUEST`, a switch for tests: `7` makes the 7th request from now fail, `7-9` three of them. A run
/// calls it before its first step.
///
/// # Errors
/// [`Error::Usage`] for a value that is neither.
pub fn heed_fail_request() -> Result<()> {
    let Some(text) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let text = text.to_string_lossy();
    let range = parse(&text).ok_or_else(|| {
        Error::Usage(format!("{VARIABLE}: found \"{text}\", expected the number of a request such as 7, or 7-9"))
    })?;
    fail_requests(Some(range));
    Ok(())
}

const VARIABLE: &str = "OCCAM_FAIL_REQUEST";

fn parse(text: &str) -> Option<RangeInclusive<u64>> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to): (u64, u64) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    (from >= 1 && to >= from).then_some(from..=to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_read_from_text() {
        assert_eq!(parse("7"), Some(7..=7));
        assert_eq!(parse("7-9"), Some(7..=9));
        for text in ["", "0", "x", "9-7", "7-", "-1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
