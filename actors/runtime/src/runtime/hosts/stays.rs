//! Blobs of values that stay at the host where they were made, until their bytes are wanted: by the
//! parent, or by another host, which gets them from the first one itself.
//!
//! The parent knows of each blob its length and its host. The host keeps it as it keeps
//! [others](super::kept_blobs). When a host ends in order, its parent gets all that stay there
//! first. When it is lost, so are its values, and those that are needed are made again.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::{Buf, Bytes};
use fiber_core::ExitReason;
use fiber_transport::Link;
use fiber_values::blob::{Answer, Blob, Blobs, Place, Then, WeakBlob};
use fiber_values::codec::EncodedValue;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::HostNumber;
use super::kept_blobs::{BlobKey, KeptBlob, KeptBlobs};
use super::shared::HostWire;
use super::wire::{self, FromHost, ToHost};
use crate::mesh::{self, PeerId, Pending, Port, PortId, ProcessRef, Request, Waiter};
use crate::runtime::Runtime;

/// Shorter blobs of values that may be wanted go to the parent at once: asking for them takes as
/// long as they do.
pub const MIN_STAY: usize = 256 << 10;

/// The most bytes of blobs that travel from one host to another in one message, unless one alone
/// has more.
const MAX_PIECE: usize = 1 << 20;

/// Shorter blobs say more about the way there and back than about the wire.
const MIN_MEASURED: usize = 1 << 20;

/// How long bytes travel between hosts, and from them.
#[derive(Debug)]
pub(super) struct TravelTime {
    nanos_per_mebibyte: AtomicU64,
}

impl Default for TravelTime {
    fn default() -> TravelTime {
        // 1 GB/s, until it is measured.
        TravelTime { nanos_per_mebibyte: AtomicU64::new(1 << 20) }
    }
}

impl TravelTime {
    pub(super) fn nanos_per_byte(&self) -> f64 {
        self.nanos_per_mebibyte.load(Ordering::Relaxed) as f64 / f64::from(1 << 20)
    }

    /// Notes that so many bytes have come since then. The last ones count most.
    fn note(&self, len: usize, since: Instant) {
        if len >= MIN_MEASURED {
            let nanos = since.elapsed().as_nanos() * (1 << 20) / len as u128;
            let last = self.nanos_per_mebibyte.load(Ordering::Relaxed);
            let mean = last - last / 4 + u64::try_from(nanos).unwrap_or(u64::MAX) / 4;
            self.nanos_per_mebibyte.store(mean.max(1), Ordering::Relaxed);
        }
    }
}

/// The blobs that stay at a host, as its parent sees them.
#[derive(Default)]
pub(super) struct Stays(Mutex<State>);

#[derive(Default)]
struct State {
    blobs: HashMap<BlobKey, WeakBlob>,
    /// Where other hosts get blobs of this one, once that is known.
    door: Option<Door>,
    /// Askers of a blob's bytes, by its number, since when they have asked.
    fetching: HashMap<BlobKey, (Answer, Instant)>,
    /// Askers for a copy of another host's blob, by the number that it will have.
    copying: HashMap<BlobKey, Vec<Then>>,
    /// The numbers of these copies, by the blob's host and its number there.
    copies: HashMap<(HostNumber, BlobKey), BlobKey>,
    is_lost: bool,
    /// Whether the host is about to end.
    is_leaving: bool,
}

/// The port of a host at which other hosts get its blobs.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Door {
    owner: ProcessRef,
    port: PortId,
}

impl HostWire {
    pub(super) fn is_lost(&self) -> bool {
        self.stays.0.lock().is_lost
    }

    /// Notes that the host has ended, and all with it that stayed there.
    pub(super) fn lose(&self) {
        let after = State { is_lost: true, ..State::default() };
        let lost = std::mem::replace(&mut *self.stays.0.lock(), after);
        lost.fetching.into_values().for_each(|(answer, _)| answer(None));
        lost.copying.into_values().flatten().for_each(|then| then(false));
    }

    pub(super) fn set_door(&self, door: Door) {
        self.stays.0.lock().door = Some(door);
    }

    /// Makes the blob of one that stays at the host.
    pub(super) fn staying(self: &Arc<HostWire>, key: BlobKey, len: usize) -> Blob {
        let blob = Blob::away(len, self.place, Arc::new(KeptBlob::new(self, key)));
        self.note(&blob, key);
        blob
    }

    pub(super) fn forget(&self, key: BlobKey) {
        self.stays.0.lock().blobs.remove(&key);
    }

    /// Gets all that stays at a host which is about to end, and then calls `then`.
    pub(super) fn evacuate(&self, then: impl FnOnce() + Send + 'static) {
        let mut state = self.stays.0.lock();
        state.is_leaving = true;
        let blobs: Vec<Blob> = state.blobs.values().filter_map(WeakBlob::upgrade).collect();
        drop(state);
        self.take_home(blobs.into(), then);
    }

    /// Gets the bytes of blobs that no other host has. The host drops them all.
    fn take_home(&self, blobs: Blobs, then: impl FnOnce() + Send + 'static) {
        let (place, all) = (self.place, blobs.clone());
        let fetch = |blob: &Blob, then: Then| {
            if blob.is_elsewhere_than(place) { then(true) } else { blob.fetch(then) }
        };
        blobs.each(fetch, move |_| {
            all.iter().for_each(|blob| blob.leave(place));
            then();
        });
    }

    /// Notes a blob at the host. One that is about to end gives it away.
    fn note(&self, blob: &Blob, key: BlobKey) {
        let mut state = self.stays.0.lock();
        state.blobs.extend(blob.downgrade().map(|weak| (key, weak)));
        let is_leaving = state.is_leaving;
        drop(state);
        if is_leaving {
            self.take_home(vec![blob.clone()].into(), || {});
        }
    }

    /// Asks the host for the bytes of a blob.
    pub(super) fn fetch(&self, key: BlobKey, answer: Answer) {
        let mut state = self.stays.0.lock();
        if state.is_lost {
            drop(state);
            return answer(None);
        }
        state.fetching.insert(key, (answer, Instant::now()));
        drop(state);
        // A link that is closed by now is that of a host that is lost.
        let _ = self.link.send(wire::command(&ToHost::FetchBlob(key)));
    }

    /// Takes the bytes of a blob that were asked for; `None` if the host does not have it.
    pub(super) fn fetched(&self, key: BlobKey, bytes: Option<Bytes>) {
        let asked = self.stays.0.lock().fetching.remove(&key);
        if let Some((answer, since)) = asked {
            self.travel_time.note(bytes.as_ref().map_or(0, Bytes::len), since);
            answer(bytes);
        }
    }

    /// Lets the host get blobs from other ones: several in one message, in pieces of bounded size.
    /// Each of `wanted` learns whether the host has its blob.
    fn copy(self: &Arc<HostWire>, wanted: Vec<(Blob, Then)>) {
        let wanted: Vec<_> =
            wanted.into_iter().map(|(blob, then)| (source_of(&blob), blob, then)).collect();
        let (mut pieces, mut unavailable) = (BTreeMap::<Place, Vec<Piece>>::new(), Vec::new());
        let mut last = self.last_blob.lock();
        let mut state = self.stays.0.lock();
        for (from, blob, then) in wanted {
            let Some((place, from, door)) = from.filter(|_| !state.is_lost) else {
                unavailable.push(then);
                continue;
            };
            if let Some(key) = state.copies.get(&(place, from)).copied() {
                state.copying.entry(key).or_default().push(then);
                continue;
            }
            *last += 2;
            let key = *last;
            state.copies.insert((place, from), key);
            let len = blob.len();
            state.copying.insert(key, vec![self.noting(blob, key, (place, from), then)]);
            let (pieces, copied) = (pieces.entry(place).or_default(), CopiedBlob { key, from });
            match pieces.last_mut().filter(|piece| piece.len + len <= MAX_PIECE) {
                Some(piece) => {
                    piece.blobs.push(copied);
                    piece.len += len;
                }
                None => pieces.push(Piece { door, blobs: vec![copied], len }),
            }
        }
        drop((last, state));
        unavailable.into_iter().for_each(|then| then(false));
        for Piece { door, blobs, .. } in pieces.into_values().flatten() {
            let _ = self.link.send(wire::command(&ToHost::CopyBlobs { door, blobs }));
        }
    }

    /// Returns what notes the copy of a blob that has these numbers, and then calls `then`.
    fn noting(
        self: &Arc<HostWire>,
        blob: Blob,
        key: BlobKey,
        (place, from): (HostNumber, BlobKey),
        then: Then,
    ) -> Then {
        let (host, since) = (Arc::clone(self), Instant::now());
        Box::new(move |is_there| {
            host.stays.0.lock().copies.remove(&(place, from));
            if is_there {
                host.travel_time.note(blob.len(), since);
                host.note_kept(&blob, key);
                host.note(&blob, key);
            }
            then(is_there);
        })
    }

    /// Notes that the host has a copy of another host's blob, or could not get it.
    pub(super) fn copied(&self, key: BlobKey, is_there: bool) {
        let waiting = self.stays.0.lock().copying.remove(&key).unwrap_or_default();
        waiting.into_iter().for_each(|then| then(is_there));
    }
}

impl std::fmt::Debug for Stays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stays").field("blobs", &self.0.lock().blobs.len()).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Returns how many nanoseconds a byte travels between hosts, as measured.
    pub fn travel_nanos(&self) -> f64 {
        self.hosts.travel_time.nanos_per_byte()
    }

    /// Gets blobs to a host, from the hosts that have them. `then` learns whether all are there, or
    /// can be sent.
    pub fn copy_to_host(
        &self,
        blobs: &Blobs,
        host: HostNumber,
        then: impl FnOnce(bool) + Send + 'static,
    ) {
        let hosts = self.hosts.state.lock();
        let its = hosts.hosts.iter().find(|other| other.number == host);
        let wire = its.and_then(|host| host.state.lock().link.clone());
        drop(hosts);
        let wanted = RefCell::new(Vec::new());
        let want = |blob: &Blob, then: Then| {
            if blob.is_at(Some(host)) {
                return then(true);
            }
            wanted.borrow_mut().push((blob.clone(), then));
        };
        blobs.each(want, then);
        let wanted = wanted.into_inner();
        match wire {
            Some(wire) => wire.copy(wanted),
            None => wanted.into_iter().for_each(|(_, then)| then(false)),
        }
    }
}

/// Returns the host that has a blob, its number there, and where other hosts get it.
fn source_of(blob: &Blob) -> Option<(Place, BlobKey, Door)> {
    blob.copies().into_iter().find_map(|(place, copy)| {
        let copy = (copy as Arc<dyn Any + Send + Sync>).downcast::<KeptBlob>().ok()?;
        Some((place, copy.key, copy.wire.upgrade()?.stays.0.lock().door.clone()?))
    })
}

/// Blobs that one host gets from another with one message.
struct Piece {
    door: Door,
    blobs: Vec<CopiedBlob>,
    len: usize,
}

/// A blob that a host gets from another one, and its numbers here and there.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CopiedBlob {
    key: BlobKey,
    from: BlobKey,
}

/// Gives other hosts the blobs of this one.
pub(super) struct BlobPort {
    id: PortId,
    kept: Weak<Mutex<KeptBlobs>>,
}

/// Lets other hosts get blobs of this one.
pub(super) async fn open_door(
    runtime: &'static Runtime,
    kept: Arc<Mutex<KeptBlobs>>,
    parent: Arc<dyn Link>,
) {
    let address = match runtime.listen().await {
        Ok(address) => address.url.as_str().into(),
        // The parent gets them and passes them on.
        Err(error) => return tracing::warn!("other hosts can't get values of this one: {error}"),
    };
    let new = |id| BlobPort { id, kept: Arc::downgrade(&kept) };
    let port = runtime.registry().ports().open(new);
    let door = Door { owner: ProcessRef { id: runtime.id(), address }, port: port.id };
    kept.lock().port = Some(port);
    let _ = parent.send(wire::command(&FromHost::Door(door)));
}

impl Port for BlobPort {
    fn receive(&self, Request { mut body, requester, .. }: Request) {
        let keys = std::iter::from_fn(|| body.bytes.try_get_u64_le().ok());
        match self.kept.upgrade() {
            Some(kept) => {
                let kept = kept.lock();
                let blobs: Vec<_> = keys.map(|key| kept.get(key)).collect();
                drop(kept);
                requester.answer(&value_of(blobs));
            }
            None => requester.ended(ExitReason::LinkLost("it keeps no values".into())),
        }
    }

    fn lost(&self, _: PeerId) {}
}

/// Returns the answer for blobs that were asked for: which of them are here, and these.
fn value_of(blobs: Vec<Option<Blob>>) -> EncodedValue {
    let are_here: Vec<u8> = blobs.iter().map(|blob| u8::from(blob.is_some())).collect();
    let blobs: Vec<_> = blobs.into_iter().flatten().collect();
    EncodedValue { bytes: are_here.into(), blobs: blobs.into() }
}

/// Returns the blobs of an answer; `None` for each that can't be had.
fn blobs_of(answer: mesh::Answer, count: usize) -> Vec<Option<Blob>> {
    let value = answer.ok().and_then(|answer| EncodedValue::from(answer).decode().ok());
    let EncodedValue { bytes: are_there, blobs } = value.unwrap_or_default();
    let mut blobs = blobs.iter().cloned();
    let is_there = |number| are_there.get(number) == Some(&1);
    (0..count).map(|number| if is_there(number) { blobs.next() } else { None }).collect()
}

/// Gets blobs from another host. `tell` gets the message for the parent when they are kept, or
/// can't be had.
pub(super) fn get(
    runtime: &'static Runtime,
    kept: Arc<Mutex<KeptBlobs>>,
    door: &Door,
    blobs: Vec<CopiedBlob>,
    tell: impl FnOnce(FromHost) + Send + 'static,
) {
    let mut payload = mesh::port_head(door.port);
    blobs.iter().for_each(|blob| payload.extend_from_slice(&blob.from.to_le_bytes()));
    let then = move |answer| {
        let arrived = blobs_of(answer, blobs.len());
        let mut copied = Vec::with_capacity(blobs.len());
        for (CopiedBlob { key, .. }, blob) in blobs.into_iter().zip(arrived) {
            copied.push((key, blob.is_some()));
            if let Some(blob) = blob {
                kept.lock().insert(key, blob.into_shared());
            }
        }
        tell(FromHost::Copied(copied));
    };
    let pending = Pending::new(Waiter::Callback(Box::new(then)));
    let sent = runtime.mesh().channel(&door.owner).send(payload.into(), Some(pending));
    if let Err(refused) = sent {
        refused.complete();
    }
}

#[cfg(test)]
mod tests;
