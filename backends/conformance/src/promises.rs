//! The promises.

use std::ffi::OsString;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fiber_core::{Config, Error, Exit, ExitReason, Meta, OutputMode};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::Promise;
use super::job::JOB;
use super::registry::Registry;
use fiber_backends::{Backend, Job, JobSpec, JobState, WaitReason, backend};

/// Time limit for each promise.
const LONG: Duration = Duration::from_secs(120);

pub(super) type Keep = fn(Subject) -> Pin<Box<dyn Future<Output = ()>>>;

macro_rules! promises {
    ($($promise:ident),+ $(,)?) => {
        &[$(Promise {
            name: stringify!($promise),
            keep: |subject| Box::pin($promise(subject)),
        }),+]
    };
}

/// The promises of all backends.
pub const ALL: &[Promise] = promises![
    exit_codes_are_reported,
    signals_are_reported,
    output_goes_to_the_log_and_the_tail,
    all_output_comes_before_the_end,
    arguments_and_environment_arrive_unchanged,
    states_come_in_order_and_end_once,
    a_job_can_connect_to_its_parent,
    killing_ends_descendants_too,
    killing_takes_effect_at_any_time,
    terminating_is_a_signal,
    terminating_takes_effect_at_any_time,
    many_jobs_at_once,
    any_name_will_do,
    live_and_finished_jobs_leave_nothing_to_sweep,
];

/// The promises of backends whose jobs run from images.
pub const OF_IMAGES: &[Promise] = promises![jobs_that_wait_share_one_failed_attempt];

/// The promises of backends that limit the resources of their jobs.
pub const OF_LIMITS: &[Promise] =
    promises![running_out_of_memory_is_reported, missing_resources_are_named];

/// A backend under test.
pub(super) struct Subject {
    config: Config,
    backend: Arc<dyn Backend>,
    machine: Option<String>,
    logs: TempDir,
}

/// Runs a test on a thread like fiber's own.
pub(super) fn check(config: &Config, machine: Option<String>, keep: Keep) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be had");
    let subject = Subject {
        config: config.clone(),
        backend: backend(config).expect("it exists"),
        machine,
        logs: TempDir::new().expect("there is room"),
    };
    let local = tokio::task::LocalSet::new();
    let kept = local.run_until(async { timeout(LONG, keep(subject)).await });
    runtime.block_on(kept).unwrap_or_else(|_| panic!("the promise was not kept within {LONG:?}"));
}

impl Subject {
    fn spec(&self, what: &[&str]) -> JobSpec {
        JobSpec {
            arguments: [JOB].iter().chain(what).map(OsString::from).collect(),
            environment: vec![("GREETING", "hello = \"you\" $HOME 'ö'".into())],
            secrets: vec![("WORD", "hush = $HOME".into())],
            log_dir: self.logs.path().to_path_buf(),
            machine: self.machine.clone(),
            ..JobSpec::new("pool-1/worker-1")
        }
    }

    async fn start(&self, what: &[&str]) -> Arc<dyn Job> {
        self.backend.create(self.spec(what)).await.expect("it can be started")
    }

    async fn run(&self, spec: JobSpec) -> Exit {
        match self.backend.create(spec).await {
            Ok(job) => ended(&*job).await,
            Err(Error::Start { reason, .. }) => Exit::new(reason, Vec::new()),
            Err(other) => panic!("{other}"),
        }
    }

    /// Listens for jobs, and returns the address for them to connect to.
    async fn listen(&self) -> (TcpListener, String) {
        let reach = self.backend.listen_address().await.expect("it can be reached");
        let listener = TcpListener::bind(SocketAddr::new(reach.bind, 0))
            .await
            .expect("it is an address of this host");
        let address = listener.local_addr().expect("it has one");
        let host = reach.advertised.unwrap_or_else(|| address.ip().to_string());
        (listener, format!("{host}:{}", address.port()))
    }
}

async fn ended(job: &dyn Job) -> Exit {
    let mut states = job.states();
    let state = states
        .wait_for(|state| matches!(state, JobState::Ended(_)))
        .await
        .expect("it is watched to its end");
    let JobState::Ended(exit) = state.clone() else { unreachable!("it was waited for") };
    exit
}

async fn waiting_or_ended(job: &dyn Job) -> JobState {
    let mut states = job.states();
    let settled = |state: &JobState| {
        matches!(state, JobState::Waiting(WaitReason::Resources(_)) | JobState::Ended(_))
    };
    let state = states.wait_for(settled).await.expect("it is watched").clone();
    job.kill();
    ended(job).await;
    state
}

async fn caller(listener: &TcpListener) -> BufReader<TcpStream> {
    let (stream, _) = listener.accept().await.expect("it listens");
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await.expect("it says something");
    assert_eq!(line, "here\n");
    stream
}

async fn exit_codes_are_reported(subject: Subject) {
    assert_eq!(subject.run(subject.spec(&["exit", "0"])).await.reason, ExitReason::Normal);
    assert_eq!(subject.run(subject.spec(&["exit", "3"])).await.reason, ExitReason::Code(3));
    assert_eq!(subject.run(subject.spec(&["exit", "127"])).await.reason, ExitReason::Code(127));
}

async fn signals_are_reported(subject: Subject) {
    for signal in [6, 9, 10, 15] {
        let exit = subject.run(subject.spec(&["signal", &signal.to_string()])).await;
        assert_eq!(exit.reason, ExitReason::Signal(signal));
    }
}

async fn output_goes_to_the_log_and_the_tail(subject: Subject) {
    let mut spec = subject.spec(&["print"]);
    spec.output = OutputMode::File.into();
    let exit = subject.run(spec).await;
    let mut tail = exit.tail.clone();
    tail.sort_unstable();
    assert_eq!(tail, ["and no end of the third", "another line", "one line"], "{exit:?}");
    let log = std::fs::read_to_string(subject.logs.path().join("pool-1-worker-1.log"))
        .expect("there is a log");
    let mut lines: Vec<_> = log.lines().flat_map(|line| line.split_inclusive("third")).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["and no end of the third", "another line", "one line"]);
}

async fn all_output_comes_before_the_end(subject: Subject) {
    let mut spec = subject.spec(&["flood", "20000"]);
    spec.output = OutputMode::File.into();
    let exit = subject.run(spec).await;
    assert_eq!(exit.tail.last().map(String::as_str), Some("line 19999"));
    let log = std::fs::read_to_string(subject.logs.path().join("pool-1-worker-1.log"))
        .expect("there is a log");
    assert!(
        log.lines().eq((0..20_000).map(|line| format!("line {line}"))),
        "lines are missing or in disorder"
    );
}

async fn arguments_and_environment_arrive_unchanged(subject: Subject) {
    let exit =
        subject.run(subject.spec(&["echo", "GREETING", "a b", "", "$PATH", "\"", "ö"])).await;
    let expected = ["GREETING=hello = \"you\" $HOME 'ö'", "<a b>", "<>", "<$PATH>", "<\">", "<ö>"];
    assert_eq!(exit.tail, expected, "{exit:?}");
    let exit = subject.run(subject.spec(&["secret", "WORD"])).await;
    assert_eq!(exit.tail, ["WORD=hush = $HOME"], "{exit:?}");
}

async fn states_come_in_order_and_end_once(subject: Subject) {
    let (listener, address) = subject.listen().await;
    let job = subject.start(&["call", &address]).await;
    let caller = caller(&listener).await;
    let mut states = job.states();
    let begun = |state: &JobState| !matches!(state, JobState::Starting | JobState::Waiting(_));
    let running = states.wait_for(begun).await.expect("it goes on").clone();
    assert_eq!(running, JobState::Running);
    drop(caller);
    assert_eq!(ended(&*job).await.reason, ExitReason::Normal);
    // The last state stays, and late commands do no harm.
    job.terminate();
    job.kill();
    assert_eq!(ended(&*job).await.reason, ExitReason::Normal);
    // The state can't change any more.
    states.borrow_and_update();
    drop(job);
    assert!(states.changed().await.is_err());
}

async fn a_job_can_connect_to_its_parent(subject: Subject) {
    let (listener, address) = subject.listen().await;
    let job = subject.start(&["call", &address]).await;
    drop(caller(&listener).await);
    assert_eq!(ended(&*job).await.reason, ExitReason::Normal);
}

async fn killing_ends_descendants_too(subject: Subject) {
    let (listener, address) = subject.listen().await;
    let job = subject.start(&["delegate", &address]).await;
    let mut grandchild = caller(&listener).await;
    job.kill();
    // A connection that the kernel closes may also be reset.
    let _ = grandchild.read_to_end(&mut Vec::new()).await;
    assert_eq!(ended(&*job).await.reason, ExitReason::Signal(9));
}

async fn killing_takes_effect_at_any_time(subject: Subject) {
    let at_once = subject.start(&["wait"]).await;
    at_once.kill();
    ended(&*at_once).await;
    let from_another_thread = subject.start(&["wait"]).await;
    let job = Arc::clone(&from_another_thread);
    std::thread::spawn(move || job.kill()).join().expect("it does not panic");
    ended(&*from_another_thread).await;
}

async fn terminating_is_a_signal(subject: Subject) {
    let (listener, address) = subject.listen().await;
    let job = subject.start(&["call", &address]).await;
    let _caller = caller(&listener).await;
    // The program may call before its backend knows that it runs. A job that has not started does
    // not start then.
    job.states().wait_for(|state| *state == JobState::Running).await.expect("it runs");
    job.terminate();
    assert_eq!(ended(&*job).await.reason, ExitReason::Signal(15));
}

async fn terminating_takes_effect_at_any_time(subject: Subject) {
    let at_once = subject.start(&["wait"]).await;
    at_once.terminate();
    ended(&*at_once).await;
}

async fn many_jobs_at_once(subject: Subject) {
    let codes: Vec<i32> = (1..=6).collect();
    let exits = codes.iter().map(|code| {
        let spec = subject.spec(&["exit", &code.to_string()]);
        let subject = &subject;
        async move { subject.run(spec).await.code() }
    });
    let exits = futures_util::future::join_all(exits).await;
    assert_eq!(exits, codes.into_iter().map(Some).collect::<Vec<_>>());
}

async fn running_out_of_memory_is_reported(subject: Subject) {
    let mut spec = subject.spec(&["eat"]);
    spec.meta = Meta::new().memory(64 << 20);
    let exit = subject.run(spec).await;
    assert_eq!(exit.reason, ExitReason::OutOfMemory, "{exit:?}");
}

async fn missing_resources_are_named(subject: Subject) {
    let asked = [
        (Meta::new().memory(1 << 60), "memory"),
        (Meta::new().cpu(100_000.0), "cores"),
        (Meta::new().gpu(1000), "GPUs"),
    ];
    for (meta, what) in asked {
        let mut spec = subject.spec(&["exit", "0"]);
        spec.meta = meta;
        let problem = match subject.backend.create(spec).await {
            Err(Error::Start { reason, .. }) => reason.start_problem(),
            Err(other) => panic!("{other}"),
            // Where more resources may appear, the job waits, and reports for which.
            Ok(job) => match waiting_or_ended(&*job).await {
                JobState::Ended(Exit { reason: ExitReason::NotStarted(problem), .. }) => problem,
                JobState::Waiting(WaitReason::Resources(words)) => words,
                other => panic!("{other:?}"),
            },
        };
        assert!(problem.contains(what), "{problem}");
    }
}

async fn any_name_will_do(subject: Subject) {
    for name in ["", "ä/ö ü:\"", &"long".repeat(100)] {
        let mut spec = subject.spec(&["exit", "0"]);
        spec.name = name.to_string();
        assert_eq!(subject.run(spec).await.reason, ExitReason::Normal, "{name}");
    }
}

async fn live_and_finished_jobs_leave_nothing_to_sweep(subject: Subject) {
    let job = subject.start(&["wait"]).await;
    // An engine may also have leftovers of other tests.
    let place = job.place().to_string();
    let is_swept = async || {
        let swept = subject.backend.sweep().await.expect("it can sweep");
        swept.iter().any(|name| place.split([' ', ',', '.']).any(|word| word == name))
    };
    // A sweep keeps live jobs.
    assert!(!is_swept().await, "{place}");
    assert!(!matches!(*job.states().borrow(), JobState::Ended(_)));
    job.kill();
    ended(&*job).await;
    assert!(!is_swept().await, "{place}");
}

async fn jobs_that_wait_share_one_failed_attempt(subject: Subject) {
    let registry = Registry::refusing().await;
    let mut config = subject.config.clone();
    match &*config.backend {
        // Images of pods are pushed, images of containers are pulled.
        "kubernetes" => config.registry = Some(format!("{}/fiber-test", registry.address)),
        _ => config.image = Some(format!("{}/fiber-test/refused:1", registry.address)),
    }
    let backend = backend(&config).expect("it exists");
    let start = || async {
        let started = backend.create(subject.spec(&["exit", "0"])).await;
        let Err(Error::Start { reason, .. }) = started else {
            panic!("the registry refuses: {started:?}")
        };
        reason.start_problem()
    };
    let problem = start().await;
    let of_one = registry.requests();
    assert!(of_one > 0 && problem.contains("the test refuses"), "{of_one}: {problem}");
    // Later jobs don't get an earlier error: they make another attempt, but only one.
    let problems = futures_util::future::join_all((0..4).map(|_| start())).await;
    assert_eq!(registry.requests(), of_one, "{problems:?}");
    assert!(problems.iter().all(|other| *other == problem), "{problem}: {problems:?}");
}
