//! A rank's process as a child of the ring's supervisor.

use std::sync::Arc;

use fiber_core::stats::ProcessRole;
use fiber_core::{Exit, ExitReason};
use fiber_transport::Received;
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot, watch};

use super::super::rank::RingMain;
use super::super::wire::RankMessage;
use super::Coordinator;
use crate::runtime::{JobKind, Launch, ProcessCommand, StartRequest, launch, monitor};
use crate::supervisor::{ChildContext, Control, Running, Start};

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
        let (commands, inbox) = mpsc::unbounded_channel();
        let attempt = self.coordinator.begin_rank(self.rank, commands.clone());
        let (stop_requested, stop_request) = watch::channel(false);
        let process = RankChild {
            coordinator: Arc::clone(&self.coordinator),
            rank: self.rank,
            attempt,
            stop_request,
        };
        let coordinator = Arc::clone(&self.coordinator);
        let control = RankControl { coordinator, commands, stop_requested };
        let exited = async move {
            let (done, exit) = oneshot::channel();
            // A task of its own, because the supervisor may drop this future. Then the control is
            // dropped too, which kills the process.
            actix::spawn(async move { drop(done.send(process.run(context, inbox).await)) });
            exit.await.unwrap_or(ExitReason::LinkLost("its attendant ended".into()))
        };
        // The ranks start at the same time, so the supervisor does not wait for each of them.
        Box::pin(async move { Ok(Running::new(control, exited)) })
    }
}

/// A rank's process in one attempt.
struct RankChild {
    coordinator: Arc<Coordinator>,
    rank: usize,
    attempt: u64,
    /// Whether the supervisor has asked the process to end.
    stop_request: watch::Receiver<bool>,
}

impl RankChild {
    /// Launches the process, and returns why it ended.
    async fn run(
        mut self,
        context: ChildContext,
        inbox: mpsc::UnboundedReceiver<ProcessCommand>,
    ) -> ExitReason {
        let (rank, attempt) = (self.rank, self.attempt);
        let exit = self.launch(context, inbox).await;
        let reason = exit.reason.clone();
        let stopping = *self.stop_request.borrow();
        if !stopping && !self.coordinator.rank_died(rank, attempt, exit) {
            // The supervisor restarts a child that has ended. This one ends only when the
            // supervisor stops all ranks.
            let _ = self.stop_request.wait_for(|requested| *requested).await;
        }
        reason
    }

    /// Launches the process and follows it to its end.
    async fn launch(
        &self,
        context: ChildContext,
        mut inbox: mpsc::UnboundedReceiver<ProcessCommand>,
    ) -> Exit {
        let (rank, attempt, coordinator) = (self.rank, self.attempt, &*self.coordinator);
        let runtime = coordinator.runtime;
        let main = RingMain { rank: rank as u64, ..coordinator.main.clone() };
        let launch = launch(
            runtime,
            Launch {
                name: format!("{}/rank-{rank}", coordinator.name),
                role: ProcessRole::RingNode,
                restarts: context.restarts(),
                retry_creation: context.restarts() > 0,
                meta: coordinator.meta,
                output: coordinator.output,
                request: StartRequest::new(&main),
                scheduling: None,
                kind: JobKind::Process(Arc::clone(&coordinator.hosts)),
            },
        );
        tokio::pin!(launch);
        let launched = loop {
            tokio::select! {
                launched = &mut launch => match launched {
                    Ok(launched) => break launched,
                    Err(exit) => return exit,
                },
                // Dropping the launch ends what has started of the process.
                command = inbox.recv() => match command {
                    Some(ProcessCommand::Kill(reason)) => return Exit::new(reason, Vec::new()),
                    None => return Exit::new(ExitReason::Shutdown, Vec::new()),
                    Some(_) => {}
                }
            }
        };
        let pid = launched.info.pid;
        context.set_place(format!("pid {pid}"));
        self.coordinator.rank_connected(rank, attempt, pid, &launched.connection.link);
        let receive = |message: Received| {
            self.coordinator.receive(rank, attempt, RankMessage::decode(message.into()))
        };
        monitor(runtime, launched, inbox, receive).await
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
