//! `fiber run`.

use std::path::PathBuf;

use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::cluster::{fiber, job, run, run_program, slurm};
use crate::session::{StartedSession, found, output, own_name};

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

/// Returns this binary in a folder of its own, under a name of its own.
fn copied_program() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("there is room");
    let program = folder.path().join(format!("lab-{}", own_name()));
    let own = std::env::current_exe().expect("this binary is somewhere");
    std::fs::copy(own, &program).expect("there is room");
    (folder, program)
}

#[trial]
fn a_copy_of_the_program_runs_where_the_program_is_not() {
    let (folder, program) = copied_program();
    let name = program.file_name().and_then(|name| name.to_str()).expect("it has one");
    let options = ["--nodes", "2", "-e", "FIBER_SLURM_COPY=true", "--slurm=--hold"];
    let started = StartedSession::of(&program, &options, "ready");
    drop(folder);
    started.release();
    let following = fiber(&["logs", "--follow", &started.name]).start();
    following.line("ready: 2");
    assert_eq!(started.listed()["program"], name);
    // The way to the head starts the program once more.
    assert!(output(fiber(&["top", "--once", &started.name])).contains("2/2"));
    assert_eq!(found(name).len(), 1);
    fiber(&["kill", &started.name]).run().code(0);
    following.end();
    assert_eq!(found(name), [""; 0]);

    // A run that fails keeps its output, but no copy.
    let (_folder, program) = copied_program();
    let name = program.file_name().and_then(|name| name.to_str()).expect("it has one");
    run_program(&program, &["-a", "-e", "FIBER_SLURM_COPY=true"], "exit 3").run().code(3);
    assert_eq!(found(name), [""; 0]);
}

#[trial]
fn a_program_that_the_nodes_lack_is_named_with_the_remedy() {
    let (folder, program) = copied_program();
    let started = StartedSession::of(&program, &["--slurm=--hold"], "ready");
    drop(folder);
    started.release();
    fiber(&["wait", &started.name]).run().code(127);
    let printed = started.output();
    let missing = format!(" has no program {}: ", program.display());
    assert!(printed.contains("fiber: the node n") && printed.contains(&missing), "{printed}");
    assert!(printed.contains("set `slurm.copy = true`"), "{printed}");
}

#[trial]
fn a_working_directory_that_the_nodes_lack_is_named() {
    let mut started = StartedSession::new(&["--slurm=--hold"], "exit 3");
    drop(started.directory.take());
    started.release();
    fiber(&["wait", &started.name]).run().code(3);
    let printed = started.output();
    assert!(printed.contains("can't enter the working directory /"), "{printed}");
    assert!(
        printed.contains("--slurm=--chdir=") && printed.contains("said in /tmp\n"),
        "{printed}"
    );
    // One that they have is nothing to speak of.
    let fine = StartedSession::new(&["--slurm=--chdir=/"], "exit 0");
    fiber(&["wait", &fine.name]).run().code(0);
    let printed = fine.output();
    assert!(!printed.contains("working directory") && printed.contains("said in /\n"), "{printed}");
}

#[trial]
fn each_host_has_a_file_of_output_beside_the_sessions() {
    let started = StartedSession::new(&["--nodes", "2", "-e", "FIBER_OUTPUT=file"], "speak");
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
fn a_run_is_one_job_whatever_the_environment_says() {
    let name = own_name();
    let setup = fiber(&["run", "--name", &name, "--slurm=--begin=now+1hour", "/bin/true"]);
    output(setup.env("SBATCH_ARRAY_INX", "1-3").env("SBATCH_WAIT", "1"));
    let started = StartedSession::under(name);
    let jobs =
        slurm("squeue", &["--noheader", "--array", "--name", &started.name, "--format", "%i"]);
    assert_eq!(jobs.lines().count(), 1, "{jobs}");
    assert!(!jobs.contains('_'), "{jobs}");
}

#[trial]
fn workers_run_on_all_nodes() {
    // One for each of the two cores that the job has on a node.
    run(&["-a", "--nodes", "2"], "cores").run().code(0).says(&["workers: 4"]);
}

#[trial]
fn a_map_runs_its_commands_on_all_nodes() {
    // Each of the four workers runs one, if they take longer than the start of the slowest.
    let map =
        ["map", "--", "sh", "-c", "sleep 2; echo $SLURMD_NODENAME", ":::", "1", "2", "3", "4"];
    let run = ["run", "-a", "--nodes", "2", "--cpu", "2", "-e", "TMPDIR=/tmp"];
    let nodes = output(fiber(&[&run[..], &[env!("CARGO_BIN_EXE_fiber")], &map].concat()));
    let mut nodes: Vec<&str> = nodes.lines().collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert!(nodes.len() == 2 && nodes.iter().all(|node| node.starts_with('n')), "{nodes:?}");
}

#[trial]
fn a_signal_ends_the_whole_session() {
    let name = own_name();
    let program = run(&["-a", "--name", &name], "ready").start();
    program.line("ready: 2");
    program.signal(Signal::TERM);
    program.end().code(128 + Signal::TERM.as_raw());
    assert_eq!(job(&name), None);
}

#[trial]
fn a_dry_run_prints_a_script_that_slurm_takes() {
    let options = ["--dry-run", "--nodes", "2", "--time", "90m", "--slurm=--mail-type=END"];
    let script = output(fiber(&[&["run"], &options[..], &["/bin/echo", "it's me"]].concat()));
    for line in [
        "#SBATCH --nodes=2",
        "#SBATCH --time=0-01:30:00",
        "#SBATCH --mail-type=END",
        "export FIBER_BACKEND=slurm",
        r#"    exec $fiber_plain /bin/echo "it's me" <&3 2>&4 3<&- 4>&-"#,
    ] {
        assert!(script.lines().any(|other| other == line), "`{line}` is missing in:\n{script}");
    }
    fiber_test_support::command::output("sbatch", &["--test-only"], &script).expect("it is valid");
}

#[trial]
fn a_program_that_fails_is_queued_again() {
    let started = StartedSession::new(&["--restarts", "1"], "restarts");
    let attached = fiber(&["attach", "--from-start", &started.name]).start();
    attached.line("start 0");
    started.wait_until("it is queued again", |session| session["restarts"] == 1);
    let job = job(&started.name).expect("it is queued");
    started.wait_until("it ends again", |session| {
        // Slurm lets jobs that are queued again wait for two minutes, from the end of their nodes'
        // work on.
        let begin = [&format!("JobId={job}"), "StartTime=now"];
        let _ =
            fiber_test_support::command::output("scontrol", &["update", begin[0], begin[1]], "");
        session["state"] == "ended"
    });
    attached.line("start 1");
    attached.end().code(7);
    let ended = started.wait_until("it has ended", |session| session["state"] == "ended");
    assert_eq!((&ended["exit_code"], &ended["restarts"]), (&7.into(), &1.into()), "{ended:#}");
    fiber(&["kill", &started.name]).run().code(0);
    wait_until("it is gone", || started.listed().is_null());
}
