//! Seeds of a test, each played in a process of its own.
//!
//! The test starts its own executable again, for itself alone, on each core ([`director`]). There,
//! the same call of [`check`] forks a process for each seed ([`player`]).

mod director;
mod player;
mod report;

use std::cell::Cell;
use std::path::Path;

use fiber_core::variables::SIM_PLAY as PLAY;

use self::director::Test;
use self::player::Order;
use crate::is_here;

/// The seeds that a test asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeds {
    /// So many, which are different in each run.
    Fresh(u64),
    /// This one.
    One(u64),
}

thread_local! {
    /// How many checks this thread has called.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Plays a program under seeds, each in a world in a process of its own. The program gets its seed
/// and a folder for files, which it may create. `type_name` is that of a closure in the test.
///
/// # Panics
/// If a seed fails, with its history, and for what the test or its environment has wrong.
#[track_caller]
pub fn check(
    seeds: Seeds,
    type_name: &str,
    program: impl FnOnce(u64, &Path) -> Result<(), String> + Send + 'static,
) {
    assert!(!is_here(), "this program runs in a simulated world: it can't begin another one there");
    let call = CALLS.replace(CALLS.get() + 1);
    match std::env::var(PLAY) {
        Ok(order) => match order.parse::<Order>() {
            // An earlier call of the test, or one that follows it.
            Ok(order) if order.call != call => {}
            Ok(order) => player::play(&order, program),
            Err(problem) => panic!("{PLAY} is set, but not by fiber ({problem}): unset it"),
        },
        Err(_) => {
            if let Err(problem) = director::direct(&Test::current(type_name, call), seeds) {
                panic!("{problem}");
            }
        }
    }
}
