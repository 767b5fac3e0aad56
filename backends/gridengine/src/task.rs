//! One task of the job: a program on one of its hosts.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use fiber_backends::batch::{is_this_host, program_path};
use fiber_backends::shell::{COMMAND, Remote, Script};
use fiber_backends::{BackendError, JobSpec, configured_environment};
use fiber_core::{Config, ExitReason};
use rustix::process::Signal;
use tokio::process::Command;

use super::allocation::{Allocation, HOSTS, Host};
use super::{commands, problem};

const START: &str = include_str!("start.sh");
/// Variables that are about this process or its host. A task has its own ones.
pub(super) const OWN_VARIABLES: &[&str] = &[
    "HOSTNAME",
    "JOB_SCRIPT",
    "NHOSTS",
    "NQUEUES",
    "NSLOTS",
    "OLDPWD",
    "PE_HOSTFILE",
    "PWD",
    "QUEUE",
    "SHLVL",
    "TMP",
    "TMPDIR",
    "_",
];
/// Prefixes of such variables.
const OWN_FAMILIES: &[&str] = &["QRSH_", "SGE_"];
/// Variables about the job. Tasks share them with it, and another job has its own ones.
const OF_JOB: &[&str] =
    &["ENVIRONMENT", "JOB_ID", "JOB_NAME", "PE", "REQNAME", "REQUEST", "RESTARTED"];

/// The way to a host of the job.
#[derive(Debug)]
pub(super) struct Task {
    host: String,
    is_own: bool,
}

impl Task {
    pub(super) fn on(host: &Host) -> Task {
        Task { host: host.name.clone(), is_own: is_this_host(&host.name) }
    }
}

/// Returns the line that starts a job.
///
/// # Errors
/// The program's file was replaced or deleted.
pub(super) fn line(
    config: &Config,
    allocation: &Allocation,
    spec: &JobSpec,
) -> Result<Vec<u8>, BackendError> {
    let mut script = Script::new();
    script.set("program", &program_path()?);
    // The name of a process may be any bytes.
    let status = std::fs::read("/proc/self/status").unwrap_or_default();
    script.set("ignored", ignored_warnings(&String::from_utf8_lossy(&status)).as_ref());
    // A task gets nothing of the job's environment.
    export_environment(&mut script, &[]);
    script.export(HOSTS.as_ref(), allocation.list().as_ref());
    for (name, value) in configured_environment(config) {
        script.export(name.as_ref(), value.as_ref());
    }
    let directory = match &config.working_dir {
        Some(directory) => directory.into(),
        None => std::env::current_dir().unwrap_or_default().into_os_string(),
    };
    Ok(script.line(spec, &directory, START))
}

/// Returns the line that sets the environment of this process in another job.
pub(super) fn environment_for_job() -> Vec<u8> {
    let mut script = Script::new();
    export_environment(&mut script, OF_JOB);
    script.environment()
}

fn export_environment(script: &mut Script, without: &[&str]) {
    let is_left_out = |name: &OsStr| without.iter().any(|other| name == *other);
    for (name, value) in std::env::vars_os() {
        if !is_own(&name) && !is_left_out(&name) {
            script.export(&name, &value);
        }
    }
}

/// Returns the names of the signals by which Grid Engine warns a job that a process ignores, from
/// its status.
fn ignored_warnings(status: &str) -> String {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let is_ignored = |signal: Signal| mask >> (signal.as_raw() - 1) & 1 == 1;
    let warnings = [("USR1", Signal::USR1), ("USR2", Signal::USR2)].into_iter();
    let ignored = warnings.filter(|(_, signal)| is_ignored(*signal)).map(|(name, _)| name);
    ignored.collect::<Vec<_>>().join(" ")
}

fn is_own(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    OWN_VARIABLES.contains(&name) || OWN_FAMILIES.iter().any(|family| name.starts_with(family))
}

impl Remote for Task {
    fn machine(&self) -> &str {
        &self.host
    }

    /// Grid Engine deletes the job if it loses a `qrsh`.
    fn may_be_killed(&self) -> bool {
        self.is_own
    }

    fn command(&self) -> Command {
        if self.is_own {
            let mut command = Command::new(Path::new("/bin/sh"));
            command.args(["-c", COMMAND]);
            return command;
        }
        let mut command = commands::command("qrsh");
        command.args(["-inherit", &self.host, COMMAND]);
        command
    }

    fn explain_command(&self, error: &io::Error) -> BackendError {
        problem::of_command(error)
    }

    fn explain_connection(&self, words: &[String]) -> String {
        match self.is_own {
            true => problem::of_shell(words),
            false => problem::of_connection(&self.host, words),
        }
    }

    fn explain_refusal(&self, refusal: &str) -> String {
        problem::of_host(&self.host, refusal)
    }

    fn own_reason(&self, _: i32, _: &str) -> Option<ExitReason> {
        None
    }

    /// `qrsh` says so now and then after the end of a program that has printed much.
    fn is_about_its_end(line: &[u8]) -> bool {
        line.starts_with(b"error: commlib error: got read error (closing ")
    }

    fn lost(&self, words: &str) -> ExitReason {
        ExitReason::LinkLost(format!("the connection of `qrsh` to `{}` ended{words}", self.host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample_spec;

    #[test]
    fn the_script_of_a_task_is_one_line_for_a_shell() {
        let line = Script::new().line(&sample_spec(), "/".as_ref(), START);
        let line = String::from_utf8(line).unwrap();
        assert_eq!(line.find('\n'), Some(line.len() - 1), "{line}");
        assert!(!line.contains(" #"), "{line}");
        let checked = std::process::Command::new("sh").args(["-n", "-c", &line]).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }

    #[test]
    fn ignored_warnings_are_found_in_a_status() {
        let ignored = |mask: &str| ignored_warnings(&format!("Name:\tx\nSigIgn:\t{mask}\n"));
        assert_eq!(ignored("0000000000000a00"), "USR1 USR2");
        assert_eq!(
            (ignored("0000000000001800"), ignored("0000000000001000")),
            ("USR2".into(), String::new())
        );
    }

    #[test]
    fn variables_of_this_host_stay_here() {
        for own in ["TMPDIR", "PE_HOSTFILE", "SGE_JOB_SPOOL_DIR", "QRSH_PORT"] {
            assert!(is_own(own.as_ref()), "{own}");
        }
        for shared in ["PATH", "LD_LIBRARY_PATH", "JOB_ID", "TMPDIRS"] {
            assert!(!is_own(shared.as_ref()), "{shared}");
        }
    }
}
