//! Functions for the code that runs in a world. They panic on threads without one.

use std::time::Duration;
use std::{fmt, thread};

use fiber_core::simulation::{Fault, World};

use crate::faults::{self, Kernel, SLOW};
use crate::log::Kind;
use crate::world::{here, me};

/// Counts something of a world, such as the runs of a task. Dead processes count nothing. Returns
/// the count.
pub fn count(what: &'static str, number: u64) -> u64 {
    let me = here();
    if me.is_dead() {
        return counted(what, number);
    }
    let count = me.state().counts.entry((what, number)).or_default();
    *count += 1;
    *count
}

/// Returns how often something was counted.
pub fn counted(what: &'static str, number: u64) -> u64 {
    let me = here();
    me.state().counts.get(&(what, number)).copied().unwrap_or(0)
}

/// Counts an effect outside of the session. Dead processes count nothing. Returns the count.
pub fn count_effect(effect: String) -> u64 {
    let me = here();
    if me.is_dead() {
        return counted_effect(&effect);
    }
    let count = me.state().effects.entry(effect).or_default();
    *count += 1;
    *count
}

/// Returns how often an effect was counted.
pub fn counted_effect(effect: &str) -> u64 {
    here().state().effects.get(effect).copied().unwrap_or(0)
}

/// Returns whether this thread's process is dead: the world lets its threads run to their ends.
pub fn is_dead() -> bool {
    here().is_dead()
}

/// Makes this thread the first of a head, whose waits end by a panic when it dies. Returns the
/// number of its process.
pub fn begin_head(name: &str) -> usize {
    here().begin_head(name)
}

/// Lets a process die. Nothing that its threads do from now on counts.
pub fn end_process(process: usize) {
    here().end_node(process);
}

/// Returns the numbers of which something was counted.
pub fn all_counted(what: &'static str) -> Vec<u64> {
    let me = here();
    let counts = &me.state().counts;
    counts.range((what, 0)..=(what, u64::MAX)).map(|((_, number), _)| *number).collect()
}

/// Forgets what was counted.
pub fn reset(what: &'static str) {
    here().state().counts.retain(|(counted, _), _| *counted != what);
}

/// Kills this thread's process, which is not the head.
pub fn die() -> ! {
    Kernel.exit();
    fiber_core::wait_for_kill()
}

/// Gives a full disk room again.
pub fn make_room_on_disk() {
    here().state().disk.make_room();
}

/// Lets starts of threads and runtimes fail now and then, where the unusual happens.
pub fn let_threads_be_short() {
    here().state().points.is_short = true;
}

/// Sleeps for a time that the world's seed decides.
pub fn nap(most: Duration) {
    let nanos = {
        let me = here();
        me.state().rng.u64(..=most.as_nanos() as u64)
    };
    thread::sleep(Duration::from_nanos(nanos));
}

/// Lets the unusual happen from now on, or no longer.
pub fn set_unusual(is_on: bool) {
    here().state().points.until = if is_on { u64::MAX } else { 0 };
}

/// Lets each message take a moment from now on, or no longer.
pub fn set_slow(is_on: bool) {
    here().state().points.slowest = if is_on { SLOW } else { 0 };
}

/// Lets each message take up to this time from now on.
pub fn set_slowest(time: Duration) {
    here().state().points.slowest = time.as_millis() as u64;
}

/// Lets the unusual happen from now on, at these points of the code alone.
pub fn let_happen(points: &'static [&'static str]) {
    let me = here();
    let state = me.state();
    state.points.only = Some(points);
    state.points.until = u64::MAX;
}

/// Returns whether this thread is in a world.
pub fn is_here() -> bool {
    me().is_some()
}

/// Draws a number below `end`.
pub fn draw(end: u64) -> u64 {
    here().state().rng.u64(..end.max(1))
}

/// Returns the time since the beginning of the world.
pub fn now() -> Duration {
    Duration::from_nanos(here().state().nanos)
}

/// Adds a line to the history.
pub fn note(text: fmt::Arguments<'_>) {
    let me = here();
    me.state().note(me.node(), Kind::Note, text);
}

/// Lets a fault hit something: any, or the job or all links of the process with this name. Returns
/// the names of those that have suffered it.
pub fn strike(fault: Fault, process: Option<&str>) -> Vec<String> {
    faults::strike(here(), fault, process)
}

/// Stops a process for a time: the one with this name, or any. Returns its name.
pub fn stop(process: Option<&str>, time: Duration) -> Option<String> {
    let me = here();
    let node = me.choose_node(process)?;
    let run = move || here().stop_node(node, Some(time.as_nanos() as u64));
    thread::Builder::new().name("stop".into()).spawn(run).expect("a world has room");
    Some(me.node_name(node))
}

/// Returns the names of the processes that faults may hit.
pub fn processes() -> Vec<String> {
    here().node_names()
}
