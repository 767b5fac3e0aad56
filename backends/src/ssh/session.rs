//! One job on a machine: a session of `ssh`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use fiber_core::{Config, ExitReason, executable, shortage};
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, Command};

use super::machines::SshMachine;
use super::program::{Program, unreadable};
use super::{problem, ssh};
use crate::shell::{COMMAND, Remote, Script};
use crate::{BackendError, JobSpec, SshSection, configured_environment};

/// Time that a machine has at least to answer.
const CONNECT: Duration = Duration::from_secs(5);
/// The size of a part of the program, in bytes.
const CHUNK: usize = 256 << 10;
/// The exit code of `ssh` for its own problems.
const SSH_FAILED: i32 = 255;
const START: &str = include_str!("start.sh");

/// The way to a machine over ssh.
#[derive(Debug)]
pub(super) struct Ssh {
    machine: SshMachine,
    program: Program,
    config_file: Option<PathBuf>,
    /// The options of its command.
    options: Vec<String>,
}

impl Ssh {
    pub(super) fn new(
        config: &Config,
        section: &SshSection,
        machine: SshMachine,
        program: &Program,
    ) -> Ssh {
        // A machine that is off, and a wire that is cut.
        let connect = config.heartbeat_timeout.max(CONNECT).min(config.start_timeout / 2);
        let options = vec![
            format!("ConnectTimeout={}", seconds(connect)),
            format!("ServerAliveInterval={}", seconds(config.heartbeat_timeout / 3)),
            "ServerAliveCountMax=3".into(),
        ];
        Ssh { machine, program: program.clone(), config_file: section.config.clone(), options }
    }
}

/// Returns a time in seconds, from 1 to the most that `ssh` takes.
fn seconds(time: Duration) -> u32 {
    time.as_secs_f64().ceil().clamp(1.0, i32::MAX.into()) as u32
}

/// Returns the line that starts a job.
pub(super) fn line(
    config: &Config,
    section: &SshSection,
    program: &Program,
    spec: &JobSpec,
) -> Vec<u8> {
    let mut script = Script::new();
    let cache = section.cache.as_ref().map_or(OsStr::new(""), |path| path.as_os_str());
    let directory = config.working_dir.as_deref().unwrap_or_default();
    let limit = (section.cache_size.as_u64() / 1024).to_string();
    let size = program.size.to_string();
    let values: [(&str, &OsStr); 8] = [
        ("build", program.build.as_ref()),
        ("program", program.name.as_ref()),
        ("size", size.as_ref()),
        ("machine", program.machine.as_ref()),
        ("loader", program.loader.as_ref()),
        ("glibc", program.glibc.as_ref()),
        ("cache", cache),
        ("limit", limit.as_ref()),
    ];
    for (name, value) in values {
        script.set(name, value);
    }
    for (name, value) in configured_environment(config) {
        script.export(name.as_ref(), value.as_ref());
    }
    script.line(spec, directory.as_ref(), START)
}

impl Remote for Ssh {
    fn machine(&self) -> &str {
        &self.machine.name
    }

    /// All that runs on the machine ends with the connection.
    fn may_be_killed(&self) -> bool {
        true
    }

    fn command(&self) -> Command {
        let mut command = ssh(self.config_file.as_deref());
        command.args(["-T", "-x", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"]);
        // The user's configuration for terminals would be in the way.
        command.args(["-o", "RemoteCommand=none", "-o", "PermitLocalCommand=no"]);
        command.args(["-o", "ClearAllForwardings=yes", "-o", "ControlMaster=no"]);
        for option in &self.options {
            command.arg("-o").arg(option);
        }
        command.arg("--").arg(&self.machine.name).arg(COMMAND);
        command
    }

    /// Sends the sum of this program and the program.
    async fn send_program(&self, input: &mut ChildStdin) -> Result<(), BackendError> {
        let mut file = File::open(executable()).map_err(unreadable)?;
        let sum = Command::new("sha256sum")
            .stdin(file.try_clone().map_err(unreadable)?)
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| {
                format!("`sha256sum` can't be run here: {}", shortage::explain(&error))
            })?;
        if !sum.status.success() {
            return Err("`sha256sum` failed here".into());
        }
        std::io::Seek::rewind(&mut file).map_err(unreadable)?;
        // If the connection ends, its end says why.
        if input.write_all(&sum.stdout).await.is_err() {
            return Ok(());
        }
        let mut part = vec![0; CHUNK];
        loop {
            match file.read(&mut part).map_err(unreadable)? {
                0 => break,
                read if input.write_all(&part[..read]).await.is_err() => break,
                _ => {}
            }
        }
        Ok(())
    }

    fn copying(&self) -> String {
        let size = bytesize::ByteSize(self.program.size);
        format!("{size} of this program are copied to `{}`", self.machine.name)
    }

    fn explain_command(&self, error: &io::Error) -> BackendError {
        problem::of_command(error)
    }

    fn explain_connection(&self, words: &[String]) -> String {
        problem::of_connection(&self.machine.name, words)
    }

    fn explain_refusal(&self, refusal: &str) -> String {
        problem::of_machine(&self.machine.name, &self.program, refusal)
    }

    fn own_reason(&self, code: i32, last: &str) -> Option<ExitReason> {
        match code {
            // The script says so.
            SSH_FAILED if last == "the program exited with code 255" => None,
            SSH_FAILED => Some(self.lost("")),
            126 | 127 if last.contains("/builds/") => Some(ExitReason::NotStarted(format!(
                "`{}` can't run the copy of the program ({last}): if the cache's file system is \
                 mounted `noexec`, set `ssh.cache` to a directory on another one",
                self.machine.name
            ))),
            _ => None,
        }
    }

    fn lost(&self, words: &str) -> ExitReason {
        let machine = &self.machine.name;
        ExitReason::LinkLost(format!("the connection of ssh to `{machine}` ended{words}"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::shell::testing::{run, spec};

    const TEXT: &str = "#!/bin/sh\nread -r key; echo \"$key $1 $RUST_LOG\"; exit 255\n";

    #[test]
    fn a_time_is_one_that_ssh_takes() {
        for (time, expected) in [
            (Duration::ZERO, 1),
            (Duration::from_millis(1500), 2),
            (Duration::MAX, i32::MAX.cast_unsigned()),
        ] {
            assert_eq!(seconds(time), expected);
        }
    }

    /// Puts a program into a cache in this directory, and returns its path and the line that starts
    /// it.
    fn cached(directory: &Path) -> (PathBuf, Vec<u8>) {
        let uid = rustix::process::geteuid().as_raw();
        let file = directory.join(format!("fiber-{uid}/builds/aa/p"));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, TEXT).unwrap();
        set_mode(&file, 0o755);
        let program = Program {
            name: "p".into(),
            build: "aa".into(),
            size: TEXT.len() as u64,
            machine: String::new(),
            loader: String::new(),
            glibc: String::new(),
        };
        let mut config = Config::default();
        config.environment = vec!["RUST_LOG=all of it".into()];
        let section = SshSection { cache: Some(directory.into()), ..SshSection::default() };
        let line = line(&config, &section, &program, &spec(&["a b"]));
        (file, line)
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    /// Starts the program, which the machine refuses, and returns the exposed paths.
    fn refusal(line: &[u8]) -> String {
        let output = run(line);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.strip_prefix("fiber-shell refused exposed ").expect(&said).trim().to_string()
    }

    #[test]
    fn a_program_in_the_cache_is_started() {
        let cache = tempfile::tempdir().unwrap();
        // With the sticky bit, other users can add files and can't replace this user's.
        set_mode(cache.path(), 0o1777);
        let (_, line) = cached(cache.path());
        let output = run(&line);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "fiber-shell run\nhush a b all of it\n"
        );
        assert!(output.stderr.ends_with(b"the program exited with code 255\n"), "{output:?}");
        assert_eq!(output.status.code(), Some(255));
    }

    #[test]
    fn a_program_that_others_could_have_written_is_refused() {
        let cache = tempfile::tempdir().unwrap();
        let (file, line) = cached(cache.path());
        let exposed: [&Path; 3] = [&file, file.parent().unwrap(), cache.path()];
        for place in exposed {
            set_mode(place, 0o777);
            assert_eq!(Path::new(&refusal(&line)), place);
            set_mode(place, 0o755);
        }
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: a file of another user takes root");
        }
        for place in exposed {
            std::os::unix::fs::chown(place, Some(54_321), None).unwrap();
            assert_eq!(Path::new(&refusal(&line)), place);
            std::os::unix::fs::chown(place, Some(0), None).unwrap();
        }
    }
}
