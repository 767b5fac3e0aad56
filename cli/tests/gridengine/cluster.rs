//! The cluster, seen through Grid Engine's own commands, and the command under test on it.

use std::path::Path;

use fiber_test_support::command;
use fiber_test_support::program::{SCENARIO, Setup};

use crate::session::state;

/// The name of the backend.
pub(crate) const BACKEND: &str = "gridengine";

fn enter() -> String {
    std::env::var("TEST_GRIDENGINE").expect("TEST_GRIDENGINE names the script that enters hosts")
}

/// Runs a command of Grid Engine on the host `head`.
///
/// # Errors
/// Its output.
pub(crate) fn try_grid(name: &str, arguments: &[&str]) -> Result<String, String> {
    command::output(&enter(), &[&["head", name], arguments].concat(), "")
}

/// Works as [`try_grid`] for a command that has to succeed.
#[track_caller]
pub(crate) fn grid(name: &str, arguments: &[&str]) -> String {
    try_grid(name, arguments).unwrap_or_else(|problem| panic!("{name} {arguments:?}: {problem}"))
}

/// Exits with an error if there is no cluster.
pub(crate) fn must_answer() {
    if let Err(problem) = try_grid("qstat", &["-f"]) {
        eprintln!(
            "error: no Grid Engine cluster answers: {problem}; `make gridengine-up` starts one"
        );
        std::process::exit(1);
    }
}

/// Returns the command on the host `head`, in an empty directory.
pub(crate) fn fiber(arguments: &[&str]) -> Setup {
    Setup::with_executable("", Path::new(&enter()))
        .env("FIBER_BACKEND", BACKEND)
        .env("XDG_STATE_HOME", state())
        .args(&["head", env!("CARGO_BIN_EXE_fiber")])
        .args(arguments)
}

/// Returns `fiber run` with this binary, which plays a scenario, on two slots of a host if the
/// options do not say otherwise.
pub(crate) fn run(options: &[&str], scenario: &str) -> Setup {
    let own = std::env::current_exe().expect("this binary is somewhere");
    run_program(&own, options, scenario)
}

/// Works as [`run`], with another program.
pub(crate) fn run_program(program: &Path, options: &[&str], scenario: &str) -> Setup {
    let program = program.display().to_string();
    let scenario = format!("{SCENARIO}={scenario}");
    // The job may outlive the command and its directories.
    let own = ["-e", "SCENARIO_MARK=job", "-e", "TMPDIR=/tmp", "--pe", "fiber"];
    let slots: &[&str] = if options.contains(&"--slots") { &[] } else { &["--slots", "2"] };
    fiber(&[&["run", "-e", &scenario], &own[..], slots, options, &[&program]].concat())
}

/// Returns the id of the live job of a session.
pub(crate) fn job(name: &str) -> Option<String> {
    let listed = grid("qstat", &["-xml", "-u", "*"]);
    let job = listed.split("<job_list").find(|job| job.contains(&format!("<JB_name>{name}<")))?;
    let (_, id) = job.split_once("<JB_job_number>")?;
    id.split('<').next().map(String::from)
}

/// Ends a job at once, if it still runs.
pub(crate) fn cancel(job: &str) {
    for file in grace_files(job) {
        let _ = std::fs::write(file, "0\n");
    }
    let _ = try_grid("qdel", &[job]);
}

/// Returns the file by which the script of a job knows how long its head has to end.
fn grace_files(job: &str) -> Vec<String> {
    let outputs = crate::session::found(&format!("*.{job}.out"));
    outputs.iter().map(|output| output.trim_end_matches("out").to_string() + "grace").collect()
}

/// Lets a job start that was submitted with `-h`.
pub(crate) fn release(job: &str) {
    grid("qrls", &[job]);
}

/// Kills all processes of a job on its first host, not through fiber.
pub(crate) fn lose(job: &str) {
    let id = format!("JOB_ID={job}");
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").expect("it is mounted").flatten();
    for process in processes.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let is_of_job = environment.split(|byte| *byte == 0).any(|entry| entry == id.as_bytes());
        if is_of_job && process != own {
            let _ = command::output("kill", &["-KILL", &process], "");
        }
    }
}
