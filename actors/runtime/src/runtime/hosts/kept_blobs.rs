//! Blobs that a host keeps: each crosses the wire to a host, or from it, once, however many
//! messages have it.
//!
//! The host keeps a blob until its parent has dropped the last clone. So an array of many tasks,
//! and a value that goes back to the host where it was made, travel as a number.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use fiber_core::value_memory::{self, Stored};
use fiber_transport::{Closed, Message};
use fiber_values::blob::{Answer, Blob, Blobs, CopyElsewhere};
use serde::{Deserialize, Serialize};

use super::shared::HostWire;
use super::stays::{BlobPort, MIN_STAY};
use super::wire::{self, Number, ToHost};
use crate::endpoint::{ALL_STAY, LARGE_STAY};

/// The number of a blob that a host keeps. The parent's have the lowest bit.
pub(super) type BlobKey = u64;

/// How a blob of a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Travels {
    /// Beside the message.
    AsBytes,
    /// Beside the message, and the host keeps it.
    Kept(BlobKey),
    /// The host has it.
    AsNumber(BlobKey),
    /// The host has it, and its parent does not: a blob of this many bytes.
    Stays(BlobKey, u64),
}

/// The parent's part of a blob that a host keeps: the host drops it with this.
pub(super) struct KeptBlob {
    pub(super) wire: Weak<HostWire>,
    pub(super) key: BlobKey,
}

impl KeptBlob {
    pub(super) fn new(wire: &Arc<HostWire>, key: BlobKey) -> KeptBlob {
        KeptBlob { wire: Arc::downgrade(wire), key }
    }
}

impl CopyElsewhere for KeptBlob {
    fn is_lost(&self) -> bool {
        self.wire.upgrade().is_none_or(|wire| wire.is_lost())
    }

    fn fetch(&self, answer: Answer) {
        match self.wire.upgrade() {
            Some(wire) => wire.fetch(self.key, answer),
            None => answer(None),
        }
    }
}

impl Drop for KeptBlob {
    fn drop(&mut self) {
        if let Some(wire) = self.wire.upgrade() {
            wire.forget(self.key);
            let _ = wire.link.send(wire::command(&ToHost::DropBlob(self.key)));
        }
    }
}

impl HostWire {
    /// Passes a message to a process of the host, with numbers for the blobs that the host has.
    pub(super) fn relay(
        self: &Arc<HostWire>,
        number: Number,
        message: Message,
        send: impl FnOnce(Message) -> Result<(), Closed>,
    ) -> Result<(), Closed> {
        let Message { head, body, blobs } = message;
        if self.link.lends_memory() || !blobs.iter().any(Blob::may_have_copies) {
            let mut relayed = wire::relay_head(number, head.len());
            relayed.extend_from_slice(&head);
            return send(Message { head: relayed, body, blobs });
        }
        if !blobs.are_at(Some(self.place)) {
            // Inputs are brought before their tasks are sent: the host has been lost meanwhile.
            return Err(Closed);
        }
        // Queueing under the lock, so that a blob is there before it is referred to.
        let mut last = self.last_blob.lock();
        let travels: Vec<_> = blobs.iter().map(|blob| self.travels(blob, &mut last)).collect();
        let sent = blobs.iter().zip(&travels);
        let sent = sent.filter(|(_, travels)| !matches!(travels, Travels::AsNumber(_)));
        let sent: Vec<_> = sent.map(|(blob, _)| blob.clone()).collect();
        let mut relayed = wire::blobs_head(number, &travels, head.len());
        relayed.extend_from_slice(&head);
        send(Message { head: relayed, body, blobs: sent.into() })
    }

    fn travels(self: &Arc<HostWire>, blob: &Blob, last: &mut BlobKey) -> Travels {
        if !blob.may_have_copies() {
            return Travels::AsBytes;
        }
        let known = blob.copy_at(self.place).and_then(|kept| self.key_of(kept));
        if let Some(key) = known {
            return Travels::AsNumber(key);
        }
        *last += 2;
        self.note_kept(blob, *last);
        Travels::Kept(*last)
    }

    /// Returns the number of a kept blob, if this host keeps it. Simulated processes share blobs.
    fn key_of(self: &Arc<HostWire>, kept: Arc<dyn CopyElsewhere>) -> Option<BlobKey> {
        let kept = (kept as Arc<dyn Any + Send + Sync>).downcast::<KeptBlob>().ok()?;
        std::ptr::eq(kept.wire.as_ptr(), Arc::as_ptr(self)).then_some(kept.key)
    }

    /// Notes that the host keeps a blob.
    pub(super) fn note_kept(self: &Arc<HostWire>, blob: &Blob, key: BlobKey) {
        blob.add_copy(self.place, Arc::new(KeptBlob::new(self, key)));
    }

    /// Returns the blobs of a message of the host, and notes which of them it keeps; `None` if the
    /// message is malformed.
    pub(super) fn arrive(
        self: &Arc<HostWire>,
        travels: &[Travels],
        blobs: &Blobs,
    ) -> Option<Blobs> {
        let mut blobs = blobs.iter();
        let mut arrived = Vec::with_capacity(travels.len());
        for travels in travels {
            arrived.push(match travels {
                Travels::AsBytes => blobs.next()?.clone(),
                Travels::Kept(key) => {
                    let blob = blobs.next()?;
                    self.note_kept(blob, *key);
                    blob.clone()
                }
                Travels::Stays(key, len) => self.staying(*key, usize::try_from(*len).ok()?),
                Travels::AsNumber(_) => return None,
            });
        }
        Some(arrived.into())
    }
}

/// The blobs that a host keeps for its parent.
#[derive(Default)]
pub(super) struct KeptBlobs {
    blobs: HashMap<BlobKey, (Blob, Stored)>,
    /// The numbers of blobs that the parent may not have.
    staying: HashSet<BlobKey>,
    /// Where other hosts get them.
    pub(super) port: Option<Arc<BlobPort>>,
    last: BlobKey,
}

impl KeptBlobs {
    /// Returns the blobs of a message of the parent, and keeps those that the parent wants.
    pub(super) fn arrive(&mut self, travels: &[Travels], blobs: &Blobs) -> Option<Blobs> {
        let mut blobs = blobs.iter();
        let mut arrived = Vec::with_capacity(travels.len());
        for travels in travels {
            arrived.push(match travels {
                Travels::AsBytes => blobs.next()?.clone().into_shared(),
                Travels::Kept(key) => {
                    let blob = blobs.next()?.clone().into_shared();
                    self.blobs.insert(*key, counted(blob.clone()));
                    blob
                }
                Travels::AsNumber(key) => self.get(*key)?,
                Travels::Stays(..) => return None,
            });
        }
        Some(arrived.into())
    }

    /// Keeps the blobs of a message to the parent that are in shared memory, where the processes of
    /// this host read them. The channel says which of them stay here. Returns how each travels, and
    /// those that do.
    pub(super) fn leave(&mut self, blobs: &Blobs, channel: Option<u8>) -> (Vec<Travels>, Blobs) {
        let mut sent = Vec::new();
        let travels = blobs.iter().map(|blob| {
            let may_stay = match channel {
                Some(LARGE_STAY) => blob.len() >= MIN_STAY,
                channel => channel == Some(ALL_STAY),
            };
            // Where shared memory has no room, or there is none, it takes memory of this process.
            let is_shared = blob.as_shared().is_some();
            let stays = may_stay && (is_shared || !value_memory::is_short());
            if !is_shared && !stays {
                sent.push(blob.clone());
                return Travels::AsBytes;
            }
            self.last += 2;
            let key = self.last - 1;
            self.blobs.insert(key, counted(blob.clone()));
            if stays {
                self.staying.insert(key);
                return Travels::Stays(key, blob.len() as u64);
            }
            sent.push(blob.clone());
            Travels::Kept(key)
        });
        (travels.collect(), sent.into())
    }

    pub(super) fn get(&self, key: BlobKey) -> Option<Blob> {
        self.blobs.get(&key).map(|(blob, _)| blob.clone())
    }

    /// Keeps a blob of another host under a number of the parent, which may not have it.
    pub(super) fn insert(&mut self, key: BlobKey, blob: Blob) {
        self.staying.insert(key);
        self.blobs.insert(key, counted(blob));
    }

    pub(super) fn drop_one(&mut self, key: BlobKey) {
        self.staying.remove(&key);
        self.blobs.remove(&key);
    }

    /// Returns whether there are some that the parent does not have.
    pub(super) fn has_staying(&self) -> bool {
        !self.staying.is_empty()
    }
}

/// Counts a blob outside of shared memory.
fn counted(blob: Blob) -> (Blob, Stored) {
    let stored = Stored::new(if blob.as_shared().is_some() { 0 } else { blob.len() });
    (blob, stored)
}
