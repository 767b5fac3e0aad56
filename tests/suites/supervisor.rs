//! The promises of supervisors, with real processes and actix actors.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::{Actor, Context, Message};
use fiber::supervisor::{
    Backoff, ChildContext, ChildSpec, ChildState, Control, Restart, Running, Shutdown, Start,
    SupervisorBuilder, SupervisorRef,
};
use fiber::{Error, Process, Supervisor, error::ExitReason, process::active_children};
use fiber_test_support::signals::{exists, kill};
use fiber_test_support::tricky::{Tricky, tricky};
use fiber_test_support::wait::{LONG, wait_for};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

fn hang() {
    fiber_test_support::hang()
}

fn process(name: &str) -> ChildSpec {
    ChildSpec::process(name, hang, ()).unwrap()
}

/// Configures a supervisor that does not pause before restarts. No other test uses the name.
fn eager(name: &str) -> SupervisorBuilder {
    Supervisor::builder(name).backoff(Backoff::none())
}

fn wait_until(what: &str, reached: impl Fn() -> bool) {
    wait_for(what, || if reached() { Ok(()) } else { Err(fiber::tree().to_string()) });
}

/// Returns the process id that the tree shows while a process runs.
fn pid(path: &str) -> Option<u32> {
    let tree = fiber::tree();
    let branch = tree.find(path).filter(|branch| branch.state == ChildState::Running)?;
    branch.place.as_ref()?.strip_prefix("pid ")?.split(' ').next()?.parse().ok()
}

fn running_pid(path: &str) -> u32 {
    wait_until(&format!("the start of `{path}`"), || pid(path).is_some());
    pid(path).expect("it runs")
}

fn last_exit(path: &str) -> Option<ExitReason> {
    fiber::tree().find(path)?.last_exit.clone()
}

fn end(supervisor: &SupervisorRef) {
    supervisor.stop().wait().unwrap();
}

/// Counts the messages that it handles.
struct Counts(Arc<AtomicU64>);

impl Actor for Counts {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "()")]
struct Count;

#[fiber::handlers]
impl Counts {
    fn count(&mut self, _: Count) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn requests_are_carried_out_although_their_replies_are_dropped() {
    let handled = Arc::new(AtomicU64::new(0));
    let spec = |name: &str| {
        let handled = Arc::clone(&handled);
        ChildSpec::actor(name, move || Counts(Arc::clone(&handled)))
    };
    let app = eager("dropped").child(spec("counts")).start().wait().unwrap();
    let counts = app.child::<Counts>("counts").unwrap();
    for _ in 0..500 {
        drop(counts.send(Count));
        counts.do_send(Count);
    }
    drop(counts.send(Count).timeout(LONG));
    wait_until("the last message", || handled.load(Ordering::Relaxed) == 1001);
    drop(app.add_child(spec("second")));
    wait_until("the start of the second", || app.child::<Counts>("second").is_ok());
    drop(app.stop_child("counts"));
    counts.join().wait().unwrap();
    end(&app);
}

#[test]
fn a_killed_process_is_restarted_with_another_process_id() {
    let app = eager("killed").child(process("server")).start().wait().unwrap();
    let first = running_pid("killed/server");
    assert!(
        fiber::tree().to_string().contains(&format!("server  running  pid {first}")),
        "{}",
        fiber::tree()
    );
    kill(first);
    wait_until("the restart", || pid("killed/server").is_some_and(|pid| pid != first));
    let tree = fiber::tree();
    let branch = tree.find("killed/server").unwrap();
    assert_eq!((branch.restarts, &branch.last_exit), (1, &Some(ExitReason::Signal(9))));
    assert!(!exists(first));
    end(&app);
}

#[test]
fn every_incarnation_runs_the_function_with_the_same_arguments() {
    fn note(path: String, word: String, deep: Option<Option<Tricky>>, nothing: Option<Option<()>>) {
        use std::io::Write;
        assert_eq!((deep, nothing), (Some(Some(tricky())), Some(None)));
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        writeln!(file, "{word}").unwrap();
        hang();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let arguments = (
        file.path().to_string_lossy().into_owned(),
        "same".to_string(),
        Some(Some(tricky())),
        Some(None),
    );
    let notes = || std::fs::read_to_string(file.path()).unwrap();
    let app = eager("again")
        .child(ChildSpec::process("notes", note, arguments).unwrap())
        .start()
        .wait()
        .unwrap();
    for incarnation in 1..=3 {
        wait_until("the note", || notes() == "same\n".repeat(incarnation));
        kill(running_pid("again/notes"));
        wait_until("the end", || {
            fiber::tree().find("again/notes").unwrap().restarts as usize == incarnation
        });
    }
    end(&app);
}

/// Returns an error, then panics, then succeeds.
async fn third_time_lucky(path: String) -> Result<(), String> {
    std::fs::create_dir_all(&path).map_err(|error| error.to_string())?;
    let attempt = std::fs::read_dir(&path).map_err(|error| error.to_string())?.count();
    std::fs::write(format!("{path}/{attempt}"), "").map_err(|error| error.to_string())?;
    match attempt {
        0 => Err("no luck".into()),
        1 => panic!("no luck at all"),
        _ => Ok(()),
    }
}

#[test]
fn a_transient_process_is_restarted_after_an_error_and_a_panic_but_not_when_it_returns() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_string_lossy().into_owned();
    let spec =
        ChildSpec::process("lucky", third_time_lucky, path).unwrap().restart(Restart::Transient);
    let app = eager("transient").child(spec).start().wait().unwrap();
    let ended = || {
        fiber::tree()
            .find("transient/lucky")
            .is_some_and(|branch| branch.state == ChildState::Ended)
    };
    wait_until("the end", ended);
    assert_eq!(fiber::tree().find("transient/lucky").unwrap().restarts, 2);
    assert_eq!(last_exit("transient/lucky"), Some(ExitReason::Normal));
    end(&app);
}

#[test]
fn reasons_have_the_words_of_errors_panics_and_deaths() {
    let cases = [
        (ChildSpec::process("child", || Err::<(), _>("no disk"), ()), "failed: no disk"),
        (ChildSpec::process("child", || -> () { panic!("no memory") }, ()), "panicked: no memory"),
        (
            ChildSpec::process("child", |code: i32| -> () { std::process::exit(code) }, 7),
            "exited with code 7",
        ),
        (
            ChildSpec::process("child", || -> () { std::process::abort() }, ()),
            "was killed by signal 6 (SIGABRT)",
        ),
    ];
    for (number, (spec, words)) in cases.into_iter().enumerate() {
        let supervisor =
            eager(&format!("words {number}")).intensity(0, LONG).start().wait().unwrap();
        // The child may end before the supervisor has answered.
        let _ = supervisor.add_child(spec.unwrap()).wait();
        match supervisor.join().wait().unwrap() {
            ExitReason::IntensityReached { last, .. } => {
                assert!(last.to_string().starts_with(words), "{last}")
            }
            other => panic!("{other}"),
        }
    }
}

struct Counter(u64);

impl Actor for Counter {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "u64")]
struct Add(u64);

#[fiber::handlers]
impl Counter {
    fn add(&mut self, Add(number): Add) -> u64 {
        assert!(number < 100, "{number} is too much");
        self.0 += number;
        self.0
    }
}

#[tokio::test]
async fn a_supervisor_is_used_from_any_runtime() {
    let app = eager("any runtime").start().await.unwrap();
    app.add_child(ChildSpec::actor("counter", || Counter(0))).await.unwrap();
    app.add_child(process("server")).await.unwrap();
    assert_eq!(app.child::<Counter>("counter").unwrap().send(Add(2)).await.unwrap(), 2);
    app.stop().await.unwrap();
    assert_eq!(app.join().await.unwrap(), ExitReason::Shutdown);
}

/// Creates one file when it runs, and another when it gets SIGTERM.
async fn stops_on_sigterm(path: String) {
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    std::fs::write(format!("{path}/running"), "").unwrap();
    terminated.recv().await;
    std::fs::write(format!("{path}/terminated"), "").unwrap();
}

async fn ignores_sigterm(path: String) {
    let _ignored = signal(SignalKind::terminate()).unwrap();
    std::fs::write(format!("{path}/ignores_sigterm"), "").unwrap();
    std::future::pending::<()>().await;
}

#[test]
fn stopping_terminates_processes_kills_those_that_go_on_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = || directory.path().to_string_lossy().into_owned();
    let deadline = Duration::from_millis(300);
    let app = eager("shutdown")
        .child(process("plain"))
        .child(
            ChildSpec::process("ignores_sigterm", ignores_sigterm, path())
                .unwrap()
                .shutdown(Shutdown::After(deadline)),
        )
        .child(
            ChildSpec::process("stops_on_sigterm", stops_on_sigterm, path())
                .unwrap()
                .shutdown(Shutdown::Wait),
        )
        .start()
        .wait()
        .unwrap();
    wait_until("the start of both", || {
        ["ignores_sigterm", "running"].iter().all(|name| Path::new(&path()).join(name).exists())
    });
    let pids = ["plain", "ignores_sigterm", "stops_on_sigterm"]
        .map(|child| running_pid(&format!("shutdown/{child}")));
    app.stop().wait().unwrap();
    assert!(Path::new(&path()).join("terminated").exists());
    for pid in pids {
        assert!(!exists(pid), "{pid} is left");
    }
    assert!(fiber::tree().find("shutdown").is_none());
    assert!(active_children().iter().all(|child| !child.name().starts_with("shutdown/")));
    assert_eq!(app.join().wait().unwrap(), ExitReason::Shutdown);
}

#[test]
fn supervised_processes_are_active_children() {
    let app = eager("listed").child(process("server")).start().wait().unwrap();
    let child = active_children()
        .into_iter()
        .find(|child| child.name() == "listed/server")
        .expect("it is running");
    assert_eq!(child.pid(), Some(running_pid("listed/server")));
    end(&app);
    assert!(!child.is_alive());
}

#[test]
fn processes_have_supervisors_of_their_own() {
    fn outer() -> (u32, u32) {
        let app = eager("inner").child(process("server")).start().wait().unwrap();
        let first = running_pid("inner/server");
        kill(first);
        wait_until("the restart", || pid("inner/server").is_some_and(|pid| pid != first));
        let second = running_pid("inner/server");
        end(&app);
        (first, second)
    }
    let (first, second) = Process::spawn(outer, ()).wait().unwrap();
    assert!(first != second && !exists(second));
}

#[test]
fn a_supervisor_whose_reply_is_dropped_stops() {
    let (begun, beginning) = std::sync::mpsc::channel();
    let counter = ChildSpec::actor("counter", move || {
        begun.send(()).unwrap();
        Counter(0)
    });
    drop(eager("dropped").child(counter).start());
    beginning.recv_timeout(LONG).unwrap();
    wait_until("its end", || fiber::tree().find("dropped").is_none());
}

#[test]
fn names_that_can_not_be_part_of_a_path_are_errors() {
    let refusals = [
        Process::builder().name("a/b").spawn(hang, ()).wait(),
        Process::builder().name("").spawn(hang, ()).wait(),
        ChildSpec::process("a/b", hang, ()).map(drop),
        Supervisor::builder("a/b").start().wait().map(drop),
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains("use at least one character, and no `/`"), "{error}");
    }
}

/// A child that panics whenever it is asked to end, and ends when it is killed.
struct Stubborn;

struct Panics(Option<oneshot::Sender<ExitReason>>);

impl Start for Stubborn {
    fn start(
        &mut self,
        _: ChildContext,
    ) -> Pin<Box<dyn Future<Output = Result<Running, ExitReason>>>> {
        let (end, ended) = oneshot::channel();
        let exited = async move { ended.await.unwrap_or(ExitReason::Shutdown) };
        Box::pin(async { Ok(Running::new(Panics(Some(end)), exited)) })
    }
}

impl Control for Panics {
    fn shutdown(&mut self) {
        panic!("not yet")
    }

    fn kill(&mut self, reason: ExitReason) {
        drop(self.0.take().map(|end| end.send(reason)));
        panic!("not now")
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("never")
    }
}

#[test]
fn a_child_whose_control_panics_ends_alone() {
    let stubborn = ChildSpec::new("stubborn", Stubborn).shutdown(Shutdown::After(Duration::ZERO));
    let app = eager("panicking").child(process("server")).child(stubborn).start().wait().unwrap();
    let server = running_pid("panicking/server");
    app.stop_child("stubborn").wait().unwrap();
    assert_eq!(pid("panicking/server"), Some(server));
    end(&app);
}
