//! Processes that wait for room, where there are machines.
//!
//! Processes that request the same are equal to a machine: while the first of them finds no room,
//! the others find none either. So an event looks at one process for each request, however many
//! wait.

use std::collections::VecDeque;
use std::sync::Arc;

use fiber_backends::{JobState, WaitReason};
use fiber_core::Meta;

use super::HostedJob;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct WaitingProcesses {
    /// None is empty.
    queues: Vec<Queue>,
    /// The reason to wait that they have last.
    reason: String,
}

/// The processes of one request, in the order in which they came.
struct Queue {
    request: Meta,
    jobs: VecDeque<Arc<HostedJob>>,
    /// How many of the first know why they wait.
    told: usize,
}

impl WaitingProcesses {
    pub(super) fn push(&mut self, job: Arc<HostedJob>) {
        match self.queues.iter_mut().find(|queue| queue.request == *job.meta()) {
            Some(queue) => queue.jobs.push_back(job),
            None => {
                let request = *job.meta();
                self.queues.push(Queue { request, jobs: VecDeque::from([job]), told: 0 });
            }
        }
    }

    /// Takes the processes for which `place` finds room, and those that have ended. Of each
    /// request, it gets one process after the other until it returns `false`.
    pub(super) fn place(&mut self, mut place: impl FnMut(&Arc<HostedJob>) -> bool) {
        // The process that has waited longest is first.
        self.queues.sort_by_key(|queue| queue.jobs.front().map(|job| job.number));
        for Queue { jobs, told, .. } in &mut self.queues {
            while jobs.front().is_some_and(|job| job.has_ended() || place(job)) {
                jobs.pop_front();
                *told = told.saturating_sub(1);
            }
        }
        self.queues.retain(|queue| !queue.jobs.is_empty());
    }

    /// Tells the processes why they wait.
    pub(super) fn tell(&mut self, reason: String) {
        let changed = self.reason != reason;
        for Queue { jobs, told, .. } in &mut self.queues {
            let known = if changed { 0 } else { *told };
            let waits = JobState::Waiting(WaitReason::Resources(reason.clone()));
            jobs.range(known..).for_each(|job| job.wait(waits.clone()));
            *told = jobs.len();
        }
        self.reason = reason;
    }

    /// Returns the request of the first of them.
    pub(super) fn first(&self) -> Option<Meta> {
        self.queues.first().map(|queue| queue.request)
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Arc<HostedJob>> + use<> {
        std::mem::take(&mut self.queues).into_iter().flat_map(|queue| queue.jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::hosted_job::tests::job;
    use super::*;

    /// The processes for which there is room, in turn.
    fn place(waiting: &mut WaitingProcesses, room: usize) -> (Vec<u64>, usize) {
        let (mut placed, mut asked) = (Vec::new(), 0);
        waiting.place(|job| {
            asked += 1;
            let fits = placed.len() < room;
            if fits {
                placed.push(job.number);
            }
            fits
        });
        (placed, asked)
    }

    #[test]
    fn an_event_looks_at_one_process_of_each_request() {
        let mut waiting = WaitingProcesses::default();
        for number in 0..1000 {
            waiting.push(job(number, Meta::new()));
        }
        waiting.push(job(1000, Meta::new().cpu(2.0)));
        assert_eq!(place(&mut waiting, 0), (vec![], 2));
        assert_eq!(place(&mut waiting, 2), (vec![0, 1], 4));
        assert_eq!(waiting.first(), Some(Meta::new()));
        assert_eq!(waiting.take_all().count(), 999);
        assert_eq!(waiting.first(), None);
    }

    #[test]
    fn each_process_knows_the_last_reason() {
        let mut waiting = WaitingProcesses::default();
        let jobs: Vec<_> = (0..3).map(|number| job(number, Meta::new())).collect();
        let reasons = || {
            let reason = |job: &Arc<HostedJob>| match &*fiber_backends::Job::states(&**job).borrow()
            {
                JobState::Waiting(WaitReason::Resources(reason)) => reason.clone(),
                other => format!("{other:?}"),
            };
            jobs.iter().map(reason).collect::<Vec<_>>()
        };
        waiting.push(Arc::clone(&jobs[0]));
        waiting.push(Arc::clone(&jobs[1]));
        waiting.tell("full".into());
        assert_eq!(reasons(), ["full", "full", "AwaitsHost"]);
        place(&mut waiting, 1);
        waiting.push(Arc::clone(&jobs[2]));
        waiting.tell("full".into());
        assert_eq!(reasons(), ["full"; 3]);
        waiting.tell("no machine".into());
        assert_eq!(reasons(), ["full", "no machine", "no machine"], "the first has its place");
    }

    #[test]
    fn a_process_that_was_killed_waits_no_more() {
        let mut waiting = WaitingProcesses::default();
        let killed = job(0, Meta::new());
        waiting.push(Arc::clone(&killed));
        waiting.push(job(1, Meta::new()));
        fiber_backends::Job::kill(&*killed);
        assert_eq!(place(&mut waiting, 2), (vec![1], 1));
    }
}
