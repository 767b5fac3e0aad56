//! `fiber run`.

use fiber_test_support::trial;
use rustix::process::Signal;

use crate::cluster::{fiber, grid, job, run};
use crate::session::{StartedSession, output, own_name};

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
    assert_eq!(job(&name), None);
    run(&["-a"], "abort").run().code(128 + Signal::ABORT.as_raw());
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
fn workers_run_on_all_hosts_of_the_job() {
    run(&["-a", "--slots", "6"], "cores").run().code(0).says(&["workers: 6"]);
}

#[trial]
fn a_program_that_the_hosts_lack_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().expect("there is room");
    let program = folder.path().join("lab");
    let own = std::env::current_exe().expect("this binary is somewhere");
    std::fs::copy(own, &program).expect("there is room");
    let started = StartedSession::of(&program, &["--gridengine=-h"], "ready");
    drop(folder);
    started.release();
    fiber(&["wait", &started.name]).run().code(127);
    let said = started.output();
    assert!(said.contains("has no program") && said.contains("that all hosts share"), "{said}");
    fiber(&["kill", &started.name]).run().code(0);
}

#[trial]
fn a_dry_run_prints_what_qsub_takes() {
    let script = output(run(&["--dry-run", "--time", "90s", "--queue", "main.q"], "exit 0"));
    for line in ["#!/bin/sh", "#$ -pe fiber 2", "#$ -l h_rt=90", "#$ -q main.q", "#$ -notify"] {
        assert!(script.lines().any(|other| other == line), "`{line}` is missing in:\n{script}");
    }
    assert!(script.contains("export FIBER_BACKEND=gridengine"), "{script}");
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("script");
    std::fs::write(&file, &script).expect("there is room");
    let verified = grid("qsub", &["-verify", &file.display().to_string()]);
    for words in ["h_rt=90", "fiber range: 2", "hard_queue_list:            main.q"] {
        assert!(verified.contains(words), "`{words}` is missing in:\n{verified}");
    }
}
