//! Elements whose work is not done.

use fiber_runtime::mesh::{PeerId, Requester};
use fiber_runtime::objects::Ticket;

/// The number of elements that were put in and are not done, and the requests that wait until it
/// is 0.
#[derive(Default)]
pub(super) struct Unfinished {
    count: u64,
    joiners: Vec<(Ticket, Requester)>,
}

impl Unfinished {
    pub(super) fn add(&mut self, count: usize) {
        self.count += count as u64;
    }

    pub(super) fn done(&mut self, count: u64) {
        self.count = self.count.saturating_sub(count);
        if self.count == 0 {
            self.joiners.drain(..).for_each(|(_, requester)| requester.answer(&()));
        }
    }

    /// Answers the requester when all elements are done.
    pub(super) fn join(&mut self, ticket: Ticket, requester: Requester) {
        if self.count == 0 {
            return requester.answer(&());
        }
        self.joiners.push((ticket, requester));
    }

    /// Removes the requests that wait, and returns their requesters.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Requester> {
        std::mem::take(&mut self.joiners).into_iter().map(|(_, requester)| requester)
    }

    pub(super) fn withdraw(&mut self, peer: PeerId, ticket: Ticket) {
        self.joiners.retain(|(other, joiner)| (joiner.peer, *other) != (peer, ticket));
    }

    pub(super) fn peer_lost(&mut self, peer: PeerId) {
        self.joiners.retain(|(_, joiner)| joiner.peer != peer);
    }
}
