//! The coordinator of a run, in the process that runs the ring.
//!
//! It collects addresses, checkpoints and results of the ranks, and decides how the run ends. The
//! ranks are children of one supervisor, which restarts all of them when one dies. One start of all
//! ranks is an *attempt*. The coordinator allows another attempt only if the function takes
//! checkpoints, because otherwise there is no state to continue from. Checkpoints and results of a
//! durable ring count when they are recorded.

mod checkpoints;
mod diagnosis;
mod rank_child;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fiber_backends::ChildOutput;
use fiber_core::codec::EncodedValue;
use fiber_core::stats::{Report, RingStats};
use fiber_core::transfer::KeepAlive;
use fiber_core::{
    Error, Exit, ExitReason, Failure, FailureKind, Meta, ProcessId, RankActivity, Result,
    RingEndReason, RingProblem, codec,
};
use fiber_transport::Link;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use self::rank_child::RankStart;
use super::rank::RingMain;
use super::recorded::RecordedRun;
use super::wire::{CoordinatorMessage, RankAddress, RankMessage};
use crate::runtime::{ControlMessage, HostGroup, ProcessCommand, Runtime};
use crate::stats::{Registration, Source};
use crate::supervisor::{
    Backoff, ChildSpec, Restart, Shutdown, Strategy, Supervisor, SupervisorRef,
};

/// The encoded values that all ranks have returned, or why the run failed.
pub(super) type Outcome = Result<Vec<EncodedValue>>;

/// How often, and after which pauses, the supervisor restarts the ranks.
pub(super) struct RestartPolicy {
    pub(super) intensity: (u32, Duration),
    pub(super) backoff: Backoff,
}

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
    pub(super) run: Mutex<RunState>,
    /// The ids of the running processes, by rank.
    pub(super) pids: watch::Sender<Vec<Option<u32>>>,
    pub(super) registration: Registration,
}

#[derive(Default)]
pub(super) struct RunState {
    /// The current attempt, counted from 1.
    attempt: u64,
    /// The ranks' processes in the current attempt.
    ranks: Vec<RankProcess>,
    /// The checkpoints of each rank by their number, from the last one that all ranks have taken.
    checkpoints: Vec<BTreeMap<u64, EncodedValue>>,
    /// The highest number of a checkpoint that any rank has taken.
    last_taken: u64,
    /// Whether the values of all ranks are being recorded.
    is_finishing: bool,
    /// How the run ended. The first outcome counts.
    outcome: Option<Outcome>,
    supervisor: Option<SupervisorRef>,
    /// The last death of a rank after which a restart was possible.
    last_death: Option<(usize, Exit)>,
    /// The rank that reported a timeout in the current attempt, and the timeout.
    timed_out: Option<(usize, Duration)>,
}

/// A rank's process in the current attempt, as far as the coordinator knows it.
#[derive(Default)]
struct RankProcess {
    link: Option<Arc<dyn Link>>,
    commands: Option<mpsc::UnboundedSender<ProcessCommand>>,
    address: Option<RankAddress>,
    value: Option<EncodedValue>,
    activity: Option<RankActivity>,
}

impl RunState {
    pub(super) fn new(size: usize) -> RunState {
        RunState {
            ranks: (0..size).map(|_| RankProcess::default()).collect(),
            checkpoints: vec![BTreeMap::new(); size],
            ..RunState::default()
        }
    }

    /// Returns the state of a run that continues from a checkpoint.
    pub(super) fn restored(number: u64, states: Vec<EncodedValue>) -> RunState {
        let mut run = RunState::new(states.len());
        run.checkpoints =
            states.into_iter().map(|state| BTreeMap::from([(number, state)])).collect();
        run.last_taken = number;
        run
    }

    /// Returns the number of the last checkpoint that all ranks have taken.
    fn last_checkpoint(&self) -> Option<u64> {
        let last = |taken: &BTreeMap<_, _>| taken.last_key_value().map(|(number, _)| *number);
        self.checkpoints.iter().map(last).min().flatten()
    }

    /// Sends a message to all ranks that have a link.
    fn send_to_all(&self, message: impl Fn() -> fiber_transport::Message) {
        for link in self.ranks.iter().filter_map(|rank| rank.link.as_ref()) {
            // It fails only for a rank that has died, which the supervisor handles.
            let _ = link.send(message());
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.hosts.close(self.runtime);
    }
}

impl Source for Coordinator {
    fn registration(&self) -> &Registration {
        &self.registration
    }

    fn report(&self, process: ProcessId, report: &mut Report) {
        let run = self.run.lock();
        let mut stats = RingStats::new(process, self.name.clone(), self.function.to_string());
        (stats.attempt, stats.checkpoint) = (run.attempt, run.last_checkpoint());
        stats.ranks = self.pids.borrow().clone();
        report.rings.push(stats);
    }
}

impl Coordinator {
    /// Runs the ranks under a supervisor until the run is over and all of them have ended.
    pub(super) async fn run(self: Arc<Self>, policy: RestartPolicy) -> Outcome {
        let size = self.pids.borrow().len();
        let (restarts, period) = policy.intensity;
        let mut supervisor = Supervisor::builder(self.name.clone())
            .strategy(Strategy::OneForAll)
            .intensity(restarts, period)
            .backoff(policy.backoff);
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
        let ring = self.name.clone();
        match (reason, run.last_death.take()) {
            (ExitReason::IntensityReached { restarts, period, .. }, Some((rank, exit))) => {
                let reason = RingEndReason::IntensityReached { restarts, period };
                Err(Error::RankDied { ring, reason, rank, exit: exit.into() })
            }
            (reason, _) => Err(Error::Ring { ring, problem: RingProblem::SupervisorEnded(reason) }),
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
        drop(run);
        self.stop_supervisor();
    }

    /// Ends the run with an [`Error::Ring`], unless it has an outcome.
    pub(super) fn fail(self: &Arc<Self>, problem: RingProblem) {
        self.end(Err(Error::Ring { ring: self.name.clone(), problem }));
    }

    fn stop_supervisor(self: &Arc<Self>) {
        if let Some(supervisor) = self.run.lock().supervisor.clone() {
            self.runtime.spawn(move || async move { drop(supervisor.stop().await) });
        }
    }

    /// Kills a rank's process. The supervisor treats it as a death.
    pub(super) fn kill_rank(&self, rank: usize) {
        let run = self.run.lock();
        if let Some(commands) = run.ranks.get(rank).and_then(|rank| rank.commands.as_ref()) {
            let _ = commands.send(ProcessCommand::Kill(ExitReason::Signal(9)));
        }
    }

    /// Prepares the start of a rank, and returns the attempt that it belongs to. Rank 0 starts
    /// first, and begins a new attempt.
    fn begin_rank(&self, rank: usize, commands: mpsc::UnboundedSender<ProcessCommand>) -> u64 {
        let mut run = self.run.lock();
        if rank == 0 {
            run.attempt += 1;
            run.timed_out = None;
            let last = run.last_checkpoint().unwrap_or(0);
            for rank in &mut run.ranks {
                *rank = RankProcess::default();
            }
            for taken in &mut run.checkpoints {
                taken.retain(|number, _| *number == last);
            }
            self.pids.send_replace(vec![None; run.ranks.len()]);
        }
        run.ranks[rank].commands = Some(commands);
        run.attempt
    }

    /// Records that a rank's process is connected, and sends it its arguments and its checkpoint.
    fn rank_connected(&self, rank: usize, attempt: u64, pid: u32, link: &Arc<dyn Link>) {
        let mut run = self.run.lock();
        if run.attempt != attempt {
            return;
        }
        let _ = link.send(CoordinatorMessage::Arguments(self.arguments.clone()).encode());
        if let Some(last) = run.last_checkpoint() {
            let state = run.checkpoints[rank][&last].clone();
            let _ = link.send(CoordinatorMessage::Checkpoint(last, state).encode());
        }
        run.ranks[rank].link = Some(Arc::clone(link));
        self.pids.send_modify(|pids| pids[rank] = Some(pid));
    }

    /// Handles a message of a rank. `None` is a message that cannot be decoded.
    fn receive(self: &Arc<Self>, rank: usize, attempt: u64, message: Option<RankMessage>) {
        let mut run = self.run.lock();
        if run.attempt != attempt || run.outcome.is_some() {
            return;
        }
        match message {
            Some(RankMessage::Joined(address)) => {
                run.ranks[rank].address = Some(address);
                let addresses: Option<Vec<RankAddress>> =
                    run.ranks.iter().map(|rank| rank.address.clone()).collect();
                if let Some(addresses) = addresses {
                    run.send_to_all(|| CoordinatorMessage::Start(addresses.clone()).encode());
                }
            }
            Some(RankMessage::Checkpoint(number, state)) => {
                run.last_taken = run.last_taken.max(number);
                drop(run);
                self.take_checkpoint(rank, attempt, number, state);
            }
            Some(RankMessage::Value(value)) => {
                run.ranks[rank].value = Some(value);
                let values: Option<Vec<EncodedValue>> =
                    run.ranks.iter().map(|rank| rank.value.clone()).collect();
                if let Some(values) = values {
                    drop(run);
                    self.finish(values);
                }
            }
            Some(RankMessage::Failure(failure)) => {
                drop(run);
                let failure = codec::decode(&failure)
                    .unwrap_or_else(|error| Failure::new(FailureKind::Result, error));
                self.end(Err(Error::Task { function: self.function, index: rank as u64, failure }));
            }
            Some(RankMessage::Error(error)) => {
                drop(run);
                self.diagnose(rank, attempt, error);
            }
            Some(RankMessage::Activity(activity)) => {
                run.ranks[rank].activity = Some(activity);
                let complete = run.ranks.iter().all(|rank| rank.activity.is_some());
                if run.timed_out.is_some() && complete {
                    drop(run);
                    self.report_timeout();
                }
            }
            None => {
                tracing::error!("ignored an invalid message of rank {rank} of ring `{}`", self.name)
            }
        }
    }

    /// Handles the death of a rank's process. Returns whether the supervisor may restart the ranks;
    /// otherwise it ends the run.
    fn rank_died(self: &Arc<Self>, rank: usize, attempt: u64, exit: Exit) -> bool {
        let mut run = self.run.lock();
        if run.attempt != attempt || run.outcome.is_some() || run.is_finishing {
            return false;
        }
        self.pids.send_modify(|pids| pids[rank] = None);
        let error = match &exit.reason {
            ExitReason::NotStarted(_) => {
                Error::Start { name: format!("{}/rank-{rank}", self.name), reason: exit.reason }
            }
            _ if run.last_taken == 0 => {
                let reason = RingEndReason::NoCheckpoint;
                Error::RankDied { ring: self.name.clone(), reason, rank, exit: exit.into() }
            }
            _ => {
                run.last_death = Some((rank, exit));
                return true;
            }
        };
        drop(run);
        self.end(Err(error));
        false
    }
}
