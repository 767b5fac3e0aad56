//! Profiles: many captures in a row.

use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::{Duration, Instant};

use super::capture::{Answer, Sampler};
use super::{Profile, ThreadState, threads};
use crate::error::{Error, Result};

/// How long a sample waits for threads. A thread that runs answers at once, unless it waits for a
/// core.
const ANSWER: Duration = Duration::from_millis(50);
/// How long a sample waits for a capture.
const CAPTURE: Duration = Duration::from_secs(5);
const MOST_HERTZ: u32 = 1000;

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
    let start = Instant::now();
    let mut next = start;
    let mut counts: HashMap<(u32, Vec<u64>), u64> = HashMap::new();
    let mut names: HashMap<u32, String> = HashMap::new();
    let mut missed = 0;
    while next.saturating_duration_since(start) < duration {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        // Captures may come in between.
        Sampler::lock(CAPTURE)?.sample(
            |_, status| idle || status.state == ThreadState::Running,
            Instant::now() + ANSWER,
            |tid, answer| match answer {
                Answer::Stack(unwound) => *counts.entry((tid, unwound.addresses)).or_default() += 1,
                Answer::None(_) => missed += 1,
            },
        )?;
        // A thread's name is not known any more once it has ended.
        for (tid, _) in counts.keys() {
            if let (false, Some(status)) = (names.contains_key(tid), threads::status(*tid)) {
                names.insert(*tid, status.name);
            }
        }
        next += period;
        // Skips the samples whose time has passed.
        let late = Instant::now().saturating_duration_since(next);
        next += period * (late.as_nanos() / period.as_nanos()) as u32;
    }
    let taken = start.elapsed();
    let mut locked = Sampler::lock(CAPTURE)?;
    let symbols =
        locked.names(counts.keys().flat_map(|(_, addresses)| addresses.iter().copied()))?;
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
        calls.push(names.get(&tid).cloned().unwrap_or_else(|| format!("thread {tid}")));
        let folded: Vec<_> =
            calls.iter().rev().map(|name| name.replace([';', '\n'], ":")).collect();
        *stacks.entry(folded.join(";")).or_default() += count;
    }
    Ok(Profile { duration: taken, hertz, idle, stacks, missed })
}
