//! The backtraces of panics whose callers get the message only.
//!
//! Naming the functions takes some tenths of a second. No answer waits for it: a thread of its own
//! prints them. The end of the session waits, also where it begins above: a process tells its
//! parent that it, or one below it, has backtraces to print.

use std::collections::{HashSet, VecDeque};
use std::io::Write;
use std::sync::{Arc, OnceLock};

use fiber_core::panics::Panic;
use fiber_core::{Failure, Patient, ProcessId, start_thread};
use fiber_transport::Link;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Runtime;
use super::protocol::ControlMessage;
use crate::parts::Parts;

/// The number of backtraces that wait for the thread. The next ones are printed where they are.
const MOST_WAITING: usize = 64;

/// The backtraces that are not printed yet.
#[derive(Default)]
pub(super) struct Backtraces {
    /// Those of this process, while a thread prints them.
    waiting: Mutex<Option<VecDeque<Panic>>>,
    /// The children that have some.
    children: Mutex<HashSet<ProcessId>>,
    /// The number of both.
    count: watch::Sender<usize>,
    parent: OnceLock<Arc<dyn Link>>,
}

/// Prints the backtrace of a panic, if there is one, and returns its failure, without the
/// backtrace. It does not wait until that is printed.
pub fn report_panic(panic: Panic) -> Failure {
    let failure = Failure::without_backtrace(&panic);
    if panic.has_backtrace() {
        Parts::current().get::<Backtraces>().add(panic);
    }
    failure
}

impl Runtime {
    /// Waits until all backtraces are printed, here and below.
    pub async fn backtraces_printed(&self) {
        let mut count = self.part::<Backtraces>().count.subscribe();
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

impl Backtraces {
    /// Sets the link to the parent of this process.
    pub(super) fn tell(&self, parent: &Arc<dyn Link>) {
        let _ = self.parent.set(Arc::clone(parent));
    }

    /// Notes whether a child has backtraces to print. One that has ended has none.
    pub(super) fn note_child(&self, id: ProcessId, prints: bool) {
        let mut children = self.children.lock();
        match prints {
            true if children.insert(id) => self.change(1),
            false if children.remove(&id) => self.change(-1),
            _ => {}
        }
    }

    fn change(&self, by: isize) {
        self.count.send_modify(|count| {
            let had_some = *count > 0;
            *count = count.saturating_add_signed(by);
            if had_some != (*count > 0)
                && let Some(parent) = self.parent.get()
            {
                let _ = parent.send(ControlMessage::Prints(*count > 0).message());
            }
        });
    }

    fn add(&'static self, panic: Panic) {
        self.change(1);
        let mut waiting = self.waiting.lock();
        match &mut *waiting {
            Some(queue) if queue.len() < MOST_WAITING => return queue.push_back(panic),
            Some(_) => {
                drop(waiting);
                return self.print(&panic);
            }
            None => *waiting = Some(VecDeque::from([panic])),
        }
        drop(waiting);
        if start_thread("fiber-panics", move || self.print_all()).is_err() {
            self.print_all();
        }
    }

    fn print_all(&self) {
        loop {
            let mut waiting = self.waiting.lock();
            let Some(panic) = waiting.as_mut().and_then(VecDeque::pop_front) else {
                *waiting = None;
                return;
            };
            drop(waiting);
            self.print(&panic);
        }
    }

    fn print(&self, panic: &Panic) {
        let backtrace = panic.backtrace().unwrap_or_default();
        let text = format!("the backtrace of the panic `{panic}`:\n{backtrace}\n");
        // There is no other place for it.
        let _ = Patient(std::io::stderr()).write_all(text.as_bytes());
        self.change(-1);
    }
}
