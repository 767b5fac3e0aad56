//! The code that runs in a process: it calls the function and sends the outcome to the parent.

use std::sync::Arc;

use bytes::Bytes;
use fiber_core::at_exit::flush_output;
use fiber_core::entry::EntryRef;
use fiber_core::{Failure, FailureKind, Outcome, codec};
use fiber_transport::{Link, Message};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use super::one_task::OneTask;
use crate::endpoint::MAIN;
use crate::objects::wait_until_attached;
use crate::runtime::{ChildMain, ControlMessage, ParentMessage, Runtime, StartedMain};

/// The exit code of a process whose function panicked, the same as of any Rust program.
const EXIT_PANICKED: i32 = 101;

/// A function with its arguments, on the way to the process that runs it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ProcessMain {
    pub(super) entry: EntryRef,
    pub(super) arguments: Bytes,
    /// The maximum size of the encoded result, in bytes.
    pub(super) limit: u64,
}

impl ChildMain for ProcessMain {
    fn start(self, _: &'static Runtime, link: Arc<dyn Link>) -> StartedMain {
        let progress = Arc::new(Progress::default());
        let receiving = Arc::clone(&progress);
        let receive = move |message| {
            receiving.advance(match message {
                ParentMessage::Data(_) => Step::Begin,
                ParentMessage::Shutdown => Step::End,
            });
        };
        let main = move || {
            let entry = match self.entry.resolve() {
                Ok(entry) => entry,
                Err(error) => {
                    let _ = link.send(ControlMessage::Failed(error.to_string()).message());
                    progress.wait_for(Step::End);
                    return 1;
                }
            };
            let _ = link.send(ControlMessage::Ready { address: None }.message());
            // The function may end this process at once: `Ready` must have arrived by then.
            progress.wait_for(Step::Begin);
            let mut task = OneTask::new(self.arguments.into());
            entry.run(&mut task);
            // The parent may kill this process as soon as it has the outcome.
            flush_output();
            let (outcome, value, blobs) = task.outcome.expect("a task that has run has an outcome");
            let (outcome, value) = within_limit(self.limit, entry.name(), outcome, value);
            let code = exit_code(outcome, &value);
            wait_until_attached();
            let head = vec![MAIN, u8::from(outcome == Outcome::Failure)];
            let _ = link.send(Message { head, body: value.into(), blobs });
            progress.wait_for(Step::End);
            code
        };
        StartedMain { receive: Box::new(receive), run: Box::new(main) }
    }
}

impl ProcessMain {
    /// Returns the message that lets a process that is ready call its function.
    pub(super) fn begin() -> Message {
        Message::new(vec![MAIN])
    }
}

/// The last step that the parent has allowed; the main thread waits for the next.
#[derive(Default)]
struct Progress {
    step: Mutex<Step>,
    changed: Condvar,
}

#[derive(Default, PartialEq, PartialOrd)]
enum Step {
    #[default]
    Prepare,
    Begin,
    End,
}

impl Progress {
    fn advance(&self, step: Step) {
        *self.step.lock() = step;
        self.changed.notify_all();
    }

    fn wait_for(&self, step: Step) {
        let mut current = self.step.lock();
        while *current < step {
            self.changed.wait(&mut current);
        }
    }
}

/// Replaces an outcome that is larger than `limit` by a failure that says so.
fn within_limit(
    limit: u64,
    function: &str,
    outcome: Outcome,
    value: Vec<u8>,
) -> (Outcome, Vec<u8>) {
    let what = || format!("the result of `{function}`");
    let Err(problem) = codec::check_size(value.len(), limit, what) else {
        return (outcome, value);
    };
    let failure = Failure::new(FailureKind::Result, problem);
    let failure = codec::encode(&failure).expect("a failure consists of text, which serializes");
    (Outcome::Failure, failure)
}

fn exit_code(outcome: Outcome, value: &[u8]) -> i32 {
    match (outcome, codec::decode::<Failure>(value)) {
        (Outcome::Value, _) => 0,
        (Outcome::Failure, Ok(Failure { kind: FailureKind::Panicked, .. })) => EXIT_PANICKED,
        (Outcome::Failure, _) => 1,
    }
}
