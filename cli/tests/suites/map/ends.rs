//! Ends of commands, workers and maps: no process stays behind.
//!
//! Each command holds a named pipe open, so that a test sees when it is there, and when it and all
//! processes below it have ended.

use std::process::Command;

use super::{Ended, Folder, exists, wait_for_end, wait_for_line};

/// A command that has a child, and one in a session of its own.
const FAMILY: &str = "exec 9>pipe; setsid sleep 1000 & sleep 1000 & echo $PPID >&9; wait";

#[test]
fn a_timeout_ends_all_processes_of_a_command() {
    let folder = Folder::new();
    folder.pipe("pipe");
    let map = folder.spawn(&["--json", "--timeout", "3s", "--", "sh", "-c", FAMILY, ":::", "a"]);
    let mut pipe = folder.open_pipe("pipe");
    wait_for_line(&mut pipe);
    wait_for_end(pipe);
    let ended = Ended(map.wait_with_output().expect("it ends"));
    let line = &ended.json()[0];
    assert_eq!((ended.code(), &line["exit_code"]), (Some(1), &serde_json::Value::Null));
    assert_eq!(line["error"], "killed after its timeout of 3s");
    assert_eq!(line["attempts"], 1);
}

#[test]
fn a_command_may_end_in_order_at_its_timeout_or_is_killed() {
    let folder = Folder::new();
    let script = "trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.01; done";
    let ended = folder.map(&["--json", "--timeout", "3s", "sh", "-c", script, ":::", "a"]);
    let line = &ended.json()[0];
    // Its output is kept. It has failed, whatever its exit code is.
    assert_eq!((ended.code(), &line["stdout"]), (Some(1), &"hello\nbye\n".into()));
    let script = "trap '' TERM; while :; do sleep 0.01; done";
    let ended = folder.map(&["--timeout", "1s", "--retries", "1", "sh", "-c", script, ":::", "a"]);
    ended.failed(1, &["timeout"]);
}

#[test]
fn processes_in_the_background_end_with_their_command() {
    let folder = Folder::new();
    folder.pipe("pipe");
    let script = "exec 9>pipe; setsid sleep 1000 & echo on >&9; echo done";
    let map = folder.spawn(&["sh", "-c", script, ":::", "a"]);
    let mut pipe = folder.open_pipe("pipe");
    wait_for_line(&mut pipe);
    wait_for_end(pipe);
    assert_eq!(Ended(map.wait_with_output().expect("it ends")).succeeded().stdout(), "done\n");
    // One that ends soon by itself may still print.
    let script = "(sleep 0.2; echo late) & echo early";
    assert_eq!(folder.map(&["sh", "-c", script, ":::", "a"]).stdout(), "early\nlate\n");
}

fn end_by(signal: &str) {
    let folder = Folder::new();
    folder.pipe("pipe");
    let script = "exec 9>pipe; sleep 1000 & echo on >&9; wait";
    let map = folder.spawn(&["-p", "2", "--", "sh", "-c", script, ":::", "a", "b", "c"]);
    let mut pipe = folder.open_pipe("pipe");
    for _ in 0..2 {
        wait_for_line(&mut pipe);
    }
    let pid = map.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().expect("there is a kill").success());
    wait_for_end(pipe);
    let status = map.wait_with_output().expect("it ends").status;
    assert!(!status.success() && status.code().is_none(), "{status}");
}

#[test]
fn ctrl_c_and_sigterm_end_all_commands() {
    end_by("-INT");
    end_by("-TERM");
}

#[test]
fn signals_that_a_map_can_not_handle_end_all_commands() {
    end_by("-QUIT");
    end_by("-KILL");
}

#[test]
fn a_command_whose_worker_dies_ends_and_runs_again() {
    let folder = Folder::new();
    folder.pipe("pipe");
    let script = "if mkdir first 2>/dev/null; then exec 9>pipe; sleep 1000 & echo $PPID >&9; wait; \
                  fi; echo second";
    let map = folder.spawn(&["--json", "sh", "-c", script, ":::", "a"]);
    let mut pipe = folder.open_pipe("pipe");
    let worker = wait_for_line(&mut pipe);
    let killed = Command::new("kill").args(["-KILL", &worker]).status();
    assert!(killed.expect("there is a kill").success());
    wait_for_end(pipe);
    let ended = Ended(map.wait_with_output().expect("it ends")).succeeded();
    assert_eq!(ended.json().len(), 1);
    assert_eq!(ended.json()[0]["stdout"], "second\n");
}

#[test]
fn a_command_that_kills_its_process_group_harms_no_other() {
    let folder = Folder::new();
    let script = "echo $1 >>runs; kill 0; sleep 1000";
    let ended = folder.map(&["--json", "sh", "-c", script, "sh", ":::", "a", "b"]);
    assert_eq!(ended.code(), Some(2), "{}", ended.stderr());
    assert!(ended.json().iter().all(|line| line["signal"] == 15), "{}", ended.stdout());
    assert_eq!(folder.read("runs").lines().count(), 2);
}

#[test]
fn a_command_that_kills_its_workers_fails_alone() {
    let folder = Folder::new();
    let script = "test $1 = b || exit 0; kill -KILL $PPID; sleep 1000";
    let ended = folder.map(&["--json", "sh", "-c", script, "sh", ":::", "a", "b", "c"]);
    let errors: Vec<_> = ended.json().iter().map(|line| line["error"].clone()).collect();
    assert_eq!((ended.code(), errors[0].is_null(), errors[2].is_null()), (Some(1), true, true));
    let error = errors[1].as_str().expect("it has failed");
    assert!(error.contains("3 workers died") && error.contains("signal 9"), "{error}");
    assert_eq!(ended.json()[1]["command"][4], "b");
}

#[test]
fn a_map_is_a_session_that_top_shows() {
    let folder = Folder::new();
    folder.pipe("pipe");
    let map = folder.spawn(&["-p", "1", "--", "sh", "-c", "echo on >pipe; read x <go", ":::", "a"]);
    folder.pipe("go");
    wait_for_line(&mut folder.open_pipe("pipe"));
    let pid = map.id().to_string();
    let mut top = Command::new(env!("CARGO_BIN_EXE_fiber"));
    let top = Ended(top.args(["top", "--once", &pid]).output().expect("it can be started"));
    assert!(top.stdout().contains("sh/worker-1"), "{}{}", top.stdout(), top.stderr());
    std::fs::write(folder.path("go"), "\n").expect("the command reads");
    Ended(map.wait_with_output().expect("it ends")).succeeded();
    assert!(!exists(&folder.path("fiber-journals")));
}
