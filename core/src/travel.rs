//! How long an encoded value may be decoded: what handles inside it need to know to keep their
//! objects alive.
//!
//! A handle of a shared object has to keep the object alive while an encoded copy of the handle may
//! still be decoded. Only the code that carries the bytes knows how long that is, so it says so
//! around the encoding:
//!
//! - [`pinned`]: for as long as the carrier keeps the [`Pins`], and as often as it likes.
//! - [`once`]: one process decodes it once, or never.
//! - Neither: nobody knows. The object then lives until its process ends.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

/// How long the value that this thread encodes now may be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Nobody knows.
    Unknown,
    /// While its pins are kept.
    Pinned,
    /// Until it is decoded.
    Once,
}

/// What keeps the objects of encoded handles alive.
#[derive(Clone, Default)]
pub struct Pins(Vec<Arc<dyn Any + Send + Sync>>);

impl Pins {
    /// Whether there are none, because no handle was encoded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pins({})", self.0.len())
    }
}

/// What is to be done when a value that was decoded on trial will not be decoded again.
#[derive(Default)]
#[must_use = "`settle` says that the value will not be decoded again"]
pub struct Trial(Vec<Box<dyn FnOnce() + Send>>);

impl Trial {
    /// Whether the value has no handles that need to know.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes that the value will not be decoded again.
    pub fn settle(self) {
        self.0.into_iter().for_each(|settle| settle());
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trial({})", self.0.len())
    }
}

thread_local! {
    static VALIDITY: Cell<Validity> = const { Cell::new(Validity::Unknown) };
    static PINS: RefCell<Vec<Arc<dyn Any + Send + Sync>>> = const { RefCell::new(Vec::new()) };
    static ON_TRIAL: Cell<bool> = const { Cell::new(false) };
    static TRIAL: RefCell<Vec<Box<dyn FnOnce() + Send>>> = const { RefCell::new(Vec::new()) };
}

/// Puts a thread's state back, also after a panic.
struct Restore<T: Copy + 'static>(&'static std::thread::LocalKey<Cell<T>>, T);

impl<T: Copy> Drop for Restore<T> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Runs `encode`, whose result may be decoded any number of times while the pins are kept.
#[inline]
pub fn pinned<R>(encode: impl FnOnce() -> R) -> (R, Pins) {
    let _restore = Restore(&VALIDITY, VALIDITY.replace(Validity::Pinned));
    let outer = PINS.take();
    let result = encode();
    let pins = PINS.with_borrow_mut(|pins| std::mem::replace(pins, outer));
    (result, Pins(pins))
}

/// Runs `encode`, whose result is decoded at most once.
#[inline]
pub fn once<R>(encode: impl FnOnce() -> R) -> R {
    let _restore = Restore(&VALIDITY, VALIDITY.replace(Validity::Once));
    encode()
}

/// Runs `decode` on bytes that were encoded to be decoded [`once`], but may be decoded again until
/// the trial is settled.
#[inline]
pub fn on_trial<R>(decode: impl FnOnce() -> R) -> (R, Trial) {
    let _restore = Restore(&ON_TRIAL, ON_TRIAL.replace(true));
    let outer = TRIAL.take();
    let result = decode();
    let trial = TRIAL.with_borrow_mut(|trial| std::mem::replace(trial, outer));
    (result, Trial(trial))
}

/// How long what this thread encodes now may be decoded.
pub fn validity() -> Validity {
    VALIDITY.get()
}

/// Keeps `pin` with the value that this thread encodes now, which is [`Validity::Pinned`].
pub fn pin(pin: Arc<dyn Any + Send + Sync>) {
    PINS.with_borrow_mut(|pins| pins.push(pin));
}

/// Runs `settle` when the value that this thread decodes now will not be decoded again: at once,
/// unless it is decoded on trial.
pub fn when_settled(settle: impl FnOnce() + Send + 'static) {
    if ON_TRIAL.get() {
        TRIAL.with_borrow_mut(|trial| trial.push(Box::new(settle)));
    } else {
        settle();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn pins_go_to_the_innermost_pinned_value() {
        let ((inner, outer_validity), outer) = pinned(|| {
            pin(Arc::new(1));
            let ((), inner) = pinned(|| pin(Arc::new(2)));
            pin(Arc::new(3));
            (inner, validity())
        });
        assert_eq!((inner.0.len(), outer.0.len(), outer_validity), (1, 2, Validity::Pinned));
        assert_eq!(validity(), Validity::Unknown);
    }

    #[test]
    fn a_panic_does_not_leave_its_validity_behind() {
        let panicked = std::panic::catch_unwind(|| once(|| std::panic::panic_any(())));
        assert!(panicked.is_err());
        assert_eq!(validity(), Validity::Unknown);
    }

    #[test]
    fn what_is_decoded_on_trial_is_settled_later_and_all_else_at_once() {
        let settled = Arc::new(AtomicBool::new(false));
        let note = |settled: &Arc<AtomicBool>| {
            let settled = Arc::clone(settled);
            when_settled(move || settled.store(true, Ordering::Relaxed));
        };
        let ((), trial) = on_trial(|| note(&settled));
        assert!(!settled.load(Ordering::Relaxed));
        trial.settle();
        assert!(settled.swap(false, Ordering::Relaxed));
        note(&settled);
        assert!(settled.load(Ordering::Relaxed));
    }
}
