//! The workers of a pool that are missing, and the decision to give up.
//!
//! A pool works as long as one worker does. Workers that wait for room in the cluster, and workers
//! whose start failed, are missing: the pool tries to start them without limit. While no worker is
//! ready, the pool counts failures in a row. A pool of which no worker has become ready has a wrong
//! configuration, and one whose workers die before they had a task a wrong program: both give up
//! soon. Otherwise the pool waits for `start_timeout`, because shortages pass.

use std::time::{Duration, Instant};

use fiber_core::SortedMap;

use super::WorkerNumber;

/// Failures in a row, besides one for each worker, before a pool without workers gives up.
const MAX_FAILURES: u32 = 5;

/// Why a worker is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MissingCause {
    /// The worker waits for room, with the cluster's message.
    NoRoom(String),
    StartFailed(String),
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct MissingWorkers {
    workers: SortedMap<WorkerNumber, MissingCause>,
    pub(super) warning: Warning,
    history: History,
    /// Starts that failed while no worker was ready.
    failed_starts: FailureStreak,
    /// Workers that died young and unused.
    died_unused: FailureStreak,
}

/// The state of the warning that workers are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Warning {
    #[default]
    None,
    Scheduled,
    Logged,
}

/// The most that any worker of the pool has achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum History {
    #[default]
    NoneReady,
    Ready,
    /// A worker had a task, or lived long enough for one.
    Worked,
}

/// Failures in a row, and the time of the first.
#[derive(Clone, Copy, Debug, Default)]
struct FailureStreak {
    failures: u32,
    since: Option<Instant>,
}

impl FailureStreak {
    fn add(&mut self, now: Instant) {
        self.failures += 1;
        self.since.get_or_insert(now);
    }

    /// Returns whether there are too many failures for a pool of `workers` workers, over at least
    /// `grace`.
    fn is_too_long(&self, workers: usize, grace: Duration, now: Instant) -> bool {
        let max = u32::try_from(workers).unwrap_or(u32::MAX).saturating_add(MAX_FAILURES);
        self.failures > max && self.since.is_some_and(|since| now.duration_since(since) >= grace)
    }
}

impl MissingWorkers {
    pub(super) fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Returns how many of them are not waited for: those without room, and after the warning also
    /// those whose start failed.
    pub(super) fn excused(&self) -> usize {
        let excused = |cause: &&MissingCause| {
            self.warning == Warning::Logged || matches!(cause, MissingCause::NoRoom(_))
        };
        self.workers.values().filter(excused).count()
    }

    /// Returns why the first of them is missing.
    pub(super) fn cause(&self) -> Option<&MissingCause> {
        self.workers.values().next()
    }

    /// Removes one of them.
    pub(super) fn pop(&mut self) -> Option<WorkerNumber> {
        let number = *self.workers.iter().next()?.0;
        self.workers.remove(&number);
        Some(number)
    }

    pub(super) fn no_room(&mut self, number: WorkerNumber, message: String) {
        self.workers.insert(number, MissingCause::NoRoom(message));
    }

    pub(super) fn found_room(&mut self, number: WorkerNumber) {
        if let Some(MissingCause::NoRoom(_)) = self.workers.get(&number) {
            self.workers.remove(&number);
        }
    }

    pub(super) fn ready(&mut self, number: WorkerNumber) {
        self.workers.remove(&number);
        self.failed_starts = FailureStreak::default();
        self.history = self.history.max(History::Ready);
    }

    /// Notes that a worker had a task or lived for a while.
    pub(super) fn worked(&mut self) {
        self.died_unused = FailureStreak::default();
        self.history = History::Worked;
    }

    /// Notes that the start of a worker failed while `ready` others were ready.
    pub(super) fn start_failed(
        &mut self,
        number: WorkerNumber,
        problem: String,
        ready: usize,
        now: Instant,
    ) {
        self.workers.insert(number, MissingCause::StartFailed(problem));
        if ready == 0 {
            self.failed_starts.add(now)
        } else {
            self.failed_starts = FailureStreak::default()
        }
    }

    /// Notes that no start can succeed any more.
    pub(super) fn starts_are_over(&mut self) {
        self.history = History::NoneReady;
    }

    pub(super) fn died_unused(&mut self, now: Instant) {
        self.died_unused.add(now);
    }

    /// Returns why the pool gives up, if it does. `grace` is the time that a pool whose workers
    /// have worked keeps trying.
    pub(super) fn give_up(
        &self,
        children: &SortedMap<WorkerNumber, ()>,
        grace: Duration,
        now: Instant,
    ) -> Option<GiveUp> {
        let is_too_long = |streak: &FailureStreak, least: History| {
            let grace = if self.history >= least { grace } else { Duration::ZERO };
            streak.is_too_long(children.len(), grace, now)
        };
        if is_too_long(&self.died_unused, History::Worked) {
            return Some(GiveUp::DiedUnused(self.died_unused.failures));
        }
        let failed =
            |number| matches!(self.workers.get(number), Some(MissingCause::StartFailed(_)));
        if self.failed_starts.failures == 0 || !children.iter().all(|(number, ())| failed(number)) {
            return None;
        }
        if self.history == History::NoneReady {
            return Some(GiveUp::NoneStarted);
        }
        is_too_long(&self.failed_starts, History::Ready)
            .then_some(GiveUp::StartsFailed(self.failed_starts.failures))
    }
}

/// Why a pool gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GiveUp {
    /// The first start of each worker failed.
    NoneStarted,
    /// This many starts in a row failed.
    StartsFailed(u32),
    /// This many workers in a row died young and unused.
    DiedUnused(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(60);

    struct Pool {
        missing: MissingWorkers,
        children: SortedMap<WorkerNumber, ()>,
        ready: usize,
        now: Instant,
    }

    fn pool(workers: u64) -> Pool {
        let mut children = SortedMap::new();
        for number in 0..workers {
            children.insert(number, ());
        }
        Pool { missing: MissingWorkers::default(), children, ready: 0, now: Instant::now() }
    }

    impl Pool {
        fn fail(&mut self, number: WorkerNumber) -> Option<GiveUp> {
            self.missing.start_failed(number, "no".into(), self.ready, self.now);
            self.missing.give_up(&self.children, GRACE, self.now)
        }
    }

    #[test]
    fn a_pool_gives_up_at_once_if_the_first_start_of_every_worker_fails() {
        let mut pool = pool(2);
        assert_eq!(pool.fail(0), None, "the other may start");
        assert_eq!(pool.fail(0), None);
        assert_eq!(pool.fail(1), Some(GiveUp::NoneStarted));
    }

    #[test]
    fn a_pool_with_a_worker_never_gives_up() {
        let mut pool = pool(3);
        pool.missing.ready(0);
        pool.ready = 1;
        assert!((0..1000).all(|turn| pool.fail(1 + turn % 2).is_none()));
        assert_eq!(pool.missing.len(), 2);
        // Failures before the loss of the last worker do not count.
        pool.ready = 0;
        assert_eq!(pool.fail(0), None);
    }

    #[test]
    fn starts_are_tried_for_a_while_after_one_has_succeeded() {
        let mut pool = pool(1);
        pool.missing.ready(0);
        assert!((0..10).all(|_| pool.fail(0).is_none()), "the configuration is right");
        pool.now += GRACE;
        assert_eq!(pool.fail(0), Some(GiveUp::StartsFailed(11)));
        pool.missing.ready(0);
        assert_eq!(pool.fail(0), None);
    }

    #[test]
    fn workers_that_die_unused_are_started_a_few_times_and_used_ones_for_a_while() {
        let mut pool = pool(1);
        pool.missing.ready(0);
        let die = |pool: &mut Pool| {
            pool.missing.died_unused(pool.now);
            pool.missing.give_up(&pool.children, GRACE, pool.now)
        };
        assert!((0..6).all(|_| die(&mut pool).is_none()));
        assert_eq!(die(&mut pool), Some(GiveUp::DiedUnused(7)));
        pool.missing.worked();
        assert!((0..10).all(|_| die(&mut pool).is_none()));
        pool.now += GRACE;
        assert_eq!(die(&mut pool), Some(GiveUp::DiedUnused(11)));
    }

    #[test]
    fn found_room_does_not_clear_a_failed_start() {
        let mut pool = pool(2);
        pool.missing.no_room(0, "full".into());
        let _ = pool.fail(1);
        pool.missing.found_room(0);
        pool.missing.found_room(1);
        assert_eq!(pool.missing.cause(), Some(&MissingCause::StartFailed("no".into())));
    }
}
