use fiber_core::{Exit, ExitReason};

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
        let ran = Ran { pool, worker, thread, function, call, first, count, failed, busy };
        self.apply(ms, What::Ran(ran));
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
        self.tracks.take().into_iter().filter_map(row).collect()
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
