//! The end of managed actors and of their processes.

use std::time::Duration;

use actix::prelude::*;
use fiber::{AsyncManager, Process, error::ExitReason};
use fiber_test_support::wait::wait_until;

use super::counter::{Add, Counter, counter};
use super::{is_running, stopped};

#[test]
fn a_stopped_or_dropped_manager_leaves_no_process() {
    let manager = counter(0);
    let (pid, addr) = (manager.pid().unwrap(), manager.addr());
    manager.stop().wait().unwrap();
    assert!(!is_running(pid));
    let error = addr.send(Add(1)).wait().unwrap_err();
    assert_eq!(error.to_string(), format!("actor `{}` was asked to stop", addr.name()));
    assert_eq!(stopped(error), ExitReason::Shutdown);
    // It was stopped before it is dropped.
    assert_eq!(manager.join().wait().unwrap(), ExitReason::Shutdown);
    let dropped = counter(0);
    let addr = dropped.addr();
    drop(dropped);
    assert_eq!(addr.join().wait().unwrap(), ExitReason::Dropped);
    let error = addr.send(Add(1)).wait().unwrap_err();
    assert!(error.to_string().contains("because its last handle was dropped: keep"), "{error}");
    assert_eq!(stopped(error), ExitReason::Dropped);
}

/// An actor that takes its time to end, and creates a file then.
struct Slow(std::path::PathBuf, Duration);

impl Actor for Slow {
    type Context = Context<Self>;

    fn stopping(&mut self, context: &mut Context<Self>) -> Running {
        context.run_later(self.1, |slow, context| {
            std::fs::write(&slow.0, "").unwrap();
            context.terminate();
        });
        Running::Continue
    }
}

#[test]
fn the_shutdown_deadline_of_a_builder_may_be_longer_than_the_default() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ended");
    let slow = |path: String| Slow(path.into(), Duration::from_millis(5500));
    let path = file.to_str().unwrap().to_string();
    let manager = AsyncManager::builder().shutdown(Duration::from_secs(60)).start(slow, path);
    manager.wait().unwrap().stop().wait().unwrap();
    assert!(file.exists(), "the actor was killed before its deadline");
}

#[test]
fn the_managed_actors_of_a_process_end_with_it() {
    let nested = |count: u64| {
        let manager = AsyncManager::start(Counter::new, count).wait().unwrap();
        (manager.send(Add(1)).wait().unwrap(), manager.pid().unwrap())
    };
    let (count, pid) = Process::spawn(nested, 4).wait().unwrap();
    assert_eq!(count, 5);
    wait_until("the end of the managed process", || !is_running(pid));
}
