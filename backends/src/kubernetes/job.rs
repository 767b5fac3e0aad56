//! The task of one pod job, from the pod's creation to its end.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fiber_core::{Exit, ExitReason, OutputMode};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::api_server::{ApiServer, is_missing, over_quota};
use super::context::PodContext;
use super::names::CONTAINER;
use super::secret::{self, SecretData, SecretStore};
use super::status::{
    DELETED, PodState, disruption, has_run, pod_state, pull_problem, with_event, without_reason,
};
use super::watch::{PodEvent, PodSubscription, PodWatch};
use super::{claims, events, logs, start_error};
use crate::job_handle::{self, JobCommand, JobCommands, set_state};
use crate::output::{OutputTarget, Tail, drain};
use crate::{Job, JobPlace, JobSpec, JobState, WaitReason};

/// Time limits for reading the output of a pod that has ended: for each answer of its node, and for
/// all of it if the pod was killed.
const DRAIN: Duration = Duration::from_secs(10);
const DRAIN_KILLED: Duration = Duration::from_millis(300);
/// The longest time that a removal delays the end of a job. After it, the removal continues in the
/// background.
const REMOVAL: Duration = Duration::from_secs(1);
/// The pause before replacing a pod that never ran, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// The pause before creating an object again that is over a quota, at first and at most.
pub(super) const QUOTA_PAUSE: (Duration, Duration) =
    (Duration::from_millis(250), Duration::from_secs(4));
/// The interval of reading a pod's events while its node prepares the container: the pod's status
/// does not show the progress of an image pull.
pub(super) const EVENT_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a node has to report a new pod before that counts as waiting. A busy one takes seconds.
pub(super) const NODE_PATIENCE: Duration = Duration::from_secs(5);

/// Creates a pod in a local task, which watches it to its end.
pub(super) fn start(
    context: &PodContext,
    name: String,
    mut pod: Pod,
    spec: &JobSpec,
    output: OutputTarget,
    shutdown_timeout: Duration,
) -> Arc<dyn Job> {
    let tail = Tail::default();
    let (job, states, commands) =
        job_handle::new(JobPlace::Pod { name: name.clone() }, tail.clone());
    let mut task = PodTask {
        server: context.server.clone(),
        watch: Arc::clone(&context.watch),
        name,
        image: context.template.image().name.clone(),
        program: context.template.image().program.clone(),
        requested: start_error::requested(&spec.meta, &spec.shared_job_remedy()),
        claims: claims::mounted_by(&pod),
        pull_secrets: start_error::pull_secrets(&pod),
        output: (spec.output.mode != OutputMode::Null).then_some(output),
        tail,
        commands,
        shutdown_timeout,
        killed: Cell::new(false),
        terminate_requested: false,
        terminate_sent: false,
        deleted_by_others: false,
        log_task: None,
    };
    let secrets = Arc::clone(&context.secrets);
    let secret_data: SecretData = spec
        .secrets
        .iter()
        .map(|(name, value)| (name.to_string(), value.reveal().into()))
        .collect();
    // The job exists before anything is created for it, so a program that exits waits for the job
    // and leaves nothing behind.
    fiber_core::spawn_local(async move {
        let exit = if task.commands.is_pending() {
            Exit::new(ExitReason::Signal(9), Vec::new())
        } else if secret_data.is_empty() {
            task.run(&pod, &states).await
        } else {
            let secret = secrets.next_name();
            add_secret_variables(&mut pod, &secret, &secret_data);
            let create = async |_: &mut PodTask| secrets.create(&secret, &secret_data).await;
            match task.when_possible(&states, create).await {
                Ok(()) => {
                    let mut state = states.subscribe();
                    let mut run = pin!(task.run(&pod, &states));
                    // No other container needs it: a pod that has run is not created again.
                    let ended = tokio::select! {
                        exit = &mut run => Some(exit),
                        _ = state.wait_for(|state| *state == JobState::Running) => None,
                    };
                    let removed = remove(secrets, secret);
                    match ended {
                        Some(exit) => {
                            removed.await;
                            exit
                        }
                        None => tokio::join!(run, removed).0,
                    }
                }
                Err(reason) => Exit::new(reason, Vec::new()),
            }
        };
        states.send_replace(JobState::Ended(exit));
    });
    job
}

fn add_secret_variables(pod: &mut Pod, secret: &str, data: &SecretData) {
    let containers = pod.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for container in containers.filter(|container| container.name == CONTAINER) {
        container.env.get_or_insert_default().extend(secret::variables(secret, data));
    }
}

async fn remove(secrets: Arc<SecretStore>, secret: String) {
    let removing = fiber_core::spawn_local(async move { secrets.remove(&secret).await });
    let _ = timeout(REMOVAL, removing).await;
}

struct PodTask {
    server: ApiServer,
    watch: Arc<PodWatch>,
    name: String,
    image: String,
    program: Option<String>,
    /// The requested resources, as an appendix to messages.
    requested: String,
    claims: Vec<String>,
    pull_secrets: Vec<String>,
    /// `None` if only the last lines are needed.
    output: Option<OutputTarget>,
    tail: Tail,
    commands: JobCommands,
    shutdown_timeout: Duration,
    killed: Cell<bool>,
    terminate_requested: bool,
    terminate_sent: bool,
    /// Whether another client or the cluster itself is deleting the pod.
    deleted_by_others: bool,
    log_task: Option<LogTask>,
}

/// The task that forwards a pod's output.
struct LogTask {
    task: JoinHandle<()>,
    ended: watch::Sender<bool>,
    /// Changes with each answer of the node.
    news: watch::Receiver<()>,
}

impl LogTask {
    /// Waits for the end of the log of a pod that has ended. Unless the pod `was_killed`, this
    /// waits as long as its node answers: a busy one takes seconds for each read.
    async fn drain(mut self, was_killed: bool) {
        self.ended.send_replace(true);
        if !was_killed {
            while let Ok(Ok(())) = timeout(DRAIN, self.news.changed()).await {}
        }
        drain(self.task, DRAIN_KILLED).await;
    }
}

/// The outcome of one pod.
enum PodOutcome {
    Ended(ExitReason),
    /// The pod never ran: its node rejected it, or it was evicted or preempted before its start.
    /// Another pod may find a node.
    NeverRan {
        /// Kubernetes' message.
        message: String,
        deleted: bool,
    },
}

impl PodTask {
    /// Runs the job to its end. Replaces pods that never ran.
    async fn run(mut self, pod: &Pod, states: &watch::Sender<JobState>) -> Exit {
        let mut pause = BACKOFF.0;
        loop {
            let mut subscription = self.watch.subscribe(&self.name);
            if self.commands.is_pending() {
                return Exit::new(ExitReason::Signal(9), Vec::new());
            }
            let created = self.when_possible(states, async |task| task.create(pod).await).await;
            if let Err(reason) = created {
                return Exit::new(reason, Vec::new());
            }
            subscription.created();
            let (message, deleted) = match self.follow(&mut subscription, states).await {
                PodOutcome::Ended(reason) => return self.finish(reason).await,
                PodOutcome::NeverRan { message, deleted } => (message, deleted),
            };
            if let Some(log_task) = self.log_task.take() {
                log_task.task.abort();
            }
            tracing::debug!("the pod {} is created again in {pause:?}: {message}", self.name);
            let message = format!("{message}{}", self.requested);
            set_state(states, JobState::Waiting(WaitReason::Resources(message)));
            let undeleted = (!deleted).then_some(&mut subscription);
            if let Err(reason) = self.pause_and_delete(undeleted, pause).await {
                return self.finish(reason).await;
            }
            pause = (2 * pause).min(BACKOFF.1);
        }
    }

    /// Follows the events of a created pod until its outcome.
    async fn follow(
        &mut self,
        subscription: &mut PodSubscription,
        states: &watch::Sender<JobState>,
    ) -> PodOutcome {
        // A replacement counts as waiting for resources until Kubernetes reports more.
        let first = !matches!(*states.borrow(), JobState::Waiting(_));
        let mut pull = None;
        let mut current = PodState::Starting;
        let mut ran = false;
        let mut missing_claim = None;
        if self.killed.get() {
            return PodOutcome::Ended(ExitReason::Signal(9));
        }
        loop {
            if self.terminate_requested && !self.terminate_sent && is_terminable(&current) {
                self.terminate_sent = true;
                self.terminate().await;
            }
            let pause = match current {
                PodState::Waiting(WaitReason::Node(_)) => Some(NODE_PATIENCE),
                PodState::Waiting(WaitReason::Image(_)) => Some(EVENT_POLL_INTERVAL),
                _ => None,
            };
            tokio::select! {
                biased;
                command = self.commands.next() => match command {
                    JobCommand::Kill => {
                        self.killed.set(true);
                        return PodOutcome::Ended(self.kill_reason().await);
                    }
                    JobCommand::Terminate => self.terminate_requested = true,
                },
                problem = claims::stays_missing(&self.server, missing_claim.as_ref()) => {
                    return PodOutcome::Ended(ExitReason::NotStarted(problem));
                }
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {
                    let event = events::last(&self.server, "Pod", &self.name).await;
                    if let PodState::Waiting(reason) = &current
                        && let Some(reason) = with_event(reason, event)
                    {
                        set_state(states, JobState::Waiting(reason));
                    }
                }
                event = subscription.next() => {
                    let (pod, deleted) = match event {
                        PodEvent::Applied(pod) => (pod, false),
                        PodEvent::Deleted(Some(pod)) => (pod, true),
                        PodEvent::Deleted(None) => (Box::default(), true),
                    };
                    pull = pull_problem(&pod).or(pull);
                    current = pod_state(&pod);
                    ran |= has_run(&pod);
                    self.deleted_by_others =
                        pod.metadata.deletion_timestamp.is_some() && !self.terminate_sent;
                    match &current {
                        PodState::MissingClaim(message) => {
                            missing_claim.get_or_insert_with(|| {
                                (Instant::now() + claims::GRACE, self.explain(message, None))
                            });
                        }
                        _ => missing_claim = None,
                    }
                    let reason = match &current {
                        PodState::Ended(reason) => Some(reason.clone()),
                        _ if deleted => Some(ExitReason::LinkLost(DELETED.into())),
                        _ => None,
                    };
                    if let Some(reason) = reason {
                        if matches!(current, PodState::Ended(_)) {
                            self.start_log_task();
                        }
                        let reason = self.end_reason(reason, &pod).await;
                        return match disrupted(&reason, ran) {
                            Some(message) if !self.terminate_requested => {
                                PodOutcome::NeverRan { message, deleted }
                            }
                            _ => PodOutcome::Ended(reason),
                        };
                    }
                    match current.clone() {
                        PodState::Rejected(message) => {
                            return PodOutcome::NeverRan { message, deleted };
                        }
                        PodState::CannotStart(message) => {
                            let problem = self.explain(&message, pull.as_deref());
                            return PodOutcome::Ended(ExitReason::NotStarted(problem));
                        }
                        PodState::Starting | PodState::Waiting(WaitReason::Node(_)) => {
                            let is_said = matches!(
                                *states.borrow(),
                                JobState::Waiting(WaitReason::Node(_))
                            );
                            if first && !is_said {
                                set_state(states, JobState::Starting);
                            }
                        }
                        PodState::MissingClaim(message)
                        | PodState::Waiting(WaitReason::Resources(message)) => {
                            let message =
                                claims::explain(&self.server, &self.claims, message).await;
                            let message = format!("{message}{}", self.requested);
                            set_state(states, JobState::Waiting(WaitReason::Resources(message)));
                        }
                        PodState::Waiting(reason) => set_state(states, JobState::Waiting(reason)),
                        PodState::Running => {
                            self.start_log_task();
                            set_state(states, JobState::Running);
                        }
                        PodState::Ended(_) => {}
                    }
                }
            }
        }
    }

    /// Returns the exit reason of a job that its owner kills. If the cluster is deleting the pod
    /// already, that is the reason.
    async fn kill_reason(&self) -> ExitReason {
        let removal = match self.deleted_by_others {
            true => events::removal(&self.server, &self.name).await,
            false => None,
        };
        removal.unwrap_or(ExitReason::Signal(9))
    }

    /// Deletes a pod that never ran, unless it is deleted already, and pauses.
    ///
    /// # Errors
    /// The exit reason of the job, if a command ends it or the pod can't be deleted.
    async fn pause_and_delete(
        &mut self,
        undeleted: Option<&mut PodSubscription>,
        pause: Duration,
    ) -> Result<(), ExitReason> {
        let deletion = async {
            if let Some(subscription) = undeleted {
                self.server.remove::<Pod>(&self.name).await?;
                while !matches!(subscription.next().await, PodEvent::Deleted(_)) {}
            }
            sleep(pause).await;
            Ok(())
        };
        tokio::select! {
            deleted = deletion => {
                deleted.map_err(|error| ExitReason::NotStarted(self.server.explain(&error).into()))
            }
            command = self.commands.next() => Err(ExitReason::Signal(match command {
                JobCommand::Terminate => 15,
                JobCommand::Kill => 9,
            })),
        }
    }

    /// Creates an object, and waits while a quota of the namespace has no room for it, because the
    /// pods that fill it may be ending, and while the API server is away.
    ///
    /// # Errors
    /// The exit reason of the job, if a command ends it or the object can't be created.
    async fn when_possible<T>(
        &mut self,
        states: &watch::Sender<JobState>,
        create: impl AsyncFn(&mut PodTask) -> Result<T, kube::Error>,
    ) -> Result<T, ExitReason> {
        let (mut pause, mut has_waited) = (QUOTA_PAUSE.0, false);
        loop {
            let error = match create(self).await {
                Ok(created) => {
                    if has_waited {
                        set_state(states, JobState::Starting);
                    }
                    return Ok(created);
                }
                Err(error) => error,
            };
            let words: String = match over_quota(&error) {
                Some(words) => words.into(),
                None if self.server.may_pass(&error) => self.server.explain(&error).into(),
                None => return Err(ExitReason::NotStarted(self.server.explain(&error).into())),
            };
            // A command may have come during the request.
            if self.killed.get() || self.terminate_requested {
                let signal = if self.killed.get() { 9 } else { 15 };
                return Err(ExitReason::Signal(signal));
            }
            set_state(states, JobState::Waiting(WaitReason::Resources(words)));
            has_waited = true;
            self.pause_and_delete(None, pause).await?;
            pause = (2 * pause).min(QUOTA_PAUSE.1);
        }
    }

    /// Creates the pod. A kill command does not end an attempt in progress: it may succeed.
    async fn create(&mut self, pod: &Pod) -> Result<(), kube::Error> {
        let (server, killed) = (self.server.clone(), &self.killed);
        let mut creating = std::pin::pin!(server.create(pod));
        loop {
            tokio::select! {
                result = &mut creating => return result,
                command = self.commands.next(), if !killed.get() => match command {
                    JobCommand::Terminate => self.terminate_requested = true,
                    JobCommand::Kill => killed.set(true),
                },
            }
        }
    }

    /// Asks the process to end, by deleting the pod. The pod's own grace period is for others, who
    /// drain its node.
    async fn terminate(&self) {
        let limit = self.shutdown_timeout.as_secs_f64().ceil().max(1.0) as u32;
        let parameters = DeleteParams::default().grace_period(limit);
        match self.server.api::<Pod>().delete(&self.name, &parameters).await {
            Err(error) if !is_missing(&error) => {
                tracing::warn!(
                    "the pod {} can't be asked to end: {}",
                    self.name,
                    self.server.explain(&error)
                );
            }
            _ => {}
        }
    }

    /// Starts to forward the pod's output, unless a task does already.
    fn start_log_task(&mut self) {
        let Some(target) = self.output.clone().filter(|_| self.log_task.is_none()) else { return };
        let (ended, receiver) = watch::channel(false);
        let (sender, news) = watch::channel(());
        let forwarding = logs::follow(
            self.server.streams(),
            self.name.clone(),
            target,
            self.tail.clone(),
            receiver,
            sender,
        );
        self.log_task = Some(LogTask { task: fiber_core::spawn_local(forwarding), ended, news });
    }

    /// Forwards the rest of the output, and removes the pod.
    async fn finish(self, reason: ExitReason) -> Exit {
        match self.log_task {
            Some(log) => log.drain(self.killed.get()).await,
            None => {
                let limit = if self.killed.get() { DRAIN_KILLED } else { DRAIN };
                let api = self.server.api();
                let _ = timeout(limit, logs::take_last(&api, &self.name, &self.tail)).await;
            }
        }
        let (server, name) = (self.server, self.name.clone());
        let removing = fiber_core::spawn_local(async move {
            if let Err(error) = server.remove::<Pod>(&name).await {
                tracing::warn!("the pod {name} can't be removed: {}", server.explain(&error));
            }
        });
        if timeout(REMOVAL, removing).await.is_err() {
            tracing::debug!("the removal of the pod {} is still in progress", self.name);
        }
        Exit::new(reason, self.tail.lines())
    }

    /// Returns the reason of an end, which for a deleted pod is the reason of its deletion.
    async fn end_reason(&self, reason: ExitReason, pod: &Pod) -> ExitReason {
        match reason {
            // The exit status is lost, but the process was asked to end.
            ExitReason::LinkLost(_) if self.terminate_sent => ExitReason::Signal(15),
            ExitReason::Signal(_)
                if self.terminate_sent || pod.metadata.deletion_timestamp.is_none() =>
            {
                reason
            }
            ExitReason::Signal(_) | ExitReason::LinkLost(_) => match disruption(pod) {
                Some(reason) => reason,
                None => match events::removal(&self.server, &self.name).await {
                    Some(removal) => removal,
                    None => without_reason(reason, pod),
                },
            },
            ExitReason::NotStarted(message) => ExitReason::NotStarted(self.explain(&message, None)),
            other => other,
        }
    }

    /// Adds a remedy to the message of a pod that can't start.
    fn explain(&self, message: &str, pull: Option<&str>) -> String {
        if message.contains("persistentvolumeclaim") {
            return format!(
                "{message}: create the claim (`kubectl get pvc` lists those that exist), or \
                 correct `mounts`"
            );
        }
        if let Some(problem) = start_error::of_image(&self.image, &self.pull_secrets, message, pull)
        {
            return problem;
        }
        if message.contains("executable file not found")
            || message.contains("no such file or directory")
        {
            return format!(
                "the image `{}` has no executable program at `{}` ({message}): set `program` to \
                 its path in the image, or rebuild the image with it; a dynamically linked \
                 program also needs its loader and libraries there",
                self.image,
                self.program.as_deref().unwrap_or("its entry point")
            );
        }
        message.to_string()
    }
}

/// Returns Kubernetes' message if a pod was evicted or preempted before it ran. Such a pod waits
/// for resources again, like one that its node rejects.
fn disrupted(reason: &ExitReason, ran: bool) -> Option<String> {
    match reason {
        ExitReason::Evicted(message) if !ran => Some(format!("evicted from its node: {message}")),
        ExitReason::Preempted(message) if !ran => Some(format!("preempted: {message}")),
        _ => None,
    }
}

/// Returns whether the deletion of a pod in this state signals its process, or whether there is
/// none yet. A kubelet before 1.22 may take a pod that it has not reported as running for one that
/// has ended, and then kills the process in it.
fn is_terminable(state: &PodState) -> bool {
    matches!(
        state,
        PodState::Running | PodState::MissingClaim(_) | PodState::Waiting(WaitReason::Resources(_))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_is_evicted_or_preempted_before_it_ran_is_created_again() {
        let evicted = ExitReason::Evicted("The node was low on resource: memory".into());
        assert!(disrupted(&evicted, false).expect("another may run").contains("low on resource"));
        assert!(disrupted(&ExitReason::Preempted("by pod x".into()), false).is_some());
        assert_eq!(disrupted(&evicted, true), None);
        assert_eq!(disrupted(&ExitReason::LinkLost(DELETED.into()), false), None);
    }
}
