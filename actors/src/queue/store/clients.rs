//! The processes that get from a queue or put into it, and what they were lent.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use fiber_transport::Link;

use super::outstanding::{Outstanding, Terms};
use crate::mesh::{PeerId, PortId, Requester, push, push_head};
use crate::queue::blocks::{Block, Blocks};
use crate::queue::wire::{Closing, ENDED, GIVE, LEND, RECALL};

/// The most that is lent at a time, unless one element is larger.
const LENT_BYTES: usize = 1 << 20;

/// All clients of a queue.
#[derive(Default)]
pub(super) struct Clients {
    clients: HashMap<PeerId, Client>,
    /// QueueStream in all clients' hands that they may give back.
    lent: usize,
}

struct Client {
    port: PortId,
    link: Arc<dyn Link>,
    /// Told that the queue has ended, when it has.
    _attached: Requester,
    outstanding: Outstanding,
    /// How often it has settled.
    epoch: u32,
    recalled: bool,
    gets: bool,
}

impl Clients {
    /// How many elements clients may give back.
    pub(super) fn lent(&self) -> usize {
        self.lent
    }

    /// A process has a new client, in place of the one that it had before, if any.
    pub(super) fn attach(
        &mut self,
        port: PortId,
        link: Arc<dyn Link>,
        requester: Requester,
        ready: &mut Blocks,
    ) {
        let peer = requester.peer;
        self.take_back(peer, ready);
        let outstanding = Outstanding::default();
        let client = Client {
            port,
            link,
            _attached: requester,
            outstanding,
            epoch: 0,
            recalled: false,
            gets: false,
        };
        self.clients.insert(peer, client);
    }

    /// A client gets. Says how many of so many that it waits for are not on their way to it.
    pub(super) fn want(&mut self, peer: PeerId, demand: usize, used: u64) -> Option<usize> {
        self.clients.get_mut(&peer)?.gets = true;
        self.used(peer, used);
        self.lacking(peer, demand)
    }

    /// A client has used so many of all that it was sent and keeps nothing. What it has not used is
    /// back in `ready`, and it lacks all that it waits for: how many those are.
    pub(super) fn settle(
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
        self.clients.get(&peer).map(|client| client.outstanding.lacking(demand))
    }

    fn used(&mut self, peer: PeerId, used: u64) {
        if let Some(client) = self.clients.get_mut(&peer) {
            self.lent -= client.outstanding.used(used);
        }
    }

    fn take_back(&mut self, peer: PeerId, ready: &mut Blocks) {
        let Some(client) = self.clients.get_mut(&peer) else { return };
        client.recalled = false;
        client.epoch += 1;
        for (terms, block) in client.outstanding.take_all() {
            if terms == Terms::Lent {
                self.lent -= block.count;
            }
            ready.put_back(block);
        }
    }

    /// A process is gone. What it was lent is back in `ready`; what it waited for it has most
    /// likely used, so nobody is to be given it again.
    pub(super) fn lost(&mut self, peer: PeerId, ready: &mut Blocks) {
        let Some(mut client) = self.clients.remove(&peer) else { return };
        for (_, block) in client.outstanding.take_all().filter(|(terms, _)| *terms == Terms::Lent) {
            self.lent -= block.count;
            ready.put_back(block);
        }
    }

    /// Gives a client what it waits for.
    pub(super) fn give(&mut self, peer: PeerId, blocks: Vec<Block>) {
        if let Some(client) = self.clients.get_mut(&peer) {
            client.send(Terms::Given, blocks);
        }
    }

    /// Lends a client up to `extra` elements, if it is its share, and says whether it did.
    pub(super) fn lend(&mut self, peer: PeerId, extra: usize, ready: &mut Blocks) -> bool {
        let getting = self.clients.values().filter(|client| client.gets).count().max(1);
        let Some(client) = self.clients.get_mut(&peer) else { return false };
        let count = extra.min(ready.len().div_ceil(getting));
        if count == 0 || client.recalled {
            return false;
        }
        let blocks = ready.take(count, LENT_BYTES);
        self.lent += blocks.iter().map(|block| block.count).sum::<usize>();
        client.send(Terms::Lent, blocks);
        true
    }

    /// Asks for what clients have and don't use.
    pub(super) fn recall(&mut self) {
        if self.lent == 0 {
            return;
        }
        let has_more = |client: &&mut Client| !client.recalled && client.outstanding.has_lent();
        for client in self.clients.values_mut().filter(has_more) {
            client.recalled = true;
            client.tell(&[RECALL]);
        }
    }

    /// Tells a client that nothing more will come.
    pub(super) fn tell_ended(&self, peer: PeerId, closing: Closing) {
        if let Some(client) = self.clients.get(&peer) {
            client.tell(&[ENDED, closing as u8]);
        }
    }
}

impl Client {
    fn tell(&self, what: &[u8]) {
        let mut payload = push_head(self.port);
        payload.extend_from_slice(what);
        push(&self.link, payload, Bytes::new());
    }

    /// Sends blocks; long ones as they are, short ones together.
    fn send(&mut self, terms: Terms, blocks: Vec<Block>) {
        const LONG: usize = 16 << 10;
        let head = |count: usize| {
            let mut payload = push_head(self.port);
            payload.push(match terms {
                Terms::Given => GIVE,
                Terms::Lent => LEND,
            });
            payload.extend_from_slice(&self.epoch.to_le_bytes());
            payload.extend_from_slice(&(count as u32).to_le_bytes());
            payload
        };
        let mut rest = &blocks[..];
        while let Some(first) = rest.first() {
            if first.bytes.len() >= LONG {
                push(&self.link, head(first.count), first.bytes.clone());
                rest = &rest[1..];
                continue;
            }
            let short = rest.iter().take_while(|block| block.bytes.len() < LONG).count();
            let mut payload = head(rest[..short].iter().map(|block| block.count).sum());
            rest[..short].iter().for_each(|block| payload.extend_from_slice(&block.bytes));
            push(&self.link, payload, Bytes::new());
            rest = &rest[short..];
        }
        self.outstanding.send(terms, blocks);
    }
}
