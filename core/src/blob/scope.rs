//! Which blobs belong to the value that this thread encodes or decodes.

use std::cell::RefCell;

use super::{Blob, Blobs};

thread_local! {
    /// The blobs of the value that is being encoded; `None` if they go into the encoding.
    static APART: RefCell<Option<Vec<Blob>>> = const { RefCell::new(None) };
    /// The blobs of the value that is being decoded.
    static WITHIN: RefCell<Blobs> = RefCell::default();
}

/// Runs `encode`, and returns the blobs of the values that it encodes.
#[inline]
pub(crate) fn apart<R>(encode: impl FnOnce() -> R) -> (R, Blobs) {
    let _restore = RestoreApart(APART.replace(Some(Vec::new())));
    let result = encode();
    (result, APART.take().unwrap_or_default().into())
}

/// Runs `encode`, whose values have their blobs in the encoding.
#[inline]
pub(crate) fn together<R>(encode: impl FnOnce() -> R) -> R {
    if APART.with_borrow(Option::is_none) {
        return encode();
    }
    let _restore = RestoreApart(APART.take());
    encode()
}

/// Runs `decode` on a value that was encoded with these blobs.
#[inline]
pub(crate) fn within<R>(blobs: &Blobs, decode: impl FnOnce() -> R) -> R {
    // Most values have none, and are encoded without a number of one.
    if blobs.is_empty() {
        return decode();
    }
    let _restore = RestoreWithin(WITHIN.replace(blobs.clone()));
    decode()
}

/// Adds a blob to the value that this thread encodes. Returns its number, or `None` if the bytes
/// belong into the encoding.
pub(crate) fn add(blob: impl FnOnce() -> Blob) -> Option<u32> {
    // `blob` runs while nothing is borrowed: it may encode something itself.
    if APART.with_borrow(Option::is_none) {
        return None;
    }
    let blob = blob();
    APART.with_borrow_mut(|blobs| {
        let blobs = blobs.as_mut()?;
        blobs.push(blob);
        u32::try_from(blobs.len() - 1).ok()
    })
}

/// Returns whether the value that this thread decodes has blobs.
pub(crate) fn any() -> bool {
    WITHIN.with_borrow(|blobs| !blobs.is_empty())
}

/// Returns the blob of this number of the value that this thread decodes.
pub(crate) fn take(number: u32) -> Option<Blob> {
    WITHIN.with_borrow(|blobs| blobs.get(number as usize).cloned())
}

struct RestoreApart(Option<Vec<Blob>>);

impl Drop for RestoreApart {
    fn drop(&mut self) {
        APART.set(self.0.take());
    }
}

struct RestoreWithin(Blobs);

impl Drop for RestoreWithin {
    fn drop(&mut self) {
        WITHIN.set(std::mem::take(&mut self.0));
    }
}
