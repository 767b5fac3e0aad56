//! One pod, from the request for it to its end.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use fiber_core::{Exit, ExitReason, Meta, OutputMode};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::api_server::{ApiServer, is_missing};
use super::context::PodContext;
use super::secret::{SecretData, SecretStore, SharedSecret};
use super::status::{DELETED, PodState, pod_state, pull_problem};
use super::watch::{PodEvent, PodSubscription, PodWatch};
use super::{claims, events, logs};
use crate::job_handle::{self, JobCommand, JobCommands};
use crate::output::{Log, OutputStream, OutputTarget, Tail, drain};
use crate::{Job, JobSpec, JobState, WaitReason};

/// How long to read what a pod printed after its end, and after it was killed.
const DRAIN: Duration = Duration::from_secs(5);
const DRAIN_KILLED: Duration = Duration::from_millis(300);
/// How long the end of a job may be held up by its removal; what takes longer goes on beside.
const REMOVAL: Duration = Duration::from_secs(1);
/// Pauses before a pod is made in the place of one that its node refused, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How often to ask what a pod's node is at while it makes the container: its status does not say.
pub(super) const EVENT_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Makes a pod, and sees to it until its end.
pub(super) fn start(
    context: &PodContext,
    name: String,
    mut pod: Pod,
    spec: &JobSpec,
    log: Option<Log>,
) -> Arc<dyn Job> {
    let (job, states, commands) = job_handle::new(format!("pod {name}"));
    let output = match (spec.output, log) {
        (OutputMode::Null, _) => None,
        (_, Some(log)) => Some(OutputTarget::File(Arc::new(log.file))),
        (mode, None) => Some(OutputTarget::new(mode, OutputStream::Stdout, &spec.name)),
    };
    let mut task = PodTask {
        server: context.server.clone(),
        watch: Arc::clone(&context.watch),
        name,
        image: context.template.image().name.clone(),
        program: context.template.image().program.clone(),
        requested: requested(&spec.meta),
        claims: claims::of(&pod),
        output,
        tail: Tail::default(),
        commands,
        killed: Cell::new(false),
        terminate_requested: false,
        terminate_sent: false,
        deleted_by_others: false,
        log_task: None,
    };
    let secrets = Arc::clone(&context.secrets);
    let secret_data: SecretData =
        spec.secrets.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    // All that is made for the job is made while it is there to be waited for: a program that ends
    // leaves none behind.
    tokio::task::spawn_local(async move {
        let exit = if task.commands.is_pending() {
            Exit::new(ExitReason::Signal(9), Vec::new())
        } else if secret_data.is_empty() {
            task.run(&pod, &states).await
        } else {
            match secrets.acquire(secret_data).await {
                Ok(secret) => {
                    add_secret_variables(&mut pod, &secret);
                    let exit = task.run(&pod, &states).await;
                    release(secrets, secret).await;
                    exit
                }
                Err(problem) => Exit::new(ExitReason::NotStarted(problem), Vec::new()),
            }
        };
        states.send_replace(JobState::Ended(exit));
    });
    job
}

fn add_secret_variables(pod: &mut Pod, secret: &SharedSecret) {
    let containers = pod.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    containers
        .for_each(|container| container.env.get_or_insert_default().extend(secret.variables()));
}

async fn release(secrets: Arc<SecretStore>, secret: Arc<SharedSecret>) {
    let releasing = tokio::task::spawn_local(async move { secrets.release(secret).await });
    let _ = timeout(REMOVAL, releasing).await;
}

struct PodTask {
    server: ApiServer,
    watch: Arc<PodWatch>,
    name: String,
    image: String,
    program: Option<String>,
    /// What it asks for, in words.
    requested: String,
    claims: Vec<String>,
    /// `None`, if only the last lines are wanted.
    output: Option<OutputTarget>,
    tail: Tail,
    commands: JobCommands,
    killed: Cell<bool>,
    /// Whether it is to be requested to end, and whether it was.
    terminate_requested: bool,
    terminate_sent: bool,
    /// Whether somebody else is having it removed.
    deleted_by_others: bool,
    log_task: Option<LogTask>,
}

/// A task that passes on what a pod prints.
struct LogTask {
    task: JoinHandle<()>,
    ended: watch::Sender<bool>,
}

/// What became of a pod.
enum PodOutcome {
    Ended(ExitReason),
    /// It never ran: its node had no room for it after all, in Kubernetes' words.
    Rejected(String),
}

impl PodTask {
    /// Sees to the job until its end, through as many pods as nodes refuse.
    async fn run(mut self, pod: &Pod, states: &watch::Sender<JobState>) -> Exit {
        let mut pause = BACKOFF.0;
        loop {
            let mut subscription = self.watch.subscribe(&self.name);
            if self.commands.is_pending() {
                return Exit::new(ExitReason::Signal(9), Vec::new());
            }
            if let Err(error) = self.create(pod).await {
                let problem = self.server.explain(&error);
                return Exit::new(ExitReason::NotStarted(problem), Vec::new());
            }
            subscription.created();
            let words = match self.follow(&mut subscription, states).await {
                PodOutcome::Ended(reason) => return self.end(reason).await,
                PodOutcome::Rejected(words) => words,
            };
            tracing::debug!("{} is made again in {pause:?}: {words}", self.name);
            set_state(
                states,
                JobState::Waiting(WaitReason::Resources(format!("{words}{}", self.requested))),
            );
            if let Err(reason) = self.delete_and_wait(&mut subscription, pause).await {
                return self.end(reason).await;
            }
            pause = (2 * pause).min(BACKOFF.1);
        }
    }

    /// Sees to a pod that has been created.
    async fn follow(
        &mut self,
        subscription: &mut PodSubscription,
        states: &watch::Sender<JobState>,
    ) -> PodOutcome {
        // What is made in the place of a pod that was refused waits for room until more is known.
        let first = !matches!(*states.borrow(), JobState::Waiting(_));
        let mut pull = None;
        let mut seen = PodState::Starting;
        let mut doubt = None;
        if self.killed.get() {
            return PodOutcome::Ended(ExitReason::Signal(9));
        }
        loop {
            if self.terminate_requested && !self.terminate_sent && terminable(&seen) {
                self.terminate_sent = true;
                self.terminate().await;
            }
            tokio::select! {
                biased;
                order = self.commands.next() => match order {
                    JobCommand::Kill => {
                        self.killed.set(true);
                        let reason = if self.deleted_by_others { events::removal(&self.server, &self.name).await } else { None };
                        return PodOutcome::Ended(reason.unwrap_or(ExitReason::Signal(9)));
                    }
                    JobCommand::Terminate => self.terminate_requested = true,
                },
                problem = claims::lapse(&self.server, doubt.as_ref()) => {
                    return PodOutcome::Ended(ExitReason::NotStarted(problem));
                }
                () = sleep(EVENT_POLL_INTERVAL), if matches!(seen, PodState::Waiting(WaitReason::Image(_))) => {
                    if let Some(words) = events::last(&self.server, "Pod", &self.name).await {
                        set_state(states, JobState::Waiting(WaitReason::Image(words)));
                    }
                }
                event = subscription.next() => {
                    let (pod, gone) = match event {
                        PodEvent::Applied(pod) => (pod, false),
                        PodEvent::Deleted(Some(pod)) => (pod, true),
                        PodEvent::Deleted(None) => (Box::default(), true),
                    };
                    pull = pull_problem(&pod).or(pull);
                    seen = pod_state(&pod);
                    self.deleted_by_others = pod.metadata.deletion_timestamp.is_some() && !self.terminate_sent;
                    if matches!(seen, PodState::Running | PodState::Ended(_)) && self.log_task.is_none() {
                        self.log_task = self.print();
                    }
                    match &seen {
                        PodState::MissingClaim(words) => {
                            doubt.get_or_insert_with(|| (Instant::now() + claims::DOUBT, self.stuck(words, None)));
                        }
                        _ => doubt = None,
                    }
                    match seen.clone() {
                        PodState::Ended(reason) => return PodOutcome::Ended(self.reason(reason, &pod).await),
                        _ if gone => {
                            let reason = ExitReason::LinkLost(DELETED.into());
                            return PodOutcome::Ended(self.reason(reason, &pod).await);
                        }
                        PodState::Rejected(words) => return PodOutcome::Rejected(words),
                        PodState::CannotStart(words) => {
                            return PodOutcome::Ended(ExitReason::NotStarted(self.stuck(&words, pull.as_deref())));
                        }
                        PodState::Starting if first => set_state(states, JobState::Starting),
                        PodState::Starting => {}
                        PodState::MissingClaim(words) | PodState::Waiting(WaitReason::Resources(words)) => {
                            let words = claims::explain(&self.server, &self.claims, words).await;
                            set_state(states, JobState::Waiting(WaitReason::Resources(format!("{words}{}", self.requested))));
                        }
                        PodState::Waiting(wait) => set_state(states, JobState::Waiting(wait)),
                        PodState::Running => set_state(states, JobState::Running),
                    }
                }
            }
        }
    }

    /// Removes a pod that was refused. Returns when it is gone and a pause is over.
    ///
    /// # Errors
    /// How the job ends, by an order or because the pod can't be removed.
    async fn delete_and_wait(
        &mut self,
        subscription: &mut PodSubscription,
        pause: Duration,
    ) -> Result<(), ExitReason> {
        let withdrawal = async {
            self.server.remove::<Pod>(&self.name).await?;
            while !matches!(subscription.next().await, PodEvent::Deleted(_)) {}
            sleep(pause).await;
            Ok(())
        };
        tokio::select! {
            removed = withdrawal => removed.map_err(|error| ExitReason::NotStarted(self.server.explain(&error))),
            order = self.commands.next() => Err(ExitReason::Signal(match order {
                JobCommand::Terminate => 15,
                JobCommand::Kill => 9,
            })),
        }
    }

    /// Creates the pod. An order to kill it ends the attempts, but not one that is under way: it
    /// may succeed.
    async fn create(&mut self, pod: &Pod) -> Result<(), kube::Error> {
        let (server, killed) = (self.server.clone(), &self.killed);
        let mut creating = std::pin::pin!(server.create(pod, || !killed.get()));
        loop {
            tokio::select! {
                result = &mut creating => return result,
                order = self.commands.next(), if !killed.get() => match order {
                    JobCommand::Terminate => self.terminate_requested = true,
                    JobCommand::Kill => killed.set(true),
                },
            }
        }
    }

    /// Asks the process to end. Kubernetes removes a pod that was requested to.
    async fn terminate(&self) {
        match self.server.api::<Pod>().delete(&self.name, &DeleteParams::default()).await {
            Err(error) if !is_missing(&error) => {
                tracing::warn!(
                    "{} can't be requested to end: {}",
                    self.name,
                    self.server.explain(&error)
                );
            }
            _ => {}
        }
    }

    /// Begins to pass on what the pod prints.
    fn print(&self) -> Option<LogTask> {
        let target = self.output.clone()?;
        let (ended, receiver) = watch::channel(false);
        let log_task = logs::follow(
            self.server.streams(),
            self.name.clone(),
            target,
            self.tail.clone(),
            receiver,
        );
        Some(LogTask { task: tokio::task::spawn_local(log_task), ended })
    }

    /// The last lines, and the end of the pod.
    async fn end(self, reason: ExitReason) -> Exit {
        let limit = if self.killed.get() { DRAIN_KILLED } else { DRAIN };
        match self.log_task {
            Some(LogTask { task, ended }) => {
                ended.send_replace(true);
                drain(task, limit).await;
            }
            None => {
                let api = self.server.api();
                let _ = timeout(limit, logs::take_last(&api, &self.name, &self.tail)).await;
            }
        }
        let (server, name) = (self.server, self.name.clone());
        let removing = tokio::task::spawn_local(async move {
            if let Err(error) = server.remove::<Pod>(&name).await {
                tracing::warn!("the pod {name} stays behind: {}", server.explain(&error));
            }
        });
        if timeout(REMOVAL, removing).await.is_err() {
            tracing::debug!("the removal of {} takes its time", self.name);
        }
        Exit::new(reason, self.tail.lines())
    }

    /// What a process's end means if its pod was to go.
    async fn reason(&self, reason: ExitReason, pod: &Pod) -> ExitReason {
        match reason {
            // What came of it is not known, but it was requested to end.
            ExitReason::LinkLost(_) if self.terminate_sent => ExitReason::Signal(15),
            ExitReason::Signal(_)
                if self.terminate_sent || pod.metadata.deletion_timestamp.is_none() =>
            {
                reason
            }
            ExitReason::Signal(_) | ExitReason::LinkLost(_) => {
                events::removal(&self.server, &self.name).await.unwrap_or(reason)
            }
            ExitReason::NotStarted(words) => ExitReason::NotStarted(self.stuck(&words, None)),
            other => other,
        }
    }

    /// Why it will not start, with what to do.
    fn stuck(&self, words: &str, pull: Option<&str>) -> String {
        if words.contains("persistentvolumeclaim") {
            return format!(
                "{words}: make the claim (kubectl get pvc shows those that there are), or correct `mounts`"
            );
        }
        let reason = words.split(':').next().unwrap_or_default();
        match reason {
            "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => format!(
                "its node can't get the image `{}`: {}. Push it to a registry that the nodes can pull from (`registry`, or \
                 FIBER_REGISTRY, has fiber do it), name the Secret with the credentials in `pull_secrets`, or correct \
                 `image`",
                self.image,
                pull.unwrap_or(words)
            ),
            _ if words.contains("executable file not found")
                || words.contains("no such file or directory") =>
            {
                format!(
                    "the image `{}` has no program that runs at `{}` ({words}): set `program` to its path in the image, or \
                 rebuild the image with it; a program that is linked dynamically needs its loader and libraries there too",
                    self.image,
                    self.program.as_deref().unwrap_or("its entry point")
                )
            }
            _ => words.to_string(),
        }
    }
}

/// Whether the deletion of a pod in this phase is a signal to its process, or there is none. A node
/// may take a pod that it has not reported as running for one that has ended, and then kills
/// whatever runs in it (kubelets before 1.22 do).
fn terminable(state: &PodState) -> bool {
    matches!(
        state,
        PodState::Running | PodState::MissingClaim(_) | PodState::Waiting(WaitReason::Resources(_))
    )
}

pub(super) fn requested(meta: &Meta) -> String {
    let cpu = meta.cpu.map(|cores| format!("{cores} processor cores"));
    let memory = meta.memory.map(|size| format!("{size} of memory"));
    let gpu = meta.gpu.map(|count| format!("{count} graphics processors"));
    let all: Vec<String> = [cpu, memory, gpu].into_iter().flatten().collect();
    if all.is_empty() { String::new() } else { format!(" (it asks for {})", all.join(", ")) }
}

fn set_state(states: &watch::Sender<JobState>, state: JobState) {
    states.send_if_modified(|current| {
        let other = *current != state;
        if other {
            *current = state;
        }
        other
    });
}
