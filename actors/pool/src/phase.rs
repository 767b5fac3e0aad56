//! The phase of a pool's life.

use fiber_core::PoolEndReason;
use fiber_supervisor::supervisor::SupervisorRef;

/// Whether a pool takes calls. Each phase has the supervisor of the pool's workers, which starts
/// after the first of them and may outlast the pool's end.
pub(super) enum Phase {
    /// It takes calls.
    Open(Workers),
    /// It takes no calls, and ends after those that it has.
    Closed(Workers),
    /// No worker runs a task any more.
    Ended(PoolEndReason, Workers),
}

/// The supervisor of a pool's workers.
#[derive(Default)]
pub(super) enum Workers {
    /// No call has needed workers.
    #[default]
    New,
    Starting,
    Running(SupervisorRef),
    /// It stops, or stops when it has started.
    Stopped,
}

impl Phase {
    pub(super) fn workers(&mut self) -> &mut Workers {
        match self {
            Phase::Open(workers) | Phase::Closed(workers) | Phase::Ended(_, workers) => workers,
        }
    }

    /// Takes no more calls.
    pub(super) fn close(&mut self) {
        if let Phase::Open(workers) = self {
            *self = Phase::Closed(std::mem::take(workers));
        }
    }

    /// Returns whether the pool ends now: it has not ended before.
    pub(super) fn end(&mut self, reason: &PoolEndReason) -> bool {
        let (Phase::Open(workers) | Phase::Closed(workers)) = self else { return false };
        *self = Phase::Ended(reason.clone(), std::mem::take(workers));
        true
    }

    /// Returns whether the workers start now: the pool needs them for the first time.
    pub(super) fn start_workers(&mut self) -> bool {
        let (Phase::Open(workers @ Workers::New) | Phase::Closed(workers @ Workers::New)) = self
        else {
            return false;
        };
        *workers = Workers::Starting;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_start_once_and_not_after_the_end() {
        let mut phase = Phase::Open(Workers::New);
        // The first task of a durable call that has to run may be found after `close`.
        phase.close();
        assert!(phase.start_workers() && !phase.start_workers());
        assert!(phase.end(&PoolEndReason::Killed) && !phase.end(&PoolEndReason::Stopped));
        phase.close();
        assert!(matches!(phase, Phase::Ended(PoolEndReason::Killed, Workers::Starting)));
        *phase.workers() = Workers::New;
        assert!(!phase.start_workers());
    }
}
