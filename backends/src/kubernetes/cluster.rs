//! The sessions of a Kubernetes namespace, for the command `fiber`.

use std::collections::BTreeMap;

use fiber_core::{Config, Error, Result};
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::LocalBoxStream;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;

use super::api_server::{ApiServer, is_missing, over_quota};
use super::current_pod::{self, CurrentPod};
use super::image::PodImage;
use super::job::QUOTA_PAUSE;
use super::names::{NAME, SESSION, labels};
use super::pod_template::{PodRequest, PodTemplate, check, variable};
use super::sessions::{self, HEAD, exit_status};
use super::startup::{self, Start, StartTimeouts};
use super::status::exit_reason;
use super::volume::{self, Helper};
use super::{inspect, logs, object_watch, restarted, sweep};
use crate::cluster::session::{
    ByteStream, Cluster, ExitStatus, OutputChunk, ProgramSource, RunRequest, SessionProcess,
};
use crate::cluster::volume::Volume;
use crate::cluster::{BackendOption, OptionKind, SessionBackend, Started};
use crate::error::system_error;
use crate::progress::Progress;
use crate::{BackendError, HEAD_END, KubernetesSection, docker};

/// The service account of fiber's manifest.
const ACCOUNT: &str = "fiber";
/// The number of output chunks that may wait for the reader.
const CHUNKS: usize = 16;

/// Kubernetes, as the command sees it.
pub(crate) static SESSIONS: SessionBackend = SessionBackend {
    run_about: "On Kubernetes, its pod runs as the service account `fiber` if that exists (see \
                deploy/kubernetes/rbac.yaml) and no other is configured; --gpu requests \
                nvidia.com/gpu.",
    run_examples: &["-v nfs cat /persistent/foo.txt"],
    place_options: &[BackendOption::new(
        "namespace",
        OptionKind::Text,
        "NAMESPACE",
        "The namespace on Kubernetes [default: FIBER_KUBERNETES_NAMESPACE or \
         fiber.toml, else the kubeconfig's]",
    )],
    place: |options, config| {
        if let Some(namespace) = options.text("namespace") {
            config.edit(|section: &mut KubernetesSection| section.namespace = Some(namespace));
        }
    },
    ..SessionBackend::new(
        "kubernetes",
        "Kubernetes",
        "Pods of the Kubernetes cluster that the kubeconfig names",
        |config| {
            Box::pin(async {
                Ok(Box::new(KubernetesCluster::connect(config).await?) as Box<dyn Cluster>)
            })
        },
    )
};

/// The sessions of a namespace.
#[derive(Debug)]
pub(crate) struct KubernetesCluster {
    config: Config,
    server: ApiServer,
    own: Option<CurrentPod>,
}

impl KubernetesCluster {
    /// Connects to the cluster of the kubeconfig, or to the one in which this process is a pod.
    ///
    /// # Errors
    /// [`Error::Config`] for invalid entries, [`Error::System`] if the cluster can't be reached.
    pub(crate) async fn connect(config: &Config) -> Result<KubernetesCluster> {
        check(config)?;
        let connected = current_pod::connect(config).await;
        let (server, own) = connected.map_err(system_error("Kubernetes can't be used"))?;
        Ok(KubernetesCluster { config: config.clone(), server, own })
    }

    async fn launch(&self, run: &RunRequest, progress: &dyn Progress) -> Result<(), BackendError> {
        for volume in &run.volumes {
            volume::must_exist(&self.server, &volume.claim).await?;
        }
        let (image, arguments) = self.image(run, progress).await?;
        let mut config = self.config.clone();
        config.mounts.extend(run.volumes.iter().map(|volume| {
            let mode = if volume.read_only { "ro" } else { "rw" };
            format!("{}:{}:{mode}", volume.claim, volume.path)
        }));
        let role = run.role();
        let own = [("FIBER_BACKEND".to_string(), "kubernetes".to_string())];
        let template = PodTemplate::new(&config, image).map_err(|problem| problem.to_string())?;
        let template = match template.names_account() {
            true => template,
            false => match account_problem(&self.server).await {
                None => template.with_account(ACCOUNT),
                Some(problem) => {
                    tracing::warn!(
                        "{} runs as the namespace's default service account: {problem}",
                        run.name
                    );
                    template
                }
            },
        };
        let pod = template.with_token().pod(PodRequest {
            name: run.name.clone(),
            labels: labels(&run.session, &role, HEAD),
            annotations: BTreeMap::from([(NAME.to_string(), role)]),
            arguments,
            environment: own
                .iter()
                .chain(&run.environment)
                .map(|(name, value)| variable(name, value))
                .collect(),
            meta: run.meta,
            grace: config.grace.saturating_add(HEAD_END),
        });
        self.create_head(run, pod, progress).await?;
        let started = match self.wait_for_head(run, progress).await {
            Ok(Start::Seen) => Ok(()),
            Ok(Start::Unseen(error)) => {
                return Err(refused!(
                    "it was created and goes on, but its start can't be seen (`fiber kill {}` ends \
                     it): {}",
                    run.name,
                    self.server.explain(&error)
                ));
            }
            Err(error) => Err(error),
        };
        if started.is_err()
            && let Err(error) = self.remove_head(&run.name).await
        {
            tracing::warn!(
                "the pod {} can't be removed: {}",
                run.name,
                self.server.explain(&error)
            );
        }
        started
    }

    /// Creates the pod of a head, or the Job that makes its pods. Waits while a quota of the
    /// namespace has no room for it. For the pods of a Job, Kubernetes waits.
    async fn create_head(
        &self,
        run: &RunRequest,
        pod: Pod,
        progress: &dyn Progress,
    ) -> Result<(), BackendError> {
        let server = &self.server;
        // Pods and Jobs have names of their own, but sessions need different ones.
        let taken = match run.restarts {
            0 => restarted::pods(server, &run.name).await.map(|pods| !pods.is_empty()),
            _ => server.api::<Pod>().get_opt(&run.name).await.map(|pod| pod.is_some()),
        };
        // A missing right is the error of the creation below.
        if taken.is_ok_and(|taken| taken) {
            return Err(exists(&run.name).into());
        }
        let limit = self.config.schedule_timeout;
        let deadline = Instant::from(fiber_core::deadline_after(limit));
        let mut waiting = None;
        let mut pause = QUOTA_PAUSE.0;
        loop {
            let created = match run.restarts {
                0 => server.create_new(&pod).await,
                restarts => server.create_new(&restarted::job(pod.clone(), restarts)).await,
            };
            let Err(error) = created else { break };
            if matches!(&error, kube::Error::Api(status) if status.is_already_exists()) {
                return Err(exists(&run.name).into());
            }
            let Some(words) = over_quota(&error) else { return Err(server.explain(&error)) };
            if Instant::now() >= deadline {
                return Err(BackendError::TimedOut(format!(
                    "it was not created within {limit:?}: {words}: end other pods of the \
                     namespace, or wait longer (`schedule_timeout`)"
                )));
            }
            let step = waiting.get_or_insert_with(|| {
                tracing::warn!("{} is not created yet: {words}", run.name);
                progress.begin(&format!("creating {}", run.name))
            });
            step.detail(words);
            sleep(pause).await;
            pause = (2 * pause).min(QUOTA_PAUSE.1);
        }
        if let Some(step) = waiting {
            step.done();
        }
        Ok(())
    }

    /// Waits until the head runs.
    async fn wait_for_head(
        &self,
        run: &RunRequest,
        progress: &dyn Progress,
    ) -> Result<Start, BackendError> {
        let (server, timeouts) = (&self.server, StartTimeouts::of(&self.config));
        let pod = match run.restarts {
            0 => run.name.clone(),
            _ => restarted::first_pod(server, &run.name, timeouts, progress).await?,
        };
        startup::wait_until_running(server, &pod, &run.meta, timeouts, run.attach, progress).await
    }

    /// Deletes a pod and waits for its end. Returns whether there was one.
    async fn stop_pod(&self, name: &str, grace: u32) -> std::result::Result<bool, kube::Error> {
        let parameters = DeleteParams::default().grace_period(grace);
        match self.server.api::<Pod>().delete(name, &parameters).await {
            Err(error) if is_missing(&error) => return Ok(false),
            result => drop(result?),
        }
        // Without the right to watch it, this looks again and again.
        if object_watch::wait_for(&self.server, name, exit_reason).await.is_err() {
            let pods = self.server.api::<Pod>();
            while pods.get_opt(name).await?.is_some_and(|pod| exit_reason(&pod).is_none()) {
                sleep(restarted::PAUSE).await;
            }
        }
        Ok(true)
    }

    /// Deletes a head or worker without a grace period: its pod, or its Job with all pods.
    async fn remove_head(&self, name: &str) -> std::result::Result<(), kube::Error> {
        if self.server.remove::<Pod>(name).await? {
            return Ok(());
        }
        restarted::remove_job_if_any(&self.server, name).await?;
        for pod in restarted::pods(&self.server, name).await? {
            self.server.remove::<Pod>(&pod.metadata.name.unwrap_or_default()).await?;
        }
        Ok(())
    }

    /// Builds the image if necessary, and returns it with the program's arguments.
    async fn image(
        &self,
        run: &RunRequest,
        progress: &dyn Progress,
    ) -> Result<(PodImage, Vec<String>), BackendError> {
        if let ProgramSource::Image(name) = &run.source {
            let mut command = run.command.iter().cloned();
            return Ok((PodImage::named(name, command.next()), command.collect()));
        }
        let made = docker::image_of(&self.config, run, progress).await;
        let (made, (program, arguments)) = made.map_err(|problem| {
            format!("{problem}\n(pods need an image: `--image` names one that nodes can pull)")
        })?;
        Ok((PodImage { program, ..made.into() }, arguments))
    }

    fn failed(&self, what: String) -> impl FnOnce(kube::Error) -> Error + '_ {
        move |error| Error::system(what, self.server.explain(&error))
    }
}

impl Cluster for KubernetesCluster {
    fn unit(&self) -> &'static str {
        "pod"
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
            let selector = format!("{SESSION}={session}");
            let remove = async {
                let jobs = restarted::jobs(&self.server, &selector).await?;
                for name in jobs.into_iter().filter_map(|job| job.metadata.name) {
                    restarted::remove_job(&self.server, &name).await?;
                }
                let pods = ListParams::default().labels(&selector);
                let pods = self.server.api::<Pod>().list_metadata(&pods).await?;
                for name in pods.into_iter().filter_map(|pod| pod.metadata.name) {
                    self.server.remove::<Pod>(&name).await?;
                }
                Ok(())
            };
            let failed = format!("the pods of session {session} can't be removed");
            remove.await.map_err(self.failed(failed))
        })
    }

    fn processes(&self) -> LocalBoxFuture<'_, Result<Vec<SessionProcess>>> {
        Box::pin(async move {
            let listed = sessions::list(&self.server).await;
            listed.map_err(self.failed("the pods can't be listed".into()))
        })
    }

    fn logs<'a>(
        &'a self,
        name: &'a str,
        follow: bool,
        tail: Option<u64>,
    ) -> LocalBoxFuture<'a, Result<LocalBoxStream<'a, Result<OutputChunk>>>> {
        let (sender, chunks) = mpsc::channel(CHUNKS);
        let (server, name) = (self.server.clone(), name.to_string());
        fiber_core::spawn_local(async move {
            if let Err(error) = logs::read_head(&server, &name, follow, tail, &sender).await {
                let error = Error::system(
                    format!("the output of {name} can't be read"),
                    server.explain(&error),
                );
                // The reader may be gone.
                let _ = sender.send(Err(error)).await;
            }
        });
        let chunks = ReceiverStream::new(chunks).map(|chunk| chunk.map(OutputChunk::Stdout));
        Box::pin(std::future::ready(Ok(chunks.boxed_local())))
    }

    fn wait<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<ExitStatus>> {
        Box::pin(async move {
            let failed = || format!("the exit status of {name} is unknown");
            let pod = self.server.api::<Pod>().get_opt(name).await;
            let reason = match pod.map_err(self.failed(failed()))? {
                Some(_) => object_watch::wait_for(&self.server, name, exit_reason).await,
                None => restarted::wait(&self.server, name).await,
            };
            match reason.map_err(self.failed(failed()))? {
                Some(reason) => Ok(exit_status(&reason)),
                None => Err(Error::system(failed(), "its pod was removed")),
            }
        })
    }

    fn stop<'a>(&'a self, name: &'a str, grace: u32) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let stop = async {
                if self.stop_pod(name, grace).await? {
                    return Ok(());
                }
                let pods = restarted::pods(&self.server, name).await?;
                restarted::remove_job_if_any(&self.server, name).await?;
                for pod in pods.iter().filter_map(|pod| pod.metadata.name.as_deref()) {
                    self.stop_pod(pod, grace).await?;
                }
                Ok(())
            };
            stop.await.map_err(self.failed(format!("{name} can't be stopped")))
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.remove_head(name).await.map_err(self.failed(format!("{name} can't be removed")))
        })
    }

    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move {
            let failed = || "leftovers of dead sessions can't be removed".to_string();
            let heads = sessions::remove_ended_heads(&self.server).await;
            // The sweep also runs after a refusal.
            let swept = sweep::sweep(&self.server, self.own.as_ref()).await;
            let mut removed = heads.map_err(self.failed(failed()))?;
            removed.extend(swept.map_err(system_error(failed()))?);
            Ok(removed)
        })
    }

    fn inspect<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<Box<dyn ByteStream>>> {
        Box::pin(inspect::connect(&self.server, name))
    }

    fn volume<'a>(
        &'a self,
        claim: &'a str,
        session: &'a str,
        progress: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<Box<dyn Volume + 'a>>> {
        Box::pin(async move {
            let opened = Helper::start(
                &self.server,
                &self.config,
                self.own.as_ref(),
                claim,
                session,
                progress,
            )
            .await;
            let helper = opened.map_err(system_error(format!("volume `{claim}`")))?;
            Ok(Box::new(helper) as Box<dyn Volume + 'a>)
        })
    }
}

/// Returns the problem of a name that another session has.
fn exists(name: &str) -> String {
    format!(
        "a pod `{name}` exists already: choose another name, or remove that one (`fiber kill \
         {name}`)"
    )
}

/// Returns why the service account of fiber's manifest can't be used, and the remedy.
async fn account_problem(server: &ApiServer) -> Option<String> {
    let problem = match server.api::<ServiceAccount>().get(ACCOUNT).await.err()? {
        error if is_missing(&error) => {
            return Some(format!(
                "there is no `{ACCOUNT}`, so it may have no right to start workers: `kubectl apply \
                 -f deploy/kubernetes/rbac.yaml`, or set `kubernetes.service_account`"
            ));
        }
        kube::Error::Api(status) => status.message,
        error => server.explain(&error).to_string(),
    };
    Some(format!(
        "whether there is a `{ACCOUNT}` is not known ({problem}): if there is, set \
         `kubernetes.service_account = \"{ACCOUNT}\"`"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::api_server::test_server;

    /// Returns the problem with the account where the API server refuses to show it.
    async fn problem(code: u16, reason: &str, message: &str) -> Option<String> {
        let status = json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure",
            "code": code, "reason": reason, "message": message })
        .to_string();
        account_problem(&test_server::start(move |_| (code, status.clone())).await).await
    }

    #[tokio::test]
    async fn a_service_account_that_is_not_used_is_a_problem_with_a_remedy() {
        let missing = problem(404, "NotFound", "serviceaccounts \"fiber\" not found").await;
        assert!(missing.unwrap().contains("kubectl apply -f deploy/kubernetes/rbac.yaml"));
        let forbidden = problem(403, "Forbidden", "User \"anna\" cannot get resource").await;
        let forbidden = forbidden.unwrap();
        // The manifest is not the remedy of a user who may not look.
        assert!(forbidden.contains("User \"anna\" cannot get") && !forbidden.contains("kubectl"));
        assert!(forbidden.contains("kubernetes.service_account = \"fiber\""), "{forbidden}");
        let account = r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"fiber"}}"#;
        let server = test_server::start(move |_| (200, account.to_string())).await;
        assert_eq!(account_problem(&server).await, None);
    }
}
