//! The promises of backends, kept by this one in a job of Grid Engine.
//!
//! `TEST_BACKENDS` has to name `gridengine`, and `TEST_GRIDENGINE` the script that runs commands on
//! hosts of a cluster. The test runs itself in a job there, whose tasks are the jobs of the promises.

use std::process::{Command, ExitCode};

use fiber::backend::conformance::{self, Promise};
use fiber::config::Config;
use libtest_mimic::{Arguments, Trial};

/// The slots of all of two hosts: tests start many tasks at once.
const SLOTS: &str = "32";

fn main() -> ExitCode {
    fiber::init();
    if let Some(code) = conformance::run_if_job() {
        std::process::exit(code);
    }
    let arguments = Arguments::from_args();
    let wanted = std::env::var("TEST_BACKENDS").unwrap_or_default();
    let is_wanted = wanted.split(',').any(|name| name.trim() == "gridengine");
    if !is_wanted {
        eprintln!("SKIPPED: the promises of `gridengine`; TEST_BACKENDS=gridengine enables them");
    } else if !arguments.list && !is_in_a_job() {
        return run_in_a_job();
    }
    let trial = |promise: &'static Promise| {
        let keeps = move || {
            let mut config = Config::default();
            config.backend = "gridengine".into();
            let host = other_host().expect("the job has a second host");
            promise.check_on(&config, host);
            Ok(())
        };
        let name = format!("gridengine::{}", promise.name());
        Trial::test(name, keeps).with_ignored_flag(!is_wanted)
    };
    libtest_mimic::run(&arguments, conformance::ALL.iter().map(trial).collect()).exit_code()
}

/// Runs this program again in a job, and prints what it says there.
fn run_in_a_job() -> ExitCode {
    let enter = std::env::var_os("TEST_GRIDENGINE").expect("TEST_GRIDENGINE enters its hosts");
    let directory = tempfile::TempDir::new().expect("there is room");
    let output = directory.path().join("output");
    let mut submit = Command::new(enter);
    // The job has this environment (`-V`).
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

fn is_in_a_job() -> bool {
    std::env::var_os("PE_HOSTFILE").is_some()
}

/// Returns a host of the job that is not the one of this process.
fn other_host() -> Option<String> {
    let list = std::fs::read_to_string(std::env::var_os("PE_HOSTFILE")?).expect("it is there");
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hosts = list.lines().filter_map(|line| line.split_whitespace().next());
    hosts.filter(|host| **host != own).map(String::from).next()
}
