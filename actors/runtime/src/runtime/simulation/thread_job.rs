//! Jobs that are threads of this process.

use std::net::Ipv4Addr;
use std::sync::{Arc, mpsc};
use std::thread;

use actix_rt::ArbiterHandle;
use fiber_backends::{Backend, Job, JobPlace, JobSpec, JobState, ListenAddress, Locality};
use fiber_core::{Error, Exit, ExitReason, LinkKind, Result, SessionKey, shortage, variables};
use futures_util::future::LocalBoxFuture;
use tokio::sync::{Notify, oneshot, watch};

use crate::endpoint::Endpoint;
use crate::parts::Parts;
use crate::random::Random;
use crate::runtime::Runtime;
use crate::runtime::child::{join, receive};
use crate::runtime::child_main::ParentMessage;
use crate::runtime::parent_info::ParentInfo;
use crate::runtime::thread::start_until;

const SIGKILL: i32 = 9;

/// The work of a child's main thread.
type Main = Box<dyn FnOnce() -> i32 + Send>;

/// Runs each job in a thread of its own, which is to its parent what a process is.
#[derive(Debug)]
pub(super) struct ThreadBackend;

impl Backend for ThreadBackend {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn listen_address(&self) -> LocalBoxFuture<'_, Result<ListenAddress>> {
        let bind = Ipv4Addr::LOCALHOST.into();
        let (link, locality) = (LinkKind::Memory, Locality::Child);
        let address = ListenAddress { link, bind, advertised: None, locality };
        Box::pin(std::future::ready(Ok(address)))
    }

    fn create(&self, spec: JobSpec) -> LocalBoxFuture<'_, Result<Arc<dyn Job>>> {
        Box::pin(async move { start(&spec).map(|job| job as Arc<dyn Job>) })
    }

    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

#[derive(Debug)]
struct ThreadJob {
    name: String,
    states: watch::Sender<JobState>,
    killed: Notify,
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
        self.kill();
    }

    fn kill(&self) {
        self.killed.notify_one();
    }
}

/// Starts a job. Its thread is named as the job is.
fn start(spec: &JobSpec) -> Result<Arc<ThreadJob>> {
    let info = spec.parent.as_ref().and_then(|parent| parent.to_string().parse().ok());
    let key = spec.secrets.iter().find(|(name, _)| *name == variables::KEY);
    let key = key.and_then(|(_, key)| key.parse().ok());
    let (info, key) = info.zip(key).expect("the parent has set its address and the key");
    let (states, killed) = (watch::Sender::new(JobState::Running), Notify::new());
    let job = Arc::new(ThreadJob { name: spec.name.clone(), states, killed });
    let running = Arc::clone(&job);
    let run = move || {
        let exit = run(info, key, &running);
        running.states.send_if_modified(|state| {
            let has_ended = matches!(state, JobState::Ended(_));
            if !has_ended {
                *state = JobState::Ended(Exit::new(exit, Vec::new()));
            }
            !has_ended
        });
    };
    let started = thread::Builder::new().name(spec.name.clone()).spawn(run);
    started.map_err(|error| Error::not_started(&spec.name, shortage::explain(&error)))?;
    Ok(job)
}

/// Lives as a child, and returns how it ended.
fn run(info: ParentInfo, key: SessionKey, job: &Arc<ThreadJob>) -> ExitReason {
    let parts = Parts::of_another_session();
    let _entered = parts.enter();
    parts.get::<Random>().seed(info.id.0);
    let (stop, stopped) = oneshot::channel();
    let (arbiter, thread) = match start_until(parts, stopped) {
        Ok(started) => started,
        Err(error) => return ExitReason::NotStarted(error.to_string()),
    };
    let (sender, main) = mpsc::channel::<Main>();
    let (endpoint, job) = (arbiter.clone(), Arc::clone(job));
    arbiter.spawn_fn(move || {
        fiber_core::spawn_local(async move {
            tokio::select! {
                () = live(parts, info, key, endpoint, sender) => {}
                () = job.killed.notified() => {
                    let exit = Exit::new(ExitReason::Signal(SIGKILL), Vec::new());
                    job.states.send_replace(JobState::Ended(exit));
                }
            }
        });
    });
    // A killed one goes on until its task ends, and nothing of it arrives any more.
    let code = main.recv().map(|main| main());
    let _ = stop.send(());
    match (code, thread.join()) {
        (Ok(0), Ok(())) => ExitReason::Normal,
        (Ok(code), Ok(())) => ExitReason::Code(code),
        (Err(_), _) => ExitReason::NotStarted("it could not join its session".into()),
        (_, Err(_)) => ExitReason::Panicked("its runtime's thread panicked".into()),
    }
}

/// Works for the parent, until its link closes.
async fn live(
    parts: &'static Parts,
    info: ParentInfo,
    key: SessionKey,
    arbiter: ArbiterHandle,
    main: mpsc::Sender<Main>,
) {
    let joined = match join(&info, &key).await {
        Ok(joined) => joined,
        Err(problem) => return tracing::debug!("a child has not joined: {problem:?}"),
    };
    let endpoint = Endpoint::new(parts, info.id, (*joined.config).clone(), key, arbiter);
    let backend = Arc::new(ThreadBackend);
    let runtime = Runtime::new(endpoint, backend, None, info.place, None, false);
    let work = match joined.begin(runtime, info.parent) {
        Ok(work) => work,
        Err(problem) => return tracing::error!("a child can't work: {problem}"),
    };
    let _ = main.send(work.run);
    let mut inbox = StopOnDrop(work.receive);
    let inbox = Box::new(move |message| (inbox.0)(message));
    receive(runtime, work.connection, inbox, work.parent).await;
}

/// Lets the executors of a killed child end after their tasks.
struct StopOnDrop(Box<dyn FnMut(ParentMessage)>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        (self.0)(ParentMessage::Shutdown);
    }
}
