//! Ends of sessions, and what is left of them.

use std::path::Path;
use std::time::Duration;

use fiber::{Journal, Pool};
use fiber_test_support::wait::wait_until;
use fiber_test_support::{scenario, trial};

use crate::batch::session::{StartedSession, own_name};
use crate::batch::{fiber, run_program};
use crate::cluster::{SYSTEM, grid};

/// Starts a session of a shell.
#[track_caller]
fn shell(options: &[&str], program: &str) -> StartedSession {
    let mut session = StartedSession::under(own_name());
    let options = [&["--name", &session.name], options].concat();
    let setup = run_program(Path::new("/bin/sh"), &options, "").args(&["-c", program]);
    session.directory = Some(setup.run().code(0));
    session
}

#[trial]
fn a_deleted_session_ends_in_order_and_says_so() {
    let program = "trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.1; done";
    let started = shell(&[], program);
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.line("ready");
    grid("qdel", &[&(SYSTEM.job)(&started.name).expect("it has a job")]);
    following.line("got TERM");
    following.end();
    fiber(&["wait", &started.name]).run().code(143);
    let shown = started.listed();
    assert_eq!((&shown["exit_code"], &shown["detail"]), (&143.into(), &"cancelled".into()));

    let waits = StartedSession::new(&["--gridengine=-h"], "ready");
    grid("qdel", &[&(SYSTEM.job)(&waits.name).expect("it is queued")]);
    fiber(&["wait", &waits.name]).run().code(143);
}

#[trial]
fn a_session_beyond_its_time_limit_says_so() {
    // The queue of `brief` has a limit of its own.
    for options in [&["--time", "2s"][..], &["--pe", "brief", "--slots", "2"]] {
        let started = shell(options, "echo ready; while :; do sleep 0.1; done");
        fiber(&["wait", &started.name]).run().code(143);
        let shown = started.listed();
        let ended = (&shown["exit_code"], &shown["detail"]);
        assert_eq!(ended, (&143.into(), &"its time limit".into()), "{options:?}");
    }
}

#[trial]
fn a_session_whose_processes_pass_its_memory_limit_together_says_so() {
    let started = StartedSession::new(&["--gridengine=-l h_vmem=1G"], "hungry together");
    fiber(&["wait", &started.name]).run().code(143);
    assert_eq!(started.listed()["detail"], "out of memory: h_vmem");
}

/// Runs two tasks for ever that take 1.2 GB of memory each: more than two slots with 1 GB have.
#[scenario("hungry together")]
fn hungry_together() {
    let pool = Pool::builder().processes(2).start().wait().unwrap();
    let eat = |()| {
        let _eaten = std::hint::black_box(vec![1u8; 1_200_000_000]);
        std::thread::sleep(Duration::from_secs(600));
    };
    pool.map(eat, [(); 2]).wait().unwrap();
}

#[trial]
fn running_tasks_on_all_hosts_end_in_order_when_the_session_is_deleted() {
    let folder = tempfile::tempdir().expect("there is room");
    let go = folder.path().join("go");
    let variable = format!("GO={}", go.display());
    let options = [SYSTEM.wide, &["-e", &variable]].concat();
    let started = StartedSession::new(&options, "slow and recorded");
    let count = |word: &str| started.output().matches(word).count();
    wait_until("all tasks have begun", || !started.files().is_empty() && count("begun") == 4);
    grid("qdel", &[&(SYSTEM.job)(&started.name).expect("it has a job")]);
    wait_until("the head was asked to end", || count("SIGTERM") > 0);
    std::fs::write(&go, "").expect("there is room");
    fiber(&["wait", &started.name]).run().code(75);
    assert_eq!(count("ended"), 4, "{}", started.output());
}

/// Runs four tasks whose results are recorded. They end when the file `GO` exists.
#[scenario("slow and recorded")]
fn slow_and_recorded() {
    let task = |_: u32| {
        println!("begun");
        let go = std::env::var("GO").unwrap();
        wait_until("the word to go", || Path::new(&go).exists());
        println!("ended");
    };
    let pool = Pool::builder().processes(4).start().wait().unwrap();
    let journal = Path::new(&std::env::var("GO").unwrap()).with_file_name("journal");
    let durable = pool.durable(Journal::at(journal).call("slow"));
    durable.map(task, 0..8).wait().unwrap();
}

#[trial]
fn a_head_that_does_not_end_is_killed_after_its_grace_period() {
    let started = shell(&[], "trap '' TERM; echo ready; while :; do sleep 0.1; done");
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.line("ready");
    fiber(&["kill", "--now", &started.name]).run().code(0);
    following.end();
    assert_eq!(((SYSTEM.job)(&started.name), started.files()), (None, Vec::new()));
}
