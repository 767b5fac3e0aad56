//! The code that runs in a process: it calls the function and sends the outcome to the parent.

use std::sync::{Arc, mpsc};

use fiber_core::at_exit::flush_output;
use fiber_core::{Failure, FailureKind};
use fiber_transport::{Link, Message};
use fiber_values::codec::EncodedValue;
use fiber_values::entry::EntryRef;
use fiber_values::{Outcome, codec};
use serde::{Deserialize, Serialize};

use super::one_task::OneTask;
use fiber_runtime::endpoint::MAIN;
use fiber_runtime::objects::Attachments;
use fiber_runtime::runtime::{ChildMain, ControlMessage, ParentMessage, Runtime, StartedMain};

/// The exit code of a process whose function panicked, the same as of any Rust program.
const EXIT_PANICKED: i32 = 101;

/// A function on the way to the process that runs it. Its arguments follow when it is ready.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ProcessMain {
    pub(super) entry: EntryRef,
    /// The maximum size of the encoded result, in bytes.
    pub(super) limit: u64,
}

impl ChildMain for ProcessMain {
    fn start(self, runtime: &'static Runtime, link: Arc<dyn Link>) -> StartedMain {
        let attachments: &'static Attachments = runtime.part();
        let (sender, messages) = mpsc::channel();
        // The main thread waits even if the link is lost: fiber's thread then ends the process.
        let open = sender.clone();
        let receive = move |message| {
            let arguments = match message {
                ParentMessage::Data(arguments) => Some(EncodedValue::from(arguments)),
                ParentMessage::Shutdown => None,
            };
            let _ = sender.send(arguments);
        };
        let main = move || {
            let _open = open;
            let next = || messages.recv().ok().flatten();
            let wait_for_end = || while next().is_some() {};
            let entry = match self.entry.resolve() {
                Ok(entry) => entry,
                Err(error) => {
                    let _ = link.send(ControlMessage::Failed(error.to_string()).message());
                    wait_for_end();
                    return 1;
                }
            };
            let _ = link.send(ControlMessage::Ready { address: None }.message());
            // The function may end this process at once: `Ready` must have arrived by then.
            let Some(arguments) = next() else { return 1 };
            let mut task = OneTask::new(arguments);
            entry.run(&mut task);
            // The parent may kill this process as soon as it has the outcome.
            flush_output();
            let (outcome, value) = task.outcome.expect("a task that has run has an outcome");
            let (outcome, value) = within_limit(self.limit, outcome, value);
            let code = exit_code(outcome, &value.bytes);
            attachments.wait_until_confirmed();
            let head = vec![MAIN, u8::from(outcome == Outcome::Failure)];
            let _ = link.send(Message::with_value(head, value));
            wait_for_end();
            code
        };
        StartedMain { receive: Box::new(receive), run: Box::new(main) }
    }
}

impl ProcessMain {
    /// Returns the message that lets a process that is ready call its function.
    pub(super) fn begin(arguments: EncodedValue) -> Message {
        Message::with_value(vec![MAIN], arguments)
    }
}

/// Replaces an outcome that is larger than `limit` by a failure that says so.
fn within_limit(limit: u64, outcome: Outcome, value: EncodedValue) -> (Outcome, EncodedValue) {
    let Err(problem) = codec::check_size(value.size(), limit, || "its result".into()) else {
        return (outcome, value);
    };
    let failure = Failure::new(FailureKind::Result, problem);
    let failure = EncodedValue::new(&failure).expect("a failure is text, which serializes");
    (Outcome::Failure, failure)
}

fn exit_code(outcome: Outcome, value: &[u8]) -> i32 {
    match (outcome, codec::decode::<Failure>(value)) {
        (Outcome::Value, _) => 0,
        (Outcome::Failure, Ok(Failure { kind: FailureKind::Panicked, .. })) => EXIT_PANICKED,
        (Outcome::Failure, _) => 1,
    }
}
