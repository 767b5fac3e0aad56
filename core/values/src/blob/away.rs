//! Blobs that are on other machines alone, until this process asks for their bytes.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use fiber_core::value_memory::{Stored, StoredElsewhere};
use parking_lot::Mutex;

use super::{Blob, Blobs, Memory, Place};
use crate::codec::EncodedValue;
use crate::spill;

/// Learns whether something has succeeded.
pub type Then = Box<dyn FnOnce(bool) + Send>;

/// Gets the bytes of a copy; `None` if they can't be had there.
pub type Answer = Box<dyn FnOnce(Option<Bytes>) + Send>;

/// A handle of a copy on another machine, which is there until this is dropped.
pub trait CopyElsewhere: Any + Send + Sync {
    /// Returns whether the machine is gone, and the copy with it.
    fn is_lost(&self) -> bool;

    /// Asks for the bytes. `answer` may run at once, or on the thread that receives them.
    fn fetch(&self, answer: Answer);
}

/// Copies on other machines.
#[derive(Default)]
pub(super) struct Elsewhere(Mutex<Vec<(Place, Arc<dyn CopyElsewhere>)>>);

impl Elsewhere {
    pub(super) fn add(&self, place: Place, copy: Arc<dyn CopyElsewhere>) {
        self.0.lock().push((place, copy));
    }

    pub(super) fn at(&self, place: Place) -> Option<Arc<dyn CopyElsewhere>> {
        let copies = self.0.lock();
        let at_place =
            |(other, copy): &&(Place, Arc<dyn CopyElsewhere>)| *other == place && !copy.is_lost();
        copies.iter().find(at_place).map(|(_, copy)| Arc::clone(copy))
    }

    /// Drops the copies for which `is_one` returns true.
    fn remove(&self, mut is_one: impl FnMut(Place, &Arc<dyn CopyElsewhere>) -> bool) {
        let mut copies = self.0.lock();
        let removed: Vec<_> = copies.extract_if(.., |(place, copy)| is_one(*place, copy)).collect();
        drop(copies);
        drop(removed);
    }

    /// Returns the copies on machines that are there, with their places.
    pub(super) fn all(&self) -> Vec<(Place, Arc<dyn CopyElsewhere>)> {
        let copies = self.0.lock();
        copies.iter().filter(|(_, copy)| !copy.is_lost()).cloned().collect()
    }
}

/// A blob that is on other machines.
pub(super) struct Away {
    pub(super) len: usize,
    pub(super) copies: Elsewhere,
    here: OnceLock<Here>,
    /// Askers, while the bytes are on their way.
    asked: Mutex<Option<Vec<Then>>>,
    /// Counts the bytes until they are here.
    counted: Mutex<Option<StoredElsewhere>>,
}

/// The bytes, once they are in this process.
struct Here {
    blob: Blob,
    _stored: Stored,
}

impl Away {
    pub(super) fn here(&self) -> Option<&Blob> {
        self.here.get().map(|here| &here.blob)
    }

    /// Returns the bytes.
    ///
    /// # Panics
    /// If they are not here: a reader of blobs has fetched them before.
    pub(super) fn bytes(&self) -> &Blob {
        self.here().expect("the bytes of a blob are read before they were fetched")
    }

    fn is_lost(&self) -> bool {
        self.here.get().is_none() && self.copies.all().is_empty()
    }

    /// Asks the machines that have a copy for it, one after the other.
    fn ask(self: Arc<Away>) {
        let Some((_, copy)) = self.copies.all().into_iter().next() else {
            return self.end_asking(false);
        };
        let asked = Arc::downgrade(&copy);
        copy.fetch(Box::new(move |bytes| match bytes {
            Some(bytes) if bytes.len() == self.len => {
                let blobs = vec![Blob::private(bytes)].into();
                let (value, _stored) = spill::keep(EncodedValue { bytes: Bytes::new(), blobs });
                let _ = self.here.set(Here { blob: value.blobs[0].clone(), _stored });
                self.counted.lock().take();
                self.end_asking(true);
            }
            Some(_) | None => {
                // It is no copy.
                self.copies.remove(|_, copy| std::ptr::addr_eq(Arc::as_ptr(copy), asked.as_ptr()));
                self.ask();
            }
        }));
    }

    fn end_asking(&self, is_here: bool) {
        let waiting = self.asked.lock().take().unwrap_or_default();
        waiting.into_iter().for_each(|then| then(is_here));
    }
}

impl Blob {
    /// Makes a blob of `len` bytes that is at another place, where `copy` keeps it.
    pub fn away(len: usize, place: Place, copy: Arc<dyn CopyElsewhere>) -> Blob {
        let copies = Elsewhere::default();
        copies.add(place, copy);
        Blob(Memory::Away(Arc::new(Away {
            len,
            copies,
            here: OnceLock::new(),
            asked: Mutex::default(),
            counted: Mutex::new(Some(StoredElsewhere::new(len))),
        })))
    }

    fn as_away(&self) -> Option<&Arc<Away>> {
        match &self.0 {
            Memory::Away(away) => Some(away),
            Memory::Private(..) | Memory::Shared(_) => None,
        }
    }

    /// Returns whether this process has the bytes. It panics if it reads them without.
    pub fn is_here(&self) -> bool {
        self.as_away().is_none_or(|away| away.here.get().is_some())
    }

    /// Returns whether the bytes are nowhere any more.
    pub fn is_lost(&self) -> bool {
        self.as_away().is_some_and(|away| away.is_lost())
    }

    /// Gets the bytes to this process, where they stay as long as the blob. `then` learns whether
    /// they are here.
    pub fn fetch(&self, then: impl FnOnce(bool) + Send + 'static) {
        let Some(away) = self.as_away() else { return then(true) };
        let mut asked = away.asked.lock();
        if away.here.get().is_some() {
            drop(asked);
            return then(true);
        }
        let is_first = asked.is_none();
        asked.get_or_insert_default().push(Box::new(then));
        drop(asked);
        if is_first {
            Arc::clone(away).ask();
        }
    }

    /// Drops the copies at a place, if the bytes are somewhere else, too.
    pub fn leave(&self, place: Place) {
        if let Some(away) = self.as_away()
            && (away.here.get().is_some() || self.is_elsewhere_than(place))
        {
            away.copies.remove(|other, _| other == place);
        }
    }

    /// Returns whether another place has a copy.
    pub fn is_elsewhere_than(&self, place: Place) -> bool {
        self.places().iter().any(|other| *other != place)
    }

    /// Returns the blob as it is seen without being kept, if it is on another machine.
    pub fn downgrade(&self) -> Option<WeakBlob> {
        self.as_away().map(|away| WeakBlob(Arc::downgrade(away)))
    }
}

/// A blob on another machine that this does not keep.
pub struct WeakBlob(Weak<Away>);

impl WeakBlob {
    /// Returns the blob, if anything keeps it.
    pub fn upgrade(&self) -> Option<Blob> {
        self.0.upgrade().map(|away| Blob(Memory::Away(away)))
    }
}

impl fmt::Debug for WeakBlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakBlob")
    }
}

impl Blobs {
    /// Returns whether this process has the bytes of all.
    pub fn are_here(&self) -> bool {
        self.iter().all(Blob::is_here)
    }

    /// Returns whether all can be read at a place: there is a copy, or this process can send one.
    pub fn are_at(&self, place: Option<Place>) -> bool {
        self.iter().all(|blob| blob.is_at(place))
    }

    /// Returns whether the bytes of one are nowhere any more.
    pub fn are_lost(&self) -> bool {
        self.iter().any(Blob::is_lost)
    }

    /// Starts something for each, which ends later. `then` learns whether all have succeeded.
    pub fn each(&self, start: impl Fn(&Blob, Then), then: impl FnOnce(bool) + Send + 'static) {
        let all = Arc::new(All {
            has_failed: AtomicBool::new(false),
            then: Mutex::new(Some(Box::new(then))),
        });
        for blob in self.iter() {
            let all = Arc::clone(&all);
            start(
                blob,
                Box::new(move |succeeded| {
                    all.has_failed.fetch_or(!succeeded, Ordering::Relaxed);
                }),
            );
        }
    }

    /// Gets the bytes of all to this process. `then` learns whether they are here.
    pub fn fetch(&self, then: impl FnOnce(bool) + Send + 'static) {
        self.each(|blob, then| blob.fetch(then), then);
    }
}

/// A step that waits for several ends: the last one drops it.
struct All {
    has_failed: AtomicBool,
    then: Mutex<Option<Then>>,
}

impl Drop for All {
    fn drop(&mut self) {
        if let Some(then) = self.then.get_mut().take() {
            then(!*self.has_failed.get_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fiber_core::value_memory::value_memory;

    /// A copy whose test decides when it answers.
    #[derive(Default)]
    struct Far {
        asked: Mutex<Vec<Answer>>,
        is_lost: AtomicBool,
    }

    impl CopyElsewhere for Far {
        fn is_lost(&self) -> bool {
            self.is_lost.load(Ordering::Relaxed)
        }

        fn fetch(&self, answer: Answer) {
            self.asked.lock().push(answer);
        }
    }

    impl Far {
        fn answer(&self, bytes: Option<&'static [u8]>) {
            let asked = std::mem::take(&mut *self.asked.lock());
            assert_eq!(asked.len(), 1, "it is asked once");
            asked.into_iter().for_each(|answer| answer(bytes.map(Bytes::from_static)));
        }
    }

    /// Asks for the blob. Returns where the answer will be.
    fn fetch(blob: &Blob) -> Arc<Mutex<Option<bool>>> {
        let answer = Arc::<Mutex<Option<bool>>>::default();
        let known = Arc::clone(&answer);
        blob.fetch(move |is_here| *known.lock() = Some(is_here));
        answer
    }

    #[test]
    fn bytes_come_once_for_all_that_ask_and_stay() {
        let far = Arc::new(Far::default());
        let blob = Blob::away(5, 1, Arc::clone(&far) as Arc<_>);
        assert!(!blob.is_here() && blob.is_at(Some(1)) && !blob.is_at(Some(2)));
        assert_eq!(blob.len(), 5);
        let waiting = [fetch(&blob), fetch(&blob.clone())];
        assert_eq!(waiting.each_ref().map(|answer| *answer.lock()), [None; 2]);
        far.answer(Some(b"words"));
        assert_eq!(waiting.each_ref().map(|answer| *answer.lock()), [Some(true); 2]);
        assert_eq!((&blob[..], *fetch(&blob).lock()), (&b"words"[..], Some(true)));
        far.is_lost.store(true, Ordering::Relaxed);
        assert!(!blob.is_lost(), "it is here");
        assert!(blob.copy_at(1).is_none());
        let weak = blob.downgrade().unwrap();
        blob.leave(1);
        assert_eq!(Arc::strong_count(&far), 1);
        drop(blob);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn the_next_copy_is_asked_if_one_has_no_bytes() {
        let (first, second) = (Arc::new(Far::default()), Arc::new(Far::default()));
        let blob = Blob::away(5, 1, Arc::clone(&first) as Arc<_>);
        blob.add_copy(2, Arc::clone(&second) as Arc<_>);
        let answer = fetch(&blob);
        first.answer(None);
        assert_eq!(*answer.lock(), None);
        second.answer(Some(b"word"));
        assert_eq!(*answer.lock(), Some(false), "they are too few");
        assert!(blob.is_lost());
        let blob = Blob::away(5, 1, Arc::clone(&first) as Arc<_>);
        blob.leave(1);
        assert_eq!(blob.places(), [1], "it is nowhere else");
        blob.add_copy(2, Arc::clone(&second) as Arc<_>);
        first.is_lost.store(true, Ordering::Relaxed);
        assert!(!blob.is_lost() && blob.places() == [2]);
        let answer = fetch(&blob);
        second.is_lost.store(true, Ordering::Relaxed);
        assert!(blob.is_lost());
        second.answer(None);
        assert_eq!((*answer.lock(), *fetch(&blob).lock()), (Some(false), Some(false)));
    }

    #[test]
    fn all_are_there_when_the_last_is() {
        let far = [Arc::new(Far::default()), Arc::new(Far::default())];
        let blob = |far: &Arc<Far>| Blob::away(5, 1, Arc::clone(far) as Arc<_>);
        let blobs = Blobs::from(vec![blob(&far[0]), Blob::private(Bytes::new()), blob(&far[1])]);
        assert!(!blobs.are_here() && blobs.are_at(Some(1)) && !blobs.are_at(None));
        assert_eq!((blobs.total_len(), blobs.private_len()), (10, 0));
        let before = value_memory().elsewhere;
        assert!(before >= 10);
        let answer = Arc::<Mutex<Option<bool>>>::default();
        let known = Arc::clone(&answer);
        blobs.fetch(move |are_here| *known.lock() = Some(are_here));
        far[1].answer(Some(b"words"));
        assert_eq!(*answer.lock(), None);
        far[0].answer(Some(b"other"));
        assert_eq!((*answer.lock(), &blobs[2][..]), (Some(true), &b"words"[..]));
    }
}
