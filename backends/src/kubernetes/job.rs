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
use super::secret::{Content, Lease, Secrets};
use super::site::Site;
use super::status::{DELETED, Phase, phase, pull_problem};
use super::watch::{Sight, Watch, Watched};
use super::{claims, events, logs};
use crate::attended::{self, Order, Orders};
use crate::output::{Log, Stream, Tail, Target, finish};
use crate::{Job, JobSpec, JobState, Wait};

/// How long to read what a pod printed after its end, and after it was killed.
const DRAIN: Duration = Duration::from_secs(5);
const DRAIN_KILLED: Duration = Duration::from_millis(300);
/// How long the end of a job may be held up by its removal; what takes longer goes on beside.
const REMOVAL: Duration = Duration::from_secs(1);
/// Pauses before a pod is made in the place of one that its node refused, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How often to ask what a pod's node is at while it makes the container: its status does not say.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// Makes a pod, and sees to it until its end.
pub(super) fn start(
    site: &Site,
    name: String,
    mut pod: Pod,
    spec: &JobSpec,
    log: Option<Log>,
) -> Arc<dyn Job> {
    let (job, states, orders) = attended::job(format!("pod {name}"));
    let output = match (spec.output, log) {
        (OutputMode::Null, _) => None,
        (_, Some(log)) => Some(Target::File(Arc::new(log.file))),
        (mode, None) => Some(Target::new(mode, Stream::Out, &spec.name)),
    };
    let mut attendant = Attendant {
        server: site.server.clone(),
        watch: Arc::clone(&site.watch),
        name,
        image: site.template.image().name.clone(),
        program: site.template.image().program.clone(),
        asked: asked(&spec.meta),
        claims: claims::of(&pod),
        output,
        tail: Tail::default(),
        orders,
        killed: Cell::new(false),
        to_terminate: false,
        terminated: false,
        taken: false,
        printing: None,
    };
    let secrets = Arc::clone(&site.secrets);
    let confided: Content =
        spec.secrets.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    // All that is made for the job is made while it is there to be waited for: a program that ends
    // leaves none behind.
    tokio::task::spawn_local(async move {
        let exit = if attendant.orders.came_early() {
            Exit::new(ExitReason::Signal(9), Vec::new())
        } else if confided.is_empty() {
            attendant.attend(&pod, &states).await
        } else {
            match secrets.lease(confided).await {
                Ok(lease) => {
                    tell(&mut pod, &lease);
                    let exit = attendant.attend(&pod, &states).await;
                    give_back(secrets, lease).await;
                    exit
                }
                Err(problem) => Exit::new(ExitReason::NotStarted(problem), Vec::new()),
            }
        };
        states.send_replace(JobState::Ended(exit));
    });
    job
}

fn tell(pod: &mut Pod, lease: &Lease) {
    let containers = pod.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    containers
        .for_each(|container| container.env.get_or_insert_default().extend(lease.variables()));
}

async fn give_back(secrets: Arc<Secrets>, lease: Arc<Lease>) {
    let giving_back = tokio::task::spawn_local(async move { secrets.give_back(lease).await });
    let _ = timeout(REMOVAL, giving_back).await;
}

struct Attendant {
    server: ApiServer,
    watch: Arc<Watch>,
    name: String,
    image: String,
    program: Option<String>,
    /// What it asks for, in words.
    asked: String,
    claims: Vec<String>,
    /// `None`, if only the last lines are wanted.
    output: Option<Target>,
    tail: Tail,
    orders: Orders,
    killed: Cell<bool>,
    /// Whether it is to be asked to end, and whether it was.
    to_terminate: bool,
    terminated: bool,
    /// Whether somebody else is having it removed.
    taken: bool,
    printing: Option<Printing>,
}

/// A task that passes on what a pod prints.
struct Printing {
    task: JoinHandle<()>,
    ended: watch::Sender<bool>,
}

/// What became of a pod.
enum Outcome {
    Ended(ExitReason),
    /// It never ran: its node had no room for it after all, in Kubernetes' words.
    Refused(String),
}

impl Attendant {
    /// Sees to the job until its end, through as many pods as nodes refuse.
    async fn attend(mut self, pod: &Pod, states: &watch::Sender<JobState>) -> Exit {
        let mut pause = PAUSES.0;
        loop {
            let mut watched = self.watch.pod(&self.name);
            if self.orders.came_early() {
                return Exit::new(ExitReason::Signal(9), Vec::new());
            }
            if let Err(error) = self.create(pod).await {
                let problem = self.server.explain(&error);
                return Exit::new(ExitReason::NotStarted(problem), Vec::new());
            }
            watched.created();
            let words = match self.follow(&mut watched, states).await {
                Outcome::Ended(reason) => return self.end(reason).await,
                Outcome::Refused(words) => words,
            };
            tracing::debug!("{} is made again in {pause:?}: {words}", self.name);
            change(states, JobState::Waiting(Wait::Room(format!("{words}{}", self.asked))));
            if let Err(reason) = self.withdraw(&mut watched, pause).await {
                return self.end(reason).await;
            }
            pause = (2 * pause).min(PAUSES.1);
        }
    }

    /// Sees to a pod that has been created.
    async fn follow(&mut self, watched: &mut Watched, states: &watch::Sender<JobState>) -> Outcome {
        // What is made in the place of a pod that was refused waits for room until more is known.
        let first = !matches!(*states.borrow(), JobState::Waiting(_));
        let mut pull = None;
        let mut seen = Phase::Starting;
        let mut doubt = None;
        if self.killed.get() {
            return Outcome::Ended(ExitReason::Signal(9));
        }
        loop {
            if self.to_terminate && !self.terminated && terminable(&seen) {
                self.terminated = true;
                self.terminate().await;
            }
            tokio::select! {
                biased;
                order = self.orders.next() => match order {
                    Order::Kill => {
                        self.killed.set(true);
                        let reason = if self.taken { events::removal(&self.server, &self.name).await } else { None };
                        return Outcome::Ended(reason.unwrap_or(ExitReason::Signal(9)));
                    }
                    Order::Terminate => self.to_terminate = true,
                },
                problem = claims::lapse(&self.server, doubt.as_ref()) => {
                    return Outcome::Ended(ExitReason::NotStarted(problem));
                }
                () = sleep(LOOK), if matches!(seen, Phase::Waiting(Wait::Image(_))) => {
                    if let Some(words) = events::last(&self.server, "Pod", &self.name).await {
                        change(states, JobState::Waiting(Wait::Image(words)));
                    }
                }
                sight = watched.next() => {
                    let (pod, gone) = match sight {
                        Sight::Pod(pod) => (pod, false),
                        Sight::Gone(Some(pod)) => (pod, true),
                        Sight::Gone(None) => (Box::default(), true),
                    };
                    pull = pull_problem(&pod).or(pull);
                    seen = phase(&pod);
                    self.taken = pod.metadata.deletion_timestamp.is_some() && !self.terminated;
                    if matches!(seen, Phase::Running | Phase::Ended(_)) && self.printing.is_none() {
                        self.printing = self.print();
                    }
                    match &seen {
                        Phase::Doubtful(words) => {
                            doubt.get_or_insert_with(|| (Instant::now() + claims::DOUBT, self.stuck(words, None)));
                        }
                        _ => doubt = None,
                    }
                    match seen.clone() {
                        Phase::Ended(reason) => return Outcome::Ended(self.reason(reason, &pod).await),
                        _ if gone => {
                            let reason = ExitReason::LinkLost(DELETED.into());
                            return Outcome::Ended(self.reason(reason, &pod).await);
                        }
                        Phase::Refused(words) => return Outcome::Refused(words),
                        Phase::Stuck(words) => {
                            return Outcome::Ended(ExitReason::NotStarted(self.stuck(&words, pull.as_deref())));
                        }
                        Phase::Starting if first => change(states, JobState::Starting),
                        Phase::Starting => {}
                        Phase::Doubtful(words) | Phase::Waiting(Wait::Room(words)) => {
                            let words = claims::explain(&self.server, &self.claims, words).await;
                            change(states, JobState::Waiting(Wait::Room(format!("{words}{}", self.asked))));
                        }
                        Phase::Waiting(wait) => change(states, JobState::Waiting(wait)),
                        Phase::Running => change(states, JobState::Running),
                    }
                }
            }
        }
    }

    /// Removes a pod that was refused. Returns when it is gone and a pause is over.
    ///
    /// # Errors
    /// How the job ends, by an order or because the pod can't be removed.
    async fn withdraw(&mut self, watched: &mut Watched, pause: Duration) -> Result<(), ExitReason> {
        let withdrawal = async {
            self.server.remove::<Pod>(&self.name).await?;
            while !matches!(watched.next().await, Sight::Gone(_)) {}
            sleep(pause).await;
            Ok(())
        };
        tokio::select! {
            removed = withdrawal => removed.map_err(|error| ExitReason::NotStarted(self.server.explain(&error))),
            order = self.orders.next() => Err(ExitReason::Signal(match order {
                Order::Terminate => 15,
                Order::Kill => 9,
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
                order = self.orders.next(), if !killed.get() => match order {
                    Order::Terminate => self.to_terminate = true,
                    Order::Kill => killed.set(true),
                },
            }
        }
    }

    /// Asks the process to end. Kubernetes removes a pod that was asked to.
    async fn terminate(&self) {
        match self.server.api::<Pod>().delete(&self.name, &DeleteParams::default()).await {
            Err(error) if !is_missing(&error) => {
                tracing::warn!(
                    "{} can't be asked to end: {}",
                    self.name,
                    self.server.explain(&error)
                );
            }
            _ => {}
        }
    }

    /// Begins to pass on what the pod prints.
    fn print(&self) -> Option<Printing> {
        let target = self.output.clone()?;
        let (ended, receiver) = watch::channel(false);
        let printing = logs::follow(
            self.server.streams(),
            self.name.clone(),
            target,
            self.tail.clone(),
            receiver,
        );
        Some(Printing { task: tokio::task::spawn_local(printing), ended })
    }

    /// The last lines, and the end of the pod.
    async fn end(self, reason: ExitReason) -> Exit {
        let limit = if self.killed.get() { DRAIN_KILLED } else { DRAIN };
        match self.printing {
            Some(Printing { task, ended }) => {
                ended.send_replace(true);
                finish(task, limit).await;
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
            // What came of it is not known, but it was asked to end.
            ExitReason::LinkLost(_) if self.terminated => ExitReason::Signal(15),
            ExitReason::Signal(_)
                if self.terminated || pod.metadata.deletion_timestamp.is_none() =>
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
fn terminable(phase: &Phase) -> bool {
    matches!(phase, Phase::Running | Phase::Doubtful(_) | Phase::Waiting(Wait::Room(_)))
}

pub(super) fn asked(meta: &Meta) -> String {
    let cpu = meta.cpu.map(|cores| format!("{cores} processor cores"));
    let memory = meta.memory.map(|size| format!("{size} of memory"));
    let gpu = meta.gpu.map(|count| format!("{count} graphics processors"));
    let all: Vec<String> = [cpu, memory, gpu].into_iter().flatten().collect();
    if all.is_empty() { String::new() } else { format!(" (it asks for {})", all.join(", ")) }
}

fn change(states: &watch::Sender<JobState>, state: JobState) {
    states.send_if_modified(|current| {
        let other = *current != state;
        if other {
            *current = state;
        }
        other
    });
}
