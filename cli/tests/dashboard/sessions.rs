//! Sessions for the dashboard: a real program, and a stand-in for the head of a large session.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fiber::Pool;
use fiber_core::ProcessId;
use fiber_core::inspect::{self, Request};
use fiber_core::stats::{
    ActorStats, CallStats, FunctionStats, JobPlace, PoolPhase, PoolStats, ProcessRole,
    ProcessStats, ProcessUsage, QueueStats, Report, RunningTask, SessionStats, WorkerStats,
};
use fiber_test_support::wait::wait_until;

/// The variable that makes this binary the program under test.
pub(crate) const SCENARIO: &str = "DASHBOARD_SCENARIO";

fn square(x: u64) -> u64 {
    x * x
}

fn even(x: u64) -> Result<u64, String> {
    if x.is_multiple_of(2) { Ok(x) } else { Err(format!("{x} is odd")) }
}

fn abort_once(path: String) -> bool {
    match std::fs::File::create_new(path) {
        Ok(_) => std::process::abort(),
        Err(_) => true,
    }
}

fn nap(seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
}

/// The program under test: it works, and then sleeps in a task until its input ends.
pub(crate) fn program() -> ExitCode {
    fiber::init();
    let pool = Pool::builder().name("<b>squares").processes(2).start().wait();
    let pool = pool.expect("the pool starts");
    let squares = pool.map(square, 0..1_000).wait().expect("it works");
    assert_eq!(squares[999], 998_001);
    let failed = pool.try_imap_unordered(even, 0..10).wait().filter(Result::is_err).count();
    assert_eq!(failed, 5);
    let directory = tempfile::tempdir().expect("a directory can be created");
    let path = directory.path().join("once").display().to_string();
    assert!(pool.apply(abort_once, path).wait().expect("the second attempt works"));
    pool.wait_until_ready().wait().expect("the workers are replaced");
    let long = pool.apply(nap, 600);
    println!("ready");
    let _ = std::io::stdin().lines().count();
    drop(long);
    pool.kill();
    ExitCode::SUCCESS
}

/// The program under test, in a process of its own.
pub(crate) struct Program {
    process: Child,
    input: Option<ChildStdin>,
}

impl Program {
    /// Starts it, and waits until it sleeps.
    pub(crate) fn start() -> Program {
        let mut process = Command::new(std::env::current_exe().expect("it is somewhere"))
            .env(SCENARIO, "1")
            .env_remove("FIBER_BACKEND")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let input = process.stdin.take();
        let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line == "ready")), "it works");
        Program { process, input }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn end(mut self) {
        drop(self.input.take());
        assert!(self.process.wait().expect("it is a child").success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The command `fiber dashboard`.
pub(crate) struct Dashboard {
    process: Child,
    pub(crate) link: String,
    pub(crate) port: u16,
}

impl Dashboard {
    pub(crate) fn start(session: &str) -> Dashboard {
        let mut process = Command::new(env!("CARGO_BIN_EXE_fiber"))
            .args(["dashboard", session])
            .env_remove("FIBER_BACKEND")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command starts");
        let mut link = String::new();
        let out = process.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut link).expect("it is text");
        let link = link.trim().to_string();
        let port = link.trim_start_matches("http://127.0.0.1:").split('/').next();
        let port = port.and_then(|port| port.parse().ok()).expect("it prints its link");
        Dashboard { process, link, port }
    }

    /// Returns how many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.process.id());
        std::fs::read_dir(folder).expect("it lives").count()
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program without work, in whose place this process answers as a head.
pub(crate) struct FakeSession {
    pid: u32,
    socket: PathBuf,
    connections: Arc<Mutex<Option<Vec<UnixStream>>>>,
}

impl FakeSession {
    pub(crate) fn start(workers: u64) -> FakeSession {
        FakeSession::named(workers, "")
    }

    /// Starts one in which all names end with these letters.
    pub(crate) fn named(workers: u64, letters: &str) -> FakeSession {
        // All tests of this process have its pid: the number of the session tells them apart.
        let number = 0xda5b_0000_0000_0000 + (u64::from(std::process::id()) << 16) + workers;
        let mut stats = serde_json::to_string(&statistics(number, workers)).expect("it serializes");
        for name in
            ["simulate", "squares", "step", "worker-1", "teller-1", "Teller", "jobs", "load"]
        {
            stats = stats.replace(&format!("{name}\""), &format!("{name}{letters}\""));
        }
        let (listener, socket) = inspect::listen(number).expect("there is room");
        let connections = Arc::new(Mutex::new(Some(Vec::new())));
        let kept = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let Some(kept) = &mut *kept.lock().unwrap() else { return };
                kept.push(stream.try_clone().expect("there is room"));
                let stats = stats.clone();
                std::thread::spawn(move || answer(&stats, &stream));
            }
        });
        FakeSession { pid: std::process::id(), socket, connections }
    }

    /// Returns the name by which commands find it.
    pub(crate) fn pid(&self) -> String {
        assert_eq!(self.pid, std::process::id());
        let name = self.socket.file_name().expect("it is a session's number");
        name.to_str().expect("it is a session's number").to_string()
    }

    pub(crate) fn end(&self) {
        let kept = self.connections.lock().unwrap().take();
        for stream in kept.into_iter().flatten() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        // The thread that listens sees that it is over.
        wait_until("the end", || UnixStream::connect(&self.socket).is_err());
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Drop for FakeSession {
    fn drop(&mut self) {
        if self.connections.lock().is_ok_and(|connections| connections.is_some()) {
            self.end();
        }
    }
}

fn answer(stats: &str, stream: &UnixStream) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let answer = match serde_json::from_str(&line) {
            Ok(Request::Stats) => format!("{{\"ok\":{stats}}}\n"),
            _ => "{\"error\":\"a stand-in does not know that\"}\n".to_string(),
        };
        if (&mut &*stream).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Returns the statistics of a session with a pool of so many workers: of each eight, five run
/// tasks, and the first worker runs a straggler.
fn statistics(session: u64, workers: u64) -> SessionStats {
    let since = SystemTime::now() - Duration::from_secs(3_000);
    let process = |id: u64, name: String, role| {
        let mut process = ProcessStats::new(ProcessId(id), name, role, since);
        process.pid = Some(4_000 + id as u32);
        process.set_job(JobPlace::Process { pid: 4_000 + id as u32 });
        let mut usage = ProcessUsage::new(SystemTime::now());
        (usage.memory, usage.cpu) = ((30 + id % 9) << 20, Duration::from_secs(id));
        usage.pss = Some((10 + id % 9) << 20);
        process.usage = Some(usage);
        process
    };
    let mut report = Report::default();
    report.processes.push(process(1, "simulate".into(), ProcessRole::Head));
    report.processes[0].pid = Some(std::process::id());
    if let Some(usage) = &mut report.processes[0].usage {
        (usage.stored, usage.value_limit, usage.spilled) = (1 << 20, 1 << 20, 300 << 20);
        (usage.elsewhere, usage.outputs) = (5 << 20, 340);
    }
    let mut queue = QueueStats::new(ProcessId(1), 1, "jobs".into());
    (queue.length, queue.put, queue.taken) = (300, 399, 99);
    report.queues.push(queue);
    for number in 1..=3 {
        let mut actor = ActorStats::new(ProcessId(1), number, "bank::Teller");
        (actor.name, actor.rate) = (format!("teller-{number}"), (number * 10) as f64);
        (actor.failed, actor.restarts) = (number % 2, number % 3);
        report.actors.push(actor);
    }
    let mut pool = PoolStats::new(ProcessId(1), "squares".into(), PoolPhase::Open);
    (pool.wanted, pool.ready, pool.rate) = (workers as usize, workers as usize, 123_456.0);
    pool.history = (0..60).map(|second| 100_000 + 400 * second * (second % 7)).collect();
    (pool.tasks.done, pool.tasks.waiting, pool.tasks.pending) = (7_000_000, 3_000_000, 40_000);
    let mut function = FunctionStats::new("simulate::step".into());
    function.done = 7_000_000;
    function.times.record(50_000, 6_900_000);
    function.times.record(4_000_000, 100_000);
    pool.functions.push(function);
    for (name, held, waits_for) in [("join", 12, vec!["load", "clean"]), ("plot", 1, vec![])] {
        let mut call = CallStats::new(pool.calls.len() as u64 + 1, name.into(), since);
        (call.total, call.held) = (Some(held), held);
        call.waits_for = waits_for.into_iter().map(String::from).collect();
        pool.calls.push(call);
    }
    for number in 1..=workers {
        let (id, name) = (1 + number, format!("worker-{number}"));
        let mut child = process(id, format!("squares/{name}"), ProcessRole::Worker);
        child.parent = Some(ProcessId(1));
        report.processes.push(child);
        let mut worker = WorkerStats::new(ProcessId(id), name, 1);
        worker.done = 1_000 * number;
        if (1..=5).contains(&(number % 8)) {
            worker.pending = 40;
            worker.function = Some("simulate::step".into());
            let ran = Duration::from_millis(20 + 7 * (number % 90));
            let step = || "simulate::step".to_string();
            let mut task = RunningTask::new(7, step(), 100 * number, ran);
            if number == 1 {
                (task.straggler, task.ran) = (true, Duration::from_secs(41));
            }
            worker.running.push(task);
        } else {
            pool.idle += 1;
        }
        pool.workers.push(worker);
    }
    report.pools.push(pool);
    SessionStats::new(session, "simulate".into(), "local".into(), report)
}
