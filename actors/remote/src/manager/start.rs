//! The process of a managed actor as a child of its supervisor, in the process that owns it.

use std::sync::Arc;
use std::time::Duration;

use fiber_backends::ChildOutput;
use fiber_core::stats::ProcessRole;
use fiber_core::{Error, Exit, ExitReason, Meta, Result};
use fiber_transport::{Link, Message, Received};
use fiber_values::transfer::KeepAlive;
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::ManagerInner;
use super::last_snapshot::LastSnapshot;
use super::process::ActorMain;
use super::wire::ActorMessage;
use crate::names::Registered;
use fiber_runtime::endpoint::MAIN;
use fiber_runtime::mesh::{OwnedActor, ProcessRef};
use fiber_runtime::runtime::{
    ChildProcess, ControlMessage, HostRule, Launch, Owner, Placement, ProcessCommand, ReadyChild,
    Runtime, StartRequest,
};
use fiber_supervisor::process::{ProcessControl, running};
use fiber_supervisor::supervisor::{
    Backoff, ChildContext, ChildSpec, Restart, Running, Shutdown, Start, Supervisor, Within,
};

/// The running process of a managed actor.
pub(super) struct CurrentProcess {
    pub(super) pid: u32,
    pub(super) commands: mpsc::UnboundedSender<ProcessCommand>,
}

/// The complete options of a manager.
pub(super) struct ManagerSpec {
    pub(super) name: String,
    pub(super) main: ActorMain,
    /// Keeps alive the shared objects in the factory's arguments.
    pub(super) keep_alive: KeepAlive,
    pub(super) snapshot: Arc<LastSnapshot>,
    pub(super) meta: Meta,
    pub(super) output: ChildOutput,
    pub(super) restart: Restart,
    pub(super) shutdown: Shutdown,
    pub(super) intensity: (u32, Duration),
    pub(super) backoff: Backoff,
    pub(super) host: HostRule,
    pub(super) registered: Option<Registered>,
}

impl ManagerSpec {
    /// Starts the process under a supervisor of its own.
    pub(super) async fn start(
        self,
        runtime: &'static Runtime,
    ) -> Result<(ProcessRef, Arc<ManagerInner>)> {
        let owner = ProcessRef { id: runtime.id(), address: runtime.address().await?.into() };
        let (name, (restarts, period)) = (self.name.clone(), self.intensity);
        let supervisor =
            Supervisor::builder(&*name).intensity(restarts, period).backoff(self.backoff.clone());
        let (child, owned, process) = self.child(runtime, &owner, "process".into());
        // It gives up with that in the process.
        let supervisor =
            supervisor.child(child.gives_up_itself()).start_on(runtime.arbiter()).await?;
        Ok((owner, Arc::new(ManagerInner { runtime, name, owned, supervisor, process })))
    }

    /// Returns the process as a child specification, with the actor's entry in the registry and the
    /// current process.
    pub(super) fn child(
        self,
        runtime: &'static Runtime,
        owner: &ProcessRef,
        name: String,
    ) -> (ChildSpec, Arc<OwnedActor>, watch::Receiver<Option<CurrentProcess>>) {
        let owned = runtime.registry().own(self.main.places());
        let main = ActorMain { owned: Some((owner.clone(), owned.id())), ..self.main };
        let (process, current) = watch::channel(None);
        let start = ManagerStart {
            runtime,
            name: self.name,
            meta: self.meta,
            output: self.output,
            main,
            host: self.host,
            registered: self.registered,
            _keep_alive: self.keep_alive,
            incarnations: Arc::new(Incarnations {
                owned: Arc::clone(&owned),
                restart: self.restart,
                snapshot: self.snapshot,
                process,
            }),
        };
        let child = ChildSpec::new(name, start).restart(self.restart).shutdown(self.shutdown);
        (child, owned, current)
    }
}

/// Starts the process of a managed actor, once for each incarnation.
struct ManagerStart {
    runtime: &'static Runtime,
    name: String,
    meta: Meta,
    output: ChildOutput,
    main: ActorMain,
    host: HostRule,
    registered: Option<Registered>,
    _keep_alive: KeepAlive,
    incarnations: Arc<Incarnations>,
}

/// The state that passes from one incarnation to the next.
struct Incarnations {
    owned: Arc<OwnedActor>,
    restart: Restart,
    snapshot: Arc<LastSnapshot>,
    process: watch::Sender<Option<CurrentProcess>>,
}

impl Start for ManagerStart {
    fn start(
        &mut self,
        context: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        let (runtime, incarnations) = (self.runtime, Arc::clone(&self.incarnations));
        let (name, main, meta, output) =
            (self.name.clone(), self.main.clone(), self.meta, self.output.clone());
        let (registered, host) = (self.registered.clone(), self.host.clone());
        let actor = incarnations.owned.id();
        context.set_names(move || runtime.directory().names_of(actor));
        Box::pin(async move {
            if let Some(registered) = registered {
                let entered = registered.enter(runtime, &name, &incarnations.owned).await;
                entered.map_err(|error| ExitReason::NotStarted(error.to_string()))?;
            }
            let snapshot = incarnations.snapshot.get().await.map_err(|error| {
                // The last process may have ended before the journal failed.
                incarnations.give_up(&error);
                ExitReason::NotStarted(error.to_string())
            })?;
            let launch = Launch {
                name,
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
            let owner = ManagerOwner { incarnations, commands, within, started: None, ended: None };
            let process = ChildProcess { runtime, launch, commands: inbox, owner };
            Ok(running(process.start(), control).await?.within(changes))
        })
    }

    fn removed(&mut self, reason: &ExitReason) {
        self.incarnations.gone(reason.clone());
    }
}

/// Makes a process that is ready the actor's current one, and keeps its snapshots.
struct ManagerOwner {
    incarnations: Arc<Incarnations>,
    commands: mpsc::UnboundedSender<ProcessCommand>,
    /// Tells the supervisor of failures and restarts of the actor in its process.
    within: mpsc::UnboundedSender<Within>,
    /// Once it is ready.
    started: Option<StartedActor>,
    /// Why the actor has ended, if its process has said so.
    ended: Option<ExitReason>,
}

/// The process of a managed actor, which is ready.
struct StartedActor {
    pid: u32,
    link: Arc<dyn Link>,
    incarnation: u64,
    /// Ends the actor when a snapshot could not be recorded.
    guard: JoinHandle<()>,
}

impl Owner for ManagerOwner {
    fn ready(&mut self, ready: ReadyChild<'_>) {
        let pid = ready.info.pid;
        let process =
            ProcessRef { id: ready.info.id, address: ready.address.unwrap_or_default().into() };
        let incarnation = self.incarnations.owned.started(process);
        let current = CurrentProcess { pid, commands: self.commands.clone() };
        self.incarnations.process.send_replace(Some(current));
        let incarnations = Arc::clone(&self.incarnations);
        let guard = fiber_core::spawn_local(async move {
            let error = incarnations.snapshot.failed().await;
            incarnations.give_up(&error);
        });
        let link = Arc::clone(ready.link);
        self.started = Some(StartedActor { pid, link, incarnation, guard });
    }

    fn message(&mut self, message: Received) {
        match ActorMessage::decode(message.into()) {
            Some(ActorMessage::Snapshot(state)) => self.incarnations.snapshot.set(state, None),
            Some(ActorMessage::AwaitedSnapshot(state)) => {
                let link = self.started.as_ref().map(|started| Arc::clone(&started.link));
                let keeps = move || {
                    if let Some(link) = link {
                        let _ = link.send(Message::new(vec![MAIN]));
                    }
                };
                self.incarnations.snapshot.set(state, Some(Box::new(keeps)));
            }
            Some(ActorMessage::Failed(reason)) => {
                // Before that, it fails to start.
                if self.started.is_some() {
                    self.incarnations.owned.failed(reason.clone());
                    let _ = self.within.send(Within::Failed(reason));
                }
            }
            Some(ActorMessage::Restarted) => {
                self.incarnations.owned.restarted();
                let _ = self.within.send(Within::Restarted);
            }
            Some(ActorMessage::Ended(reason)) => {
                self.ended = Some(reason);
                // The process stays until then, so that its reason is not lost.
                if let Some(started) = &self.started {
                    let _ = started.link.send(ControlMessage::Shutdown.message());
                }
            }
            None => tracing::error!("ignored an invalid message of a managed actor's process"),
        }
    }

    async fn ended(self, exit: Exit) -> ExitReason {
        let Some(StartedActor { pid, incarnation, guard, .. }) = self.started else {
            return exit.reason;
        };
        guard.abort();
        let reason = self.ended.unwrap_or(exit.reason);
        self.incarnations.ended(pid, incarnation, reason.clone()).await;
        reason
    }
}

impl Incarnations {
    /// Notes the end of a process.
    async fn ended(&self, pid: u32, incarnation: u64, reason: ExitReason) {
        // The next incarnation, of this program or of the next one, gets what has arrived.
        let _ = self.snapshot.get().await;
        self.process.send_if_modified(|current| {
            let is_current = current.as_ref().is_some_and(|process| process.pid == pid);
            if is_current {
                *current = None;
            }
            is_current
        });
        self.owned.ended(incarnation, reason.clone());
        let restarts = match self.restart {
            Restart::Permanent => true,
            Restart::Transient => !reason.is_normal(),
            Restart::Temporary => false,
        };
        // After a stop, the supervisor removes the actor, or restarts it with its siblings.
        if !restarts && reason != ExitReason::Shutdown {
            self.gone(reason);
        }
    }

    /// Ends the actor for good, because a snapshot could not be recorded.
    fn give_up(&self, error: &Error) {
        let reason = ExitReason::Failed(error.to_string());
        if let Some(process) = &*self.process.borrow() {
            let _ = process.commands.send(ProcessCommand::Kill(reason.clone()));
        }
        self.gone(reason);
    }

    /// Ends the actor for good. Its name is free before anybody learns of the end.
    fn gone(&self, reason: ExitReason) {
        self.snapshot.release();
        self.owned.gone(reason);
    }
}

impl Drop for ManagerStart {
    fn drop(&mut self) {
        // The supervisor has removed the child, or has never started it.
        self.incarnations.gone(ExitReason::Shutdown);
        self.runtime.registry().retire(self.incarnations.owned.id());
    }
}
