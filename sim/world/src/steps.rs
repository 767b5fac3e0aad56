//! Changes of threads between two steps of the code, in binaries that are built for it: see
//! `scripts/rustc-steps.sh`. There, the code of fiber and of the program calls this module at each
//! of its basic blocks, so a thread may lose its turn between a test and what depends on it, or
//! while it holds a lock.

// LLVM's instrumentation calls functions by their names.
#![allow(unsafe_code)]

use fastrand::Rng;

use crate::world::me;

/// When a thread loses its turn.
#[derive(Debug)]
pub(crate) struct Preemption {
    /// The most steps from one time to the next.
    pause: u64,
    /// The steps that are left until then.
    left: u64,
    /// How often it may happen. Each change of threads takes microseconds of real time.
    budget: u32,
    /// The number of threads, of 256 that lose their turn, which sleep for a while.
    sleepers: u8,
}

/// A thread loses its turn after less than 2 to this power steps: some worlds have many changes of
/// threads, others few.
const MAX_PAUSE_BITS: u32 = 16;
/// How often threads of one world lose their turns, at most.
const BUDGET: u32 = 100_000;
/// The longest sleep, for each step of the longest pause, in nanoseconds: a step takes a microsecond
/// at most, so that no limit of time is met only because threads are slow.
const SLEEP: u64 = 1_000;

impl Preemption {
    /// Draws how often threads lose their turns in one world.
    pub(crate) fn draw(rng: &mut Rng) -> Preemption {
        let bits = rng.u32(3..=MAX_PAUSE_BITS);
        Preemption {
            pause: 1 << bits,
            left: rng.u64(1..=1 << bits),
            budget: BUDGET,
            sleepers: rng.u8(..),
        }
    }
}

/// LLVM calls this once for each part of the binary, with the place of its numbers.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __sanitizer_cov_trace_pc_guard_init(_: *mut u32, _: *mut u32) {}

/// LLVM calls this at each basic block.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __sanitizer_cov_trace_pc_guard(_: *mut u32) {
    let Some(me) = me() else { return };
    let state = me.state();
    let preemption = match &mut state.preemption {
        Some(preemption) => preemption,
        none => none.insert(Preemption::draw(&mut state.rng)),
    };
    preemption.left -= 1;
    if preemption.left > 0 {
        return;
    }
    if preemption.budget == 0 {
        preemption.left = u64::MAX;
        return;
    }
    preemption.budget -= 1;
    preemption.left = state.rng.u64(1..=preemption.pause);
    if state.rng.u8(..) < preemption.sleepers {
        let longest = state.rng.u64(1..=SLEEP * preemption.pause);
        me.lag(state.rng.u64(..longest));
    } else {
        me.pause();
    }
}
