//! How often an encoded value may be decoded, and what keeps the shared objects in it alive.
//!
//! A handle of a shared object keeps the object alive as long as an encoded copy of the handle may
//! still be decoded. Only the code that sends the bytes knows how long that is. It wraps the
//! encoding in one of these functions:
//!
//! - [`repeatable`]: the bytes may be decoded any number of times while the sender keeps the
//!   [`KeepAlive`].
//! - [`once`]: one process decodes the bytes once, or never.
//! - Without either, the object lives until its owner's process ends.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::thread::LocalKey;

/// How often the value that this thread encodes may be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The sender has not said.
    Unknown,
    /// Any number of times while its [`KeepAlive`] is kept.
    Repeatable,
    /// Once at most.
    Once,
}

/// Keeps the objects alive whose handles a value contains.
#[derive(Clone, Default)]
pub struct KeepAlive(Vec<Arc<dyn Any + Send + Sync>>);

impl KeepAlive {
    /// Returns whether the value contains no handles.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeepAlive({})", self.0.len())
    }
}

/// The pending effects of decoding a value that may have to be decoded again elsewhere.
#[derive(Default)]
#[must_use = "`commit` confirms that the value will not be decoded again"]
pub struct Uncommitted(Vec<Box<dyn FnOnce() + Send>>);

impl Uncommitted {
    /// Returns whether the value contains no handles that wait for the commit.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Confirms that the value will not be decoded again.
    pub fn commit(self) {
        self.0.into_iter().for_each(|effect| effect());
    }
}

impl fmt::Debug for Uncommitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uncommitted({})", self.0.len())
    }
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Unknown) };
    static KEPT_ALIVE: RefCell<Vec<Arc<dyn Any + Send + Sync>>> =
        const { RefCell::new(Vec::new()) };
    static IS_UNCOMMITTED: Cell<bool> = const { Cell::new(false) };
    static EFFECTS: RefCell<Vec<Box<dyn FnOnce() + Send>>> = const { RefCell::new(Vec::new()) };
    static HAS_HANDLES: Cell<bool> = const { Cell::new(false) };
}

/// Restores a thread-local value when it is dropped, also by a panic.
pub(crate) struct Restore<T: Copy + 'static>(&'static LocalKey<Cell<T>>, T);

impl<T: Copy + 'static> Restore<T> {
    /// Sets the value until then.
    #[inline]
    pub(crate) fn behind(key: &'static LocalKey<Cell<T>>, value: T) -> Restore<T> {
        Restore(key, key.replace(value))
    }
}

impl<T: Copy> Drop for Restore<T> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Runs `encode`. Its result may be decoded any number of times while the [`KeepAlive`] is kept.
#[inline]
pub fn repeatable<R>(encode: impl FnOnce() -> R) -> (R, KeepAlive) {
    let _restore = Restore::behind(&MODE, Mode::Repeatable);
    let outer = KEPT_ALIVE.take();
    let result = encode();
    let kept = KEPT_ALIVE.with_borrow_mut(|kept| std::mem::replace(kept, outer));
    (result, KeepAlive(kept))
}

/// Runs `encode`. Its result is decoded at most once.
#[inline]
pub fn once<R>(encode: impl FnOnce() -> R) -> R {
    let _restore = Restore::behind(&MODE, Mode::Once);
    encode()
}

/// Runs `decode` on bytes that were encoded by [`once`], but may be decoded again until
/// [`Uncommitted::commit`].
#[inline]
pub fn uncommitted<R>(decode: impl FnOnce() -> R) -> (R, Uncommitted) {
    let _restore = Restore::behind(&IS_UNCOMMITTED, true);
    let outer = EFFECTS.take();
    let result = decode();
    let effects = EFFECTS.with_borrow_mut(|effects| std::mem::replace(effects, outer));
    (result, Uncommitted(effects))
}

/// Returns how often the value that this thread encodes may be decoded.
pub fn mode() -> Mode {
    MODE.get()
}

/// Keeps `object` alive with the value that this thread encodes in [`Mode::Repeatable`].
pub fn keep_alive(object: Arc<dyn Any + Send + Sync>) {
    KEPT_ALIVE.with_borrow_mut(|kept| kept.push(object));
}

/// Notes that the value that this thread encodes has a handle: it names an object of this session.
pub fn note_handle() {
    HAS_HANDLES.set(true);
}

/// Runs `encode`. Returns also whether the value has handles, so that its bytes mean nothing to
/// another session.
pub fn finding_handles<R>(encode: impl FnOnce() -> R) -> (R, bool) {
    let restore = Restore::behind(&HAS_HANDLES, false);
    let result = encode();
    let found = HAS_HANDLES.get();
    drop(restore);
    (result, found)
}

/// Runs `effect` when the value that this thread decodes is committed: at once, except inside
/// [`uncommitted`].
pub fn on_commit(effect: impl FnOnce() + Send + 'static) {
    if IS_UNCOMMITTED.get() {
        EFFECTS.with_borrow_mut(|effects| effects.push(Box::new(effect)));
    } else {
        effect();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn objects_are_kept_with_the_innermost_value() {
        let ((inner, outer_mode), outer) = repeatable(|| {
            keep_alive(Arc::new(1));
            let ((), inner) = repeatable(|| keep_alive(Arc::new(2)));
            keep_alive(Arc::new(3));
            (inner, mode())
        });
        assert_eq!((inner.0.len(), outer.0.len(), outer_mode), (1, 2, Mode::Repeatable));
        assert_eq!(mode(), Mode::Unknown);
    }

    #[test]
    fn a_panic_restores_the_mode() {
        let panicked = std::panic::catch_unwind(|| once(|| std::panic::panic_any(())));
        assert!(panicked.is_err());
        assert_eq!(mode(), Mode::Unknown);
    }

    #[test]
    fn handles_are_found_in_the_innermost_value() {
        let (inner, outer) = finding_handles(|| finding_handles(note_handle).1);
        assert!(inner && !outer);
        let (((), inner), outer) = finding_handles(|| {
            note_handle();
            finding_handles(|| ())
        });
        assert!(!inner && outer);
    }

    #[test]
    fn effects_wait_for_the_commit_of_an_uncommitted_value_only() {
        let committed = Arc::new(AtomicBool::new(false));
        let note = |committed: &Arc<AtomicBool>| {
            let committed = Arc::clone(committed);
            on_commit(move || committed.store(true, Ordering::Relaxed));
        };
        let ((), uncommitted) = uncommitted(|| note(&committed));
        assert!(!committed.load(Ordering::Relaxed));
        uncommitted.commit();
        assert!(committed.swap(false, Ordering::Relaxed));
        note(&committed);
        assert!(committed.load(Ordering::Relaxed));
    }
}
