//! One container, from the request for it to its exit.

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
use super::engine::{Engine, is_missing, refusal};
use super::events::{ContainerEvent, ContainerEvents};
use super::image::ContainerImage;
use super::owner;
use super::request::Resources;
use crate::job_handle::{self, JobCommand, JobCommands};
use crate::oom::OomKills;
use crate::output::{LineForwarder, Log, OutputStream, OutputTarget, Tail, drain};
use crate::{Job, JobSpec, JobState};

/// How long to read what a container printed after its end, and how long to wait for what the
/// engine tells late.
const DRAIN: Duration = Duration::from_secs(2);
/// What a shell's, and the init process's, exit code is for a program that a signal killed, beside
/// the signal.
const BY_SIGNAL: i64 = 128;

/// A container to be.
#[derive(Debug)]
pub(super) struct ContainerRequest {
    pub(super) name: String,
    pub(super) body: ContainerCreateBody,
    pub(super) spec: JobSpec,
    pub(super) resources: Resources,
    pub(super) log: Option<Log>,
}

/// Makes a container, and sees to it until its exit.
pub(super) fn start(
    context: &DockerContext,
    image: &ContainerImage,
    request: ContainerRequest,
) -> Arc<dyn Job> {
    let (job, states, commands) = job_handle::new(format!("container {}", request.name));
    let task = ContainerTask {
        engine: Arc::clone(&context.engine),
        events: Arc::clone(&context.events),
        image: image.name.clone(),
        program: image.program.clone(),
        tail: Tail::default(),
        commands,
    };
    tokio::task::spawn_local(async move {
        let ContainerRequest { name, body, spec, resources, log } = request;
        let limited = resources.memory.is_some();
        let reason = task.run(&name, body, &spec, limited, log, &states).await;
        // What it had is free before anybody hears of its end, and starts another in its place.
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

/// How a container ended.
struct ContainerExit {
    code: Option<i64>,
    out_of_memory: bool,
}

impl ContainerTask {
    async fn run(
        mut self,
        name: &str,
        body: ContainerCreateBody,
        spec: &JobSpec,
        limited: bool,
        log: Option<Log>,
        states: &watch::Sender<JobState>,
    ) -> Exit {
        let not_started = |problem: String| Exit::new(ExitReason::NotStarted(problem), Vec::new());
        if self.commands.is_pending() {
            // Perhaps because this process is about to end, and could not remove what is made now.
            return Exit::new(ExitReason::Signal(9), Vec::new());
        }
        let options = CreateContainerOptions { name: Some(name.to_string()), ..Default::default() };
        let id = match self.engine.api.create_container(Some(options), body).await {
            Ok(created) => created.id,
            Err(error) => return not_started(self.explain(&error)),
        };
        if self.commands.is_pending() {
            return self.discard(name, &id, ExitReason::Signal(9)).await;
        }
        let mut events = self.events.subscribe(&id);
        let oom_kills = OomKills::so_far();
        let forwarding = match self.attach_and_start(&id, spec, log).await {
            Ok(forwarding) => forwarding,
            Err(error) => {
                let problem = self.explain(&error);
                return self.discard(name, &id, ExitReason::NotStarted(problem)).await;
            }
        };
        states.send_replace(JobState::Running);

        let mut exit = ContainerExit { code: None, out_of_memory: false };
        let mut may_command = true;
        loop {
            tokio::select! {
                biased;
                event = events.next() => match event {
                    ContainerEvent::OutOfMemory => exit.out_of_memory = true,
                    ContainerEvent::Died(code) => {
                        exit.code = Some(code);
                        break;
                    }
                    ContainerEvent::Removed => break,
                },
                order = self.commands.next(), if may_command => {
                    may_command = order == JobCommand::Terminate;
                    if let Err(error) = self.execute(&id, order).await {
                        let problem = self.engine.explain(&error);
                        return Exit::new(ExitReason::LinkLost(problem), self.tail.lines());
                    }
                }
            }
        }
        drain(forwarding, DRAIN).await;
        let killed = exit.code == Some(BY_SIGNAL + 9);
        if killed && limited && may_command && !exit.out_of_memory {
            // The engine may hear of the end before it hears of the reason; the removal comes after
            // both.
            let told = async {
                loop {
                    match events.next().await {
                        ContainerEvent::OutOfMemory => return true,
                        ContainerEvent::Removed => return false,
                        ContainerEvent::Died(_) => {}
                    }
                }
            };
            // It may never hear of it, if it is busy. What kernel it runs on is known if it is
            // reached by a socket.
            let is_here = self.engine.socket().is_some();
            exit.out_of_memory =
                timeout(DRAIN, told).await.unwrap_or(false) || is_here && oom_kills.have_risen();
        }
        Exit::new(self.reason(&exit), self.tail.lines())
    }

    /// Removes a container that was not started.
    async fn discard(&self, name: &str, id: &str, reason: ExitReason) -> Exit {
        if let Err(error) = owner::remove(&self.engine, id).await {
            tracing::warn!("the container {name} stays behind: {}", self.engine.explain(&error));
        }
        Exit::new(reason, Vec::new())
    }

    /// Connects to the container's input and output, starts it, and tells it its secrets.
    async fn attach_and_start(
        &self,
        id: &str,
        spec: &JobSpec,
        log: Option<Log>,
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
        let file = log.map(|log| Arc::new(log.file));
        let target = |stream| match &file {
            Some(file) => OutputTarget::File(Arc::clone(file)),
            None => OutputTarget::new(spec.output, stream, &spec.name),
        };
        let mut out = LineForwarder::new(target(OutputStream::Stdout), self.tail.clone());
        let mut errors = LineForwarder::new(target(OutputStream::Stderr), self.tail.clone());
        let forwarding = tokio::task::spawn_local(async move {
            while let Some(Ok(part)) = output.next().await {
                match part {
                    LogOutput::StdErr { message } => errors.take(&message).await,
                    LogOutput::StdOut { message } | LogOutput::Console { message } => {
                        out.take(&message).await
                    }
                    LogOutput::StdIn { .. } => {}
                }
            }
            out.end().await;
            errors.end().await;
        });
        self.engine.api.start_container(id, None).await?;
        let secrets: String = spec.secrets.iter().map(|(_, value)| format!("{value}\n")).collect();
        let told = async {
            input.write_all(secrets.as_bytes()).await?;
            input.shutdown().await
        };
        if let Err(error) = told.await {
            // It has ended already, or will when it is told nothing.
            tracing::debug!("the container {id} was not told its secrets: {error}");
        }
        Ok(forwarding)
    }

    async fn execute(&self, id: &str, order: JobCommand) -> Result<(), bollard::errors::Error> {
        match order {
            JobCommand::Kill => owner::remove(&self.engine, id).await,
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

    fn reason(&self, exit: &ContainerExit) -> ExitReason {
        match exit.code {
            Some(0) => ExitReason::Normal,
            Some(137) if exit.out_of_memory => ExitReason::OutOfMemory,
            Some(code @ (126 | 127)) => self.no_program().unwrap_or(ExitReason::Code(code as i32)),
            Some(code @ 129..=192) => ExitReason::Signal((code - BY_SIGNAL) as i32),
            Some(code) => ExitReason::Code(code as i32),
            None => ExitReason::LinkLost(
                "its container was removed, or the Docker engine stopped".into(),
            ),
        }
    }

    /// What the container's init process says when it can't start the program.
    fn no_program(&self) -> Option<ExitReason> {
        let said = self
            .tail
            .lines()
            .into_iter()
            .find(|line| line.contains("] exec ") && line.contains(" failed: "))?;
        let (_, problem) = said.rsplit_once(" failed: ")?;
        Some(ExitReason::NotStarted(format!(
            "the image `{}` has no program that runs at `{}` ({problem}): set `program` to its path in the image, or \
             rebuild the image with it; a program that is linked dynamically needs its loader and libraries there too",
            self.image, self.program
        )))
    }

    /// The engine's refusals, with what to do.
    fn explain(&self, error: &bollard::errors::Error) -> String {
        let problem = self.engine.explain(error);
        let Some((_, said)) = refusal(error) else { return problem };
        let remedy = remedy(said);
        format!("the Docker engine refused: {problem}{remedy}")
    }
}

/// What to do about a refusal of the engine.
pub(super) fn remedy(said: &str) -> &'static str {
    if said.contains("capabilities: [[gpu]]") {
        ": the Docker host offers no graphics processors (install the NVIDIA container toolkit there), or ask for none"
    } else if said.contains("bind source path does not exist") {
        ": correct `mounts`; the path has to be on the Docker host"
    } else if said.contains("No such image") {
        ": it was removed meanwhile; run the program again"
    } else if said.contains("unable to find user") {
        ": set `user` to one that the image knows, or to a number"
    } else {
        ""
    }
}
