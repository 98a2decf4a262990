//! A global allocator that counts the bytes of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

/// The system's allocator with a counter. A test program that uses it has one test, because all threads are counted.
pub struct CountingAllocator;

impl CountingAllocator {
    /// Returns the bytes that are allocated now.
    pub fn allocated() -> isize {
        ALLOCATED.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of bytes that were allocated at a time since [`CountingAllocator::reset_peak`].
    pub fn peak() -> isize {
        PEAK.load(Ordering::Relaxed)
    }

    /// Resets the peak to the bytes that are allocated now, and returns them.
    pub fn reset_peak() -> isize {
        let now = Self::allocated();
        PEAK.store(now, Ordering::Relaxed);
        now
    }

    /// Returns the number of allocations since the process began.
    pub fn allocations() -> usize {
        ALLOCATIONS.load(Ordering::Relaxed)
    }
}

// SAFETY: forwards every call unchanged to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() as isize;
        PEAK.fetch_max(ALLOCATED.fetch_add(size, Ordering::Relaxed) + size, Ordering::Relaxed);
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise about the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` with this layout, so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}
