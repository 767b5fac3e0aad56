//! Deterministic simulation, for the tests of programs that use fiber.
//!
//! A *world* is a whole session of fiber within one process, with virtual time. A seed decides the
//! order of its threads, its random numbers and its faults, so a failure can be played again, with
//! exactly the same history. The page [Simulation] has the whole story, and what a world can't show.
//!
#![doc = concat!("[Simulation]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/simulation.md")]
//!
//! ```no_run
//! use fiber::sim::Faults;
//!
//! fn square(x: u64) -> u64 {
//!     x * x
//! }
//!
//! #[test]
//! # fn hidden() {}
//! fn squares_survive_the_deaths_of_workers() {
//!     fiber::sim::check(200, async |world| {
//!         let pool = fiber::Pool::new(4)?.max_deaths(u32::MAX);
//!         pool.wait_until_ready().await?;
//!         let storm = world.storm(Faults::default());
//!         assert_eq!(pool.map(square, 0..50).await?, (0..50).map(square).collect::<Vec<_>>());
//!         world.calm(storm).await;
//!         Ok(())
//!     });
//! }
//! # squares_survive_the_deaths_of_workers();
//! ```

use std::any::type_name;
use std::error::Error as StdError;
use std::fmt::{Display, Write};
use std::ops::Range;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use fiber_core::simulation::Fault;
use fiber_core::{Config, Error};
use fiber_runtime::blocking::block_on_main;
use fiber_runtime::runtime::simulation::Session;
pub use fiber_world::Faults;
use fiber_world::Seeds;

/// The result of a program in a world. `?` takes any error.
pub type Result = std::result::Result<(), Box<dyn StdError>>;

/// Plays a program under so many fresh seeds, on all cores.
///
/// Each seed has a process of its own, in which the test begins again: what the program captures is
/// made anew there. `FIBER_SIM_SEED=7` plays seed 7 instead, and prints its history; several have
/// commas between them. `FIBER_SIM_COUNT=10000` plays so many fresh ones.
///
/// # Panics
/// If a seed fails: the program returns an error or panics, ends its process, or never ends. The
/// message has the end of its history, and says how to play it again.
///
/// Also without a seed to play, within a world, and in a function that is not a test.
#[track_caller]
pub fn check<F>(seeds: u64, program: F)
where
    F: AsyncFnOnce(World) -> Result + Send + 'static,
{
    fiber_world::check(Seeds::Fresh(seeds), type_name::<F>(), in_session(program));
}

/// Plays a program under one seed, and prints its history. It suits seeds that have found a bug.
///
/// # Panics
/// As [`check`].
///
/// # Examples
/// ```no_run
/// #[test]
/// # fn hidden() {}
/// fn the_lost_acknowledgement_is_found() {
///     fiber::sim::run(7, async |world| {
///         let queue = fiber::Queue::new()?;
///         queue.put(1).await?;
///         assert_eq!(queue.get().await?, 1);
///         Ok(())
///     });
/// }
/// # the_lost_acknowledgement_is_found();
/// ```
#[track_caller]
pub fn run<F>(seed: u64, program: F)
where
    F: AsyncFnOnce(World) -> Result + Send + 'static,
{
    fiber_world::check(Seeds::One(seed), type_name::<F>(), in_session(program));
}

/// Returns the work of a world: a session, whose head is the program.
fn in_session<F>(program: F) -> impl FnOnce(u64, &Path) -> std::result::Result<(), String>
where
    F: AsyncFnOnce(World) -> Result,
{
    |seed, folder| {
        let mut config = Config::default();
        config.journals = folder.into();
        let session = Session::start_with(seed, config).map_err(|error| error.to_string())?;
        let _entered = session.enter();
        block_on_main(program(World { _private: () })).map_err(|error| with_causes(&*error))
    }
}

fn with_causes(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

/// Returns the world of this thread, which runs the program or one of its task functions, actors
/// or processes.
///
/// # Panics
/// On a thread that is not in a world.
///
/// # Examples
/// ```no_run
/// fn send_mail(number: u64) {
///     fiber::sim::world().count(format!("mail {number}"));
/// }
/// ```
#[track_caller]
pub fn world() -> World {
    assert!(
        fiber_world::is_here(),
        "this thread is not in a simulated world: only a program of `fiber::sim::check` or `run` \
         is, with its tasks, actors and processes"
    );
    World { _private: () }
}

/// The world of a program.
///
/// Its faults hit processes of the session by their names, as `fiber ps` shows them:
/// `pool-1/worker-2` for the second worker of the first pool without a name. They are there when
/// they have started ([`processes`](World::processes)).
#[derive(Clone, Copy, Debug)]
pub struct World {
    _private: (),
}

impl World {
    /// Kills a process, as SIGKILL does. Its tasks do nothing from now on that
    /// [`count`](World::count) would count.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such process.
    pub fn kill(self, process: &str) -> fiber_core::Result<()> {
        strike(Fault::Kill, process, "World::kill")
    }

    /// Kills a process that the seed chooses. Returns its name, or `None` if there is none.
    pub fn kill_any(self) -> Option<String> {
        fiber_world::strike(Fault::Kill, None).pop()
    }

    /// Stops a process for a time, as SIGSTOP does. A process that stands still for more than
    /// `heartbeat_timeout` (10 s) is killed by its parent.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such process.
    pub fn stop(self, process: &str, time: Duration) -> fiber_core::Result<()> {
        let stopped = fiber_world::stop(Some(process), time);
        stopped.map(drop).ok_or_else(|| unknown(process, "World::stop"))
    }

    /// Stops a process that the seed chooses. Returns its name, or `None` if there is none.
    pub fn stop_any(self, time: Duration) -> Option<String> {
        fiber_world::stop(None, time)
    }

    /// Closes the links that a process has opened, first of all that to its parent.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such process.
    pub fn cut(self, process: &str) -> fiber_core::Result<()> {
        strike(Fault::Cut, process, "World::cut")
    }

    /// Lets all later messages of the links that a process has opened vanish, as if its network were
    /// gone. Both ends notice that after `heartbeat_timeout`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such process.
    pub fn lose(self, process: &str) -> fiber_core::Result<()> {
        strike(Fault::Lose, process, "World::lose")
    }

    /// Lets faults come for a while, at times and places that the seed draws, and at most so many of
    /// each kind. Messages and starts of processes take their time meanwhile, in most worlds.
    ///
    /// Begin it when what it hits has started: a pool gives up if none of its first workers start.
    /// A task that three workers ran when they died fails, unless the pool has another `max_deaths`.
    pub fn storm(self, faults: Faults) -> Storm {
        fiber_world::set_unusual(fiber_world::draw(4) > 0);
        Storm { thread: fiber_world::storm(faults.drawn()) }
    }

    /// Waits for the last fault of a storm. From now on nothing unusual happens.
    pub async fn calm(self, storm: Storm) {
        while !storm.thread.is_finished() {
            actix::clock::sleep(Duration::from_millis(10)).await;
        }
        fiber_world::set_unusual(false);
    }

    /// Returns the names of the processes that faults may hit: all but the head and those that are
    /// stopped.
    pub fn processes(self) -> Vec<String> {
        fiber_world::processes()
    }

    /// Draws a number. Those of the crates `rand` and `fastrand`, of `HashMap`s and of clocks come
    /// from the seed, too.
    ///
    /// # Panics
    /// If the range is empty.
    #[track_caller]
    pub fn draw(self, range: Range<u64>) -> u64 {
        assert!(!range.is_empty(), "there is no number in {range:?}");
        range.start + fiber_world::draw(range.end - range.start)
    }

    /// Returns the time since the beginning of the world.
    pub fn now(self) -> Duration {
        fiber_world::now()
    }

    /// Adds a line to the history.
    pub fn note(self, what: impl Display) {
        fiber_world::note(format_args!("{what}"));
    }

    /// Counts an effect outside of the session, such as a mail that was sent. Returns how often it
    /// has happened.
    ///
    /// A killed process counts nothing, although its threads run to their next wait.
    pub fn count(self, effect: impl Into<String>) -> u64 {
        fiber_world::count_effect(effect.into())
    }

    /// Returns how often an effect was counted.
    pub fn counted(self, effect: &str) -> u64 {
        fiber_world::counted_effect(effect)
    }

    /// Returns whether this thread's process was killed: a real one would be gone.
    pub fn is_dead(self) -> bool {
        fiber_world::is_dead()
    }
}

/// Faults that come.
#[derive(Debug)]
pub struct Storm {
    thread: JoinHandle<()>,
}

fn strike(fault: Fault, process: &str, method: &'static str) -> fiber_core::Result<()> {
    match fiber_world::strike(fault, Some(process)).is_empty() {
        false => Ok(()),
        true => Err(unknown(process, method)),
    }
}

fn unknown(process: &str, method: &'static str) -> Error {
    let names = fiber_world::processes().join(", ");
    let there =
        if names.is_empty() { "there is none".into() } else { format!("there are {names}") };
    Error::invalid(method, format!("no process that runs is named `{process}`: {there}"))
}
