//! Programs in allocations.

use fiber_test_support::command::output;
use fiber_test_support::program::SCENARIO;
use fiber_test_support::{TOGETHER, trial};

use crate::batch::{Batch, line, slurm};

#[trial]
fn pi_in_a_batch_job() {
    let out = Batch::run("pi").succeeds();
    assert_eq!(out, "pi: 3.14\n");
}

#[trial]
fn objects_of_all_kinds_reach_across_nodes() {
    let out = Batch::run("together").succeeds();
    for words in TOGETHER {
        assert!(out.contains(words), "{words}: {out}");
    }
}

#[trial]
fn srun_that_starts_several_heads_is_named() {
    let job = Batch::submit(&[], &format!("srun --nodes=2 --ntasks=2 {}", line("pi")));
    let out = job.succeeds();
    assert_eq!(out.matches("pi: 3.14").count(), 2, "{out}");
    assert_eq!(out.matches("`srun` runs this program 2 times").count(), 1, "{out}");
}

#[trial]
fn pi_in_salloc() {
    let executable = std::env::current_exe().expect("this binary is somewhere");
    let executable = executable.display().to_string();
    let variable = format!("{SCENARIO}=pi");
    let out = slurm(
        "salloc",
        &["--quiet", "-N2", "-c2", "-t5", "env", &variable, "FIBER_BACKEND=slurm", &executable],
    );
    assert_eq!(out, "pi: 3.14");
}

#[trial]
fn hosts_have_the_size_of_the_allocation() {
    let out = Batch::run("places").succeeds();
    assert!(out.contains("4 workers on 2 nodes"), "{out}");
    assert!(out.contains("the key is exported: false"), "{out}");
    if slurm("scontrol", &["show", "config"]).contains("task/cgroup") {
        assert!(out.contains("in the steps' cgroups: true"), "{out}");
    }
}

#[trial]
fn a_ring_that_follows_a_dropped_pool_is_spread() {
    let out = Batch::run("ring after pool").succeeds();
    assert_eq!(out.matches("a ring on 2 nodes").count(), 5, "{out}");
}

#[trial]
fn a_copy_of_the_program_leaves_nothing() {
    let job = Batch::submit(
        &[],
        &format!("export FIBER_SLURM_COPY=true\nexec {}", crate::batch::line("pi")),
    );
    assert_eq!(job.succeeds(), "pi: 3.14\n");
    let left = std::fs::read_dir("/tmp").expect("it exists").filter_map(Result::ok);
    let left: Vec<_> = left
        .filter(|file| file.file_name().to_string_lossy().ends_with(&format!("-of-{}", job.id)))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[trial]
fn a_plain_program_learns_of_the_time_limit() {
    let ends_at = "export SLURM_JOB_END_TIME=$(($(date +%s) + 13))";
    let line = crate::batch::line("unrecorded");
    let out = Batch::submit(&[], &format!("{ends_at}\nexec {line}")).succeeds();
    assert!(out.contains("in order: true"), "{out}");
    assert!(out.contains("no more tasks of `") && out.contains("time limit"), "{out}");
}

#[trial]
fn outside_of_an_allocation_the_error_says_so() {
    let executable = std::env::current_exe().expect("this binary is somewhere");
    let executable = executable.display().to_string();
    let arguments = [&*format!("{SCENARIO}=pi"), "FIBER_BACKEND=slurm", &executable];
    let error = output("env", &arguments, "").expect_err("there are no nodes");
    assert!(error.contains("no allocation of Slurm") && error.contains("salloc"), "{error}");
}

#[trial]
fn a_time_limit_lets_running_tasks_end() {
    // Slurm's own limits are minutes. Newer versions set this variable.
    let ends_at = "export SLURM_JOB_END_TIME=$(($(date +%s) + 16))";
    let line = crate::batch::line("recorded");
    let first = format!("{ends_at}\n{line}\necho \"code $?\"\nunset SLURM_JOB_END_TIME\n{line}");
    let out = Batch::submit(&[], &first).succeeds();
    assert!(out.contains("fiber: the time limit is near: "), "{out}");
    assert!(out.contains("code 75\n") && out.contains("right: true"), "{out}");
}

#[trial]
fn a_request_that_no_node_can_grant_is_refused_at_once() {
    let out = Batch::run("too wide").succeeds();
    let problem = "no machine is large enough for a process of 64 cores: the largest have 2 cores";
    assert!(out.contains(problem), "{out}");
}
