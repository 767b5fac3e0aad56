//! The commands with their output in a pipe.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use fiber_test_support::command::listed;
use fiber_test_support::program::{Program, Setup};
use fiber_test_support::trial;
use rustix::process::Signal;
use serde_json::Value;

use crate::{BURNS, fiber, own_name, run, start};

#[track_caller]
fn out(arguments: &[&str]) -> String {
    let (code, out, errors) = run(arguments);
    assert_eq!(code, Some(0), "{errors}");
    out
}

fn pid(program: &Program) -> String {
    program.pid().to_string()
}

/// Waits until the statistics of the session have this property, and returns them.
#[track_caller]
fn look_until(program: &Program, what: &str, reached: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    program.wait_until(what, || {
        let look: Value = serde_json::from_str(&out(&["top", "--json", &pid(program)])).unwrap();
        last = look["sessions"][0].clone();
        reached(&last)
    });
    last
}

fn spins(session: &Value) -> bool {
    let workers = session["pools"][0]["workers"].as_array().into_iter().flatten();
    workers.into_iter().any(|worker| {
        let function = worker["running"][0]["function"].as_str();
        function.is_some_and(|function| function.ends_with("spin"))
    })
}

/// Returns the full name of the worker that spins, once it is in the function.
fn spinner(program: &Program) -> String {
    let session = look_until(program, "a task runs for long", spins);
    let workers = session["pools"][0]["workers"].as_array().unwrap();
    let busy = workers.iter().find(|worker| !worker["running"].as_array().unwrap().is_empty());
    let worker = format!("{}/squares/{}", program.pid(), busy.unwrap()["name"].as_str().unwrap());
    program.wait_until("it has spoken", || out(&["logs", &worker]).contains("a worker speaks"));
    worker
}

#[trial]
fn a_local_session_is_listed_with_its_processes() {
    let program = start();
    let session = listed(&out(&["ps", "--json"]), &format!("pid {}", program.pid()));
    assert_eq!(session["program"], own_name().as_str());
    assert_eq!((session["state"].as_str(), session["parent"].as_str()), (Some("running"), None));
    let mut names: Vec<&str> =
        (0..3).map(|index| session["workers"][index]["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["squares/worker-1", "squares/worker-2", "squares/worker-3"]);
    let memory = |name: &str| session[name].as_u64().unwrap();
    assert!((1..memory("resident")).contains(&memory("pss")), "{session}");
    let table = out(&["ps"]);
    for word in
        ["NAME", "MACHINE", "└ squares/worker-2", "M PSS", &format!("pid {}", program.pid())]
    {
        assert!(table.contains(word), "`{word}` is missing in:\n{table}");
    }
}

#[trial]
fn looks_at_an_interval_end_with_their_reader_and_with_the_session() {
    let program = start();
    let look = || {
        let mut command = fiber(&["top", "--json", "--interval", "100ms", &pid(&program)]);
        let mut looking = command.stdout(Stdio::piped()).spawn().expect("it can be started");
        let lines = BufReader::new(looking.stdout.take().unwrap()).lines();
        (looking, lines)
    };
    let (mut unread, mut lines) = look();
    lines.next().unwrap().unwrap();
    drop(lines);
    assert!(unread.wait().unwrap().success() && program.has_not_ended());
    let (mut looking, mut lines) = look();
    for _ in 0..3 {
        let look: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(look["sessions"][0]["name"], format!("pid {}", program.pid()).as_str());
    }
    drop(program);
    assert!(looking.wait().unwrap().success());
}

#[trial]
fn a_name_of_two_sessions_names_both() {
    let (one, other) = (start(), start());
    let (code, _, errors) = run(&["top", "--once", &own_name()]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("may be any of") && errors.contains(&own_name()), "{errors}");
    for program in [one, other] {
        out(&["top", "--once", &format!("pid {}", program.pid())]);
    }
}

#[trial]
fn a_stopped_head_is_named_and_does_not_hang_the_command() {
    let program = start();
    program.signal(Signal::STOP);
    let named = format!("pid {} does not answer", program.pid());
    let remedy = format!("kill -CONT {}", program.pid());
    for listed in [&["ps"][..], &["ps", &pid(&program)]] {
        let (code, out, errors) = run(listed);
        assert!(code == Some(0) && errors.contains(&named) && errors.contains(&remedy), "{errors}");
        let own = out.lines().find(|line| line.contains(&format!("pid {} ", program.pid())));
        assert!(own.is_some_and(|line| line.contains(&format!("paused: {remedy}"))), "{out}");
    }
    let worker = format!("{}/squares/worker-1", program.pid());
    for command in [&["top", "--once"][..], &["profile"], &["kill"], &["logs"]] {
        for name in [&pid(&program), &worker] {
            let (code, _, errors) = run(&[command, &[name]].concat());
            assert!(code == Some(1) && errors.contains(&named), "{command:?} {name}: {errors}");
            assert!(!errors.contains("no session or process"), "{errors}");
        }
    }
    // It and its workers are seen from outside.
    let head = out(&["stack", &pid(&program)]);
    assert!(head.contains("`fiber-runtime`: is stopped") && head.contains(&named), "{head}");
    let worker = out(&["stack", &worker]);
    assert!(worker.contains("`fiber-runtime`: ") && worker.contains(&named), "{worker}");
    let worker_pid = worker.strip_prefix("process ").and_then(|rest| rest.split(':').next());
    let again = out(&["stack", worker_pid.unwrap()]);
    assert!(again.starts_with(&format!("process {}: ", worker_pid.unwrap())), "{again}");
    program.signal(Signal::CONT);
    program.wait_until("it is listed again", || {
        out(&["ps"]).contains(&format!("pid {}", program.pid()))
    });
}

#[trial]
fn the_stack_of_a_busy_worker_names_its_function() {
    let program = start();
    let stack = out(&["stack", &spinner(&program)]);
    assert!(stack.contains("spin") && stack.contains("thread"), "{stack}");
    // Idle threads may be counted only: `--all` shows each.
    let all = out(&["stack", "--all", &spinner(&program)]);
    assert!(all.contains("`fiber-runtime`: ") && all.contains("fiber_runtime::"), "{all}");
    // A session means its head.
    let head = out(&["stack", &pid(&program)]);
    assert!(head.contains(&format!("process {}", program.pid())), "{head}");
}

#[trial]
fn a_profile_is_a_flame_graph_of_the_busy_function() {
    let program = Setup::new("busy").env(BURNS, "1").start();
    program.line("ready");
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    let worker = spinner(&program);
    let svg = file("busy.svg");
    let written = out(&["profile", "--seconds", "0.3", "-o", &svg, &worker]);
    assert!(written.contains(&svg), "{written}");
    let picture = std::fs::read_to_string(&svg).unwrap();
    assert!(picture.contains("<svg") && picture.contains("spin"), "{picture}");
    let folded = file("busy.folded");
    let (code, _, said) = run(&["profile", "--seconds", "0.3", "-o", &folded, &worker]);
    assert!(code == Some(0) && said.contains(" % of 0.3 s"), "{said}");
    let stacks = std::fs::read_to_string(&folded).unwrap();
    assert!(stacks.lines().any(|line| line.contains("spin")), "{stacks}");
    assert!(!stacks.contains("fiber-runtime"), "{stacks}");
    let piped = out(&["profile", "--seconds", "0.3", "-o", "-", &worker]);
    assert!(piped.contains("<svg"), "{piped}");
    let (code, _, errors) = run(&["profile", "-o", "/no/such/directory/x.svg", &worker]);
    assert!(code == Some(1) && errors.contains("/no/such/directory"), "{errors}");
}

#[trial]
fn the_last_output_of_a_worker_is_known() {
    let program = start();
    let worker = spinner(&program);
    assert!(out(&["logs", &worker]).contains("a worker speaks"));
    let (code, _, errors) = run(&["logs", &pid(&program)]);
    assert!(code == Some(1) && errors.contains("where it was started"), "{errors}");
    let (code, _, errors) = run(&["logs", "--follow", &worker]);
    assert!(code == Some(1) && errors.contains("`log_dir`"), "{errors}");
}

#[trial]
fn a_worker_and_a_session_can_be_killed() {
    let program = start();
    let worker = spinner(&program);
    let said = out(&["kill", "--now", &worker]);
    assert!(said.contains(&format!("a process of pid {}", program.pid())), "{said}");
    look_until(&program, "its end is told", |session| {
        let events = session["events"].as_array().into_iter().flatten();
        events.into_iter().any(|event| event["event"] == "worker-ended")
    });
    let said = out(&["kill", &pid(&program)]);
    assert!(said.contains(&format!("Killed pid {} and its workers", program.pid())), "{said}");
    // Checks that no process is left.
    program.end();
}

#[trial]
fn each_command_takes_the_name_of_a_host_and_of_a_process_in_it() {
    let program = Setup::new("busy").env("FIBER_PROCESSES_PER_JOB", "3").start();
    program.line("ready");
    let own = |name: &str| format!("{}/{name}", program.pid());
    let process = |name: &str| -> Value {
        let session = listed(&out(&["ps", "--json"]), &format!("pid {}", program.pid()));
        let mut all = session["workers"].as_array().unwrap().iter();
        all.find(|process| process["name"] == name).cloned().unwrap_or_default()
    };
    let (host, worker) = (process("squares/host-1"), process("squares/worker-2"));
    let place = worker["place"].as_str().unwrap();
    assert!(place.ends_with(" in squares/host-1"), "{place}");
    assert_eq!(host["parent"], format!("pid {}", program.pid()).as_str());
    assert_eq!((&host["machine"], host["machine"].is_string()), (&worker["machine"], true));
    for name in ["squares/host-1", "squares/worker-2"].map(own) {
        assert!(out(&["stack", &name]).contains("fiber-runtime"), "{name}");
        out(&["logs", &name]);
        for command in ["attach", "wait"] {
            let (code, _, errors) = run(&[command, &name]);
            assert!(code == Some(1) && errors.contains("is a process of pid"), "{errors}");
        }
    }
    let said = out(&["kill", "--now", &own("squares/worker-2")]);
    assert!(said.contains("Killed squares/worker-2 (pid"), "{said}");
    program.wait_until("its successor is in the host", || {
        let successor = process("squares/worker-2");
        successor["state"] == "running" && successor["place"] != worker["place"]
    });
    assert_eq!(process("squares/host-1")["place"], host["place"]);
    let said = out(&["kill", "--now", &own("squares/host-1")]);
    assert!(said.contains("Killed squares/host-1 (pid"), "{said}");
    program.wait_until("another host has its workers", || {
        let place = process("squares/worker-2")["place"].as_str().map(String::from);
        place.is_some_and(|place| place.ends_with(" in squares/host-2"))
    });
}

#[trial]
fn the_program_itself_is_the_bridge_to_its_inspector() {
    // A bridge looks for a program of its own job, where a machine has several.
    let job = std::process::id().to_string();
    let program = Setup::new("busy").env("JOB_ID", &job).start();
    program.line("ready");
    let own = std::env::current_exe().unwrap();
    let mut bridge = std::process::Command::new(own)
        .arg("--fiber-inspect")
        .env("JOB_ID", &job)
        .env_remove(fiber_test_support::program::SCENARIO)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it can be started");
    let mut lines = BufReader::new(bridge.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "fiber-inspect: ready");
    let mut stdin = bridge.stdin.take().unwrap();
    for _ in 0..2 {
        writeln!(stdin, "\"stats\"").unwrap();
        let answer: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert!(answer["ok"]["session"].is_string(), "{answer}");
        assert!(answer.to_string().contains("squares"), "{answer}");
    }
    // It ends with the command.
    drop(stdin);
    assert!(bridge.wait().unwrap().success());
}
