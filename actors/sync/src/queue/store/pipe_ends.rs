//! The processes that hold the ends of a pipe.

use std::collections::{HashMap, HashSet};

use super::QueueState;
use crate::queue::wire::{Closing, PipeRole};
use fiber_runtime::mesh::PeerId;

/// Both ends of a pipe. A queue that is not a pipe has none.
#[derive(Debug, Default)]
pub(super) struct PipeEnds([EndHolders; 2]);

/// The processes that hold one end.
#[derive(Debug, Default)]
struct EndHolders {
    processes: HashMap<PeerId, usize>,
    /// Tokens of ends that were sent and have not arrived.
    in_transit: HashSet<u64>,
    /// Tokens of ends that arrived before the message that they were sent.
    early: HashSet<u64>,
}

/// Changes of the holders. The other end learns when the last holder is gone.
impl QueueState {
    /// Adds an end of a process. It has a token if it was sent before.
    pub(in crate::queue) fn end_arrived(
        &mut self,
        role: PipeRole,
        process: PeerId,
        token: Option<u64>,
    ) {
        self.pipe_ends.arrived(role, process, token);
    }

    pub(in crate::queue) fn end_dropped(&mut self, role: PipeRole, process: PeerId) {
        self.pipe_ends.dropped(role, process);
        self.close_if_gone(role);
    }

    pub(in crate::queue) fn end_sent(&mut self, role: PipeRole, token: u64) {
        self.pipe_ends.sent(role, token);
    }

    pub(in crate::queue) fn end_lost(&mut self, role: PipeRole, token: u64) {
        if self.pipe_ends.lost(role, token) {
            self.close_if_gone(role);
        }
    }

    /// Closes the pipe if no process holds this end any more.
    pub(super) fn close_if_gone(&mut self, role: PipeRole) {
        if !self.pipe_ends.are_gone(role) {
            return;
        }
        match role {
            // Writers that send nothing at present learn it, too.
            PipeRole::Reader => self.clients.send_ended_to_all(Closing::OtherEndGone),
            // Elements that wait for room were sent, so they can still be received.
            PipeRole::Writer => std::mem::take(&mut self.blocked)
                .into_iter()
                .for_each(|blocked| self.admit(blocked)),
        }
        self.close(Closing::OtherEndGone);
    }

    /// Drops the elements that no process will receive. Some come back after the end of the last
    /// reader: those that its process had prefetched.
    pub(super) fn drop_unreadable(&mut self) {
        let is_pipe = self.closing == Some(Closing::OtherEndGone);
        if is_pipe && self.pipe_ends.are_gone(PipeRole::Reader) {
            self.ready.clear();
        }
    }
}

impl PipeEnds {
    /// Returns whether there are no ends: the queue is no direction of a pipe.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(EndHolders::is_empty)
    }

    fn holders(&mut self, role: PipeRole) -> &mut EndHolders {
        &mut self.0[role as usize]
    }

    fn arrived(&mut self, role: PipeRole, process: PeerId, token: Option<u64>) {
        let holders = self.holders(role);
        *holders.processes.entry(process).or_default() += 1;
        if let Some(token) = token
            && !holders.in_transit.remove(&token)
        {
            holders.early.insert(token);
        }
    }

    /// Adds an end in transit. It counts until it arrives.
    fn sent(&mut self, role: PipeRole, token: u64) {
        let holders = self.holders(role);
        if !holders.early.remove(&token) {
            holders.in_transit.insert(token);
        }
    }

    /// Removes an end that will not arrive any more. Returns whether it was in transit.
    fn lost(&mut self, role: PipeRole, token: u64) -> bool {
        let holders = self.holders(role);
        holders.early.remove(&token);
        holders.in_transit.remove(&token)
    }

    fn dropped(&mut self, role: PipeRole, process: PeerId) {
        let processes = &mut self.holders(role).processes;
        if let Some(count) = processes.get_mut(&process) {
            *count -= 1;
            if *count == 0 {
                processes.remove(&process);
            }
        }
    }

    /// Removes all ends of a process that is gone. Returns their roles.
    pub(super) fn peer_lost(&mut self, peer: PeerId) -> Vec<PipeRole> {
        let mut held = vec![PipeRole::Writer, PipeRole::Reader];
        held.retain(|role| self.holders(*role).processes.remove(&peer).is_some());
        held
    }

    /// Returns whether no process holds this end, and none is in transit.
    fn are_gone(&self, role: PipeRole) -> bool {
        self.0[role as usize].is_empty()
    }
}

impl EndHolders {
    fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.in_transit.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: PeerId = PeerId::LOCAL;
    const OTHER: PeerId = PeerId::OTHER;

    #[test]
    fn an_end_in_transit_keeps_the_pipe_open() {
        let mut ends = PipeEnds::default();
        ends.arrived(PipeRole::Writer, HERE, None);
        ends.arrived(PipeRole::Reader, HERE, None);
        ends.sent(PipeRole::Writer, 7);
        ends.dropped(PipeRole::Writer, HERE);
        assert!(!ends.are_gone(PipeRole::Writer));
        ends.arrived(PipeRole::Writer, OTHER, Some(7));
        assert!(!ends.are_gone(PipeRole::Writer));
        ends.dropped(PipeRole::Writer, OTHER);
        assert!(ends.are_gone(PipeRole::Writer) && !ends.are_gone(PipeRole::Reader));
    }

    #[test]
    fn an_end_may_arrive_before_the_message_that_it_was_sent() {
        let mut ends = PipeEnds::default();
        ends.arrived(PipeRole::Reader, HERE, None);
        ends.arrived(PipeRole::Reader, OTHER, Some(7));
        ends.sent(PipeRole::Reader, 7);
        ends.dropped(PipeRole::Reader, HERE);
        assert!(!ends.are_gone(PipeRole::Reader));
        ends.dropped(PipeRole::Reader, OTHER);
        assert!(ends.are_gone(PipeRole::Reader), "it does not stay in transit");
    }

    #[test]
    fn a_lost_end_is_gone_unless_it_has_arrived() {
        let mut ends = PipeEnds::default();
        ends.sent(PipeRole::Writer, 7);
        ends.sent(PipeRole::Reader, 8);
        ends.arrived(PipeRole::Reader, OTHER, Some(8));
        assert!(ends.lost(PipeRole::Writer, 7) && ends.are_gone(PipeRole::Writer));
        assert!(!ends.lost(PipeRole::Reader, 8) && !ends.are_gone(PipeRole::Reader));
    }

    #[test]
    fn the_ends_of_a_lost_process_are_gone_and_no_others() {
        let mut ends = PipeEnds::default();
        ends.arrived(PipeRole::Writer, HERE, None);
        for token in 1..=2 {
            ends.sent(PipeRole::Writer, token);
            ends.arrived(PipeRole::Writer, OTHER, Some(token));
        }
        assert_eq!(ends.peer_lost(OTHER), [PipeRole::Writer]);
        assert_eq!(ends.peer_lost(OTHER), []);
        assert!(!ends.are_gone(PipeRole::Writer), "one is here");
        ends.dropped(PipeRole::Writer, HERE);
        assert!(ends.are_gone(PipeRole::Writer));
    }
}
