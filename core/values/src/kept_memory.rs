//! The memory of large values, which stays with the process while they come.
//!
//! The system clears each page before it gives it out, which costs more than a copy. So blocks and
//! free pages of the [arena] are kept for the next value, and a thread gives them back once none has
//! come for a second. Memory that is new all the same gets huge pages.
//!
//! Blocks are glibc's, and so are those of users. Other allocators see an ordinary block.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use fiber_core::{start_thread, value_memory};
use rustix::mm::{Advice, madvise};

use crate::blob::arena;

/// Values of at least this many bytes are large.
const LARGE: usize = 8 << 20;

/// Blocks of up to this many bytes are always kept.
const ALWAYS: usize = 16 << 20;

/// Blocks of more bytes are never kept.
const LONGEST: usize = 256 << 20;

/// The time without large values after which memory goes back.
const IDLE: Duration = Duration::from_secs(1);

/// The longest time between two looks for memory of values that programs have kept for longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// Whether large values have come lately.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// The thread that gives memory back, if it could be started.
static KEEPER: OnceLock<Option<Thread>> = OnceLock::new();

/// Makes the allocator keep freed blocks of up to 16 MiB for the next value of that size.
///
/// glibc raises its threshold for mapped blocks to the size of one that is freed: smaller blocks
/// come from its heaps from then on, which keep twice as much at their ends (`M_MMAP_THRESHOLD` in
/// mallopt(3)). No page of this one is touched. If the address space is limited to less, large
/// blocks are not kept.
pub fn keep_large_blocks() {
    let mut block = Vec::<u8>::new();
    if block.try_reserve_exact(ALWAYS).is_ok() {
        drop(std::hint::black_box(block));
    }
}

/// Notes a value of `len` bytes, which may be a large one.
#[inline]
pub(crate) fn note(len: usize) {
    if len >= LARGE {
        note_large();
    }
}

#[cold]
fn note_large() {
    if !IN_USE.swap(true, Ordering::Relaxed)
        && let Some(keeper) = KEEPER.get_or_init(start)
    {
        keeper.unpark();
    }
}

/// Returns the length of the longest block that is kept, in bytes. A process with little memory for
/// values keeps less.
fn longest() -> usize {
    let share = value_memory::limit() / 16;
    usize::try_from(share).unwrap_or(usize::MAX).clamp(ALWAYS, LONGEST)
}

/// Returns how many bytes stay free for the next large values: `otherwise`, if none have come
/// lately.
pub(crate) fn kept_or(otherwise: usize) -> usize {
    if IN_USE.load(Ordering::Relaxed) { otherwise.max(2 * longest()) } else { otherwise }
}

fn start() -> Option<Thread> {
    let keeper = start_thread("fiber-memory", give_back_when_idle).ok()?;
    keep_blocks_of(longest());
    Some(keeper.thread().clone())
}

fn give_back_when_idle() {
    let mut pause = IDLE;
    loop {
        while IN_USE.swap(false, Ordering::Relaxed) {
            pause = IDLE;
            thread::sleep(IDLE);
        }
        arena::give_back();
        trim();
        thread::park_timeout(pause);
        pause = LONGEST_PAUSE.min(2 * pause);
    }
}

/// Keeps freed blocks of up to `len` bytes, and twice as much at the end of the heap.
#[cfg(target_env = "gnu")]
fn keep_blocks_of(len: usize) {
    let set = |option, bytes: usize| {
        // SAFETY: it sets a number, as `free` of any thread does.
        unsafe { libc::mallopt(option, bytes.try_into().unwrap_or(libc::c_int::MAX)) == 1 }
    };
    // Before 2.35, glibc takes no higher threshold.
    const HIGHEST: usize = 32 << 20;
    let _ = set(libc::M_MMAP_THRESHOLD, len) || set(libc::M_MMAP_THRESHOLD, HIGHEST);
    set(libc::M_TRIM_THRESHOLD, 2 * len);
}

/// Gives free pages back: of all heaps, but for the free end of those that are not the main one.
#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: it takes the locks of the heaps, and changes nothing that is in use.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn keep_blocks_of(_: usize) {}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

/// Gets huge pages for memory that is about to be written, if it is for a large value and the
/// system has them: one page fault in place of 512.
pub fn use_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
    let len = size_of_val(memory);
    if len < LARGE {
        return;
    }
    let start = memory.as_mut_ptr().cast::<u8>();
    let before = start.align_offset(rustix::param::page_size());
    // SAFETY: the advice changes no byte, and the range is a part of memory that is borrowed here.
    let _ = unsafe { madvise(start.add(before).cast(), len - before, Advice::LinuxHugepage) };
}
