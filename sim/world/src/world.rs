//! A world: its threads, its time and its chance.
//!
//! The threads are real ones, but one at a time has the *baton*. A thread that waits (in a futex, a
//! sleep or a join: see [`calls`](super::calls)) passes the baton to one that can run, which the
//! seed chooses. If none can, the time jumps to the next deadline.

// The threads share the world by a pointer: only the holder of the baton uses it.
#![allow(unsafe_code)]

mod nodes;

use std::cell::{Cell, UnsafeCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use fiber_core::simulation::{self, Disk, Fragile};
use tokio::sync::watch;

use crate::baton::{self, Baton, Seat, wait_for};
use crate::faults::{Kernel, Points};
use crate::log::{Event, Kind, Log, parse};
use crate::run::{History, Options};
use crate::steps::Preemption;

/// The number of a thread of a world, in the order of their starts.
pub(crate) type ThreadId = usize;

/// See the module's documentation.
pub(crate) struct World {
    state: UnsafeCell<State>,
    baton: UnsafeCell<Baton>,
    /// 1 when no thread of the world runs any more.
    over: AtomicU32,
}

/// The end of a world.
pub(crate) struct Over {
    pub(crate) has_first_ended: bool,
    /// The threads that wait for ever.
    pub(crate) left: Vec<String>,
    pub(crate) nanos: u64,
    pub(crate) switches: u64,
    pub(crate) limit: Option<&'static str>,
    pub(crate) history: Vec<Event>,
}

pub(crate) struct State {
    options: Options,
    pub(crate) rng: fastrand::Rng,
    pub(crate) points: Points,
    /// Set by the first step of the code that calls `steps`.
    pub(crate) preemption: Option<Preemption>,
    /// Jobs and links, with the nodes that have made them.
    pub(crate) fragile: Vec<(usize, Weak<dyn Fragile>)>,
    /// The SIGTERMs of nodes that handle them.
    pub(crate) sigterms: BTreeMap<usize, Arc<watch::Sender<()>>>,
    /// The names of nodes. Node 0 is the head.
    nodes: Vec<String>,
    /// The nodes that have started them.
    parents: Vec<usize>,
    /// Nodes that are dead, although their threads may run.
    dead: Vec<usize>,
    /// The wakers of heads' threads that wait, by the threads.
    heads: BTreeMap<usize, BTreeMap<ThreadId, Waker>>,
    pub(crate) disk: Arc<Disk>,
    /// Nodes that are stopped.
    stopped: Vec<usize>,
    pub(crate) nanos: u64,
    /// How far the wall clock has jumped.
    jumped: i64,
    /// When it counts as stuck.
    ends_at: u64,
    switches: u64,
    /// The limit that the world has met.
    limit: Option<&'static str>,
    threads: Vec<Thread>,
    runnable: Vec<ThreadId>,
    /// The threads that wait at each address.
    waiting: BTreeMap<usize, Vec<ThreadId>>,
    /// Deadlines of waits, with the number of the wait.
    deadlines: BinaryHeap<Reverse<(u64, ThreadId, u64)>>,
    log: Arc<Log>,
    /// The counts of code that runs in the world.
    pub(crate) counts: BTreeMap<(&'static str, u64), u64>,
    /// The same of users' programs.
    pub(crate) effects: BTreeMap<String, u64>,
}

struct Thread {
    name: String,
    seat: Box<Seat>,
    phase: Phase,
    node: usize,
    /// Whether it has waited for what comes from outside: a descriptor or a time. Until it has, it
    /// may hold a lock of the world, such as a link's, and runs on although its node is stopped.
    rests: bool,
    /// The number of its waits, by which deadlines of earlier ones are recognised.
    waits: u64,
    handle: Option<libc::pthread_t>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It has the baton, or may get it.
    Runs,
    Waits {
        address: usize,
    },
    Sleeps,
    /// It has lost its turn for a while.
    Lags,
    Joins(ThreadId),
    Ended,
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    ByThread,
    ByTime,
}

/// A thread's place in a world.
#[derive(Clone, Copy)]
pub(crate) struct Me {
    world: *const World,
    id: ThreadId,
    seat: *const Seat,
}

thread_local! {
    static ME: Cell<Option<Me>> = const { Cell::new(None) };
}

/// Returns this thread's place in a world, if it is in one.
pub(crate) fn me() -> Option<Me> {
    ME.get()
}

/// Returns the place of this thread, which is in a world.
pub(crate) fn here() -> Me {
    me().expect("only threads of a world do this")
}

/// The address at which threads wait for descriptors. No lock has it.
pub(crate) const IO: usize = 1;

/// The epoch of each world: 2026-01-01.
const EPOCH: u64 = 1_767_225_600;
/// The monotonic clock at the start of each world, in seconds.
const BOOT: u64 = 1_000_000_000;
/// The number of the head's process.
const FIRST_PROCESS: i32 = 1000;
/// The time that a thread runs until the next change, at most, in nanoseconds.
const SLICE: u64 = 2_000;
/// How long a look at the clock takes, in nanoseconds.
const LOOK: u64 = 20;
/// How many of 256 wake-ups let another thread run at once.
const PAUSES: u8 = 64;

impl State {
    fn new(seed: u64, mut options: Options) -> State {
        let log = options.log.take();
        State {
            log: log.unwrap_or_else(|| Arc::new(Log::new().expect("the process has room"))),
            points: Points::default(),
            preemption: None,
            ends_at: options.max_time.as_nanos() as u64,
            options,
            rng: fastrand::Rng::with_seed(seed),
            fragile: Vec::new(),
            sigterms: BTreeMap::new(),
            nodes: vec!["head".into()],
            parents: vec![0],
            dead: Vec::new(),
            heads: BTreeMap::new(),
            disk: Arc::default(),
            stopped: Vec::new(),
            nanos: 0,
            jumped: 0,
            switches: 0,
            limit: None,
            threads: Vec::new(),
            runnable: Vec::new(),
            waiting: BTreeMap::new(),
            deadlines: BinaryHeap::new(),
            counts: BTreeMap::new(),
            effects: BTreeMap::new(),
        }
    }

    /// Adds a thread, which may run.
    fn add_thread(&mut self, node: usize) -> ThreadId {
        let id = self.threads.len();
        let (name, seat) = (format!("thread {id}"), Seat::new());
        let (phase, rests, waits, handle) = (Phase::Runs, false, 0, None);
        self.threads.push(Thread { name, seat, phase, node, rests, waits, handle });
        self.runnable.push(id);
        id
    }

    /// Notes what happens in a node.
    pub(crate) fn note(&self, node: usize, kind: Kind, text: fmt::Arguments<'_>) {
        if match self.options.history {
            History::None => false,
            History::Events => kind != Kind::Turn,
            History::Trace => true,
        } {
            self.log.add(self.nanos, node, kind, text);
        }
    }

    /// Describes a thread that has not ended.
    fn describe(&self, thread: &Thread) -> String {
        let waits = match thread.phase {
            Phase::Waits { address: IO } => "waits for a descriptor, such as a socket".into(),
            Phase::Waits { .. } => "waits for another thread".into(),
            Phase::Sleeps => "sleeps".into(),
            Phase::Lags => "has lost its turn".into(),
            Phase::Joins(other) => format!("joins {}", self.threads[other].name),
            Phase::Runs if thread.rests && self.stopped.contains(&thread.node) => {
                "is stopped".into()
            }
            Phase::Runs | Phase::Ended => "goes on and on".into(),
        };
        format!("{}: {} {waits}", self.nodes[thread.node], thread.name)
    }

    /// Notes what happens to a thread.
    fn note_thread(&self, id: ThreadId, kind: Kind, what: &str) {
        let thread = &self.threads[id];
        self.note(thread.node, kind, format_args!("{} {what}", thread.name));
    }

    /// Chooses the next thread, and takes it from the list. Returns `None` if no thread can ever
    /// run again.
    fn next(&mut self) -> Option<ThreadId> {
        self.switches += 1;
        self.nanos += self.rng.u64(1..SLICE);
        if self.switches > self.options.max_switches {
            self.limit = Some("they change too often");
            return None;
        }
        if self.nanos > self.ends_at {
            self.limit = Some("they take too long");
            return None;
        }
        loop {
            while let Some(Reverse((deadline, id, wait))) = self.deadlines.peek().copied()
                && (deadline <= self.nanos || !self.can_any_run())
            {
                self.deadlines.pop();
                self.end_wait(id, wait, deadline);
            }
            if !self.can_any_run() {
                return None;
            }
            let place = self.rng.usize(..self.runnable.len());
            if self.can_run(self.runnable[place]) {
                let next = self.runnable.swap_remove(place);
                self.threads[next].rests = false;
                self.note_thread(next, Kind::Turn, "runs");
                return Some(next);
            }
        }
    }

    /// Returns whether a thread that is ready may run: those of a stopped node stand still where
    /// they wait for what comes from outside.
    fn can_run(&self, id: ThreadId) -> bool {
        let thread = &self.threads[id];
        !(thread.rests && self.stopped.contains(&thread.node))
    }

    fn can_any_run(&self) -> bool {
        self.runnable.iter().any(|id| self.can_run(*id))
    }

    /// Returns the nodes with threads that are not heads, are not stopped, and neither dead nor about
    /// to end with their parents.
    fn running_nodes(&self) -> Vec<usize> {
        let alive = self.threads.iter().filter(|thread| thread.phase != Phase::Ended);
        let mut nodes: Vec<_> = alive.map(|thread| thread.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.retain(|node| {
            let is_head = *node == 0 || self.heads.contains_key(node);
            let is_dead = self.dead.contains(node) || self.dead.contains(&self.parents[*node]);
            !is_head && !is_dead && !self.stopped.contains(node)
        });
        nodes
    }

    /// Ends a wait whose deadline has come, unless it has ended before.
    fn end_wait(&mut self, id: ThreadId, wait: u64, deadline: u64) {
        let thread = &mut self.threads[id];
        if thread.waits != wait || matches!(thread.phase, Phase::Runs | Phase::Ended) {
            return;
        }
        self.nanos = self.nanos.max(deadline);
        if let Phase::Waits { address } = thread.phase
            && let Some(waiting) = self.waiting.get_mut(&address)
        {
            waiting.retain(|waiting| *waiting != id);
            if waiting.is_empty() {
                self.waiting.remove(&address);
            }
        }
        thread.rests |= thread.phase != Phase::Lags;
        thread.phase = Phase::Runs;
        // By this, the thread knows why its wait is over.
        thread.waits += 1;
        self.runnable.push(id);
    }
}

// SAFETY: a thread uses a world only with the baton, and passing the baton orders the accesses of
// its holders.
unsafe impl Send for Me {}
// SAFETY: as above.
unsafe impl Sync for Me {}

impl Me {
    /// Makes a world, and the place of its first thread, which has the baton.
    pub(crate) fn first_of_world(seed: u64, options: Options) -> Me {
        let mut state = State::new(seed, options);
        let id = state.add_thread(0);
        state.runnable.clear();
        let seat = &raw const *state.threads[id].seat;
        let baton = UnsafeCell::new(Baton::new(&state.threads[id].seat));
        let (state, over) = (UnsafeCell::new(state), AtomicU32::new(0));
        Me { world: Box::into_raw(Box::new(World { state, baton, over })), id, seat }
    }

    /// Waits until no thread of the world runs any more. Frees it, unless some wait for ever.
    ///
    /// Only the maker of the world may call it, once.
    pub(crate) fn wait_until_over(self) -> Over {
        // SAFETY: the world is freed here alone.
        wait_for(unsafe { &(*self.world).over });
        let state = self.state();
        let waits = |thread: &&Thread| thread.phase != Phase::Ended;
        let left = state.threads.iter().filter(waits);
        let over = Over {
            has_first_ended: state.threads[self.id].phase == Phase::Ended,
            left: left.map(|thread| state.describe(thread)).collect(),
            nanos: state.nanos,
            switches: state.switches,
            limit: state.limit,
            history: parse(state.log.bytes()),
        };
        if over.left.is_empty() {
            // SAFETY: `first_of_world` has made it, and no thread has a use for it any more.
            drop(unsafe { Box::from_raw(self.world.cast_mut()) });
        }
        over
    }

    #[expect(clippy::mut_from_ref, reason = "the baton makes it unique")]
    pub(crate) fn state(&self) -> &mut State {
        // SAFETY: this thread has the baton, or no thread has, so no other one uses the state; the
        // world lives until all its threads have ended. No reference is kept across a change of
        // threads.
        unsafe { &mut *(*self.world).state.get() }
    }

    /// Returns the time since the epoch, or since the boot, in nanoseconds.
    pub(crate) fn now(&self, is_monotonic: bool) -> u64 {
        let state = self.state();
        if is_monotonic {
            return BOOT * 1_000_000_000 + state.nanos;
        }
        (EPOCH * 1_000_000_000 + state.nanos).saturating_add_signed(state.jumped)
    }

    /// Lets the wall clock jump, as when somebody sets it.
    pub(crate) fn jump(&self, nanos: i64) {
        let state = self.state();
        state.jumped = state.jumped.saturating_add(nanos);
        let seconds = nanos / 1_000_000_000;
        state.note(0, Kind::Fault, format_args!("the wall clock jumps by {seconds} s"));
    }

    /// Returns the time for a thread that asks for it. Each look takes a little, so that a loop
    /// until a time ends.
    pub(crate) fn look_at_clock(&self, is_monotonic: bool) -> u64 {
        self.state().nanos += LOOK;
        self.now(is_monotonic)
    }

    /// Lets the world count as stuck, unless its threads end within this time.
    pub(crate) fn end_within(&self, time: Duration) {
        let state = self.state();
        state.ends_at = state.nanos + time.as_nanos() as u64;
    }

    /// Returns the number of this thread's process. Processes of the system have others in each
    /// run, and code takes other ways for them, for example with each digit.
    pub(crate) fn process_id(&self) -> i32 {
        let state = self.state();
        FIRST_PROCESS + state.threads[self.id].node as i32
    }

    /// Fills bytes with random numbers.
    pub(crate) fn fill(&self, bytes: &mut [u8]) {
        self.state().rng.fill(bytes);
    }

    /// Waits until a thread wakes the address, or until the time is up.
    pub(crate) fn wait_at(&self, address: usize, nanos: Option<u64>) -> Woken {
        self.state().waiting.entry(address).or_default().push(self.id);
        self.wait(Phase::Waits { address }, nanos)
    }

    /// Wakes at most `count` threads that wait at the address. Returns how many it were.
    pub(crate) fn wake(&self, address: usize, count: u32) -> u32 {
        let state = self.state();
        let mut woken = 0;
        while woken < count {
            let Some(waiting) = state.waiting.get_mut(&address) else { break };
            let id = waiting.swap_remove(state.rng.usize(..waiting.len()));
            if waiting.is_empty() {
                state.waiting.remove(&address);
            }
            state.threads[id].phase = Phase::Runs;
            state.runnable.push(id);
            woken += 1;
        }
        if woken > 0 && state.rng.u8(..) < PAUSES {
            self.pause();
        }
        woken
    }

    pub(crate) fn sleep(&self, nanos: u64) {
        self.wait(Phase::Sleeps, Some(nanos));
    }

    /// Lets others run for a while, as when the kernel takes the core.
    pub(crate) fn lag(&self, nanos: u64) {
        self.wait(Phase::Lags, Some(nanos));
    }

    /// Lets others run.
    pub(crate) fn pause(&self) {
        self.state().runnable.push(self.id);
        self.switch();
    }

    fn wait(&self, phase: Phase, nanos: Option<u64>) -> Woken {
        let state = self.state();
        let thread = &mut state.threads[self.id];
        thread.phase = phase;
        thread.rests = matches!(phase, Phase::Waits { address: IO } | Phase::Sleeps);
        thread.waits += 1;
        let number = thread.waits;
        if let Some(nanos) = nanos {
            let deadline = state.nanos.saturating_add(nanos);
            state.deadlines.push(Reverse((deadline, self.id, number)));
        }
        self.switch();
        if self.state().threads[self.id].waits == number { Woken::ByThread } else { Woken::ByTime }
    }

    /// Passes the baton to the next thread, and waits for it unless this thread has ended.
    fn switch(&self) {
        let state = self.state();
        let has_ended = state.threads[self.id].phase == Phase::Ended;
        let next = state.next();
        if next == Some(self.id) {
            return;
        }
        let next = next.map(|next| &raw const *state.threads[next].seat);
        // SAFETY: the seats live as long as the world, which lives until its last thread has passed
        // the baton on. This thread has it.
        unsafe {
            let World { baton, over, .. } = &*self.world;
            let next = next.map(|next| &*next);
            baton::pass(baton.get(), &*self.seat, next, over, has_ended);
        }
    }

    /// Adds a thread of the world, to the node of this one.
    pub(crate) fn add_thread(&self) -> Me {
        let state = self.state();
        let id = state.add_thread(state.threads[self.id].node);
        Me { world: self.world, id, seat: &raw const *state.threads[id].seat }
    }

    /// Notes the handle of a thread that was added; `None` if it could not be started.
    pub(crate) fn set_handle(&self, of: Me, handle: Option<libc::pthread_t>) {
        let state = self.state();
        if handle.is_none() {
            state.runnable.retain(|id| *id != of.id);
            state.threads[of.id].phase = Phase::Ended;
        }
        state.threads[of.id].handle = handle;
    }

    /// Names this thread.
    pub(crate) fn set_name(&self, name: &str) {
        self.state().threads[self.id].name = format!("{name} ({})", self.id);
    }

    /// Waits until a thread of this world has ended.
    pub(crate) fn join(&self, handle: libc::pthread_t) {
        let threads = &self.state().threads;
        // The C library gives the handle of a detached thread that has ended to another one.
        let Some(id) = threads.iter().rposition(|thread| thread.handle == Some(handle)) else {
            return;
        };
        while self.state().threads[id].phase != Phase::Ended {
            self.wait(Phase::Joins(id), None);
        }
    }

    /// Makes the current thread this one of the world, and waits for the baton.
    pub(crate) fn begin(self) -> Me {
        // SAFETY: the world lives until this thread has ended. Then it has the baton.
        unsafe {
            baton::take_seat(&*self.seat);
            baton::arrive((*self.world).baton.get());
        }
        ME.set(Some(self));
        simulation::enter(Some(&Kernel));
        self.state().note_thread(self.id, Kind::Thread, "starts");
        self
    }

    /// Ends this thread's life in the world.
    pub(crate) fn end(self) {
        let state = self.state();
        state.note_thread(self.id, Kind::Thread, "ends");
        state.threads[self.id].phase = Phase::Ended;
        for id in 0..state.threads.len() {
            if state.threads[id].phase == Phase::Joins(self.id) {
                state.threads[id].phase = Phase::Runs;
                state.runnable.push(id);
            }
        }
        ME.set(None);
        simulation::enter(None);
        self.switch();
    }
}
