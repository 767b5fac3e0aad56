//! Managed actors that fail, and their restarts.

use std::time::Duration;

use fiber::{
    AsyncManager, Error, Supervisor,
    error::ExitReason,
    manager::Snapshots,
    supervisor::{Backoff, Strategy},
};
use fiber_test_support::wait::wait_until;

use super::counter::{Add, Counter, Fail, counter};
use super::stopped;

#[test]
fn a_payload_that_panics_when_it_is_dropped_fails_its_call() {
    let manager = counter(10);
    let error = manager.send(Fail::Bomb).wait().unwrap_err().to_string();
    assert!(error.contains("panicked") && error.contains("counter.rs"), "{error}");
    assert_eq!(manager.send(Add(1)).wait().unwrap(), 11);
}

#[test]
fn an_actor_that_restarts_with_its_siblings_is_called_again() {
    let child = |name| AsyncManager::builder().name(name).child(Counter::new, 10).unwrap();
    let ((one, _), (other, addr)) = (child("restarts-one"), child("restarts-other"));
    let app = Supervisor::builder("restarts").strategy(Strategy::OneForAll).child(one).child(other);
    let app = app.start().wait().unwrap();
    assert_eq!(addr.send(Add(5)).wait().unwrap(), 15);
    app.kill_child("restarts-one", ExitReason::Signal(9)).wait().unwrap();
    // The former one may still answer, or say that it is being stopped.
    wait_until("an answer of the next", || matches!(addr.send(Add(1)).wait(), Ok(11)));
    app.stop().wait().unwrap();
    stopped(addr.send(Add(1)).wait().unwrap_err());
}

#[test]
fn a_restarted_actor_continues_from_its_last_snapshot() {
    let builder = AsyncManager::builder().snapshots(Snapshots::every_messages(5));
    let manager = builder.start(Counter::new, 0).wait().unwrap();
    for _ in 0..12 {
        manager.send(Add(1)).wait().unwrap();
    }
    manager.send(Fail::Panic).wait().unwrap_err();
    assert_eq!(manager.send(Add(0)).wait().unwrap(), 10);
    manager.send(Fail::Abort).wait().unwrap_err();
    assert_eq!(manager.send(Add(0)).wait().unwrap(), 10);
}

#[test]
fn a_panic_of_the_factory_is_an_error_of_the_start() {
    let refuse = |_: u64| -> Counter { panic!("no counter today") };
    let error = AsyncManager::start(refuse, 1).wait().unwrap_err();
    assert!(error.to_string().contains("no counter today"), "{error}");
}

#[test]
fn an_actor_whose_process_needs_too_many_restarts_ends_and_later_calls_say_why() {
    let directory = tempfile::tempdir().unwrap();
    let once = |path: std::path::PathBuf| {
        assert!(std::fs::File::create_new(path).is_ok(), "no second time");
        Counter::new(0)
    };
    let builder = AsyncManager::builder().name("unsteady").intensity(2, Duration::from_secs(60));
    let manager = builder.start(once, directory.path().join("once")).wait().unwrap();
    manager.kill_process();
    // A call may be answered before the signal arrives.
    let error = std::iter::repeat_with(|| manager.send(Add(1)).wait()).find_map(Result::err);
    assert!(!matches!(error, Some(Error::TimedOut { .. })), "{error:?}");
    let reason = manager.join().wait().unwrap();
    assert!(matches!(reason, ExitReason::IntensityReached { restarts: 2, .. }), "{reason:?}");
    let error = manager.send(Add(1)).wait().unwrap_err().to_string();
    assert!(error.contains("unsteady") && error.contains("no second time"), "{error}");
    assert!(!manager.connected());
}

#[test]
fn no_answered_message_is_lost_if_answers_wait_for_snapshots() {
    let builder = AsyncManager::builder().snapshots(Snapshots::before_answers());
    let builder = builder.intensity(u32::MAX, Duration::from_secs(1)).backoff(Backoff::none());
    let manager = builder.start(Counter::new, 0).wait().unwrap();
    let mut count = 0;
    for _ in 0..20 {
        // Several share a snapshot.
        let answers: Vec<_> = (0..8).map(|_| manager.addr().resend().send(Add(1))).collect();
        let answers = answers.into_iter().map(|answer| answer.wait().unwrap());
        let last = answers.max().unwrap();
        manager.kill_process();
        let after = manager.addr().resend().send(Add(0)).wait().unwrap();
        assert_eq!(after, last, "it had {count} before");
        count = after;
    }
    // A panic loses nothing that was answered, either.
    manager.addr().resend().send(Fail::Panic).wait().unwrap_err();
    assert_eq!(manager.addr().resend().send(Add(0)).wait().unwrap(), count);
}
