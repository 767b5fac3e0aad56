//! Grid Engine's commands: each with a time limit, and errors that name the command and a remedy.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use fiber_backends::batch::{CommandError, Hints, job_in, run_within};
use tokio::process::Command;

use super::task::OWN_VARIABLES;

/// Time limit for a command. A busy sge_qmaster answers late.
const LIMIT: Duration = Duration::from_secs(30);

/// The words of messages about Grid Engine's commands.
pub(super) static HINTS: Hints = Hints {
    missing: "in $SGE_ROOT/bin/$SGE_ARCH or in PATH: load Grid Engine's settings (`. \
              $SGE_ROOT/default/common/settings.sh`), or run this on a submit host of the cluster",
    silent: "sge_qmaster may be down; see `qstat -f`",
    trim,
    is_passing,
    remedy,
};

/// Returns a command. Jobs often lack them in their PATH.
pub(super) fn command(name: &str) -> Command {
    Command::new(path(name))
}

fn path(name: &str) -> OsString {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let installed = variable("SGE_ROOT")
        .zip(variable("SGE_ARCH").or_else(|| variable("ARC")))
        .map(|(root, architecture)| root.join("bin").join(architecture).join(name));
    installed.filter(|path| path.exists()).unwrap_or_else(|| name.into()).into_os_string()
}

/// Runs a command and returns its standard output.
pub(super) async fn run(program: &'static str, arguments: &[&str]) -> Result<String, CommandError> {
    let mut command = command(program);
    // Messages that can be compared.
    command.args(arguments).env("LC_ALL", "C");
    run_within(LIMIT, program, &HINTS, command, "").await
}

/// Submits a script with options of the command line, and returns the id of its job. `qsub` does not
/// see the variables of the job in which this process runs.
pub(super) async fn submit(options: &[String], script: &str) -> Result<String, CommandError> {
    let program = "qsub";
    let mut command = command(program);
    for variable in OWN_VARIABLES {
        command.env_remove(variable);
    }
    command.arg("-terse").args(options);
    let answer = run_within(LIMIT, program, &HINTS, command, script).await?;
    job_in(&answer, program, &HINTS, "qstat")
}

/// Deletes a job. One that has ended, or is deleted already, is no error.
pub(super) async fn delete(id: &str) -> Result<(), CommandError> {
    match run("qdel", &[id]).await {
        Err(error) if error.says(&["does not exist", "already in deletion"]) => Ok(()),
        other => other.map(drop),
    }
}

fn trim(line: &str) -> &str {
    let line = line.trim().trim_start_matches("Unable to run job: ");
    let line = line.trim_start_matches("error: ").trim_start_matches("job rejected: ");
    if line == "Exiting." { "" } else { line.trim_end_matches('.') }
}

fn is_passing(words: &str) -> bool {
    let words = words.to_lowercase();
    ["unable to contact qmaster", "unable to send message", "commlib error", "got send error"]
        .iter()
        .any(|sign| words.contains(sign))
}

/// Returns the remedy for a failure.
fn remedy(words: &str) -> Option<&'static str> {
    let has = |part: &str| words.contains(part);
    Some(if is_passing(words) {
        "does sge_qmaster answer? See `qstat -f`"
    } else if has("parallel environment") {
        "name one that exists (`fiber run --pe`); `qconf -spl` lists them"
    } else if has("suitable queues") {
        "ask for no more than the hosts have (`--slots`, `--time`, `-l`); `qstat -f` lists their \
         slots. `--gridengine='-w n'` submits it all the same"
    } else if has("queue") {
        "name a queue that exists (`fiber run --queue`); `qconf -sql` lists them"
    } else if has("resource") {
        "name a resource that exists; `qconf -sc` lists them"
    } else if has("project") {
        "name a project that you may use (`fiber run --project`); `qconf -sprjl` lists them"
    } else if has("object name") {
        "choose another `--name`"
    } else if has("submit") && has("host") {
        "run this on a submit host; `qconf -ss` lists them"
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_the_remedy() {
        for (errors, words, hint) in [
            (
                "Unable to run job: job rejected: the requested parallel environment \"x\" does \
                 not exist.\nExiting.\n",
                "`qsub` failed: the requested parallel environment \"x\" does not exist: ",
                "qconf -spl",
            ),
            ("Unable to run job: unknown resource \"x\"\nExiting.", "unknown", "qconf -sc"),
            ("Unable to run job: error: no suitable queues\n", "no suitable", "--slots"),
            ("error: unable to contact qmaster using port 1", "unable", "qstat -f"),
        ] {
            let failure = CommandError::failed("qsub", &HINTS, errors, "").to_string();
            assert!(failure.contains(words) && failure.contains(hint), "{failure}");
        }
    }
}
