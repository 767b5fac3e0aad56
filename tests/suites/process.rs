//! The promises of single processes.

use std::fs::File;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use fiber::{
    Error, Meta, Process,
    config::OutputMode,
    error::{ExitReason, FailureKind},
    process::active_children,
};
use fiber_test_support::signals::{exists, is_running, kill};
use fiber_test_support::wait::{LONG, wait_until};
use serde::{Deserialize, Serialize};

fn add(a: i32, b: i32) -> i32 {
    a + b
}

fn hang() {
    fiber_test_support::hang()
}

/// Returns the exit reason and the last output from an error of a process.
fn exited(error: Error) -> (ExitReason, String) {
    match error {
        Error::Exited { exit, .. } => (exit.reason, exit.tail.join("\n")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_return_value_is_the_result() {
    assert_eq!(Process::spawn(add, (2, 3)).wait().unwrap(), 5);
    assert_eq!(Process::spawn(|text: String| text.len(), "four".to_string()).wait().unwrap(), 4);
    Process::spawn(|| (), ()).wait().unwrap();
}

#[test]
fn async_functions_run_to_their_end() {
    async fn later(x: u32) -> u32 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        2 * x
    }
    assert_eq!(Process::spawn(later, 4).wait().unwrap(), 8);
    assert_eq!(Process::spawn(|x: u32| async move { x + 1 }, 4).wait().unwrap(), 5);
}

#[tokio::test]
async fn a_process_is_a_future_of_any_runtime() {
    assert_eq!(Process::spawn(add, (2, 3)).await.unwrap(), 5);
}

#[test]
fn the_error_has_the_exit_code() {
    let exit = |code: i32| -> () { std::process::exit(code) };
    let process = Process::spawn(exit, 3);
    assert_eq!(process.join().wait().unwrap().code(), Some(3));
    let error = process.wait().unwrap_err();
    assert!(error.to_string().contains("exited with code 3"), "{error}");
    assert_eq!(exited(error).0, ExitReason::Code(3));

    let done = Process::spawn(add, (1, 1));
    assert_eq!(done.join().wait().unwrap().code(), Some(0));
    // An exit with code 0 before the function has returned is an end without a result, too.
    let (reason, _) = exited(Process::spawn(exit, 0).wait().unwrap_err());
    assert_eq!(reason, ExitReason::Normal);
}

#[test]
fn a_panic_is_an_error_with_message_and_place_and_exits_with_101() {
    let process = Process::spawn(|x: u32| assert!(x > 7, "{x} is not enough"), 7);
    assert_eq!(process.join().wait().unwrap().code(), Some(101));
    match process.wait().unwrap_err() {
        Error::Task { failure, .. } => {
            assert_eq!(failure.kind, FailureKind::Panicked);
            assert!(failure.message.contains("7 is not enough"), "{failure}");
            assert!(failure.message.contains(file!()), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    let error = Process::spawn(|| -> () { panic!("no") }, ()).wait().unwrap_err().to_string();
    let named = format!("::{{closure@{}:{}}}", file!(), line!() - 1);
    assert!(error.contains(&named), "{error}");
}

#[test]
fn the_error_has_the_signal() {
    let abort = Process::spawn(|| -> () { std::process::abort() }, ());
    assert_eq!(abort.join().wait().unwrap().signal(), Some(6));
    let error = abort.wait().unwrap_err().to_string();
    assert!(error.contains("SIGABRT"), "{error}");

    let killed = Process::spawn(hang, ());
    let pid = killed.started().wait().unwrap();
    kill(pid);
    assert_eq!(exited(killed.wait().unwrap_err()).0, ExitReason::Signal(9));
}

#[test]
fn a_stack_overflow_ends_its_process_only() {
    #[allow(unconditional_recursion)]
    fn overflow(depth: u64) -> u64 {
        let frame = std::hint::black_box([depth; 1024]);
        overflow(depth + 1) + frame[0]
    }
    let (reason, _) = exited(Process::spawn(overflow, 0).wait().unwrap_err());
    assert!(matches!(reason, ExitReason::Signal(6 | 11)), "{reason}");
    assert_eq!(Process::spawn(add, (2, 3)).wait().unwrap(), 5);
}

#[test]
fn kill_and_stop_end_it() {
    for (stop, signal) in [(true, 15), (false, 9)] {
        let process = Process::spawn(hang, ());
        let pid = process.started().wait().unwrap();
        if stop {
            drop(process.stop());
        } else {
            process.kill();
        }
        assert_eq!(process.join().wait().unwrap().signal(), Some(signal));
        assert!(!process.is_alive());
        assert!(!exists(pid), "it was not reaped");
    }
}

#[test]
fn a_process_that_is_still_starting_can_be_stopped_and_killed() {
    for stop in [true, false] {
        let process = Process::spawn(hang, ());
        if stop {
            drop(process.stop());
        } else {
            process.kill();
        }
        let exit = process.join().timeout(LONG).wait().unwrap();
        assert!(!exit.reason.is_normal(), "{exit}");
    }
}

#[test]
fn joining_ends_at_its_limit() {
    let process = Process::spawn(hang, ());
    let begun = Instant::now();
    let error = process.join().timeout(Duration::from_millis(50)).wait().unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(50));
    assert!(process.is_alive() && process.exit().is_none());
    process.kill();
    let exit = process.join().timeout(LONG).wait().unwrap();
    assert_eq!((exit.signal(), process.exit()), (Some(9), Some(exit)));
}

#[test]
fn a_start_that_fails_at_once_is_the_error_and_the_exit_of_the_handle() {
    let process = Process::builder().name("a/b").spawn(add, (1, 2));
    let exit = process.join().wait().unwrap();
    match &exit.reason {
        ExitReason::NotStarted(problem) => assert!(problem.contains("no `/`"), "{problem}"),
        other => panic!("{other}"),
    }
    assert!(!process.is_alive());
    assert_eq!(process.stop().wait().unwrap(), exit);
    process.kill();
    assert_eq!(process.exit(), Some(exit));
    assert!(matches!(process.started().wait(), Err(Error::Invalid { .. })));
    assert!(matches!(process.wait(), Err(Error::Invalid { .. })));
}

#[test]
fn a_request_that_nothing_grants_is_named() {
    for (meta, what) in
        [(Meta::new().cpu(f64::NAN), "NaN CPU cores"), (Meta::new().memory(0), "0 B of memory")]
    {
        let process = Process::builder().meta(meta).spawn(add, (1, 2));
        let error = process.wait().unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn the_process_id_is_known_from_start_to_end() {
    let process = Process::spawn(hang, ());
    let pid = process.started().wait().unwrap();
    assert_eq!(process.pid(), Some(pid));
    assert!(process.is_alive() && exists(pid));
    process.kill();
    process.join().wait().unwrap();
    assert_eq!(process.pid(), None);
    assert_eq!(process.started().wait().unwrap(), pid, "it has started");
    assert_eq!(exited(process.wait().unwrap_err()).0, ExitReason::Signal(9));
}

#[test]
fn names_are_set_or_counted_and_appear_in_errors_and_process_lists() {
    let named = Process::builder().name("night watch").spawn(hang, ());
    assert_eq!(named.name(), "night watch");
    let pid = named.started().wait().unwrap();
    let title = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(title.contains("night watch"), "{title:?}");
    named.kill();
    let error = named.wait().unwrap_err().to_string();
    assert!(error.contains("`night watch`"), "{error}");

    let [first, second] = [(), ()].map(|()| Process::spawn(add, (1, 1)));
    assert!(first.name().starts_with("process-") && first.name() != second.name());
}

#[test]
fn dropping_a_handle_leaves_the_process_running() {
    let handle = Process::spawn(hang, ()).handle();
    let pid = handle.started().wait().unwrap();
    assert!(handle.is_alive() && exists(pid));
    handle.kill();
    handle.join().wait().unwrap();
}

#[test]
fn active_children_are_those_that_live() {
    let named = || active_children().into_iter().filter(|child| child.name() == "counted").count();
    let process = Process::builder().name("counted").spawn(hang, ());
    assert_eq!(named(), 1);
    active_children()
        .iter()
        .filter(|child| child.name() == "counted")
        .for_each(fiber::process::ProcessHandle::kill);
    process.join().wait().unwrap();
    assert_eq!(named(), 0);
}

#[test]
fn errors_that_only_implement_display_travel_as_text() {
    fn open(path: String) -> anyhow::Result<u64> {
        use anyhow::Context;
        let file = File::open(&path).with_context(|| format!("no measurements in {path}"))?;
        Ok(file.metadata()?.len())
    }
    let process = Process::builder().try_spawn(open, "/no/such/file".to_string());
    assert_eq!(process.join().wait().unwrap().code(), Some(1));
    let error = process.wait().unwrap_err().to_string();
    assert!(error.contains("no measurements in /no/such/file: No such file"), "{error}");
    assert!(Process::builder().try_spawn(open, "/proc/self/exe".to_string()).wait().unwrap() > 0);
}

#[test]
fn the_error_has_the_last_lines_even_if_output_goes_nowhere() {
    let complain = || -> () {
        println!("all is well");
        eprintln!("nothing is well");
        std::process::exit(9)
    };
    let process = Process::builder().output(OutputMode::Null).spawn(complain, ());
    let error = process.wait().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("exited with code 9; its last output:"), "{text}");
    let (_, tail) = exited(error);
    assert!(tail.contains("all is well") && tail.contains("nothing is well"), "{tail}");
}

/// The path of the test that the next one runs.
const PRINTS: &str = "process::a_test_that_prints_in_a_process";

/// Fails on demand.
#[test]
fn a_test_that_prints_in_a_process() {
    let chatter = || {
        println!("a line of a process");
        eprintln!("an error of a process");
    };
    Process::spawn(chatter, ()).wait().unwrap();
    assert!(std::env::var_os("FAIL_AFTER_PRINTING").is_none(), "it was asked to fail");
}

#[test]
fn the_harness_captures_what_processes_print_for_their_test() {
    let run = |fails: bool| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", PRINTS]);
        if fails {
            command.env("FAIL_AFTER_PRINTING", "1");
        }
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr))
    };
    let (stdout, stderr) = run(false);
    assert!(stdout.contains("1 passed"), "{stdout}");
    assert!(!stdout.contains("of a process\n") && stderr.is_empty(), "{stdout}{stderr}");

    let (stdout, _) = run(true);
    let (_, captured) = stdout.split_once(&format!("---- {PRINTS} stdout ----")).unwrap();
    for line in ["a line of a process", "an error of a process"] {
        assert!(captured.contains(line), "{stdout}");
    }
}

#[test]
fn processes_start_their_own_and_wait_for_them() {
    fn count_down(levels: u32) -> Vec<u32> {
        let mut pids = match levels {
            0 => Vec::new(),
            _ => Process::spawn(count_down, levels - 1).wait().unwrap(),
        };
        pids.push(std::process::id());
        pids
    }
    let mut pids = Process::spawn(count_down, 2).wait().unwrap();
    pids.push(std::process::id());
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 4);
}

#[test]
fn killing_a_process_ends_those_that_it_started() {
    fn parent(path: String) {
        let child = Process::spawn(hang, ());
        let pid = child.started().wait().unwrap();
        let mut program = std::process::Command::new("sleep").arg("3600").spawn().unwrap();
        let part = format!("{path}.part");
        std::fs::write(&part, format!("{pid} {}", program.id())).unwrap();
        std::fs::rename(part, path).unwrap();
        program.wait().unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pids");
    let process = Process::spawn(parent, path.to_string_lossy().into_owned());
    wait_until("the start of both", || path.exists());
    let pids = std::fs::read_to_string(path).unwrap();
    process.kill();
    process.join().wait().unwrap();
    for pid in pids.split(' ') {
        wait_until("the end of what it started", || !is_running(pid.parse().unwrap()));
    }
}

#[test]
fn more_files_than_1024_may_be_open() {
    // The runtime raises the limit when it starts.
    Process::spawn(add, (0, 0)).wait().unwrap();
    let open = || (0..1200).map(|_| File::open("/dev/null")).collect::<Result<Vec<_>, _>>();
    let files = open().expect("the hard limit is higher than that");
    assert_eq!(Process::spawn(add, (2, 3)).wait().unwrap(), 5);
    drop(files);
    let in_child = move || open().map(|files| files.len()).map_err(|error| error.to_string());
    assert_eq!(Process::spawn(in_child, ()).wait().unwrap(), Ok(1200));
}

/// A value that does not deserialize: it writes something else than it reads.
#[derive(Debug, Deserialize)]
struct WritesText {
    _value: u32,
}

impl Serialize for WritesText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("crooked")
    }
}

#[test]
fn the_error_of_a_result_that_does_not_deserialize_names_its_type() {
    let error = Process::spawn(|| WritesText { _value: 1 }, ()).wait().unwrap_err();
    assert!(matches!(error, Error::Decode { .. }), "{error:?}");
    assert!(
        error.to_string().contains("WritesText") && error.to_string().contains("match each other"),
        "{error}"
    );

    let error = Process::spawn(|_: WritesText| (), WritesText { _value: 1 }).wait().unwrap_err();
    assert!(
        matches!(&error, Error::Task { failure, .. } if failure.kind == FailureKind::Arguments),
        "{error:?}"
    );
}

/// A waker that blocks. Fiber calls wakers on its own thread.
struct WaitsWhenWoken(Mutex<Sender<fiber::Result<i32>>>);

impl Wake for WaitsWhenWoken {
    fn wake(self: Arc<Self>) {
        let result = Process::spawn(add, (1, 1)).wait();
        let _ = self.0.lock().unwrap().send(result);
    }
}

#[test]
fn waiting_on_fibers_own_thread_is_an_error() {
    let (sender, results) = channel();
    let waker = Waker::from(Arc::new(WaitsWhenWoken(Mutex::new(sender))));
    let process = Process::spawn(hang, ());
    let handle = process.handle();
    let mut process = pin!(process);
    assert!(process.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    handle.kill();
    let error = results.recv_timeout(LONG).expect("the waker is called").unwrap_err();
    assert!(
        matches!(error, Error::WouldDeadlock) && error.to_string().contains("`.await`"),
        "{error}"
    );
}

#[test]
fn a_process_has_globals_of_its_own() {
    static GLOBAL: AtomicU32 = AtomicU32::new(1);
    GLOBAL.store(2, Ordering::SeqCst);
    assert_eq!(Process::spawn(|| GLOBAL.swap(3, Ordering::SeqCst), ()).wait().unwrap(), 1);
    assert_eq!(GLOBAL.load(Ordering::SeqCst), 2);
}
