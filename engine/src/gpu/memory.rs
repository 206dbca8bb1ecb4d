//! How much memory a device holds: Burn's pool on a GPU, a counting allocator on the CPU.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use burn::backend::wgpu::CubeTensor;
use burn::backend::{Backend, Cube};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

use super::reserve;

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

/// Bytes by what they are for, at the moment of a step that needed most. All but the cache add up to what was in use then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryKinds {
    /// Parameters and running statistics.
    pub weights: u64,
    /// Of parameters, and of values between segments.
    pub gradients: u64,
    /// Moments.
    pub optimizer: u64,
    /// What the tape held when the busiest stretch began: values and what segments keep for their backward pass.
    pub activations: u64,
    /// What that stretch took on top.
    pub workspace: u64,
    /// Taken from the driver and kept for reuse, after the step; 0 on the CPU.
    pub cache: u64,
    /// The batch on the device; on the CPU also what the loader and the rest of the program hold.
    pub data: u64,
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
    LAP.store(IN_USE.load(Relaxed), Relaxed);
    STEP.store(IN_USE.load(Relaxed), Relaxed);
    PEAK.store(IN_USE.load(Relaxed), Relaxed);
}

/// Starts a stretch of work whose own peak [`lap_peak`] gives. Longer peaks go on: those of the step and of the run.
pub fn start_lap(device: &Device) {
    if let Some(in_use) = gpu_in_use(device) {
        GPU_SAMPLES.start_lap(in_use);
    } else {
        let lap = LAP.swap(IN_USE.load(Relaxed), Relaxed);
        STEP.fetch_max(lap, Relaxed);
        PEAK.fetch_max(lap, Relaxed);
    }
}

/// Most bytes in use since [`start_lap`]. On the CPU exact: every allocation counts. On a GPU the most that was seen: now, at
/// the start, and while [`sample_launches`] is on, at every launch of a kernel of ours, when all that it reads and writes is
/// there. What only operations of Burn hold inside themselves is not seen. None where nobody counts.
pub fn lap_peak(device: &Device) -> Option<u64> {
    match gpu_in_use(device) {
        Some(in_use) => Some(GPU_SAMPLES.lap.load(Relaxed).max(in_use)),
        None => cpu_memory_use().map(|memory| memory.in_use_bytes.max(LAP.load(Relaxed) as u64)),
    }
}

/// Starts a stretch that may hold laps, whose own peak [`step_peak`] gives: a step.
pub fn start_step(device: &Device) {
    start_lap(device);
    match gpu_in_use(device) {
        Some(in_use) => GPU_SAMPLES.step.store(in_use, Relaxed),
        None => STEP.store(LAP.load(Relaxed), Relaxed),
    }
}

/// Most bytes in use since [`start_step`], as exact as [`lap_peak`].
pub fn step_peak(device: &Device) -> Option<u64> {
    let lap = lap_peak(device)?;
    let step = if gpu_in_use(device).is_some() { GPU_SAMPLES.step.load(Relaxed) } else { STEP.load(Relaxed) as u64 };
    Some(step.max(lap))
}

/// Whether a GPU's memory is read at every launch of a kernel: a call to the device's thread each, so only for steps that
/// are measured.
pub fn sample_launches(on: bool) {
    GPU_SAMPLES.at_launches.store(on, Relaxed);
}

/// Called by every launch.
pub(super) fn sample(tensor: &CubeTensor) {
    if GPU_SAMPLES.at_launches.load(Relaxed) {
        let in_use = Cube::memory_pool_usage(&tensor.device).map_or(0, |pool| pool.bytes_in_use);
        GPU_SAMPLES.lap.fetch_max(in_use, Relaxed);
    }
}

/// The most that was seen in use on a GPU. One program measures one device at a time.
struct GpuSamples {
    lap: AtomicU64,
    step: AtomicU64,
    at_launches: AtomicBool,
}

static GPU_SAMPLES: GpuSamples =
    GpuSamples { lap: AtomicU64::new(0), step: AtomicU64::new(0), at_launches: AtomicBool::new(false) };

impl GpuSamples {
    fn start_lap(&self, in_use: u64) {
        let lap = self.lap.swap(in_use, Relaxed);
        self.step.fetch_max(lap, Relaxed);
    }
}

/// None on the CPU.
fn gpu_in_use(device: &Device) -> Option<u64> {
    device.clone().without_autodiff().memory_pool_usage().map(|pool| pool.bytes_in_use)
}

fn cpu_memory_use() -> Option<MemoryUse> {
    let in_use = IN_USE.load(Relaxed);
    let in_use_bytes = in_use as u64;
    // A program that runs holds something: zero means that nobody counts.
    (in_use_bytes > 0).then(|| MemoryUse {
        in_use_bytes,
        reserved_bytes: in_use_bytes,
        peak_bytes: PEAK.load(Relaxed).max(STEP.load(Relaxed)).max(LAP.load(Relaxed)).max(in_use) as u64,
    })
}

static IN_USE: AtomicUsize = AtomicUsize::new(0);
/// Most since the lap began; what it was before that is in the next two.
static LAP: AtomicUsize = AtomicUsize::new(0);
static STEP: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Bytes in use; 0 where nobody counts.
pub(super) fn counted_bytes() -> usize {
    IN_USE.load(Relaxed)
}

fn grow(bytes: usize) {
    let now = IN_USE.fetch_add(bytes, Relaxed) + bytes;
    reserve::grown(bytes, now);
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

/// The system's allocator, counting: what makes [`memory_use`] work on the CPU. It asks for large pages too, and when the
/// system refuses it falls back on what a run has set aside ([`super::Reserve`]).
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: occam_engine::gpu::CountingAllocator = occam_engine::gpu::CountingAllocator;
/// ```
pub struct CountingAllocator;

// SAFETY: every method hands its arguments unchanged to `System` and returns what `System` returned, so `System` keeps
// the contract of `GlobalAlloc`; where `System` gave nothing, nothing has changed, and it may be asked again. The counting
// beside it touches atomics: it allocates nothing, cannot unwind (atomic arithmetic wraps) and looks at no memory; the advice
// beside it changes no memory, and the reserve frees a block that nobody else knows.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`, which is that of `System`.
        let allocate = || unsafe { System.alloc(layout) };
        let mut memory = allocate();
        if memory.is_null() {
            memory = reserve::again(layout.size(), allocate);
        }
        if !memory.is_null() {
            grow(layout.size());
            prefer_large_pages(memory, layout.size());
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        let allocate = || unsafe { System.alloc_zeroed(layout) };
        let mut memory = allocate();
        if memory.is_null() {
            memory = reserve::again(layout.size(), allocate);
        }
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
        let allocate = || unsafe { System.realloc(memory, layout, new_size) };
        let mut moved = allocate();
        if moved.is_null() {
            // What did not move is still there.
            moved = reserve::again(new_size, allocate);
        }
        if !moved.is_null() {
            match new_size.checked_sub(layout.size()) {
                Some(more) => grow(more),
                None => shrink(layout.size() - new_size),
            }
        }
        moved
    }
}
