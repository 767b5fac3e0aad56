//! The start of managed actors, and the process of one as a child of its supervisor, in the process
//! that owns it.

use std::sync::{Arc, OnceLock};

use fiber_backends::ChildOutput;
use fiber_core::stats::ProcessRole;
use fiber_core::{Error, Exit, ExitReason, Meta, Result};
use fiber_transport::{Link, Received};
use fiber_values::transfer::KeepAlive;
use futures_util::future::LocalBoxFuture;
use tokio::sync::mpsc;

use super::last_snapshot::LastSnapshot;
use super::owned::ManagedActor;
use super::place::{Done, Place, RunningProcess};
use super::process::ActorMain;
use super::wire::ActorEvent;
use super::{ManagerInner, group};
use crate::names::Registered;
use fiber_runtime::mesh::ProcessRef;
use fiber_runtime::runtime::{
    ChildProcess, ControlMessage, HostRule, Launch, Owner, Placement, ProcessCommand, ReadyChild,
    Runtime, StartRequest,
};
use fiber_supervisor::process::{ProcessControl, running};
use fiber_supervisor::supervisor::{
    ChildContext, ChildSpec, Restart, Running, Shutdown, Start, Supervisor, Within,
};

/// The complete options of a manager.
#[derive(Clone)]
pub(super) struct ManagerSpec {
    pub(super) main: ActorMain,
    /// Keeps alive the shared objects in the factory's arguments.
    pub(super) keep_alive: KeepAlive,
    pub(super) snapshot: Arc<LastSnapshot>,
    pub(super) meta: Meta,
    pub(super) output: ChildOutput,
    /// When the process is restarted.
    pub(super) restart: Restart,
    pub(super) host: HostRule,
    pub(super) registered: Option<Registered>,
    pub(super) process: ProcessChoice,
}

/// The process in which a managed actor runs.
#[derive(Clone, Debug, Default)]
pub(super) enum ProcessChoice {
    #[default]
    Own,
    /// That of another manager.
    Within(Arc<Place>),
    /// That of the group with this name.
    Group(String),
}

impl ManagerSpec {
    /// Starts the actor.
    pub(super) async fn start(self, runtime: &'static Runtime, done: Done) {
        match self.process.clone() {
            // A manager that nobody takes stops its actor.
            ProcessChoice::Own => drop(done.send(self.start_process(runtime).await)),
            ProcessChoice::Within(place) => place.start(self, None, done).await,
            ProcessChoice::Group(name) => match group::process_of(runtime, &name, &self).await {
                Ok(manager) => {
                    let place = Arc::clone(&manager.place);
                    place.start(self, Some(manager), done).await;
                }
                Err(error) => drop(done.send(Err(error))),
            },
        }
    }

    /// Starts a process for the actor, under a supervisor of its own.
    pub(super) async fn start_process(
        self,
        runtime: &'static Runtime,
    ) -> Result<(ProcessRef, Arc<ManagerInner>)> {
        let owner = ProcessRef { id: runtime.id(), address: runtime.address().await?.into() };
        let name = self.main.name.to_string();
        let supervisor = Supervisor::builder(&*name).of_one().limits(self.main.limits.clone());
        let (child, actor, place) = self.child(runtime, &owner, name);
        // It gives up with that in the process.
        let supervisor =
            supervisor.child(child.gives_up_itself()).start_on(runtime.arbiter()).await?;
        let inner = ManagerInner { runtime, actor, place, supervisor: Some(supervisor) };
        Ok((owner, Arc::new(inner)))
    }

    /// Returns a process for the actor as a child specification.
    pub(super) fn child(
        self,
        runtime: &'static Runtime,
        owner: &ProcessRef,
        name: String,
    ) -> (ChildSpec, Arc<ManagedActor>, Arc<Place>) {
        let (actor, mut main) = self.main.own(runtime, owner, self.snapshot);
        // The owner kills the process at the deadline.
        let shutdown = std::mem::replace(&mut main.shutdown, Shutdown::Wait);
        if main.restart == Restart::Permanent {
            // After an end without a failure, the next incarnation is in the next process.
            main.restart = Restart::Transient;
        }
        let place = Place::new(runtime, &main.name);
        let process = Process { actor: Arc::clone(&actor), place: Arc::clone(&place) };
        let spec = ManagerSpec { main, snapshot: Arc::clone(&actor.snapshot), ..self };
        let start = ManagerStart { spec, process };
        let of_actor = (Arc::downgrade(&actor), Arc::downgrade(&place));
        actor.snapshot.on_failure(move |error| {
            if let (Some(actor), Some(place)) = (of_actor.0.upgrade(), of_actor.1.upgrade()) {
                Process { actor, place }.give_up(error);
            }
        });
        let child = ChildSpec::new(name, start).restart(self.restart).shutdown(shutdown);
        (child, actor, place)
    }
}

impl ActorMain {
    /// Makes the actor one of this process, `owner`.
    pub(super) fn own(
        self,
        runtime: &'static Runtime,
        owner: &ProcessRef,
        snapshot: Arc<LastSnapshot>,
    ) -> (Arc<ManagedActor>, ActorMain) {
        let owned = runtime.registry().own(&self.name, self.places());
        let main = ActorMain { owned: Some((owner.clone(), owned.id)), ..self };
        let restart = main.restart;
        let wanted = OnceLock::new();
        (Arc::new(ManagedActor { runtime, owned, restart, snapshot, wanted }), main)
    }
}

/// Starts the process of a managed actor, once for each incarnation.
struct ManagerStart {
    spec: ManagerSpec,
    process: Process,
}

/// The actor for which a process is started, and the process as a place for others. Both pass from
/// one incarnation to the next.
#[derive(Clone)]
struct Process {
    actor: Arc<ManagedActor>,
    place: Arc<Place>,
}

impl Start for ManagerStart {
    fn start(
        &mut self,
        context: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        let process = self.process.clone();
        let runtime = process.actor.runtime;
        let ManagerSpec { main, meta, output, host, registered, .. } = self.spec.clone();
        let actor = process.actor.id();
        context.set_names(move || runtime.directory().names_of(actor));
        process.place.set_tree(context.tree_place());
        Box::pin(async move {
            if let Some(registered) = registered {
                let entered = registered.enter(runtime, &process.actor.owned).await;
                entered.map_err(|error| ExitReason::NotStarted(error.to_string()))?;
            }
            let snapshot = process.actor.snapshot.get().await;
            let snapshot = snapshot.map_err(|error| ExitReason::NotStarted(error.to_string()))?;
            let launch = Launch {
                name: main.name.to_string(),
                role: ProcessRole::Actor,
                restarts: context.restarts(),
                retry_creation: context.restarts() > 0,
                meta,
                output,
                request: StartRequest::new(&ActorMain { snapshot, ..main }),
                scheduling: None,
                placement: Placement::by_rule(runtime.common_hosts(), host),
            };
            let (commands, inbox) = mpsc::unbounded_channel();
            let (within, changes) = mpsc::unbounded_channel();
            let control = ProcessControl::new(commands.clone());
            let owner = ManagerOwner { process, commands, within, started: None, ended: None };
            let child = ChildProcess { runtime, launch, commands: inbox, owner };
            Ok(running(child.start(), control).await?.within(changes))
        })
    }

    fn removed(&mut self, reason: &ExitReason) {
        self.process.gone(reason.clone());
    }
}

impl Drop for ManagerStart {
    fn drop(&mut self) {
        // The supervisor has removed the child, or has never started it.
        self.process.gone(ExitReason::Shutdown);
    }
}

/// Makes a process that is ready the actor's current one, and notes what happens in it.
struct ManagerOwner {
    process: Process,
    commands: mpsc::UnboundedSender<ProcessCommand>,
    /// Tells the supervisor of failures and restarts of the actor in its process.
    within: mpsc::UnboundedSender<Within>,
    /// The number of the incarnation and the link to it, once it is ready.
    started: Option<(u64, Arc<dyn Link>)>,
    /// Why the actor has ended, if its process has said so.
    ended: Option<ExitReason>,
}

impl Owner for ManagerOwner {
    fn ready(&mut self, ready: ReadyChild<'_>) {
        let address = ready.address.unwrap_or_default().into();
        let process = ProcessRef { id: ready.info.id, address };
        let incarnation = self.process.actor.owned.started(process.clone());
        self.started = Some((incarnation, Arc::clone(ready.link)));
        let (pid, link, commands) = (ready.info.pid, Arc::clone(ready.link), self.commands.clone());
        self.process.place.ready(RunningProcess { process, pid, link, commands });
    }

    fn message(&mut self, message: Received) {
        let Some((id, event)) = ActorEvent::decode(message.into()) else {
            return tracing::error!("ignored an invalid message of a managed actor's process");
        };
        // Before that, it can't start.
        let Some((_, link)) = &self.started else { return };
        if id != self.process.actor.id() {
            return self.process.place.note(id, event);
        }
        if let ActorEvent::Ended(reason) = event {
            self.ended = Some(reason);
            // The process stays until then, so that its reason is not lost.
            let _ = link.send(ControlMessage::Shutdown.message());
        } else if let Some(event) = self.process.actor.note(event, link) {
            let _ = self.within.send(event);
        }
    }

    async fn ended(self, exit: Exit) -> ExitReason {
        let Some((incarnation, _)) = self.started else { return exit.reason };
        let reason = self.ended.unwrap_or(exit.reason);
        let Process { actor, place } = &self.process;
        place.ended(&reason).await;
        actor.ended(incarnation, reason.clone()).await;
        // After a stop, the supervisor removes the actor, or restarts it with its siblings.
        if !actor.restart.follows(&reason) && reason != ExitReason::Shutdown {
            self.process.gone(reason.clone());
        }
        reason
    }
}

impl Process {
    /// Ends the actor for good, because a snapshot could not be recorded.
    fn give_up(&self, error: &Error) {
        let reason = ExitReason::Failed(error.to_string());
        self.place.kill(reason.clone());
        self.gone(reason);
    }

    /// Ends the actor for good, and those in its process.
    fn gone(&self, reason: ExitReason) {
        self.place.end(&reason);
        self.actor.gone(reason);
    }
}
