//! Which consumer gets an element, and which elements get in.

use fiber_core::value_memory;
use fiber_values::codec::EncodedValue;
use fiber_values::spill;

use super::demands::Demand;
use super::durable::{DurableElements, PutAnswer};
use super::{BlockedPut, Capacity, QueueState, Readers};
use crate::queue::blocks::Block;
use crate::queue::wire::{ADMITTED, Closing};
use fiber_runtime::mesh::{PeerId, Requester};
use fiber_runtime::objects::Ticket;

impl QueueState {
    /// Returns whether an element may get in. Beyond the memory of values, elements go to a file;
    /// if that can't be written, an empty queue still takes one, so the queue goes on.
    pub(super) fn has_room(&self) -> bool {
        let is_kept = || self.ready.is_empty() || !value_memory::is_full() || spill::is_possible();
        self.is_below_capacity() && is_kept()
    }

    /// Returns whether only the memory of values keeps elements out.
    pub(super) fn waits_for_memory(&self) -> bool {
        !self.blocked.is_empty() && self.is_below_capacity()
    }

    fn is_below_capacity(&self) -> bool {
        match self.capacity {
            Capacity::Unbounded => true,
            Capacity::Elements(limit) => {
                self.ready.len() + self.clients.prefetched() + self.recording() < limit
            }
            // Without a byte of room, one element at a time.
            Capacity::Bytes(limit) => self.ready.is_empty() || self.ready.bytes() < limit,
        }
    }

    /// Returns the number of elements that are being recorded.
    fn recording(&self) -> usize {
        self.durable.as_ref().map_or(0, DurableElements::recording)
    }

    /// Puts the elements of another process in, when there is room.
    pub(super) fn put(&mut self, ticket: Option<Ticket>, block: Block, requester: Requester) {
        if let Some(reason) = self.closing {
            return requester.answer_bytes(&[reason as u8]);
        }
        self.blocked.push_back(BlockedPut { ticket, block, requester });
        self.distribute();
    }

    pub(super) fn admit(&mut self, BlockedPut { block, requester, .. }: BlockedPut) {
        if self.durable.is_some() {
            return self.record_put(block, requester, PutAnswer::Admitted);
        }
        self.unfinished.add(block.count);
        self.ready.push_block(block);
        requester.answer_bytes(&[ADMITTED]);
    }

    /// Sets the demand of a client, and sends it elements.
    pub(super) fn want(&mut self, peer: PeerId, demand: usize, prefetch: usize, used: u64) {
        let Some(lacking) = self.clients.want(peer, demand, used) else { return };
        self.demands.set(peer, lacking, prefetch);
        if lacking > 0 || !self.blocked.is_empty() {
            self.distribute();
        }
        if lacking == 0 && !self.ready.begins_with_returned() && !self.is_anothers_turn(Some(peer))
        {
            self.prefetch(peer, prefetch);
        }
    }

    /// Returns whether `reader`, a client or this process, gets no elements yet, because another
    /// process may have earlier ones. That process is asked to return them.
    pub(super) fn is_anothers_turn(&mut self, reader: Option<PeerId>) -> bool {
        self.readers == Readers::InTurn && self.clients.recall_others(reader)
    }

    fn prefetch(&mut self, peer: PeerId, count: usize) {
        if self.clients.prefetch(peer, count, &mut self.ready) && !self.blocked.is_empty() {
            self.distribute();
        }
    }

    /// Sends elements to the consumers that wait, and admits blocked elements while there is room.
    pub(super) fn distribute(&mut self) {
        self.drop_unreadable();
        let mut served: Vec<(PeerId, usize, Vec<Block>)> = Vec::new();
        loop {
            while self.has_room()
                && let Some(blocked) = self.blocked.pop_front()
            {
                self.admit(blocked);
            }
            let Some(reader) = self.demands.first() else { break };
            if self.is_anothers_turn(reader) {
                break;
            }
            let Some(block) = self.ready.pop_block() else { break };
            match self.demands.pop().expect("it is not empty") {
                Demand::Here(sender) => {
                    if sender.send(block.clone().into_element()).is_err() {
                        self.ready.put_back(block);
                    }
                }
                Demand::Client { peer, prefetch } => {
                    match served.iter_mut().find(|(other, ..)| *other == peer) {
                        Some((.., blocks)) => blocks.push(block),
                        None => served.push((peer, prefetch, vec![block])),
                    }
                }
                Demand::Delivery { requester, .. } => {
                    let element = block.clone().into_element();
                    let delivery = self.deliveries.begin(requester.peer, block);
                    requester.answer(&Ok::<_, Closing>((delivery, element)));
                }
            }
        }
        // All clients get the elements that they demanded before any of them prefetches more.
        for (peer, _, blocks) in &mut served {
            self.clients.deliver(*peer, std::mem::take(blocks));
        }
        served.into_iter().for_each(|(peer, prefetch, _)| self.prefetch(peer, prefetch));
        if !self.demands.is_empty() && self.ready.is_empty() {
            self.clients.recall();
            self.end_if_over();
        }
    }

    /// Returns whether the queue is closed and no element is left, here or at a client.
    pub(super) fn is_over(&self) -> bool {
        self.closing.is_some()
            && self.ready.is_empty()
            && self.blocked.is_empty()
            && self.recording() == 0
            && self.clients.prefetched() == 0
            && self.deliveries.is_empty()
    }

    /// Answers the consumers that wait, if no more elements will come.
    pub(super) fn end_if_over(&mut self) {
        let Some(reason) = self.closing.filter(|_| self.is_over()) else { return };
        for demand in self.demands.take_all() {
            match demand {
                // Its consumer sees that the promise is dropped.
                Demand::Here(_) => {}
                Demand::Client { peer, .. } => self.clients.send_ended(peer, reason),
                Demand::Delivery { requester, .. } => {
                    requester.answer(&Err::<(u64, EncodedValue), _>(reason));
                }
            }
        }
    }

    pub(super) fn close(&mut self, reason: Closing) {
        self.closing.get_or_insert(reason);
        if let Some(waker) = self.closed_waker.take() {
            waker.wake();
        }
        for blocked in std::mem::take(&mut self.blocked) {
            blocked.requester.answer_bytes(&[reason as u8]);
        }
        self.distribute();
        self.end_if_over();
    }
}
