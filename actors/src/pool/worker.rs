//! A worker: what runs in a pool's processes.
//!
//! The node's thread receives assignments into the [`WorkQueue`]; the executors, threads of the process
//! with the main thread first, take runs from it and call the function for each task. Outcomes
//! gather with each executor and leave together: when as many are there as tasks are left, when
//! they are many bytes, and when a task holds them up. The last is for the node's thread to see,
//! which looks at what the executors do every millisecond while they are busy.

mod executor;
mod ticker;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use fiber_core::entry::{Entry, EntryRef};
use fiber_core::{Failure, FailureKind, codec};
use fiber_transport::Link;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::broadcast;
use super::run::{CallId, Items, push_item};
use super::wire::{Assignment, FromWorker, PoolNote, Results, ToWorker, WorkerNote};
use crate::process::Initializer;
use crate::runtime::{ChildMain, ControlMessage, ParentMessage, Runtime, StartedMain};
use executor::Slot;

/// What a worker needs to know to begin.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct WorkerMain {
    pub(crate) threads: u64,
    pub(crate) initializer: Option<Initializer>,
    pub(crate) max_message: u64,
}

/// What the executors of a worker share.
struct WorkQueue {
    link: Arc<dyn Link>,
    work: Mutex<Work>,
    /// How many tasks no executor has taken: to be known without the lock.
    untaken: AtomicU64,
    /// Wakes executors when there is work, or when none will come.
    changed: Condvar,
    slots: Vec<Slot>,
    /// Entries that were resolved: that takes a microsecond, longer than many a task.
    entries: Mutex<HashMap<EntryRef, &'static Entry>>,
    /// Wakes the ticker when an executor that was held up goes on.
    went_on: Notify,
    max_message: usize,
}

#[derive(Default)]
struct Work {
    runs: VecDeque<Assigned>,
    /// Executors that have taken a run.
    busy: usize,
    closed: bool,
}

/// A run as a worker has it.
#[derive(Clone)]
struct Assigned {
    call: CallId,
    entry: &'static Entry,
    timeout: u64,
    chunk: u64,
    /// Where its first chunk begins.
    start: u64,
    /// The next task to begin.
    first: u64,
    end: u64,
    arguments: Bytes,
}

impl Assigned {
    fn len(&self) -> u64 {
        self.end - self.first
    }

    /// Takes the first `count` tasks out.
    fn split_front(&mut self, count: u64) -> Assigned {
        let mut items = Items::new(&self.arguments);
        let length: usize = (0..count)
            .map_while(|_| items.next())
            .map(|(item, _)| item.len() + super::run::PREFIX)
            .sum();
        let front = Assigned {
            end: self.first + count,
            arguments: self.arguments.split_to(length),
            ..self.clone()
        };
        self.first += count;
        self.start = self.first;
        front
    }
}

impl ChildMain for WorkerMain {
    fn start(self, _: &'static Runtime, link: Arc<dyn Link>) -> StartedMain {
        let queue = Arc::new(WorkQueue {
            link,
            work: Mutex::default(),
            untaken: AtomicU64::new(0),
            changed: Condvar::new(),
            slots: (0..self.threads).map(|_| Slot::default()).collect(),
            entries: Mutex::default(),
            went_on: Notify::new(),
            max_message: self.max_message as usize,
        });
        let ticker = Arc::new(Notify::new());
        tokio::task::spawn_local(ticker::tick(Arc::clone(&queue), Arc::clone(&ticker)));
        let receiving = Arc::clone(&queue);
        let inbox = move |inbound| match inbound {
            ParentMessage::Data(message) => {
                receiving.receive(message);
                ticker.notify_one();
            }
            ParentMessage::Shutdown => receiving.close(),
        };
        let initializer = self.initializer;
        let main = move || {
            if let Err(problem) = initializer.map_or(Ok(()), Initializer::run) {
                let _ = queue.link.send(ControlMessage::Failed(problem).message());
                // The parent ends this process when it has read that; until then the message must
                // not be lost.
                queue.wait_for_close();
                return 1;
            }
            executor::run_all(&queue);
            0
        };
        StartedMain { receive: Box::new(inbox), run: Box::new(main) }
    }
}

impl WorkQueue {
    fn receive(&self, message: Bytes) {
        match ToWorker::read(message) {
            Ok(ToWorker::Assignment(assignment)) => self.accept(assignment),
            Ok(ToWorker::Broadcast { id, value }) => broadcast::receive(id, value),
            Ok(ToWorker::Note(PoolNote::Forget { broadcast })) => broadcast::forget(broadcast),
            Ok(ToWorker::Note(PoolNote::Cancel { call, kill })) => self.cancel(call, kill),
            Ok(ToWorker::Note(PoolNote::GiveBack { call })) => self.give_back_call(call),
            Err(error) => tracing::error!("a message of the pool was ignored: {error}"),
        }
    }

    fn accept(&self, assignment: Assignment) {
        let known = self.entries.lock().get(&assignment.entry).copied();
        let entry = match known.map_or_else(|| assignment.entry.resolve(), Ok) {
            Ok(entry) => entry,
            Err(error) => return self.refuse(&assignment, &error.to_string()),
        };
        if known.is_none() {
            self.entries.lock().insert(assignment.entry, entry);
        }
        let run = Assigned {
            call: assignment.call,
            entry,
            timeout: assignment.timeout,
            chunk: u64::from(assignment.chunk).max(1),
            start: assignment.first,
            first: assignment.first,
            end: assignment.first + u64::from(assignment.count),
            arguments: assignment.arguments,
        };
        let many = run.len() > 1;
        let mut work = self.work.lock();
        work.runs.push_back(run);
        self.count_untaken(&work);
        drop(work);
        if many {
            self.changed.notify_all();
        } else {
            self.changed.notify_one();
        }
    }

    fn count_untaken(&self, work: &Work) {
        self.untaken.store(work.runs.iter().map(Assigned::len).sum(), Ordering::Relaxed);
    }

    /// Fails tasks whose function this program does not have.
    fn refuse(&self, assignment: &Assignment, problem: &str) {
        let failure = Failure::new(FailureKind::Unknown, problem);
        let failure = codec::encode(&failure).expect("a failure is made of text, which serialises");
        let mut outcomes = Vec::new();
        (0..assignment.count).for_each(|_| push_item(&mut outcomes, &failure, true));
        let length = outcomes.len() as u32;
        let piece = super::wire::Piece { first: assignment.first, count: assignment.count, length };
        self.send(Results {
            call: assignment.call,
            busy: 1,
            pieces: vec![piece],
            outcomes: outcomes.into(),
        });
    }

    fn cancel(&self, call: CallId, kill: bool) {
        let mut given_up = self.take_untaken(call);
        let mut runs = false;
        for slot in &self.slots {
            let mut slot = slot.lock();
            runs |= slot.runs(call);
            given_up.extend(slot.drop_call(call));
        }
        given_up.iter().for_each(|run| self.give_back(run));
        if runs && kill {
            self.note(WorkerNote::RunsCancelled);
        }
    }

    /// Gives back the tasks of a call that have not begun, but for those that belong to a chunk
    /// that has.
    fn give_back_call(&self, call: CallId) {
        let mut given_up = self.take_untaken(call);
        for slot in &self.slots {
            let mut slot = slot.lock();
            if slot.has_run_of(call) {
                given_up.extend(slot.give_up());
            }
        }
        given_up.iter().for_each(|run| self.give_back(run));
    }

    /// Takes the runs of a call that no executor has taken.
    fn take_untaken(&self, call: CallId) -> VecDeque<Assigned> {
        let mut work = self.work.lock();
        let (taken, others) = work.runs.drain(..).partition(|run| run.call == call);
        work.runs = others;
        self.count_untaken(&work);
        taken
    }

    fn give_back(&self, run: &Assigned) {
        self.note(WorkerNote::Returned { call: run.call, first: run.first, count: run.len() });
    }

    fn note(&self, note: WorkerNote) {
        // A closed link means that the parent is gone, and then this process is about to end.
        let _ = self.link.send(FromWorker::Note(note).message());
    }

    fn send(&self, results: Results) {
        let _ = self.link.send(FromWorker::Results(results).message());
    }

    fn close(&self) {
        self.work.lock().closed = true;
        self.changed.notify_all();
    }

    fn wait_for_close(&self) {
        let mut work = self.work.lock();
        while !work.closed {
            self.changed.wait(&mut work);
        }
    }
}
