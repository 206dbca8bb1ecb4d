//! How much memory a device holds: Burn's pool on a GPU, a counting allocator on the CPU.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use burn::tensor::Device;

/// One reading of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// Bytes of live tensors; on the CPU, of everything the program has allocated.
    pub in_use_bytes: u64,
    /// Bytes taken from the driver, with what is kept for reuse. On the CPU equal to `in_use_bytes`.
    pub reserved_bytes: u64,
    /// Most bytes taken since the start or since [`reset_peak`]. Exact on the CPU. On a GPU the most the pool has reserved:
    /// it keeps what a step once needed, so this holds also what lived only between two readings, rounded up to pages.
    pub peak_bytes: u64,
}

/// Most that the pool of every GPU device had reserved.
static GPU_PEAKS: Mutex<Vec<(Device, u64)>> = Mutex::new(Vec::new());

/// Reads the memory of `device`. Cheap, and exact between operations without waiting for the GPU.
/// None on the CPU when [`CountingAllocator`] is not installed.
pub fn memory_use(device: &Device) -> Option<MemoryUse> {
    let device = device.clone().without_autodiff();
    let Some(pool) = device.memory_pool_usage() else { return cpu_memory_use() };
    let mut peaks = GPU_PEAKS.lock().unwrap_or_else(PoisonError::into_inner);
    let place = peaks.iter().position(|(known, _)| *known == device).unwrap_or_else(|| {
        peaks.push((device, 0));
        peaks.len() - 1
    });
    let peak = &mut peaks[place].1;
    *peak = pool.bytes_reserved.max(*peak);
    Some(MemoryUse { in_use_bytes: pool.bytes_in_use, reserved_bytes: pool.bytes_reserved, peak_bytes: *peak })
}

/// Starts a new peak on every device.
pub fn reset_peak() {
    GPU_PEAKS.lock().unwrap_or_else(PoisonError::into_inner).clear();
    PEAK.store(IN_USE.load(Relaxed), Relaxed);
}

/// Starts a stretch of work whose own peak [`lap_peak`] gives. Peaks since the start stay as they are.
pub fn start_lap(_device: &Device) {
    LAP.store(IN_USE.load(Relaxed), Relaxed);
}

/// Most bytes in use since [`start_lap`]. None where nobody counts, as on a GPU.
pub fn lap_peak(device: &Device) -> Option<u64> {
    let device = device.clone().without_autodiff();
    if device.memory_pool_usage().is_some() {
        return None;
    }
    cpu_memory_use().map(|memory| memory.in_use_bytes.max(LAP.load(Relaxed) as u64))
}

fn cpu_memory_use() -> Option<MemoryUse> {
    let in_use_bytes = IN_USE.load(Relaxed) as u64;
    // A program that runs holds something: zero means that nobody counts.
    (in_use_bytes > 0).then(|| MemoryUse {
        in_use_bytes,
        reserved_bytes: in_use_bytes,
        peak_bytes: (PEAK.load(Relaxed) as u64).max(in_use_bytes),
    })
}

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LAP: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    let now = IN_USE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(now, Relaxed);
    LAP.fetch_max(now, Relaxed);
}

fn shrink(bytes: usize) {
    IN_USE.fetch_sub(bytes, Relaxed);
}

/// Asks for large pages for a large allocation, where the system leaves the choice to programs.
///
/// The tensors of a step are new allocations of tens of megabytes, which the system hands out page by page, each cleared
/// at its first touch: in pages of 4 KiB that takes longer than most operations on them.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn prefer_large_pages(memory: *mut u8, bytes: usize) {
    const PAGE_BYTES: usize = 2 << 20;
    const MADV_HUGEPAGE: i32 = 14;
    unsafe extern "C" {
        fn madvise(start: *mut u8, bytes: usize, advice: i32) -> i32;
    }
    // Large enough to hold a whole page wherever it begins.
    if bytes >= 2 * PAGE_BYTES {
        let before = memory.addr().next_multiple_of(PAGE_BYTES) - memory.addr();
        let whole = (bytes - before) / PAGE_BYTES * PAGE_BYTES;
        // SAFETY: advice on pages inside the allocation, which changes nothing of what they hold. Where it fails pages stay
        // small.
        unsafe { madvise(memory.wrapping_add(before), whole, MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn prefer_large_pages(_: *mut u8, _: usize) {}

/// The system's allocator, counting: what makes [`memory_use`] work on the CPU. It asks for large pages too.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: occam_engine::gpu::CountingAllocator = occam_engine::gpu::CountingAllocator;
/// ```
pub struct CountingAllocator;

// SAFETY: every method hands its arguments unchanged to `System` and returns what `System` returned, so `System` keeps
// the contract of `GlobalAlloc`. The counting beside it touches two atomics: it allocates nothing, cannot unwind
// (atomic arithmetic wraps) and looks at no memory; the advice beside it changes no memory.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`, which is that of `System`.
        let memory = unsafe { System.alloc(layout) };
        if !memory.is_null() {
            grow(layout.size());
            prefer_large_pages(memory, layout.size());
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            grow(layout.size());
            prefer_large_pages(memory, layout.size());
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller got `memory` from this allocator with this layout, hence from `System`.
        unsafe { System.dealloc(memory, layout) };
        shrink(layout.size());
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`, and the caller keeps `new_size` valid.
        let moved = unsafe { System.realloc(memory, layout, new_size) };
        if !moved.is_null() {
            match new_size.checked_sub(layout.size()) {
                Some(more) => grow(more),
                None => shrink(layout.size() - new_size),
            }
        }
        moved
    }
}
