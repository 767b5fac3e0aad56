//! The ground of a scenario: a session in a world, numbers that the seed decides, and the checks
//! that hold for each.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fiber::simulation::Session;
use fiber_core::{Config, value_memory};
use fiber_world::{
    Faults, Options, is_dead, let_threads_be_short, make_room_on_disk, run, set_slow, set_unusual,
    storm,
};

use crate::scenarios::Scenario;

/// How long after its last fault a scenario may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long objects of a session may live after the last handle in its program.
const TRANSIT: Duration = Duration::from_secs(60);
/// How often a session is looked at of which nothing is left.
const LOOKS: usize = 20;

/// The largest numbers that a scenario may draw: smaller ones make a failure easier to understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tasks, messages, elements.
    pub items: u64,
    /// Processes of one pool or ring, and threads that use them.
    pub processes: u64,
    /// Faults of each kind.
    pub faults: u32,
    /// Whether the unusual happens.
    pub unusual: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { items: 200, processes: 5, faults: 4, unusual: true }
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { items, processes, faults, unusual } = self;
        write!(f, "{items},{processes},{faults},{}", u8::from(*unusual))
    }
}

impl FromStr for Limits {
    type Err = String;

    fn from_str(text: &str) -> Result<Limits, String> {
        let numbers: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
        match numbers.as_deref() {
            Ok([items, processes, faults, unusual]) if *items > 0 && *processes > 0 => Ok(Limits {
                items: (*items).into(),
                processes: (*processes).into(),
                faults: *faults,
                unusual: *unusual > 0,
            }),
            _ => Err(format!("`{text}` is not ITEMS,PROCESSES,FAULTS,UNUSUAL, such as 200,5,4,1")),
        }
    }
}

/// The outcome of a seed.
#[derive(Debug)]
pub struct Report {
    /// Why it failed.
    pub failure: Option<String>,
    /// How much time has passed in the world.
    pub time: Duration,
    /// How often its threads have changed.
    pub switches: u64,
}

/// Lets a scenario happen in a world, whose disk is this folder.
pub fn play(
    seed: u64,
    scenario: &'static Scenario,
    limits: Limits,
    options: Options,
    folder: PathBuf,
) -> Report {
    let in_world = folder.clone();
    let stored_before = value_memory::value_memory().stored;
    let end = run(seed, options, move || play_in_world(seed, scenario, limits, in_world));
    let _ = std::fs::remove_dir_all(folder);
    let failure = match end.result {
        Some(Ok(Ok(memory))) if end.left.is_empty() => memory.leak(stored_before),
        None | Some(Ok(Ok(_))) => {
            let problem = end.limit.unwrap_or("they wait for ever");
            Some(format!("threads are left: {problem}: {}", end.left.join("; ")))
        }
        Some(Ok(Err(error))) => Some(error),
        Some(Err(panic)) => Some(fiber_core::panics::message(&*panic)),
    };
    Report { failure, time: Duration::from_nanos(end.nanos), switches: end.switches }
}

/// The state of a world's memory once its last thread has ended.
enum Memory {
    /// The memory of a process that has died is there until the end of the world.
    HasDeadProcesses,
    /// Each process has freed its values.
    IsFreed,
}

impl Memory {
    /// Returns what is still stored. A thread that ends after the main one may free values then.
    fn leak(self, stored_before: u64) -> Option<String> {
        let values = value_memory::value_memory();
        let has_leak = matches!(self, Memory::IsFreed) && values.stored > stored_before;
        has_leak.then(|| format!("values are still stored: {values}"))
    }
}

fn play_in_world(
    seed: u64,
    scenario: &Scenario,
    limits: Limits,
    folder: PathBuf,
) -> Result<Memory, String> {
    let rng = fastrand::Rng::with_seed(seed ^ 1);
    let calm_since = Instant::now();
    let mut ground =
        Ground { seed, rng, limits, sessions: 0, calm_since, folder, has_dead_processes: false };
    (scenario.run)(&mut ground).map_err(|error| error.to_string())?;
    let late = ground.calm_since.elapsed();
    if late > PATIENCE {
        return Err(format!("it took {late:?} after the last fault"));
    }
    Ok(if ground.has_dead_processes { Memory::HasDeadProcesses } else { Memory::IsFreed })
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Ground {
    seed: u64,
    /// The source of the numbers that a scenario draws.
    pub rng: fastrand::Rng,
    limits: Limits,
    sessions: u64,
    calm_since: Instant,
    /// The folder on the world's disk.
    pub(crate) folder: PathBuf,
    pub(crate) has_dead_processes: bool,
}

impl Ground {
    /// Draws a number of tasks, messages or elements, from 1 to `most`.
    pub fn items(&mut self, most: u64) -> u64 {
        self.rng.u64(1..=most.min(self.limits.items))
    }

    /// Draws a number of processes or threads, from 1.
    pub fn processes(&mut self) -> usize {
        self.rng.usize(1..=self.limits.processes as usize)
    }

    /// Returns true as often as `of` 256 times.
    pub fn happens(&mut self, of: u8) -> bool {
        self.rng.u8(..) < of
    }

    /// Lets `program` run in a session of its own, and checks that nothing of it is left.
    ///
    /// # Errors
    /// The program's errors, and what is left.
    pub fn session(
        &mut self,
        program: impl FnOnce(&mut Ground) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let session = Session::start(self.next_session().0)?;
        self.within(session, program)
    }

    /// Works as [`session`](Ground::session), with a configuration.
    ///
    /// # Errors
    /// As [`session`](Ground::session).
    pub fn configured(
        &mut self,
        config: Config,
        program: impl FnOnce(&mut Ground) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let session = Session::start_with(self.next_session().0, config)?;
        self.within(session, program)
    }

    /// Works as [`session`](Ground::session), in an allocation that ends after this time.
    ///
    /// # Errors
    /// As [`session`](Ground::session).
    pub fn allocation(
        &mut self,
        limit: Duration,
        program: impl FnOnce(&mut Ground) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let session = Session::start_within(self.next_session().0, limit)?;
        self.within(session, program)
    }

    fn within(
        &mut self,
        session: Session,
        program: impl FnOnce(&mut Ground) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let entered = session.enter();
        let result = program(self);
        drop(entered);
        result?;
        Ok(end_session(session)?)
    }

    /// Returns the seed and the number of the next session.
    pub(crate) fn next_session(&mut self) -> (u64, u64) {
        self.sessions += 1;
        (self.seed ^ (self.sessions << 56), self.sessions)
    }

    /// Lets the unusual happen, and threads be short: calls may fail for that.
    pub fn storm_of_shortage(&mut self) -> Storm {
        let faults = self.faults().of_processes();
        let_threads_be_short();
        self.begin_storm(faults)
    }

    /// Lets those faults come that `keep` leaves, and nothing unusual happen.
    pub fn storm_of(&mut self, keep: impl FnOnce(Faults) -> Faults) -> Storm {
        let faults = keep(self.faults());
        let (is_calm, terminations) = (faults.are_none(), faults.terminations);
        Storm { is_calm, terminations, thread: storm(faults) }
    }

    /// Lets faults of processes come, as [`storm`](Ground::storm) does, and none of links.
    pub fn storm_of_processes(&mut self) -> Storm {
        let faults = self.faults().of_processes();
        self.begin_storm(faults)
    }

    /// Lets faults come for a while, and the unusual happen: messages and engines are slow, and
    /// starts fail. A pool that has not done any work by then may give up.
    pub fn storm(&mut self) -> Storm {
        let faults = self.faults();
        self.begin_storm(faults)
    }

    fn faults(&mut self) -> Faults {
        Faults {
            kills: self.faults_of_a_kind(),
            terminations: self.faults_of_a_kind(),
            cuts: self.faults_of_a_kind(),
            losses: self.faults_of_a_kind() / 2,
            stops: self.faults_of_a_kind() / 2,
            jumps: self.faults_of_a_kind() / 2,
            within: Duration::from_millis(self.rng.u64(1..5000)),
        }
    }

    /// Draws how many faults of a kind there are.
    pub(crate) fn faults_of_a_kind(&mut self) -> u32 {
        let most = self.limits.faults;
        if most == 0 || self.rng.bool() { 0 } else { self.rng.u32(..=most) }
    }

    fn begin_storm(&mut self, faults: Faults) -> Storm {
        let is_calm = self.happens(32);
        let faults =
            if is_calm { Faults { within: faults.within, ..Faults::NONE } } else { faults };
        let is_unusual = !is_calm && self.limits.unusual && self.happens(192);
        set_unusual(is_unusual);
        set_slow(is_calm && self.happens(128));
        let (is_calm, terminations) = (!is_unusual && faults.are_none(), faults.terminations);
        Storm { is_calm, terminations, thread: storm(faults) }
    }

    /// Waits for the end of a storm. From now on, the scenario has to end.
    pub fn wait_for_calm(&mut self, storm: Storm) {
        storm.thread.join().expect("a storm does not panic");
        set_unusual(false);
        make_room_on_disk();
        set_slow(false);
        self.calm_since = Instant::now();
    }
}

/// Ends a session whose program has ended, and returns what is left of it as an error.
pub(crate) fn end_session(session: Session) -> Result<(), String> {
    let until = Instant::now() + TRANSIT;
    let mut before_its_end = session.remains();
    while !is_dead() && !before_its_end.is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
        before_its_end = session.remains();
    }
    let mut later = Vec::new();
    for _ in 0..LOOKS {
        if is_dead() || !before_its_end.is_empty() || !later.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_micros(10));
        later = session.remains();
    }
    let left = session.end();
    if !before_its_end.is_empty() {
        Err(format!("still there {TRANSIT:?} later: {before_its_end:?}"))
    } else if !later.is_empty() {
        Err(format!("nothing was there any more, and then came: {later:?}"))
    } else if !left.is_empty() {
        Err(format!("of its session is left: {left:?}"))
    } else {
        Ok(())
    }
}

/// Returns the folder on the disk of the worlds of a process. Its length is the same for each, as
/// the addresses of later values depend on it.
pub fn folder(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("fiber-sim-{process:010}"))
}

/// Faults that come.
#[derive(Debug)]
pub struct Storm {
    thread: JoinHandle<()>,
    is_calm: bool,
    terminations: u32,
}

impl Storm {
    /// Returns whether no fault comes, and nothing unusual happens. Then nothing may be lost or
    /// done twice.
    pub fn is_calm(&self) -> bool {
        self.is_calm
    }

    /// Returns how many processes get SIGTERM, at most. Their tasks may run again, although they
    /// count as no deaths.
    pub fn terminations(&self) -> u64 {
        self.terminations.into()
    }
}
