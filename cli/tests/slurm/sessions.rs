//! Commands on sessions of Slurm alone.

use std::fs;
use std::path::Path;

use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::Signal;
use serde_json::Value;

use crate::batch::session::{StartedSession, output, own_name};
use crate::batch::{fiber, run_program};
use crate::cluster::{SYSTEM, slurm, squeue_with};

#[trial]
fn a_host_is_a_step_and_another_one_takes_its_place() {
    let started = StartedSession::new(&[], "ready");
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.line("ready: 2");
    following.line("a worker speaks");
    let listed = started.listed();
    let host = |session: &Value| session["workers"][0].clone();
    let step = |session: &Value| host(session)["place"].as_str().map(String::from);
    let first = step(&listed).expect("it has a host");
    let id = (SYSTEM.job)(&started.name).expect("it has a job");
    assert!(first.starts_with(&format!("step {id}.")), "{first}");
    let machine = listed["machine"].as_str().expect("it has a node");
    let name = format!("host-{machine}");
    assert_eq!(
        (&host(&listed)["name"], &host(&listed)["machine"]),
        (&name.as_str().into(), &machine.into())
    );
    let whole = format!("{}/{name}", started.name);
    fiber(&["kill", "--now", &whole]).run().code(0).says(&[&name, &first, &started.name]);
    started
        .wait_until("it was replaced", |session| step(session).is_some_and(|step| step != first));
    wait_until("its workers are ready", || {
        output(fiber(&["top", "--once", &started.name])).contains("2/2")
    });
    // The output of workers comes in its own time.
    following.line("a worker speaks");
    fiber(&["kill", &started.name]).run().code(0);
    following.end();
}

/// All nodes of these tests are this machine, so the head is one of its programs, too.
#[trial]
fn a_head_on_this_machine_is_listed_once() {
    let started = StartedSession::new(&[], "ready");
    let ready = fiber(&["logs", "--follow", &started.name]).start();
    ready.line("ready: 2");
    let look: Value = serde_json::from_str(&output(fiber(&["top", "--json", &started.name])))
        .expect("it is JSON");
    let head = look["sessions"][0]["processes"][0]["pid"].as_u64().expect("it has a pid");
    let listed: Value =
        serde_json::from_str(&output(fiber(&["ps", "--json"]))).expect("it is JSON");
    let listed = listed.as_array().expect("it is a list").iter();
    let names: Vec<&Value> = listed.map(|session| &session["name"]).collect();
    let (own, twin) = (Value::from(started.name.as_str()), Value::from(format!("pid {head}")));
    assert!(names.contains(&&own) && !names.contains(&&twin), "{names:?}");
}

#[trial]
fn an_exit_code_is_known_when_slurm_has_forgotten_the_job() {
    let (fails, succeeds) =
        (StartedSession::new(&[], "exit 3"), StartedSession::new(&[], "exit 0"));
    fiber(&["wait", &succeeds.name, &fails.name]).run().code(3);
    let hidden = format!("$real \"$@\" | grep -v -e {} -e {}; true", fails.name, succeeds.name);
    let (_folder, path) = squeue_with(&hidden);
    let late = |arguments: &[&str]| fiber(arguments).env("PATH", &path);
    let listed: Value = serde_json::from_str(&output(late(&["ps", "--json"]))).expect("it is JSON");
    for (session, code) in [(&fails, 3), (&succeeds, 0)] {
        let sessions = listed.as_array().expect("it is a list");
        let shown = sessions.iter().find(|shown| shown["name"] == session.name.as_str());
        let shown = shown.expect("its output is left");
        assert_eq!((&shown["state"], &shown["exit_code"]), (&"ended".into(), &code.into()));
        assert!(
            shown["place"].as_str().is_some_and(|place| place.starts_with("job ")),
            "{shown:#}"
        );
        late(&["wait", &session.name]).run().code(code);
        let name = &session.name;
        late(&["attach", "--from-start", name]).run().code(code).says(&["said in"]);
        late(&["logs", name]).run().code(0).says(&["said in"]);
        late(&["kill", name]).run().code(0);
        assert_eq!(session.files(), [""; 0]);
    }
}

#[trial]
fn signals_reach_the_head_as_slurm_sends_them() {
    let started = StartedSession::under(own_name());
    let program = "for name in HUP INT USR1 USR2 TERM; do trap \"echo got $name\" $name; done; \
                   echo ready; while :; do sleep 0.1; done";
    output(
        run_program(Path::new("/bin/sh"), &["--name", &started.name], "").args(&["-c", program]),
    );
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.line("ready");
    let job = (SYSTEM.job)(&started.name).expect("it has a job");
    let send = |options: &[&str]| slurm("scancel", &[options, &[&job]].concat());
    // To the batch script alone.
    for name in ["USR1", "INT", "TERM"] {
        send(&["--batch", &format!("--signal={name}")]);
        following.line(&format!("got {name}"));
    }
    // To all processes, and that is once for each. A second one would come before the next.
    send(&["--full", "--signal=USR2"]);
    following.line("got USR2");
    send(&["--batch", "--signal=HUP"]);
    following.line("got HUP");
    // As at the time limit, and when it is preempted.
    send(&[]);
    following.line("got TERM");
    following.end();
    let printed = started.output();
    let count = |name: &str| printed.matches(&format!("got {name}\n")).count();
    assert_eq!(["USR1", "INT", "USR2", "HUP", "TERM"].map(count), [1, 1, 1, 1, 2], "{printed}");
}

#[trial]
fn a_suspended_session_says_how_to_go_on_and_ends_in_order() {
    let folder = tempfile::tempdir().expect("there is room");
    let asked = folder.path().join("asked");
    let started = StartedSession::under(own_name());
    let program = format!(
        "trap 'touch {}; exit 0' TERM; echo ready; while :; do sleep 0.1; done",
        asked.display()
    );
    let options = ["--name", &started.name];
    output(run_program(Path::new("/bin/sh"), &options, "").args(&["-c", &program]));
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.line("ready");
    let job = (SYSTEM.job)(&started.name).expect("it has a job");
    slurm("scontrol", &["suspend", &job]);
    let listed = started.wait_until("it is suspended", |session| session["state"] == "paused");
    assert_eq!(listed["detail"], format!("scontrol resume {job}"));
    started.can_not_be_asked(&format!("is paused: `scontrol resume {job}` lets it go on"));
    fiber(&["kill", &started.name]).run().code(0);
    assert_eq!(((SYSTEM.job)(&started.name), started.files()), (None, Vec::new()));
    assert!(asked.exists(), "it was killed without a word");
    following.end();
}

#[trial]
fn a_session_whose_record_is_gone_is_waited_for() {
    let started = StartedSession::new(&[], "ready");
    let ready = fiber(&["logs", "--follow", &started.name]).start();
    ready.line("ready: 2");
    // Counts the questions about jobs.
    let (folder, path) = squeue_with("echo >>$(dirname \"$0\")/asked; exec $real \"$@\"");
    let asked = folder.path().join("asked");
    let waiting = fiber(&["wait", &started.name]).env("PATH", path).start();
    wait_until("the session was found, and looked at once more", || {
        fs::read(&asked).is_ok_and(|asked| asked.len() >= 4)
    });
    // `fiber kill` removes it, too, at the end.
    fs::remove_file(started.record()).expect("it is there");
    fiber(&["kill", "--now", &started.name]).run().code(0);
    // Slurm reports the signal if the program has ended before the job is cancelled.
    let code = waiting.end().exit_code().expect("it ends by itself");
    assert!([Signal::KILL, Signal::TERM].map(|signal| 128 + signal.as_raw()).contains(&code));
    ready.end();
}

#[trial]
fn output_can_be_read_while_slurm_does_not_answer() {
    let started = StartedSession::new(&[], "ready");
    fiber(&["logs", "--follow", &started.name]).start().line("ready: 2");
    let own = std::env::var("SLURM_CONF").expect("the test cluster has a file");
    let own = fs::read_to_string(own).expect("it can be read");
    // No daemon listens at this port.
    let deaf = |line: &str| match line.starts_with("SlurmctldPort=") {
        true => "SlurmctldPort=1\n".to_string(),
        false => format!("{line}\n"),
    };
    let file = tempfile::NamedTempFile::new().expect("there is room");
    fs::write(&file, own.lines().map(deaf).collect::<String>()).expect("there is room");
    let setup = fiber(&["logs", &started.name]).env("SLURM_CONF", file.path());
    let ending = setup.run().code(0);
    let ending = ending.says(&["ready: 2"]);
    assert!(ending.errors.contains("the output of"), "{}", ending.errors);
    fiber(&["kill", &started.name]).run().code(0);
}
