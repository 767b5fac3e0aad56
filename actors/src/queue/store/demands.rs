//! Who waits for elements.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::mesh::{PeerId, Requester};
use crate::objects::Ticket;

/// Somebody who waits for an element.
pub(super) enum Demand {
    Here(oneshot::Sender<Bytes>),
    /// A client, which may be lent so many when it is given what it waits for.
    Client {
        peer: PeerId,
        extra: usize,
    },
    Taker {
        ticket: Ticket,
        requester: Requester,
    },
}

/// Those who wait, in the order in which they began to.
#[derive(Default)]
pub(super) struct Demands {
    line: VecDeque<Demand>,
    /// How many in the line are of each client.
    of_clients: HashMap<PeerId, usize>,
}

impl Demands {
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Somebody here begins to wait.
    pub(super) fn wait_here(&mut self) -> oneshot::Receiver<Bytes> {
        let (sender, promise) = oneshot::channel();
        self.line.push_back(Demand::Here(sender));
        promise
    }

    /// Somebody here does not wait any more.
    pub(super) fn forget_promises(&mut self) {
        self.line.retain(|demand| !matches!(demand, Demand::Here(sender) if sender.is_closed()));
    }

    /// A client waits for so many in all. New ones go behind all others; if there are fewer now,
    /// its last ones leave.
    pub(super) fn set(&mut self, peer: PeerId, count: usize, extra: usize) {
        let before = self.of_clients.insert(peer, count).unwrap_or(0);
        for _ in before..count {
            self.line.push_back(Demand::Client { peer, extra });
        }
        for _ in count..before {
            let is_its = |demand: &Demand| matches!(demand, Demand::Client { peer: other, .. } if *other == peer);
            let last = self.line.iter().rposition(is_its).expect("as many wait as were counted");
            self.line.remove(last);
        }
    }

    /// Somebody begins to wait for an element to be acknowledged.
    pub(super) fn wait_to_take(&mut self, ticket: Ticket, requester: Requester) {
        self.line.push_back(Demand::Taker { ticket, requester });
    }

    /// The one who began to wait to take with this ticket does so no more.
    pub(super) fn untake(&mut self, peer: PeerId, ticket: Ticket) {
        self.line.retain(|demand| {
            !matches!(demand, Demand::Taker { ticket: other, requester } if *other == ticket && requester.peer == peer)
        });
    }

    /// Who has waited longest.
    pub(super) fn pop(&mut self) -> Option<Demand> {
        let demand = self.line.pop_front()?;
        if let Demand::Client { peer, .. } = &demand {
            *self.of_clients.get_mut(peer).expect("clients that wait are counted") -= 1;
        }
        Some(demand)
    }

    /// All who wait: nobody does any more.
    pub(super) fn take_all(&mut self) -> VecDeque<Demand> {
        self.of_clients.clear();
        std::mem::take(&mut self.line)
    }

    /// A process is gone.
    pub(super) fn lost(&mut self, peer: PeerId) {
        self.of_clients.remove(&peer);
        self.line.retain(|demand| match demand {
            Demand::Here(_) => true,
            Demand::Client { peer: other, .. } => *other != peer,
            Demand::Taker { requester, .. } => requester.peer != peer,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PeerId = PeerId::HERE;
    const B: PeerId = PeerId::ANOTHER;

    /// Whose turn it is, from the first to the last; `None` is this process.
    fn order(demands: &mut Demands) -> Vec<Option<PeerId>> {
        let turn = |demand| match demand {
            Demand::Here(_) => None,
            Demand::Client { peer, .. } => Some(peer),
            Demand::Taker { requester, .. } => Some(requester.peer),
        };
        std::iter::from_fn(|| demands.pop()).map(turn).collect()
    }

    #[test]
    fn who_waits_for_fewer_gives_up_the_last_places() {
        let mut demands = Demands::default();
        demands.set(A, 2, 0);
        demands.set(B, 2, 0);
        let _promise = demands.wait_here();
        demands.set(A, 3, 0);
        demands.set(A, 1, 0);
        assert_eq!(order(&mut demands), [Some(A), Some(B), Some(B), None]);
        assert!(demands.is_empty());
    }

    #[test]
    fn who_was_served_waits_again_behind_the_others() {
        let mut demands = Demands::default();
        demands.set(A, 1, 0);
        demands.set(B, 1, 0);
        assert!(matches!(demands.pop(), Some(Demand::Client { peer: A, .. })));
        demands.set(A, 1, 0);
        assert_eq!(order(&mut demands), [Some(B), Some(A)]);
    }

    #[test]
    fn nobody_is_kept_who_does_not_wait_any_more() {
        let mut demands = Demands::default();
        let promise = demands.wait_here();
        demands.set(A, 1, 0);
        demands.set(B, 2, 0);
        drop(promise);
        demands.forget_promises();
        demands.lost(B);
        demands.lost(B);
        assert_eq!(order(&mut demands), [Some(A)]);
        demands.set(B, 1, 0);
        assert_eq!(demands.take_all().len(), 1);
        demands.set(B, 1, 0);
        assert_eq!(order(&mut demands), [Some(B)], "they are counted anew");
    }
}
