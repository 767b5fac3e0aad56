//! The processes that get elements from a queue or put elements in.

use std::sync::Arc;

use bytes::Bytes;
use fiber_core::SortedMap;
use fiber_transport::Link;
use fiber_values::blob::Blobs;

use super::unconfirmed::{SentAs, Unconfirmed};
use crate::queue::blocks::{Block, Blocks};
use crate::queue::wire::{Closing, DELIVER, ENDED, PREFETCH, RECALL};
use fiber_runtime::mesh::{PeerId, PortId, Requester, port_head, push};

/// The most bytes that are prefetched at a time, with blobs, unless one element is larger.
const PREFETCH_BYTES: usize = 1 << 20;

/// All clients of a queue.
#[derive(Default)]
pub(super) struct Clients {
    /// In the order in which they attached, in which they are asked to return elements.
    clients: SortedMap<PeerId, ClientEntry>,
    prefetched: usize,
}

struct ClientEntry {
    port: PortId,
    link: Arc<dyn Link>,
    /// The request to attach. Dropping it answers that the queue has ended.
    _attached: Requester,
    unconfirmed: Unconfirmed,
    /// The number of times that the client has returned elements.
    epoch: u32,
    recalled: bool,
    gets: bool,
}

impl Clients {
    /// Returns the number of elements that clients have prefetched, and may return.
    pub(super) fn prefetched(&self) -> usize {
        self.prefetched
    }

    /// Adds the client of a process, in place of an earlier one.
    pub(super) fn attach(
        &mut self,
        port: PortId,
        link: Arc<dyn Link>,
        requester: Requester,
        ready: &mut Blocks,
    ) {
        let peer = requester.peer;
        self.take_back(peer, ready);
        let client = ClientEntry {
            port,
            link,
            _attached: requester,
            unconfirmed: Unconfirmed::default(),
            epoch: 0,
            recalled: false,
            gets: false,
        };
        self.clients.insert(peer, client);
    }

    /// Handles a client's demand. Returns the part of it that is not on its way to the client.
    pub(super) fn want(&mut self, peer: PeerId, demand: usize, used: u64) -> Option<usize> {
        self.clients.get_mut(&peer)?.gets = true;
        self.used(peer, used);
        self.lacking(peer, demand)
    }

    /// Puts the elements back to `ready` that a client has not used. Returns the client's demand.
    pub(super) fn return_unused(
        &mut self,
        peer: PeerId,
        demand: usize,
        used: u64,
        ready: &mut Blocks,
    ) -> Option<usize> {
        self.used(peer, used);
        self.take_back(peer, ready);
        self.lacking(peer, demand)
    }

    fn lacking(&self, peer: PeerId, demand: usize) -> Option<usize> {
        self.clients.get(&peer).map(|client| client.unconfirmed.lacking(demand))
    }

    fn used(&mut self, peer: PeerId, used: u64) {
        if let Some(client) = self.clients.get_mut(&peer) {
            self.prefetched -= client.unconfirmed.used(used);
        }
    }

    pub(super) fn take_back(&mut self, peer: PeerId, ready: &mut Blocks) {
        let Some(client) = self.clients.get_mut(&peer) else { return };
        client.recalled = false;
        client.epoch += 1;
        for (sent_as, block) in client.unconfirmed.take_all() {
            if sent_as == SentAs::Prefetched {
                self.prefetched -= block.count;
            }
            ready.put_back(block);
        }
    }

    /// Removes a process that is gone. Its prefetched elements go back to `ready`. It has most
    /// likely used those that it demanded, so they are not delivered again.
    pub(super) fn peer_lost(&mut self, peer: PeerId, ready: &mut Blocks) {
        let Some(mut client) = self.clients.remove(&peer) else { return };
        let prefetched = |(sent_as, _): &(SentAs, Block)| *sent_as == SentAs::Prefetched;
        for (_, block) in client.unconfirmed.take_all().filter(prefetched) {
            self.prefetched -= block.count;
            ready.put_back(block);
        }
    }

    /// Sends a client elements that it demanded.
    pub(super) fn deliver(&mut self, peer: PeerId, blocks: Vec<Block>) {
        if let Some(client) = self.clients.get_mut(&peer) {
            client.send(SentAs::Demanded, blocks);
        }
    }

    /// Sends a client up to `count` elements that it did not demand, but no more than its share.
    /// Returns whether it sent any.
    pub(super) fn prefetch(&mut self, peer: PeerId, count: usize, ready: &mut Blocks) -> bool {
        let consumers = self.clients.values().filter(|client| client.gets).count().max(1);
        let Some(client) = self.clients.get_mut(&peer) else { return false };
        let count = count.min(ready.len().div_ceil(consumers));
        if count == 0 || client.recalled {
            return false;
        }
        let blocks = ready.take(count, PREFETCH_BYTES);
        self.prefetched += blocks.iter().map(|block| block.count).sum::<usize>();
        client.send(SentAs::Prefetched, blocks);
        true
    }

    /// Asks all clients for the elements that they have not used.
    pub(super) fn recall(&mut self) {
        if self.prefetched == 0 {
            return;
        }
        for (_, client) in self.clients.iter_mut() {
            if !client.recalled && client.unconfirmed.has_prefetched() {
                client.recalled = true;
                client.push(&[RECALL]);
            }
        }
    }

    /// Asks all clients but `reader` for the elements that they have not used. Returns whether any
    /// client may have some.
    pub(super) fn recall_others(&mut self, reader: Option<PeerId>) -> bool {
        let mut any = false;
        for (peer, client) in self.clients.iter_mut() {
            if Some(*peer) == reader || client.unconfirmed.is_empty() {
                continue;
            }
            any = true;
            if !std::mem::replace(&mut client.recalled, true) {
                client.push(&[RECALL]);
            }
        }
        any
    }

    /// Sends all clients that the queue takes no more elements.
    pub(super) fn send_ended_to_all(&self, reason: Closing) {
        self.clients.values().for_each(|client| client.push(&[ENDED, reason as u8]));
    }

    /// Sends a client that no more elements will come.
    pub(super) fn send_ended(&self, peer: PeerId, reason: Closing) {
        if let Some(client) = self.clients.get(&peer) {
            client.push(&[ENDED, reason as u8]);
        }
    }
}

impl ClientEntry {
    fn push(&self, message: &[u8]) {
        let mut payload = port_head(self.port);
        payload.extend_from_slice(message);
        push(&self.link, payload, Bytes::new(), Blobs::default());
    }

    /// Sends blocks: long ones without copying them, short ones together.
    fn send(&mut self, sent_as: SentAs, blocks: Vec<Block>) {
        const LONG: usize = 16 << 10;
        let head = |count: usize| {
            let mut payload = port_head(self.port);
            payload.push(match sent_as {
                SentAs::Demanded => DELIVER,
                SentAs::Prefetched => PREFETCH,
            });
            payload.extend_from_slice(&self.epoch.to_le_bytes());
            payload.extend_from_slice(&(count as u32).to_le_bytes());
            payload
        };
        let mut rest = &blocks[..];
        while let Some(first) = rest.first() {
            if first.stays_alone(LONG) {
                push(&self.link, head(first.count), first.bytes.clone(), first.blobs.clone());
                rest = &rest[1..];
                continue;
            }
            let short = rest.iter().take_while(|block| !block.stays_alone(LONG)).count();
            let mut payload = head(rest[..short].iter().map(|block| block.count).sum());
            rest[..short].iter().for_each(|block| payload.extend_from_slice(&block.bytes));
            push(&self.link, payload, Bytes::new(), Blobs::default());
            rest = &rest[short..];
        }
        self.unconfirmed.send(sent_as, blocks);
    }
}
