//! Tasks that follow the one whose value they take, in the same worker.

use bytes::Bytes;
use fiber_values::blob::Blobs;

use super::call::PENDING_NANOS;
use super::retire::Duty;
use super::{Effects, Scheduler, WorkerId};
use crate::run::{CallId, Run};
use crate::wire::Assignment;

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// Assigns one task to the worker at which the task `after` is pending, whose value it takes.
    /// Returns the message with it, in which `arguments` are without that value. Returns `None` if
    /// it has to wait for the value.
    ///
    /// It is pending as any other: if the worker returns it or dies, its call submits it again when
    /// the value is there.
    pub(crate) fn follow(
        &mut self,
        id: WorkerId,
        after: (CallId, u64),
        mut run: Run,
        arguments: Bytes,
    ) -> Option<Assignment> {
        let (least, memory) = (self.min_pending(), self.memory);
        let before = self.functions.get(&self.calls.get(&after.0)?.entry)?;
        let worker = self.workers.get_mut(&id)?;
        let call = self.calls.get_mut(&run.call)?;
        let nanos = self.functions.get(&call.entry)?.nanos;
        // Others wait for the first of these, so they must not keep what it waits for from a worker.
        let is_known = nanos > 0.0 && before.nanos > 0.0 && !before.waits && !before.is_large;
        let is_open = worker.duty == Duty::Open && worker.quota != Some(0);
        let is_usual = worker.part.is_none() && worker.waiting.is_empty();
        let is_short = worker.pending_nanos + nanos < PENDING_NANOS * worker.threads as f64;
        let has_room = call.room.left(call.pending(), least, memory) > 0;
        if self.halted
            || self.nanos_left.is_finite()
            || worker.pending.find(after.0, after.1).is_none()
            || !(is_known && is_open && is_usual && is_short && has_room)
        {
            return None;
        }
        call.submitted += 1;
        call.open += 1;
        call.recalled = false;
        call.takes_outputs = true;
        call.served += nanos as u64;
        let assignment = call.assignment_with(&run, arguments, Blobs::default());
        self.counts.bytes_out += run.size() as u64;
        worker.count_pending(&run, nanos, None);
        run.is_ahead = true;
        worker.pending.insert(run);
        Some(assignment)
    }

    /// Gives a task back to its call that has not begun. The call submits it again when it has the
    /// inputs: it looks where they are, how large, and whether one has failed.
    pub(super) fn hold(&mut self, run: Run, effects: &mut Effects<W, C>) {
        if let Some(call) = self.calls.get_mut(&run.call) {
            call.take_back(&run);
            effects.held.push((call.caller.clone(), run));
        }
    }
}
