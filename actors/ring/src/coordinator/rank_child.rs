//! A rank's process as a child of the ring's supervisor.

use std::sync::Arc;

use fiber_core::stats::ProcessRole;
use fiber_core::{Exit, ExitReason};
use fiber_transport::Received;
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, watch};

use super::super::rank::RingMain;
use super::super::wire::RankMessage;
use super::Coordinator;
use fiber_runtime::runtime::{
    ChildProcess, Launch, Owner, Placement, ProcessCommand, ReadyChild, StartRequest,
};
use fiber_supervisor::supervisor::{ChildContext, Control, Running, Start};

/// Starts a rank's process, once in each attempt.
pub(super) struct RankStart {
    pub(super) coordinator: Arc<Coordinator>,
    pub(super) rank: usize,
}

impl Start for RankStart {
    fn start(
        &mut self,
        context: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        let (rank, coordinator) = (self.rank, Arc::clone(&self.coordinator));
        let (commands, inbox) = mpsc::unbounded_channel();
        let attempt = coordinator.begin_rank(rank, commands.clone());
        let (stop_requested, stop_request) = watch::channel(false);
        let main = RingMain { rank: rank as u64, ..coordinator.main.clone() };
        let launch = Launch {
            name: format!("{}/rank-{rank}", coordinator.name),
            role: ProcessRole::RingNode,
            restarts: context.restarts(),
            retry_creation: context.restarts() > 0,
            meta: coordinator.meta,
            output: coordinator.output.clone(),
            request: StartRequest::new(&main),
            scheduling: None,
            placement: Placement::in_group(Arc::clone(&coordinator.hosts)),
        };
        let runtime = coordinator.runtime;
        let control =
            RankControl { coordinator: Arc::clone(&coordinator), commands, stop_requested };
        let owner = RankOwner { context, coordinator, rank, attempt, stop_request };
        let process = ChildProcess { runtime, launch, commands: inbox, owner };
        // The ranks start at the same time, so the supervisor does not wait for each of them.
        Box::pin(async move { Ok(Running::new(control, process.start().exited())) })
    }
}

/// A rank's process in one attempt.
struct RankOwner {
    context: ChildContext,
    coordinator: Arc<Coordinator>,
    rank: usize,
    attempt: u64,
    /// Whether the supervisor has asked the process to end.
    stop_request: watch::Receiver<bool>,
}

impl Owner for RankOwner {
    fn ready(&mut self, ready: ReadyChild<'_>) {
        let pid = ready.info.pid;
        self.context.set_place(format!("pid {pid}"));
        self.coordinator.rank_connected(self.rank, self.attempt, pid, ready.link);
    }

    fn message(&mut self, message: Received) {
        let message = RankMessage::decode(message.into());
        self.coordinator.receive(self.rank, self.attempt, message);
    }

    async fn ended(mut self, exit: Exit) -> ExitReason {
        let reason = exit.reason.clone();
        let stopping = *self.stop_request.borrow();
        if !stopping && !self.coordinator.rank_died(self.rank, self.attempt, exit) {
            // The supervisor restarts a child that has ended. This one ends only when the
            // supervisor stops all ranks.
            let _ = self.stop_request.wait_for(|requested| *requested).await;
        }
        reason
    }
}

/// Lets the supervisor end a rank's process.
struct RankControl {
    coordinator: Arc<Coordinator>,
    commands: mpsc::UnboundedSender<ProcessCommand>,
    /// Set when the supervisor ends the process, so that its end is not a death.
    stop_requested: watch::Sender<bool>,
}

impl Control for RankControl {
    fn shutdown(&mut self) {
        self.stop_requested.send_replace(true);
        let succeeded = matches!(self.coordinator.run.lock().outcome, Some(Ok(_)));
        // A rank handles a shutdown only after its function has returned.
        let command = if succeeded {
            ProcessCommand::Shutdown
        } else {
            ProcessCommand::Kill(ExitReason::Shutdown)
        };
        let _ = self.commands.send(command);
    }

    fn kill(&mut self, reason: ExitReason) {
        self.stop_requested.send_replace(true);
        let _ = self.commands.send(ProcessCommand::Kill(reason));
    }
}

impl Drop for RankControl {
    fn drop(&mut self) {
        if !self.stop_requested.send_replace(true) {
            let _ = self.commands.send(ProcessCommand::Kill(ExitReason::Shutdown));
        }
    }
}
