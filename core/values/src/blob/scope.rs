//! Which blobs belong to the value that this thread encodes or decodes.

use std::cell::{Cell, RefCell};

use super::{Blob, Blobs, MIN_LEN, arena};
use crate::{kept_memory, transfer};

/// Where the bytes of large arrays go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Into the encoding.
    Together,
    /// Into blobs. There are none so far.
    Apart,
    /// Into blobs, which are in [`BLOBS`].
    ApartWithBlobs,
}

thread_local! {
    // Small values are encoded within nanoseconds: without blobs, a scope costs two accesses to
    // this.
    static MODE: Cell<Mode> = const { Cell::new(Mode::Together) };
    /// Whether the encoding depends on the value alone: see [`alone`].
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
    /// The blobs of the value that is being encoded.
    static BLOBS: RefCell<Vec<Blob>> = const { RefCell::new(Vec::new()) };
    /// The blobs of the value that is being decoded.
    static WITHIN: RefCell<Blobs> = RefCell::default();
}

/// Goes back to the mode and the blobs of the value around this one, also after a panic.
struct Restore {
    mode: Mode,
    blobs: Vec<Blob>,
}

impl Restore {
    /// Enters `mode`.
    #[inline]
    fn behind(mode: Mode) -> Restore {
        let mode = MODE.replace(mode);
        let blobs = if mode == Mode::ApartWithBlobs { BLOBS.take() } else { Vec::new() };
        Restore { mode, blobs }
    }
}

impl Drop for Restore {
    #[inline]
    fn drop(&mut self) {
        MODE.set(self.mode);
        if self.mode == Mode::ApartWithBlobs {
            BLOBS.set(std::mem::take(&mut self.blobs));
        }
    }
}

/// Runs `encode`, and returns the blobs of the values that it encodes.
#[inline]
pub(crate) fn apart<R>(encode: impl FnOnce() -> R) -> (R, Blobs) {
    let _restore = Restore::behind(Mode::Apart);
    let result = encode();
    let has_blobs = MODE.get() == Mode::ApartWithBlobs;
    (result, if has_blobs { BLOBS.take().into() } else { Blobs::default() })
}

/// As [`apart`], without shared memory: whether it has room does not matter, and nothing is copied
/// into it.
pub(crate) fn alone<R>(encode: impl FnOnce() -> R) -> (R, Blobs) {
    let _restore = transfer::Restore::behind(&IS_ALONE, true);
    apart(encode)
}

/// Returns whether shared memory is not to be used.
pub(crate) fn is_alone() -> bool {
    IS_ALONE.get()
}

/// Runs `encode`, whose values have their blobs in the encoding.
#[inline]
pub(crate) fn together<R>(encode: impl FnOnce() -> R) -> R {
    let _restore = Restore::behind(Mode::Together);
    encode()
}

/// Runs `decode` on a value that was encoded with these blobs.
#[inline]
pub(crate) fn within<R>(blobs: &Blobs, decode: impl FnOnce() -> R) -> R {
    // Most values have none, and are encoded without a number of one.
    let _restore = (!blobs.is_empty()).then(|| RestoreWithin(WITHIN.replace(blobs.clone())));
    decode()
}

/// Adds a blob to the value that this thread encodes. Returns its number, or `None` if the bytes
/// belong into the encoding.
pub(crate) fn add(blob: impl FnOnce() -> Blob) -> Option<u32> {
    if MODE.get() == Mode::Together {
        return None;
    }
    let blob = blob();
    MODE.set(Mode::ApartWithBlobs);
    BLOBS.with_borrow_mut(|blobs| {
        blobs.push(blob);
        u32::try_from(blobs.len() - 1).ok()
    })
}

/// Adds a blob with a copy of `bytes` in shared memory to the value that this thread encodes.
/// Returns its number, or `None` if the bytes belong into the encoding.
#[inline]
pub(crate) fn add_copy(bytes: &[u8]) -> Option<u32> {
    if bytes.len() < MIN_LEN || MODE.get() == Mode::Together || is_alone() {
        return None;
    }
    let blob = arena::copy_of(bytes)?;
    add(|| blob)
}

/// Returns whether the value that this thread decodes has blobs.
pub(crate) fn any() -> bool {
    WITHIN.with_borrow(|blobs| !blobs.is_empty())
}

/// Returns the blob of this number of the value that this thread decodes.
pub(crate) fn take(number: u32) -> Option<Blob> {
    let blob = WITHIN.with_borrow(|blobs| blobs.get(number as usize).cloned())?;
    kept_memory::note(blob.len());
    Some(blob)
}

struct RestoreWithin(Blobs);

impl Drop for RestoreWithin {
    fn drop(&mut self) {
        WITHIN.set(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob() -> Blob {
        Blob::private(bytes::Bytes::from_static(b"blob"))
    }

    #[test]
    fn each_value_has_its_own_blobs() {
        let (numbers, blobs) = apart(|| {
            let first = add(blob);
            let nested = together(|| add(blob));
            let (inner, inner_blobs) = apart(|| (add(blob), add(blob)));
            (first, nested, inner, inner_blobs.len(), add(blob))
        });
        assert_eq!(numbers, (Some(0), None, (Some(0), Some(1)), 2, Some(1)));
        assert_eq!(blobs.len(), 2);
        assert_eq!(add(blob), None, "the scope has ended");
    }

    #[test]
    fn a_panic_ends_the_scope() {
        let panicked = std::panic::catch_unwind(|| {
            apart(|| {
                add(blob);
                std::panic::panic_any(())
            })
        });
        assert!(panicked.is_err());
        assert_eq!(add(blob), None);
        assert!(apart(|| ()).1.is_empty());
    }
}
