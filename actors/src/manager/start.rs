//! The process of a managed actor as a child of its supervisor, in the process that owns it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fiber_core::stats::ProcessRole;
use fiber_core::transfer::KeepAlive;
use fiber_core::{Error, ExitReason, Meta, OutputMode, Result};
use fiber_transport::Received;
use futures_util::future::{Either, LocalBoxFuture, select};
use tokio::sync::{mpsc, oneshot, watch};

use super::ManagerInner;
use super::last_snapshot::LastSnapshot;
use super::process::ActorMain;
use super::wire::ActorMessage;
use crate::mesh::{OwnedActor, ProcessRef};
use crate::process::ProcessControl;
use crate::runtime::{
    ControlMessage, JobKind, Launch, Launched, ProcessCommand, Runtime, StartRequest, launch,
    monitor,
};
use crate::supervisor::{
    Backoff, ChildContext, ChildSpec, Restart, Running, Shutdown, Start, Supervisor,
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
    pub(super) output: OutputMode,
    pub(super) restart: Restart,
    pub(super) shutdown: Duration,
    pub(super) intensity: (u32, Duration),
    pub(super) backoff: Backoff,
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
        let (child, owned, process) = self.child(runtime, "process".into());
        let supervisor = supervisor.child(child).start_on(runtime.arbiter()).await?;
        Ok((owner, Arc::new(ManagerInner { runtime, name, owned, supervisor, process })))
    }

    /// Returns the process as a child specification, with the actor's entry in the registry and the
    /// current process.
    pub(super) fn child(
        self,
        runtime: &'static Runtime,
        name: String,
    ) -> (ChildSpec, Arc<OwnedActor>, watch::Receiver<Option<CurrentProcess>>) {
        let owned = runtime.registry().own();
        let (process, current) = watch::channel(None);
        let start = ManagerStart {
            runtime,
            name: self.name,
            meta: self.meta,
            output: self.output,
            main: self.main,
            _keep_alive: self.keep_alive,
            incarnations: Arc::new(Incarnations {
                owned: Arc::clone(&owned),
                restart: self.restart,
                snapshot: self.snapshot,
                process,
            }),
        };
        let child = ChildSpec::new(name, start)
            .restart(self.restart)
            .shutdown(Shutdown::After(self.shutdown));
        (child, owned, current)
    }
}

/// Starts the process of a managed actor, once for each incarnation.
struct ManagerStart {
    runtime: &'static Runtime,
    name: String,
    meta: Meta,
    output: OutputMode,
    main: ActorMain,
    _keep_alive: KeepAlive,
    incarnations: Arc<Incarnations>,
}

/// What passes from one incarnation to the next.
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
            (self.name.clone(), self.main.clone(), self.meta, self.output);
        Box::pin(async move {
            let snapshot = incarnations.snapshot.get().await;
            let snapshot = snapshot.map_err(|error| ExitReason::NotStarted(error.to_string()))?;
            let spec = Launch {
                name,
                role: ProcessRole::Actor,
                restarts: context.restarts(),
                retry_creation: context.restarts() > 0,
                meta,
                output,
                request: StartRequest::new(&ActorMain { snapshot, ..main }),
                scheduling: None,
                kind: JobKind::Process(runtime.common_hosts()),
            };
            let launched = launch(runtime, spec).await.map_err(|exit| exit.reason)?;
            let (pid, place) = (launched.info.pid, launched.place());
            let address = launched.address.clone().unwrap_or_default().into();
            let process = ProcessRef { id: launched.info.id, address };
            let incarnation = incarnations.owned.started(process);
            let (commands, inbox) = mpsc::unbounded_channel();
            let control = ProcessControl(commands.clone());
            incarnations.process.send_replace(Some(CurrentProcess { pid, commands }));
            let (done, exit) = oneshot::channel();
            actix::spawn(async move {
                let _ = done.send(incarnations.follow(incarnation, runtime, launched, inbox).await);
            });
            let exited =
                async { exit.await.unwrap_or(ExitReason::LinkLost("its attendant ended".into())) };
            Ok(Running::new(control, exited).place(place))
        })
    }

    fn removed(&mut self, reason: &ExitReason) {
        self.incarnations.gone(reason.clone());
    }
}

impl Incarnations {
    /// Follows a process to its end, and returns why the actor ended.
    async fn follow(
        &self,
        incarnation: u64,
        runtime: &'static Runtime,
        launched: Launched,
        inbox: mpsc::UnboundedReceiver<ProcessCommand>,
    ) -> ExitReason {
        let pid = launched.info.pid;
        let link = Arc::clone(&launched.connection.link);
        let mut ended = None;
        let receive = |message: Received| match ActorMessage::decode(message.into()) {
            Some(ActorMessage::Snapshot(state)) => self.snapshot.set(state),
            Some(ActorMessage::Ended(reason)) => {
                ended = Some(reason);
                // The process stays until then, so that its reason is not lost.
                let _ = link.send(ControlMessage::Shutdown.message());
            }
            None => tracing::error!("ignored an invalid message of a managed actor's process"),
        };
        let exit = {
            let monitor = pin!(monitor(runtime, launched, inbox, receive));
            match select(monitor, pin!(self.snapshot.failed())).await {
                Either::Left((exit, _)) => exit,
                Either::Right((error, monitor)) => {
                    self.give_up(&error);
                    monitor.await
                }
            }
        };
        // The next incarnation, of this program or of the next one, gets what has arrived.
        let _ = self.snapshot.get().await;
        self.process.send_if_modified(|current| {
            let is_current = current.as_ref().is_some_and(|process| process.pid == pid);
            if is_current {
                *current = None;
            }
            is_current
        });
        let reason = ended.unwrap_or(exit.reason);
        self.owned.ended(incarnation, reason.clone());
        let restarts = match self.restart {
            Restart::Permanent => true,
            Restart::Transient => !reason.is_normal(),
            Restart::Temporary => false,
        };
        if !restarts {
            self.gone(reason.clone());
        }
        reason
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
