//! Which of a pool's workers are absent, and when a pool without workers gives up.
//!
//! A pool works as long as one worker does. Those that wait for room, or whose start failed, are
//! absent: they are tried again for as long as it takes. While none is ready, failures in a row are
//! counted. A pool whose workers never worked has a wrong program or configuration, and gives up
//! soon; one whose workers did is given time, since shortages pass.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Failures in a row, besides one for each worker, before a pool without workers gives up.
const FAILURES: u32 = 5;

/// Why a worker is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It waits for room, in the cluster's words.
    NoRoom(String),
    NotStarted(String),
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Absence {
    workers: BTreeMap<String, Reason>,
    pub(super) logged: Logged,
    history: History,
    /// Starts that failed while no worker was ready.
    failed_starts: Streak,
    /// Workers that died young and unused since one last did not.
    died_unused: Streak,
}

/// Whether the log says that workers are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Logged {
    #[default]
    No,
    Soon,
    Yes,
}

/// The best that was seen of the pool's workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum History {
    #[default]
    NoneReady,
    Ready,
    /// One had a task, or lived long enough for one.
    Worked,
}

/// Failures in a row, and when the first of them was.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    failures: u32,
    since: Option<Instant>,
}

impl Streak {
    fn add(&mut self, now: Instant) {
        self.failures += 1;
        self.since.get_or_insert(now);
    }

    fn is_too_long(&self, workers: usize, patience: Duration, now: Instant) -> bool {
        let most = u32::try_from(workers).unwrap_or(u32::MAX).saturating_add(FAILURES);
        self.failures > most
            && self.since.is_some_and(|since| now.duration_since(since) >= patience)
    }
}

impl Absence {
    pub(super) fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    /// How many of them nobody should wait for: those without room, and once it was logged also
    /// those whose start failed.
    pub(super) fn excused(&self) -> usize {
        let excused =
            |reason: &&Reason| self.logged == Logged::Yes || matches!(reason, Reason::NoRoom(_));
        self.workers.values().filter(excused).count()
    }

    /// Why the first of them is absent.
    pub(super) fn reason(&self) -> Option<&Reason> {
        self.workers.values().next()
    }

    /// Forgets one of them, and returns its name.
    pub(super) fn pop(&mut self) -> Option<String> {
        self.workers.pop_first().map(|(child, _)| child)
    }

    pub(super) fn no_room(&mut self, child: String, words: String) {
        self.workers.insert(child, Reason::NoRoom(words));
    }

    pub(super) fn found_room(&mut self, child: &str) {
        if let Some(Reason::NoRoom(_)) = self.workers.get(child) {
            self.workers.remove(child);
        }
    }

    pub(super) fn joined(&mut self, child: &str) {
        self.workers.remove(child);
        self.failed_starts = Streak::default();
        self.history = self.history.max(History::Ready);
    }

    /// A worker had tasks or lived for a while, or others do.
    pub(super) fn worked(&mut self) {
        self.died_unused = Streak::default();
        self.history = History::Worked;
    }

    /// The start of a worker failed while `ready` others were ready.
    pub(super) fn failed_start(
        &mut self,
        child: String,
        problem: String,
        ready: usize,
        now: Instant,
    ) {
        self.workers.insert(child, Reason::NotStarted(problem));
        if ready == 0 {
            self.failed_starts.add(now)
        } else {
            self.failed_starts = Streak::default()
        }
    }

    pub(super) fn died_unused(&mut self, now: Instant) {
        self.died_unused.add(now);
    }

    /// Why no worker can be expected any more, if so. `patience` is for pools whose workers did
    /// work.
    pub(super) fn is_hopeless(
        &self,
        children: &BTreeSet<String>,
        patience: Duration,
        now: Instant,
    ) -> Option<Hopeless> {
        let patience = if self.history == History::Worked { patience } else { Duration::ZERO };
        let is_too_long = |streak: &Streak| streak.is_too_long(children.len(), patience, now);
        if is_too_long(&self.died_unused) {
            return Some(Hopeless::DiedUnused(self.died_unused.failures));
        }
        let failed = |child| matches!(self.workers.get(child), Some(Reason::NotStarted(_)));
        if self.failed_starts.failures == 0 || !children.iter().all(failed) {
            return None;
        }
        if self.history == History::NoneReady {
            return Some(Hopeless::NoneStarted);
        }
        is_too_long(&self.failed_starts)
            .then_some(Hopeless::FailedStarts(self.failed_starts.failures))
    }
}

/// Why a pool gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hopeless {
    /// The first start of each worker failed.
    NoneStarted,
    /// So many starts in a row.
    FailedStarts(u32),
    /// So many workers in a row died young, and had no task.
    DiedUnused(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    struct Pool {
        absence: Absence,
        children: BTreeSet<String>,
        ready: usize,
        now: Instant,
    }

    fn pool(workers: usize) -> Pool {
        let children = (0..workers).map(|child| child.to_string()).collect();
        Pool { absence: Absence::default(), children, ready: 0, now: Instant::now() }
    }

    impl Pool {
        fn fail(&mut self, child: usize) -> Option<Hopeless> {
            self.absence.failed_start(child.to_string(), "no".into(), self.ready, self.now);
            self.absence.is_hopeless(&self.children, PATIENCE, self.now)
        }
    }

    #[test]
    fn a_pool_gives_up_at_once_when_no_worker_can_be_started_the_first_time() {
        let mut pool = pool(2);
        assert_eq!(pool.fail(0), None, "the other may start");
        assert_eq!(pool.fail(0), None);
        assert_eq!(pool.fail(1), Some(Hopeless::NoneStarted));
    }

    #[test]
    fn a_pool_with_a_worker_never_gives_up() {
        let mut pool = pool(3);
        pool.absence.joined("0");
        pool.ready = 1;
        assert!((0..1000).all(|turn| pool.fail(1 + turn % 2).is_none()));
        assert_eq!(pool.absence.len(), 2);
        // What failed before the last worker was lost does not count.
        pool.ready = 0;
        assert_eq!(pool.fail(0), None);
    }

    #[test]
    fn workers_that_never_worked_are_tried_a_few_times_and_others_for_a_while() {
        let mut pool = pool(1);
        pool.absence.joined("0");
        assert!((0..6).all(|_| pool.fail(0).is_none()));
        assert_eq!(pool.fail(0), Some(Hopeless::FailedStarts(7)));
        pool.absence.worked();
        assert_eq!(pool.fail(0), None);
        pool.now += PATIENCE;
        assert_eq!(pool.fail(0), Some(Hopeless::FailedStarts(9)));
        pool.absence.joined("0");
        assert_eq!(pool.fail(0), None);
    }

    #[test]
    fn room_that_was_found_says_nothing_of_a_start_that_failed() {
        let mut pool = pool(2);
        pool.absence.no_room("0".into(), "full".into());
        let _ = pool.fail(1);
        pool.absence.found_room("0");
        pool.absence.found_room("1");
        assert_eq!(pool.absence.reason(), Some(&Reason::NotStarted("no".into())));
    }
}
