//! Rules by which a process's host is chosen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::mesh::{ActorId, ProcessRef};

/// Which host a process goes to.
#[derive(Clone, Debug, Default)]
pub enum HostRule {
    /// Any, and none if the processes of its group have none.
    #[default]
    Any,
    /// The host of this name, or that of the machine of this name.
    Named(Arc<str>),
    /// The host in which the process of an actor runs.
    Beside(Neighbor),
    /// The host with the fewest of these processes.
    Spread(Arc<Spread>),
}

/// An actor beside which a process is to run.
#[derive(Clone, Debug)]
pub struct Neighbor {
    /// The session of the actor.
    pub session: u64,
    /// The name of the actor, for errors.
    pub name: Arc<str>,
    /// The process of the actor. For a managed actor, its owner.
    pub home: ProcessRef,
    /// The number of the actor there.
    pub actor: ActorId,
    /// Whether it is a managed actor.
    pub owned: bool,
}

/// Processes that are spread over hosts.
#[derive(Debug)]
pub struct Spread {
    /// How many of them there are to be.
    size: AtomicUsize,
}

impl Spread {
    /// Returns a set of so many processes.
    pub fn new(size: usize) -> Arc<Spread> {
        Arc::new(Spread { size: AtomicUsize::new(size) })
    }

    /// Sets how many processes there are to be.
    pub fn resize(&self, size: usize) {
        self.size.store(size, Ordering::Relaxed);
    }

    /// Returns over how many hosts they are spread that are for `per_job` processes each: as few
    /// as there have to be, and at least two, so that no host has all of them.
    pub(super) fn hosts(&self, per_job: usize) -> usize {
        let size = self.size.load(Ordering::Relaxed);
        size.div_ceil(per_job.max(1)).max(size.min(2))
    }
}

impl HostRule {
    /// Returns whether a host for this rule has room whenever one for the other has.
    pub(super) fn waits_as(&self, other: &HostRule) -> bool {
        match (self, other) {
            (HostRule::Named(own), HostRule::Named(other)) => own == other,
            (HostRule::Named(_), _) | (_, HostRule::Named(_)) => false,
            _ => true,
        }
    }

    pub(super) fn is_named(&self) -> bool {
        matches!(self, HostRule::Named(_))
    }

    pub(super) fn spread(&self) -> Option<&Arc<Spread>> {
        match self {
            HostRule::Spread(spread) => Some(spread),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_spread_over_at_least_two_hosts() {
        for (size, per_job, hosts) in [(1, 4, 1), (2, 4, 2), (4, 4, 2), (7, 3, 3), (9, 1, 9)] {
            assert_eq!(Spread::new(size).hosts(per_job), hosts, "{size} in jobs of {per_job}");
        }
    }
}
