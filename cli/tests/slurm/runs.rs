//! `fiber run`.

use rustix::process::Signal;

use crate::cluster::{StartedSession, fiber, job, output, own_name, run, slurm};
use crate::wait::wait_until;

crate::tests![
    an_attached_run_ends_as_its_program_does,
    a_run_is_one_job_whatever_the_environment_says,
    workers_run_on_all_nodes,
    a_map_runs_its_commands_on_all_nodes,
    a_signal_ends_the_whole_session,
    a_dry_run_prints_a_script_that_slurm_takes,
    a_program_that_fails_is_queued_again,
];

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
    // Neither the job nor its record is left.
    assert_eq!(job(&name), None);
    assert!(StartedSession::under(name).listed().is_null());
    run(&["-a"], "abort").run().code(128 + Signal::ABORT.as_raw());
}

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

fn workers_run_on_all_nodes() {
    // One for each of the two cores that the job has on a node.
    run(&["-a", "--nodes", "2"], "cores").run().code(0).says(&["workers: 4"]);
}

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

fn a_signal_ends_the_whole_session() {
    let name = own_name();
    let program = run(&["-a", "--name", &name], "ready").start();
    program.line("ready: 2");
    program.signal(Signal::TERM);
    program.end().code(128 + Signal::TERM.as_raw());
    assert_eq!(job(&name), None);
}

fn a_dry_run_prints_a_script_that_slurm_takes() {
    let options = ["--dry-run", "--nodes", "2", "--time", "90m", "--slurm=--mail-type=END"];
    let script = output(fiber(&[&["run"], &options[..], &["/bin/echo", "it's me"]].concat()));
    for line in [
        "#SBATCH --nodes=2",
        "#SBATCH --time=0-01:30:00",
        "#SBATCH --mail-type=END",
        "export FIBER_BACKEND=slurm",
        r"exec /bin/echo 'it'\''s me'",
    ] {
        assert!(script.lines().any(|other| other == line), "`{line}` is missing in:\n{script}");
    }
    crate::command::output("sbatch", &["--test-only"], &script).expect("it is valid");
}

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
        let _ = crate::command::output("scontrol", &["update", begin[0], begin[1]], "");
        session["state"] == "ended"
    });
    attached.line("start 1");
    attached.end().code(7);
    let ended = started.wait_until("it has ended", |session| session["state"] == "ended");
    assert_eq!((&ended["exit_code"], &ended["restarts"]), (&7.into(), &1.into()), "{ended:#}");
    fiber(&["kill", &started.name]).run().code(0);
    wait_until("it is gone", || started.listed().is_null());
}
