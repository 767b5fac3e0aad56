//! Who holds the ends of a pipe.

use std::collections::{HashMap, HashSet};

use crate::mesh::PeerId;
use crate::queue::Role;

/// Both ends of a pipe, as far as anybody holds them. Of a queue that is none nobody holds any.
#[derive(Debug, Default)]
pub(super) struct Claims {
    writers: Holders,
    readers: Holders,
}

/// Who holds one end.
#[derive(Debug, Default)]
struct Holders {
    here: usize,
    elsewhere: HashMap<PeerId, usize>,
    /// Sent away, and not arrived.
    travelling: HashSet<u64>,
    /// Arrived before it was known that they had been sent.
    early: HashSet<u64>,
}

impl Claims {
    fn holders(&mut self, role: Role) -> &mut Holders {
        match role {
            Role::Writer => &mut self.writers,
            Role::Reader => &mut self.readers,
        }
    }

    /// An end of this process is there; one that has a token has arrived again.
    pub(super) fn claim_here(&mut self, role: Role, token: Option<u64>) {
        let holders = self.holders(role);
        holders.here += 1;
        if let Some(token) = token {
            holders.arrived(token);
        }
    }

    /// An end has arrived in another process.
    pub(super) fn claim(&mut self, role: Role, peer: PeerId, token: u64) {
        let holders = self.holders(role);
        *holders.elsewhere.entry(peer).or_default() += 1;
        holders.arrived(token);
    }

    /// An end has been sent away, and counts as being there until it arrives.
    pub(super) fn travel(&mut self, role: Role, token: u64) {
        let holders = self.holders(role);
        if !holders.early.remove(&token) {
            holders.travelling.insert(token);
        }
    }

    /// An end that was sent away will not arrive, unless it has. Returns whether it was on its way.
    pub(super) fn travel_no_more(&mut self, role: Role, token: u64) -> bool {
        let holders = self.holders(role);
        holders.early.remove(&token);
        holders.travelling.remove(&token)
    }

    /// An end of this process is gone.
    pub(super) fn unclaim_here(&mut self, role: Role) {
        self.holders(role).here -= 1;
    }

    /// An end of another process is gone.
    pub(super) fn unclaim(&mut self, role: Role, peer: PeerId) {
        let holders = self.holders(role);
        if let Some(count) = holders.elsewhere.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                holders.elsewhere.remove(&peer);
            }
        }
    }

    /// A process is gone, with all its ends. Says which they were.
    pub(super) fn lost(&mut self, peer: PeerId) -> Vec<Role> {
        let mut held = vec![Role::Writer, Role::Reader];
        held.retain(|role| self.holders(*role).elsewhere.remove(&peer).is_some());
        held
    }

    /// Whether nobody holds this end any more, and none is on its way.
    pub(super) fn are_gone(&self, role: Role) -> bool {
        let holders = match role {
            Role::Writer => &self.writers,
            Role::Reader => &self.readers,
        };
        holders.here == 0 && holders.elsewhere.is_empty() && holders.travelling.is_empty()
    }
}

impl Holders {
    fn arrived(&mut self, token: u64) {
        if !self.travelling.remove(&token) {
            self.early.insert(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THERE: PeerId = PeerId::ANOTHER;

    #[test]
    fn an_end_on_its_way_counts_as_being_there() {
        let mut claims = Claims::default();
        claims.claim_here(Role::Writer, None);
        claims.claim_here(Role::Reader, None);
        claims.travel(Role::Writer, 7);
        claims.unclaim_here(Role::Writer);
        assert!(!claims.are_gone(Role::Writer));
        claims.claim(Role::Writer, THERE, 7);
        assert!(!claims.are_gone(Role::Writer));
        claims.unclaim(Role::Writer, THERE);
        assert!(claims.are_gone(Role::Writer) && !claims.are_gone(Role::Reader));
    }

    #[test]
    fn an_end_may_arrive_before_it_is_known_that_it_was_sent() {
        let mut claims = Claims::default();
        claims.claim_here(Role::Reader, None);
        claims.claim(Role::Reader, THERE, 7);
        claims.travel(Role::Reader, 7);
        claims.unclaim_here(Role::Reader);
        assert!(!claims.are_gone(Role::Reader));
        claims.unclaim(Role::Reader, THERE);
        assert!(claims.are_gone(Role::Reader), "it does not travel for ever");
    }

    #[test]
    fn an_end_that_will_not_arrive_is_gone_and_one_that_has_arrived_is_not() {
        let mut claims = Claims::default();
        claims.travel(Role::Writer, 7);
        claims.travel(Role::Reader, 8);
        claims.claim(Role::Reader, THERE, 8);
        assert!(claims.travel_no_more(Role::Writer, 7) && claims.are_gone(Role::Writer));
        assert!(!claims.travel_no_more(Role::Reader, 8) && !claims.are_gone(Role::Reader));
    }

    #[test]
    fn a_lost_process_takes_all_its_ends_with_it_and_no_others() {
        let mut claims = Claims::default();
        claims.claim_here(Role::Writer, None);
        for token in 1..=2 {
            claims.travel(Role::Writer, token);
            claims.claim(Role::Writer, THERE, token);
        }
        assert_eq!(claims.lost(THERE), [Role::Writer]);
        assert_eq!(claims.lost(THERE), []);
        assert!(!claims.are_gone(Role::Writer), "one is here");
        claims.unclaim_here(Role::Writer);
        assert!(claims.are_gone(Role::Writer));
    }
}
