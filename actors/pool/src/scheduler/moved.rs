//! Tasks whose inputs are moved to their worker before they are sent, or are lost.

use super::{Effects, Scheduler, WorkerId};
use crate::run::{CallId, Run};

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// Notes that the values of a call are outputs.
    pub(crate) fn has_outputs(&mut self, id: CallId) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.has_outputs();
        }
    }

    /// Returns whether a task is pending at a worker.
    pub(crate) fn is_pending(&self, id: WorkerId, call: CallId, index: u64) -> bool {
        self.workers.get(&id).is_some_and(|worker| worker.pending.find(call, index).is_some())
    }

    /// Takes a task back that was assigned to a worker and not sent, because its inputs are lost or
    /// it is cancelled. Its call submits it again when it has the inputs. Returns it, if it is
    /// wanted.
    pub(crate) fn withdraw(
        &mut self,
        id: WorkerId,
        (call, index): (CallId, u64),
        effects: &mut Effects<W, C>,
    ) -> Option<Run> {
        let worker = self.workers.get_mut(&id)?;
        let run = worker.pending.take(call, index, index + 1).pop()?;
        if let Some(quota) = &mut worker.quota {
            *quota += 1;
        }
        self.release(id, 1);
        let is_wanted = self.calls.get_mut(&call).map(|call| call.take_back(&run));
        self.fill(id, effects);
        self.retire_if_done(id, effects);
        is_wanted.map(|()| run)
    }
}
