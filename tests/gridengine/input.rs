//! Jobs that can't be used: errors that name the reason and the remedy.

use fiber_test_support::command::output;
use fiber_test_support::program::SCENARIO;
use fiber_test_support::{WARNINGS, trial};

use crate::job::{Job, TWO_HOSTS, line};

#[track_caller]
fn says(out: &str, words: &[&str]) {
    for word in words {
        assert!(out.contains(word), "{word}: {out}");
    }
}

#[trial]
fn outside_of_a_job_the_error_says_so() {
    let executable = std::env::current_exe().expect("this binary is somewhere");
    let executable = executable.display().to_string();
    let arguments = [&*format!("{SCENARIO}=pi"), "FIBER_BACKEND=gridengine", &executable];
    let error = output("env", &arguments, "").expect_err("there are no hosts");
    says(&error, &["in no job of Grid Engine", "qsub -pe NAME SLOTS", "qconf -spl"]);
}

#[trial]
fn a_job_without_a_parallel_environment_is_named() {
    let out = Job::submit(&[], &line("one task", "")).succeeds();
    says(&out, &["error: ", "no parallel environment", "qsub -pe NAME SLOTS"]);
}

/// The hosts that can't be used are left out.
#[track_caller]
fn works_alone(options: &[&str], before: &str, variables: &str, words: &[&str]) {
    let line = line("work", &format!("{WARNINGS}=1 {variables}"));
    let out = Job::submit(options, &format!("{before}\n{line}")).succeeds();
    says(&out, &["right: true", "no host could be started on `n"]);
    says(&out, words);
}

#[trial]
fn hosts_where_grid_engine_starts_no_tasks_are_left_out() {
    let words = ["didn't accept task", "`control_slaves TRUE`"];
    works_alone(&["-pe", "loose", "2"], "", "", &words);
}

#[trial]
fn a_missing_qrsh_is_named() {
    let variables = "SGE_ROOT=/does/not/exist PATH=$PWD/commands";
    let words = ["there is no command `qrsh`", "settings.sh"];
    works_alone(TWO_HOSTS, "mkdir commands\nln -s /bin/sh commands", variables, &words);
}

#[trial]
fn a_host_that_does_not_exist_is_left_out() {
    let list = "echo \"$(hostname) 2 main.q@x UNDEFINED\" >list\necho 'n9 2 main.q@n9' >>list";
    let variables = "PE_HOSTFILE=$PWD/list FIBER_BIND_HOST=127.0.0.1";
    works_alone(TWO_HOSTS, list, variables, &["started on `n9`", "can't resolve host name"]);
}

#[trial]
fn a_list_of_hosts_that_is_none_is_named() {
    let lines = format!("echo n1 many >list\n{}", line("one task", "PE_HOSTFILE=$PWD/list"));
    let out = Job::submit(TWO_HOSTS, &lines).succeeds();
    says(&out, &["error: ", "PE_HOSTFILE", "`n1 many`"]);
    let out = Job::submit(TWO_HOSTS, &line("one task", "PE_HOSTFILE=/does/not/exist")).succeeds();
    says(&out, &["error: ", "PE_HOSTFILE: /does/not/exist can't be read"]);
}

#[trial]
fn a_directory_that_hosts_lack_is_named() {
    let variables = "FIBER_WORKING_DIR=/does/not/exist";
    let out = Job::submit(TWO_HOSTS, &line("one task", variables)).succeeds();
    says(&out, &["error: ", "it can't enter /does/not/exist,", "`working_dir`"]);
}
