//! The coordinator of a run, in the process that runs the ring.
//!
//! It collects addresses, checkpoints and results of the ranks, and decides how the run ends
//! ([`RunState`]). The ranks are children of one supervisor, which restarts all of them when one
//! dies. One start of all ranks is an *attempt*. The coordinator allows another attempt only if the
//! function takes checkpoints, because otherwise there is no state to continue from. Checkpoints
//! and results of a durable ring count when they are recorded.

mod checkpoints;
mod rank_child;
mod run_state;

use std::sync::Arc;
use std::time::Instant;

use fiber_backends::ChildOutput;
use fiber_core::stats::{Report, RingStats};
use fiber_core::{
    Error, Exit, ExitReason, Failure, FailureKind, Meta, ProcessId, Result, RingEndReason,
    RingProblem,
};
use fiber_transport::{Link, Message};
use fiber_values::codec;
use fiber_values::codec::EncodedValue;
use fiber_values::transfer::KeepAlive;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use self::rank_child::RankStart;
pub(super) use self::run_state::RunState;
use self::run_state::{Cause, Effect};
use super::rank::RingMain;
use super::recorded::RecordedRun;
use super::wire::{CoordinatorMessage, RankMessage};
use fiber_runtime::runtime::{ControlMessage, HostGroup, ProcessCommand, Runtime};
use fiber_runtime::sources::Source;
use fiber_supervisor::supervisor::{
    ChildSpec, Restart, Shutdown, SupervisorBuilder, SupervisorRef,
};

/// The encoded values that all ranks have returned, or why the run failed.
pub(super) type Outcome = Result<Vec<EncodedValue>>;

/// The options of a run, and its state.
pub(super) struct Coordinator {
    pub(super) runtime: &'static Runtime,
    pub(super) hosts: Arc<HostGroup>,
    pub(super) name: String,
    pub(super) function: &'static str,
    pub(super) main: RingMain,
    pub(super) arguments: EncodedValue,
    pub(super) _keep_alive: KeepAlive,
    pub(super) meta: Meta,
    pub(super) output: ChildOutput,
    pub(super) recorded: Option<RecordedRun>,
    pub(super) run: Mutex<Run>,
    /// The ids of the running processes, by rank.
    pub(super) pids: watch::Sender<Vec<Option<u32>>>,
}

/// A run with its processes.
pub(super) struct Run {
    state: RunState,
    /// The ranks' processes in the current attempt.
    processes: Vec<RankProcess>,
    /// How the run ended. The first outcome counts.
    outcome: Option<Outcome>,
    supervisor: Option<SupervisorRef>,
}

/// The ways to a rank's process.
#[derive(Default)]
struct RankProcess {
    link: Option<Arc<dyn Link>>,
    commands: Option<mpsc::UnboundedSender<ProcessCommand>>,
}

impl Run {
    pub(super) fn new(size: usize, state: RunState) -> Run {
        let processes = (0..size).map(|_| RankProcess::default()).collect();
        Run { state, processes, outcome: None, supervisor: None }
    }

    /// Sends a message to a rank that has a link. It fails only for a rank that has died, which the
    /// supervisor handles.
    fn send(&self, rank: usize, message: Message) {
        if let Some(link) = &self.processes[rank].link {
            let _ = link.send(message);
        }
    }

    fn send_to_all(&self, message: impl Fn() -> Message) {
        (0..self.processes.len()).for_each(|rank| self.send(rank, message()));
    }

    /// Sends the messages among the effects. Returns the other effects.
    fn send_messages(&self, effects: Vec<Effect>) -> Vec<Effect> {
        let mut others = Vec::new();
        for effect in effects {
            match effect {
                Effect::Send(rank, message) => self.send(rank, message.encode()),
                Effect::SendToAll(message) => self.send_to_all(|| message.clone().encode()),
                other => others.push(other),
            }
        }
        others
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.hosts.close(self.runtime);
    }
}

impl Source for Coordinator {
    fn report(&self, process: ProcessId, report: &mut Report) {
        let run = self.run.lock();
        let mut stats = RingStats::new(process, self.name.clone(), self.function.to_string());
        (stats.attempt, stats.checkpoint) = (run.state.attempt(), run.state.last_checkpoint());
        stats.ranks = self.pids.borrow().clone();
        report.rings.push(stats);
    }
}

impl Coordinator {
    /// Runs the ranks under a supervisor until the run is over and all of them have ended.
    pub(super) async fn run(self: Arc<Self>, mut supervisor: SupervisorBuilder) -> Outcome {
        let size = self.pids.borrow().len();
        for rank in 0..size {
            let start = RankStart { coordinator: Arc::clone(&self), rank };
            let spec = ChildSpec::new(format!("rank-{rank}"), start)
                .restart(Restart::Permanent)
                .shutdown(Shutdown::After(self.runtime.config().shutdown_timeout));
            supervisor = supervisor.child(spec);
        }
        match supervisor.start_on(self.runtime.arbiter()).await {
            Ok(supervisor) => {
                self.set_supervisor(supervisor.clone());
                let reason = supervisor.join().await?;
                self.supervisor_ended(reason)
            }
            Err(error) => self.run.lock().outcome.clone().unwrap_or(Err(error)),
        }
    }

    fn set_supervisor(self: &Arc<Self>, supervisor: SupervisorRef) {
        let mut run = self.run.lock();
        run.supervisor = Some(supervisor);
        let over = run.outcome.is_some();
        drop(run);
        if over {
            self.stop_supervisor();
        }
    }

    fn supervisor_ended(&self, reason: ExitReason) -> Outcome {
        let mut run = self.run.lock();
        if let Some(outcome) = run.outcome.take() {
            return outcome;
        }
        let name = self.name.clone();
        match (reason, run.state.take_last_death()) {
            (ExitReason::IntensityReached { restarts, period, .. }, Some((rank, exit))) => {
                let reason = RingEndReason::IntensityReached { restarts, period };
                Err(Error::RankDied { name, reason, rank, exit: exit.into() })
            }
            (reason, _) => Err(Error::Ring { name, problem: RingProblem::SupervisorEnded(reason) }),
        }
    }

    /// Ends the run with this outcome, unless it has one.
    pub(super) fn end(self: &Arc<Self>, outcome: Outcome) {
        let mut run = self.run.lock();
        if run.outcome.is_some() {
            return;
        }
        if outcome.is_ok() {
            run.send_to_all(|| ControlMessage::Shutdown.message());
        }
        run.outcome = Some(outcome);
        run.state.end();
        drop(run);
        self.stop_supervisor();
    }

    /// Ends the run with an [`Error::Ring`], unless it has an outcome.
    pub(super) fn fail(self: &Arc<Self>, problem: RingProblem) {
        self.end(Err(Error::Ring { name: self.name.clone(), problem }));
    }

    fn stop_supervisor(self: &Arc<Self>) {
        if let Some(supervisor) = self.run.lock().supervisor.clone() {
            self.runtime.spawn(move || async move { drop(supervisor.stop().await) });
        }
    }

    /// Kills a rank's process. The supervisor treats it as a death.
    pub(super) fn kill_rank(&self, rank: usize) {
        let attempt = self.run.lock().state.attempt();
        self.kill_rank_of(attempt, rank, ExitReason::Signal(9));
    }

    /// Kills a rank's process, unless the attempt is over.
    fn kill_rank_of(&self, attempt: u64, rank: usize, reason: ExitReason) {
        let run = self.run.lock();
        if run.state.attempt() == attempt
            && let Some(commands) = run.processes.get(rank).and_then(|rank| rank.commands.as_ref())
        {
            let _ = commands.send(ProcessCommand::Kill(reason));
        }
    }

    /// Changes the state of the run, and performs the effects.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut RunState, &mut Vec<Effect>) -> T) -> T {
        let mut effects = Vec::new();
        let mut run = self.run.lock();
        let result = change(&mut run.state, &mut effects);
        // Under the lock, so that messages leave in the order of the events.
        let others = run.send_messages(effects);
        let attempt = run.state.attempt();
        drop(run);
        others.into_iter().for_each(|effect| self.perform(attempt, effect));
        result
    }

    fn perform(self: &Arc<Self>, attempt: u64, effect: Effect) {
        match effect {
            Effect::Send(..) | Effect::SendToAll(_) => unreachable!("messages have been sent"),
            Effect::Wait(pause) => {
                let coordinator = Arc::clone(self);
                self.runtime.spawn(move || async move {
                    tokio::time::sleep(pause).await;
                    coordinator.change(|run, effects| run.time_passed(Instant::now(), effects));
                });
            }
            Effect::Checkpoint { rank, number, state } => {
                self.take_checkpoint(rank, attempt, number, state);
            }
            Effect::RemoveCheckpoints(outdated) => self.remove_checkpoints(outdated),
            Effect::Finish { values, checkpoints } => self.finish(values, checkpoints),
            Effect::Fail(cause) => self.end(Err(self.error(cause))),
            Effect::Kill { rank, reason } => self.kill_rank_of(attempt, rank, reason),
        }
    }

    fn error(&self, cause: Cause) -> Error {
        let name = self.name.clone();
        match cause {
            Cause::Problem(problem) => Error::Ring { name, problem },
            Cause::Function { rank, failure } => {
                let failure = codec::decode(&failure)
                    .unwrap_or_else(|error| Failure::new(FailureKind::Result, error));
                Error::Task { function: self.function, index: rank as u64, failure }
            }
            Cause::NotStarted { rank, reason } => {
                Error::Start { name: format!("{name}/rank-{rank}"), reason }
            }
            Cause::Died { rank, exit } => {
                let reason = RingEndReason::NoCheckpoint;
                Error::RankDied { name, reason, rank, exit: exit.into() }
            }
        }
    }

    /// Prepares the start of a rank, and returns the attempt that it belongs to. Rank 0 starts
    /// first, and begins a new attempt.
    fn begin_rank(&self, rank: usize, commands: mpsc::UnboundedSender<ProcessCommand>) -> u64 {
        let mut run = self.run.lock();
        let attempt = run.state.begin(rank);
        if rank == 0 {
            run.processes.fill_with(RankProcess::default);
            self.pids.send_replace(vec![None; run.processes.len()]);
        }
        run.processes[rank].commands = Some(commands);
        attempt
    }

    /// Records that a rank's process is connected, and sends it its arguments and its checkpoint.
    fn rank_connected(&self, rank: usize, attempt: u64, pid: u32, link: &Arc<dyn Link>) {
        let mut run = self.run.lock();
        if run.state.attempt() != attempt {
            return;
        }
        run.processes[rank].link = Some(Arc::clone(link));
        run.send(rank, CoordinatorMessage::Arguments(self.arguments.clone()).encode());
        let mut effects = Vec::new();
        run.state.connected(rank, &mut effects);
        run.send_messages(effects);
        self.pids.send_modify(|pids| pids[rank] = Some(pid));
    }

    /// Handles a message of a rank. `None` is a message that cannot be decoded.
    fn receive(self: &Arc<Self>, rank: usize, attempt: u64, message: Option<RankMessage>) {
        let Some(message) = message else {
            return tracing::error!(
                "ignored an invalid message of rank {rank} of ring `{}`",
                self.name
            );
        };
        let now = Instant::now();
        self.change(|run, effects| run.receive(rank, attempt, message, now, effects));
    }

    /// Handles the death of a rank's process. Returns whether the supervisor may restart the ranks;
    /// otherwise it ends the run.
    fn rank_died(self: &Arc<Self>, rank: usize, attempt: u64, exit: Exit) -> bool {
        self.change(|run, effects| {
            if run.counts(attempt) {
                self.pids.send_modify(|pids| pids[rank] = None);
            }
            run.died(rank, attempt, exit, effects)
        })
    }
}
