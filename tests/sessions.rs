//! Several sessions in one process: their heads and workers are threads, their links are in memory.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use fiber::simulation::Session;
use fiber::stats::EventKind;
use fiber::{Pool, Result};
use fiber_test_support::wait::wait_until;

/// The decisions of a session, and its remains.
#[derive(Debug, PartialEq)]
struct Life {
    /// The effects of the scheduler, as long as one task at a time runs.
    effects: Vec<String>,
    /// The starts and ends of each worker, which the controller and its supervisor decide. Workers
    /// that start at the same time are not compared with each other.
    workers: BTreeMap<String, Vec<String>>,
    /// The ids of all processes, by their names.
    ids: BTreeMap<String, String>,
    left: Vec<String>,
}

/// Notes the ids of the session's processes.
fn note_ids(ids: &mut BTreeMap<String, String>, life: &str) -> Result<()> {
    for process in fiber::stats()?.report.processes {
        ids.insert(format!("{life} {}", process.name), process.id.to_string());
    }
    Ok(())
}

/// Lives as a session of a head and three workers that computes, loses a worker, and ends.
fn live(seed: u64) -> Result<Life> {
    let session = Session::start(seed)?;
    let entered = session.enter();
    let mut events = fiber::stats::events();
    let pool = Pool::builder().processes(1).build()?;
    // One after the other, so that the order of the workers is that of their starts.
    let mut ids = BTreeMap::new();
    for ready in 1..=3 {
        pool.scale(ready).wait()?;
        pool.apply(|| (), ()).wait()?;
        wait_until("a worker's start", || pool.ready_workers() == ready);
    }
    for task in 0..20 {
        assert_eq!(pool.apply(|x: u64| x * x, task).wait()?, task * task);
    }
    note_ids(&mut ids, "before")?;
    let mut later = fiber::stats::events();
    session.kill(&format!("{}/worker-2", pool.name()));
    // Until then, the worker that died may still count as ready.
    wait_until("a worker's restart", || {
        let event = later.try_next().map(|event| event.kind);
        matches!(event, Some(EventKind::WorkerStarted { .. }))
    });
    wait_until("a worker's restart", || pool.ready_workers() == 3);
    note_ids(&mut ids, "after")?;
    for task in 0..20 {
        assert_eq!(pool.apply(|x: u64| x + 1, task).wait()?, task + 1);
    }
    let effects = session.trace();

    // All tasks of a map have results, although a worker dies while it runs. Which worker runs
    // which task depends on the threads, so this part is not compared.
    let slow = |x: u64| {
        std::thread::sleep(Duration::from_millis(1));
        x * x
    };
    let mut squares = pool.imap(slow, 0..600).wait();
    assert_eq!(squares.next().transpose()?, Some(0));
    session.kill(&format!("{}/worker-1", pool.name()));
    for (x, square) in (1..600).zip(&mut squares) {
        assert_eq!(square?, x * x);
    }
    assert!(squares.next().is_none());
    drop(squares);
    wait_until("a worker's restart", || pool.ready_workers() == 3);

    pool.close();
    pool.join().wait()?;
    drop(pool);
    let mut workers = BTreeMap::<_, Vec<_>>::new();
    while let Some(event) = events.try_next() {
        let (worker, what) = match event.kind {
            EventKind::WorkerStarted { worker, .. } => (worker, "starts".into()),
            EventKind::WorkerEnded { worker, exit, .. } => (worker, exit.to_string()),
            _ => continue,
        };
        workers.entry(worker).or_default().push(what);
    }
    drop((events, later, entered));
    Ok(Life { effects, workers, ids, left: session.end() })
}

/// The names of this process's threads that belong to sessions.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the kernel lists threads");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    let names = tasks.filter_map(name).map(|name| name.trim().to_string());
    names.filter(|name| name.starts_with("fiber-") || name.contains("worker")).collect()
}

#[test]
fn two_sessions_live_in_one_process_and_leave_nothing_there() {
    let sessions: Vec<_> =
        [7, 8].map(|seed| std::thread::spawn(move || live(seed))).into_iter().collect();
    let lives: Vec<Life> = sessions
        .into_iter()
        .map(|session| session.join().expect("it does not panic").expect("it lives"))
        .collect();
    for life in &lives {
        assert_eq!(life.left, Vec::<String>::new());
    }
    let is_loss = |effect: &&String| effect.starts_with("pool-1: worker-2 was killed by signal 9");
    assert!(lives.iter().all(|life| life.effects.iter().filter(is_loss).count() == 1));
    // Each has processes of its own, and pools that are numbered from 1.
    assert_ne!(lives[0].ids, lives[1].ids);
    assert!(lives.iter().all(|life| life.ids.contains_key("before pool-1/worker-3")));
    wait_until("the end of all threads", || threads().is_empty());
}

/// The variable with the seed of a life in another process.
const SEED: &str = "FIBER_TEST_SEED";

#[test]
fn a_seed_decides_what_a_session_does_in_any_process() {
    let life = live(7).expect("it lives");
    assert_eq!(live(7).expect("it lives"), life);
    assert_ne!(live(8).expect("it lives").ids, life.ids);
    let mut other = Command::new(std::env::current_exe().expect("it has a path"));
    other.args(["a_life_in_a_process_of_its_own", "--exact", "--nocapture"]).env(SEED, "7");
    let output = other.output().expect("it can be started");
    let output = String::from_utf8_lossy(&output.stdout);
    assert!(output.contains(&format!("{life:?}")), "{output}\nis not\n{life:?}");
}

#[test]
fn a_life_in_a_process_of_its_own() {
    let Some(seed) = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()) else { return };
    println!("{:?}", live(seed).expect("it lives"));
}
