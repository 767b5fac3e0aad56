//! The processes that hold an object of this process.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::port::PeerId;

/// The number of an encoded handle in transit. The encoding contains it.
pub(crate) type Token = u64;

/// A change of the holders of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    /// A process has got its first handle.
    Attach,
    /// A process has dropped its last handle.
    Detach,
    /// A handle was encoded, to be decoded once.
    Sent(Token),
    /// That handle was decoded.
    Arrived(Token),
    /// A handle was encoded, and may be decoded anywhere, any number of times.
    Keep,
}

/// The processes that hold an object, now or soon.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    attached: HashSet<PeerId>,
    /// The number of processes that were lost so recently that handles which they sent may still
    /// arrive.
    lost: usize,
    /// Tokens of handles that were encoded and not decoded.
    in_transit: HashSet<Token>,
    /// Tokens of handles that were decoded before the message that they were encoded.
    early: HashSet<Token>,
    /// Whether an encoded copy exists that may be decoded anywhere.
    kept: bool,
}

impl Holders {
    /// Returns whether no other process holds the object, now or soon.
    pub(crate) fn are_gone(&self) -> bool {
        self.attached.is_empty() && self.lost == 0 && self.in_transit.is_empty() && !self.kept
    }

    /// Returns whether this value is as it was at first.
    pub(crate) fn is_empty(&self) -> bool {
        self.are_gone() && self.early.is_empty()
    }

    /// Applies a change that a process sent.
    pub(crate) fn apply(&mut self, peer: PeerId, change: Change) {
        match change {
            Change::Attach => drop(self.attached.insert(peer)),
            Change::Detach => drop(self.attached.remove(&peer)),
            Change::Sent(token) => {
                if !self.early.remove(&token) {
                    self.in_transit.insert(token);
                }
            }
            Change::Arrived(token) => {
                if !self.in_transit.remove(&token) {
                    self.early.insert(token);
                }
            }
            Change::Keep => self.kept = true,
        }
    }

    pub(crate) fn is_attached(&self, peer: PeerId) -> bool {
        self.attached.contains(&peer)
    }

    /// Removes a process that is gone. Handles that it sent count until
    /// [`forget_lost`](Holders::forget_lost).
    pub(crate) fn lose(&mut self, peer: PeerId) {
        if self.attached.remove(&peer) {
            self.lost += 1;
        }
    }

    pub(crate) fn forget_lost(&mut self) {
        self.lost = self.lost.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: PeerId = PeerId::OTHER;

    #[test]
    fn a_handle_in_transit_holds_the_object_and_then_the_process_where_it_arrives() {
        let mut holders = Holders::default();
        holders.apply(OTHER, Change::Sent(7));
        assert!(!holders.are_gone());
        holders.apply(OTHER, Change::Attach);
        holders.apply(OTHER, Change::Arrived(7));
        assert!(!holders.are_gone());
        holders.apply(OTHER, Change::Detach);
        assert!(holders.are_gone() && holders.is_empty());
    }

    #[test]
    fn a_handle_may_arrive_before_the_message_that_it_was_sent() {
        let mut holders = Holders::default();
        holders.apply(OTHER, Change::Attach);
        holders.apply(OTHER, Change::Arrived(7));
        holders.apply(OTHER, Change::Detach);
        assert!(holders.are_gone() && !holders.is_empty());
        holders.apply(OTHER, Change::Sent(7));
        assert!(holders.is_empty(), "it does not stay in transit");
    }

    #[test]
    fn handles_that_a_lost_process_sent_may_still_arrive() {
        let mut holders = Holders::default();
        holders.apply(OTHER, Change::Attach);
        holders.lose(OTHER);
        holders.lose(OTHER);
        assert!(!holders.are_gone());
        holders.forget_lost();
        assert!(holders.are_gone());
    }

    #[test]
    fn an_object_with_an_encoded_copy_of_unknown_whereabouts_stays() {
        let mut holders = Holders::default();
        holders.apply(OTHER, Change::Keep);
        holders.apply(OTHER, Change::Attach);
        holders.apply(OTHER, Change::Detach);
        assert!(!holders.are_gone());
    }
}
