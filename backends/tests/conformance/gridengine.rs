//! A job of Grid Engine, whose tasks are the jobs of `gridengine`.

use std::process::{Command, ExitCode};

/// The slots of all of two hosts: tests start many tasks at once.
const SLOTS: &str = "32";

/// Runs this program again in a job for the promises of `gridengine`, if that is among the backends
/// and this is not the job, and removes it from them.
pub(crate) fn run_in_a_job_if_asked(wanted: &mut Vec<&str>) -> ExitCode {
    if !wanted.contains(&"gridengine") || is_in_a_job() {
        return ExitCode::SUCCESS;
    }
    wanted.retain(|name| *name != "gridengine");
    let enter = std::env::var_os("TEST_GRIDENGINE").expect("TEST_GRIDENGINE enters its hosts");
    let directory = tempfile::TempDir::new().expect("there is room");
    let output = directory.path().join("output");
    let mut submit = Command::new(enter);
    // The job has this environment (`-V`), which wins over single variables (`-v`).
    submit.env("TEST_BACKENDS", "gridengine");
    submit.args(["head", "qsub", "-sync", "y", "-V", "-j", "y", "-pe", "wide", SLOTS]);
    submit.args(["-shell", "n", "-b", "y", "-o"]).arg(&output).arg("-wd");
    submit.arg(directory.path()).arg(std::env::current_exe().expect("it has a path"));
    let ended = submit.args(std::env::args_os().skip(1)).output();
    let ended = ended.expect("`make gridengine-up` installs Grid Engine");
    print!("{}", std::fs::read_to_string(&output).unwrap_or_default());
    if !ended.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&ended.stderr));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

pub(crate) fn is_in_a_job() -> bool {
    std::env::var_os("PE_HOSTFILE").is_some()
}

/// Returns a host of the job that is not the one of this process.
pub(crate) fn other_host() -> Option<String> {
    let list = std::fs::read_to_string(std::env::var_os("PE_HOSTFILE")?).expect("it is there");
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hosts = list.lines().filter_map(|line| line.split_whitespace().next());
    hosts.filter(|host| **host != own).map(String::from).next()
}
