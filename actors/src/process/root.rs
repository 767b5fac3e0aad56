//! The process itself: what runs in it.

use std::sync::Arc;

use bytes::Bytes;
use fiber_core::entry::EntryRef;
use fiber_core::process::flush_output;
use fiber_core::{BlockOn, Failure, FailureKind, Outcome, Tasks, codec};
use fiber_transport::{Link, Message};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use crate::blocking::BlockingRuntime;
use crate::endpoint::MAIN;
use crate::objects::wait_until_attached;
use crate::runtime::{ChildMain, ControlMessage, ParentMessage, Runtime, StartedMain};

/// The exit code of a process whose function panicked, as Rust programs have it.
const EXIT_PANICKED: i32 = 101;

/// What a process is to run.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ProcessMain {
    pub(super) entry: EntryRef,
    pub(super) arguments: Bytes,
    /// The longest result in bytes.
    pub(super) limit: u64,
}

impl ChildMain for ProcessMain {
    fn start(self, _: &'static Runtime, link: Arc<dyn Link>) -> StartedMain {
        let told = Arc::new((Mutex::new(Told::Nothing), Condvar::new()));
        let telling = Arc::clone(&told);
        let inbox = move |inbound| {
            *telling.0.lock() = match inbound {
                ParentMessage::Data(_) => Told::ToBegin,
                ParentMessage::Shutdown => Told::ToEnd,
            };
            telling.1.notify_all();
        };
        let main = move || {
            let entry = match self.entry.resolve() {
                Ok(entry) => entry,
                Err(error) => {
                    let _ = link.send(ControlMessage::Failed(error.to_string()).message());
                    wait_until(&told, Told::ToEnd);
                    return 1;
                }
            };
            let _ = link.send(ControlMessage::Ready { address: None }.message());
            // The function may end this process at once, and what is under way with it.
            wait_until(&told, Told::ToBegin);
            let mut task = OneTask::new(self.arguments.into());
            entry.run(&mut task);
            // The parent may kill this process as soon as it has the outcome.
            flush_output();
            let (outcome, value) = task.outcome.expect("a task that has run has an outcome");
            let (outcome, value) = within(self.limit, entry.name(), outcome, value);
            let code = exit_code(outcome, &value);
            wait_until_attached();
            let head = vec![MAIN, u8::from(outcome == Outcome::Failure)];
            let _ = link.send(Message { head, body: value.into() });
            wait_until(&told, Told::ToEnd);
            code
        };
        StartedMain { receive: Box::new(inbox), run: Box::new(main) }
    }
}

impl ProcessMain {
    /// What the parent says when it knows that the process is ready.
    pub(super) fn begin() -> Message {
        Message::new(vec![MAIN])
    }
}

/// What the parent has said.
#[derive(PartialEq, PartialOrd)]
enum Told {
    Nothing,
    ToBegin,
    ToEnd,
}

fn wait_until(told: &(Mutex<Told>, Condvar), what: Told) {
    let mut now = told.0.lock();
    while *now < what {
        told.1.wait(&mut now);
    }
}

/// The outcome, if it is no longer than `limit`; else the failure that it is too long.
fn within(limit: u64, function: &str, outcome: Outcome, value: Vec<u8>) -> (Outcome, Vec<u8>) {
    let what = || format!("the result of `{function}`");
    let Err(problem) = codec::check_size(value.len(), limit, what) else {
        return (outcome, value);
    };
    let failure = Failure::new(FailureKind::Result, problem);
    (
        Outcome::Failure,
        codec::encode(&failure).expect("a failure is made of text, which serialises"),
    )
}

fn exit_code(outcome: Outcome, value: &[u8]) -> i32 {
    match (outcome, codec::decode::<Failure>(value)) {
        (Outcome::Value, _) => 0,
        (Outcome::Failure, Ok(Failure { kind: FailureKind::Panicked, .. })) => EXIT_PANICKED,
        (Outcome::Failure, _) => 1,
    }
}

/// A single task, as the function of a process or an initialiser is one.
pub(crate) struct OneTask {
    arguments: Option<Vec<u8>>,
    claimed: Vec<u8>,
    runtime: BlockingRuntime,
    /// How it ended, once it has.
    pub(crate) outcome: Option<(Outcome, Vec<u8>)>,
}

impl OneTask {
    pub(crate) fn new(arguments: Vec<u8>) -> OneTask {
        OneTask {
            arguments: Some(arguments),
            claimed: Vec::new(),
            runtime: BlockingRuntime::default(),
            outcome: None,
        }
    }
}

impl Tasks for OneTask {
    fn next(&mut self) -> Option<(&[u8], &dyn BlockOn)> {
        self.claimed = self.arguments.take()?;
        Some((&self.claimed, &self.runtime))
    }

    fn finish(&mut self, outcome: Outcome, value: &mut Vec<u8>) {
        self.outcome = Some((outcome, std::mem::take(value)));
    }
}
