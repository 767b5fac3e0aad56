//! The statistics and events of a pool.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fiber_core::stacks::user_code;
use fiber_core::stats::{Event, EventKind, PoolStats, Report, TaskName, WorkerStats};
use fiber_core::{Exit, ProcessId};
use fiber_values::Parts;

use super::Pool;
use super::exchange::Exchange;
use super::scheduler::{Loss, function_name};
use super::state::PoolState;
use super::verdict::Verdict;
use super::wire::Results;
use super::worker_handle::WorkerHandle;
use fiber_runtime::events::Events;
use fiber_runtime::sources::{Source, Sources};
use fiber_runtime::timeline::{Inputs, Makers, Ran, What};

/// How often a pool notes its progress and looks for stragglers.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// The number of intervals that a pool remembers.
const REMEMBERED: usize = 60;
/// The number of intervals over which the rate is a mean.
const RATE_OVER: usize = 5;
/// The timeline takes note of the makers of so many inputs of a task, where the values of
/// neighbours of one call count as one.
const MAX_MAKERS: usize = 1000;

/// Completed tasks in each of the last seconds.
#[derive(Default)]
pub(super) struct History {
    /// The time of the last note, and the tasks that were completed then.
    last: Option<(Instant, u64)>,
    completed: VecDeque<(Duration, u64)>,
}

impl History {
    /// Notes that `done` tasks are completed.
    fn note(&mut self, now: Instant, done: u64) {
        if let Some((time, before)) = self.last.replace((now, done)) {
            self.completed.truncate(REMEMBERED - 1);
            self.completed.push_front((now - time, done.saturating_sub(before)));
        }
    }

    /// Returns the tasks in a second, over the last intervals and the time since. Its caller has
    /// looked at `done` without this history's lock, so the last note may be newer.
    fn rate(&self, now: Instant, done: u64) -> f64 {
        let Some((time, before)) = self.last else { return 0.0 };
        let recent = self.completed.iter().take(RATE_OVER);
        let (mut time, mut tasks) =
            (now.saturating_duration_since(time), done.saturating_sub(before));
        for (interval, completed) in recent {
            time += *interval;
            tasks += completed;
        }
        if time.is_zero() { 0.0 } else { tasks as f64 / time.as_secs_f64() }
    }

    /// Returns the completed tasks of each interval, oldest first.
    fn counts(&self) -> Vec<u64> {
        self.completed.iter().rev().map(|(_, count)| *count).collect()
    }
}

impl Pool {
    /// Returns what the pool is doing: its tasks by state, calls, workers, and the times of its
    /// functions' tasks.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// pool.map(|x: u64| x * x, 0..100).wait()?;
    /// let stats = pool.stats();
    /// assert_eq!((stats.tasks.done, stats.tasks.waiting), (100, 0));
    /// println!("half of the tasks took less than {:?}", stats.functions[0].times.quantile(0.5));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn stats(&self) -> PoolStats {
        let state = self.state();
        state.stats(state.runtime.id())
    }

    /// Calls `handle` for each event of this pool from now on, until the pool ends. It runs on
    /// fiber's threads and must not block.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::sync::mpsc;
    ///
    /// use fiber::stats::EventKind;
    ///
    /// let pool = fiber::Pool::new(1)?;
    /// let (deaths, died) = mpsc::channel();
    /// pool.on_event(move |event| {
    ///     if let EventKind::WorkerEnded { worker, expected: false, .. } = &event.kind {
    ///         let _ = deaths.send(worker.clone());
    ///     }
    /// });
    /// pool.apply(|| std::process::abort(), ()).wait().unwrap_err();
    /// assert_eq!(died.recv().unwrap(), "worker-1");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn on_event(&self, mut handle: impl FnMut(&Event) + Send + 'static) {
        let (state, name) = (Arc::downgrade(self.state()), self.name().to_string());
        self.state().runtime.part::<Events>().subscribe(move |event| {
            if state.strong_count() == 0 {
                return false;
            }
            if event.kind.pool() == Some(&name) {
                user_code(|| handle(event));
            }
            true
        });
    }
}

impl Source for PoolState {
    fn report(&self, process: ProcessId, report: &mut Report) {
        report.pools.push(self.stats(process));
    }
}

impl Drop for PoolState {
    fn drop(&mut self) {
        self.runtime.part::<Sources>().note_ended(|| self.stats(self.runtime.id()));
        self.runtime.forget_drained();
    }
}

impl PoolState {
    fn emit(&self, event: EventKind) {
        self.runtime.part::<Events>().emit(event);
    }

    fn stats(&self, process: ProcessId) -> PoolStats {
        let now = Instant::now();
        let of = |worker: &Arc<WorkerHandle>, threads| {
            WorkerStats::new(worker.process, worker.child.clone(), threads)
        };
        let life = self.life.lock();
        let (phase, readiness) = (life.phase(), life.readiness());
        let counted = life.scheduler.statistics(now, of);
        drop(life);
        let mut stats = PoolStats::new(process, self.name.clone(), phase);
        (stats.wanted, stats.ready) = (readiness.wanted, readiness.ready);
        stats.idle = counted.idle;
        stats.tasks = counted.tasks;
        stats.tasks.recorded = self.recorded.load(std::sync::atomic::Ordering::Relaxed);
        let counts = counted.counts;
        (stats.bytes_out, stats.bytes_in) = (counts.bytes_out, counts.bytes_in);
        stats.near_bytes = counts.near_bytes;
        stats.near_bytes_at_home = counts.near_bytes_at_home;
        stats.functions = counted.functions;
        stats.workers = counted.workers;
        for (exchange, mut call) in counted.calls {
            call.total = exchange.total();
            call.done += exchange.recorded();
            call.held = exchange.held.count();
            call.waits_for = exchange.held.waits_for();
            stats.tasks.held += call.held;
            stats.calls.push(call);
        }
        let history = self.history.lock();
        (stats.rate, stats.history) = (history.rate(now, stats.tasks.done), history.counts());
        stats.deaths = self.deaths.load(std::sync::atomic::Ordering::Relaxed);
        stats
    }

    /// Notes the progress, and reports stragglers. The controller calls it at each [`INTERVAL`].
    pub(super) fn note_progress(&self) {
        let now = Instant::now();
        let (done, stragglers) = {
            let mut life = self.life.lock();
            (life.scheduler.done(), life.scheduler.stragglers(now))
        };
        self.history.lock().note(now, done);
        for straggler in stragglers {
            let function = function_name(straggler.entry);
            let task = TaskName::new(straggler.call, function, straggler.index);
            let (ran, usual) = (straggler.ran, straggler.usual);
            let worker = straggler.worker.child.clone();
            tracing::warn!(
                "pool `{}`: {task} has run for {ran:.1?} in {worker} ({}); half of the tasks of \
                 this function take less than {usual:.1?}",
                self.name,
                straggler.worker.place
            );
            self.emit(EventKind::Straggler { pool: self.name.clone(), worker, task, ran, usual });
        }
    }

    /// Records what a worker has run.
    pub(super) fn record(&self, worker: &WorkerHandle, results: &Results) {
        let function =
            self.life.lock().scheduler.caller(results.call).map(|caller| caller.function);
        self.timeline.record(What::Ran(Ran {
            pool: self.name.clone(),
            worker: worker.child.clone(),
            thread: results.thread,
            function: function.unwrap_or("a cancelled call"),
            call: results.call,
            runs: results
                .runs
                .iter()
                .map(|run| run.first..run.first + u64::from(run.count))
                .collect(),
            failed: results.failed.into(),
            busy: Duration::from_nanos(results.busy),
        }));
    }

    /// Records which tasks have made the inputs of a task that is ready.
    pub(super) fn record_inputs(&self, exchange: &Exchange, index: u64, parts: &Parts) {
        if !self.timeline.is_on() {
            return;
        }
        let mut makers = Makers::new();
        for maker in parts.outputs().filter_map(|cell| cell.maker()) {
            let follows = |(call, run): &&mut (u64, Range<u64>)| {
                *call == maker.call.number && run.end == maker.index
            };
            if let Some((_, run)) = makers.last_mut().filter(follows) {
                run.end += 1;
            } else if makers.len() < MAX_MAKERS {
                makers.push((maker.call.number, maker.index..maker.index + 1));
            } else {
                break;
            }
        }
        self.timeline.record(What::Inputs(Inputs { call: exchange.id, index, makers }));
    }

    pub(super) fn worker_started(&self, worker: &WorkerHandle) {
        let (pool, child, place) = (self.name.clone(), worker.child.clone(), worker.place.clone());
        self.emit(EventKind::WorkerStarted { pool, worker: child, place });
    }

    pub(super) fn worker_ended(&self, worker: &WorkerHandle, verdict: Verdict, loss: Loss) {
        if !verdict.is_expected {
            self.deaths.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        for (task, since) in loss.running {
            let (pool, worker) = (self.name.clone(), worker.child.clone());
            self.timeline.record(What::Cut { pool, worker, task, since });
        }
        self.emit(EventKind::WorkerEnded {
            pool: self.name.clone(),
            worker: worker.child.clone(),
            place: worker.place.clone(),
            exit: verdict.exit,
            expected: verdict.is_expected,
            blamed: loss.blamed,
            redelivered: loss.redelivered,
        });
    }

    pub(super) fn task_abandoned(&self, task: TaskName, workers: u32, exit: &Exit) {
        let (pool, exit) = (self.name.clone(), exit.clone());
        self.emit(EventKind::TaskAbandoned { pool, task, workers, exit });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let (mut history, start) = (History::default(), Instant::now());
        let second = |number: u64| start + Duration::from_secs(number);
        for number in 0..100 {
            history.note(second(number), number * 10);
        }
        history.note(second(100), 10_000);
        assert_eq!(history.counts().len(), REMEMBERED);
        assert_eq!(history.counts().last(), Some(&9_010));
        let mean = (9_010.0 + 4.0 * 10.0) / 5.0;
        assert!((history.rate(second(100), 10_000) - mean).abs() < 1e-9);
        assert_eq!(history.rate(second(10_000), 10_000).round(), 1.0);
        // A look that began before the last note.
        assert!((history.rate(second(99), 9_990) - mean).abs() < 1e-9);
    }
}
