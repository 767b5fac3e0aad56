//! Supervisors as children.

use std::any::Any;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use actix::{Addr, Arbiter, AsyncContext};
use fiber_core::ExitReason;
use futures_core::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::actor_loop::{ActorCommand, Commands, Own, run_actor};
use super::directory::Directory;
use super::driver::{Command, Supervisor};
use super::incarnation::{Current, ExitWatch, IncarnationGuard};
use super::machine::Options;
use super::spec::{ChildSpec, check_names};
use super::start::{ChildContext, Control, Running, Start};
use super::tree::ChildKind;

pub(super) struct SupervisorStart {
    options: Options,
    specs: Vec<ChildSpec>,
    pub(super) handle: SupervisorHandle,
}

/// The handle that all incarnations of a supervisor share.
#[derive(Clone)]
pub(super) struct SupervisorHandle {
    pub(super) current: Arc<Current<Supervisor>>,
    pub(super) directory: Arc<Directory>,
}

impl SupervisorStart {
    pub(super) fn new(options: Options, specs: Vec<ChildSpec>) -> SupervisorStart {
        let handle =
            SupervisorHandle { current: Arc::new(Current::new()), directory: Arc::default() };
        SupervisorStart { options, specs, handle }
    }
}

impl Start for SupervisorStart {
    fn start(
        &mut self,
        child: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        let (started, ready) = oneshot::channel();
        let exit_cell = Rc::new(OnceCell::new());
        let SupervisorHandle { current, directory } = self.handle.clone();
        let (options, exit) = (self.options.clone(), exit_cell.clone());
        let created = check_names(&self.specs).and_then(|()| {
            let specs = self.specs.iter().map(ChildSpec::share);
            Supervisor::new(&child, options, specs, directory, started, exit)
        });
        let supervisor = match created {
            Ok(supervisor) => supervisor,
            Err(problem) => {
                return Box::pin(async move { Err(ExitReason::NotStarted(problem.to_string())) });
            }
        };
        current.reopen();
        let (exit, exited) = ExitWatch::channel();
        let (commands, inbox) = mpsc::unbounded_channel();
        let context = supervisor.context();
        let addr = context.address();
        let own = Arc::new(Own { name: child.path().into(), addr: None });
        let guard = IncarnationGuard::new(current, addr.clone(), Arbiter::current(), exit);
        fiber_core::spawn_local(async move {
            let exit = move || exit_cell.get().cloned().unwrap_or(ExitReason::Normal);
            let on_started = || guard.started();
            let mut commands = Commands::new(inbox);
            let reason =
                run_actor(&own, context, supervisor, &mut commands, on_started, exit).await;
            guard.finish(reason);
        });
        Box::pin(async move {
            let control = SupervisorControl { addr, _commands: commands };
            match ready.await {
                Ok(()) => Ok(Running::new(control, exited.reason())),
                Err(_) => Err(exited.reason().await),
            }
        })
    }

    fn kind(&self) -> ChildKind {
        ChildKind::Supervisor { strategy: self.options.strategy, restarts: 0 }
    }

    fn handle(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(self.handle.clone()))
    }

    fn starts_on_shared_thread(&self) -> bool {
        self.specs.iter().any(ChildSpec::starts_on_shared_thread)
    }

    fn ends_here(&self) -> bool {
        self.handle.directory.end_here()
    }

    fn removed(&mut self, reason: &ExitReason) {
        for spec in &self.specs {
            spec.removed(reason);
        }
        self.handle.current.remove(reason);
    }
}

/// If it is dropped, the supervisor's actor ends, and its children are dropped with it.
struct SupervisorControl {
    addr: Addr<Supervisor>,
    _commands: mpsc::UnboundedSender<ActorCommand>,
}

impl Control for SupervisorControl {
    fn shutdown(&mut self) {
        self.addr.do_send(Command::Stop);
    }

    fn kill(&mut self, reason: ExitReason) {
        self.addr.do_send(Command::Kill(reason));
    }
}
