//! The task of one job: a session of a command that reaches a machine, from its start to its end.

use std::future::{Future, ready};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fiber_core::{Exit, ExitReason};
use rustix::process::Pid;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, interval, sleep_until, timeout};

use super::script::MARK;
use crate::job_handle::{self, JobCommand, JobCommands};
use crate::local::guard::Group;
use crate::output::{LineForwarder, OutputTarget, Tail, drain, forward_lines};
use crate::{BackendError, Job, JobPlace, JobSpec, JobState, WaitReason, reason_of_code};

/// Time limit for reading output after the end of a session.
const DRAIN: Duration = Duration::from_secs(2);
/// Time limit for the end of a session whose job was killed, before its command is killed.
const KILL: Duration = Duration::from_secs(3);
/// Time limit for a word to the machine.
const WORD: Duration = Duration::from_secs(1);
/// The interval of words that say that the program is in use.
const IN_USE: Duration = Duration::from_secs(600);
/// The limit of what a login may print before the job starts, in bytes.
const NOISE: usize = 256 << 10;
/// A longer line of standard error is forwarded in parts, in bytes.
const LINE: u64 = 64 << 10;
/// The lines of the command's words that are kept.
const WORDS: usize = 20;

/// The way to a machine: a command that runs a shell there, and the meaning of its words.
pub trait Remote: 'static {
    /// Returns the name of the machine.
    fn machine(&self) -> &str;

    /// Returns whether the command may end before what it runs on the machine. Otherwise it is left
    /// to its own end, which follows that of its input.
    fn may_be_killed(&self) -> bool;

    /// Returns the command that runs [`COMMAND`](super::COMMAND) on the machine.
    fn command(&self) -> Command;

    /// Sends the program, if the script asks for it.
    fn send_program(
        &self,
        _input: &mut ChildStdin,
    ) -> impl Future<Output = Result<(), BackendError>> {
        ready(Ok(()))
    }

    /// Describes the sending of the program.
    fn copying(&self) -> String {
        String::new()
    }

    /// Explains why the command can't be run here.
    fn explain_command(&self, error: &io::Error) -> BackendError;

    /// Explains why no script has run, from the words of the command.
    fn explain_connection(&self, words: &[String]) -> String;

    /// Explains why the script does not start the program, from the script's words.
    fn explain_refusal(&self, refusal: &str) -> String;

    /// Returns the meaning of an exit code of the command that is not the program's, given the last
    /// line of output.
    fn own_reason(&self, code: i32, last: &str) -> Option<ExitReason>;

    /// Returns whether a line of standard error is the command's own, about its connection that
    /// ends, and none of the program's.
    fn is_about_its_end(_line: &[u8]) -> bool {
        false
    }

    /// Returns the reason of a job whose command has ended without a code.
    fn lost(&self, words: &str) -> ExitReason;
}

/// Starts a session that runs a script's line, in a local task, which watches it to its end.
///
/// # Errors
/// The file for the output can't be opened.
pub fn start(
    remote: impl Remote,
    line: Vec<u8>,
    spec: JobSpec,
) -> Result<Arc<dyn Job>, BackendError> {
    let outputs = OutputTarget::both(&spec)?;
    let tail = Tail::default();
    let place = JobPlace::Machine { name: remote.machine().to_string() };
    let (job, states, commands) = job_handle::new(place, tail.clone());
    let session = Session { remote, line, tail, commands };
    fiber_core::spawn_local(async move {
        let exit = session.run(outputs, &states).await;
        states.send_replace(JobState::Ended(exit));
    });
    Ok(job)
}

struct Session<R> {
    remote: R,
    /// The command that the machine runs.
    line: Vec<u8>,
    tail: Tail,
    commands: JobCommands,
}

/// How a session goes on after its start.
enum Started {
    Running,
    Refused(String),
    /// The command has closed its output.
    Ended,
    Killed,
}

impl<R: Remote> Session<R> {
    async fn run(
        mut self,
        [out, errors]: [OutputTarget; 2],
        states: &watch::Sender<JobState>,
    ) -> Exit {
        let not_started = |problem: String| Exit::new(ExitReason::NotStarted(problem), Vec::new());
        if self.commands.is_pending() {
            return Exit::new(ExitReason::Signal(9), Vec::new());
        }
        let mut command = self.remote.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let may_be_killed = self.remote.may_be_killed();
        // A Ctrl-C in the terminal is for this process. The command's own processes end with it.
        command.process_group(0).kill_on_drop(may_be_killed);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return not_started(self.remote.explain_command(&error).into()),
        };
        // Its end, also when this process is killed, ends all on the machine.
        let group = child.id().filter(|_| may_be_killed);
        let group = group.and_then(|pid| Pid::from_raw(pid.cast_signed())).map(Group::of);
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return not_started("its command has no pipes".into());
        };
        let (words, said) = oneshot::channel();
        let errors =
            fiber_core::spawn_local(forward_errors::<R>(stderr, words, errors, self.tail.clone()));
        let mut stdin = Some(stdin);
        let mut stdout = BufReader::new(stdout);
        let started = self.start(&mut stdin, &mut stdout, states).await;
        if !matches!(started, Started::Running) {
            // Whatever the machine does ends with its input.
            drop(stdin);
            if matches!(started, Started::Killed) {
                self.end(&mut child);
            }
            if timeout(KILL, child.wait()).await.is_err() {
                self.end(&mut child);
            }
            drop(group);
            let words = timeout(DRAIN, said).await.unwrap_or(Ok(Vec::new())).unwrap_or_default();
            return match started {
                Started::Killed => Exit::new(ExitReason::Signal(9), Vec::new()),
                Started::Refused(refusal) => not_started(self.remote.explain_refusal(&refusal)),
                _ => not_started(self.remote.explain_connection(&words)),
            };
        }
        states.send_replace(JobState::Running);
        let out = fiber_core::spawn_local(forward_lines(stdout, out, self.tail.clone()));
        let (status, killed) = self.watch(&mut child, stdin).await;
        drop(group);
        drain(out, DRAIN).await;
        drain(errors, DRAIN).await;
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
        let (line, remote) = (&self.line, &self.remote);
        let Some(input) = stdin.as_mut() else { return Started::Ended };
        let start = async {
            // If the command can't connect, its end says why.
            let _ = input.write_all(line).await;
            loop {
                match next_word(stdout).await.as_deref() {
                    Some("run") => return Started::Running,
                    Some("send") => {
                        let reason = remote.copying();
                        states.send_replace(JobState::Waiting(WaitReason::Image(reason)));
                        let refused = tokio::select! {
                            sent = remote.send_program(input) => match sent {
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
    ) -> (Option<io::Result<ExitStatus>>, bool) {
        let mut in_use = interval(IN_USE);
        let mut deadline = None;
        loop {
            tokio::select! {
                status = child.wait() => return (Some(status), deadline.is_some()),
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
                    self.end(child);
                    return (None, true);
                }
            }
        }
    }

    /// Kills the command, or leaves it to its own end.
    fn end(&self, child: &mut Child) {
        if self.remote.may_be_killed() {
            let _ = child.start_kill();
        }
    }

    fn reason(&self, status: Option<io::Result<ExitStatus>>, killed: bool) -> ExitReason {
        let status = match status {
            Some(status) if !killed => status,
            _ => return ExitReason::Signal(9),
        };
        let code = match status {
            Ok(status) => status.code(),
            Err(error) => {
                let words = format!(", and its end can't be observed: {error}");
                return self.remote.lost(&words);
            }
        };
        let tail = self.tail.lines();
        let last = tail.last().map_or("", String::as_str);
        match code {
            Some(0) => ExitReason::Normal,
            Some(code) => {
                self.remote.own_reason(code, last).unwrap_or_else(|| reason_of_code(code))
            }
            None => self.remote.lost(": its command was killed"),
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
async fn forward_errors<R: Remote>(
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
            return forward_without_own::<R>(stderr, LineForwarder::new(target, tail)).await;
        }
        if said.len() == WORDS {
            said.remove(0);
        }
        said.push(line);
    }
    let _ = words.send(said);
}

/// Forwards standard error without the command's own words about its end.
async fn forward_without_own<R: Remote>(
    mut stderr: BufReader<ChildStderr>,
    mut forwarder: LineForwarder,
) {
    let mut line = Vec::new();
    while (&mut stderr).take(LINE).read_until(b'\n', &mut line).await.unwrap_or(0) > 0 {
        if R::is_about_its_end(&line) {
            tracing::debug!("{}", String::from_utf8_lossy(&line).trim_end());
        } else {
            forwarder.push(&line).await;
        }
        line.clear();
    }
    forwarder.finish().await;
}

async fn say(stdin: &mut Option<ChildStdin>, word: &[u8]) {
    if let Some(stdin) = stdin {
        // A machine that is gone takes no words.
        let _ = timeout(WORD, stdin.write_all(word)).await;
    }
}
