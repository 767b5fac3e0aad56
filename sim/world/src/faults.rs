//! Faults of a world, and the unusual.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

use fiber_core::simulation::{Disk, Fault, Fragile, SHORTAGES, World};
use tokio::sync::watch;

use crate::log::Kind;
use crate::program;
use crate::world::{Me, here};

/// The points of the code at which the unusual may happen, and how often it does, in 256 times.
///
/// As in FoundationDB's tests, a seed makes each point of its world usual or not: a world in which
/// everything goes wrong at once does little.
#[derive(Default)]
pub(crate) struct Points {
    /// Until when it may happen, in nanoseconds.
    pub(crate) until: u64,
    /// How long each message takes, at most, in milliseconds.
    pub(crate) slowest: u64,
    /// Whether threads may be short, which calls report as an error.
    pub(crate) is_short: bool,
    rates: BTreeMap<&'static str, u8>,
    /// The only points that are unusual, if others are not.
    pub(crate) only: Option<&'static [&'static str]>,
}

/// The number of worlds, of 256, in which a point is unusual.
const UNUSUAL_WORLDS: u8 = 96;
/// How often the unusual happens at such a point, at most, in 256 times.
const MAX_RATE: u8 = 64;
/// How long a message takes that is slow, or stalls, at most, in milliseconds.
pub(crate) const SLOW: u64 = 20;
const STALL: u64 = 15_000;

/// The world of the current thread.
pub(crate) struct Kernel;

impl Kernel {
    fn me(&self) -> Me {
        here()
    }
}

impl World for Kernel {
    fn begin_node(&self, name: &str) -> u64 {
        self.me().begin_node(name) as u64
    }

    fn end_node(&self, node: u64) {
        self.me().end_node(node as usize);
    }

    fn is_dead(&self) -> bool {
        self.me().is_dead()
    }

    fn has_died(&self, waker: &Waker) -> bool {
        self.me().has_died(waker)
    }

    fn disk(&self) -> Arc<Disk> {
        Arc::clone(&self.me().state().disk)
    }

    fn sigterms(&self) -> watch::Receiver<()> {
        let me = self.me();
        let node = me.node();
        // Locks may change threads, so none is held while the state is.
        let sender = watch::Sender::new(());
        let receiver = sender.subscribe();
        me.state().sigterms.insert(node, Arc::new(sender));
        receiver
    }

    fn terminate(&self, node: u64) -> bool {
        let sender = self.me().state().sigterms.get(&(node as usize)).cloned();
        // As with tokio, a process that has handled it once does so for ever.
        sender.map(|sender| sender.send_replace(())).is_some()
    }

    fn exit(&self) {
        let me = self.me();
        let upgrade = |(_, job): &(usize, Weak<dyn Fragile>)| job.upgrade();
        let jobs: Vec<_> = me.state().fragile.iter().filter_map(upgrade).collect();
        let own = jobs.iter().find(|job| job.node() == Some(me.node() as u64));
        own.filter(|job| job.can_suffer(Fault::Kill)).inspect(|job| job.suffer(Fault::Kill));
    }

    fn add(&self, fragile: Arc<dyn Fragile>) {
        let me = self.me();
        me.state().fragile.push((me.node(), Arc::downgrade(&fragile)));
    }

    fn delay(&self) -> Duration {
        let slowest = self.me().state().points.slowest;
        if slowest == 0 && !self.is_unusual("a message is slow") {
            return Duration::ZERO;
        }
        let is_stalled = self.is_unusual("a message stalls");
        Duration::from_millis(self.draw(if is_stalled { STALL } else { slowest.max(SLOW) }))
    }

    fn is_unusual(&self, point: &'static str) -> bool {
        let me = self.me();
        let state = me.state();
        let is_over = state.nanos >= state.points.until;
        if is_over || (SHORTAGES.contains(&point) && !state.points.is_short) {
            return false;
        }
        let (rng, worlds) = (
            &mut state.rng,
            match state.points.only {
                None => UNUSUAL_WORLDS,
                Some(only) => {
                    if only.contains(&point) {
                        u8::MAX
                    } else {
                        0
                    }
                }
            },
        );
        let rate = *state
            .points
            .rates
            .entry(point)
            .or_insert_with(|| if rng.u8(..) < worlds { rng.u8(1..=MAX_RATE) } else { 0 });
        let happens = rate > 0 && rng.u8(..) < rate;
        if happens {
            state.note(me.node(), Kind::Unusual, format_args!("{point}"));
        }
        happens
    }

    fn draw(&self, end: u64) -> u64 {
        self.me().state().rng.u64(..end.max(1))
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.me().fill(bytes);
    }
}

/// How long after its last fault a world may go on.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);

/// How long after its last fault the unusual may happen. A world in which it never ends does no work.
const AFTERMATH: Duration = Duration::from_secs(60);

/// How many faults of each kind hit a world, within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Processes that are killed.
    pub kills: u32,
    /// Processes that get SIGTERM.
    pub terminations: u32,
    /// Links that are cut.
    pub cuts: u32,
    /// Links whose messages vanish from then on.
    pub losses: u32,
    /// Processes that are stopped, for a while or until they are killed.
    pub stops: u32,
    /// Jumps of the wall clock, by up to three days in both directions.
    pub jumps: u32,
    /// The time within which they come.
    pub within: Duration,
}

impl Default for Faults {
    /// Some of each kind, within 5 s, but for SIGTERMs and jumps of the clock.
    fn default() -> Faults {
        Faults { kills: 3, cuts: 1, losses: 1, stops: 1, ..Faults::NONE }
    }
}

impl Faults {
    /// No faults.
    pub const NONE: Faults = Faults {
        kills: 0,
        terminations: 0,
        cuts: 0,
        losses: 0,
        stops: 0,
        jumps: 0,
        within: Duration::from_secs(5),
    };

    /// Draws numbers of faults, up to these.
    #[must_use]
    pub fn drawn(self) -> Faults {
        let draw = |most: u32| program::draw(u64::from(most) + 1) as u32;
        Faults {
            kills: draw(self.kills),
            terminations: draw(self.terminations),
            cuts: draw(self.cuts),
            losses: draw(self.losses),
            stops: draw(self.stops),
            jumps: draw(self.jumps),
            within: self.within,
        }
    }

    /// Returns those of them that end or stop a process, which is therefore never alive without its
    /// links.
    pub fn of_processes(self) -> Faults {
        Faults { cuts: 0, losses: 0, ..self }
    }

    /// Returns whether no fault comes.
    pub fn are_none(self) -> bool {
        self == Faults { within: self.within, ..Faults::NONE }
    }

    fn kinds(&self) -> Vec<Hit> {
        let counts = [
            (Hit::Fault(Fault::Kill), self.kills),
            (Hit::Fault(Fault::Terminate), self.terminations),
            (Hit::Fault(Fault::Cut), self.cuts),
            (Hit::Fault(Fault::Lose), self.losses),
            (Hit::Stop, self.stops),
            (Hit::Jump, self.jumps),
        ];
        let of = |(kind, count): (Hit, u32)| std::iter::repeat_n(kind, count as usize);
        counts.into_iter().flat_map(of).collect()
    }
}

#[derive(Clone, Copy)]
enum Hit {
    /// A job or link suffers it.
    Fault(Fault),
    Stop,
    Jump,
}

/// The furthest jump of the wall clock, in nanoseconds.
const FURTHEST: i64 = 3 * 24 * 3600 * 1_000_000_000;

/// Lets the faults come, on a thread of the head. It ends after the last.
pub fn storm(faults: Faults) -> JoinHandle<()> {
    let run = move || {
        let me = here();
        let mut kinds = faults.kinds();
        me.state().rng.shuffle(&mut kinds);
        let pause = faults.within.as_nanos() as u64 / (kinds.len() as u64 + 1);
        for kind in kinds {
            let rng = &mut me.state().rng;
            // They come in bursts.
            let nanos = if rng.bool() { rng.u64(..10_000) } else { rng.u64(..=4 * pause) };
            me.sleep(nanos);
            match kind {
                Hit::Fault(fault) => drop(strike(me, fault, None)),
                Hit::Stop => {
                    let rng = &mut me.state().rng;
                    let time = rng.bool().then(|| rng.u64(..20_000_000_000));
                    me.choose_node(None).into_iter().for_each(|node| me.stop_node(node, time));
                }
                Hit::Jump => me.jump(me.state().rng.i64(-FURTHEST..=FURTHEST)),
            }
        }
        let state = me.state();
        let until = state.nanos + AFTERMATH.as_nanos() as u64;
        state.points.until = state.points.until.min(until);
        me.end_within(PATIENCE);
    };
    std::thread::Builder::new().name("storm".into()).spawn(run).expect("a world has room")
}

/// Lets a job or link suffer a fault: any, or the job or all links of the process with this name.
/// Returns the names of those that have suffered it.
pub(crate) fn strike(me: Me, fault: Fault, process: Option<&str>) -> Vec<String> {
    let node = process.map(|name| me.choose_node(Some(name)));
    let state = me.state();
    state.fragile.retain(|(_, fragile)| fragile.strong_count() > 0);
    let strong = |(node, fragile): &(usize, Weak<dyn Fragile>)| Some((*node, fragile.upgrade()?));
    let mut all: Vec<_> = state.fragile.iter().filter_map(strong).collect();
    match process {
        None => state.rng.shuffle(&mut all),
        Some(name) if matches!(fault, Fault::Kill | Fault::Terminate) => {
            all.retain(|(_, job)| job.name() == name)
        }
        Some(_) => all.retain(|(owner, _)| Some(Some(*owner)) == node),
    }
    let mut hit = Vec::new();
    for (owner, fragile) in all {
        let is_enough = process.is_none() && !hit.is_empty();
        if is_enough || !fragile.can_suffer(fault) {
            continue;
        }
        let node = me.last_node(fragile.name()).unwrap_or(owner);
        let what = match fault {
            Fault::Kill => "is killed",
            Fault::Terminate => "gets SIGTERM",
            Fault::Cut => "its link is cut",
            Fault::Lose => "its link loses all messages from now on",
        };
        me.state().note(node, Kind::Fault, format_args!("{what}"));
        fragile.suffer(fault);
        hit.push(fragile.name().to_string());
    }
    hit
}
