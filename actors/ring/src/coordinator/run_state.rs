//! The state of a run, and what the coordinator decides about it.
//!
//! It is a plain data structure without I/O, clock and threads: its methods are events with the
//! present time, and what has to happen are [`Effect`]s.

use std::time::{Duration, Instant};

use bytes::Bytes;
use fiber_core::{Exit, ExitReason, RankActivity, RingProblem, SortedMap};
use fiber_values::codec::EncodedValue;

use super::super::wire::{CoordinatorMessage, RankAddress, RankMessage, StreamError};

/// How long the coordinator waits for a more precise cause of a rank's error: a death or a failure
/// of another rank.
const CAUSE_DELAY: Duration = Duration::from_secs(2);
/// How long the coordinator waits for all ranks to report what they are doing.
const ACTIVITY_DELAY: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct RunState {
    /// The current attempt, counted from 1.
    attempt: u64,
    /// The ranks in the current attempt.
    ranks: Vec<Rank>,
    /// The checkpoints of each rank by their number, from the last one that all ranks have taken.
    checkpoints: Vec<SortedMap<u64, EncodedValue>>,
    /// The highest number of a checkpoint that any rank has taken.
    last_taken: u64,
    /// Whether the values of all ranks are there, and are being recorded.
    is_finishing: bool,
    /// Whether the run has an outcome.
    is_over: bool,
    /// The last death of a rank after which a restart was possible.
    last_death: Option<(usize, Exit)>,
    /// The rank that reported a timeout in the current attempt, and the timeout.
    timed_out: Option<(usize, Duration)>,
    /// The end of the current attempt, and its time, unless something ends it before.
    due: Vec<(Instant, Due)>,
}

/// The state of a rank in the current attempt.
#[derive(Debug, Default)]
struct Rank {
    address: Option<RankAddress>,
    value: Option<EncodedValue>,
    activity: Option<RankActivity>,
}

#[derive(Debug)]
enum Due {
    Problem(RingProblem),
    /// The activities of the ranks that have answered.
    Activities,
}

/// An action that has to follow an event.
#[derive(Debug)]
pub(super) enum Effect {
    Send(usize, CoordinatorMessage),
    SendToAll(CoordinatorMessage),
    /// Reports the time again after this pause.
    Wait(Duration),
    /// Stores a rank's state in a checkpoint, which counts then.
    Checkpoint {
        rank: usize,
        number: u64,
        state: EncodedValue,
    },
    /// Removes recorded checkpoints, by rank and number.
    RemoveCheckpoints(Vec<(usize, u64)>),
    /// Ends the run with the values of all ranks, and removes these checkpoints.
    Finish {
        values: Vec<EncodedValue>,
        checkpoints: Vec<(usize, u64)>,
    },
    Fail(Cause),
    /// Kills a rank's process, which counts as its death.
    Kill {
        rank: usize,
        reason: ExitReason,
    },
}

/// Why a run fails.
#[derive(Debug)]
pub(super) enum Cause {
    Problem(RingProblem),
    /// The function of a rank has failed, with this encoded failure.
    Function {
        rank: usize,
        failure: Bytes,
    },
    NotStarted {
        rank: usize,
        reason: ExitReason,
    },
    /// A rank has died, and no checkpoint has been taken.
    Died {
        rank: usize,
        exit: Exit,
    },
}

impl RunState {
    pub(crate) fn new(size: usize) -> RunState {
        RunState {
            ranks: (0..size).map(|_| Rank::default()).collect(),
            checkpoints: (0..size).map(|_| SortedMap::new()).collect(),
            ..RunState::default()
        }
    }

    /// Returns the state of a run that continues from a checkpoint.
    pub(crate) fn restored(number: u64, states: Vec<EncodedValue>) -> RunState {
        let mut run = RunState::new(states.len());
        for (taken, state) in run.checkpoints.iter_mut().zip(states) {
            taken.insert(number, state);
        }
        run.last_taken = number;
        run
    }

    pub(super) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Returns the number of the last checkpoint that all ranks have taken.
    pub(super) fn last_checkpoint(&self) -> Option<u64> {
        let last = |taken: &SortedMap<_, _>| taken.iter().next_back().map(|(number, _)| *number);
        self.checkpoints.iter().map(last).min().flatten()
    }

    /// Returns the last death of a rank after which a restart was possible.
    pub(super) fn take_last_death(&mut self) -> Option<(usize, Exit)> {
        self.last_death.take()
    }

    /// Returns whether events of the ranks' processes of this attempt count.
    pub(super) fn counts(&self, attempt: u64) -> bool {
        self.attempt == attempt && !self.is_over
    }

    /// Notes that the run has an outcome. Nothing changes it.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    /// Begins the start of a rank, and returns the attempt that it belongs to. Rank 0 starts first,
    /// and begins a new attempt.
    pub(super) fn begin(&mut self, rank: usize) -> u64 {
        if rank == 0 {
            self.attempt += 1;
            self.timed_out = None;
            self.due.clear();
            self.ranks.fill_with(Rank::default);
            let last = self.last_checkpoint().unwrap_or(0);
            for taken in &mut self.checkpoints {
                taken.retain(|number, _| *number == last);
            }
        }
        self.attempt
    }

    /// Sends a rank that has its arguments the checkpoint from which it continues.
    pub(super) fn connected(&self, rank: usize, effects: &mut Vec<Effect>) {
        if let Some(last) = self.last_checkpoint() {
            let state = self.checkpoints[rank].get(&last).expect("all ranks have it").clone();
            effects.push(Effect::Send(rank, CoordinatorMessage::Checkpoint(last, state)));
        }
    }

    /// Handles a message of a rank.
    pub(super) fn receive(
        &mut self,
        rank: usize,
        attempt: u64,
        message: RankMessage,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        if !self.counts(attempt) {
            return;
        }
        match message {
            RankMessage::Joined(address) => {
                self.ranks[rank].address = Some(address);
                let addresses = self.ranks.iter().map(|rank| rank.address.clone());
                if let Some(addresses) = addresses.collect::<Option<Vec<_>>>() {
                    effects.push(Effect::SendToAll(CoordinatorMessage::Start(addresses)));
                }
            }
            RankMessage::Checkpoint(number, state) => {
                self.last_taken = self.last_taken.max(number);
                effects.push(Effect::Checkpoint { rank, number, state });
            }
            RankMessage::Value(value) => {
                self.ranks[rank].value = Some(value);
                let values = self.ranks.iter().map(|rank| rank.value.clone());
                if let Some(values) = values.collect::<Option<Vec<_>>>() {
                    self.finish(values, effects);
                }
            }
            RankMessage::Failure(failure) => {
                effects.push(Effect::Fail(Cause::Function { rank, failure }));
            }
            RankMessage::Error(error) => self.diagnose(rank, error, now, effects),
            RankMessage::Activity(activity) => {
                self.ranks[rank].activity = Some(activity);
                if self.ranks.iter().all(|rank| rank.activity.is_some()) {
                    self.report_timeout(effects);
                }
            }
        }
    }

    fn finish(&mut self, values: Vec<EncodedValue>, effects: &mut Vec<Effect>) {
        self.is_finishing = true;
        // Some of these numbers may be of another attempt, which had come further.
        let numbers = self.last_checkpoint().unwrap_or(1)..=self.last_taken;
        let of_rank = |rank| numbers.clone().map(move |number| (rank, number));
        let checkpoints = (0..self.ranks.len()).flat_map(of_rank).collect();
        effects.push(Effect::Finish { values, checkpoints });
    }

    /// Adds a checkpoint of a rank, and removes those before the last one that all ranks have
    /// taken. The rank learns it if it `is_recorded`.
    pub(super) fn checkpoint_stored(
        &mut self,
        (rank, attempt): (usize, u64),
        number: u64,
        state: EncodedValue,
        is_recorded: bool,
        effects: &mut Vec<Effect>,
    ) {
        if !self.counts(attempt) {
            return;
        }
        self.checkpoints[rank].insert(number, state);
        if is_recorded {
            effects.push(Effect::Send(rank, CoordinatorMessage::CheckpointRecorded(number)));
        }
        let Some(last) = self.last_checkpoint() else { return };
        let mut outdated = Vec::new();
        for (rank, taken) in self.checkpoints.iter_mut().enumerate() {
            let before = taken.iter().map(|(number, _)| *number).filter(|number| *number < last);
            outdated.extend(before.map(|number| (rank, number)));
            taken.retain(|number, _| *number >= last);
        }
        if is_recorded && !outdated.is_empty() {
            effects.push(Effect::RemoveCheckpoints(outdated));
        }
    }

    /// Handles the death of a rank's process. Returns whether the supervisor may restart the ranks;
    /// otherwise this ends the run.
    pub(super) fn died(
        &mut self,
        rank: usize,
        attempt: u64,
        exit: Exit,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if !self.counts(attempt) || self.is_finishing {
            return false;
        }
        let cause = match exit.reason {
            // A later start may fail for the reason for which it is one, such as a machine's end.
            ExitReason::NotStarted(_) if self.attempt == 1 => {
                Cause::NotStarted { rank, reason: exit.reason }
            }
            _ if self.last_taken == 0 => Cause::Died { rank, exit },
            _ => {
                self.last_death = Some((rank, exit));
                return true;
            }
        };
        effects.push(Effect::Fail(cause));
        false
    }

    /// Ends the run because of an error that a rank reports, now or when there is no more precise
    /// cause.
    fn diagnose(
        &mut self,
        rank: usize,
        error: StreamError,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let problem = match error {
            StreamError::TimedOut(limit) => {
                return self.query_activities(rank, limit, now, effects);
            }
            StreamError::Mismatch { other, own, theirs } => {
                let problem = RingProblem::Mismatch { rank, call: own, other, other_call: theirs };
                return effects.push(Effect::Fail(Cause::Problem(problem)));
            }
            StreamError::Disconnected { other, problem } => {
                RingProblem::Disconnected { rank, other, cause: problem }
            }
            StreamError::NotAccepted(problem) => RingProblem::NotAccepted { rank, cause: problem },
            StreamError::FunctionReturned { other, own } => {
                RingProblem::FunctionReturned { rank, call: own, other }
            }
        };
        self.due.push((now + CAUSE_DELAY, Due::Problem(problem)));
        effects.push(Effect::Wait(CAUSE_DELAY));
    }

    /// Asks all ranks what they are doing, after the first one reported a timeout.
    fn query_activities(
        &mut self,
        rank: usize,
        limit: Duration,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        if self.timed_out.is_some() {
            return;
        }
        self.timed_out = Some((rank, limit));
        self.ranks.iter_mut().for_each(|rank| rank.activity = None);
        effects.push(Effect::SendToAll(CoordinatorMessage::QueryActivity));
        self.due.push((now + ACTIVITY_DELAY, Due::Activities));
        effects.push(Effect::Wait(ACTIVITY_DELAY));
    }

    /// Ends the run after a timeout, with the activity of each rank.
    fn report_timeout(&mut self, effects: &mut Vec<Effect>) {
        let Some((rank, limit)) = self.timed_out else { return };
        let activities = self.ranks.iter_mut().map(|rank| rank.activity.take()).collect();
        let problem = RingProblem::TimedOut { rank, limit, activities };
        effects.push(Effect::Fail(Cause::Problem(problem)));
    }

    /// Handles what is due.
    pub(super) fn time_passed(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.is_over {
            return;
        }
        let (due, later): (Vec<_>, Vec<_>) = self.due.drain(..).partition(|(at, _)| *at <= now);
        self.due = later;
        for (_, due) in due {
            match due {
                Due::Problem(RingProblem::Disconnected { rank, other, cause })
                    if self.last_taken > 0 =>
                {
                    let reason = ExitReason::LinkLost(format!("to rank {other}: {cause}"));
                    effects.push(Effect::Kill { rank, reason });
                }
                Due::Problem(problem) => effects.push(Effect::Fail(Cause::Problem(problem))),
                Due::Activities => self.report_timeout(effects),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts all ranks, and returns the attempt.
    fn start(run: &mut RunState) -> u64 {
        let attempts: Vec<_> = (0..run.ranks.len()).map(|rank| run.begin(rank)).collect();
        assert!(attempts.iter().all(|attempt| *attempt == attempts[0]));
        attempts[0]
    }

    fn value(byte: u8) -> EncodedValue {
        EncodedValue { bytes: vec![byte].into(), ..EncodedValue::default() }
    }

    fn receive(run: &mut RunState, rank: usize, message: RankMessage, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        run.receive(rank, run.attempt, message, now, &mut effects);
        effects
    }

    fn died(run: &mut RunState, rank: usize) -> (bool, Vec<Effect>) {
        let mut effects = Vec::new();
        let exit = Exit::new(ExitReason::Signal(9), Vec::new());
        (run.died(rank, run.attempt, exit, &mut effects), effects)
    }

    fn disconnected() -> RankMessage {
        RankMessage::Error(StreamError::Disconnected { other: 1, problem: "gone".into() })
    }

    #[test]
    fn an_error_ends_the_run_when_no_better_cause_comes_in_time() {
        let (mut run, now) = (RunState::new(2), Instant::now());
        start(&mut run);
        let effects = receive(&mut run, 0, disconnected(), now);
        assert!(matches!(effects[..], [Effect::Wait(pause)] if pause == CAUSE_DELAY));
        let mut effects = Vec::new();
        run.time_passed(now + CAUSE_DELAY / 2, &mut effects);
        assert!(effects.is_empty());
        run.time_passed(now + CAUSE_DELAY, &mut effects);
        let problem = RingProblem::Disconnected { rank: 0, other: 1, cause: "gone".into() };
        assert!(matches!(&effects[..], [Effect::Fail(Cause::Problem(p))] if *p == problem));
    }

    #[test]
    fn a_lost_link_between_two_ranks_is_a_death_once_there_is_a_checkpoint() {
        let (mut run, now) = (RunState::restored(3, vec![value(1), value(2)]), Instant::now());
        start(&mut run);
        receive(&mut run, 0, disconnected(), now);
        let mut effects = Vec::new();
        run.time_passed(now + CAUSE_DELAY, &mut effects);
        assert!(
            matches!(&effects[..], [Effect::Kill { rank: 0, reason: ExitReason::LinkLost(_) }]),
            "{effects:?}"
        );
    }

    #[test]
    fn a_death_is_a_better_cause_and_a_new_attempt_forgets_the_error() {
        let (mut run, now) = (RunState::restored(3, vec![value(1), value(2)]), Instant::now());
        start(&mut run);
        receive(&mut run, 0, disconnected(), now);
        assert!(died(&mut run, 1).0, "there is a checkpoint");
        assert_eq!(run.take_last_death().map(|(rank, _)| rank), Some(1));
        assert_eq!(start(&mut run), 2);
        let mut effects = Vec::new();
        run.time_passed(now + 2 * CAUSE_DELAY, &mut effects);
        assert!(effects.is_empty());
        run.connected(1, &mut effects);
        let [Effect::Send(1, CoordinatorMessage::Checkpoint(3, state))] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(state.bytes, value(2).bytes);
    }

    #[test]
    fn without_a_checkpoint_a_death_ends_the_run() {
        let mut run = RunState::new(2);
        start(&mut run);
        let (restarts, effects) = died(&mut run, 1);
        assert!(!restarts);
        assert!(matches!(&effects[..], [Effect::Fail(Cause::Died { rank: 1, .. })]));
    }

    #[test]
    fn a_start_that_fails_ends_the_run_unless_it_is_a_restart() {
        let fail = |run: &mut RunState| {
            let (attempt, mut effects) = (run.attempt(), Vec::new());
            let exit = Exit::new(ExitReason::NotStarted("killed".into()), Vec::new());
            (run.died(1, attempt, exit, &mut effects), effects)
        };
        let mut run = RunState::restored(1, vec![value(1), value(2)]);
        start(&mut run);
        let (restarts, effects) = fail(&mut run);
        assert!(!restarts);
        assert!(matches!(&effects[..], [Effect::Fail(Cause::NotStarted { rank: 1, .. })]));
        let mut run = RunState::restored(1, vec![value(1), value(2)]);
        start(&mut run);
        assert!(died(&mut run, 0).0, "there is a checkpoint");
        start(&mut run);
        let (restarts, effects) = fail(&mut run);
        assert!(restarts && effects.is_empty());
    }

    #[test]
    fn a_timeout_is_reported_with_the_activities_that_come_in_time() {
        let (mut run, now) = (RunState::new(2), Instant::now());
        start(&mut run);
        let limit = Duration::from_secs(60);
        let timeout = || RankMessage::Error(StreamError::TimedOut(limit));
        let effects = receive(&mut run, 1, timeout(), now);
        let [Effect::SendToAll(query), Effect::Wait(pause)] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert!(matches!(query, CoordinatorMessage::QueryActivity) && *pause == ACTIVITY_DELAY);
        assert!(receive(&mut run, 0, timeout(), now).is_empty(), "the first one counts");
        let own_code = || RankMessage::Activity(RankActivity::OwnCode);
        assert!(receive(&mut run, 0, own_code(), now).is_empty());
        let mut effects = Vec::new();
        run.time_passed(now + ACTIVITY_DELAY, &mut effects);
        let activities = vec![Some(RankActivity::OwnCode), None];
        let problem = RingProblem::TimedOut { rank: 1, limit, activities };
        assert!(matches!(&effects[..], [Effect::Fail(Cause::Problem(p))] if *p == problem));
    }

    #[test]
    fn a_checkpoint_of_all_ranks_displaces_those_before_it() {
        let (mut run, now) = (RunState::new(2), Instant::now());
        let attempt = start(&mut run);
        let mut removed = Vec::new();
        for (rank, number) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
            let message = RankMessage::Checkpoint(number, value(rank as u8));
            let effects = receive(&mut run, rank, message, now);
            assert!(matches!(effects[..], [Effect::Checkpoint { .. }]));
            let mut effects = Vec::new();
            let state = value(rank as u8);
            run.checkpoint_stored((rank, attempt), number, state, true, &mut effects);
            removed.extend(effects.into_iter().filter_map(|effect| match effect {
                Effect::RemoveCheckpoints(removed) => Some(removed),
                _ => None,
            }));
        }
        assert_eq!((removed, run.last_checkpoint()), (vec![vec![(0, 1), (1, 1)]], Some(2)));
    }

    #[test]
    fn the_run_ends_with_all_values_and_no_death_changes_that() {
        let (mut run, now) = (RunState::new(2), Instant::now());
        start(&mut run);
        assert!(receive(&mut run, 1, RankMessage::Value(value(1)), now).is_empty());
        let effects = receive(&mut run, 0, RankMessage::Value(value(0)), now);
        let [Effect::Finish { values, checkpoints }] = &effects[..] else { panic!("{effects:?}") };
        assert!(values.len() == 2 && checkpoints.is_empty());
        let (restarts, effects) = died(&mut run, 0);
        assert!(!restarts && effects.is_empty());
    }
}
