use std::iter;

use fiber_core::{Exit, ExitReason};

use super::super::Inputs;
use super::*;

const MS: Duration = Duration::from_millis(1);

/// Records at given milliseconds after the beginning.
struct Clock {
    tracks: Tracks,
}

impl Clock {
    fn new() -> Clock {
        Clock { tracks: Tracks::new() }
    }

    fn at(&self, ms: u32) -> Instant {
        self.tracks.origin.0 + MS * ms
    }

    fn apply(&mut self, ms: u32, what: What) {
        let at = self.at(ms);
        self.tracks.apply(Record { at, what });
    }

    /// A thread has run `count` tasks from `first` on, for `busy` milliseconds.
    fn ran(&mut self, ms: u32, thread: u32, first: u64, count: u64, busy: u32) {
        let (pool, worker) = ("p".into(), "worker-1".into());
        let (function, call, failed, busy) = ("f", 1, 0, MS * busy);
        let runs = iter::once(first..first + count).collect();
        let ran = Ran { pool, worker, thread, function, call, runs, failed, busy };
        self.apply(ms, What::Ran(ran));
    }

    /// A thread has run tasks of a call, in `busy` milliseconds.
    fn ran_of(&mut self, call: u64, ms: u32, thread: u32, indexes: &[u64], busy: u32) {
        let (pool, worker) = ("p".into(), "worker-1".into());
        let runs = indexes.iter().map(|index| *index..index + 1).collect();
        let (function, failed, busy) = ("f", 0, MS * busy);
        let ran = Ran { pool, worker, thread, function, call, runs, failed, busy };
        self.apply(ms, What::Ran(ran));
    }

    /// A task is about to run with the values of others.
    fn takes(
        &mut self,
        ms: u32,
        (call, index): (u64, u64),
        makers: &[(u64, std::ops::Range<u64>)],
    ) {
        self.apply(ms, What::Inputs(Inputs { call, index, makers: makers.to_vec() }));
    }

    /// Returns the threads and times of the ends of all arrows.
    fn arrows(mut self) -> Vec<[(u32, u128); 2]> {
        let origin = self.tracks.origin.1;
        let end = |end: End| {
            let at = end.at.duration_since(origin).unwrap();
            (end.thread.2, (at + Duration::from_micros(500)).as_millis())
        };
        let row = |item| match item {
            Item::Arrow { from, to } => Some([end(from), end(to)]),
            _ => None,
        };
        std::mem::take(&mut self.tracks.items).into_iter().filter_map(row).collect()
    }

    /// Returns thread, first task, number of tasks, begin, duration and kind of all slices.
    fn slices(mut self) -> Vec<(u32, u64, u64, u128, u128, SliceKind)> {
        self.tracks.flush(None);
        let origin = self.tracks.origin.1;
        let row = |item| {
            let Item::Slice(slice) = item else { return None };
            let begin = slice.start.duration_since(origin).unwrap().as_millis();
            let duration = slice.duration.as_millis();
            Some((slice.thread, slice.first, slice.count, begin, duration, slice.kind))
        };
        std::mem::take(&mut self.tracks.items).into_iter().filter_map(row).collect()
    }
}

fn task(index: u64) -> TaskName {
    TaskName::new(1, "f", index)
}

fn death(blamed: Vec<TaskName>) -> What {
    What::Event(EventKind::WorkerEnded {
        pool: "p".into(),
        worker: "worker-1".into(),
        place: "pid 1".into(),
        exit: Exit::new(ExitReason::Signal(9), Vec::new()),
        expected: false,
        blamed,
        redelivered: 1,
    })
}

#[test]
fn long_tasks_have_a_slice_each() {
    let mut clock = Clock::new();
    clock.ran(20, 0, 0, 1, 10);
    clock.ran(40, 0, 1, 1, 20);
    let ran = SliceKind::Ran;
    assert_eq!(clock.slices(), [(0, 0, 1, 10, 10, ran), (0, 1, 1, 20, 20, ran)]);
}

#[test]
fn short_tasks_of_a_thread_share_slices() {
    let mut clock = Clock::new();
    for ms in 1..=12 {
        clock.ran(ms, 0, u64::from(ms) * 100, 100, 1);
        clock.ran(ms, 1, 0, 1, 1);
    }
    let slices = clock.slices();
    let of = |thread: u32| slices.iter().filter(|slice| slice.0 == thread).collect::<Vec<_>>();
    assert_eq!(of(0).iter().map(|slice| slice.2).sum::<u64>(), 1200);
    assert_eq!(of(0).len(), 3);
    assert_eq!(of(1).iter().map(|slice| slice.2).sum::<u64>(), 12);
}

#[test]
fn slices_of_a_thread_do_not_overlap() {
    let mut clock = Clock::new();
    clock.ran(20, 0, 0, 1, 10);
    // Its message was faster.
    clock.ran(29, 0, 1, 1, 10);
    let ran = SliceKind::Ran;
    assert_eq!(clock.slices(), [(0, 0, 1, 10, 10, ran), (0, 1, 1, 20, 9, ran)]);
}

#[test]
fn a_task_that_its_worker_did_not_survive_is_shown_and_so_is_its_next_run() {
    let mut clock = Clock::new();
    clock.ran(20, 0, 0, 1, 10);
    let since = clock.at(25);
    let cut = What::Cut { pool: "p".into(), worker: "worker-1".into(), task: task(1), since };
    clock.apply(50, cut);
    clock.apply(50, death(vec![task(1)]));
    clock.ran(61, 0, 1, 1, 1);
    clock.ran(62, 0, 2, 1, 1);
    assert_eq!(
        clock.slices(),
        [
            (0, 0, 1, 10, 10, SliceKind::Ran),
            (0, 1, 1, 25, 25, SliceKind::Died),
            (0, 1, 1, 60, 1, SliceKind::Redelivered),
            (0, 2, 1, 61, 1, SliceKind::Ran),
        ]
    );
}

#[test]
fn tasks_of_several_threads_that_died_are_on_tracks_of_their_own() {
    let mut clock = Clock::new();
    clock.ran(20, 0, 0, 1, 10);
    let since = clock.at(22);
    for index in [1, 2] {
        let (pool, worker) = ("p".into(), "worker-1".into());
        clock.apply(50, What::Cut { pool, worker, task: task(index), since });
    }
    let mut threads: Vec<_> =
        clock.slices().into_iter().filter(|slice| slice.5 == SliceKind::Died).collect();
    threads.sort_by_key(|slice| slice.0);
    assert_eq!(threads.iter().map(|slice| slice.0).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn arrows_lead_from_values_to_tasks() {
    let mut clock = Clock::new();
    clock.ran_of(1, 20, 0, &[0], 10);
    clock.ran_of(1, 30, 1, &[1], 10);
    clock.takes(30, (2, 0), &[(1, 0..2)]);
    clock.ran_of(2, 50, 0, &[0], 15);
    clock.takes(50, (2, 1), &[(1, 1..2), (2, 0..1)]);
    clock.ran_of(2, 70, 1, &[1], 15);
    let expected = [
        // The value that came last first.
        [(1, 30), (0, 35)],
        [(0, 20), (0, 35)],
        [(0, 50), (1, 55)],
        [(1, 30), (1, 55)],
    ];
    assert_eq!(clock.arrows(), expected);
}

#[test]
fn slices_of_short_tasks_share_arrows_and_have_none_to_themselves() {
    let mut clock = Clock::new();
    for index in 0..4 {
        clock.ran_of(1, 10, 0, &[index], 0);
    }
    // The tasks of a message need not follow each other.
    clock.ran_of(1, 10, 1, &[4, 8], 0);
    for index in 0..4 {
        clock.takes(10, (2, index), &[(1, index..index + 1)]);
        clock.ran_of(2, 12, 2, &[index], 0);
    }
    clock.takes(12, (2, 4), &[(1, 8..9), (1, 6..8), (2, 0..1)]);
    clock.ran_of(2, 12, 2, &[4], 0);
    assert_eq!(clock.arrows(), [[(0, 10), (2, 12)], [(1, 10), (2, 12)]]);
}

#[test]
fn no_arrow_leads_to_a_slice_that_began_before_the_one_of_the_value() {
    let mut clock = Clock::new();
    clock.ran_of(2, 10, 1, &[0], 1);
    clock.ran_of(1, 11, 0, &[0], 1);
    clock.takes(11, (2, 1), &[(1, 0..1)]);
    // It shares the slice of the first, which began at 9 ms.
    clock.ran_of(2, 13, 1, &[1], 1);
    clock.takes(13, (2, 2), &[(1, 0..1)]);
    clock.ran_of(2, 16, 1, &[2], 1);
    assert_eq!(clock.arrows(), [[(0, 11), (1, 15)]]);
}

#[test]
fn a_slice_has_the_arrows_of_the_values_that_came_last() {
    let mut clock = Clock::new();
    for index in 0..100 {
        clock.ran_of(1, 10 + 10 * index, 0, &[index.into()], 10);
    }
    clock.takes(2000, (2, 0), &[(1, 0..100)]);
    clock.ran_of(2, 2020, 1, &[0], 10);
    let from: Vec<_> = clock.arrows().into_iter().map(|[from, _]| from.1).collect();
    assert_eq!(from, (37..=100).rev().map(|number| 10 * number).collect::<Vec<_>>());
}

#[test]
fn tasks_of_a_call_that_has_ended_have_no_arrows() {
    let mut clock = Clock::new();
    clock.ran_of(1, 10, 0, &[0], 10);
    clock.takes(10, (2, 0), &[(1, 0..1)]);
    clock.takes(10, (3, 0), &[(1, 0..1)]);
    clock.apply(11, What::CallEnded { call: 2 });
    clock.ran_of(2, 20, 0, &[0], 5);
    assert_eq!(clock.arrows(), [[(0, 0); 2]; 0]);
}
