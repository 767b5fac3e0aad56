//! The commands of a batch system: each with a time limit, and errors that name it and a remedy.

mod error;

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;

pub use self::error::{CommandError, Hints};

/// Runs a command with this standard input, and returns its standard output.
///
/// # Errors
/// It can't be run, does not end within `limit`, or fails.
pub async fn run_within(
    limit: Duration,
    program: &'static str,
    hints: &'static Hints,
    mut command: Command,
    input: &str,
) -> Result<String, CommandError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let not_run = |error| CommandError::NotRun { program, error, hints };
    let mut child = command.spawn().map_err(not_run)?;
    let group = CommandGroup::of(&child);
    let ended = async {
        if let Some(mut pipe) = child.stdin.take() {
            // A command that fails early does not read it all.
            let _ = pipe.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = timeout(limit, ended).await.map_err(|_| CommandError::TimedOut {
        program,
        limit,
        hints,
    })?;
    group.has_ended();
    let output = output.map_err(not_run)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_string()),
        false => {
            let errors = String::from_utf8_lossy(&output.stderr);
            Err(CommandError::failed(program, hints, &errors, output.status))
        }
    }
}

/// Returns the id of the job in the answer of a command that has submitted one: `ID` or
/// `ID;CLUSTER`. A site's plugins may print lines before it.
///
/// # Errors
/// The answer has no id. The message names the command that lists jobs, `list`.
pub fn job_in(
    answer: &str,
    program: &'static str,
    hints: &'static Hints,
    list: &str,
) -> Result<String, CommandError> {
    let ids = answer.lines().rev().map(|line| line.split(';').next().unwrap_or_default().trim());
    let mut ids = ids.filter(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()));
    ids.next().map(String::from).ok_or_else(|| CommandError::Failed {
        program,
        words: format!("it names no job: {:?}; `{list}` shows whether there is one", answer.trim()),
        hints,
    })
}

/// The process group of a command, which is killed if nobody waits for its end. Many sites wrap the
/// commands of their batch system in scripts.
struct CommandGroup(Option<Pid>);

impl CommandGroup {
    fn of(child: &Child) -> CommandGroup {
        CommandGroup(child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())))
    }

    fn has_ended(mut self) {
        self.0 = None;
    }
}

impl Drop for CommandGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    static HINTS: Hints = Hints {
        missing: "install it",
        silent: "ask it again",
        trim: |line| line,
        is_passing: |_| false,
        remedy: |_| None,
    };

    #[test]
    fn the_id_is_read_from_answers() {
        let id = |answer| job_in(answer, "sbatch", &HINTS, "squeue").map_err(|no| no.to_string());
        assert_eq!(id("4711").as_deref(), Ok("4711"));
        assert_eq!(id("quota: 7 h\n4711;cluster").as_deref(), Ok("4711"));
        assert!(id("").is_err());
        let problem = id("Submitted batch job 4711").unwrap_err();
        assert!(problem.contains("names no job") && problem.contains("`squeue`"), "{problem}");
    }

    #[tokio::test]
    async fn a_command_that_hangs_or_is_missing_is_named() {
        let mut sleep = Command::new("sleep");
        sleep.arg("60");
        let limit = Duration::from_millis(50);
        let hangs = run_within(limit, "sleep", &HINTS, sleep, "").await.unwrap_err();
        assert!(hangs.is_passing(), "{hangs}");
        let words = hangs.to_string();
        assert!(words.contains("`sleep` has not answered") && words.contains("ask it again"));
        let missing = Command::new("fiber-no-such-command");
        let missing = run_within(limit, "fiber-no-such-command", &HINTS, missing, "").await;
        let missing = missing.unwrap_err().to_string();
        assert!(
            missing.contains("no command `fiber-no-such-command`") && missing.contains("install")
        );
    }

    #[tokio::test]
    async fn a_command_that_nobody_waits_for_ends_with_the_script_around_it() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut wrapper = Command::new("sh");
        wrapper.args(["-c", "exec 3>\"$0\"; sleep 600 & wait"]).arg(&pipe);
        let opened = tokio::task::spawn_blocking(|| std::fs::File::open(pipe).unwrap());
        let mut opened = tokio::select! {
            result = run_within(Duration::from_secs(600), "sh", &HINTS, wrapper, "") => {
                panic!("it did not hang: {result:?}")
            }
            opened = opened => opened.unwrap(),
        };
        // The pipe ends with the last process that holds it.
        assert_eq!(opened.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
}
