//! Outcomes on their way into the journal.

use std::sync::Arc;

use fiber_core::{Error, Exit, Result};
use fiber_journal::{Entry, OutcomeKind, Recorder};
use fiber_values::codec;

use super::task_keys::RunKeys;
use super::{DurableCall, break_off};
use crate::batch::ResultBatch;
use crate::exchange::Exchange;
use crate::run::Items;

/// Outcomes that are delivered when they are recorded.
struct Recording {
    exchange: Arc<Exchange>,
    call: Arc<DurableCall>,
    outcomes: ResultBatch,
    keys: RunKeys,
}

impl DurableCall {
    /// Records outcomes, and delivers them then.
    pub(crate) fn record(self: &Arc<DurableCall>, exchange: &Arc<Exchange>, outcomes: ResultBatch) {
        // A failure may be the consequence of this program's end, which kills other processes than
        // workers, too: nothing that comes now is recorded.
        if exchange.runtime.is_exiting() {
            return;
        }
        if let Some(pool) = self.pool.upgrade() {
            pool.recording_began();
        }
        let keys = self.keys.take(outcomes.start()..outcomes.end());
        let (exchange, call) = (Arc::clone(exchange), Arc::clone(self));
        self.store.record(Box::new(Recording { exchange, call, outcomes, keys }));
    }
}

impl Entry for Recording {
    fn record(&self, recorder: &mut Recorder<'_>) {
        let call = self.call.id;
        match &self.outcomes {
            ResultBatch::Outcomes(run, _) => {
                let bytes = run.arguments();
                let blobs: Vec<&[u8]> = run.blobs().iter().map(|blob| &**blob).collect();
                let tasks = self.keys.iter().zip(run.start..run.end);
                for ((item, failed), (key, index)) in Items::new(&bytes).zip(tasks) {
                    let kind = if failed { OutcomeKind::Failed } else { OutcomeKind::Returned };
                    recorder.outcome(call, *key, index, kind, item, &blobs);
                }
            }
            ResultBatch::Failed(index, error) => {
                if let (Some(bytes), [key]) = (encode_abandoned(error), &*self.keys) {
                    recorder.outcome(call, *key, *index, OutcomeKind::Abandoned, &bytes, &[]);
                }
            }
        }
    }

    fn recorded(self: Box<Recording>, result: Result<()>) {
        let Recording { exchange, call, outcomes, .. } = *self;
        let pool = call.pool.upgrade();
        match (result, &pool) {
            (Ok(()), _) => exchange.deliver(outcomes),
            (Err(error), Some(pool)) => break_off(pool, &exchange, error),
            (Err(error), None) => exchange.end(error),
        }
        if let Some(pool) = pool {
            pool.recording_ended();
        }
    }
}

/// Encodes how a task was abandoned.
fn encode_abandoned(error: &Error) -> Option<Vec<u8>> {
    match error {
        Error::WorkerDied { deaths, exit, .. } | Error::TaskTimedOut { deaths, exit, .. } => {
            codec::encode(&(deaths, exit)).ok()
        }
        _ => None,
    }
}

/// Decodes how a task was abandoned.
pub(super) fn decode_abandoned(bytes: &[u8], function: &'static str, index: u64) -> Error {
    match codec::decode::<(u32, Exit)>(bytes) {
        Ok((deaths, exit)) => Error::abandoned(function, index, deaths, exit),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use fiber_core::ExitReason;

    use super::*;

    #[test]
    fn an_abandoned_task_comes_back_as_it_was() {
        let exit = Exit::new(ExitReason::Signal(11), vec!["the last line".into()]);
        let error = Error::WorkerDied { function: "f", index: 3, deaths: 2, exit: exit.clone() };
        let bytes = encode_abandoned(&error).unwrap();
        let Error::WorkerDied { function: "f", index: 7, deaths: 2, exit: back } =
            decode_abandoned(&bytes, "f", 7)
        else {
            panic!("another error")
        };
        assert_eq!(back, exit);
    }
}
