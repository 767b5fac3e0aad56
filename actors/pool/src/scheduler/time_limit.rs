//! Tasks that would not end before the program's time limit.

use std::time::Duration;

use super::Scheduler;

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// Begins no more tasks that by the usual time of their function take longer than this. Nothing
    /// begins when no time is left.
    pub(crate) fn set_time_left(&mut self, left: Duration) {
        self.nanos_left = left.as_nanos() as f64;
    }

    /// Removes the calls that would never end: none of their tasks is pending, and those that are
    /// left do not fit any more. Returns their callers, and the usual time of their tasks.
    pub(crate) fn expire(&mut self) -> Vec<(C, Duration)> {
        let is_over = |call: &super::Call<C>| {
            call.has_tasks() && call.pending() == 0 && self.usual_nanos(call) >= self.nanos_left
        };
        let over = self.calls.iter().filter(|(_, call)| is_over(call));
        let over: Vec<_> = over
            .map(|(id, call)| {
                let usual = Duration::from_nanos(self.usual_nanos(call) as u64);
                (*id, call.caller.clone(), usual)
            })
            .collect();
        let remove = |(id, caller, usual)| {
            self.cancel(id);
            (caller, usual)
        };
        over.into_iter().map(remove).collect()
    }

    /// Returns the usual time of a task of the fastest function of the durable calls that have
    /// tasks to hand out, as far as it is known: those of the others are held back by then.
    pub(crate) fn usual_time_of_durable(&self) -> Option<Duration> {
        let goes_on = |call: &&super::Call<C>| call.has_tasks() || call.total.is_none();
        let durable = self.calls.values().filter(|call| call.durable).filter(goes_on);
        let nanos = durable.map(|call| self.usual_nanos(call)).reduce(f64::min)?;
        Some(Duration::from_nanos(nanos as u64))
    }

    /// Returns the usual time of a call's tasks; 0 if it is not known.
    fn usual_nanos(&self, call: &super::Call<C>) -> f64 {
        self.functions.get(&call.entry).map_or(0.0, |function| function.nanos)
    }
}

/// Returns how many tasks of `nanos` each a worker may have pending in addition, so that all of
/// them begin in time to end within `nanos_left`.
pub(super) fn fitting<W>(worker: &super::Worker<W>, nanos: f64, nanos_left: f64) -> u64 {
    if nanos == 0.0 {
        return u64::MAX;
    }
    let threads = worker.threads.max(1);
    let for_each_thread = (nanos_left - worker.pending_nanos / threads as f64) / nanos;
    let idle_threads = worker.threads.saturating_sub(worker.pending_tasks);
    (for_each_thread as u64).saturating_mul(threads).max(idle_threads)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{arguments, assigned, caller, new_call, options, results};
    use super::super::{Effects, Results, Run};
    use super::*;
    use crate::run::CallId;

    const SECOND: u64 = 1_000_000_000;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    type TestScheduler = Scheduler<u64, super::super::tests::TestCaller>;

    /// Begins a call of `count` tasks of a function of its own.
    fn begin(scheduler: &mut TestScheduler, id: CallId, count: u64, chunk: u32) -> Vec<u64> {
        let mut effects = Effects::default();
        let options = super::super::CallOptions { chunk, ..options() };
        scheduler.begin(id, new_call(caller(id), id, options));
        scheduler.submit(Run::new(id, 0, count, arguments(count)), &mut effects);
        scheduler.finish_feeding(id, Some(count));
        assigned(&effects)
    }

    /// Completes a task of a worker after a time. Returns the tasks that the worker gets.
    fn complete(
        scheduler: &mut TestScheduler,
        call: CallId,
        first: u64,
        busy: u64,
    ) -> Vec<(CallId, u64)> {
        let mut effects = Effects::default();
        scheduler.complete(1, Results { busy, ..results(call, first, 1, false) }, &mut effects);
        let tasks = effects.assignments.iter();
        tasks.map(|(_, assignment)| (assignment.call, assignment.first)).collect()
    }

    #[test]
    fn no_task_begins_that_would_not_end_in_time() {
        let mut scheduler = TestScheduler::new();
        scheduler.join(1, 1, 1, None, None, &mut Effects::default());
        assert_eq!(begin(&mut scheduler, 1, 10, 1), [0]);
        scheduler.set_time_left(seconds(6));
        assert_eq!(complete(&mut scheduler, 1, 0, 5 * SECOND), [(1, 1)], "it takes 5 s of 6 s");
        scheduler.set_time_left(seconds(4));
        assert!(complete(&mut scheduler, 1, 1, 5 * SECOND).is_empty());
        assert_eq!(begin(&mut scheduler, 2, 2, 1), [0], "a function of unknown time begins");
        assert_eq!(complete(&mut scheduler, 2, 0, SECOND), [(2, 1)], "it is fast enough");
    }

    #[test]
    fn nothing_begins_when_no_time_is_left() {
        let mut scheduler = TestScheduler::new();
        scheduler.join(1, 1, 1, None, None, &mut Effects::default());
        scheduler.set_time_left(Duration::ZERO);
        assert!(begin(&mut scheduler, 1, 10, 1).is_empty());
    }

    #[test]
    fn a_chunk_is_no_longer_than_the_time_that_is_left() {
        let mut scheduler = TestScheduler::new();
        scheduler.join(1, 1, 1, None, None, &mut Effects::default());
        begin(&mut scheduler, 1, 1, 1);
        complete(&mut scheduler, 1, 0, SECOND);
        scheduler.set_time_left(Duration::from_millis(3500));
        let mut effects = Effects::default();
        let options = super::super::CallOptions { chunk: 10, ..options() };
        scheduler.begin(3, new_call(caller(3), 1, options));
        scheduler.submit(Run::new(3, 0, 20, arguments(20)), &mut effects);
        assert_eq!(assigned(&effects), [0, 1, 2]);
    }

    #[test]
    fn all_threads_of_a_worker_work_to_the_limit() {
        let mut scheduler = TestScheduler::new();
        scheduler.join(1, 1, 2, None, None, &mut Effects::default());
        assert_eq!(begin(&mut scheduler, 1, 10, 1), [0, 1]);
        scheduler.set_time_left(Duration::from_millis(1200));
        assert_eq!(complete(&mut scheduler, 1, 0, SECOND), [(1, 2)]);
        assert_eq!(complete(&mut scheduler, 1, 1, SECOND), [(1, 3)]);
    }

    #[test]
    fn a_call_expires_after_its_last_task_that_fits() {
        let mut scheduler = TestScheduler::new();
        scheduler.join(1, 1, 1, None, None, &mut Effects::default());
        begin(&mut scheduler, 1, 10, 1);
        complete(&mut scheduler, 1, 0, 5 * SECOND);
        scheduler.set_time_left(seconds(4));
        assert!(scheduler.expire().is_empty(), "task 1 runs");
        complete(&mut scheduler, 1, 1, 5 * SECOND);
        let expired = scheduler.expire();
        assert_eq!(expired.len(), 1);
        assert_eq!((expired[0].0.id, expired[0].1), (1, seconds(5)));
        assert!(scheduler.is_empty());
    }

    #[test]
    fn a_call_whose_tasks_all_run_does_not_expire() {
        let mut scheduler = TestScheduler::new();
        scheduler.join(1, 1, 1, None, None, &mut Effects::default());
        begin(&mut scheduler, 1, 1, 1);
        scheduler.set_time_left(Duration::ZERO);
        assert!(scheduler.expire().is_empty());
    }

    #[test]
    fn the_fastest_durable_function_with_tasks_left_says_when_the_program_ends() {
        let mut scheduler = TestScheduler::new();
        scheduler.join(1, 1, 2, None, None, &mut Effects::default());
        assert_eq!(scheduler.usual_time_of_durable(), None);
        begin(&mut scheduler, 1, 10, 1);
        assert_eq!(scheduler.usual_time_of_durable(), None, "odd calls are not durable");
        complete(&mut scheduler, 1, 0, 7 * SECOND);
        let mut effects = Effects::default();
        scheduler.begin(2, new_call(caller(2), 1, options()));
        scheduler.submit(Run::new(2, 0, 9, arguments(9)), &mut effects);
        scheduler.finish_feeding(2, Some(9));
        assert_eq!(scheduler.usual_time_of_durable(), Some(seconds(7)));
        begin(&mut scheduler, 4, 9, 1);
        assert_eq!(scheduler.usual_time_of_durable(), Some(Duration::ZERO), "it is not known");
    }
}
