//! A profile of a process that waits. It is alone in its process: other tests would run in it.

#![cfg(feature = "stacks")]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fiber_core::stacks::Unnamed;
use fiber_stacks::{profile, program_names};

#[inline(never)]
fn waits_for_an_end(started: &mpsc::Sender<()>, end: &mpsc::Receiver<()>) {
    // By then, the thread has its name.
    let _ = started.send(());
    let _ = end.recv();
    std::hint::black_box(());
}

#[test]
fn of_a_process_that_sleeps_the_profile_shows_where_it_waits_and_no_thread_of_fiber() {
    let wait = |name: &str| {
        let ((end, ended), (starts, started)) = (mpsc::channel(), mpsc::channel());
        let thread = thread::Builder::new().name(name.into());
        let thread = thread.spawn(move || waits_for_an_end(&starts, &ended)).unwrap();
        started.recv().unwrap();
        (end, thread)
    };
    let threads = [wait("waits"), wait("fiber-runtime")];
    let mut profile = profile(Duration::from_secs(1), 50, false).unwrap();
    let names = program_names(&profile.unnamed()).unwrap();
    profile.set_names(&names);

    assert!(profile.shows_waits(false), "{profile:?}");
    let folded = profile.folded(false);
    assert!(
        folded.lines().any(|line| {
            line.starts_with("waits;") && line.contains("stacks_waiting::waits_for_an_end;")
        }),
        "{folded}"
    );
    assert!(!folded.contains("fiber-runtime"), "{folded}");
    assert!(profile.folded(true).contains("fiber-runtime;"), "{}", profile.folded(true));
    assert!(profile.share(false) < 0.1, "{}", profile.share(false));
    for (end, thread) in threads {
        drop(end);
        thread.join().unwrap();
    }
}
