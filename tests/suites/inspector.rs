//! The inspector, and the statistics that a program reads itself.

mod actors;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, UNIX_EPOCH};

use fiber::stats::{EventKind, PoolPhase, ProcessRole, QueueStats, SessionStats, Slice};
use fiber::sync::{Barrier, Event};
use fiber::{Array, Broadcast, Pool, Queue};
use fiber_test_support::{hang, signals, wait};
use rustix::process::Signal;
use serde_json::Value;

pub(crate) fn connect(session: &str) -> BufReader<UnixStream> {
    // The head begins to listen just after it has started.
    wait::wait_for("a connection", || {
        let sockets = fiber_core::inspect::sockets();
        let socket = sockets.iter().find(|socket| socket.ends_with(session));
        let socket = socket.ok_or(std::io::Error::from(std::io::ErrorKind::NotFound))?;
        UnixStream::connect(socket).map(BufReader::new)
    })
}

pub(crate) fn ask(connection: &mut BufReader<UnixStream>, request: &str) -> Value {
    writeln!(connection.get_mut(), "{request}").unwrap();
    let mut answer = String::new();
    connection.read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

pub(crate) fn inspect(connection: &mut BufReader<UnixStream>) -> SessionStats {
    let mut answer = ask(connection, "\"stats\"");
    serde_json::from_value(answer["ok"].take()).unwrap()
}

/// Looks at the session until `found` finds something.
fn wait_for<T>(found: impl Fn(&SessionStats) -> Option<T>) -> T {
    let mut connection = connect(&fiber::stats().unwrap().session);
    wait::wait_for("what the test looks for", || {
        let session = Box::new(inspect(&mut connection));
        found(&session).ok_or(session)
    })
}

fn signal(pid: u32, signal: Signal) {
    signals::send(signal, pid);
    let stops = signal == Signal::STOP;
    wait::wait_until("its state", || fiber_core::is_stopped(pid) == stops);
}

fn pool_called(name: &str, processes: usize) -> Pool {
    Pool::builder().name(name).processes(processes).build().unwrap()
}

fn succeed_or_fail(index: u64) -> Result<u64, String> {
    if index % 4 == 3 { Err("a fourth".into()) } else { Ok(index) }
}

#[test]
fn tasks_are_counted_by_outcome_and_function() {
    let pool = pool_called("counted", 2);
    let outcomes: Vec<_> = pool.try_imap(succeed_or_fail, 0..100).wait().collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 25);
    let stats = pool.stats();
    assert_eq!((stats.tasks.done, stats.tasks.failed, stats.tasks.pending), (100, 25, 0));
    let [function] = &stats.functions[..] else { panic!("{:?}", stats.functions) };
    assert!(function.function.ends_with("succeed_or_fail"), "{}", function.function);
    assert_eq!((function.done, function.failed, function.times.count()), (100, 25, 100));
    assert_eq!(stats.workers.iter().map(|worker| worker.done).sum::<u64>(), 100);
    assert!(stats.calls.is_empty() && stats.phase == PoolPhase::Open);
    assert!(stats.bytes_out > 0 && stats.bytes_in > 0);
}

#[test]
fn retries_are_apart_from_failures() {
    let pool = pool_called("retried", 1).retries(2);
    let failing = |_: u64| -> Result<u64, String> { Err("always".into()) };
    assert_eq!(pool.try_imap(failing, 0..5).wait().filter(Result::is_err).count(), 5);
    let tasks = pool.stats().tasks;
    assert_eq!((tasks.done, tasks.failed, tasks.retried), (5, 5, 10));
}

#[test]
fn a_running_task_shows_with_its_index_and_worker() {
    let pool = pool_called("sleepers", 2);
    let call = pool.map(|index: u64| std::thread::sleep(Duration::from_secs(600 * index)), 0..3);
    let (calls, running) = wait_for(|session| {
        let pool = session.report.pools.iter().find(|pool| pool.name == "sleepers")?;
        let running: Vec<_> =
            pool.running().into_iter().map(|(_, task)| (task.index, task.ran)).collect();
        (running.len() == 2).then(|| (pool.calls.clone(), running))
    });
    let mut indices: Vec<_> = running.iter().map(|(index, _)| *index).collect();
    indices.sort_unstable();
    assert_eq!(indices, [1, 2]);
    assert!(running.iter().all(|(_, ran)| *ran >= Duration::from_millis(5)));
    assert_eq!((calls[0].total, calls[0].done, calls[0].pending), (Some(3), 1, 2));
    drop(call);
}

#[test]
fn what_workers_run_is_recorded_from_the_first_request_on() {
    let pool = pool_called("bakers", 1);
    let bake = |_: u64| std::thread::sleep(Duration::from_millis(20));
    pool.map(bake, 0..2).wait().unwrap();
    let place = format!("{{closure@{}:{}}}", file!(), line!() - 1);
    let mut connection = connect(&fiber::stats().unwrap().session);
    let mut slices = |since: f64| {
        let mut answer = ask(&mut connection, &format!("{{\"timeline\":{{\"since\":{since}}}}}"));
        let mut slices: Vec<Slice> = serde_json::from_value(answer["ok"].take()).unwrap();
        slices.retain(|slice| slice.pool == "bakers");
        slices
    };
    assert_eq!(slices(0.0), []);
    pool.map(bake, 0..3).wait().unwrap();
    let baked = slices(0.0);
    assert_eq!(baked.iter().map(|slice| slice.first).collect::<Vec<_>>(), [0, 1, 2]);
    for slice in &baked {
        assert_eq!((&*slice.worker, slice.count), ("worker-1", 1));
        assert!(slice.function.ends_with(&place), "{slice:?}");
        assert!(slice.duration > Duration::from_millis(15), "{slice:?}");
    }
    let first = baked[0].end().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert_eq!(slices(first + 0.005).len(), 2);
}

#[test]
fn workers_report_their_own_figures() {
    let pool = pool_called("usage", 1);
    pool.apply(|| std::hint::black_box(vec![1_u8; 50 << 20].len()), ()).wait().unwrap();
    let worker = wait_for(|session| {
        let mut processes = session.report.processes.iter();
        let worker = processes.find(|process| process.name == "usage/worker-1")?;
        worker.usage.as_ref().is_some_and(|usage| usage.received > 0).then(|| worker.clone())
    });
    let usage = worker.usage.unwrap();
    assert!(usage.memory > 1 << 20 && usage.threads >= 2, "{usage:?}");
    assert!(usage.sent > 0 && usage.cpu > Duration::ZERO);
    assert_eq!(worker.role, ProcessRole::Worker);
    assert_eq!(worker.place, format!("pid {}", worker.pid.unwrap()));
    let head = &fiber::stats().unwrap().report.processes[0];
    assert_eq!((head.role, head.pid), (ProcessRole::Head, Some(std::process::id())));
    assert_eq!(worker.parent, Some(head.id));
}

#[test]
fn memory_that_processes_share_counts_once_in_their_pss() {
    const LEN: u64 = 64 << 20;
    if std::env::var("FIBER_LINK").is_ok_and(|link| link == "nng") {
        return println!("skipped: over nng, each process has its own copy");
    }
    let pool = pool_called("readers", 4);
    let array = pool.broadcast(Array::from(vec![1_u8; LEN as usize])).unwrap();
    let (all, end) = (Barrier::new(4).unwrap(), Event::new().unwrap());
    let read = |array: Broadcast<Array<u8>>, all: Barrier, end: Event| {
        let sum =
            array.get().unwrap().iter().step_by(4096).map(|byte| u64::from(*byte)).sum::<u64>();
        all.wait_all().wait().unwrap();
        end.wait_set().wait().unwrap();
        sum
    };
    let readers = pool.map(read, vec![(array, all, end.clone()); 4]);
    wait_for(|session| {
        let usage = session.report.processes.iter().filter_map(|process| process.usage.as_ref());
        let readers: Vec<_> = usage.filter(|usage| usage.memory > LEN).collect();
        let pss: Option<u64> = readers.iter().map(|usage| usage.pss).sum();
        (readers.len() == 5 && (LEN..4 * LEN).contains(&pss?)).then_some(())
    });
    end.set().wait().unwrap();
    let pages: Vec<u64> = readers.wait().unwrap();
    assert_eq!(pages, [LEN / 4096; 4]);
}

#[test]
fn the_pools_of_workers_show_too() {
    let pool = pool_called("outer", 1);
    let nested = |_: u64| {
        let inner = pool_called("inner", 1);
        let _call = inner.apply(hang, ());
        hang();
    };
    let call = pool.apply(nested, 0);
    let (worker, inner) = wait_for(|session| {
        let report = &session.report;
        let inner = report.pools.iter().find(|pool| pool.name == "inner")?;
        let worker = report.process(inner.workers.first()?.process)?;
        Some((worker.name.clone(), report.process(inner.process)?.name.clone()))
    });
    assert_eq!(
        (worker.as_str(), inner.as_str()),
        ("outer/worker-1/inner/worker-1", "outer/worker-1")
    );
    drop(call);
}

#[test]
fn queues_show() {
    let queue = Queue::<u64>::new().unwrap();
    let place = format!("{}:{}", file!(), line!() - 1);
    (0..7).for_each(|number| queue.put(number).wait().unwrap());
    queue.get().wait().unwrap();
    let report = fiber::stats().unwrap().report;
    let counts = |queue: &QueueStats| (queue.length, queue.put, queue.taken);
    let found = report.queues.iter().find(|queue| queue.name == place);
    assert_eq!(found.map(counts), Some((6, 7, 1)), "{report:?}");
    let named = Queue::<u64>::builder().name("jobs").build().unwrap();
    let report = fiber::stats().unwrap().report;
    assert!(report.queues.iter().any(|queue| queue.name == "jobs"), "{report:?}");
    drop(named);
}

#[test]
fn deaths_and_their_tasks_are_events() {
    let mut events = fiber::stats::events();
    let pool = pool_called("dying", 1);
    pool.apply(|| std::process::abort(), ()).wait().unwrap_err();
    let mut kinds = Vec::new();
    while kinds.last() != Some(&"abandoned") {
        match events.next().unwrap().kind {
            EventKind::WorkerStarted { pool, .. } if pool == "dying" => kinds.push("started"),
            EventKind::WorkerEnded { pool, exit, expected, blamed, redelivered, .. }
                if pool == "dying" =>
            {
                assert_eq!((exit.signal(), expected, blamed.len()), (Some(6), false, 1));
                assert_eq!(redelivered, u64::from(kinds.len() < 5));
                kinds.push("died");
            }
            EventKind::TaskAbandoned { pool, task, workers, .. } if pool == "dying" => {
                assert_eq!((task.index, workers), (0, 3));
                kinds.push("abandoned");
            }
            _ => {}
        }
    }
    assert_eq!(kinds, ["started", "died", "started", "died", "started", "died", "abandoned"]);
    let stats = pool.stats();
    assert_eq!((stats.deaths, stats.tasks.abandoned, stats.tasks.redelivered), (3, 1, 2));
}

#[test]
fn deaths_in_the_pools_of_workers_are_events_too() {
    let mut events = fiber::stats::events();
    let pool = pool_called("above", 1);
    let nested = |_: u64| {
        let inner = pool_called("below", 1);
        inner.apply(|| std::process::abort(), ()).wait().unwrap_err();
        hang();
    };
    let call = pool.apply(nested, 0);
    let pool = events.find_map(|event| match event.kind {
        EventKind::TaskAbandoned { pool, .. } => pool.ends_with("below").then_some(pool),
        _ => None,
    });
    assert_eq!(pool.unwrap(), "above/worker-1/below");
    drop(call);
}

#[test]
fn a_straggler_is_reported_once() {
    let pool = pool_called("stragglers", 2);
    let (stragglers, found) = std::sync::mpsc::channel();
    pool.on_event(move |event| {
        if let EventKind::Straggler { task, .. } = &event.kind {
            let _ = stragglers.send(task.index);
        }
    });
    let sleep = |index: u64| {
        std::thread::sleep(Duration::from_millis(if index == 17 { 600_000 } else { 20 }));
    };
    let call = pool.map(sleep, 0..30);
    assert_eq!(found.recv().unwrap(), 17);
    let is_marked = |session: &SessionStats| {
        let pool = session.report.pools.iter().find(|pool| pool.name == "stragglers")?;
        let (_, task) = *pool.running().first()?;
        task.straggler.then_some(task.index)
    };
    assert_eq!(wait_for(is_marked), 17);
    // The pool looks for stragglers each second.
    let until = Instant::now() + Duration::from_secs(3);
    let again = found.recv_timeout(until - Instant::now());
    assert!(again.is_err(), "it was reported again");
    drop(call);
}

#[test]
fn a_process_of_any_depth_ends_on_request_and_has_a_successor() {
    let pool = pool_called("above", 1);
    let nested = |_: u64| {
        let inner = pool_called("below", 1);
        inner.wait_until_ready().wait().unwrap();
        hang();
    };
    let call = pool.apply(nested, 0);
    let named = |name: &'static str| {
        move |session: &SessionStats| {
            let mut all = session.report.processes.iter();
            all.find(|process| process.name == name && process.pid.is_some()).cloned()
        }
    };
    let mut connection = connect(&fiber::stats().unwrap().session);
    let name = "above/worker-1/below/worker-1";
    for grace in [0, 60] {
        let process = wait_for(named(name));
        let id = serde_json::to_value(process.id).unwrap();
        let kill = serde_json::json!({ "kill": { "process": id, "grace": grace } });
        let answer = ask(&mut connection, &kill.to_string());
        assert_eq!(answer, serde_json::json!({ "ok": null }), "{grace}");
        let successor = wait_for(|session| named(name)(session).filter(|one| one.id != process.id));
        assert_ne!(successor.pid, process.pid);
    }
    let head = fiber::stats().unwrap().report.processes[0].clone();
    let id = serde_json::to_value(head.id).unwrap();
    let kill = serde_json::json!({ "kill": { "process": id, "grace": 0 } });
    let answer = ask(&mut connection, &kill.to_string());
    assert!(answer["error"].as_str().unwrap().contains("end its session"), "{answer}");
    drop(call);
}

#[test]
fn unknown_requests_and_ended_processes_are_errors() {
    let session = fiber::stats().unwrap().session;
    let mut connection = connect(&session);
    let error = ask(&mut connection, "{\"color\":{}}")["error"].to_string();
    assert!(error.contains("knows no such request"), "{error}");
    let gone = "{\"stack\":{\"process\":42}}";
    let error = ask(&mut connection, gone)["error"].to_string();
    assert!(error.contains("has ended"), "{error}");
    // The connection still works.
    assert_eq!(inspect(&mut connection).session, session);
    let error = ask(&mut connection, "not JSON")["error"].to_string();
    assert!(error.contains("knows no such request"), "{error}");
}

fn spins_in_here(_: u64) {
    loop {
        std::hint::spin_loop();
    }
}

fn worker_of(pool: &str) -> fiber::stats::ProcessStats {
    let name = format!("{pool}/worker-1");
    wait_for(|session| {
        let report = &session.report;
        let is_running =
            |stats: &&fiber::stats::PoolStats| stats.name == pool && !stats.running().is_empty();
        report.pools.iter().find(is_running)?;
        report.processes.iter().find(|process| process.name == name).cloned()
    })
}

/// Returns the most memory that a process had so far.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn looks_at_a_worker_take_little_of_its_memory() {
    let pool = pool_called("lean", 1);
    let call = pool.apply(spins_in_here, 0);
    let worker = worker_of("lean");
    let pid = worker.pid.unwrap();
    let before = peak(pid);
    let mut connection = connect(&fiber::stats().unwrap().session);
    for request in [
        format!("{{\"stack\":{{\"process\":{}}}}}", worker.id.0),
        format!(
            "{{\"profile\":{{\"process\":{},\"seconds\":0.3,\"hertz\":50,\"idle\":true}}}}",
            worker.id.0
        ),
    ] {
        let answer = ask(&mut connection, &request)["ok"].to_string();
        assert!(answer.contains("spins_in_here"), "{answer}");
    }
    // The debug information of this program takes more than 100 MiB.
    let grown = peak(pid).saturating_sub(before);
    println!("the worker took {} KiB more", grown >> 10);
    assert!(grown < 16 << 20, "{} MiB", grown >> 20);
    drop(call);
}

#[test]
fn idle_threads_of_runtimes_are_counted_and_shown_if_asked() {
    let pool = pool_called("quiet", 1);
    let call = pool.apply(spins_in_here, 0);
    let worker = worker_of("quiet");
    let mut connection = connect(&fiber::stats().unwrap().session);
    let mut stack = |all: bool| {
        let request = serde_json::json!({ "stack": { "process": worker.id, "all": all } });
        let answer = ask(&mut connection, &request.to_string());
        answer["ok"].as_str().unwrap_or_else(|| panic!("{answer}")).to_string()
    };
    let count = "2 idle threads of runtimes, by name: fiber-runtime, fiber-work";
    // At times, fiber's thread has something to do.
    let folded = loop {
        let folded = stack(false);
        if folded.contains(count) {
            break folded;
        }
    };
    assert!(folded.contains("spins_in_here") && !folded.contains("`fiber-runtime`"), "{folded}");
    let all = stack(true);
    assert!(all.contains("`fiber-runtime`: ") && !all.contains("idle threads"), "{all}");
    assert!(all.contains("fiber_runtime::"), "{all}");
    drop(call);
}

#[test]
fn a_profile_of_a_worker_that_sleeps_shows_where_it_waits() {
    #[inline(never)]
    fn sleeps_in_here(_: ()) {
        std::thread::sleep(Duration::from_secs(3600));
        std::hint::black_box(());
    }
    let pool = pool_called("asleep", 1);
    let call = pool.apply(sleeps_in_here, ());
    let worker = worker_of("asleep");
    let mut connection = connect(&fiber::stats().unwrap().session);
    let mut profile = |all: bool| {
        let request = serde_json::json!({ "profile": {
            "process": worker.id, "seconds": 1.0, "hertz": 50, "idle": false, "all": all
        } });
        let answer = ask(&mut connection, &request.to_string());
        let profile = answer["ok"].clone();
        assert_eq!(profile["waits"], Value::Bool(true), "{answer}");
        profile["folded"].as_str().unwrap().to_string()
    };
    let folded = profile(false);
    assert!(folded.contains("sleeps_in_here;") && !folded.contains("fiber-runtime;"), "{folded}");
    assert!(profile(true).contains("fiber-runtime;"));
    drop(call);
}

#[test]
fn a_stopped_worker_does_not_answer_and_nobody_hangs() {
    let pool = pool_called("stopped", 1);
    let call = pool.apply(hang, ());
    let worker = worker_of("stopped");
    signal(worker.pid.unwrap(), Signal::STOP);
    let mut connection = connect(&fiber::stats().unwrap().session);
    let request = serde_json::json!({ "profile": {
        "process": worker.id, "seconds": 0.1, "hertz": 50, "idle": false
    } });
    let answer = ask(&mut connection, &request.to_string());
    let error = answer["error"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(error.contains("stopped/worker-1") && error.contains("it is stopped"), "{error}");
    drop(call);
}

#[test]
fn a_stopped_process_is_seen_from_outside() {
    let pool = pool_called("stopped", 1);
    let pid = pool.apply(std::process::id, ()).wait().unwrap();
    let worker = wait_for(|session| {
        session.report.processes.iter().find(|process| process.pid == Some(pid)).map(|one| one.id)
    });
    signal(pid, Signal::STOP);
    let mut connection = connect(&fiber::stats().unwrap().session);
    let request = serde_json::json!({ "stack": { "process": worker } });
    let answer = ask(&mut connection, &request.to_string());
    signal(pid, Signal::CONT);
    let stack = answer["ok"].as_str().unwrap_or_else(|| panic!("{answer}"));
    let problem = "no stack: `stopped/worker-1` (pid ";
    assert!(stack.contains("is stopped") && stack.contains(problem), "{stack}");
    let remedy = format!("it is stopped (SIGSTOP, Ctrl-Z), and `kill -CONT {pid}` lets it go on");
    assert!(stack.contains(&remedy), "{stack}");
    pool.apply(std::process::id, ()).wait().unwrap();
}
