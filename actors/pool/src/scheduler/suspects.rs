//! Suspects: tasks of a worker that has died, one of which may have killed it.
//!
//! They run again in parts, each part alone in a worker. If that worker dies, too, its part is
//! split further, until a suspect runs alone and the death counts against it. A part may have
//! suspects of several runs and calls.

use std::collections::VecDeque;

use super::dispatch::Requeue;
use super::worker::Worker;
use crate::run::Run;

/// The number of parts into which the tasks of a dead worker are split. A part costs a message to
/// a worker and back, and each further split costs a worker.
const PARTS: u64 = 64;

/// The suspects of a call that wait for a worker.
#[derive(Default)]
pub(super) struct Suspects {
    /// Each run has the size of the largest part that may contain its tasks.
    runs: VecDeque<(Run, u64)>,
    tasks: u64,
}

impl Suspects {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the number of suspects.
    pub(super) fn len(&self) -> u64 {
        self.tasks
    }

    /// Returns the size of the largest part that may contain the first suspect.
    pub(super) fn max_part(&self) -> Option<u64> {
        self.runs.front().map(|(_, max_part)| *max_part)
    }

    pub(super) fn push_front(&mut self, run: Run, max_part: u64) {
        self.tasks += run.len();
        self.runs.push_front((run, max_part));
    }

    /// Takes at most `count` tasks out of the first run.
    pub(super) fn take(&mut self, count: u64) -> Option<Run> {
        let (front, _) = self.runs.front_mut()?;
        let run = front.split_front(count);
        if front.len() == 0 {
            self.runs.pop_front();
        }
        self.tasks -= run.len();
        Some(run)
    }
}

impl<W> Worker<W> {
    /// Returns how many of its tasks don't wait for others.
    fn active_tasks(&self) -> u64 {
        self.pending_tasks.saturating_sub(self.waiting.len() as u64)
    }

    /// Returns whether it runs suspects, and so nothing else.
    pub(super) fn is_isolated(&self) -> bool {
        self.part.is_some() && !self.only_waits()
    }

    /// Returns how many suspects it takes now, the first of which may be in a part of `max_part`.
    pub(super) fn room_for_suspects(&self, max_part: u64) -> u64 {
        let takes_some = self.part.is_some() || self.only_waits();
        let part = if takes_some { self.part_with(max_part) } else { 0 };
        part.saturating_sub(self.active_tasks())
    }

    /// Returns the size of the largest part that its suspects may be in, with others that may be in
    /// a part of `max_part`.
    pub(super) fn part_with(&self, max_part: u64) -> u64 {
        self.part.filter(|_| !self.only_waits()).map_or(max_part, |part| part.min(max_part))
    }

    /// Returns the place of its tasks that go back into the queue, and are not to blame for its
    /// end.
    pub(super) fn requeue(&self) -> Requeue {
        self.part.map_or(Requeue::Front, Requeue::Suspect)
    }

    /// Returns the place of its tasks if any of them may have killed it. A part is always split
    /// into smaller ones.
    pub(super) fn requeue_suspects(&self) -> Requeue {
        let smaller = self.part.map_or(u64::MAX, |part| part.saturating_sub(1));
        Requeue::Suspect(self.pending_tasks.div_ceil(PARTS).min(smaller).max(1))
    }
}
