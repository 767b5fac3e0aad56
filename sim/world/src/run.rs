//! The run of a world, from its first thread to its last.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::calls;
use crate::log::{Event, Log};
use crate::world::{Me, Over};

/// How much to note of what happens in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// Nothing.
    None,
    /// Starts, ends, faults and the unusual.
    Events,
    /// Each change of threads, too.
    Trace,
}

/// The options of a world.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often threads may change before the world counts as stuck.
    pub max_switches: u64,
    /// How much time may pass before the world counts as stuck.
    pub max_time: Duration,
    /// How much to note.
    pub history: History,
    /// Where to note it: `None` for memory of this process.
    pub log: Option<Arc<Log>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_switches: 3_000_000,
            max_time: Duration::from_secs(3600),
            history: History::None,
            log: None,
        }
    }
}

/// How a world has ended.
#[derive(Debug)]
pub struct End<T> {
    /// The result of its main thread, or its panic; `None` if it waits for ever.
    pub result: Option<std::thread::Result<T>>,
    /// The threads that wait for ever.
    pub left: Vec<String>,
    /// How much time has passed in the world, in nanoseconds.
    pub nanos: u64,
    /// How often the threads have changed.
    pub switches: u64,
    /// The limit of its options that ended it.
    pub limit: Option<&'static str>,
    /// Its history, as far as [`Options::history`] asks for it.
    pub history: Vec<Event>,
}

/// Runs `main` as the first thread of a world, and returns when all threads have ended, or wait for
/// ever. The process then keeps those that wait.
pub fn run<T: Send + 'static>(
    seed: u64,
    options: Options,
    main: impl FnOnce() -> T + Send + 'static,
) -> End<T> {
    calls::install();
    let first = Me::first_of_world(seed, options);
    let main = std::thread::spawn(move || {
        let me = first.begin();
        me.set_name("main");
        let result = catch_unwind(AssertUnwindSafe(main));
        me.end();
        result
    });
    let over = first.wait_until_over();
    let result = over.has_first_ended.then(|| main.join().expect("its panics are caught"));
    let Over { left, nanos, switches, limit, history, .. } = over;
    End { result, left, nanos, switches, limit, history }
}
