use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use actix_rt::{Arbiter, System};
use fiber_backends::{Backend, Job, JobSpec, ListenAddress};
use fiber_core::{BuildId, Config, LinkKind, ProcessId, Result, SessionKey};
use fiber_transport::{Connection, ListenAt, PeerInfo, Role, connect, listen};
use futures_util::future::{LocalBoxFuture, join};

use super::*;
use crate::endpoint::Endpoint;
use crate::runtime::parent_info::ChildPlace;

/// Time limit for anything that must happen.
const LONG: Duration = Duration::from_secs(20);
/// The time limit for the end of a killed process, in these tests.
const SHORT: Duration = Duration::from_millis(200);

/// A job whose end is reported only when the test says so.
#[derive(Debug)]
struct SilentJob {
    states: watch::Sender<JobState>,
    kills: AtomicU32,
}

impl Job for SilentJob {
    fn place(&self) -> String {
        "nowhere".into()
    }

    fn tail(&self) -> Vec<String> {
        Vec::new()
    }

    fn states(&self) -> watch::Receiver<JobState> {
        self.states.subscribe()
    }

    fn terminate(&self) {}

    fn kill(&self) {
        self.kills.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct NoBackend;

impl Backend for NoBackend {
    fn name(&self) -> &'static str {
        "none"
    }

    fn listen_address(&self) -> LocalBoxFuture<'_, Result<ListenAddress>> {
        unreachable!("nothing listens")
    }

    fn create(&self, _: JobSpec) -> LocalBoxFuture<'_, Result<Arc<dyn Job>>> {
        unreachable!("no job is created")
    }

    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        unreachable!("there are no leftovers")
    }
}

/// A silent job, and a link to its process.
struct Subject {
    runtime: &'static Runtime,
    id: ProcessId,
    job: Arc<SilentJob>,
    /// The child's end of the link.
    child: Connection,
}

impl Subject {
    /// Creates a job at work.
    async fn start() -> (Subject, Launched) {
        Subject::start_with(Config::default()).await
    }

    async fn start_with(config: Config) -> (Subject, Launched) {
        let (key, id) = (SessionKey::random(), ProcessId::random());
        let own = ProcessId::random();
        let endpoint = Endpoint::new(own, config, key.clone(), Arbiter::current());
        let runtime =
            Runtime::new(endpoint, Arc::new(NoBackend), None, ChildPlace::Alone, None, true);
        let at = ListenAt::new(Ipv4Addr::LOCALHOST);
        let mut listener = listen(LinkKind::Unix, &key, &at).unwrap();
        let address = listener.address();
        let accepted = poll_fn(|context| listener.poll_accept(context));
        let (child, connection) = join(connect(&address, &key), accepted).await;
        let (child, connection) = (child.unwrap(), connection.unwrap());
        let states = watch::Sender::new(JobState::Running);
        let job = Arc::new(SilentJob { states, kills: AtomicU32::new(0) });
        runtime.jobs.insert(id, job.clone());
        let build = BuildId::current().unwrap().clone();
        let host = "nowhere".into();
        let launched = Launched {
            is_host: false,
            host: None,
            is_failing: Arc::default(),
            is_host_failing: None,
            info: PeerInfo { id, to: own, role: Role::Child, build, pid: 1, host },
            peer: runtime.mesh.add_link(id, &connection.link),
            connection,
            address: None,
            job_guard: JobGuard { runtime, id, max_lag: SHORT, job: job.clone() },
        };
        (Subject { runtime, id, job, child }, launched)
    }

    /// Checks that the backend is still asked to end the job, which counts until its end.
    async fn stays_with_its_backend(self) {
        let Subject { runtime, id, job, .. } = self;
        assert!(job.kills.load(Ordering::Relaxed) > 0);
        assert!(runtime.jobs.contains_key(&id));
        job.states.send_replace(JobState::Ended(Exit::new(ExitReason::Signal(9), Vec::new())));
        let forgotten = async {
            while runtime.jobs.contains_key(&id) {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, forgotten).await.expect("the job is forgotten after its end");
    }
}

#[test]
fn a_killed_job_of_which_nothing_is_heard_is_given_up_after_its_time() {
    System::new().block_on(async {
        let (subject, launched) = Subject::start().await;
        let (commands, inbox) = mpsc::unbounded_channel();
        commands.send(ProcessCommand::Kill(ExitReason::TaskCancelled)).ok().unwrap();
        let began = Instant::now();
        let end = monitor_with(SHORT, subject.runtime, launched, inbox, drop);
        let exit = timeout(LONG, end).await.expect("the job is given up");
        assert!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
        assert_eq!(exit.reason, ExitReason::TaskCancelled);
        subject.stays_with_its_backend().await;
    });
}

#[test]
fn a_job_that_is_silent_after_its_link_closed_is_killed_and_given_up_after_its_time() {
    System::new().block_on(async {
        let (subject, launched) = Subject::start().await;
        let (_commands, inbox) = mpsc::unbounded_channel();
        subject.child.link.close();
        let began = Instant::now();
        let end = monitor_with(SHORT, subject.runtime, launched, inbox, drop);
        let exit = timeout(LONG, end).await.expect("the job is given up");
        assert!(began.elapsed() >= 2 * SHORT, "{:?}", began.elapsed());
        assert!(matches!(exit.reason, ExitReason::LinkLost(_)), "{}", exit.reason);
        subject.stays_with_its_backend().await;
    });
}

#[test]
fn a_killed_job_has_ten_seconds() {
    assert_eq!(KILL_TIMEOUT, Duration::from_secs(10));
}

#[test]
fn a_process_whose_host_is_being_lost_ends_for_the_reason_of_its_host() {
    System::new().block_on(async {
        let mut config = Config::default();
        (config.heartbeat, config.heartbeat_timeout) = (SHORT / 20, SHORT / 10);
        let (subject, mut launched) = Subject::start_with(config).await;
        launched.is_host_failing = Some(Arc::new(true.into()));
        let (_commands, inbox) = mpsc::unbounded_channel();
        let lost = ExitReason::HostEnded {
            host: "host-b".into(),
            reason: Box::new(ExitReason::HeartbeatLost(SHORT)),
        };
        let end = monitor_with(SHORT, subject.runtime, launched, inbox, drop);
        let host_ends = async {
            // The process is silent for much longer than it may be alone.
            sleep(2 * SHORT).await;
            let exit = Exit::new(lost.clone(), Vec::new());
            subject.job.states.send_replace(JobState::Ended(exit));
            subject.child.link.close();
        };
        let (exit, ()) = join(timeout(LONG, end), host_ends).await;
        assert_eq!(exit.expect("it ends").reason, lost);
    });
}
