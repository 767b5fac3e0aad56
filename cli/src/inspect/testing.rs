//! Stand-ins for tests: the statistics of a session, and a head that serves them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fiber_backends::cluster::SessionHead;
use fiber_core::ProcessId;
use fiber_core::inspect::{self, Answer, ProfileText, Request};
use fiber_core::stats::{
    ActorStats, CallStats, Event, EventKind, FunctionStats, JobPlace, PoolPhase, PoolStats,
    ProcessRole, ProcessStats, ProcessUsage, Report, RunningTask, SessionStats, TaskName,
    WorkerStats,
};
use fiber_core::{Exit, ExitReason};

/// The time at which the statistics were taken.
pub(crate) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// Returns the statistics of a session with one pool, `squares`.
///
/// The first of each eight workers runs a task for long, the next four run short tasks, and the
/// others have none.
pub(crate) fn stats(program: &str, workers: u64) -> SessionStats {
    let head = ProcessId(1);
    let since = now() - Duration::from_secs(3 * 3600 + 5 * 60);
    let process = |id, name: String, role| {
        let mut process = ProcessStats::new(id, name, role, since);
        process.pid = Some(4000 + id.0 as u32);
        process.set_job(JobPlace::Process { pid: 4000 + id.0 as u32 });
        process.host = "host".into();
        let mut usage = ProcessUsage::new(now());
        usage.cpu = Duration::from_secs(60 + id.0);
        (usage.memory, usage.pss) = ((30 + id.0) << 20, Some((10 + id.0) << 20));
        usage.threads = 3;
        process.usage = Some(usage);
        process
    };
    let mut report = Report::default();
    report.processes.push(process(head, program.to_string(), ProcessRole::Head));
    let mut pool = PoolStats::new(head, "squares".into(), PoolPhase::Open);
    (pool.wanted, pool.ready) = (workers as usize, workers as usize);
    pool.rate = 12_345.0;
    pool.history = (0..60).map(|second| second * 200).collect();
    pool.tasks.waiting = 3_000_000;
    pool.tasks.pending = 40 * workers;
    pool.tasks.done = 7_000_000;
    (pool.tasks.failed, pool.tasks.redelivered, pool.deaths) = (2, 5, 1);
    let mut call = CallStats::new(7, "simulate::step".into(), since);
    (call.total, call.done, call.waiting) = (Some(10_000_000), 7_000_000, 3_000_000);
    pool.calls.push(call);
    let mut function = FunctionStats::new("simulate::step".into());
    (function.done, function.failed) = (7_000_000, 2);
    function.times.record(50_000, 6_900_000);
    function.times.record(4_000_000, 100_000);
    pool.functions.push(function);
    for number in 1..=workers {
        let (id, name) = (ProcessId(1 + number), format!("worker-{number}"));
        let mut child = process(id, format!("squares/{name}"), ProcessRole::Worker);
        child.parent = Some(head);
        child.restarts = u64::from(number == 2);
        child.tail = vec![format!("line of {name}")];
        report.processes.push(child);
        let mut worker = WorkerStats::new(id, name, 1);
        worker.done = 1_000 * number;
        match number % 8 {
            1 => {
                let ran = Duration::from_secs(40 + number);
                let function = "simulate::step".to_string();
                let mut task = RunningTask::new(7, function.clone(), 123 + number, ran);
                task.straggler = number == 1;
                (worker.pending, worker.function) = (40, Some(function));
                worker.running.push(task);
            }
            2..=5 => (worker.pending, worker.function) = (40, Some("simulate::step".into())),
            _ => pool.idle += 1,
        }
        pool.workers.push(worker);
    }
    report.pools.push(pool);
    let mut stats = SessionStats::new(0xfeed, program.to_string(), "local".into(), report);
    stats.taken_at = now();
    let ended = EventKind::WorkerEnded {
        pool: "squares".into(),
        worker: "worker-2".into(),
        place: "pid 3999".into(),
        exit: Exit::new(ExitReason::Signal(9), Vec::new()),
        expected: false,
        blamed: vec![TaskName::new(7, "simulate::step", 41)],
        redelivered: 5,
    };
    let mut event = Event::now(ended);
    event.at = now() - Duration::from_secs(90);
    stats.events.push(event);
    stats
}

/// Adds managed actors to the statistics of a session. The first has a registered name, the second
/// has failed once and was restarted.
pub(crate) fn service(stats: &mut SessionStats, actors: u64) {
    let report = &mut stats.report;
    for number in 1..=actors {
        let mut process = report.processes[0].clone();
        process.id = ProcessId(1_000 + number);
        (process.parent, process.role) = (Some(ProcessId(1)), ProcessRole::Actor);
        process.name = format!("teller-{number}");
        process.usage.as_mut().expect("a process has usage").pss = Some((13 + number) << 20);
        let mut actor = ActorStats::new(process.id, 0, "bank::teller::Teller");
        actor.name.clone_from(&process.name);
        actor.names = (number == 1).then(|| "till-1".into()).into_iter().collect();
        (actor.rate, actor.handled, actor.waiting) = (100.0 * number as f64, 5_000, 12);
        let failed = u64::from(number == 2);
        (actor.failed, actor.restarts) = (failed, failed);
        actor.latency.record(2_000_000 * number, 5_000);
        report.processes.push(process);
        report.actors.push(actor);
    }
}

/// Returns a head that is a process of this host.
pub(crate) fn head_here(pid: u32) -> SessionHead {
    SessionHead { name: format!("pid {pid}"), inspector: String::new(), pid: Some(pid) }
}

/// Returns a head that an engine runs.
pub(crate) fn head_elsewhere(name: &str) -> SessionHead {
    SessionHead { name: name.into(), inspector: name.into(), pid: None }
}

/// A head that answers from this process.
#[derive(Debug)]
pub(crate) struct FakeHead {
    pub(crate) stats: Arc<SessionStats>,
    socket: PathBuf,
    connections: Arc<Mutex<Option<Vec<UnixStream>>>>,
}

impl FakeHead {
    pub(crate) fn start(stats: SessionStats) -> FakeHead {
        FakeHead::serve(stats, None)
    }

    /// Starts a head that gives the same answer to everything.
    pub(crate) fn answering(answer: &'static str) -> FakeHead {
        FakeHead::serve(stats("program", 1), Some(answer))
    }

    fn serve(mut stats: SessionStats, constant: Option<&'static str>) -> FakeHead {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed) + (u64::from(std::process::id()) << 32);
        stats.session = format!("{number:016x}");
        stats.report.processes[0].pid = Some(std::process::id());
        let (listener, socket) = inspect::listen(number).unwrap();
        let stats = Arc::new(stats);
        let connections = Arc::new(Mutex::new(Some(Vec::new())));
        let (served, kept) = (Arc::clone(&stats), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let Some(kept) = &mut *kept.lock().unwrap() else { return };
                kept.push(stream.try_clone().unwrap());
                let served = Arc::clone(&served);
                std::thread::spawn(move || answer_all(&served, &stream, constant));
            }
        });
        FakeHead { stats, socket, connections }
    }

    pub(crate) fn socket(&self) -> String {
        self.socket.to_str().unwrap().to_string()
    }

    pub(crate) fn session_head(&self) -> SessionHead {
        SessionHead { inspector: self.socket(), ..head_here(std::process::id()) }
    }

    /// Returns how many connections of this process there were. Commands of other tests look at all
    /// sessions of the host.
    pub(crate) fn connections(&self) -> usize {
        let own = rustix::process::getpid();
        let is_own = |stream: &&UnixStream| {
            rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.pid == own)
        };
        self.connections.lock().unwrap().iter().flatten().filter(is_own).count()
    }

    /// Closes the socket and all connections, as the end of a process does.
    pub(crate) fn end(&self) {
        let kept = self.connections.lock().unwrap().take();
        for stream in kept.into_iter().flatten() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        // Lets the thread see that it is over.
        while UnixStream::connect(&self.socket).is_ok() {
            std::thread::yield_now();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Drop for FakeHead {
    fn drop(&mut self) {
        self.end();
    }
}

fn answer_all(stats: &SessionStats, stream: &UnixStream, constant: Option<&str>) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let answer = match (constant, serde_json::from_str(&line).unwrap()) {
            (Some(constant), _) => constant.to_string(),
            (None, Request::Stats) => text(&Answer::Ok(stats)),
            (None, Request::Stack { process, .. }) if stats.report.process(process).is_none() => {
                text(&Answer::<()>::Error("there is no such process".into()))
            }
            (None, Request::Stack { process, .. }) => {
                text(&Answer::Ok(format!("the stack of {process}\n")))
            }
            (None, Request::Kill { .. }) => text(&Answer::Ok(())),
            (None, Request::Profile { .. }) => {
                let folded = "main;work 30\nmain;rest 10\n".into();
                let (waits, share, fiber_share, problem) = (false, 0.5, 0.0, None);
                text(&Answer::Ok(ProfileText { folded, waits, share, fiber_share, problem }))
            }
            (None, Request::Timeline { .. }) => text(&Answer::Ok(Vec::<u8>::new())),
            (None, Request::EntityKeys { .. } | Request::Entity { .. }) => {
                text(&Answer::<()>::Error("there are no entities".into()))
            }
        };
        if (&mut &*stream).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn text<T: serde::Serialize>(answer: &Answer<T>) -> String {
    format!("{}\n", serde_json::to_string(answer).unwrap())
}
