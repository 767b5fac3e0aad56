//! One job step: `srun` as a child process of this one, watched to its end.

use std::ffi::OsString;
use std::io::{PipeWriter, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fiber_core::{Exit, ExitReason};
use futures_util::FutureExt;
use futures_util::future::{Fuse, OptionFuture, join};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::end_mark::MarkedOutput;
use super::notices::{self, Change, Notices};
use super::{commands, end_mark, launcher};
use crate::output::{LineForwarder, OutputTarget, Tail, drain, print_message};
use crate::{BackendError, Job, JobPlace, JobSpec, JobState};

/// Time limit for reading the output of an `srun` that has ended.
const DRAIN: Duration = Duration::from_secs(2);
/// Time for `srun` to kill its step. After that, `scancel` is asked to.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// The longest part of a line that is looked at.
const MAX_LINE: usize = 64 << 10;

#[derive(Debug)]
struct StepJob {
    node: Option<String>,
    srun: Pid,
    reaped: AtomicBool,
    killed: AtomicBool,
    terminated: AtomicBool,
    /// Wakes the job's task after a command, and after a notice.
    news: Notify,
    notices: Mutex<Notices>,
    tail: Tail,
    /// The process's standard input, which takes the answers to its marks.
    answers: PipeWriter,
    states: watch::Sender<JobState>,
}

impl Job for StepJob {
    fn place(&self) -> JobPlace {
        JobPlace::Step {
            id: self.notices.lock().step.clone(),
            node: self.node.clone(),
            client: Some(format!("srun pid {}", self.srun.as_raw_nonzero())),
        }
    }

    fn tail(&self) -> Vec<String> {
        self.tail.lines()
    }

    fn states(&self) -> watch::Receiver<JobState> {
        self.states.subscribe()
    }

    fn terminate(&self) {
        self.terminated.store(true, Ordering::Release);
        self.news.notify_one();
    }

    fn kill(&self) {
        if !self.reaped.load(Ordering::Acquire) {
            self.killed.store(true, Ordering::Release);
            // At this signal, `srun` sends SIGKILL to its step.
            let _ = kill_process(self.srun, Signal::TERM);
            self.news.notify_one();
        }
    }
}

/// Starts `srun` with these arguments.
///
/// # Errors
/// It can't be started.
pub(super) fn start(
    spec: &JobSpec,
    arguments: Vec<OsString>,
) -> Result<Arc<dyn Job>, BackendError> {
    let explain = |error: std::io::Error| {
        BackendError::of_system(&error, fiber_core::shortage::explain(&error))
    };
    let outputs = OutputTarget::both(spec)?;
    let mut command = Command::new(fiber_core::executable());
    command
        .arg0("fiber-srun")
        .arg("srun")
        .args(arguments)
        .env(launcher::VARIABLE, std::process::id().to_string())
        .env(end_mark::VARIABLE, "1")
        .envs(spec.shown_variables())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_another_step(name)) {
        command.env_remove(name);
    }
    let (reader, mut writer) = std::io::pipe().map_err(explain)?;
    // A pipe has room for some pages, so this does not wait for `srun`.
    writer.write_all(spec.secret_lines().as_bytes()).map_err(explain)?;
    let mut child = command.stdin(reader).spawn().map_err(explain)?;
    let srun =
        child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).ok_or("`srun` has no pid")?;
    let job = Arc::new(StepJob {
        node: spec.machine.clone(),
        srun,
        reaped: AtomicBool::new(false),
        killed: AtomicBool::new(false),
        terminated: AtomicBool::new(false),
        news: Notify::new(),
        notices: Mutex::default(),
        tail: Tail::default(),
        answers: writer,
        states: watch::Sender::new(JobState::Starting),
    });
    let [out, errors] =
        outputs.map(|target| MarkedOutput::new(LineForwarder::new(target, job.tail.clone())));
    let out = child.stdout.take().map(|pipe| forward(pipe, out, Arc::clone(&job)));
    let errors =
        child.stderr.take().map(|pipe| forward_beside_notices(pipe, errors, Arc::clone(&job)));
    let forwarding = fiber_core::spawn_local(async {
        join(OptionFuture::from(out), OptionFuture::from(errors)).await;
    });
    let watched = Arc::clone(&job);
    fiber_core::spawn_local(async move {
        let reason = watched.wait(child, forwarding).await;
        let tail = watched.tail.lines();
        watched.states.send_replace(JobState::Ended(Exit::new(reason, tail)));
    });
    Ok(job)
}

/// Returns whether a variable describes a step or the batch script's task. With one of them, `srun`
/// would refuse options or change the new step.
fn is_of_another_step(name: &std::ffi::OsStr) -> bool {
    const OTHERS: &[&str] = &[
        "SLURM_CPUS_PER_TASK",
        "SLURM_DISTRIBUTION",
        "SLURM_EXCLUSIVE",
        "SLURM_NPROCS",
        "SLURM_NTASKS",
        "SLURM_OVERCOMMIT",
        "SLURM_TRES_PER_TASK",
        "SLURM_WHOLE",
    ];
    const FAMILIES: &[&str] =
        &["SLURM_CPU_BIND", "SLURM_GPUS_PER_", "SLURM_MEM_", "SLURM_NTASKS_PER_", "SLURM_STEP"];
    let Some(name) = name.to_str() else { return false };
    OTHERS.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
}

impl StepJob {
    /// Waits for the end of `srun`, and carries commands out.
    async fn wait(&self, mut child: Child, forwarding: tokio::task::JoinHandle<()>) -> ExitReason {
        let mut asked_to_end = false;
        let mut is_forced = false;
        // `srun` may not have ended when this has.
        let mut forced = std::pin::pin!(Fuse::terminated());
        let status = loop {
            tokio::select! {
                biased;
                status = child.wait() => break status,
                () = self.news.notified() => {
                    if self.killed.load(Ordering::Acquire) && !is_forced {
                        is_forced = true;
                        forced.set(self.force().fuse());
                    }
                    if self.terminated.load(Ordering::Acquire) && !asked_to_end {
                        asked_to_end = self.ask_to_end().await;
                    }
                }
                () = &mut forced => {
                    let _ = child.start_kill();
                }
            }
        };
        self.reaped.store(true, Ordering::Release);
        drain(forwarding, DRAIN).await;
        let (terminated, killed) =
            (self.terminated.load(Ordering::Acquire), self.killed.load(Ordering::Acquire));
        match status {
            Ok(status) => self.notices.lock().reason(status, terminated, killed),
            Err(error) => ExitReason::LinkLost(format!("the end of `srun` can't be seen: {error}")),
        }
    }

    /// Sends SIGTERM to the step. Returns `false` if it has not started yet.
    async fn ask_to_end(&self) -> bool {
        let Some(step) = self.step_if_started() else { return false };
        if let Err(error) = commands::cancel(&["--signal=TERM", &step]).await {
            tracing::warn!("{} was not asked to end: {error}", self.place());
        }
        true
    }

    fn step_if_started(&self) -> Option<String> {
        let notices = self.notices.lock();
        notices.step.clone().filter(|_| notices.started)
    }

    /// Cancels a step whose `srun` does not kill it.
    async fn force(&self) {
        sleep(KILL_LIMIT).await;
        let step = self.notices.lock().step.clone();
        if let Some(step) = step
            && let Err(error) = commands::cancel(&[&step]).await
        {
            tracing::warn!("the step {step} may go on for a while: {error}");
        }
        sleep(KILL_LIMIT).await;
    }

    /// Passes output of the process on, and answers its mark.
    async fn pass(&self, output: &mut MarkedOutput, bytes: &[u8]) {
        if output.push(bytes).await {
            // Without a reader, the process has ended.
            let _ = (&self.answers).write_all(b"\n");
        }
    }

    async fn hear_or_pass(&self, output: &mut MarkedOutput, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        match notices::words(text.trim_end()) {
            Some(words) => self.hear(words),
            None => self.pass(output, line).await,
        }
    }

    /// Takes in what Slurm says.
    fn hear(&self, words: &str) {
        tracing::debug!("{}: {words}", self.place());
        let change = self.notices.lock().add(words);
        match change {
            Some(Change::Waits(why)) => {
                let reason = crate::WaitReason::Resources(why);
                self.states.send_replace(JobState::Waiting(reason));
            }
            Some(Change::Runs) => {
                self.states.send_replace(JobState::Running);
                self.news.notify_one();
            }
            Some(Change::Elsewhere(problem)) => {
                let place = self.place();
                fiber_core::spawn_local(print_message(format!(
                    "fiber: warning: {place}: {problem}: all nodes need the working directory\n"
                )));
            }
            None => {}
        }
    }
}

/// Forwards the output of a step to its end.
async fn forward(mut pipe: impl AsyncRead + Unpin, mut output: MarkedOutput, job: Arc<StepJob>) {
    let mut pending = Vec::with_capacity(4 << 10);
    while pipe.read_buf(&mut pending).await.unwrap_or(0) > 0 {
        job.pass(&mut output, &pending).await;
        pending.clear();
    }
    output.finish().await;
}

/// Forwards the errors of a step to their end; the lines of Slurm itself go to the job.
async fn forward_beside_notices(
    mut pipe: impl AsyncRead + Unpin,
    mut output: MarkedOutput,
    job: Arc<StepJob>,
) {
    let mut pending = Vec::with_capacity(4 << 10);
    while pipe.read_buf(&mut pending).await.unwrap_or(0) > 0 {
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            job.hear_or_pass(&mut output, &line).await;
        }
        if pending.len() >= MAX_LINE {
            job.pass(&mut output, &pending).await;
            pending.clear();
        }
    }
    job.hear_or_pass(&mut output, &pending).await;
    output.finish().await;
}
