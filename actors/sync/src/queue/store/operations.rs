//! The operations of clients, and the loss of their processes.

use std::sync::Arc;

use fiber_transport::Link;

use super::durable::PutAnswer;
use super::{BlockedPut, QueueState, Readers};
use crate::queue::blocks::Block;
use crate::queue::wire::{Closing, Operation};
use fiber_runtime::mesh::{PeerId, Requester};

impl QueueState {
    pub(super) fn apply(
        &mut self,
        operation: Operation,
        requester: Requester,
        link: Option<Arc<dyn Link>>,
    ) {
        let peer = requester.peer;
        if let Some(error) = self.durable.as_ref().and_then(|durable| durable.failed())
            && operation.needs_journal()
        {
            return requester.fail_with(error);
        }
        match operation {
            Operation::Attach(port) => {
                let Some(link) = link else { return };
                // An earlier client of the process has failed, so it has not returned its elements.
                self.demands.set(peer, 0, 0);
                self.clients.attach(port, link, requester, &mut self.ready);
            }
            Operation::ReturnUnused { used, demand } => {
                let lacking = self.clients.return_unused(peer, demand, used, &mut self.ready);
                requester.answer(&());
                if let Some(lacking) = lacking {
                    self.demands.set(peer, lacking, 0);
                }
                self.distribute();
                self.end_if_over();
            }
            Operation::ReturnElement { element, used, demand } => {
                let lacking = self.clients.return_unused(peer, demand, used, &mut self.ready);
                self.demands.set(peer, lacking.unwrap_or(0), 0);
                self.return_element(element);
                self.end_if_over();
            }
            Operation::GetDelivery(ticket) => {
                self.demands.wait_for_delivery(ticket, requester);
                self.distribute();
            }
            Operation::WithdrawGet(ticket) => self.demands.withdraw(peer, ticket),
            Operation::Acknowledge(delivery) => {
                match self.deliveries.end(delivery) {
                    Some(block) if self.durable.is_some() => self.record_done(&block, requester),
                    Some(_) => {
                        self.unfinished.done(1);
                        requester.answer(&());
                    }
                    None => requester.answer(&()),
                }
                self.end_if_over();
            }
            Operation::Requeue(delivery) => {
                if let Some(block) = self.deliveries.end(delivery) {
                    self.ready.put_back(block);
                    self.distribute();
                }
            }
            Operation::TryGet => {
                requester.answer(&self.ready.pop());
                self.distribute();
            }
            Operation::TryPut(element) => {
                let fits = self.closing.is_none() && self.blocked.is_empty() && self.has_room();
                if fits && self.durable.is_some() {
                    return self.record_put(Block::of(element), requester, PutAnswer::Fits);
                }
                if fits {
                    self.unfinished.add(1);
                    self.ready.push_block(Block::of(element));
                    self.distribute();
                }
                requester.answer(&self.closing.map_or(Ok::<_, Closing>(fits), Err));
            }
            Operation::Put(ticket, element) => {
                self.put(Some(ticket), Block::of(element), requester);
            }
            Operation::WithdrawPut(ticket) => {
                let is_it = |blocked: &BlockedPut| {
                    blocked.ticket == Some(ticket) && blocked.requester.peer == peer
                };
                let index = self.blocked.iter().position(is_it);
                if let Some(index) = index {
                    self.blocked.remove(index);
                }
                requester.answer(&index.is_some());
            }
            Operation::Len => requester.answer(&(self.ready.len() + self.clients.prefetched())),
            Operation::TaskDone(count) => self.unfinished.done(count),
            Operation::Join(ticket) => self.unfinished.join(ticket, requester),
            Operation::WithdrawJoin(ticket) => self.unfinished.withdraw(peer, ticket),
            Operation::Close => {
                self.close(Closing::Closed);
                requester.answer(&());
            }
            Operation::EndArrived(role, token) => self.end_arrived(role, peer, Some(token)),
            Operation::EndDropped(role) => self.end_dropped(role, peer),
            Operation::EndSent(role, token) => self.end_sent(role, token),
            Operation::EndLost(role, token) => self.end_lost(role, token),
        }
    }

    /// Removes a process that is gone, and takes back its elements.
    pub(super) fn peer_lost(&mut self, peer: PeerId) {
        // A put with a ticket was not confirmed, so it is withdrawn. One without has been sent.
        self.blocked.retain(|blocked| blocked.ticket.is_none() || blocked.requester.peer != peer);
        self.demands.peer_lost(peer);
        self.unfinished.peer_lost(peer);
        if self.readers == Readers::InTurn {
            // The next reader knows which items it lacks.
            self.clients.take_back(peer, &mut self.ready);
        }
        self.clients.peer_lost(peer, &mut self.ready);
        for block in self.deliveries.peer_lost(peer) {
            self.ready.put_back(block);
        }
        for role in self.pipe_ends.peer_lost(peer) {
            self.close_if_gone(role);
        }
        self.distribute();
        self.end_if_over();
    }
}
