//! Slots that tasks lend while they wait for other tasks of their pool.
//!
//! A worker runs as many tasks at the same time as it has threads, and one more for each that waits.
//! That one needs a thread, which stays for later. When a task goes on, no executor takes a run
//! until another task has ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fiber_core::shortage;
use fiber_values::slot::Slot;
use parking_lot::Mutex;

use super::executor::{CurrentTask, ExecutorState, start};
use super::{Work, WorkQueue};
use crate::wire::WorkerEvent;

/// How many threads without a slot stay for tasks that wait later.
const SPARES: usize = 8;

/// The slot of one executor.
pub(super) struct TaskSlot {
    queue: Arc<WorkQueue>,
    executor: Arc<Mutex<ExecutorState>>,
    waits: Mutex<Waits>,
}

/// The waits of a task.
#[derive(Default)]
struct Waits {
    /// The number of the task among those of the slot.
    task: u64,
    /// How many things it waits for.
    count: usize,
    /// Not if no thread could be started for another task.
    is_lent: bool,
}

impl TaskSlot {
    pub(super) fn new(queue: &Arc<WorkQueue>, executor: &Arc<Mutex<ExecutorState>>) -> TaskSlot {
        let (queue, executor) = (Arc::clone(queue), Arc::clone(executor));
        TaskSlot { queue, executor, waits: Mutex::default() }
    }

    /// Lets another task run. Returns false if no thread could be started for it.
    fn lend(&self) -> bool {
        let mut executor = self.executor.lock();
        // Others may wait for these: they neither wait for this task nor run in its place.
        let (outcomes, follower) = (executor.take_outcomes(), executor.follower.take());
        drop(executor);
        if let Some(outcomes) = outcomes {
            self.queue.send(outcomes);
        }
        self.queue.return_follower(follower);
        let mut work = self.queue.work.lock();
        let unstarted = self.executor.lock().take_unstarted();
        if let Some(run) = unstarted {
            work.runs.push_front(run);
            self.queue.count_queued(&work);
        }
        let needed = self.queue.threads + work.lent + 1;
        if self.queue.executor_count.load(Ordering::Acquire) < needed
            && let Err(error) = start(&self.queue)
        {
            tracing::warn!(
                "a task waits for others of its pool, and its worker can't run one in its place: \
                 a thread could not be started: {}",
                shortage::explain(&error)
            );
            return false;
        }
        work.lent += 1;
        self.report(true);
        drop(work);
        self.queue.changed.notify_one();
        true
    }

    fn take_back(&self) {
        let mut work = self.queue.work.lock();
        work.lent -= 1;
        self.report(false);
    }

    fn report(&self, waits: bool) {
        let current = self.executor.lock().current;
        if let Some(CurrentTask { call, index, .. }) = current {
            self.queue.report(WorkerEvent::Waits { call, index, waits });
        }
    }
}

impl Slot for TaskSlot {
    fn wait(&self) -> u64 {
        let mut waits = self.waits.lock();
        waits.count += 1;
        if waits.count == 1 {
            waits.is_lent = self.lend();
        }
        waits.task
    }

    fn go_on(&self, task: u64) {
        let mut waits = self.waits.lock();
        if task != waits.task {
            return;
        }
        waits.count -= 1;
        if waits.count == 0 && std::mem::take(&mut waits.is_lent) {
            self.take_back();
        }
    }

    fn end(&self) {
        let mut waits = self.waits.lock();
        (waits.task, waits.count) = (waits.task + 1, 0);
        if std::mem::take(&mut waits.is_lent) {
            self.take_back();
        }
    }
}

impl WorkQueue {
    /// Adds the state of one more executor.
    pub(super) fn add_executor(&self) -> Arc<Mutex<ExecutorState>> {
        let mut executors = self.executors.write();
        let state = Arc::new(Mutex::new(ExecutorState::new(executors.len() as u32)));
        executors.push(Arc::clone(&state));
        self.executor_count.store(executors.len(), Ordering::Release);
        state
    }

    /// Lets an executor end whose thread is not the main one, if there are many more than slots.
    pub(super) fn ends_spare(&self, work: &Work, state: &Arc<Mutex<ExecutorState>>) -> bool {
        let kept = self.threads + work.lent + SPARES;
        if self.executor_count.load(Ordering::Acquire) <= kept {
            return false;
        }
        let mut started = self.started.lock();
        let own = std::thread::current().id();
        let Some(place) = started.iter().position(|thread| thread.thread().id() == own) else {
            return false;
        };
        drop(started.swap_remove(place));
        self.remove_executor(state);
        true
    }

    /// Removes the state of an executor that has ended or could not be started.
    pub(super) fn remove_executor(&self, state: &Arc<Mutex<ExecutorState>>) {
        let mut executors = self.executors.write();
        executors.retain(|other| !Arc::ptr_eq(other, state));
        self.executor_count.store(executors.len(), Ordering::Release);
    }
}
