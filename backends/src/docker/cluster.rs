//! The sessions of a Docker engine, for the command `fiber`.

use bollard::errors::Error as EngineError;
use bollard::models::ContainerState;
use bollard::query_parameters::{
    CreateContainerOptions, StopContainerOptions, WaitContainerOptions,
};
use fiber_core::{Config, Error, Result, on_a_thread};
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::LocalBoxStream;

use super::access::EngineAccess;
use super::bundle::Bundle;
use super::container::remedy;
use super::current_container::CurrentContainer;
use super::engine::{Engine, is_missing, refusal};
use super::image::{self, ContainerImage};
use super::labels::SESSION;
use super::request;
use super::{cli, inspect, logs, sessions, sweep, volume};
use crate::BackendError;
use crate::cluster::session::{
    ByteStream, Cluster, ExitStatus, OutputChunk, ProgramSource, RunRequest, SessionProcess,
};
use crate::cluster::volume::Volume;
use crate::cluster::{SessionBackend, Started};
use crate::error::system_error;
use crate::gpus::GpuAllocator;
use crate::progress::Progress;

/// The program and the arguments that replace an image's entry point and command, where the image's
/// own do not apply.
pub(crate) type Command = (Option<String>, Vec<String>);

/// Docker, as the command sees it.
pub(crate) static SESSIONS: SessionBackend = SessionBackend {
    run_examples: &["-a target/release/my-program --its-option"],
    ..SessionBackend::new(
        "docker",
        "Docker",
        "Containers of a Docker engine: this host's, or the one that DOCKER_HOST names",
        |config| {
            Box::pin(async {
                Ok(Box::new(DockerCluster::connect(config).await?) as Box<dyn Cluster>)
            })
        },
    )
};

/// The sessions of a Docker engine.
#[derive(Debug)]
pub(crate) struct DockerCluster {
    config: Config,
    engine: Engine,
    current: Option<CurrentContainer>,
}

impl DockerCluster {
    /// Connects to the engine that `DOCKER_HOST` names, or to this host's.
    ///
    /// # Errors
    /// [`Error::Config`] for invalid mounts, [`Error::System`] if no engine answers.
    pub(crate) async fn connect(config: &Config) -> Result<DockerCluster> {
        request::check(config)?;
        let connect = async {
            let engine = Engine::connect().await?;
            let current = CurrentContainer::find(&engine).await?;
            Ok((engine, current))
        };
        let (engine, current) = connect.await.map_err(system_error("Docker can't be used"))?;
        Ok(DockerCluster { config: config.clone(), engine, current })
    }

    async fn launch(&self, run: &RunRequest, progress: &dyn Progress) -> Result<(), BackendError> {
        for volume in &run.volumes {
            volume::must_exist(&self.engine, &volume.claim).await?;
        }
        let resources = request::resources(&run.meta, &self.engine, &GpuAllocator::of(Vec::new()))?;
        let (image, command) = self.image(run, progress).await?;
        let access = EngineAccess::new(&self.engine, self.current.as_ref());
        let body = request::head(&self.config, run, &image, command, &access, &resources);
        let options = CreateContainerOptions { name: Some(run.name.clone()), ..Default::default() };
        let created =
            self.engine.api.create_container(Some(options), body).await.map_err(|error| {
                match refusal(&error) {
                    Some((409, _)) => format!(
                        "a container `{0}` exists already: choose another name, or remove that one \
                     (`fiber kill {0}`)",
                        run.name
                    ),
                    _ => format!("the Docker engine refused: {}", self.engine.explain(&error)),
                }
            })?;
        let started = self.engine.api.start_container(&created.id, None).await;
        if let Err(error) = started {
            let problem = self.engine.explain(&error);
            if let Err(error) = self.engine.remove(&created.id).await {
                tracing::warn!(
                    "the container {} can't be removed: {}",
                    run.name,
                    self.engine.explain(&error)
                );
            }
            return Err(refused!(
                "the Docker engine could not start it: {problem}{}",
                remedy(&problem.to_string())
            ));
        }
        Ok(())
    }

    /// Builds or pulls the image. Also returns the entry point and command that replace the image's
    /// own.
    pub(super) async fn image(
        &self,
        run: &RunRequest,
        progress: &dyn Progress,
    ) -> Result<(ContainerImage, Command), BackendError> {
        let given = |id: Option<String>, name: &str| ContainerImage {
            name: name.to_string(),
            id: id.unwrap_or_else(|| name.to_string()),
            program: String::new(),
            user: None,
            environment: Vec::new(),
        };
        // The first word of a command replaces the entry point. Without a command, the image's own
        // entry point runs.
        let (program, arguments) = match run.command.split_first() {
            Some((program, arguments)) => (Some(program.clone()), arguments.to_vec()),
            None => (None, Vec::new()),
        };
        let registry = self.config.registry.as_deref();
        match &run.source {
            ProgramSource::Executable(path) => {
                let (path, programs) = (path.clone(), self.config.bundle.clone());
                let bundle = on_a_thread(move || {
                    Bundle::of(&path).and_then(|bundle| bundle.with(&programs))
                });
                let bundle = bundle.await.map_err(|error| error.to_string())??;
                let made = image::build_from_bundle(&self.engine, &bundle, progress).await?;
                let name = image::publish(&self.engine, &made.name, registry, progress).await?;
                let command = (Some(made.program.clone()), run.command.clone());
                Ok((ContainerImage { name, ..made }, command))
            }
            ProgramSource::Image(name) => {
                let found =
                    image::ensure_pulled(&self.engine, &self.config, name, progress).await?;
                Ok((given(found.id, name), (program, arguments)))
            }
            ProgramSource::Dockerfile(file) => {
                let name = image::name_of_dockerfile(file);
                cli::build(&self.engine, file, &name, progress).await?;
                let published = image::publish(&self.engine, &name, registry, progress).await?;
                let found =
                    image::ensure_pulled(&self.engine, &self.config, &name, progress).await?;
                Ok((given(found.id, &published), (program, arguments)))
            }
        }
    }

    fn failed(&self, what: String) -> impl FnOnce(EngineError) -> Error + '_ {
        move |error| Error::system(what, self.engine.explain(&error))
    }
}

impl Cluster for DockerCluster {
    fn unit(&self) -> &'static str {
        "container"
    }

    fn includes(&self, backend: &str) -> bool {
        backend == SESSIONS.name
    }

    fn start<'a>(
        &'a self,
        run: &'a RunRequest,
        progress: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<Started>> {
        Box::pin(async move {
            let failed = |error: BackendError| Error::not_started(&run.name, error);
            self.launch(run, progress).await.map_err(failed)?;
            Ok(Started::Elsewhere)
        })
    }

    fn remove_session<'a>(&'a self, session: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let label = format!("{SESSION}={session}");
            let remove = async {
                let listed = sessions::containers(&self.engine, &label).await?;
                for id in listed.into_iter().filter_map(|container| container.id) {
                    self.engine.remove(&id).await?;
                }
                Ok(())
            };
            let failed = format!("the containers of session {session} can't be removed");
            remove.await.map_err(self.failed(failed))
        })
    }

    fn processes(&self) -> LocalBoxFuture<'_, Result<Vec<SessionProcess>>> {
        Box::pin(async move {
            let listed = sessions::list(&self.engine).await;
            listed.map_err(self.failed("the containers can't be listed".into()))
        })
    }

    fn logs<'a>(
        &'a self,
        name: &'a str,
        follow: bool,
        tail: Option<u64>,
    ) -> LocalBoxFuture<'a, Result<LocalBoxStream<'a, Result<OutputChunk>>>> {
        let output = logs::read(self.engine.clone(), name.to_string(), follow, tail);
        Box::pin(std::future::ready(Ok(output)))
    }

    fn wait<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<ExitStatus>> {
        Box::pin(async move {
            let failed =
                |error| self.failed(format!("the exit status of {name} is unknown"))(error);
            loop {
                let options = WaitContainerOptions { condition: "not-running".into() };
                let mut waiting = Box::pin(self.engine.api.wait_container(name, Some(options)));
                let code = match waiting.next().await {
                    Some(Ok(response)) => Some(response.status_code),
                    Some(Err(EngineError::DockerContainerWaitError { code, .. })) => Some(code),
                    Some(Err(error)) => return Err(failed(error)),
                    None => None,
                };
                let state = match (self.engine.api.inspect_container(name, None).await, code) {
                    // Another command has removed it already.
                    (Err(error), Some(code)) if is_missing(&error) => {
                        ContainerState { exit_code: Some(code), ..Default::default() }
                    }
                    (details, _) => details.map_err(failed)?.state.unwrap_or_default(),
                };
                // An engine that starts the container again counts it as running meanwhile.
                if state.running != Some(true) {
                    return Ok(sessions::exit_status(&state));
                }
                tokio::time::sleep(logs::PAUSE).await;
            }
        })
    }

    fn stop<'a>(&'a self, name: &'a str, grace: u32) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if grace > 0 {
                // Paused processes get no signal. One that runs is an error without consequences.
                let _ = self.engine.api.unpause_container(name).await;
            }
            let options =
                StopContainerOptions { t: i32::try_from(grace).ok(), ..Default::default() };
            match self.engine.api.stop_container(name, Some(options)).await {
                Err(error) if is_missing(&error) => Ok(()),
                // It has ended already; or it is paused, and only its removal ends it.
                Err(EngineError::DockerResponseServerError { status_code: 304 | 409, .. }) => {
                    Ok(())
                }
                result => result.map_err(self.failed(format!("{name} can't be stopped"))),
            }
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let removed = self.engine.remove(name).await;
            removed.map_err(self.failed(format!("{name} can't be removed")))
        })
    }

    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move {
            let failed = || "leftovers of dead sessions can't be removed".to_string();
            let mut removed =
                sessions::remove_ended_heads(&self.engine).await.map_err(self.failed(failed()))?;
            let swept = sweep::sweep(&self.engine, self.current.as_ref()).await;
            removed.extend(swept.map_err(system_error(failed()))?);
            Ok(removed)
        })
    }

    fn inspect<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<Box<dyn ByteStream>>> {
        Box::pin(inspect::connect(&self.engine, name))
    }

    fn volume<'a>(
        &'a self,
        claim: &'a str,
        session: &'a str,
        _: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<Box<dyn Volume + 'a>>> {
        Box::pin(async move {
            let opened =
                volume::Helper::start(&self.engine, self.current.as_ref(), claim, session).await;
            let helper = opened.map_err(system_error(format!("volume `{claim}`")))?;
            Ok(Box::new(helper) as Box<dyn Volume + 'a>)
        })
    }
}
