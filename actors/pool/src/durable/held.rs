//! Tasks of durable calls that take outputs of others: those with a recorded outcome are not
//! submitted.

use fiber_core::{Result, waiting_allowed};
use fiber_journal::{Entry, Recorder};

use super::{DurableCall, break_off};
use crate::held::ReadyTask;

impl ReadyTask {
    /// Submits the task, unless it is one of a durable call and has a recorded outcome.
    pub(crate) fn submit_or_find(self) {
        let Some(call) = self.exchange.durable.clone() else { return self.submit() };
        if waiting_allowed() {
            return self.find(&call);
        }
        // The hash of a large value and the disk would keep this thread from its work for others.
        call.store.clone().record(Box::new(self));
    }

    /// Delivers the recorded outcome of the task, or submits the task.
    fn find(self, call: &DurableCall) {
        let found = call.key_of_parts(&self.parts).and_then(|key| Ok((key, call.find(key)?)));
        match found {
            Ok((key, None)) => {
                self.exchange.note_keys(self.index, vec![key]);
                self.pool.ensure_started(call.meta);
                self.submit();
            }
            Ok((_, Some(outcome))) => {
                self.pool.skip(self.exchange.id);
                self.exchange.add_recorded(self.index, outcome);
                self.exchange.deliver_waiting();
            }
            Err(error) => break_off(&self.pool, &self.exchange, error),
        }
    }
}

/// Finds the outcome on the journal's thread, and records nothing.
impl Entry for ReadyTask {
    fn record(&self, _: &mut Recorder<'_>) {}

    /// A journal that can't be written gives what is recorded.
    fn recorded(self: Box<ReadyTask>, _: Result<()>) {
        if let Some(call) = self.exchange.durable.clone() {
            self.find(&call);
        }
    }
}
