//! Workers in hosts die, and hosts do.

use fiber_test_support::wait::{LONG, wait_until};
use std::time::Duration;

use fiber::error::ExitReason;
use rustix::process::Signal;

use super::{distinct, hosts, is_running, kill, pool, send};

#[test]
fn a_worker_that_dies_starts_again_in_its_host() {
    let pool = pool(2, 2);
    let before = hosts(&pool, 2);
    let path = tempfile::tempdir().unwrap();
    let died = path.path().join("died").to_string_lossy().into_owned();
    let task = |(x, died): (u64, String)| {
        if x == 50 && std::fs::File::create_new(died).is_ok() {
            std::process::abort();
        }
        x
    };
    let results = pool.map(task, (0..100).map(move |x| (x, died.clone()))).wait().unwrap();
    assert_eq!(results, (0..100).collect::<Vec<_>>());
    pool.wait_until_ready().wait().unwrap();
    assert_eq!(hosts(&pool, 2), before);
}

#[test]
fn the_tasks_of_a_killed_host_run_again() {
    let pool = pool(4, 2);
    let before = hosts(&pool, 4);
    let victim = before[0];
    let call = pool.map(
        |x: u64| {
            std::thread::sleep(Duration::from_millis(2));
            x
        },
        0..1000,
    );
    kill(victim);
    assert_eq!(call.wait().unwrap(), (0..1000).collect::<Vec<_>>());
    wait_until("the victim's end", || !is_running(victim));
    pool.wait_until_ready().wait().unwrap();
    let after = hosts(&pool, 4);
    assert!(!after.contains(&victim) && distinct(&after) == 2, "{after:?}");
}

#[test]
fn workers_do_not_outlive_their_host() {
    let pool = pool(2, 2);
    let host = hosts(&pool, 2)[0];
    let workers = pool.map(|()| std::process::id(), vec![(); 100]).wait().unwrap();
    kill(host);
    wait_until("the end of all workers", || workers.iter().all(|worker| !is_running(*worker)));
}

#[test]
fn a_host_that_falls_silent_is_replaced() {
    let pool = pool(2, 2);
    let host = hosts(&pool, 2)[0];
    send(Signal::STOP, host);
    // The heartbeats of the host and of its workers stop together.
    let call = pool.map(|x: u64| x, 0..100);
    // The last events alone are kept, and other tests have some, too.
    wait_until("the event of the host's end", || {
        let events = fiber::stats().unwrap().events;
        let reasons = events.iter().map(|event| format!("{event:?}"));
        reasons
            .filter(|reason| reason.contains(pool.name()))
            .any(|reason| reason.contains("HostEnded") && reason.contains("HeartbeatLost"))
    });
    assert_eq!(call.wait().unwrap().len(), 100);
    wait_until("the host's end", || !is_running(host));
}

#[test]
fn sigterm_at_a_host_ends_its_workers_in_order() {
    let pool = pool(2, 2).max_deaths(1);
    let host = hosts(&pool, 2)[0];
    let (sender, ends) = std::sync::mpsc::channel();
    pool.on_event(move |event| {
        if let fiber::stats::EventKind::WorkerEnded { exit, .. } = &event.kind {
            let _ = sender.send(exit.reason.clone());
        }
    });
    send(Signal::TERM, host);
    for _ in 0..2 {
        let reason = match ends.recv_timeout(LONG).expect("it ends") {
            // The host's last message to say so may be lost with it.
            ExitReason::HostEnded { reason, .. } => *reason,
            reason => reason,
        };
        assert_eq!(reason, ExitReason::Terminated);
    }
    wait_until("the host's end", || !is_running(host));
    pool.wait_until_ready().wait().unwrap();
    assert_eq!(pool.stats().deaths, 0);
}
