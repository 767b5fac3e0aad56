//! Jobs that are threads of this process. In a simulated world, they are late, fail to start, wait
//! for room, and die.

use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fiber_backends::{
    Backend, Job, JobPlace, JobSpec, JobState, ListenAddress, Locality, WaitReason,
};
use fiber_core::simulation::{self, Fault, Fragile, is_unusual};
use fiber_core::{Error, Exit, ExitReason, LinkKind, Result, SessionKey, shortage, variables};
use fiber_transport::Link;
use futures_util::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};

use crate::endpoint::{Endpoint, RuntimeThread};
use crate::parts::Parts;
use crate::random::Random;
use crate::runtime::Runtime;
use crate::runtime::child::{join, receive};
use crate::runtime::child_exit::ChildExit;
use crate::runtime::child_main::ParentMessage;
use crate::runtime::parent_info::ParentInfo;
use crate::runtime::thread::start_until;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// The exit code of a program whose main thread panics.
const PANICKED: i32 = 101;

/// The work of a child's main thread.
type Main = Box<dyn FnOnce() -> i32 + Send>;

/// Runs each job in a thread of its own, which is to its parent what a process is.
#[derive(Debug, Default)]
pub(super) struct ThreadBackend {
    /// Until when it refuses each job.
    refuses_until: Mutex<Option<Instant>>,
    /// When it would end the session.
    pub(super) ends_at: Option<SystemTime>,
}

impl Backend for ThreadBackend {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn ends_at(&self) -> Option<SystemTime> {
        self.ends_at
    }

    fn listen_address(&self) -> LocalBoxFuture<'_, Result<ListenAddress>> {
        let bind = Ipv4Addr::LOCALHOST.into();
        let (link, locality) = (LinkKind::Memory, Locality::Child);
        let address = ListenAddress { link, bind, advertised: None, locality };
        Box::pin(std::future::ready(Ok(address)))
    }

    fn create(&self, spec: JobSpec) -> LocalBoxFuture<'_, Result<Arc<dyn Job>>> {
        Box::pin(async move {
            pause("an engine takes its time").await;
            if is_unusual("an engine refuses a job") || self.refuses() {
                return Err(Error::not_started(&spec.name, "the engine has refused it"));
            }
            start(&spec).map(|job| job as Arc<dyn Job>)
        })
    }

    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

impl ThreadBackend {
    /// Returns whether the engine refuses all jobs at present, as one that is full does.
    fn refuses(&self) -> bool {
        let (mut until, now) = (self.refuses_until.lock(), Instant::now());
        let may_begin = until.is_none_or(|until| until + FULL < now);
        if may_begin && is_unusual("an engine refuses all jobs") {
            let time = simulation::world().map_or(0, |world| world.draw(FULL.as_millis() as u64));
            *until = Some(now + Duration::from_millis(time));
        }
        until.is_some_and(|until| now < until)
    }
}

#[derive(Debug)]
struct ThreadJob {
    name: String,
    /// Its node in the world.
    node: OnceLock<u64>,
    states: watch::Sender<JobState>,
    killed: Notify,
    /// How it ends, although its threads go on for a while.
    verdict: OnceLock<ExitReason>,
}

impl Job for ThreadJob {
    fn place(&self) -> JobPlace {
        JobPlace::Other { words: format!("thread {}", self.name) }
    }

    fn tail(&self) -> Vec<String> {
        Vec::new()
    }

    fn states(&self) -> watch::Receiver<JobState> {
        self.states.subscribe()
    }

    fn terminate(&self) {
        let handles = |node: &u64| simulation::world().is_some_and(|world| world.terminate(*node));
        if !self.node.get().is_some_and(handles) {
            self.end_by(SIGTERM);
        }
    }

    fn kill(&self) {
        self.end_by(SIGKILL);
    }
}

impl Fragile for ThreadJob {
    fn name(&self) -> &str {
        &self.name
    }

    fn can_suffer(&self, fault: Fault) -> bool {
        let is_of_jobs = matches!(fault, Fault::Kill | Fault::Terminate);
        is_of_jobs && !matches!(*self.states.borrow(), JobState::Ended(_))
    }

    fn suffer(&self, fault: Fault) {
        if fault == Fault::Terminate { self.terminate() } else { self.kill() }
    }

    fn node(&self) -> Option<u64> {
        self.node.get().copied()
    }
}

impl ThreadJob {
    fn end_node(&self) {
        if let (Some(world), Some(node)) = (simulation::world(), self.node.get()) {
            world.end_node(*node);
        }
    }

    /// Ends by a signal, at once.
    fn end_by(&self, signal: i32) {
        let _ = self.verdict.set(ExitReason::Signal(signal));
        self.end_node();
        self.killed.notify_one();
    }

    /// Lets the parent know the end, unless there was another one before.
    fn end(&self, reason: ExitReason) {
        self.states.send_if_modified(|state| {
            let has_ended = matches!(state, JobState::Ended(_));
            if !has_ended {
                *state = JobState::Ended(Exit::new(reason, Vec::new()));
            }
            !has_ended
        });
    }
}

/// How long an engine refuses all jobs, at most. A host has an engine of its own, and may refuse
/// its workers after the host itself was refused: all of that is shorter than `start_timeout`,
/// after which a pool gives up.
const FULL: Duration = Duration::from_secs(15);
/// How long the unusual takes, at most.
const LONG: Duration = Duration::from_secs(3);
/// How long an engine that hangs takes, at most: longer than others wait for it.
const HUNG: Duration = Duration::from_secs(30);

/// Returns how long to wait, if something unusual happens at this point.
fn unusual_time(point: &'static str) -> Option<Duration> {
    let world = simulation::world().filter(|world| world.is_unusual(point))?;
    let longest = if world.is_unusual("an engine hangs") { HUNG } else { LONG };
    Some(Duration::from_millis(world.draw(longest.as_millis() as u64)))
}

async fn pause(point: &'static str) {
    if let Some(time) = unusual_time(point) {
        tokio::time::sleep(time).await;
    }
}

/// Starts a job. Its thread is named as the job is.
fn start(spec: &JobSpec) -> Result<Arc<ThreadJob>> {
    let info = spec.parent.as_ref().and_then(|parent| parent.to_string().parse().ok());
    let key = spec.secrets.iter().find(|(name, _)| *name == variables::KEY);
    let ticket = key.and_then(|(_, ticket)| ticket.reveal().parse().ok());
    let (info, ticket) = info.zip(ticket).expect("the parent has set its address and the ticket");
    let job = Arc::new(ThreadJob {
        name: spec.name.clone(),
        node: OnceLock::new(),
        states: watch::Sender::new(JobState::Running),
        killed: Notify::new(),
        verdict: OnceLock::new(),
    });
    if let Some(world) = simulation::world() {
        world.add(Arc::clone(&job) as Arc<dyn Fragile>);
    }
    let running = Arc::clone(&job);
    let run = move || {
        if let Some(time) = unusual_time("a job waits for room") {
            let why = WaitReason::Resources("the engine has no room".into());
            running.states.send_replace(JobState::Waiting(why));
            thread::sleep(time);
            running.states.send_replace(JobState::Running);
        }
        if let Some(world) = simulation::world() {
            let node = *running.node.get_or_init(|| world.begin_node(&running.name));
            // It may have been killed before its start.
            if running.verdict.get().is_some() {
                world.end_node(node);
            }
        }
        let exit = run(info, ticket, &running);
        running.end_node();
        if let Some(time) = unusual_time("an engine is late to tell an end") {
            thread::sleep(time);
        }
        running.end(running.verdict.get().cloned().unwrap_or(exit));
    };
    let spawn = |()| thread::Builder::new().name(spec.name.clone()).spawn(run);
    let started = simulation::check_threads().and_then(spawn);
    started.map_err(|error| Error::not_started(&spec.name, shortage::explain(&error)))?;
    Ok(job)
}

/// Lives as a child, and returns how it ended.
fn run(info: ParentInfo, ticket: SessionKey, job: &Arc<ThreadJob>) -> ExitReason {
    let parts = Parts::of_another_session();
    let _entered = parts.enter();
    parts.get::<Random>().seed(info.id.0);
    let (stop, stopped) = oneshot::channel();
    let (reached, thread) = match start_until(parts, stopped) {
        Ok(started) => started,
        Err(error) => return ExitReason::NotStarted(error.to_string()),
    };
    let (sender, main) = mpsc::channel::<Main>();
    let (of_endpoint, own) = (reached.clone(), job);
    let job = Arc::clone(own);
    reached.arbiter.spawn_fn(move || {
        fiber_core::spawn_local(async move {
            tokio::select! {
                () = live(parts, info, ticket, of_endpoint, sender, &job) => {}
                () = job.killed.notified() => {
                    pause("an engine is late to tell a death").await;
                    job.end(job.verdict.get().cloned().unwrap_or(ExitReason::Signal(SIGKILL)));
                }
            }
        });
    });
    // A killed one goes on until its task ends, and nothing of it arrives any more.
    let run = |main| catch_unwind(AssertUnwindSafe(main)).unwrap_or(PANICKED);
    let code = main.recv().map(run);
    // The C library does so at the exit of a process that is alive.
    if own.verdict.get().is_none()
        && let Some(runtime) = Runtime::current()
    {
        runtime.shutdown_on_exit(true);
    }
    let exit = code.map(|code| if code == 0 { ExitReason::Normal } else { ExitReason::Code(code) });
    if let Ok(exit) = &exit {
        let _ = own.verdict.set(exit.clone());
    }
    let _ = stop.send(());
    match (exit, thread.join()) {
        (Ok(exit), Ok(())) => exit,
        (Err(_), _) => ExitReason::NotStarted("it could not join its session".into()),
        (_, Err(_)) => ExitReason::Panicked("its runtime's thread panicked".into()),
    }
}

/// Works for the parent, until its link closes.
async fn live(
    parts: &'static Parts,
    info: ParentInfo,
    ticket: SessionKey,
    thread: RuntimeThread,
    main: mpsc::Sender<Main>,
    job: &Arc<ThreadJob>,
) {
    let joined = match join(&info, ticket).await {
        Ok(joined) => joined,
        Err(problem) => return tracing::debug!("a child has not joined: {problem:?}"),
    };
    let endpoint =
        Endpoint::new(parts, info.id, (*joined.config).clone(), joined.key.clone(), thread);
    let backend = Arc::new(ThreadBackend::default());
    let runtime =
        Runtime::new(endpoint, backend, None, Some(&info), None, Some(joined.head.clone()));
    let work = match joined.begin(runtime, info.parent) {
        Ok(work) => work,
        Err(problem) => return tracing::error!("a child can't work: {problem}"),
    };
    let _ = main.send(work.run);
    let link = Arc::clone(&work.connection.link);
    let mut inbox = StopOnDrop { receive: work.receive, link, job: Arc::clone(job) };
    let inbox = Box::new(move |message| (inbox.receive)(message));
    receive(runtime, work.connection, inbox, Some(work.parent)).await;
}

/// Ends a child that is killed, or has lost its link. Its main thread ends in its own time, and
/// nothing that it does counts.
struct StopOnDrop {
    receive: Box<dyn FnMut(ParentMessage)>,
    link: Arc<dyn Link>,
    job: Arc<ThreadJob>,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        let _ = self.job.verdict.set(ExitReason::Code(ChildExit::LinkLost.code()));
        self.job.end_node();
        // Without a world, which stops it, a killed one would report that it was asked to stop.
        if simulation::world().is_none()
            && matches!(self.job.verdict.get(), Some(ExitReason::Signal(_)))
        {
            self.link.close();
        }
        (self.receive)(ParentMessage::Shutdown);
    }
}
