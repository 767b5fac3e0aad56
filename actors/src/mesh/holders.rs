//! Why an object of this process stays alive although no handle of it is here.

use std::collections::HashSet;

use bytes::{Buf, Bytes};

use super::port::PeerId;
use super::wire::PortId;

/// A handle on its way: the number that its encoded copy carries.
pub(crate) type Token = u64;

/// What changes in who holds an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A process has its first handle.
    Attach,
    /// A process has no handle any more.
    Detach,
    /// A handle was encoded to be decoded once.
    Travel(Token),
    /// It was decoded.
    Arrive(Token),
    /// A handle was encoded, and nobody knows where it will be decoded.
    Keep,
}

impl Change {
    /// Appends the change of an object: a byte that says which, the object, and the token.
    pub(crate) fn append(self, frame: &mut Vec<u8>, object: PortId) {
        let (kind, token) = match self {
            Change::Attach => (0, 0),
            Change::Detach => (1, 0),
            Change::Travel(token) => (2, token),
            Change::Arrive(token) => (3, token),
            Change::Keep => (4, 0),
        };
        frame.push(kind);
        frame.extend_from_slice(&object.0.to_le_bytes());
        frame.extend_from_slice(&token.to_le_bytes());
    }

    pub(crate) fn read(mut body: Bytes) -> Option<(PortId, Change)> {
        if body.len() != 17 {
            return None;
        }
        let (kind, object, token) = (body.get_u8(), PortId(body.get_u64_le()), body.get_u64_le());
        let change = match kind {
            0 => Change::Attach,
            1 => Change::Detach,
            2 => Change::Travel(token),
            3 => Change::Arrive(token),
            4 => Change::Keep,
            _ => return None,
        };
        Some((object, change))
    }
}

/// Who holds an object from elsewhere, or may do so soon.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// Processes that have handles.
    attached: HashSet<PeerId>,
    /// How many processes have been lost so recently that what they sent to others may still arrive
    /// there.
    lost: usize,
    /// Encoded, and not decoded.
    travelling: HashSet<Token>,
    /// Decoded before it was known that they had been encoded.
    early: HashSet<Token>,
    /// An encoded copy is where nobody knows.
    kept: bool,
}

impl Holders {
    /// Whether nobody elsewhere holds the object, or may do so later.
    pub(crate) fn are_gone(&self) -> bool {
        self.attached.is_empty() && self.lost == 0 && self.travelling.is_empty() && !self.kept
    }

    /// Whether there is nothing at all to know.
    pub(crate) fn is_empty(&self) -> bool {
        self.are_gone() && self.early.is_empty()
    }

    /// A process says what changes.
    pub(crate) fn apply(&mut self, peer: PeerId, change: Change) {
        match change {
            Change::Attach => drop(self.attached.insert(peer)),
            Change::Detach => drop(self.attached.remove(&peer)),
            Change::Travel(token) => {
                if !self.early.remove(&token) {
                    self.travelling.insert(token);
                }
            }
            Change::Arrive(token) => {
                if !self.travelling.remove(&token) {
                    self.early.insert(token);
                }
            }
            Change::Keep => self.kept = true,
        }
    }

    pub(crate) fn is_attached(&self, peer: PeerId) -> bool {
        self.attached.contains(&peer)
    }

    /// A process is gone. What it had sent counts until [`forget_lost`](Holders::forget_lost).
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

    const THERE: PeerId = PeerId::ANOTHER;

    #[test]
    fn an_object_is_held_while_a_handle_travels_and_then_by_the_process_where_it_arrives() {
        let mut holders = Holders::default();
        holders.apply(THERE, Change::Travel(7));
        assert!(!holders.are_gone());
        holders.apply(THERE, Change::Attach);
        holders.apply(THERE, Change::Arrive(7));
        assert!(!holders.are_gone());
        holders.apply(THERE, Change::Detach);
        assert!(holders.are_gone() && holders.is_empty());
    }

    #[test]
    fn a_handle_may_arrive_before_it_is_known_that_it_was_sent() {
        let mut holders = Holders::default();
        holders.apply(THERE, Change::Attach);
        holders.apply(THERE, Change::Arrive(7));
        holders.apply(THERE, Change::Detach);
        assert!(holders.are_gone() && !holders.is_empty());
        holders.apply(THERE, Change::Travel(7));
        assert!(holders.is_empty(), "it does not travel for ever");
    }

    #[test]
    fn what_a_lost_process_sent_may_still_arrive_elsewhere() {
        let mut holders = Holders::default();
        holders.apply(THERE, Change::Attach);
        holders.lose(THERE);
        holders.lose(THERE);
        assert!(!holders.are_gone());
        holders.forget_lost();
        assert!(holders.are_gone());
    }

    #[test]
    fn an_object_whose_handle_is_where_nobody_knows_stays() {
        let mut holders = Holders::default();
        holders.apply(THERE, Change::Keep);
        holders.apply(THERE, Change::Attach);
        holders.apply(THERE, Change::Detach);
        assert!(!holders.are_gone());
    }

    #[test]
    fn changes_arrive_as_they_were_sent() {
        for change in [
            Change::Attach,
            Change::Detach,
            Change::Travel(1),
            Change::Arrive(u64::MAX),
            Change::Keep,
        ] {
            let mut frame = Vec::new();
            change.append(&mut frame, PortId(5));
            assert_eq!(Change::read(frame.into()), Some((PortId(5), change)));
        }
        assert_eq!(Change::read(Bytes::from_static(&[0; 16])), None);
    }
}
