//! Children of this node, from the start of their process to its end.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, Bytes};
use fiber_backends::{Job, JobSpec, JobState, Locality, WaitReason};
use fiber_core::{Config, Error, Exit, ExitReason, Meta, OutputMode, ProcessId, codec};
use fiber_transport::{Connection, Message, Peer, PeerInfo};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::child::{EXIT_LINK_LOST, EXIT_NOT_STARTED};
use super::root::StartRequest;
use super::{ENDING, EXPECTED, Runtime};
use crate::endpoint::{CONTROL, HeartbeatMonitor, MAIN, MESH, message_limit};
use crate::mesh::MeshPeer;

/// How long the end of a process may lag behind the end of its link, or the reverse, before it is
/// forced.
const LAG: Duration = Duration::from_secs(1);
/// The same for a process elsewhere, of whose end others have to hear first.
const LAG_REMOTE: Duration = Duration::from_secs(5);

/// How long a killed process may take to end before it is given up.
const KILLED: Duration = Duration::from_secs(10);

/// What stands in the place of the parent's pid where that means nothing.
pub(super) const REMOTE: &str = "elsewhere";

/// A process to be started.
pub(crate) struct Launch {
    pub(crate) name: String,
    pub(crate) restarts: u64,
    /// Whether to try again for `start_timeout` if the backend can't create the job. A job that ran
    /// before failed then for lack of descriptors, processes or memory, or of the engine.
    pub(crate) retry_creation: bool,
    pub(crate) meta: Meta,
    pub(crate) output: OutputMode,
    pub(crate) request: StartRequest,
    /// Without any, it waits for room as long as the configuration says.
    pub(crate) scheduling: Option<Box<dyn SchedulingPolicy>>,
}

/// How a process that waits for room is waited for.
pub(crate) trait SchedulingPolicy {
    /// It waits for room, in the cluster's words; or it does so no more.
    fn set_unschedulable(&self, reason: Option<&str>);

    /// Whether it may wait for longer than the configuration says.
    fn may_wait_longer(&self) -> bool;
}

/// What nodes tell each other about themselves.
#[derive(Serialize, Deserialize)]
pub(crate) enum ControlMessage {
    /// Parent to child: what to do.
    Start { config: Box<Config>, request: StartRequest },
    /// Child to parent: the root is at work. The address is where other nodes can reach it, if they
    /// are to.
    Ready { address: Option<String> },
    /// Child to parent: the root can't work.
    Failed(String),
    /// Child to parent: still here.
    Heartbeat,
    /// Parent to child: end, when what was accepted is done.
    Shutdown,
}

impl ControlMessage {
    pub(crate) fn message(&self) -> Message {
        let mut head = vec![CONTROL];
        codec::append(&mut head, self).expect("control messages are made of what serialises");
        Message::new(head)
    }
}

/// A child at work.
pub(crate) struct Launched {
    pub(crate) info: PeerInfo,
    pub(crate) connection: Connection,
    /// Where other nodes can reach it.
    pub(crate) address: Option<String>,
    peer: MeshPeer,
    job_guard: JobGuard,
}

impl Launched {
    /// Where it runs, for people.
    pub(crate) fn place(&self) -> String {
        self.job_guard.job.place()
    }
}

/// What can be asked of a child.
pub(crate) enum ProcessCommand {
    /// To end when its work is done.
    Shutdown,
    /// To be ended with SIGTERM.
    Terminate,
    /// To be ended at once, for a reason.
    Kill(ExitReason),
}

/// A job that ends with this value.
struct JobGuard {
    runtime: &'static Runtime,
    id: ProcessId,
    /// How long its end may lag behind that of its link.
    lag: Duration,
    job: Arc<dyn Job>,
}

impl Drop for JobGuard {
    fn drop(&mut self) {
        self.job.kill();
        EXPECTED.with_borrow_mut(|expected| expected.remove(&self.id));
        // It counts until it has ended: this process does not exit in the middle of that.
        let (runtime, id, job) = (self.runtime, self.id, Arc::clone(&self.job));
        if let JobState::Ended(_) = *job.states().borrow() {
            runtime.jobs.remove(&id);
        } else {
            runtime.spawn(move || async move {
                ended(&mut job.states()).await;
                runtime.jobs.remove(&id);
            });
        }
    }
}

/// Starts a process and brings it to work.
pub(crate) async fn launch(runtime: &'static Runtime, launch: Launch) -> Result<Launched, Exit> {
    let not_started = |problem: String| Exit::new(ExitReason::NotStarted(problem), Vec::new());
    let began = std::time::Instant::now();
    let address = runtime.listening().await.map_err(|error| not_started(error.to_string()))?;
    let id = ProcessId::random();
    let (joined, peer) = oneshot::channel();
    EXPECTED.with_borrow_mut(|expected| expected.insert(id, joined));
    let parent = match address.locality {
        Locality::Child => std::process::id().to_string(),
        Locality::Remote => REMOTE.to_string(),
    };
    let spec = JobSpec {
        name: launch.name,
        arguments: std::env::args_os().skip(1).collect(),
        environment: vec![(
            "FIBER_PARENT",
            format!("{id}:{}:{parent}:{}", runtime.endpoint.id, address.url),
        )],
        secrets: vec![("FIBER_KEY", runtime.endpoint.key.reveal())],
        restarts: launch.restarts,
        meta: launch.meta,
        output: launch.output,
        log_dir: runtime.endpoint.config.log_dir.clone(),
    };
    let created = if launch.retry_creation {
        create_with_retries(runtime, spec).await
    } else {
        runtime.backend.create(spec).await
    };
    let job = match created {
        Ok(job) => job,
        Err(error) => {
            EXPECTED.with_borrow_mut(|expected| expected.remove(&id));
            return Err(not_started(match error {
                Error::Start { problem, .. } => problem,
                other => other.to_string(),
            }));
        }
    };
    runtime.jobs.insert(id, Arc::clone(&job));
    let lag = match address.locality {
        Locality::Child => LAG,
        Locality::Remote => LAG_REMOTE,
    };
    let job_guard = JobGuard { runtime, id, lag, job };
    if ENDING.load(Ordering::SeqCst) {
        return Err(not_started("this program is about to end".into()));
    }
    let mut states = job_guard.job.states();
    let progress = job_guard.job.states();
    let connected = Cell::new(false);
    let outcome = tokio::select! {
        biased;
        outcome = bring_up(runtime, peer, launch.request, &mut states, lag, &connected) => outcome,
        problem = overdue(&runtime.endpoint.config, progress, launch.scheduling.as_deref(), &connected) => {
            Err(NotReady::Unfit(problem))
        }
        why = kept_out(runtime, job_guard.job.states(), &connected) => Err(NotReady::Unfit(not_let_in(&why))),
    };
    // Whatever became of a child that never connected then, this is why.
    let closed_door = (!connected.get()).then(|| runtime.door_closed_since(began)).flatten();
    let reason = match outcome {
        Ok(child) => {
            let Met { info, connection, peer, address } = child;
            return Ok(Launched { info, connection, address, peer, job_guard });
        }
        Err(NotReady::Absent(exit)) => return Err(early_end(exit, closed_door)),
        // Perhaps in the middle of its work: the news that it is ready may have been lost with it.
        Err(NotReady::Ended(exit)) => return Err(Exit::new(told(None, exit.reason), exit.tail)),
        Err(NotReady::Unfit(problem)) => {
            ExitReason::NotStarted(closed_door.map_or(problem, |why| not_let_in(&why)))
        }
        Err(NotReady::Silent) => {
            ExitReason::HeartbeatLost(runtime.endpoint.config.heartbeat_timeout)
        }
    };
    // What it printed tells more, and comes with its end.
    job_guard.job.kill();
    let exit = timeout(LAG, ended(&mut states)).await;
    Err(Exit::new(reason, exit.map(|exit| exit.tail).unwrap_or_default()))
}

/// Creates a job that has run before. If that fails, the host is short of descriptors, processes or
/// memory, or the engine can't be reached: the supervisor, which gives up after a few failures,
/// hears of that only if it lasts.
async fn create_with_retries(
    runtime: &'static Runtime,
    spec: JobSpec,
) -> fiber_core::Result<Arc<dyn Job>> {
    let deadline = Instant::now() + runtime.endpoint.config.start_timeout;
    let first = Duration::from_millis(100);
    let mut pause = first;
    loop {
        let error = match runtime.backend.create(spec.clone()).await {
            Err(error) if Instant::now() + pause < deadline && !ENDING.load(Ordering::SeqCst) => {
                error
            }
            created => return created,
        };
        if pause == first {
            tracing::warn!("{error}; it is tried again");
        } else {
            tracing::debug!("{error}; it is tried again");
        }
        sleep(pause).await;
        pause = (2 * pause).min(Duration::from_secs(2));
    }
}

/// Returns when a process runs, and this one can't accept its connection, with the reason.
async fn kept_out(
    runtime: &Runtime,
    mut states: watch::Receiver<JobState>,
    connected: &Cell<bool>,
) -> String {
    loop {
        // Of its end others know more.
        if states.wait_for(|state| *state == JobState::Running).await.is_err() {
            return std::future::pending().await;
        }
        let why = runtime.door_stays_closed().await;
        if !connected.get() && *states.borrow() == JobState::Running {
            return why;
        }
    }
}

/// Returns when a process has not come further in the time that it has for that, and says so. What
/// it waits for has a time of its own, each time anew.
async fn overdue(
    config: &Config,
    mut states: watch::Receiver<JobState>,
    scheduling: Option<&dyn SchedulingPolicy>,
    connected: &Cell<bool>,
) -> String {
    loop {
        let state = states.borrow_and_update().clone();
        let words = match &state {
            JobState::Waiting(WaitReason::Resources(words)) => Some(words.as_str()),
            _ => None,
        };
        if let Some(scheduling) = scheduling {
            scheduling.set_unschedulable(words);
        }
        let limit = match &state {
            JobState::Starting | JobState::Running => config.start_timeout,
            JobState::Waiting(WaitReason::Resources(_)) => config.schedule_timeout,
            JobState::Waiting(WaitReason::Image(_)) => config.pull_timeout,
            // Of its end others know more.
            JobState::Ended(_) => return std::future::pending().await,
        };
        match timeout(limit, states.wait_for(|now| stage(now) != stage(&state))).await {
            Ok(_) => continue,
            Err(_)
                if words.is_some() && scheduling.is_some_and(SchedulingPolicy::may_wait_longer) =>
            {
                continue;
            }
            Err(_) => {}
        }
        // The words may have changed meanwhile.
        return match &*states.borrow() {
            JobState::Waiting(WaitReason::Resources(words)) => {
                format!(
                    "there was no room for it within {limit:?} (`schedule_timeout` sets the limit): {words}"
                )
            }
            JobState::Waiting(WaitReason::Image(words)) => {
                format!(
                    "its container was not made within {limit:?} (`pull_timeout` sets the limit): {words}"
                )
            }
            _ if connected.get() => format!(
                "it connected, but did not get ready within {limit:?}: does its initialiser take that long? \
                 (`start_timeout` sets the limit)"
            ),
            _ => format!(
                "it did not connect and get ready within {limit:?}: {IS_INIT_FIRST} (`start_timeout` sets the limit)"
            ),
        };
    }
}

/// Why a process ended: what this node made of it or, if the cluster took it away, that, which is
/// why it fell silent.
fn told(verdict: Option<ExitReason>, reason: ExitReason) -> ExitReason {
    match (verdict, reason) {
        (
            Some(ExitReason::LinkLost(_) | ExitReason::HeartbeatLost(_)),
            taken @ (ExitReason::Evicted(_) | ExitReason::Preempted(_) | ExitReason::OutOfMemory),
        ) => taken,
        (None, ExitReason::Code(EXIT_LINK_LOST)) => {
            ExitReason::LinkLost("its process found it closed".into())
        }
        (verdict, reason) => verdict.unwrap_or(reason),
    }
}

/// What a process has one time limit for.
fn stage(state: &JobState) -> u8 {
    match state {
        JobState::Starting | JobState::Running => 0,
        JobState::Waiting(WaitReason::Resources(_)) => 1,
        JobState::Waiting(WaitReason::Image(_)) => 2,
        JobState::Ended(_) => 3,
    }
}

/// Why a child did not get ready.
enum NotReady {
    /// Its process ended before it had connected.
    Absent(Exit),
    /// Its process ended after that.
    Ended(Exit),
    /// It is there, and of no use.
    Unfit(String),
    /// It was there, and gives no sign of life any more.
    Silent,
}

/// A child that has connected and is ready.
struct Met {
    info: PeerInfo,
    connection: Connection,
    peer: MeshPeer,
    address: Option<String>,
}

async fn bring_up(
    runtime: &'static Runtime,
    peer: oneshot::Receiver<Result<Peer, fiber_transport::HandshakeError>>,
    request: StartRequest,
    states: &mut watch::Receiver<JobState>,
    lag: Duration,
    connected: &Cell<bool>,
) -> Result<Met, NotReady> {
    let peer = tokio::select! {
        peer = peer => peer.map_err(|_| NotReady::Unfit("this process stopped waiting for it".into()))?,
        exit = ended(states) => return Err(NotReady::Absent(exit)),
    };
    connected.set(true);
    let Peer { info, mut connection } = peer.map_err(|error| NotReady::Unfit(error.to_string()))?;
    connection.incoming.set_limit(message_limit(&runtime.endpoint.config));
    let start =
        ControlMessage::Start { config: Box::new(runtime.endpoint.config.clone()), request };
    // If its link is closed by now, that is seen below.
    let _ = connection.link.send(start.message());
    let mut heartbeats = HeartbeatMonitor::new(&runtime.endpoint.config);
    let mut peer = runtime.mesh.join(info.id, &connection.link);
    // What it says counts before its end: a child may be ready, do its work and end before this
    // looks.
    let told = tokio::select! {
        biased;
        told = first_word(&mut connection, &mut heartbeats, &mut peer) => told,
        exit = ended(states) => match timeout(LAG, first_word(&mut connection, &mut heartbeats, &mut peer)).await {
            Ok(told @ (FirstWord::Ready(_) | FirstWord::Unfit(_))) => told,
            Ok(FirstWord::None | FirstWord::Silence) | Err(_) => return Err(NotReady::Ended(exit)),
        },
    };
    match told {
        FirstWord::Ready(address) => Ok(Met { info, connection, peer, address }),
        FirstWord::Unfit(problem) => Err(NotReady::Unfit(problem)),
        FirstWord::Silence => Err(NotReady::Silent),
        // Its end says more than the end of its link.
        FirstWord::None => Err(match timeout(lag, ended(states)).await {
            Ok(exit) => NotReady::Ended(exit),
            Err(_) => NotReady::Unfit("its link broke before it was ready".into()),
        }),
    }
}

/// What a child says first, signs of life aside.
enum FirstWord {
    /// With its address.
    Ready(Option<String>),
    Unfit(String),
    /// Nothing, for too long.
    Silence,
    /// Its link ended.
    None,
}

async fn first_word(
    connection: &mut Connection,
    heartbeats: &mut HeartbeatMonitor,
    peer: &mut MeshPeer,
) -> FirstWord {
    loop {
        let message = tokio::select! {
            biased;
            message = connection.next() => message,
            () = heartbeats.lost() => return FirstWord::Silence,
        };
        heartbeats.received();
        let message = match message {
            Some(Ok(message)) => message,
            Some(Err(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                return FirstWord::Unfit(format!("what it said can't be read: {error}"));
            }
            Some(Err(_)) | None => return FirstWord::None,
        };
        if message.first() == Some(&MESH) {
            // An initialiser, or an actor's factory, may well talk to other actors.
            peer.receive(message);
            continue;
        }
        match control(&message) {
            Some(ControlMessage::Ready { address }) => return FirstWord::Ready(address),
            Some(ControlMessage::Failed(problem)) => return FirstWord::Unfit(problem),
            Some(ControlMessage::Heartbeat) => {}
            _ => {
                return FirstWord::Unfit("it said something unexpected before it was ready".into());
            }
        }
    }
}

/// The control message in `message`, if it is one.
pub(crate) fn control(message: &Bytes) -> Option<ControlMessage> {
    let (&channel, body) = message.split_first()?;
    if channel == CONTROL { codec::decode(body).ok() } else { None }
}

const IS_INIT_FIRST: &str = "is `fiber::init()` the first thing that `main` does?";

/// The exit code of a program that the system's loader could not load.
const EXIT_NOT_LOADED: i32 = 127;

fn not_let_in(why: &str) -> String {
    format!("this process could not accept its connection: {why}")
}

/// Why a process ended before it had connected, and what to do.
fn early_end(exit: Exit, closed_door: Option<String>) -> Exit {
    let obstacle = || exit.code().and_then(super::child::obstacle).map(str::to_string);
    let known = closed_door.map(|why| not_let_in(&why)).or_else(obstacle);
    let problem = match (&exit.reason, known) {
        (ExitReason::NotStarted(_), _) => return exit,
        (_, Some(why)) => why,
        // It says itself what is wrong.
        (reason @ ExitReason::Code(EXIT_NOT_STARTED | EXIT_NOT_LOADED), None) => {
            format!("it {reason} before it was ready")
        }
        // It may have run the program's `main` to its end.
        (reason @ (ExitReason::Normal | ExitReason::Code(_)), None) => {
            format!("it {reason} before it was ready: {IS_INIT_FIRST}")
        }
        (reason @ ExitReason::Signal(9), None) => format!(
            "it {reason} before it was ready, and not by this process: the system's log may say by whom, as if memory was \
             short"
        ),
        (reason, None) => format!("it {reason} before it was ready"),
    };
    Exit::new(ExitReason::NotStarted(problem), exit.tail)
}

/// A killed process of whose end nothing is heard: its successor does not wait for it. The backend
/// goes on ending it.
fn given_up(job_guard: &JobGuard) -> Exit {
    tracing::error!(
        "{} was killed, but nothing is heard of its end: it is given up",
        job_guard.job.place()
    );
    Exit::new(ExitReason::Signal(9), Vec::new())
}

async fn ended(states: &mut watch::Receiver<JobState>) -> Exit {
    let state = states.wait_for(|state| matches!(state, JobState::Ended(_))).await;
    match state.as_deref() {
        Ok(JobState::Ended(exit)) => exit.clone(),
        _ => Exit::new(ExitReason::LinkLost("its backend lost sight of it".into()), Vec::new()),
    }
}

/// Attends to a child until its process has ended and all that it sent has been received.
pub(crate) async fn monitor(
    runtime: &'static Runtime,
    launched: Launched,
    mut commands: mpsc::UnboundedReceiver<ProcessCommand>,
    mut receive: impl FnMut(Bytes),
) -> Exit {
    let Launched { mut connection, job_guard, mut peer, .. } = launched;
    let mut states = job_guard.job.states();
    let mut receive = |mut message: Bytes| match message.first() {
        Some(&MAIN) => {
            message.advance(1);
            receive(message);
        }
        Some(&MESH) => peer.receive(message),
        _ => {}
    };
    let mut heartbeats = HeartbeatMonitor::new(&runtime.endpoint.config);
    let mut verdict = None;
    let mut killed: Option<Instant> = None;
    let mut commands_open = true;

    let exit = loop {
        tokio::select! {
            biased;
            message = connection.next() => match message {
                Some(Ok(message)) => {
                    heartbeats.received();
                    if message.first() == Some(&CONTROL) {
                        connection.allow_sleep();
                    }
                    receive(message);
                }
                end => {
                    let problem = match end {
                        Some(Err(error)) => error.to_string(),
                        _ => "it was closed by the other side".to_string(),
                    };
                    connection.link.close();
                    let end = timeout(job_guard.lag, ended(&mut states)).await;
                    match end {
                        Ok(exit) if exit.reason != ExitReason::Code(EXIT_LINK_LOST) => break exit,
                        _ => drop(verdict.get_or_insert(ExitReason::LinkLost(problem))),
                    }
                    job_guard.job.kill();
                    break timeout(KILLED, ended(&mut states)).await.unwrap_or_else(|_| given_up(&job_guard));
                }
            },
            exit = ended(&mut states) => {
                // What it sent before it died counts. Signs of life don't: of a pod that was
                // deleted the process may live on.
                let mut quiet = Box::pin(sleep(LAG));
                loop {
                    tokio::select! {
                        biased;
                        message = connection.next() => match message {
                            Some(Ok(message)) => {
                                if message.first() != Some(&CONTROL) {
                                    quiet.as_mut().reset(Instant::now() + LAG);
                                }
                                receive(message);
                            }
                            _ => break,
                        },
                        () = &mut quiet => break,
                    }
                }
                break exit;
            }
            command = commands.recv(), if commands_open => match command {
                Some(ProcessCommand::Shutdown) => drop(connection.link.send(ControlMessage::Shutdown.message())),
                Some(ProcessCommand::Terminate) => job_guard.job.terminate(),
                Some(ProcessCommand::Kill(reason)) => {
                    verdict.get_or_insert(reason);
                    job_guard.job.kill();
                    killed.get_or_insert_with(Instant::now);
                }
                None => commands_open = false,
            },
            () = heartbeats.lost(), if verdict.is_none() => {
                verdict = Some(ExitReason::HeartbeatLost(runtime.endpoint.config.heartbeat_timeout));
                job_guard.job.kill();
                killed.get_or_insert_with(Instant::now);
            }
            () = sleep_until(killed.unwrap_or_else(Instant::now) + KILLED), if killed.is_some() => {
                break given_up(&job_guard);
            }
        }
    };
    connection.link.close();
    let exit = Exit::new(told(verdict, exit.reason), exit.tail);
    peer.lost(&exit.reason);
    exit
}
