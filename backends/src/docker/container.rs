//! The task of one container job, from the container's creation to its end.

use std::sync::Arc;
use std::time::Duration;

use bollard::container::{AttachContainerResults, LogOutput};
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, KillContainerOptions,
};
use fiber_core::{Exit, ExitReason};
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::context::DockerContext;
use super::engine::{Engine, is_away, is_missing, refusal};
use super::events::{ContainerEvent, ContainerEvents};
use super::image::ContainerImage;
use super::request::Resources;
use crate::job_handle::{self, JobCommand, JobCommands};
use crate::oom::OomKills;
use crate::output::{LineForwarder, OutputTarget, Tail, drain};
use crate::{Job, JobPlace, JobSpec, JobState, WaitReason, reason_of_code};

/// Time limit for reading output after a container's end, and for events that the engine sends
/// late.
const DRAIN: Duration = Duration::from_secs(2);
/// The pause before the next attempt while the engine is away, at first and at most.
const AWAY_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The exit code of a container whose process was killed by SIGKILL.
const KILLED: i64 = 128 + 9;

/// A request to create and start a container.
#[derive(Debug)]
pub(super) struct ContainerRequest {
    pub(super) name: String,
    pub(super) body: ContainerCreateBody,
    pub(super) spec: JobSpec,
    pub(super) resources: Resources,
    /// The targets of standard output and of standard error.
    pub(super) outputs: [OutputTarget; 2],
}

/// Creates a container in a local task, which watches it to its end.
pub(super) fn start(
    context: &DockerContext,
    image: &ContainerImage,
    request: ContainerRequest,
) -> Arc<dyn Job> {
    let tail = Tail::default();
    let place = JobPlace::Container { name: request.name.clone() };
    let (job, states, commands) = job_handle::new(place, tail.clone());
    let task = ContainerTask {
        engine: Arc::clone(&context.engine),
        events: Arc::clone(&context.events),
        image: image.name.clone(),
        program: image.program.clone(),
        tail,
        commands,
    };
    fiber_core::spawn_local(async move {
        let ContainerRequest { name, body, spec, resources, outputs } = request;
        let limited = resources.memory.is_some();
        let reason = task.run(&name, body, &spec, limited, outputs, &states).await;
        // Its GPUs are free before the owner learns of its end and starts a replacement.
        drop(resources);
        states.send_replace(JobState::Ended(reason));
    });
    job
}

struct ContainerTask {
    engine: Arc<Engine>,
    events: Arc<ContainerEvents>,
    image: String,
    program: String,
    tail: Tail,
    commands: JobCommands,
}

impl ContainerTask {
    async fn run(
        mut self,
        name: &str,
        body: ContainerCreateBody,
        spec: &JobSpec,
        limited: bool,
        outputs: [OutputTarget; 2],
        states: &watch::Sender<JobState>,
    ) -> Exit {
        if self.commands.is_pending() {
            // This process may be about to exit, and then could not remove a container that it
            // creates now.
            return Exit::new(ExitReason::Signal(9), Vec::new());
        }
        let mut pause = AWAY_PAUSE.0;
        let (id, mut events, oom_kills, forwarding) = loop {
            let options =
                CreateContainerOptions { name: Some(name.to_string()), ..Default::default() };
            let problem = match self.engine.api.create_container(Some(options), body.clone()).await
            {
                Ok(created) => {
                    let id = created.id;
                    if self.commands.is_pending() {
                        return self.discard(name, &id, ExitReason::Signal(9)).await;
                    }
                    let (events, oom_kills) = (self.events.subscribe(&id), OomKills::so_far());
                    match self.attach_and_start(&id, spec, outputs.clone()).await {
                        Ok(forwarding) => break (id, events, oom_kills, forwarding),
                        Err(error) if is_away(&error) => self.explain(&error),
                        Err(error) => {
                            let problem = ExitReason::NotStarted(self.explain(&error));
                            return self.discard(name, &id, problem).await;
                        }
                    }
                }
                Err(error) if is_away(&error) => self.explain(&error),
                Err(error) => {
                    return Exit::new(ExitReason::NotStarted(self.explain(&error)), Vec::new());
                }
            };
            // The engine may come back. `schedule_timeout` limits the wait.
            states.send_replace(JobState::Waiting(WaitReason::Resources(problem)));
            loop {
                let killed = timeout(pause, self.commands.next()).await.is_ok();
                // It may have a container for which it gave no answer.
                let removed = self.engine.remove(name).await;
                if killed {
                    return Exit::new(ExitReason::Signal(9), Vec::new());
                }
                pause = (2 * pause).min(AWAY_PAUSE.1);
                if !matches!(&removed, Err(error) if is_away(error)) {
                    break;
                }
            }
            states.send_replace(JobState::Starting);
        };
        states.send_replace(JobState::Running);

        let mut out_of_memory = false;
        let mut accepts_commands = true;
        let code = loop {
            tokio::select! {
                biased;
                event = events.next() => match event {
                    ContainerEvent::OutOfMemory => out_of_memory = true,
                    ContainerEvent::Died(code) => break Some(code),
                    ContainerEvent::Removed => break None,
                },
                command = self.commands.next(), if accepts_commands => {
                    accepts_commands = command == JobCommand::Terminate;
                    if let Err(error) = self.execute(&id, command).await {
                        let problem = self.engine.explain(&error);
                        return Exit::new(ExitReason::LinkLost(problem.into()), self.tail.lines());
                    }
                }
            }
        };
        drain(forwarding, DRAIN).await;
        if code == Some(KILLED) && limited && accepts_commands && !out_of_memory {
            // The engine may report the exit before the reason; the removal comes after both.
            let late_event = async {
                loop {
                    match events.next().await {
                        ContainerEvent::OutOfMemory => return true,
                        ContainerEvent::Removed => return false,
                        ContainerEvent::Died(_) => {}
                    }
                }
            };
            // A busy engine may never report it. With an engine on this host, the kernel's own
            // count helps.
            let is_here = self.engine.socket().is_some();
            out_of_memory = timeout(DRAIN, late_event).await.unwrap_or(false)
                || is_here && oom_kills.have_risen();
        }
        Exit::new(self.reason(code, out_of_memory), self.tail.lines())
    }

    /// Removes a container that has not started.
    async fn discard(&self, name: &str, id: &str, reason: ExitReason) -> Exit {
        if let Err(error) = self.engine.remove(id).await {
            tracing::warn!(
                "the container {name} can't be removed: {}",
                self.engine.explain(&error)
            );
        }
        Exit::new(reason, Vec::new())
    }

    /// Attaches to the container's input and output, starts it, and writes its secrets to its
    /// input.
    async fn attach_and_start(
        &self,
        id: &str,
        spec: &JobSpec,
        outputs: [OutputTarget; 2],
    ) -> Result<JoinHandle<()>, bollard::errors::Error> {
        let options = AttachContainerOptions {
            stream: true,
            stdin: true,
            stdout: true,
            stderr: true,
            ..Default::default()
        };
        let AttachContainerResults { mut output, mut input } =
            self.engine.api.attach_container(id, Some(options)).await?;
        let [mut out, mut errors] =
            outputs.map(|target| LineForwarder::new(target, self.tail.clone()));
        let forwarding = fiber_core::spawn_local(async move {
            while let Some(Ok(chunk)) = output.next().await {
                match chunk {
                    LogOutput::StdErr { message } => errors.push(&message).await,
                    LogOutput::StdOut { message } | LogOutput::Console { message } => {
                        out.push(&message).await
                    }
                    LogOutput::StdIn { .. } => {}
                }
            }
            out.finish().await;
            errors.finish().await;
        });
        self.engine.api.start_container(id, None).await?;
        let secrets = spec.secret_lines();
        let write_secrets = async {
            input.write_all(secrets.as_bytes()).await?;
            input.shutdown().await
        };
        if let Err(error) = write_secrets.await {
            // It has ended already, or ends because it reads no secrets.
            tracing::debug!("the container {id} did not read its secrets: {error}");
        }
        Ok(forwarding)
    }

    async fn execute(&self, id: &str, command: JobCommand) -> Result<(), bollard::errors::Error> {
        match command {
            JobCommand::Kill => self.engine.remove(id).await,
            JobCommand::Terminate => {
                let options = KillContainerOptions { signal: "SIGTERM".into() };
                match self.engine.api.kill_container(id, Some(options)).await {
                    // It has ended by itself.
                    Err(error)
                        if is_missing(&error) || matches!(refusal(&error), Some((409, _))) =>
                    {
                        Ok(())
                    }
                    result => result,
                }
            }
        }
    }

    fn reason(&self, code: Option<i64>, out_of_memory: bool) -> ExitReason {
        match code {
            Some(KILLED) if out_of_memory => ExitReason::OutOfMemory,
            Some(code @ (126 | 127)) => self.no_program().unwrap_or(ExitReason::Code(code as i32)),
            Some(code) => reason_of_code(code as i32),
            None => ExitReason::LinkLost(
                "its container was removed, or the Docker engine stopped".into(),
            ),
        }
    }

    /// Returns the error that the container's init process prints if it can't execute the program.
    fn no_program(&self) -> Option<ExitReason> {
        let line = self
            .tail
            .lines()
            .into_iter()
            .find(|line| line.contains("] exec ") && line.contains(" failed: "))?;
        let (_, problem) = line.rsplit_once(" failed: ")?;
        Some(ExitReason::NotStarted(format!(
            "the image `{}` has no executable program at `{}` ({problem}): set `program` to its \
             path in the image, or rebuild the image with it; a dynamically linked program also \
             needs its loader and libraries there",
            self.image, self.program
        )))
    }

    /// Formats an error of the engine, with a remedy.
    fn explain(&self, error: &bollard::errors::Error) -> String {
        let problem = self.engine.explain(error);
        let Some((_, message)) = refusal(error) else { return problem.into() };
        let remedy = remedy(message);
        format!("the Docker engine refused: {problem}{remedy}")
    }
}

/// Returns the remedy for an error message of the engine.
pub(super) fn remedy(message: &str) -> &'static str {
    if message.contains("capabilities: [[gpu]]") {
        ": the Docker host offers no GPUs (install the NVIDIA container toolkit there), or ask for \
         none"
    } else if message.contains("bind source path does not exist") {
        ": correct `mounts`; the path has to be on the Docker host"
    } else if message.contains("No such image") {
        ": the image was removed meanwhile; run the program again"
    } else if message.contains("unable to find user") {
        ": set `user` to a user of the image, or to a number"
    } else {
        ""
    }
}
