//! `fiber run` on Slurm alone.

use fiber_test_support::trial;

use crate::batch::session::{StartedSession, copied_program, found, output, own_name};
use crate::batch::{fiber, run_program};
use crate::cluster::slurm;

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
fn a_map_runs_its_commands_on_all_nodes() {
    // Each of the four workers runs one: none ends before all have begun.
    let script =
        "touch in-$0; until set -- in-*; [ $# = 4 ]; do sleep 0.1; done; echo $SLURMD_NODENAME";
    let map = ["map", "--", "sh", "-c", script, ":::", "1", "2", "3", "4"];
    let run = ["run", "-a", "--nodes", "2", "--cpu", "2", "-e", "TMPDIR=/tmp"];
    let nodes = output(fiber(&[&run[..], &[env!("CARGO_BIN_EXE_fiber")], &map].concat()));
    let mut nodes: Vec<&str> = nodes.lines().collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert!(nodes.len() == 2 && nodes.iter().all(|node| node.starts_with('n')), "{nodes:?}");
}
