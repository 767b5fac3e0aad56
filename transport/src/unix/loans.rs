//! Blobs that one side of a link has lent to the other.
//!
//! The lender keeps a blob until the borrower gives it back or its process has ended: only then may
//! the memory be written again. The end of the link alone does not show that the borrower has
//! stopped reading.
//!
//! Borrowers may pass a blob on, and die. Those to whom they passed it have locks on the range. The
//! owner of the memory alone waits for the end of these locks: if each lender did, two of them
//! could wait for each other, when a blob goes back and forth.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use fiber_values::blob::{Blob, Mapping, MappingId, RangeLock, Shared};
use rustix::io::Errno;
use rustix::process::Pid;
use tokio::time::sleep;

use super::UnixLink;
use crate::blob_frame::{Loan, SentBlob, SharedPlace};
use crate::{Message, Received};

/// The pause between two looks whether a process has ended whose link is lost.
const LOOK: Duration = Duration::from_millis(100);

/// The lender's side.
#[derive(Debug, Default)]
pub(super) struct Lender {
    lent: HashMap<Loan, Blob>,
    last: Loan,
    /// The mappings whose descriptor the borrower has.
    introduced: HashSet<MappingId>,
}

impl Lender {
    /// Lends the blobs that are in shared memory. Returns their places, and the mappings that the
    /// borrower does not have.
    pub(super) fn lend(
        &mut self,
        message: &Message,
    ) -> (Vec<Option<SharedPlace>>, Vec<Arc<Mapping>>) {
        let mut new = Vec::new();
        let lend = |blob: &Blob| {
            let shared = blob.as_shared()?;
            let mapping = shared.mapping();
            if self.introduced.insert(mapping.id()) {
                new.push(Arc::clone(mapping));
            }
            self.last += 1;
            self.lent.insert(self.last, blob.clone());
            Some(SharedPlace {
                mapping: mapping.id(),
                offset: shared.offset() as u64,
                len: shared.len() as u64,
                loan: self.last,
            })
        };
        let places = message.blobs.iter().map(lend).collect();
        (places, new)
    }

    /// Ends loans. The caller drops the blobs without the lock, since that may give back what this
    /// process has borrowed.
    #[must_use]
    pub(super) fn end(&mut self, loans: &[Loan]) -> Vec<Blob> {
        loans.iter().filter_map(|loan| self.lent.remove(loan)).collect()
    }

    /// Returns a lent blob of which this place is a part.
    fn find(&self, place: &SharedPlace) -> Option<Blob> {
        let has = |blob: &&Blob| blob.as_shared().is_some_and(|lent| contains(lent, place));
        self.lent.values().find(has).cloned()
    }

    /// Ends loans that the borrower could not map; it gets their bytes instead.
    pub(super) fn take_requested(&mut self, loans: &[Loan]) -> Vec<(Loan, Blob)> {
        let requested: Vec<_> =
            loans.iter().filter_map(|loan| Some((*loan, self.lent.remove(loan)?))).collect();
        for shared in requested.iter().filter_map(|(_, blob)| blob.as_shared()) {
            // The next loan introduces it again: the borrower may have room by then.
            self.introduced.remove(&shared.mapping().id());
        }
        requested
    }

    /// Keeps the blobs until the borrower has ended.
    pub(super) async fn wait_for_end_of(self, borrower: Pid) {
        let lent: Vec<Blob> = self.lent.into_values().collect();
        if lent.is_empty() {
            return;
        }
        while !matches!(rustix::process::test_kill_process(borrower), Err(Errno::SRCH)) {
            sleep(LOOK).await;
        }
        release(lent);
    }
}

/// Drops blobs whose borrower does not use them any more. Those that others still read are kept
/// until they don't.
pub(super) fn release(blobs: Vec<Blob>) {
    let (mut read, unused): (Vec<_>, Vec<_>) = blobs.into_iter().partition(is_read_elsewhere);
    drop(unused);
    if !read.is_empty() {
        fiber_core::spawn_local(async move {
            while !read.is_empty() {
                sleep(LOOK).await;
                read.retain(is_read_elsewhere);
            }
        });
    }
}

/// Returns whether the memory is this process's own, and processes read it that have borrowed it
/// from others. A blob that came back on loan is no owner: its lock would keep it for ever.
fn is_read_elsewhere(blob: &Blob) -> bool {
    blob.as_shared().is_some_and(|place| {
        let mapping = place.mapping();
        let is_own = mapping.is_own() && !place.is_held_by::<Borrowed>();
        is_own && mapping.is_locked(place.offset(), place.len())
    })
}

fn contains(lent: &Shared, place: &SharedPlace) -> bool {
    let (offset, end) = (lent.offset() as u64, (lent.offset() + lent.len()) as u64);
    lent.mapping().id() == place.mapping
        && offset <= place.offset
        && place.offset.checked_add(place.len).is_some_and(|place_end| place_end <= end)
}

/// A blob that this process has borrowed. Dropping it gives it back.
struct Borrowed {
    link: Weak<UnixLink>,
    loan: Loan,
    /// `None` while it is dropped.
    keep: Option<Keep>,
}

/// Keeps re-lent memory alive after the lender has ended.
enum Keep {
    /// It is the lender's own: its process waits for the end of this one.
    Lender,
    Lock(#[allow(dead_code, reason = "it is only held")] RangeLock),
    /// This process had lent it to the lender.
    Own(#[allow(dead_code, reason = "it is only held")] Blob),
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // First: the owner looks for locks when it has the blob back.
        self.keep = None;
        if let Some(link) = self.link.upgrade() {
            link.give_back(self.loan);
        }
    }
}

/// The borrower's side.
pub(super) struct Borrower {
    link: Weak<UnixLink>,
    /// With whether they are the lender's own.
    mappings: HashMap<MappingId, (Arc<Mapping>, bool)>,
    /// Descriptors that have arrived, `None` for one for which there was no room.
    pub(super) files: VecDeque<Option<OwnedFd>>,
    /// Messages that wait for the bytes of blobs, and those after them.
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    bytes: Bytes,
    blobs: Vec<Result<Blob, Loan>>,
}

impl Waiting {
    fn is_complete(&self) -> bool {
        self.blobs.iter().all(Result::is_ok)
    }
}

impl Borrower {
    pub(super) fn new(link: &Arc<UnixLink>) -> Borrower {
        Borrower {
            link: Arc::downgrade(link),
            mappings: HashMap::new(),
            files: VecDeque::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Returns whether a message waits for the bytes of blobs.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the descriptor that came with the frame of this mapping.
    pub(super) fn map(&mut self, id: MappingId, is_lenders_own: bool) {
        // The lender sends the bytes of blobs whose mapping is missing.
        let Some(file) = self.files.pop_front().flatten() else { return };
        match Mapping::adopt(id, file) {
            Ok(mapping) => drop(self.mappings.insert(id, (mapping, is_lenders_own))),
            Err(error) => tracing::warn!("blobs come by the socket: {error}"),
        }
    }

    /// Adds a message. Returns the loans whose bytes have to be requested.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for a blob outside of its mapping.
    pub(super) fn add(&mut self, bytes: Bytes, blobs: Vec<SentBlob>) -> io::Result<Vec<Loan>> {
        let blobs: Vec<_> =
            blobs.into_iter().map(|blob| self.borrow(blob)).collect::<io::Result<_>>()?;
        let missing = blobs.iter().filter_map(|blob| blob.as_ref().err().copied()).collect();
        self.waiting.push_back(Waiting { bytes, blobs });
        Ok(missing)
    }

    fn borrow(&self, blob: SentBlob) -> io::Result<Result<Blob, Loan>> {
        let place = match blob {
            SentBlob::Inline(bytes) => return Ok(Ok(Blob::private(bytes))),
            SentBlob::Shared(place) => place,
        };
        let Some((mapping, is_lenders_own)) = self.mappings.get(&place.mapping) else {
            return Ok(Err(place.loan));
        };
        let number = |number| usize::try_from(number).unwrap_or(usize::MAX);
        let (offset, len) = (number(place.offset), number(place.len));
        let link = self.link.clone();
        let keep = if *is_lenders_own {
            Keep::Lender
        } else {
            let Ok(lock) = mapping.lock(offset, len) else { return Ok(Err(place.loan)) };
            let lender = link.upgrade();
            // The order matters: see `fiber_values::blob::Mapping`.
            if lender.as_ref().is_some_and(|link| link.is_peer_there()) {
                Keep::Lock(lock)
            } else {
                let own = lender.and_then(|link| link.state.lock().lender.find(&place));
                Keep::Own(own.ok_or(io::ErrorKind::ConnectionReset)?)
            }
        };
        let hold = Arc::new(Borrowed { link, loan: place.loan, keep: Some(keep) });
        Blob::borrowed(Arc::clone(mapping), offset, len, hold).map(Ok).ok_or_else(|| {
            let problem = "the peer lent a blob that is outside of the memory that it can lend";
            io::Error::new(io::ErrorKind::InvalidData, problem)
        })
    }

    /// Completes the blob of a loan whose bytes were requested.
    pub(super) fn fill(&mut self, loan: Loan, bytes: Bytes) {
        let mut blobs = self.waiting.iter_mut().flat_map(|message| &mut message.blobs);
        if let Some(blob) = blobs.find(|blob| blob.as_ref().is_err_and(|missing| *missing == loan))
        {
            *blob = Ok(Blob::private(bytes));
        }
    }

    /// Takes the first message, if it is complete.
    pub(super) fn next(&mut self) -> Option<Received> {
        if !self.waiting.front()?.is_complete() {
            return None;
        }
        let first = self.waiting.pop_front()?;
        let blobs: Vec<_> = first.blobs.into_iter().filter_map(Result::ok).collect();
        Some(Received { bytes: first.bytes, blobs: blobs.into() })
    }
}

impl fmt::Debug for Borrower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Borrower").field("mappings", &self.mappings).finish_non_exhaustive()
    }
}
