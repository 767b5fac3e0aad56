//! The processes that hold an object of this process.

use std::collections::HashSet;

use bytes::{Buf, Bytes};

use super::port::PeerId;
use super::wire::PortId;

/// The number of an encoded handle in transit. The encoding contains it.
pub(crate) type Token = u64;

/// A change of the holders of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Change {
    /// Appends the change: one byte for its kind, the object's id, and the token.
    pub(crate) fn append(self, frame: &mut Vec<u8>, object: PortId) {
        let (kind, token) = match self {
            Change::Attach => (0, 0),
            Change::Detach => (1, 0),
            Change::Sent(token) => (2, token),
            Change::Arrived(token) => (3, token),
            Change::Keep => (4, 0),
        };
        frame.push(kind);
        frame.extend_from_slice(&object.0.to_le_bytes());
        frame.extend_from_slice(&token.to_le_bytes());
    }

    /// Reads the object and the change that [`append`](Change::append) wrote. Returns `None` if
    /// `body` is anything else.
    pub(crate) fn read(mut body: Bytes) -> Option<(PortId, Change)> {
        if body.len() != 17 {
            return None;
        }
        let (kind, object, token) = (body.get_u8(), PortId(body.get_u64_le()), body.get_u64_le());
        let change = match kind {
            0 => Change::Attach,
            1 => Change::Detach,
            2 => Change::Sent(token),
            3 => Change::Arrived(token),
            4 => Change::Keep,
            _ => return None,
        };
        Some((object, change))
    }
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

    #[test]
    fn changes_are_read_as_they_were_encoded() {
        for change in [
            Change::Attach,
            Change::Detach,
            Change::Sent(1),
            Change::Arrived(u64::MAX),
            Change::Keep,
        ] {
            let mut frame = Vec::new();
            change.append(&mut frame, PortId(5));
            assert_eq!(Change::read(frame.into()), Some((PortId(5), change)));
        }
        assert_eq!(Change::read(Bytes::from_static(&[0; 16])), None);
    }
}
