//! Processes that wait for room: where there are machines, or in a host that they name.
//!
//! Processes that request the same and may go to the same hosts are equal to these: while the first
//! of them finds no room, the others find none either. So an event looks at one process for each
//! such queue, however many wait.

use std::collections::VecDeque;
use std::sync::Arc;

use fiber_backends::{JobState, WaitReason};
use fiber_core::Meta;

use super::{HostRule, HostedJob};
use crate::runtime::launch::not_started;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct WaitingProcesses {
    /// None is empty.
    queues: Vec<Queue>,
}

/// The processes of one request and of rules that wait for the same, in the order in which they
/// came.
struct Queue {
    request: Meta,
    rule: HostRule,
    jobs: VecDeque<Arc<HostedJob>>,
    /// The reason to wait that they have last.
    reason: String,
    /// How many of the first know it.
    told: usize,
}

impl WaitingProcesses {
    pub(super) fn push(&mut self, job: Arc<HostedJob>) {
        let waits_there =
            |queue: &&mut Queue| queue.request == *job.meta() && queue.rule.waits_as(&job.rule);
        match self.queues.iter_mut().find(waits_there) {
            Some(queue) => queue.jobs.push_back(job),
            None => {
                let (request, rule, reason) = (*job.meta(), job.rule.clone(), String::new());
                self.queues.push(Queue { request, rule, jobs: [job].into(), reason, told: 0 });
            }
        }
    }

    /// Takes the processes for which `place` finds room, and those that have ended. Of each queue,
    /// it gets one process after the other until it returns why that waits. All of the queue then
    /// know it.
    pub(super) fn place(&mut self, mut place: impl FnMut(&Arc<HostedJob>) -> Result<(), String>) {
        // The process that has waited longest is first.
        self.queues.sort_by_key(|queue| queue.jobs.front().map(|job| job.number));
        for Queue { jobs, told, reason: known, .. } in &mut self.queues {
            while let Some(first) = jobs.front() {
                let placed = if first.has_ended() { Ok(()) } else { place(first) };
                let Err(reason) = placed else {
                    jobs.pop_front();
                    *told = told.saturating_sub(1);
                    continue;
                };
                if *known != reason {
                    (*known, *told) = (reason, 0);
                }
                let waits = JobState::Waiting(WaitReason::Resources(known.clone()));
                jobs.range(*told..).for_each(|job| job.wait(waits.clone()));
                *told = jobs.len();
                break;
            }
        }
        self.queues.retain(|queue| !queue.jobs.is_empty());
    }

    /// Ends the processes whose request can't be granted on any machine, for the reason that `problem`
    /// returns.
    pub(super) fn refuse(&mut self, problem: impl Fn(&Meta) -> Option<String>) {
        self.queues.retain(|queue| {
            let problem = if queue.rule.is_named() { None } else { problem(&queue.request) };
            let Some(problem) = problem else { return true };
            queue.jobs.iter().for_each(|job| job.ended(not_started(problem.clone())));
            false
        });
    }

    /// Returns the request of the first that may go to a machine that comes.
    pub(super) fn first(&self) -> Option<Meta> {
        let queue = self.queues.iter().find(|queue| !queue.rule.is_named());
        queue.map(|queue| queue.request)
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Arc<HostedJob>> + use<> {
        std::mem::take(&mut self.queues).into_iter().flat_map(|queue| queue.jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Spread;
    use super::super::hosted_job::tests::{job, ruled_job};
    use super::*;

    /// The processes for which there is room, in turn. The others wait for `reason`.
    fn place(waiting: &mut WaitingProcesses, room: usize, reason: &str) -> (Vec<u64>, usize) {
        let (mut placed, mut asked) = (Vec::new(), 0);
        waiting.place(|job| {
            asked += 1;
            if placed.len() == room {
                return Err(reason.into());
            }
            placed.push(job.number);
            Ok(())
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
        assert_eq!(place(&mut waiting, 0, "full"), (vec![], 2));
        assert_eq!(place(&mut waiting, 2, "full"), (vec![0, 1], 4));
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
        place(&mut waiting, 0, "full");
        assert_eq!(reasons(), ["full", "full", "AwaitsHost"]);
        waiting.push(Arc::clone(&jobs[2]));
        place(&mut waiting, 1, "full");
        assert_eq!(reasons(), ["full"; 3]);
        place(&mut waiting, 0, "no machine");
        assert_eq!(reasons(), ["full", "no machine", "no machine"], "the first has its place");
    }

    #[test]
    fn processes_that_name_a_host_wait_for_that_one() {
        let named =
            |number, host: &str| ruled_job(number, Meta::new(), HostRule::Named(host.into()));
        let spread = ruled_job(4, Meta::new(), HostRule::Spread(Spread::new(1)));
        let mut waiting = WaitingProcesses::default();
        [named(0, "a"), named(1, "b"), named(2, "a")].into_iter().for_each(|job| waiting.push(job));
        assert_eq!(waiting.first(), None, "no machine that comes is one of these");
        [job(3, Meta::new()), spread].into_iter().for_each(|job| waiting.push(job));
        assert_eq!(place(&mut waiting, 0, "full"), (vec![], 3));
        assert_eq!(waiting.first(), Some(Meta::new()));
        let mut asked = Vec::new();
        waiting.place(|job| {
            asked.push(job.number);
            if job.number == 0 { Err("full".into()) } else { Ok(()) }
        });
        assert_eq!(asked, [0, 1, 3, 4]);
    }

    #[test]
    fn a_process_that_was_killed_waits_no_more() {
        let mut waiting = WaitingProcesses::default();
        let killed = job(0, Meta::new());
        waiting.push(Arc::clone(&killed));
        waiting.push(job(1, Meta::new()));
        fiber_backends::Job::kill(&*killed);
        assert_eq!(place(&mut waiting, 2, "full"), (vec![1], 1));
    }
}
