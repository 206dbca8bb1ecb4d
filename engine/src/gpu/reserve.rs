//! Memory set aside for the moment an allocation fails.
//!
//! Rust ends a program whose allocator has nothing left, and Burn, rayon and the loader's threads allocate where no error
//! can be given back. So a run sets a block of address space aside. When the system refuses an allocation, on whatever
//! thread, the [`CountingAllocator`](super::CountingAllocator) gives the block back, tries again, and notes the failure; the
//! next request at the gate gives it as [`Error::OutOfMemory`], the step is given up, what it held is freed, and the block is
//! set aside again.
//!
//! How large: what is allocated between a failure and the next request must fit in. The gate measures on the CPU how much
//! the program grows between two requests at most; the block is a quarter more than that, and 40 MiB for threads that do not
//! ask, which also makes it a block that allocators map by itself and give back whole. Before anything is measured it is a
//! quarter of what the system would give. It takes no memory, only address space, because nobody writes to it; where the
//! system counts promises, it takes a promise.
//!
//! What this cannot catch: a system that promises more than it has, as Linux does unless told otherwise, refuses nothing and
//! ends a program instead, when it writes. There the budget of a run, which is measured, is what keeps it within bounds.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use super::memory;
use crate::{Error, Result};

/// The block; null while there is none. Its first word holds its size.
static BLOCK: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// Threads that give the block back at the moment.
static FREEING: AtomicUsize = AtomicUsize::new(0);
/// How many look after failures: what fails while nobody does is told nobody.
static KEEPERS: AtomicUsize = AtomicUsize::new(0);
/// Size of the first allocation that the system refused since [`take_failure`]; 0 for none.
static FAILED: AtomicUsize = AtomicUsize::new(0);
/// In use at the last request, most in use since, and the largest growth from one request to the next.
static AT_REQUEST: AtomicUsize = AtomicUsize::new(0);
static SINCE_REQUEST: AtomicUsize = AtomicUsize::new(0);
static GROWTH: AtomicUsize = AtomicUsize::new(0);
/// Growth by fewer bytes is not worth a note.
const NOTED: usize = 4096;

const ALIGN: usize = 4096;
const MIB: u64 = 1 << 20;
/// For threads that pass no gate: loaders and faces. More than what the allocator of any system takes out of a larger block.
const FOR_OTHERS: u64 = 40 * MIB;

/// Keeps memory aside while it lives. All of a process share one block, and one of them is told of a failure.
#[derive(Debug)]
pub struct Reserve(());

impl Reserve {
    /// Begins to look after failures. [`Reserve::keep`] sets the first block aside.
    #[must_use]
    pub fn new() -> Self {
        if KEEPERS.fetch_add(1, SeqCst) == 0 {
            FAILED.store(0, SeqCst);
            mark_request();
            GROWTH.store(0, Relaxed);
        }
        Self(())
    }

    /// Sets aside as much as the measured growth between two requests asks for, unless that is there. What a program without
    /// the counting allocator does is not measured; it keeps nothing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the system does not give it.
    pub fn keep(&self) -> Result<()> {
        if memory::counted_bytes() == 0 {
            return Ok(());
        }
        let growth = GROWTH.load(Relaxed) as u64;
        let wanted = if growth == 0 { quarter_of_all() } else { growth + growth / 4 + FOR_OTHERS };
        let held = held();
        if held >= wanted && held / 2 <= wanted {
            return Ok(());
        }
        self.give_up();
        if set_aside(wanted) {
            return Ok(());
        }
        Err(Error::OutOfMemory(format!(
            "the system does not give the {} that a step may need",
            crate::bytes_text(wanted)
        )))
    }

    /// Gives the block back for good, to those who save a run that ends.
    pub fn give_up(&self) {
        give_back();
    }
}

impl Default for Reserve {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        if KEEPERS.fetch_sub(1, SeqCst) == 1 {
            give_back();
            FAILED.store(0, SeqCst);
        }
    }
}

/// Whether the system would give `bytes` in one piece, beside what the program has and keeps aside. Nothing is taken.
pub fn could_have(bytes: u64) -> bool {
    let Some(layout) = layout(bytes) else { return false };
    // SAFETY: the size is not zero, and the block is freed with the layout it was made with. `System` and not the program's
    // allocator, so that a refusal here is no failure of an allocation.
    unsafe {
        let block = System.alloc(layout);
        if block.is_null() {
            return false;
        }
        System.dealloc(block, layout);
    }
    true
}

/// Notes how far the program has grown since the last request.
pub(super) fn mark_request() {
    let now = memory::counted_bytes();
    let most = SINCE_REQUEST.swap(now, Relaxed);
    GROWTH.fetch_max(most.saturating_sub(AT_REQUEST.swap(now, Relaxed)), Relaxed);
}

/// Called by the allocator: it gave `bytes`, and `now` are in use.
pub(super) fn grown(bytes: usize, now: usize) {
    if bytes >= NOTED {
        SINCE_REQUEST.fetch_max(now, Relaxed);
    }
}

/// Size of an allocation that the system refused since the last call.
pub(super) fn take_failure() -> Option<u64> {
    // Every request looks; only a failure writes.
    if FAILED.load(Relaxed) == 0 {
        return None;
    }
    match FAILED.swap(0, SeqCst) {
        0 => None,
        bytes => Some(bytes as u64),
    }
}

/// What the allocator does when the system refused `bytes`: gives the block back and tries again; null when there is nothing
/// left and nobody keeps a reserve. Allocates nothing and does not unwind.
#[cold]
pub(super) fn again(bytes: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    if KEEPERS.load(SeqCst) == 0 {
        return ptr::null_mut();
    }
    let _ = FAILED.compare_exchange(0, bytes.max(1), SeqCst, SeqCst);
    // A second thread may fail while the first one frees, or while the trainer cleans up: both take a moment.
    for _ in 0..ATTEMPTS {
        give_back();
        let memory = allocate();
        if !memory.is_null() {
            return memory;
        }
        std::thread::sleep(PAUSE);
    }
    end();
    ptr::null_mut()
}

/// Ends the program with one line and the exit code of what does not fit, where Rust would abort it: the files of a run are
/// whole at any moment, and it goes on from its last checkpoint.
#[cfg(unix)]
fn end() {
    const LINE: &[u8] =
        b"error: out of memory, even of what was set aside for this; the run stands as of its last checkpoint\n";
    unsafe extern "C" {
        fn write(file: i32, bytes: *const u8, count: usize) -> isize;
        fn _exit(code: i32) -> !;
    }
    // SAFETY: the pointer and the length are those of a constant; both calls allocate nothing and run nothing of ours.
    unsafe {
        write(2, LINE.as_ptr(), LINE.len());
        _exit(3);
    }
}

/// Rust aborts.
#[cfg(not(unix))]
fn end() {}

/// Two seconds.
const ATTEMPTS: usize = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// Frees the block, or waits until the thread that does is done.
fn give_back() {
    FREEING.fetch_add(1, SeqCst);
    // SAFETY: whoever swaps the pointer out owns the block.
    unsafe { free(BLOCK.swap(ptr::null_mut(), SeqCst)) };
    FREEING.fetch_sub(1, SeqCst);
    while FREEING.load(SeqCst) > 0 {
        std::hint::spin_loop();
    }
}

/// # Safety
/// `block` is null or one that [`set_aside`] made, and nobody else has it.
unsafe fn free(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // SAFETY: `set_aside` wrote the block's size into its first word, for which it is aligned, and made it with this layout.
    unsafe {
        #[allow(clippy::cast_ptr_alignment)]
        let bytes = block.cast::<u64>().read();
        if let Some(layout) = layout(bytes) {
            System.dealloc(block, layout);
        }
    }
}

/// Sets a block aside in place of the one there is, which another keeper may have made.
fn set_aside(bytes: u64) -> bool {
    let Some(layout) = layout(bytes) else { return false };
    // SAFETY: the size is at least a page; the block is aligned for a word and ours alone until the pointer is stored. The
    // one that was there belongs to who swaps it out.
    unsafe {
        let block = System.alloc(layout);
        if block.is_null() {
            return false;
        }
        #[allow(clippy::cast_ptr_alignment)]
        block.cast::<u64>().write(bytes);
        free(BLOCK.swap(block, SeqCst));
    }
    SIZE.store(bytes, SeqCst);
    true
}

/// Size of the block that was set aside last.
static SIZE: AtomicU64 = AtomicU64::new(0);

fn held() -> u64 {
    if BLOCK.load(SeqCst).is_null() { 0 } else { SIZE.load(SeqCst) }
}

fn layout(bytes: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(bytes).ok()?.max(ALIGN), ALIGN).ok()
}

/// A quarter of the largest power of two that the system gives.
fn quarter_of_all() -> u64 {
    let sizes = (26..=36).rev().map(|power| 1u64 << power);
    sizes.into_iter().find(|bytes| could_have(*bytes)).unwrap_or(FOR_OTHERS) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test: the block is one of the process.
    #[test]
    fn the_block_is_given_back_when_an_allocation_fails_and_the_failure_is_told_once() {
        assert!(again(7, || panic!("nobody keeps anything")).is_null());
        let reserve = Reserve::new();
        assert!(set_aside(4 << 20));
        assert_eq!(held(), 4 << 20);
        let mut one = 1u8;
        let place = ptr::from_mut(&mut one);
        // The system refuses as long as the block is held.
        let given = again(7, || if held() == 0 { place } else { ptr::null_mut() });
        assert_eq!((given, held()), (place, 0));
        // A second failure before the first one was told.
        assert_eq!(again(9, || place), place);
        assert_eq!((take_failure(), take_failure()), (Some(7), None));
        // A second keeper sets aside in place of the first, and its end leaves the first one's.
        assert!(set_aside(4 << 20) && set_aside(2 << 20));
        drop(Reserve::new());
        assert_eq!(held(), 2 << 20);
        assert_eq!((again(5, || place), held(), take_failure()), (place, 0, Some(5)));
        drop(reserve);
        assert!(again(7, || place).is_null() && take_failure().is_none());
    }

    #[test]
    fn what_no_machine_has_is_not_given() {
        assert!(could_have(1 << 20));
        assert!(!could_have(u64::MAX / 4));
    }
}
