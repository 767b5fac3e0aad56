//! The cost of looking at a session: the inspector, metrics and the timeline.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::measure::{median, rate, ready_pool};
use crate::table::{Figure, Row, Table};

/// Argument with which this binary starts itself again as a session to look at.
pub(super) const SESSION: &str = "session-to-look-at";
const WORKERS: usize = 4;
const TASKS: u64 = 10_000_000;
const ROUNDS: usize = 10;
const LOOKS: usize = 50;
/// How often a screen and a scraper ask.
const INTERVAL: Duration = Duration::from_secs(1);

/// No-op tasks with nobody looking, and with a screen, a scraper and a timeline.
pub(super) fn observed(table: &mut Table) -> anyhow::Result<()> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let timeline = env::temp_dir().join(format!("fiber-bench-{}.json", std::process::id()));
    let mut plain = Session::start(&[])?;
    let variables =
        [("FIBER_METRICS", port.to_string()), ("FIBER_TIMELINE", timeline.display().to_string())];
    let mut observed = Session::start(&variables)?;
    let (done, until) = mpsc::channel::<()>();
    let number = observed.number.clone();
    let watching = thread::spawn(move || -> anyhow::Result<usize> {
        let mut inspector = Inspector::connect(&number)?;
        let mut looks = 0;
        while until.recv_timeout(INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
            inspector.ask()?;
            scrape(port)?;
            looks += 1;
        }
        Ok(looks)
    });
    let (mut alone, mut watched) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(plain.round()?);
        watched.push(observed.round()?);
    }
    drop(done);
    let looks = watching.join().expect("it does not panic")?;
    ensure!(looks > 0, "nobody looked: the rounds are too short");
    eprintln!("  nobody looks: {alone:.1?}\n  {looks} looks: {watched:.1?}");
    drop((plain, observed));
    let _ = std::fs::remove_file(&timeline);

    let rate = |times| Figure::Rate(rate(TASKS as usize, median(times)));
    let row = Row::new("no-op tasks with screen, metrics and timeline", rate(watched))
        .beside("nobody looks", rate(alone))
        .at_least(0.95, "nobody looks")
        .note(format!("Over {looks} s, somebody asked the inspector and the metrics each second."));
    table.push(row);
    Ok(())
}

/// The median time in which this process's inspector answers.
pub(super) fn answer_time() -> anyhow::Result<Duration> {
    let mut inspector = Inspector::connect(&fiber::stats()?.session)?;
    let mut times = Vec::new();
    for _ in 0..LOOKS {
        let start = Instant::now();
        inspector.ask()?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}

/// A connection to a session's inspector.
struct Inspector(BufReader<UnixStream>);

impl Inspector {
    fn connect(session: &str) -> anyhow::Result<Inspector> {
        let sockets = fiber_core::inspect::sockets();
        let socket = sockets.iter().find(|socket| socket.ends_with(session));
        let socket = socket.context("the session has no inspector")?;
        Ok(Inspector(BufReader::new(UnixStream::connect(socket)?)))
    }

    fn ask(&mut self) -> anyhow::Result<()> {
        writeln!(self.0.get_mut(), "\"stats\"")?;
        let mut answer = String::new();
        self.0.read_line(&mut answer)?;
        ensure!(answer.starts_with("{\"ok\":"), "the inspector answered {answer}");
        Ok(())
    }
}

fn scrape(port: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(port)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    ensure!(page.contains("fiber_"), "there are no metrics in {page}");
    Ok(())
}

/// A process with a pool, which runs a round of tasks for each line that it reads.
struct Session {
    number: String,
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn start(variables: &[(&str, String)]) -> anyhow::Result<Session> {
        let mut process = Command::new(env::current_exe()?)
            .arg(SESSION)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = process.stdin.take().context("no input")?;
        let output = BufReader::new(process.stdout.take().context("no output")?);
        let mut session = Session { number: String::new(), process, input, output };
        session.number = session.line()?;
        session.round()?;
        Ok(session)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the session has ended");
        Ok(line.trim().to_string())
    }

    fn round(&mut self) -> anyhow::Result<Duration> {
        writeln!(self.input, "go")?;
        Ok(Duration::from_secs_f64(self.line()?.parse()?))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Is the session.
pub(super) fn be_session() -> anyhow::Result<()> {
    let pool = ready_pool(WORKERS)?;
    println!("{}", fiber::stats()?.session);
    for line in std::io::stdin().lines() {
        line?;
        let start = Instant::now();
        let mut count = 0;
        for result in pool.imap_unordered(|number: u64| number, 0..TASKS).wait() {
            result?;
            count += 1;
        }
        ensure!(count == TASKS, "{count} of {TASKS} tasks came back");
        println!("{}", start.elapsed().as_secs_f64());
    }
    Ok(())
}
