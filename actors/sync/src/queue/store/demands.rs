//! Consumers that wait for elements.

use std::collections::{HashMap, VecDeque};

use fiber_values::codec::EncodedValue;
use tokio::sync::oneshot;

use fiber_runtime::mesh::{PeerId, Requester};
use fiber_runtime::objects::Ticket;

/// A consumer that waits for an element.
pub(super) enum Demand {
    Here(oneshot::Sender<EncodedValue>),
    /// A consumer of a client, which prefetches this many elements when it gets its element.
    Client {
        peer: PeerId,
        prefetch: usize,
    },
    /// A consumer that acknowledges its element.
    Delivery {
        ticket: Ticket,
        requester: Requester,
    },
}

/// All demands, in the order of their arrival.
#[derive(Default)]
pub(super) struct Demands {
    queue: VecDeque<Demand>,
    /// The number of demands of each client.
    of_clients: HashMap<PeerId, usize>,
}

impl Demands {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds a consumer of this process.
    pub(super) fn wait_here(&mut self) -> oneshot::Receiver<EncodedValue> {
        let (sender, promise) = oneshot::channel();
        self.queue.push_back(Demand::Here(sender));
        promise
    }

    /// Removes consumers of this process that have gone.
    pub(super) fn remove_closed_promises(&mut self) {
        self.queue.retain(|demand| !matches!(demand, Demand::Here(sender) if sender.is_closed()));
    }

    /// Sets the number of demands of a client. New ones go to the end of the queue; if there are
    /// fewer than before, the client's last ones are removed.
    pub(super) fn set(&mut self, peer: PeerId, count: usize, prefetch: usize) {
        let before = self.of_clients.insert(peer, count).unwrap_or(0);
        for _ in before..count {
            self.queue.push_back(Demand::Client { peer, prefetch });
        }
        for _ in count..before {
            let is_its = |demand: &Demand| match demand {
                Demand::Client { peer: other, .. } => *other == peer,
                _ => false,
            };
            let last = self.queue.iter().rposition(is_its).expect("demands of clients are counted");
            self.queue.remove(last);
        }
    }

    /// Adds a consumer that acknowledges its element.
    pub(super) fn wait_for_delivery(&mut self, ticket: Ticket, requester: Requester) {
        self.queue.push_back(Demand::Delivery { ticket, requester });
    }

    /// Removes the consumer with this ticket, which would acknowledge its element.
    pub(super) fn withdraw(&mut self, peer: PeerId, ticket: Ticket) {
        self.queue.retain(|demand| {
            let Demand::Delivery { ticket: other, requester } = demand else { return true };
            (requester.peer, *other) != (peer, ticket)
        });
    }

    /// Returns the client of the consumer that has waited longest, or `None` for this process.
    pub(super) fn first(&self) -> Option<Option<PeerId>> {
        self.queue.front().map(|demand| match demand {
            Demand::Here(_) => None,
            Demand::Client { peer, .. } => Some(*peer),
            Demand::Delivery { requester, .. } => Some(requester.peer),
        })
    }

    /// Removes the consumer that has waited longest and returns it.
    pub(super) fn pop(&mut self) -> Option<Demand> {
        let demand = self.queue.pop_front()?;
        if let Demand::Client { peer, .. } = &demand {
            *self.of_clients.get_mut(peer).expect("demands of clients are counted") -= 1;
        }
        Some(demand)
    }

    /// Removes all consumers and returns them.
    pub(super) fn take_all(&mut self) -> VecDeque<Demand> {
        self.of_clients.clear();
        std::mem::take(&mut self.queue)
    }

    /// Removes the consumers that acknowledge their elements, and returns their requesters.
    pub(super) fn take_deliveries(&mut self) -> Vec<Requester> {
        let (mut taken, mut others) = (Vec::new(), VecDeque::new());
        for demand in std::mem::take(&mut self.queue) {
            match demand {
                Demand::Delivery { requester, .. } => taken.push(requester),
                other => others.push_back(other),
            }
        }
        self.queue = others;
        taken
    }

    /// Removes the consumers of a process that is gone.
    pub(super) fn peer_lost(&mut self, peer: PeerId) {
        self.of_clients.remove(&peer);
        self.queue.retain(|demand| match demand {
            Demand::Here(_) => true,
            Demand::Client { peer: other, .. } => *other != peer,
            Demand::Delivery { requester, .. } => requester.peer != peer,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PeerId = PeerId::LOCAL;
    const B: PeerId = PeerId::OTHER;

    /// Returns the processes of all consumers in their order. `None` is this process.
    fn order(demands: &mut Demands) -> Vec<Option<PeerId>> {
        let process = |demand| match demand {
            Demand::Here(_) => None,
            Demand::Client { peer, .. } => Some(peer),
            Demand::Delivery { requester, .. } => Some(requester.peer),
        };
        std::iter::from_fn(|| demands.pop()).map(process).collect()
    }

    #[test]
    fn a_client_with_a_smaller_demand_loses_its_last_places() {
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
    fn a_client_that_was_served_waits_behind_the_others() {
        let mut demands = Demands::default();
        demands.set(A, 1, 0);
        demands.set(B, 1, 0);
        assert!(matches!(demands.pop(), Some(Demand::Client { peer: A, .. })));
        demands.set(A, 1, 0);
        assert_eq!(order(&mut demands), [Some(B), Some(A)]);
    }

    #[test]
    fn consumers_that_have_gone_are_removed() {
        let mut demands = Demands::default();
        let promise = demands.wait_here();
        demands.set(A, 1, 0);
        demands.set(B, 2, 0);
        drop(promise);
        demands.remove_closed_promises();
        demands.peer_lost(B);
        demands.peer_lost(B);
        assert_eq!(order(&mut demands), [Some(A)]);
        demands.set(B, 1, 0);
        assert_eq!(demands.take_all().len(), 1);
        demands.set(B, 1, 0);
        assert_eq!(order(&mut demands), [Some(B)], "its demands are counted from 0 again");
    }
}
