//! Profiles: many captures in a row.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::{Duration, Instant};

use super::capture::{Answer, Sampler, failed};
use super::{Profile, thread_id, threads};
use crate::error::{Error, Result};

/// How long a sample waits for threads. A thread that runs answers at once, unless it waits for a
/// core.
const ANSWER: Duration = Duration::from_millis(50);
/// How long a sample waits for a capture.
const CAPTURE: Duration = Duration::from_secs(5);
const MOST_HERTZ: u32 = 1000;

/// A thread that was seen.
struct Seen {
    name: String,
    /// It answered the last request, so it does not block the signal.
    answers: bool,
}

/// Notes a thread that is new. Returns `None` if it has ended.
fn notice(seen: &mut HashMap<u32, Seen>, tid: u32) -> Option<&Seen> {
    if let Entry::Vacant(new) = seen.entry(tid) {
        new.insert(Seen {
            name: threads::status(threads::Process::This, tid)?.name,
            answers: false,
        });
    }
    seen.get(&tid)
}

/// Takes `hertz` samples a second for `duration`: of the threads that run, or of all with `idle`.
/// Returns how often each stack was found.
///
/// It blocks the calling thread, which is not in the profile. While a sample takes longer than it
/// should, the next ones are left out. See the [module](crate::stacks) for what samples change in
/// the threads.
///
/// # Errors
/// [`Error::Invalid`] for a duration of 0 or a rate that is not 1 to 1000. Otherwise as
/// [`capture`](crate::stacks::capture).
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
    let mut next = start;
    let mut seen: HashMap<u32, Seen> = HashMap::new();
    let mut counts: HashMap<(u32, Vec<u64>), u64> = HashMap::new();
    let mut missed = 0;
    while next.saturating_duration_since(start) < duration {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        // Locked for one sample: captures may come in between.
        let mut sampler = Sampler::lock(CAPTURE)?;
        let mut chosen = Vec::new();
        for tid in threads::all(threads::Process::This)
            .map_err(|error| failed("the threads can't be listed", error))?
        {
            let Some(thread) = notice(&mut seen, tid).filter(|_| tid != own) else { continue };
            if (idle || threads::runs(tid)) && (thread.answers || sampler.may_ask(tid)?) {
                chosen.push(tid);
            }
        }
        sampler.ask(&chosen, Instant::now() + ANSWER, |tid, answer| {
            let answers = matches!(answer, Answer::Stack(_));
            seen.entry(tid).and_modify(|thread| thread.answers = answers);
            match answer {
                Answer::Stack(unwound) => *counts.entry((tid, unwound.addresses)).or_default() += 1,
                Answer::None(_) => missed += 1,
            }
        })?;
        drop(sampler);
        next += period;
        // Skips the samples whose time has passed.
        let late = Instant::now().saturating_duration_since(next);
        next += period * (late.as_nanos() / period.as_nanos()) as u32;
    }
    let taken = start.elapsed();
    let mut sampler = Sampler::lock(CAPTURE)?;
    let addresses = counts.keys().flat_map(|(_, addresses)| addresses.iter().copied());
    let symbols = sampler.resolve(addresses)?;
    let mut stacks = BTreeMap::new();
    for ((tid, addresses), count) in counts {
        let frames = addresses.iter().flat_map(|address| symbols.frames(*address));
        let calls = frames.map(|frame| match &frame.function {
            Some(function) => function.clone(),
            None => frame.to_string(),
        });
        // These are outside of the thread's work, and the same in all stacks.
        let mut calls: Vec<String> =
            calls.take_while(|name| !name.contains("__rust_begin_short_backtrace")).collect();
        calls.push(seen.get(&tid).map_or_else(String::new, |thread| thread.name.clone()));
        let folded: Vec<_> =
            calls.iter().rev().map(|name| name.replace([';', '\n'], ":")).collect();
        *stacks.entry(folded.join(";")).or_default() += count;
    }
    Ok(Profile { duration: taken, hertz, idle, stacks, missed })
}
