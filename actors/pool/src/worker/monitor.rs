//! The monitor of a worker's executors. It runs on the runtime's thread, which no task can block.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fiber_core::on_a_thread;
use fiber_stacks::capture_thread;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::WorkQueue;
use super::executor::{CurrentTask, ExecutorState};
use crate::wire::WorkerEvent;

/// How often the monitor looks at the executors while tasks are short.
const INTERVAL: Duration = Duration::from_millis(1);
/// A task that runs this long blocks its executor: the executor's other tasks go back to the pool.
pub(crate) const BLOCKED_AFTER: Duration = Duration::from_millis(5);
/// The pause while there is nothing to report about a task before it ends.
const IDLE: Duration = Duration::from_secs(3600);

/// How long the executor's thread may take to answer with its stack.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How long the report of an overdue task waits for the stack.
const STACK_LIMIT: Duration = Duration::from_secs(3);

/// The monitor's last observation of one executor.
#[derive(Default)]
struct Observation {
    /// The executor's number of started tasks.
    started: u64,
    /// When the monitor first saw the current task.
    since: Option<Instant>,
    reported_running: bool,
    reported_overdue: bool,
}

/// Looks at the executors while they are busy. `arrived` is notified when work arrives.
pub(super) async fn run(queue: Arc<WorkQueue>, arrived: Arc<Notify>) {
    let mut observations: Vec<Observation> = Vec::new();
    loop {
        arrived.notified().await;
        while let Some(pause) = look(&queue, &mut observations) {
            tokio::select! {
                () = sleep(pause) => {}
                () = queue.unblocked.notified() => {}
                () = arrived.notified() => sleep(INTERVAL).await,
            }
        }
    }
}

/// Looks at all executors. Returns the pause before the next look, or `None` if nothing runs.
fn look(queue: &Arc<WorkQueue>, observations: &mut Vec<Observation>) -> Option<Duration> {
    let now = Instant::now();
    let executors = queue.executors.read().clone();
    observations.resize_with(executors.len(), Observation::default);
    let pause = executors
        .iter()
        .zip(&mut *observations)
        .filter_map(|(executor, seen)| look_at(queue, executor, seen, now))
        .min();
    let is_blocked =
        |seen: &&Observation| seen.since.is_some_and(|since| now - since >= BLOCKED_AFTER);
    let blocked = observations.iter().filter(is_blocked).count();
    let mut work = queue.work.lock();
    if blocked >= queue.threads + work.lent {
        // No executor of this worker will start the queued tasks soon.
        let runs = std::mem::take(&mut work.runs);
        queue.count_queued(&work);
        drop(work);
        runs.iter().for_each(|run| queue.return_run(run));
        work = queue.work.lock();
    }
    // An executor is about to begin a task, perhaps beside one that runs for long.
    let running = observations.iter().filter(|seen| seen.since.is_some()).count();
    let soon = (!work.runs.is_empty() || work.busy > running).then_some(INTERVAL);
    pause.into_iter().chain(soon).min()
}

fn look_at(
    queue: &Arc<WorkQueue>,
    executor: &Mutex<ExecutorState>,
    seen: &mut Observation,
    now: Instant,
) -> Option<Duration> {
    let mut executor = executor.lock();
    let Some(current) = executor.current else {
        *seen = Observation::default();
        return None;
    };
    // Then an earlier look would find nothing to send or to return.
    let is_last = executor.is_last() && queue.queued.load(Ordering::Relaxed) == 0;
    if seen.started != executor.started || seen.since.is_none() {
        let started = executor.started;
        *seen = Observation { started, since: Some(now), ..Observation::default() };
        return Some(if is_last { BLOCKED_AFTER } else { INTERVAL });
    }
    let ran = now - seen.since.unwrap_or(now);
    let results = executor.take_outcomes();
    let blocked = ran >= BLOCKED_AFTER;
    let unstarted = if blocked { executor.take_unstarted() } else { None };
    let follower = executor.follower.take_if(|_| blocked);
    executor.blocked = blocked;
    let thread = executor.thread;
    drop(executor);

    if let Some(results) = results {
        queue.send(results);
    }
    if let Some(run) = unstarted {
        queue.return_run(&run);
    }
    queue.return_follower(follower);
    if blocked && !std::mem::replace(&mut seen.reported_running, true) {
        queue.report(WorkerEvent::Running { call: current.call, index: current.index });
    }
    if !blocked {
        return Some(if is_last { BLOCKED_AFTER - ran } else { INTERVAL });
    }
    let Some(limit) = current.timeout else { return Some(IDLE) };
    if ran >= limit && !std::mem::replace(&mut seen.reported_overdue, true) {
        fiber_core::spawn_local(report_overdue(Arc::clone(queue), current, thread));
    }
    Some(if seen.reported_overdue { IDLE } else { limit.saturating_sub(ran).max(INTERVAL) })
}

/// Reports a task that ran past its timeout, with what it is doing. The stack is taken on a thread
/// of its own, so that the runtime goes on.
async fn report_overdue(queue: Arc<WorkQueue>, task: CurrentTask, thread: u32) {
    let taking = on_a_thread(move || capture_thread(thread, ANSWER_LIMIT));
    let taken = timeout(STACK_LIMIT, taking).await;
    let stack = taken.ok().and_then(Result::ok).and_then(Result::ok);
    let stack = stack.map(Arc::new);
    queue.report(WorkerEvent::Overdue { call: task.call, index: task.index, stack });
}
