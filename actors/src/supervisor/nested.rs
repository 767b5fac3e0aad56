//! Supervisors as children.

use std::any::Any;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use actix::{Addr, Arbiter, AsyncContext};
use fiber_core::ExitReason;
use futures_core::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::directory::Directory;
use super::drive::{Order, drive};
use super::machine::{Options, Supervisor};
use super::mailbox::Command;
use super::slot::{Slot, Tenancy, exit_channel};
use super::spec::{ChildSpec, check_names};
use super::start::{ChildContext, Control, Running, Start};
use super::tree::ChildKind;

pub(super) struct SupervisorStart {
    options: Options,
    specs: Vec<ChildSpec>,
    pub(super) handle: SupervisorHandle,
}

/// What all incarnations of a supervisor have in common.
#[derive(Clone)]
pub(super) struct SupervisorHandle {
    pub(super) slot: Arc<Slot<Supervisor>>,
    pub(super) directory: Arc<Directory>,
}

impl SupervisorStart {
    pub(super) fn new(options: Options, specs: Vec<ChildSpec>) -> SupervisorStart {
        let handle = SupervisorHandle { slot: Arc::new(Slot::new()), directory: Arc::default() };
        SupervisorStart { options, specs, handle }
    }
}

impl Start for SupervisorStart {
    fn start(
        &mut self,
        child: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        if let Err(problem) = check_names(&self.specs) {
            return Box::pin(async move { Err(ExitReason::NotStarted(problem.to_string())) });
        }
        self.handle.slot.open();
        let (launched, ready) = oneshot::channel();
        let (exit, exited) = exit_channel();
        let (orders, inbox) = mpsc::unbounded_channel();
        let outcome = Rc::new(OnceCell::new());
        let specs = self.specs.iter().map(ChildSpec::share);
        let SupervisorHandle { slot, directory } = self.handle.clone();
        let supervisor = Supervisor::new(
            &child,
            self.options.clone(),
            specs,
            directory,
            launched,
            outcome.clone(),
        );
        let context = supervisor.context();
        let addr = context.address();
        let name = child.path().into();
        let tenancy = Tenancy::new(slot, addr.clone(), Arbiter::current(), exit);
        actix::spawn(async move {
            let ended = move || outcome.get().cloned().unwrap_or(ExitReason::Normal);
            let reason = drive(name, context, supervisor, inbox, || tenancy.enter(), ended).await;
            tenancy.end(reason);
        });
        Box::pin(async move {
            let control = SupervisorControl { addr, _orders: orders };
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

    fn forgotten(&mut self, reason: &ExitReason) {
        for spec in &self.specs {
            spec.forget(reason);
        }
        self.handle.slot.gone(reason);
    }
}

/// Dropped, it ends the supervisor and, as they are dropped with it, all below.
struct SupervisorControl {
    addr: Addr<Supervisor>,
    _orders: mpsc::UnboundedSender<Order>,
}

impl Control for SupervisorControl {
    fn shutdown(&mut self) {
        self.addr.do_send(Command::Shutdown);
    }

    fn kill(&mut self, reason: ExitReason) {
        self.addr.do_send(Command::Kill(reason));
    }
}
