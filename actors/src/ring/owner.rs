//! The owner's part: who has joined, which checkpoints there are, and how the run ends.
//!
//! A round is one life of all ranks: the supervisor starts all of them anew when one dies. Whether
//! it may is decided here: only if the function takes checkpoints, and so can go on from somewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fiber_core::travel::Pins;
use fiber_core::{
    Error, Exit, ExitReason, Failure, FailureKind, Meta, OutputMode, Result, RingEndReason, codec,
};
use fiber_transport::Link;
use futures_util::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::root::RingMain;
use super::wire::{Doing, Member, News, Order, Trouble};
use crate::runtime::{
    ControlMessage, Launch, ProcessCommand, Runtime, StartRequest, launch, monitor,
};
use crate::supervisor::{ChildContext, Control, Running, Start, SupervisorRef};

/// How long what a rank complains of may take to show itself as something clearer: a death, or a
/// failure.
const CLEARER: Duration = Duration::from_secs(2);
/// How long ranks may take to say what they are doing.
const ANSWERS: Duration = Duration::from_secs(1);

/// What all ranks have returned, or why there is nothing.
pub(super) type Outcome = Result<Vec<Bytes>>;

/// A ring, from the start of its run to its end.
pub(super) struct Owner {
    pub(super) runtime: &'static Runtime,
    pub(super) name: String,
    pub(super) function: &'static str,
    pub(super) ring_main: RingMain,
    pub(super) arguments: Bytes,
    pub(super) _pins: Pins,
    pub(super) meta: Meta,
    pub(super) output: OutputMode,
    pub(super) state: Mutex<State>,
    /// The processes at work, by rank, for whoever holds the run.
    pub(super) pids: watch::Sender<Vec<Option<u32>>>,
}

#[derive(Default)]
pub(super) struct State {
    seats: Vec<Seat>,
    round: u64,
    /// What each rank has kept, by the checkpoint's number. All from the last common one on.
    checkpoints: Vec<BTreeMap<u64, Bytes>>,
    /// How the run ended. The first word counts.
    outcome: Option<Outcome>,
    supervisor: Option<SupervisorRef>,
    last: Option<(usize, Exit)>,
    late: Option<(usize, f64)>,
}

/// A rank in the present round.
#[derive(Default)]
struct Seat {
    link: Option<Arc<dyn Link>>,
    commands: Option<mpsc::UnboundedSender<ProcessCommand>>,
    member: Option<Member>,
    value: Option<Bytes>,
    doing: Option<Doing>,
}

impl State {
    pub(super) fn new(size: usize) -> State {
        State {
            seats: (0..size).map(|_| Seat::default()).collect(),
            checkpoints: vec![BTreeMap::new(); size],
            ..State::default()
        }
    }

    /// The last checkpoint that all ranks have taken.
    fn common(&self) -> Option<u64> {
        self.checkpoints
            .iter()
            .map(|taken| taken.last_key_value().map(|(number, _)| *number))
            .min()
            .flatten()
    }
}

impl Owner {
    /// How the run ended.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.state.lock().outcome.clone()
    }

    /// The supervisor is there: from now on it can be told to end.
    pub(super) fn supervised(self: &Arc<Self>, supervisor: SupervisorRef) {
        let mut state = self.state.lock();
        state.supervisor = Some(supervisor);
        let over = state.outcome.is_some();
        drop(state);
        if over {
            self.end_children();
        }
    }

    /// Ends the run, unless it has ended.
    pub(super) fn end(self: &Arc<Self>, outcome: Outcome) {
        let mut state = self.state.lock();
        if state.outcome.is_some() {
            return;
        }
        if outcome.is_ok() {
            for link in state.seats.iter().filter_map(|seat| seat.link.as_ref()) {
                // One that is gone has said all.
                let _ = link.send(ControlMessage::Shutdown.message());
            }
        }
        state.outcome = Some(outcome);
        drop(state);
        self.end_children();
    }

    fn end_children(self: &Arc<Self>) {
        if let Some(supervisor) = self.state.lock().supervisor.clone() {
            self.runtime.spawn(move || async move { drop(supervisor.stop().await) });
        }
    }

    /// The supervisor has ended.
    pub(super) fn ended(self: &Arc<Self>, reason: ExitReason) -> Outcome {
        let mut state = self.state.lock();
        if let Some(outcome) = state.outcome.take() {
            return outcome;
        }
        let ring = self.name.clone();
        match (reason, state.last.take()) {
            (ExitReason::IntensityReached { restarts, period, .. }, Some((rank, exit))) => {
                let reason = RingEndReason::IntensityReached { restarts, period };
                Err(Error::RankDied { ring, reason, rank, exit: exit.into() })
            }
            (reason, _) => Err(Error::Ring { ring, problem: reason.to_string() }),
        }
    }

    /// Ends a rank's process at once, as if it had died.
    pub(super) fn kill(&self, rank: usize) {
        let state = self.state.lock();
        if let Some(commands) = state.seats.get(rank).and_then(|seat| seat.commands.as_ref()) {
            let _ = commands.send(ProcessCommand::Kill(ExitReason::Signal(9)));
        }
    }

    /// A rank is about to be started. The first one opens a round.
    fn starts(&self, rank: usize) -> u64 {
        let mut state = self.state.lock();
        if rank == 0 {
            state.round += 1;
            state.late = None;
            let common = state.common().unwrap_or(0);
            for seat in &mut state.seats {
                *seat = Seat::default();
            }
            for taken in &mut state.checkpoints {
                taken.retain(|number, _| *number == common);
            }
            self.pids.send_replace(vec![None; state.seats.len()]);
        }
        state.round
    }

    /// A rank's process is there.
    fn arrives(&self, rank: usize, round: u64, pid: u32, link: &Arc<dyn Link>) {
        let mut state = self.state.lock();
        if state.round != round {
            return;
        }
        let _ = link.send(Order::Arguments(self.arguments.clone()).message());
        if let Some(common) = state.common() {
            let own = state.checkpoints[rank][&common].clone();
            let _ = link.send(Order::Restored(common, own).message());
        }
        state.seats[rank].link = Some(Arc::clone(link));
        self.pids.send_modify(|pids| pids[rank] = Some(pid));
    }

    fn hears(self: &Arc<Self>, rank: usize, round: u64, news: Option<News>) {
        let mut state = self.state.lock();
        if state.round != round || state.outcome.is_some() {
            return;
        }
        match news {
            Some(News::Joined(member)) => {
                state.seats[rank].member = Some(member);
                let members: Option<Vec<Member>> =
                    state.seats.iter().map(|seat| seat.member.clone()).collect();
                if let Some(members) = members {
                    for link in state.seats.iter().filter_map(|seat| seat.link.as_ref()) {
                        // One that is gone is about to be started again, with all others.
                        let _ = link.send(Order::Members(members.clone()).message());
                    }
                }
            }
            Some(News::Checkpoint(number, kept)) => {
                // It has to outlive the message, which may share its memory with many others.
                state.checkpoints[rank].insert(number, Bytes::copy_from_slice(&kept));
                if let Some(common) = state.common() {
                    state
                        .checkpoints
                        .iter_mut()
                        .for_each(|taken| taken.retain(|number, _| *number >= common));
                }
            }
            Some(News::Value(value)) => {
                state.seats[rank].value = Some(value);
                let values: Option<Vec<Bytes>> =
                    state.seats.iter().map(|seat| seat.value.clone()).collect();
                if let Some(values) = values {
                    drop(state);
                    self.end(Ok(values));
                }
            }
            Some(News::Failure(failure)) => {
                drop(state);
                let failure = codec::decode(&failure)
                    .unwrap_or_else(|error| Failure::new(FailureKind::Result, error));
                self.end(Err(Error::Task { function: self.function, index: rank as u64, failure }));
            }
            Some(News::Trouble(trouble)) => {
                drop(state);
                self.troubled(rank, round, trouble);
            }
            Some(News::Doing(doing)) => {
                state.seats[rank].doing = Some(doing);
                if state.late.is_some() && state.seats.iter().all(|seat| seat.doing.is_some()) {
                    drop(state);
                    self.is_late();
                }
            }
            None => tracing::error!("a message of rank {rank} of ring `{}` was ignored", self.name),
        }
    }

    fn troubled(self: &Arc<Self>, rank: usize, round: u64, trouble: Trouble) {
        let problem = match trouble {
            Trouble::Late { seconds } => {
                let mut state = self.state.lock();
                if state.late.is_none() {
                    state.late = Some((rank, seconds));
                    for seat in &mut state.seats {
                        seat.doing = None;
                        if let Some(link) = &seat.link {
                            let _ = link.send(Order::Report.message());
                        }
                    }
                    drop(state);
                    self.later(ANSWERS, round, Owner::is_late);
                }
                return;
            }
            Trouble::Mismatch { other, mine, theirs } => {
                let problem = format!(
                    "its ranks don't do the same: rank {rank} is in {mine}, rank {other} in {theirs}. All ranks have to \
                     call the same collectives in the same order, with slices of the same length"
                );
                return self.end(Err(Error::Ring { ring: self.name.clone(), problem }));
            }
            Trouble::Lost { other, problem } => {
                format!("rank {rank} can't reach rank {other}: {problem}")
            }
            Trouble::Finished { other, mine } => {
                format!(
                    "rank {rank} waits for rank {other} in {mine}, and the function of rank {other} has ended"
                )
            }
        };
        // A rank whose function failed, or that died, is about to say so.
        let ring = self.name.clone();
        self.later(CLEARER, round, move |owner| owner.end(Err(Error::Ring { ring, problem })));
    }

    /// Does something after a while, if the round is still the same then.
    fn later(
        self: &Arc<Self>,
        time: Duration,
        round: u64,
        what: impl FnOnce(&Arc<Owner>) + Send + 'static,
    ) {
        let owner = Arc::clone(self);
        self.runtime.spawn(move || async move {
            tokio::time::sleep(time).await;
            if owner.state.lock().round == round {
                what(&owner);
            }
        });
    }

    /// A rank has waited for too long, and all that will say what they are doing have said it.
    fn is_late(self: &Arc<Self>) {
        let state = self.state.lock();
        let Some((first, seconds)) = state.late else { return };
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (rank, seat) in state.seats.iter().enumerate() {
            let doing = match &seat.doing {
                Some(Doing::Working) => "in its own code".to_string(),
                Some(Doing::Finished) => "done with its function".to_string(),
                Some(Doing::Together(what)) => format!("in {what}"),
                None => "silent".to_string(),
            };
            groups.entry(doing).or_default().push(rank);
        }
        let own = match &state.seats[first].doing {
            Some(Doing::Together(what)) => what.clone(),
            _ => "what rank 0 waits for".replace('0', &first.to_string()),
        };
        drop(state);
        let groups: Vec<String> = groups
            .into_iter()
            .map(|(doing, ranks)| format!("{} {doing}", listed(&ranks)))
            .collect();
        let problem = format!(
            "{own}, did not happen within {seconds} s: {}. All ranks have to take part in it (the ring's `timeout` sets \
             how long they may take)",
            groups.join("; ")
        );
        self.end(Err(Error::Ring { ring: self.name.clone(), problem }));
    }

    /// A rank's process has ended by itself. Whether it may be started again, and all others with
    /// it.
    fn died(self: &Arc<Self>, rank: usize, round: u64, exit: Exit) -> bool {
        let mut state = self.state.lock();
        if state.round != round || state.outcome.is_some() {
            return false;
        }
        self.pids.send_modify(|pids| pids[rank] = None);
        let error = match &exit.reason {
            ExitReason::NotStarted(problem) => Error::Start {
                name: format!("{}/rank-{rank}", self.name),
                problem: problem.clone(),
            },
            _ if state.checkpoints.iter().all(BTreeMap::is_empty) => {
                let reason = RingEndReason::NoCheckpoint;
                Error::RankDied { ring: self.name.clone(), reason, rank, exit: exit.into() }
            }
            _ => {
                state.last = Some((rank, exit));
                return true;
            }
        };
        drop(state);
        self.end(Err(error));
        false
    }
}

/// `rank 1 is`, `ranks 0 and 2 are`.
fn listed(ranks: &[usize]) -> String {
    let words: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    match words.as_slice() {
        [one] => format!("rank {one} is"),
        [first @ .., last] => format!("ranks {} and {last} are", first.join(", ")),
        [] => "none is".into(),
    }
}

/// Starts a rank's process, once for each round.
pub(super) struct RankStart {
    pub(super) owner: Arc<Owner>,
    pub(super) rank: usize,
}

impl Start for RankStart {
    fn start(
        &mut self,
        context: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        let (owner, rank) = (Arc::clone(&self.owner), self.rank);
        let round = owner.starts(rank);
        let (commands, inbox) = mpsc::unbounded_channel();
        owner.state.lock().seats[rank].commands = Some(commands.clone());
        let (released, release) = watch::channel(false);
        let control = RankControl { owner: Arc::clone(&owner), commands, released };
        let exited = async move {
            let (done, exit) = tokio::sync::oneshot::channel();
            // Dropped with its supervisor, the process ends all the same: its commands end then.
            actix::spawn(async move {
                drop(done.send(live(owner, rank, round, context, inbox, release).await))
            });
            exit.await.unwrap_or(ExitReason::LinkLost("its attendant ended".into()))
        };
        // All ranks start at the same time: none is waited for.
        Box::pin(async move { Ok(Running::new(control, exited)) })
    }
}

/// The life of a rank in a round.
async fn live(
    owner: Arc<Owner>,
    rank: usize,
    round: u64,
    context: ChildContext,
    mut inbox: mpsc::UnboundedReceiver<ProcessCommand>,
    mut release: watch::Receiver<bool>,
) -> ExitReason {
    let runtime = owner.runtime;
    let ring_main = RingMain { rank: rank as u64, ..owner.ring_main.clone() };
    let name = format!("{}/rank-{rank}", owner.name);
    let (meta, output, restarts) = (owner.meta, owner.output, context.restarts());
    let launch = launch(
        runtime,
        Launch {
            name,
            restarts,
            retry_creation: restarts > 0,
            meta,
            output,
            request: StartRequest::new(&ring_main),
            scheduling: None,
        },
    );
    let launched = {
        tokio::pin!(launch);
        loop {
            tokio::select! {
                launched = &mut launch => break launched,
                // What there is of it ends with its launch.
                command = inbox.recv() => match command {
                    Some(ProcessCommand::Kill(reason)) => break Err(Exit::new(reason, Vec::new())),
                    None => break Err(Exit::new(ExitReason::Shutdown, Vec::new())),
                    Some(_) => {}
                }
            }
        }
    };
    let exit = match launched {
        Ok(launched) => {
            let pid = launched.info.pid;
            context.set_place(format!("pid {pid}"));
            owner.arrives(rank, round, pid, &launched.connection.link);
            let hearing = Arc::clone(&owner);
            monitor(runtime, launched, inbox, move |message| {
                hearing.hears(rank, round, News::read(message))
            })
            .await
        }
        Err(exit) => exit,
    };
    let reason = exit.reason.clone();
    let told = *release.borrow();
    if !told && !owner.died(rank, round, exit) {
        // The supervisor would start it again; it is about to end it, and all others.
        let _ = release.wait_for(|released| *released).await;
    }
    reason
}

/// Ends a rank's process.
struct RankControl {
    owner: Arc<Owner>,
    commands: mpsc::UnboundedSender<ProcessCommand>,
    /// That its supervisor wants it to end, so that its end is no failure.
    released: watch::Sender<bool>,
}

impl Control for RankControl {
    fn shutdown(&mut self) {
        self.released.send_replace(true);
        let done = matches!(self.owner.state.lock().outcome, Some(Ok(_)));
        // In the midst of its function it would not listen.
        let command = if done {
            ProcessCommand::Shutdown
        } else {
            ProcessCommand::Kill(ExitReason::Shutdown)
        };
        let _ = self.commands.send(command);
    }

    fn kill(&mut self, reason: ExitReason) {
        self.released.send_replace(true);
        let _ = self.commands.send(ProcessCommand::Kill(reason));
    }
}

impl Drop for RankControl {
    fn drop(&mut self) {
        if !self.released.send_replace(true) {
            let _ = self.commands.send(ProcessCommand::Kill(ExitReason::Shutdown));
        }
    }
}
