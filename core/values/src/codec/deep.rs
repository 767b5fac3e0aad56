//! Values that nest deeply: reading them takes a larger stack than a thread may have.
//!
//! A level takes up to some KB of the stack without optimization, and more with serde's
//! representations of enums that read a value before they know its type: these go down once more
//! after the value was read. So the writer marks a value of many levels, and the reader gets a
//! stack for all levels that a value may have, before it begins.

use super::SOME;

/// The most levels of a value, as in rmp-serde: a hostile value can't overflow the stack.
pub(super) const MOST_LEVELS: u16 = 1023;

/// The most levels of a value that is not marked. Any stack has room for them.
pub(super) const UNMARKED_LEVELS: u16 = 63;

/// Begins a value of more levels. `Some` and packed runs never begin like this.
pub(super) const MARK: [u8; 2] = [SOME, rmp::Marker::Map32.to_u8()];

/// 64 KiB for each level. The system provides only what is used.
const STACK: usize = 64 << 20;

/// Runs a function on a stack for all levels of a value.
#[cold]
#[inline(never)]
pub(super) fn on_a_large_stack(run: &mut dyn FnMut()) {
    stacker::grow(STACK, run);
}

/// Marks the value that begins at `at`.
#[cold]
#[inline(never)]
pub(super) fn mark(out: &mut Vec<u8>, at: usize) {
    out.splice(at..at, MARK);
}
