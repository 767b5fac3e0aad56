//! `fiber run`.

use fiber_test_support::following::{self, LOSSES, Loss};
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::Signal;

use super::session::{StartedSession, copied_program, output, own_name};
use super::{fiber, run};
use crate::cluster::SYSTEM;

#[trial]
fn an_attached_run_ends_as_its_program_does() {
    let name = own_name();
    let options = ["-a", "--name", &name, "--time", "2h", "-e", "GIVEN=a b"];
    let setup = run(&options, "exit 3").args(&["-a", "two words"]);
    let directory = setup.directory().display().to_string();
    let ending = setup.run().code(3).says(&[
        &format!("said in {directory}"),
        "given: Ok(\"a b\")",
        "arguments: [\"-a\", \"two words\"]",
        "complained",
    ]);
    assert!(ending.errors.contains(&format!("Created job: {name}")), "{}", ending.errors);
    assert_eq!((SYSTEM.job)(&name), None);
    run(&["-a"], "abort").run().code(128 + Signal::ABORT.as_raw());
}

/// Grid Engine queues a job again that exits with 99, and holds one that exits with 100.
#[trial]
fn each_exit_code_is_the_programs_own() {
    for code in [99, 100] {
        run(&["-a"], &format!("exit {code}")).run().code(code);
    }
}

#[trial]
fn the_output_of_an_attached_run_is_kept_if_it_fails() {
    let failed = StartedSession::under(own_name());
    let ending = run(&["-a", "--name", &failed.name], "exit 3").run().code(3);
    let kept = format!("The output of {} is kept in {}", failed.name, failed.record().display());
    assert!(ending.errors.contains(&kept), "{}", ending.errors);
    assert!(failed.output().contains("said in"));
    assert_eq!(failed.listed()["exit_code"], 3);
    fiber(&["kill", &failed.name]).run().code(0);
    assert_eq!(failed.files(), [""; 0]);

    let succeeded = StartedSession::under(own_name());
    let ending = run(&["-a", "--name", &succeeded.name], "exit 0").run().code(0);
    assert!(!ending.errors.contains("kept"), "{}", ending.errors);
    assert!(succeeded.listed().is_null());
    assert_eq!(succeeded.files(), [""; 0]);
}

#[trial]
fn the_environment_of_the_command_is_that_of_the_program() {
    let value = "a 'b' \"c\" $HOME, x=y";
    let ending = run(&["-a"], "exit 0").env("GIVEN", value).run().code(0);
    assert!(ending.out.contains(&format!("given: Ok({value:?})")), "{}", ending.out);
}

#[trial]
fn workers_run_on_all_machines_of_the_job() {
    run(&[SYSTEM.wide, &["-a"]].concat(), "cores").run().code(0).says(&["workers: 4"]);
}

#[trial]
fn a_program_that_the_machines_lack_is_named_with_the_remedy() {
    let (folder, program) = copied_program();
    let started = StartedSession::of(&program, &[SYSTEM.hold], "ready");
    drop(folder);
    started.release();
    fiber(&["wait", &started.name]).run().code(127);
    let printed = started.output();
    let missing = format!(" has no program {}: ", program.display());
    assert!(printed.contains("fiber: the node n") && printed.contains(&missing), "{printed}");
    assert!(printed.contains(SYSTEM.missing), "{printed}");
}

#[trial]
fn each_host_has_a_file_of_output_beside_the_sessions() {
    let wide = [SYSTEM.wide, &["-e", "FIBER_OUTPUT=file"]].concat();
    let started = StartedSession::new(&wide, "speak");
    fiber(&["wait", &started.name]).run().code(0);
    assert!(!started.output().contains("a worker speaks"), "{}", started.output());
    let hosts = started.record().with_extension("hosts");
    let files = std::fs::read_dir(&hosts).expect("it is a folder").flatten();
    let texts = files.map(|file| std::fs::read_to_string(file.path()).expect("it can be read"));
    let spoken: Vec<usize> = texts.map(|text| text.matches("a worker speaks").count()).collect();
    assert_eq!(spoken, [2, 2]);
    fiber(&["kill", &started.name]).run().code(0);
    assert_eq!(started.files(), [""; 0]);
    // An attached run has not printed it.
    let attached = StartedSession::under(own_name());
    let options = ["-a", "--name", &attached.name, "-e", "FIBER_OUTPUT=file"];
    let ending = run(&options, "speak").run().code(0);
    let hosts = attached.record().with_extension("hosts");
    assert!(ending.errors.contains(&format!(" and {}: ", hosts.display())), "{}", ending.errors);
}

#[trial]
fn a_command_that_is_lost_leaves_the_session() {
    let started = LOSSES.map(|loss| {
        let session = StartedSession::under(own_name());
        (loss, loss.start(run(&["-a", "--name", &session.name], "ready")), session)
    });
    let sessions = started.map(|(loss, command, session)| {
        let goes_on = format!("{0} goes on: `fiber attach {0}`", session.name);
        let ending = loss.lose(command);
        let is_told = matches!(loss, Loss::Signal(signal) if signal == Signal::HUP);
        assert!(!is_told || ending.errors.contains(&goes_on), "{}", ending.errors);
        session
    });
    following::can_be_ended(&sessions[0].name, fiber);
    for session in &sessions {
        assert_eq!(session.listed()["state"], "running");
        assert!(session.output().contains("ready"));
    }
}

#[trial]
fn a_signal_to_an_attached_run_and_a_lost_reader_end_the_session() {
    let run = || {
        let session = StartedSession::under(own_name());
        let setup = run(&["-a", "--name", &session.name], "ready");
        (session, setup)
    };
    let cells = [&[Signal::TERM][..], &[Signal::INT], &[Signal::INT, Signal::TERM]];
    let started = cells.map(|signals| {
        let (session, setup) = run();
        // A second signal skips it.
        let grace = if signals.len() > 1 { "1h" } else { "10s" };
        (session, setup.env("FIBER_SHUTDOWN_TIMEOUT", grace).start(), signals)
    });
    let (unread, setup) = run();
    let program = setup.start_unread();
    for (session, program, signals) in started {
        program.line("ready: 2");
        signals.iter().for_each(|signal| program.signal(*signal));
        program.end().code(128 + signals[0].as_raw());
        assert_eq!(((SYSTEM.job)(&session.name), session.files()), (None, Vec::new()));
    }
    program.end().code(128 + Signal::PIPE.as_raw());
    assert_eq!(((SYSTEM.job)(&unread.name), unread.files()), (None, Vec::new()));
}

#[trial]
fn a_dry_run_prints_a_script_that_the_batch_system_takes() {
    let (options, lines) = SYSTEM.described;
    let options = [&["run", "--dry-run"], options, &["/bin/echo", "it's me"]].concat();
    let script = output(fiber(&options));
    let own = r#"    exec $fiber_plain /bin/echo "it's me" <&3 2>&4 3<&- 4>&-"#;
    for line in lines.iter().chain([&own]) {
        assert!(script.lines().any(|other| other == *line), "`{line}` is missing in:\n{script}");
    }
    (SYSTEM.verify)(&script);
}

#[trial]
fn a_program_that_fails_is_queued_again() {
    let started = StartedSession::new(&["--restarts", "1"], "restarts");
    let attached = fiber(&["attach", "--from-start", &started.name]).start();
    attached.line("start 0");
    started.wait_until("it ends again", |session| {
        let job = (SYSTEM.job)(&started.name).filter(|_| session["state"] == "starting");
        job.iter().for_each(|job| (SYSTEM.hurry)(job));
        session["state"] == "ended"
    });
    attached.line("start 1");
    attached.end().code(7);
    let ended = started.listed();
    assert_eq!((&ended["exit_code"], &ended["restarts"]), (&7.into(), &1.into()), "{ended:#}");
    fiber(&["kill", &started.name]).run().code(0);
    wait_until("it is gone", || started.listed().is_null());
    assert_eq!(started.files(), [""; 0]);
}

#[trial]
fn a_session_that_is_killed_is_not_queued_again() {
    let started = StartedSession::new(&["--restarts", "9"], "ready");
    fiber(&["logs", "--follow", &started.name]).start().line("ready: 2");
    fiber(&["kill", &started.name]).run().code(0);
    assert_eq!(((SYSTEM.job)(&started.name), started.files()), (None, Vec::new()));
}
