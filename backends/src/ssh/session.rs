//! The task of one job: an ssh session, from its start to its end.

use std::fs::File;
use std::io::Read;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fiber_core::{Config, Exit, ExitReason, shortage};
use rustix::process::Pid;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep_until, timeout};

use super::machines::SshMachine;
use super::program::{EXECUTABLE, Program};
use super::script::{self, MARK};
use super::{problem, ssh};
use crate::job_handle::{self, JobCommand, JobCommands};
use crate::local::guard::Group;
use crate::output::{Log, OutputStream, OutputTarget, Tail, drain, forward_lines};
use crate::{BackendError, Job, JobPlace, JobSpec, JobState, SshSection, WaitReason};

/// Time that a machine has at least to answer.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit for reading output after the end of a session.
const DRAIN: Duration = Duration::from_secs(2);
/// Time limit for the end of a session whose job was killed, before `ssh` is killed.
const KILL: Duration = Duration::from_secs(3);
/// Time limit for a word to the machine.
const WORD: Duration = Duration::from_secs(1);
/// The interval of words that keep the program in the cache there.
const IN_USE: Duration = Duration::from_secs(600);
/// The size of a part of the program, in bytes.
const CHUNK: usize = 256 << 10;
/// The limit of what a login may print before the job starts, in bytes.
const NOISE: usize = 256 << 10;
/// The lines of ssh's words that are kept.
const WORDS: usize = 20;
/// The exit code of `ssh` for its own problems.
const SSH_FAILED: i32 = 255;
/// The exit code of shells for a program killed by a signal, minus the signal.
const SIGNAL_BASE: i32 = 128;

/// Starts a session in a local task, which watches it to its end.
pub(super) fn start(
    config: &Config,
    section: &SshSection,
    machine: SshMachine,
    program: &Program,
    spec: JobSpec,
) -> Result<Arc<dyn Job>, BackendError> {
    let log = Log::of(&spec).map_err(|error| error.to_string())?;
    let tail = Tail::default();
    let place = JobPlace::Machine { name: machine.name.clone() };
    let (job, states, commands) = job_handle::new(place, tail.clone());
    let session = Session {
        command: command(config, section, &machine),
        line: script::line(config, section, program, &spec),
        machine: machine.name,
        program: program.clone(),
        tail,
        commands,
    };
    tokio::task::spawn_local(async move {
        let file = log.map(|log| Arc::new(log.file));
        let target = |stream| match &file {
            Some(file) => OutputTarget::File(Arc::clone(file)),
            None => OutputTarget::new(&spec.output, stream, &spec.name),
        };
        let targets = (target(OutputStream::Stdout), target(OutputStream::Stderr));
        let exit = session.run(targets, &states).await;
        states.send_replace(JobState::Ended(exit));
    });
    Ok(job)
}

/// Returns the command for a session on a machine.
fn command(config: &Config, section: &SshSection, machine: &SshMachine) -> Command {
    let limit = |duration: Duration| duration.as_secs_f64().ceil().max(1.0) as u64;
    let mut command = ssh(section.config.as_deref());
    command.args(["-T", "-x", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"]);
    // The user's configuration for terminals would be in the way.
    command.args(["-o", "RemoteCommand=none", "-o", "PermitLocalCommand=no"]);
    command.args(["-o", "ClearAllForwardings=yes", "-o", "ControlMaster=no"]);
    // A machine that is off, and a wire that is cut.
    let connect = config.heartbeat_timeout.max(CONNECT).min(config.start_timeout / 2);
    command.arg("-o").arg(format!("ConnectTimeout={}", limit(connect)));
    command.arg("-o").arg(format!("ServerAliveInterval={}", limit(config.heartbeat_timeout / 3)));
    command.args(["-o", "ServerAliveCountMax=3"]);
    command.arg("--").arg(&machine.name).arg(script::COMMAND);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A Ctrl-C in the terminal is for this process, and ProxyCommand's processes end with `ssh`.
    command.process_group(0).kill_on_drop(true);
    command
}

struct Session {
    command: Command,
    /// The command that the machine runs.
    line: Vec<u8>,
    machine: String,
    program: Program,
    tail: Tail,
    commands: JobCommands,
}

/// How a session goes on after its start.
enum Started {
    Running,
    Refused(String),
    /// `ssh` has closed its output.
    Ended,
    Killed,
}

impl Session {
    async fn run(
        mut self,
        (out, errors): (OutputTarget, OutputTarget),
        states: &watch::Sender<JobState>,
    ) -> Exit {
        let not_started = |problem: String| Exit::new(ExitReason::NotStarted(problem), Vec::new());
        if self.commands.is_pending() {
            return Exit::new(ExitReason::Signal(9), Vec::new());
        }
        let mut child = match self.command.spawn() {
            Ok(child) => child,
            Err(error) => return not_started(problem::of_command(&error).into()),
        };
        // Its end, also when this process is killed, ends all on the machine.
        let group = child.id().and_then(|pid| Pid::from_raw(pid as i32)).map(Group::of);
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return not_started("`ssh` has no pipes".into());
        };
        let (words, said) = oneshot::channel();
        let errors =
            tokio::task::spawn_local(forward_errors(stderr, words, errors, self.tail.clone()));
        let mut stdin = Some(stdin);
        let mut stdout = BufReader::new(stdout);
        let started = self.start(&mut stdin, &mut stdout, states).await;
        if !matches!(started, Started::Running) {
            // Whatever the machine does ends with its input.
            drop(stdin);
            if matches!(started, Started::Killed) {
                let _ = child.start_kill();
            }
            if timeout(KILL, child.wait()).await.is_err() {
                let _ = child.start_kill();
            }
            drop(group);
            let words = timeout(DRAIN, said).await.unwrap_or(Ok(Vec::new())).unwrap_or_default();
            return match started {
                Started::Killed => Exit::new(ExitReason::Signal(9), Vec::new()),
                Started::Refused(refusal) => {
                    not_started(problem::of_machine(&self.machine, &self.program, &refusal))
                }
                _ => not_started(problem::of_connection(&self.machine, &words)),
            };
        }
        states.send_replace(JobState::Running);
        let out = tokio::task::spawn_local(forward_lines(stdout, out, self.tail.clone()));
        let (status, killed) = self.watch(&mut child, stdin).await;
        drop(group);
        drain_both(out, errors).await;
        Exit::new(self.reason(status, killed), self.tail.lines())
    }

    /// Starts the program, or ends at a command: both kinds mean the same to a job that has not
    /// started.
    async fn start(
        &mut self,
        stdin: &mut Option<ChildStdin>,
        stdout: &mut BufReader<ChildStdout>,
        states: &watch::Sender<JobState>,
    ) -> Started {
        let (line, machine, program) = (&self.line, &self.machine, &self.program);
        let Some(input) = stdin.as_mut() else { return Started::Ended };
        let start = async {
            // If ssh can't connect, its end says why.
            let _ = input.write_all(line).await;
            loop {
                match next_word(stdout).await.as_deref() {
                    Some("run") => return Started::Running,
                    Some("send") => {
                        let size = bytesize::ByteSize(program.size);
                        let reason = format!("{size} of this program are copied to `{machine}`");
                        states.send_replace(JobState::Waiting(WaitReason::Image(reason)));
                        let refused = tokio::select! {
                            sent = send_program(input) => match sent {
                                Ok(()) => None,
                                Err(problem) => Some(Some(format!("refused copy {problem}"))),
                            },
                            // It does not wait for the whole program if it has no room for it.
                            word = next_word(stdout) => Some(word),
                        };
                        states.send_replace(JobState::Starting);
                        match refused {
                            None => {}
                            Some(None) => return Started::Ended,
                            Some(Some(word)) => return refusal(&word),
                        }
                    }
                    Some(word) => return refusal(word),
                    None => return Started::Ended,
                }
            }
        };
        tokio::select! {
            biased;
            _ = self.commands.next() => Started::Killed,
            started = start => started,
        }
    }

    /// Passes commands on until the session ends. Returns also whether the job was killed.
    async fn watch(
        &mut self,
        child: &mut Child,
        mut stdin: Option<ChildStdin>,
    ) -> (std::io::Result<ExitStatus>, bool) {
        let mut in_use = interval(IN_USE);
        let mut deadline = None;
        loop {
            tokio::select! {
                status = child.wait() => return (status, deadline.is_some()),
                command = self.commands.next(), if deadline.is_none() => match command {
                    JobCommand::Terminate => say(&mut stdin, b"terminate\n").await,
                    // The end of its input ends all of the job.
                    JobCommand::Kill => {
                        stdin = None;
                        deadline = Some(Instant::now() + KILL);
                    }
                },
                _ = in_use.tick() => say(&mut stdin, b"in use\n").await,
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    // The wire may be cut. What is there notices that, too.
                    let _ = child.start_kill();
                    return (child.wait().await, true);
                }
            }
        }
    }

    fn reason(&self, status: std::io::Result<ExitStatus>, killed: bool) -> ExitReason {
        if killed {
            return ExitReason::Signal(9);
        }
        let lost = |words: &str| {
            ExitReason::LinkLost(format!(
                "the connection of ssh to `{}` ended{words}",
                self.machine
            ))
        };
        let code = match status {
            Ok(status) => status.code(),
            Err(error) => return lost(&format!(", and its end can't be observed: {error}")),
        };
        let tail = self.tail.lines();
        let last = tail.last().map_or("", String::as_str);
        match code {
            Some(0) => ExitReason::Normal,
            // The script says so.
            Some(SSH_FAILED) if last == "the program exited with code 255" => {
                ExitReason::Code(SSH_FAILED)
            }
            Some(SSH_FAILED) => lost(""),
            Some(126 | 127) if last.contains("/fiber/builds/") => ExitReason::NotStarted(format!(
                "`{}` can't run the copy of the program ({last}): if the cache's file system is \
                 mounted `noexec`, set `ssh.cache` to a directory on another one",
                self.machine
            )),
            Some(code @ 129..=192) => ExitReason::Signal(code - SIGNAL_BASE),
            Some(code) => ExitReason::Code(code),
            None => lost(": `ssh` was killed"),
        }
    }
}

fn refusal(word: &str) -> Started {
    match word.strip_prefix("refused ") {
        Some(refusal) => Started::Refused(refusal.to_string()),
        None => Started::Ended,
    }
}

/// Returns the script's next word to this process, after what a login may print. `None` at the end.
async fn next_word(stdout: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut noise = NOISE;
    loop {
        let line = next_line(stdout, &mut noise).await?;
        if let Some(word) = line.strip_prefix(MARK) {
            return Some(word.trim_end().to_string());
        }
    }
}

/// Returns the next line, without its end. `None` at the end, or after `limit` bytes.
async fn next_line(reader: &mut (impl AsyncBufRead + Unpin), limit: &mut usize) -> Option<String> {
    let mut line = Vec::new();
    let read = reader.take(*limit as u64).read_until(b'\n', &mut line).await.unwrap_or(0);
    *limit -= read;
    (read > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_string())
}

/// Forwards standard error once the program runs. `words` gets what was there before, if it does
/// not run.
async fn forward_errors(
    stderr: ChildStderr,
    words: oneshot::Sender<Vec<String>>,
    target: OutputTarget,
    tail: Tail,
) {
    let mut stderr = BufReader::new(stderr);
    let mut said = Vec::new();
    let mut noise = NOISE;
    while let Some(line) = next_line(&mut stderr, &mut noise).await {
        if line.strip_prefix(MARK) == Some("run") {
            return forward_lines(stderr, target, tail).await;
        }
        if said.len() == WORDS {
            said.remove(0);
        }
        said.push(line);
    }
    let _ = words.send(said);
}

/// Sends the sum of this program and the program.
async fn send_program(input: &mut ChildStdin) -> Result<(), BackendError> {
    let unreadable = |error: std::io::Error| format!("{EXECUTABLE}: {}", shortage::explain(&error));
    let mut file = File::open(EXECUTABLE).map_err(unreadable)?;
    let sum = Command::new("cksum")
        .stdin(file.try_clone().map_err(unreadable)?)
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| format!("`cksum` can't be run here: {}", shortage::explain(&error)))?;
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

async fn say(stdin: &mut Option<ChildStdin>, word: &[u8]) {
    if let Some(stdin) = stdin {
        // A machine that is gone takes no words.
        let _ = timeout(WORD, stdin.write_all(word)).await;
    }
}

async fn drain_both(out: JoinHandle<()>, errors: JoinHandle<()>) {
    drain(out, DRAIN).await;
    drain(errors, DRAIN).await;
}
