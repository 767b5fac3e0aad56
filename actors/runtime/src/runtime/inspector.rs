//! The inspector: answers what this session is doing.
//!
//! A head listens at a Unix socket that only processes of the same user, and root, may use.
//! `fiber_core::inspect` describes the protocol. Requests about a child go to it through the link;
//! it answers them in the same way.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use fiber_core::at_exit::at_exit;
use fiber_core::inspect::{self, Answer, LONGEST_PROFILE, ProfileText, Request};
use fiber_core::stacks::{ProcessStack, Profile, Unnamed};
use fiber_core::stats::{ActorStats, JobPlace, ProcessRole, ProcessStats, Report, SessionStats};
use fiber_core::{ProcessId, Result, on_a_thread, read_json, variables};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::Runtime;
use super::names::set_names;
use super::protocol::ControlMessage;
use super::usage::own_usage;
use crate::events::Events;
use crate::mesh::ActorId;
use crate::sources::Sources;
use crate::timeline::Timeline;

/// The largest request in bytes.
const MAX_REQUEST: u64 = 64 << 10;
/// The time limit for writing an answer to a reader that is slow or stopped.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a child's answer, beyond the time that the request itself takes.
const CHILD_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The time limit for the threads of a process to answer.
const STACK_LIMIT: Duration = Duration::from_millis(250);
/// The time limit for the names of functions. Without optimization and on busy cores, they take
/// 1 s.
const NAMES_LIMIT: Duration = Duration::from_secs(20);

/// Returns what this process and all processes below it are doing: its pools, workers and calls,
/// queues, actors and rings.
///
/// In the head, this is the whole session. Statistics of other processes are those of their last
/// heartbeat. It takes about 3 µs for each worker.
///
/// # Errors
/// [`Error::NotInitialized`](fiber_core::Error::NotInitialized);
/// [`Error::Config`](fiber_core::Error::Config).
///
/// # Examples
/// ```
/// # fiber::init();
/// let pool = fiber::Pool::builder().name("squares").processes(2).build()?;
/// pool.map(|x: u64| x * x, 0..100).wait()?;
/// let stats = fiber::stats()?;
/// let squares = stats.report.pools.iter().find(|pool| pool.name == "squares").unwrap();
/// assert_eq!((squares.tasks.done, squares.tasks.failed), (100, 0));
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn stats() -> Result<SessionStats> {
    Ok(Runtime::get()?.session_stats())
}

impl Runtime {
    pub(crate) fn session_stats(&self) -> SessionStats {
        let mut report = Report::default();
        report.processes.push(self.own_stats());
        let below = self.report_below();
        report.add(below);
        let mut stats =
            SessionStats::new(self.session(), program(), self.backend.name().into(), report);
        stats.events = self.part::<Events>().recent();
        stats
    }

    fn own_stats(&self) -> ProcessStats {
        let mut own = ProcessStats::new(self.id(), program(), ProcessRole::Head, self.started);
        own.pid = Some(std::process::id());
        own.set_job(JobPlace::Process { pid: std::process::id() });
        own.host = fiber_core::host_name();
        own.usage = Some(own_usage());
        let restarts = std::env::var(variables::RESTARTS).ok();
        own.restarts = restarts.and_then(|count| count.parse().ok()).unwrap_or(0);
        own
    }

    /// Returns the statistics of this process's objects, and of all processes below it.
    pub(super) fn report_below(&self) -> Report {
        let mut report = self.part::<Sources>().report(self.id());
        for actor in report.actors.iter_mut().filter(|actor| !actor.is_managed()) {
            actor.names = self.directory().names_of(ActorId(actor.number));
        }
        self.children.report(self.id(), &mut report, |actor| self.describe(actor));
        report.processes.extend(self.hosts.failing(self.id()));
        report
    }

    /// Adds what its owner, this process, knows of a managed actor.
    fn describe(&self, actor: &mut ActorStats) {
        let number = ActorId(actor.number).at_owner();
        let Some(owned) = number.and_then(|number| self.registry().owned(number)) else { return };
        actor.name = owned.name.to_string();
        actor.restarts += owned.restarts();
        actor.restarts_before = owned.restarts().saturating_sub(1);
        actor.names = self.directory().names_of(owned.id);
    }

    /// Returns the heartbeat of this child.
    pub(super) fn heartbeat(&self) -> ControlMessage {
        let has_more = !self.children.is_empty() || !self.part::<Sources>().is_empty();
        let below = has_more.then(|| serde_json::to_string(&self.report_below()).ok()).flatten();
        let seen = self.events_sent.load(Ordering::Relaxed);
        let (events, count) = self.part::<Events>().later_than(seen);
        self.events_sent.store(count, Ordering::Relaxed);
        let events = if events.is_empty() { None } else { serde_json::to_string(&events).ok() };
        ControlMessage::Heartbeat { usage: serde_json::to_string(&own_usage()).ok(), below, events }
    }

    /// Answers a request of the command, in JSON.
    ///
    /// # Errors
    /// A message for the user.
    async fn answer(&'static self, request: Request) -> Result<String, String> {
        let answer = self.inspect(request.clone()).await?;
        match request {
            Request::Stack { all, .. } => in_background(move || shown_stacks(&answer, all)).await,
            Request::Profile { all, .. } => {
                in_background(move || shown_profile(&answer, all)).await
            }
            _ => Ok(answer),
        }
    }

    /// Answers a request, in JSON: stacks as [`ProcessStack`] and [`Profile`], without the names of
    /// the program's functions.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) async fn inspect(&'static self, request: Request) -> Result<String, String> {
        match request {
            Request::Stats => in_background(|| Ok(self.session_stats())).await,
            Request::Stack { process, .. }
            | Request::EntityKeys { process, .. }
            | Request::Entity { process, .. } => {
                self.of_process(process, request, Duration::ZERO).await
            }
            Request::Profile { process, seconds, hertz, .. } => {
                if !(0.0..=LONGEST_PROFILE).contains(&seconds) || !(1..=1000).contains(&hertz) {
                    return Err(format!(
                        "a profile takes up to {LONGEST_PROFILE} s, with 1 to 1000 samples in a second"
                    ));
                }
                self.of_process(process, request, Duration::from_secs_f64(seconds)).await
            }
            Request::Kill { process, grace } => {
                if process == self.id() {
                    return Err("a process does not end itself: end its session".into());
                }
                // The longest that a timer takes is beyond any use.
                let grace = Duration::try_from_secs_f64(grace).unwrap_or(Duration::MAX);
                self.children.kill(process, request, grace, CHILD_TIMEOUT).await
            }
            Request::Timeline { since } => {
                let since = Duration::try_from_secs_f64(since).unwrap_or_default();
                let timeline = self.part::<Timeline>();
                in_background(move || Ok(timeline.recent(SystemTime::UNIX_EPOCH + since))).await
            }
        }
    }

    async fn of_process(
        &'static self,
        process: ProcessId,
        request: Request,
        takes: Duration,
    ) -> Result<String, String> {
        if process != self.id() {
            return self.children.ask(process, request, takes + CHILD_TIMEOUT).await;
        }
        match request {
            Request::Profile { hertz, idle, .. } => {
                in_background(move || or_text(fiber_stacks::profile(takes, hertz, idle))).await
            }
            Request::Stack { .. } => {
                in_background(|| or_text(fiber_stacks::capture(STACK_LIMIT))).await
            }
            request => match self.part::<Sources>().answer(&request) {
                Some(answer) => answer.await,
                None => Err("the entities have ended meanwhile".into()),
            },
        }
    }
}

fn or_text<T>(result: Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn shown_stacks(json: &str, all: bool) -> Result<String, String> {
    let (stacks, problem) = named::<ProcessStack>(json)?;
    let mut shown = if all { format!("{stacks:#}") } else { stacks.to_string() };
    if let Some(problem) = problem {
        shown = format!("{shown}\n\n{problem}");
    }
    Ok(shown)
}

fn shown_profile(json: &str, all: bool) -> Result<ProfileText, String> {
    let (profile, problem) = named::<Profile>(json)?;
    Ok(ProfileText {
        folded: profile.folded(all),
        waits: profile.shows_waits(all),
        share: profile.share(false),
        fiber_share: profile.share(true) - profile.share(false),
        problem,
    })
}

/// Reads stacks from JSON and names their functions. With the problem, if that is impossible.
fn named<T: Unnamed + DeserializeOwned>(json: &str) -> Result<(T, Option<String>), String> {
    let mut stacks = read_json::<T>(json).map_err(|error| error.to_string())?;
    let problem = set_names(&mut stacks, NAMES_LIMIT).err();
    Ok((stacks, problem))
}

/// Computes an answer on another thread, so that links don't wait for it.
async fn in_background<T: Serialize + 'static>(
    compute: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<String, String> {
    let answer =
        on_a_thread(move || serde_json::to_string(&compute()?).map_err(|error| error.to_string()));
    answer.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// Returns the file name of the program.
fn program() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&program).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Serves the inspector's socket. The program works without it.
pub(super) async fn serve(runtime: &'static Runtime) {
    let listener = match listen(runtime.session()) {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!("`fiber top` can't see this program: {error}"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                fiber_core::spawn_local(async move {
                    if is_permitted(&stream) {
                        let _ = converse(runtime, stream).await;
                    }
                });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

fn listen(session: u64) -> io::Result<UnixListener> {
    let (listener, path) = inspect::listen(session)?;
    at_exit(move |_| {
        let _ = fs::remove_file(path);
    });
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Returns whether the peer runs as this process's user, or as root.
fn is_permitted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| [own, 0].contains(&peer.uid()))
}

/// Answers the requests of one connection.
async fn converse(runtime: &'static Runtime, stream: UnixStream) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let read = (&mut reader).take(MAX_REQUEST).read_until(b'\n', &mut line).await?;
        if read == 0 {
            return Ok(());
        }
        let answer = match read_json(&String::from_utf8_lossy(&line)) {
            Ok(request) => runtime.answer(request).await,
            Err(error) => Err(format!(
                "this program's fiber {} knows no such request: {error}",
                env!("CARGO_PKG_VERSION")
            )),
        };
        let mut answer = match answer {
            Ok(json) => format!("{{\"ok\":{json}}}"),
            Err(problem) => serde_json::to_string(&Answer::<()>::Error(problem))?,
        };
        answer.push('\n');
        let written = timeout(WRITE_TIMEOUT, writer.write_all(answer.as_bytes())).await;
        written.map_err(|_| io::ErrorKind::TimedOut)??;
        if !line.ends_with(b"\n") {
            return Ok(());
        }
    }
}
