//! One call in the scheduler.

use std::collections::{HashMap, VecDeque};

use fiber_core::entry::EntryRef;

use super::worker::Worker;
use super::{Caller, Effects, Settled, Terms};
use crate::pool::run::{Items, Run};
use crate::pool::wire::Assignment;

/// The work that a worker's thread may have before it.
pub(super) const HORIZON: f64 = 4e6;
/// Work that is not worth being split among workers, in nanoseconds.
const MORSEL: f64 = 200e3;
/// Tasks that a worker's thread may hold, however short.
const HELD: u64 = 16 << 10;
/// Bytes of arguments that a worker may hold and still get more.
const HELD_BYTES: usize = 2 << 20;
/// A call, as far as its tasks are not settled.
pub(super) struct Call<C> {
    pub(super) caller: C,
    pub(super) entry: EntryRef,
    pub(super) terms: Terms,
    pub(super) ready: VecDeque<Run>,
    pub(super) ready_tasks: u64,
    pub(super) suspects: VecDeque<Run>,
    /// Nanoseconds of work that it has been given.
    pub(super) served: u64,
    /// Tasks that were submitted and are not settled.
    pub(super) open: u64,
    /// Tasks that had trouble.
    pub(super) strikes: HashMap<u64, Strikes>,
    /// Whether workers were asked to give tasks back, and none has been handed out since.
    pub(super) recalled: bool,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Strikes {
    pub(super) deaths: u32,
    pub(super) timeouts: u32,
    pub(super) failures: u32,
}

impl<C: Caller> Call<C> {
    /// Whether there is something to hand out.
    pub(super) fn has_tasks(&self) -> bool {
        !self.ready.is_empty() || !self.suspects.is_empty()
    }

    /// How many tasks workers have.
    pub(super) fn pending(&self) -> u64 {
        self.open - self.ready_tasks - self.suspects.iter().map(Run::len).sum::<u64>()
    }

    /// How many tasks may be handed out, if any. If there is no room for outcomes, still those that
    /// were handed out before, and the one without which the caller can't make room.
    pub(super) fn room(&mut self, least: u64) -> Option<u64> {
        let room = self.caller.room(self.pending(), least);
        let exempt = room == 0 && (!self.suspects.is_empty() || self.bring_needed_to_front());
        Some(room.max(u64::from(exempt))).filter(|room| *room > 0)
    }

    fn bring_needed_to_front(&mut self) -> bool {
        let Some(index) = self.caller.needs() else { return false };
        let Some(place) = self.ready.iter().position(|run| run.contains(index)) else {
            return false;
        };
        let Some(run) = self.ready.remove(place) else { return false };
        let (needed, before, after) = run.cut(index, index + 1);
        after.into_iter().chain(before).for_each(|run| self.ready.insert(place, run));
        needed.into_iter().for_each(|run| self.ready.push_front(run));
        true
    }

    pub(super) fn take(&mut self, count: u64) -> Run {
        let (queue, suspect) = if self.suspects.is_empty() {
            (&mut self.ready, false)
        } else {
            (&mut self.suspects, true)
        };
        let front = queue.front_mut().expect("a queued call has a run");
        let run = front.split_front(count);
        if front.len() == 0 {
            queue.pop_front();
        }
        if !suspect {
            self.ready_tasks -= run.len();
        }
        run
    }

    /// How many tasks a worker is to get now, if there is room for the outcomes of so many.
    pub(super) fn count_for<W>(
        &self,
        worker: &Worker<W>,
        pace: f64,
        workers: u64,
        outcomes: u64,
    ) -> u64 {
        let chunk = u64::from(self.terms.chunk);
        let idle_threads = worker.threads.saturating_sub(worker.held);
        let room = if pace == 0.0 {
            idle_threads
        } else {
            let horizon = HORIZON * worker.threads as f64;
            let by_time = ((horizon - worker.held_nanos) / pace).max(0.0) as u64;
            by_time.min((HELD * worker.threads).saturating_sub(worker.held)).max(idle_threads)
        };
        if room == 0 || (worker.held > 0 && worker.held_bytes >= HELD_BYTES) {
            return 0;
        }
        let share = (self.ready_tasks / (2 * workers.max(1))).max(morsel(pace));
        let count = room.min(share).min(outcomes).max(chunk).min(u64::from(u32::MAX));
        worker.quota.map_or(count, |quota| count.min(quota))
    }

    pub(super) fn assignment(&self, run: &Run) -> Assignment {
        Assignment {
            call: run.call,
            entry: self.entry,
            timeout: self
                .terms
                .timeout
                .map_or(0, |limit| limit.as_nanos().min(u128::from(u64::MAX)) as u64),
            chunk: self.terms.chunk,
            first: run.start,
            count: run.len() as u32,
            arguments: run.arguments(),
        }
    }

    /// Passes outcomes on, but for failures that are to be tried again.
    pub(super) fn settle<W>(
        &mut self,
        run: Run,
        outcome: Run,
        again: &mut Vec<Run>,
        effects: &mut Effects<W, C>,
    ) {
        let retries = self.terms.retries;
        let mut settled = Some(outcome.clone());
        if retries > 0 {
            let bytes = outcome.arguments();
            let failed = Items::new(&bytes)
                .zip(outcome.start..outcome.end)
                .filter(|((_, failed), _)| *failed);
            for (_, index) in failed {
                let strikes = self.strikes.entry(index).or_default();
                if strikes.failures < retries {
                    strikes.failures += 1;
                    again.extend(run.clone().cut(index, index + 1).0);
                    if let Some((_, before, after)) =
                        settled.take().map(|rest| rest.cut(index, index + 1))
                    {
                        self.pass_on(before, effects);
                        settled = after;
                    }
                }
            }
        }
        self.pass_on(settled, effects);
    }

    fn pass_on<W>(&mut self, outcome: Option<Run>, effects: &mut Effects<W, C>) {
        if let Some(outcome) = outcome {
            self.open -= outcome.len();
            self.caller.stored(outcome.len(), outcome.size() as u64);
            effects.settled.push((self.caller.clone(), Settled::Outcomes(outcome)));
        }
    }
}

/// How many tasks of this pace are not worth being split.
pub(super) fn morsel(pace: f64) -> u64 {
    if pace == 0.0 { 1 } else { ((MORSEL / pace) as u64).max(1) }
}
