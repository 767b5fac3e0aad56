//! Values that need several looks: memory over time, and shares of CPU time.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use fiber_core::ProcessId;
use fiber_core::stats::SessionStats;

use super::{memory, messages};
use crate::inspect::sessions::Observed;

/// The number of looks that the memory of a session is kept for.
const LOOKS: usize = 240;

/// The trends of a session.
#[derive(Debug, Default)]
pub(crate) struct Trends {
    /// The memory of all processes at each look, oldest first.
    pub(crate) memory: Vec<u64>,
    /// The messages that actors handle in a second, at each look.
    pub(crate) messages: Vec<u64>,
    cpu: HashMap<ProcessId, Share>,
    busy: HashMap<ProcessId, Share>,
}

/// The trends of sessions, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct AllTrends(HashMap<String, Trends>);

impl AllTrends {
    /// Takes what the heads have answered.
    pub(crate) fn update(&mut self, observed: &[Observed]) {
        let answered = || observed.iter().filter_map(|session| session.stats.as_ref().ok());
        self.0.retain(|session, _| answered().any(|stats| stats.session == *session));
        for stats in answered() {
            self.0.entry(stats.session.clone()).or_default().update(stats);
        }
    }

    pub(crate) fn of(&self, session: &str) -> Option<&Trends> {
        self.0.get(session)
    }
}

/// A growing time, and its share of the time that passed.
#[derive(Debug)]
struct Share {
    at: SystemTime,
    used: Duration,
    share: Option<f64>,
}

impl Trends {
    /// Takes the statistics of a look.
    fn update(&mut self, stats: &SessionStats) {
        let processes = &stats.report.processes;
        let usage =
            || processes.iter().filter_map(|process| Some((process, process.usage.as_ref()?)));
        self.memory.push(memory(stats));
        self.messages.push(messages(stats).round() as u64);
        for values in [&mut self.memory, &mut self.messages] {
            values.drain(..values.len().saturating_sub(LOOKS));
        }
        let known = |id: &ProcessId| processes.iter().any(|process| process.id == *id);
        if self.cpu.len() > processes.len() {
            self.cpu.retain(|id, _| known(id));
            self.busy.retain(|id, _| known(id));
        }
        for (process, usage) in usage() {
            note(&mut self.cpu, process.id, usage.taken_at, usage.cpu);
        }
        for worker in stats.report.pools.iter().flat_map(|pool| &pool.workers) {
            let busy = worker.busy / u32::try_from(worker.threads.max(1)).unwrap_or(u32::MAX);
            note(&mut self.busy, worker.process, stats.taken_at, busy);
        }
    }

    /// Returns how many cores a process used lately.
    pub(crate) fn cpu(&self, process: ProcessId) -> Option<f64> {
        self.cpu.get(&process)?.share
    }

    /// Returns how many cores the processes of a session used lately.
    pub(super) fn cores(&self, stats: &SessionStats) -> Option<f64> {
        let shares = stats.report.processes.iter().filter_map(|process| self.cpu(process.id));
        shares.reduce(|sum, share| sum + share)
    }

    /// Returns the share of the time that a worker's threads ran tasks lately.
    pub(crate) fn busy(&self, process: ProcessId) -> Option<f64> {
        Some(self.busy.get(&process)?.share?.min(1.0))
    }
}

fn note(shares: &mut HashMap<ProcessId, Share>, id: ProcessId, at: SystemTime, used: Duration) {
    let share = shares.entry(id).or_insert(Share { at, used, share: None });
    // The statistics of a process come with its heartbeats: there may be no new ones.
    if let Ok(passed) = at.duration_since(share.at)
        && !passed.is_zero()
    {
        let grown = used.saturating_sub(share.used);
        *share = Share { at, used, share: Some(grown.as_secs_f64() / passed.as_secs_f64()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::stats;

    #[test]
    fn shares_are_those_of_the_time_between_two_looks() {
        let mut trends = Trends::default();
        let mut stats = stats("program", 2);
        let id = stats.report.processes[1].id;
        trends.update(&stats);
        assert_eq!((trends.cpu(id), trends.busy(id), trends.cores(&stats)), (None, None, None));
        stats.taken_at += Duration::from_secs(2);
        stats.report.pools[0].workers[0].busy += Duration::from_secs(1);
        let usage = stats.report.processes[1].usage.as_mut().unwrap();
        usage.taken_at += Duration::from_secs(2);
        usage.cpu += Duration::from_secs(3);
        trends.update(&stats);
        assert_eq!((trends.cpu(id), trends.busy(id)), (Some(1.5), Some(0.5)));
        assert_eq!(trends.cores(&stats), Some(1.5));
        // Without new statistics, the last shares stay.
        trends.update(&stats);
        assert_eq!(trends.cpu(id), Some(1.5));
        assert_eq!(trends.memory, [(11 + 12 + 13) << 20; 3]);
    }
}
