//! The process of a manager, from one incarnation to the next.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use fiber_core::transfer::KeepAlive;
use fiber_core::{ExitReason, Meta, OutputMode, Result, codec};
use futures_util::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::ManagerInner;
use super::host::{HostMain, Note};
use crate::mesh::{OwnedActor, ProcessRef};
use crate::process::ProcessControl;
use crate::runtime::{
    ControlMessage, Launch, ProcessCommand, Runtime, StartRequest, launch, monitor,
};
use crate::supervisor::{
    Backoff, ChildContext, ChildSpec, Restart, Running, Shutdown, Start, Supervisor,
};

/// The current process.
#[derive(Clone)]
pub(super) struct CurrentProcess {
    pub(super) pid: u32,
    pub(super) commands: mpsc::UnboundedSender<ProcessCommand>,
}

/// A manager that is ready to be started.
pub(super) struct Prepared {
    pub(super) name: String,
    pub(super) host_main: HostMain,
    /// Of the factory's arguments.
    pub(super) keep_alive: KeepAlive,
    pub(super) meta: Meta,
    pub(super) output: OutputMode,
    pub(super) restart: Restart,
    pub(super) shutdown: Duration,
    pub(super) intensity: (u32, Duration),
    pub(super) backoff: Backoff,
}

impl Prepared {
    pub(super) async fn start(
        self,
        runtime: &'static Runtime,
    ) -> Result<(ProcessRef, Arc<ManagerInner>)> {
        let home = ProcessRef { id: runtime.id(), address: runtime.address().await?.into() };
        let (name, (restarts, period)) = (self.name.clone(), self.intensity);
        let supervisor =
            Supervisor::builder(&*name).intensity(restarts, period).backoff(self.backoff.clone());
        let (child, owned, process) = self.child(runtime, "process".into());
        let supervisor = supervisor.child(child).start_on(runtime.arbiter()).await?;
        Ok((home, Arc::new(ManagerInner { runtime, name, owned, supervisor, process })))
    }

    /// The process as a child, its place in the mesh, and where its current incarnation is told.
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
            owned: Arc::clone(&owned),
            meta: self.meta,
            output: self.output,
            host_main: self.host_main,
            _keep_alive: self.keep_alive,
            restart: self.restart,
            snapshot: Arc::default(),
            process: Arc::new(process),
        };
        let child = ChildSpec::new(name, start)
            .restart(self.restart)
            .shutdown(Shutdown::After(self.shutdown));
        (child, owned, current)
    }
}

/// Starts an actor's process, once for each incarnation.
struct ManagerStart {
    runtime: &'static Runtime,
    name: String,
    owned: Arc<OwnedActor>,
    meta: Meta,
    output: OutputMode,
    host_main: HostMain,
    _keep_alive: KeepAlive,
    restart: Restart,
    snapshot: Arc<Mutex<Option<Bytes>>>,
    process: Arc<watch::Sender<Option<CurrentProcess>>>,
}

impl Start for ManagerStart {
    fn start(
        &mut self,
        context: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        let (runtime, owned, process) =
            (self.runtime, Arc::clone(&self.owned), Arc::clone(&self.process));
        let (kept, restart) = (Arc::clone(&self.snapshot), self.restart);
        let mut host_main = self.host_main.clone();
        host_main.snapshot = kept.lock().as_ref().map(|snapshot| snapshot.to_vec());
        let spec = Launch {
            name: self.name.clone(),
            restarts: context.restarts(),
            retry_creation: context.restarts() > 0,
            meta: self.meta,
            output: self.output,
            request: StartRequest::new(&host_main),
            scheduling: None,
        };
        Box::pin(async move {
            let launched = launch(runtime, spec).await.map_err(|exit| exit.reason)?;
            let (pid, place) = (launched.info.pid, launched.place());
            let address = launched.address.clone().unwrap_or_default().into();
            let incarnation = owned.started(ProcessRef { id: launched.info.id, address });
            let (commands, inbox) = mpsc::unbounded_channel();
            process.send_replace(Some(CurrentProcess { pid, commands: commands.clone() }));
            let (exited, exit) = oneshot::channel();
            actix::spawn(async move {
                let link = Arc::clone(&launched.connection.link);
                let mut ended = None;
                let receive = |mut message: Bytes| match Note::take(&mut message) {
                    Some(Note::Snapshot) => *kept.lock() = Some(message),
                    Some(Note::Ended) => {
                        ended = codec::decode::<ExitReason>(message.chunk()).ok();
                        // It waits for this, so that its reason is not lost with it.
                        let _ = link.send(ControlMessage::Shutdown.message());
                    }
                    None => tracing::error!("a message of a manager's process was ignored"),
                };
                let exit = monitor(runtime, launched, inbox, receive).await;
                process.send_if_modified(|current| {
                    let ours = current.as_ref().is_some_and(|process| process.pid == pid);
                    if ours {
                        *current = None;
                    }
                    ours
                });
                let reason = ended.unwrap_or(exit.reason);
                owned.ended(incarnation, reason.clone());
                let last = match restart {
                    Restart::Permanent => false,
                    Restart::Transient => reason.is_normal(),
                    Restart::Temporary => true,
                };
                if last {
                    owned.gone(reason.clone());
                }
                let _ = exited.send(reason);
            });
            let exited =
                async { exit.await.unwrap_or(ExitReason::LinkLost("its attendant ended".into())) };
            Ok(Running::new(ProcessControl(commands), exited).place(place))
        })
    }

    fn removed(&mut self, reason: &ExitReason) {
        self.owned.gone(reason.clone());
    }
}

impl Drop for ManagerStart {
    fn drop(&mut self) {
        // Its supervisor has forgotten it, or it was never started.
        self.owned.gone(ExitReason::Shutdown);
        self.runtime.registry().retire(self.owned.id());
    }
}
