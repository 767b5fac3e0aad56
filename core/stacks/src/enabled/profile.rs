//! Profiles: many captures in a row.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::capture::{Answer, Sampler, failed};
use super::{Profile, Sample, is_of_fiber, thread_id, threads};
use fiber_core::{Error, Result};

/// How long a sample waits for threads. A thread that runs answers at once, unless it waits for a
/// core.
const ANSWER: Duration = Duration::from_millis(50);
/// How long a sample waits for a capture.
const CAPTURE: Duration = Duration::from_secs(5);
const MOST_HERTZ: u32 = 1000;
/// The least time between two samples of threads that wait. Each wakes all of them.
const WAITING: Duration = Duration::from_millis(100);
/// At most this many different stacks are kept: some 10 MB, or 32 MB if all are very deep.
const MOST_STACKS: usize = 1 << 14;

/// A thread that was seen.
struct Seen {
    name: String,
    is_of_fiber: bool,
    /// The CPU time that it had at first.
    cpu: Duration,
    /// It answered the last request, so it does not block the signal.
    answers: bool,
}

/// Notes a thread that is new. Returns `None` if it has ended.
fn notice(seen: &mut HashMap<u32, Seen>, tid: u32) -> Option<&Seen> {
    if let Entry::Vacant(new) = seen.entry(tid) {
        let name = threads::status(threads::Process::This, tid)?.name;
        let is_of_fiber = is_of_fiber(&name);
        let cpu = threads::cpu(threads::Process::This, tid).unwrap_or_default();
        new.insert(Seen { name, is_of_fiber, cpu, answers: false });
    }
    seen.get(&tid)
}

/// The stacks that were found, as addresses, with their threads: how often.
#[derive(Default)]
struct Found(HashMap<(u32, Vec<u64>), u64>);

impl Found {
    /// Counts a stack. Returns whether there was room for it.
    fn count(&mut self, tid: u32, addresses: Vec<u64>) -> bool {
        let has_room = self.0.len() < MOST_STACKS;
        match self.0.entry((tid, addresses)) {
            Entry::Occupied(mut known) => *known.get_mut() += 1,
            Entry::Vacant(new) if has_room => drop(new.insert(1)),
            Entry::Vacant(_) => return false,
        }
        true
    }

    /// Returns the stacks, with addresses as their places in the list of all.
    fn samples(self, seen: &HashMap<u32, Seen>, places: &HashMap<u64, u32>) -> Vec<Sample> {
        let sample = |((tid, addresses), count): ((u32, Vec<u64>), u64)| {
            let thread = seen.get(&tid).map_or_else(String::new, |thread| thread.name.clone());
            let calls = addresses.iter().map(|address| places[address]).collect();
            Sample::new(thread, calls, count)
        };
        self.0.into_iter().map(sample).collect()
    }
}

fn clock(id: ClockId) -> Duration {
    Duration::try_from(clock_gettime(id)).unwrap_or_default()
}

/// Takes `hertz` samples a second for `duration`: of the threads that run, or of all with `idle`.
/// Returns how often each stack was found. While none of the program's own threads runs, it takes
/// up to 10 samples a second of those that wait.
///
/// It blocks the calling thread, which is not in the profile. While a sample takes longer than it
/// should, the next ones are left out. See the [module](crate) for what samples change in
/// the threads.
///
/// # Errors
/// [`Error::Invalid`] for a duration of 0 or a rate that is not 1 to 1000. Otherwise as
/// [`capture`](crate::capture).
pub fn profile(duration: Duration, hertz: u32, idle: bool) -> Result<Profile> {
    if !(1..=MOST_HERTZ).contains(&hertz) {
        let problem = format!("{hertz} samples a second are not possible: use 1 to {MOST_HERTZ}");
        return Err(Error::invalid("stacks::profile", problem));
    }
    if duration.is_zero() {
        return Err(Error::invalid("stacks::profile", "the duration is 0"));
    }
    let period = Duration::from_secs(1) / hertz;
    let own = thread_id();
    let start = Instant::now();
    let (process, sampler) = (clock(ClockId::ProcessCPUTime), clock(ClockId::ThreadCPUTime));
    let mut next = start;
    let mut next_waiting = start;
    let mut seen: HashMap<u32, Seen> = HashMap::new();
    let (mut running, mut waiting) = (Found::default(), Found::default());
    let mut missed = 0;
    while next.saturating_duration_since(start) < duration {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        // Locked for one sample: captures may come in between.
        let mut sampler = Sampler::lock(CAPTURE)?;
        let (mut chosen, mut others) = (Vec::new(), Vec::new());
        let mut program_runs = false;
        for tid in threads::all(threads::Process::This)
            .map_err(|error| failed("the threads can't be listed", error))?
        {
            let Some(thread) = notice(&mut seen, tid).filter(|_| tid != own) else { continue };
            let runs = idle || threads::runs(tid);
            program_runs |= runs && !thread.is_of_fiber;
            if thread.answers || sampler.may_ask(tid)? {
                if runs { chosen.push(tid) } else { others.push(tid) }
            }
        }
        let now = Instant::now();
        if program_runs || now < next_waiting {
            others.clear();
        } else {
            next_waiting = now + WAITING;
        }
        for (tids, found) in [(chosen, &mut running), (others, &mut waiting)] {
            sampler.ask(&tids, Instant::now() + ANSWER, |tid, answer| {
                let stack = match answer {
                    Answer::Stack(unwound) => Some(unwound.addresses),
                    Answer::None(_) => None,
                };
                seen.entry(tid).and_modify(|thread| thread.answers = stack.is_some());
                missed += u64::from(!stack.is_some_and(|stack| found.count(tid, stack)));
            })?;
        }
        drop(sampler);
        next += period;
        // Skips the samples whose time has passed.
        let late = Instant::now().saturating_duration_since(next);
        next += period * (late.as_nanos() / period.as_nanos()) as u32;
    }
    let taken = start.elapsed();
    let process = clock(ClockId::ProcessCPUTime).saturating_sub(process);
    let sampler = clock(ClockId::ThreadCPUTime).saturating_sub(sampler);
    let of_fiber = seen.iter().filter(|(tid, thread)| thread.is_of_fiber && **tid != own);
    let fiber_cpu: Duration = of_fiber
        .filter_map(|(tid, thread)| {
            Some(threads::cpu(threads::Process::This, *tid)?.saturating_sub(thread.cpu))
        })
        .sum();

    let stacks = running.0.keys().chain(waiting.0.keys());
    let addresses = stacks.flat_map(|(_, addresses)| addresses.iter().copied());
    let (mut places, mut frames) = (HashMap::new(), Vec::new());
    for (address, frame) in Sampler::lock(CAPTURE)?.frames(addresses)? {
        places.insert(address, frames.len() as u32);
        frames.push(vec![frame]);
    }
    let mut profile = Profile::new(taken, hertz, idle);
    profile.cpu = process.saturating_sub(sampler).saturating_sub(fiber_cpu);
    profile.fiber_cpu = fiber_cpu;
    profile.running = running.samples(&seen, &places);
    profile.waiting = waiting.samples(&seen, &places);
    (profile.frames, profile.missed) = (frames, missed);
    Ok(profile)
}
