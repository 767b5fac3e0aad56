//! The Savina benchmarks (S. Imam and V. Sarkar, "Savina", AGERE 2014) as actors of no framework.
//!
//! A framework starts the actors of a [`Program`], which know each other by their numbers, and
//! gives [`START`] to the first one. That one ends the program.

mod centers;

use std::collections::VecDeque;
use std::hint::black_box;

use serde::{Deserialize, Serialize};

use self::centers::{Arbiter, Creature, Maker, Mall, Manager, Philosopher, Taker};

/// The number of an actor, from 0.
pub(crate) type Id = u32;

/// A message of any benchmark.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) kind: u8,
    /// Most often the sender.
    pub(crate) from: Id,
    pub(crate) value: u64,
}

/// The first message, which the first actor gets.
pub(crate) const START: Note = Note { kind: 0, from: 0, value: 0 };
const ASK: u8 = 1;
const ANSWER: u8 = 2;
const MORE: u8 = 3;
const CHANGE: u8 = 4;
const EXIT: u8 = 5;

/// A framework, as an actor sees it while it handles a message.
pub(crate) trait Out {
    /// Sends a message, without an answer.
    fn tell(&mut self, to: Id, note: Note);
    /// Creates a [`Leaf`] in this process, gives it a message, and ends it when that is handled.
    fn create(&mut self, note: Note);
    /// Ends the program.
    fn end(&mut self);
}

/// An actor.
pub(crate) trait Behaviour: Send {
    fn receive(&mut self, note: Note, out: &mut dyn Out);
}

/// A benchmark of a size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) name: String,
    size: u64,
}

/// The benchmarks with what their rates count, and their sizes in one process.
pub(crate) const PROGRAMS: [(&str, &str, u64); 10] = [
    ("ping-pong", "messages", 500_000),
    ("counting", "messages", 2_000_000),
    ("thread ring", "messages", 1_000_000),
    ("chameneos", "meetings", 200_000),
    ("big", "pings", 3_000),
    ("fork-join creation", "actors", 100_000),
    ("fork-join throughput", "messages", 20_000),
    ("banking", "transactions", 200_000),
    ("bounded buffer", "items", 5_000),
    ("philosophers", "meals", 20_000),
];

/// Actors of the thread ring.
const RING: Id = 100;
const CREATURES: Id = 100;
/// Actors of `big`.
const CROWD: Id = 120;
/// Receivers of the fork-join throughput.
const JOINERS: Id = 60;
const ACCOUNTS: Id = 1000;
const PRODUCERS: Id = 40;
const CONSUMERS: Id = 40;
const BUFFER: usize = 50;
/// Rounds of computing for each item.
const COST: u64 = 25;
const PHILOSOPHERS: Id = 20;

impl Program {
    /// Returns the program of a name, in a part of its size.
    pub(crate) fn named(name: &str, part: u64) -> Option<Program> {
        let (_, _, size) = PROGRAMS.iter().find(|(known, ..)| *known == name)?;
        Some(Program { name: name.to_string(), size: (size / part).max(1) })
    }

    /// Returns the number of actors. They are there before the first message.
    pub(crate) fn actors(&self) -> Id {
        match &*self.name {
            "ping-pong" | "counting" => 2,
            "thread ring" => RING,
            "chameneos" => 1 + CREATURES,
            "big" => 1 + CROWD,
            "fork-join creation" => 1,
            "fork-join throughput" => 1 + JOINERS,
            "banking" => 1 + ACCOUNTS,
            "bounded buffer" => 1 + PRODUCERS + CONSUMERS,
            _ => 1 + PHILOSOPHERS,
        }
    }

    /// Returns in which of two processes an actor is. Where all talk to the first actor, that one
    /// is alone.
    pub(crate) fn place(&self, id: Id) -> u32 {
        match &*self.name {
            "thread ring" | "big" | "banking" => id % 2,
            _ => id.min(1),
        }
    }

    /// Returns how much it does: the number of messages, meetings, actors or the like.
    pub(crate) fn count(&self) -> u64 {
        let times = match &*self.name {
            "ping-pong" => 2,
            "big" => CROWD,
            "fork-join throughput" => JOINERS,
            "bounded buffer" => PRODUCERS,
            "philosophers" => PHILOSOPHERS,
            _ => 1,
        };
        self.size * u64::from(times)
    }

    /// Makes the actor of a number.
    pub(crate) fn actor(&self, id: Id) -> Box<dyn Behaviour> {
        let left = self.size;
        match (&*self.name, id) {
            ("ping-pong", 0) => Box::new(Pinger { left }),
            ("ping-pong", _) => Box::new(Ponger),
            ("counting", 0) => Box::new(Producer { count: left }),
            ("counting", _) => Box::new(Counter { count: 0 }),
            ("thread ring", id) => Box::new(Link { id, hops: left }),
            ("chameneos", 0) => Box::new(Mall { left, met: 0, waiting: None, gone: 0 }),
            ("chameneos", id) => Box::new(Creature { id, color: u64::from(id) % 3, met: 0 }),
            ("big", 0) => Box::new(Sink { crowd: CROWD }),
            ("big", id) => Box::new(Bystander { id, left, random: Random(id.into()) }),
            ("fork-join creation", _) => Box::new(Forker { left, count: left }),
            ("fork-join throughput", 0) => Box::new(Thrower { count: left, busy: JOINERS }),
            ("fork-join throughput", _) => Box::new(Joiner { left }),
            ("banking", 0) => Box::new(Teller { left, count: left }),
            ("banking", id) => Box::new(Account { id, ..Account::default() }),
            ("bounded buffer", 0) => Box::new(Manager::default()),
            ("bounded buffer", id) if id <= PRODUCERS => Box::new(Maker { id, left }),
            ("bounded buffer", id) => Box::new(Taker { id }),
            (_, 0) => Box::new(Arbiter::default()),
            (_, id) => Box::new(Philosopher { id, left }),
        }
    }
}

fn note(kind: u8, from: Id, value: u64) -> Note {
    Note { kind, from, value }
}

/// Numbers that look random, and are the same in each run: SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: Id) -> Id {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % u64::from(end)) as Id
    }
}

/// Takes some time.
fn compute(rounds: u64) {
    for round in 0..rounds {
        black_box((black_box(37.2) + round as f64).sin());
    }
}

struct Pinger {
    left: u64,
}

impl Behaviour for Pinger {
    fn receive(&mut self, _: Note, out: &mut dyn Out) {
        if self.left == 0 {
            return out.end();
        }
        self.left -= 1;
        out.tell(1, note(ASK, 0, 0));
    }
}

struct Ponger;

impl Behaviour for Ponger {
    fn receive(&mut self, ping: Note, out: &mut dyn Out) {
        out.tell(ping.from, note(ANSWER, 1, 0));
    }
}

struct Producer {
    count: u64,
}

impl Behaviour for Producer {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        if received.kind == ANSWER {
            assert_eq!(received.value, self.count, "messages are lost");
            return out.end();
        }
        (0..self.count).for_each(|_| out.tell(1, note(MORE, 0, 1)));
        out.tell(1, note(ASK, 0, 0));
    }
}

struct Counter {
    count: u64,
}

impl Behaviour for Counter {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        match received.kind {
            MORE => self.count += received.value,
            _ => out.tell(received.from, note(ANSWER, 1, self.count)),
        }
    }
}

/// One of the thread ring.
struct Link {
    id: Id,
    hops: u64,
}

impl Behaviour for Link {
    fn receive(&mut self, token: Note, out: &mut dyn Out) {
        let left = match token.kind {
            EXIT => return out.end(),
            ASK => token.value,
            _ => self.hops,
        };
        if left == 0 {
            return out.tell(0, note(EXIT, self.id, 0));
        }
        out.tell((self.id + 1) % RING, note(ASK, self.id, left - 1));
    }
}

/// Waits for all of `big`.
struct Sink {
    crowd: Id,
}

impl Behaviour for Sink {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        if received.kind != EXIT {
            return (1..=CROWD).for_each(|id| out.tell(id, note(MORE, 0, 0)));
        }
        self.crowd -= 1;
        if self.crowd == 0 {
            out.end();
        }
    }
}

struct Bystander {
    id: Id,
    left: u64,
    random: Random,
}

impl Behaviour for Bystander {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        if received.kind == ASK {
            return out.tell(received.from, note(ANSWER, self.id, 0));
        }
        if self.left == 0 {
            return out.tell(0, note(EXIT, self.id, 0));
        }
        self.left -= 1;
        out.tell(1 + self.random.below(CROWD), note(ASK, self.id, 0));
    }
}

struct Forker {
    left: u64,
    count: u64,
}

impl Behaviour for Forker {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        if received.kind != ANSWER {
            return (0..self.count).for_each(|_| out.create(note(ASK, 0, 0)));
        }
        self.left -= 1;
        if self.left == 0 {
            out.end();
        }
    }
}

/// An actor that [`Out::create`] makes.
pub(crate) struct Leaf;

impl Behaviour for Leaf {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        compute(1);
        out.tell(received.from, note(ANSWER, 0, 0));
    }
}

struct Thrower {
    count: u64,
    busy: Id,
}

impl Behaviour for Thrower {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        if received.kind != EXIT {
            return (0..self.count)
                .for_each(|_| (1..=JOINERS).for_each(|id| out.tell(id, note(MORE, 0, 0))));
        }
        self.busy -= 1;
        if self.busy == 0 {
            out.end();
        }
    }
}

struct Joiner {
    left: u64,
}

impl Behaviour for Joiner {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        compute(1);
        self.left -= 1;
        if self.left == 0 {
            out.tell(received.from, note(EXIT, 0, 0));
        }
    }
}

struct Teller {
    left: u64,
    count: u64,
}

impl Behaviour for Teller {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        if received.kind != ANSWER {
            let mut random = Random(0);
            for _ in 0..self.count {
                let from = 1 + random.below(ACCOUNTS * 8 / 10);
                let to = from + 1 + random.below(ACCOUNTS - from);
                out.tell(from, note(ASK, 0, to.into()));
            }
            return;
        }
        self.left -= 1;
        if self.left == 0 {
            out.end();
        }
    }
}

/// An account, which pays to others one after the other.
#[derive(Default)]
struct Account {
    id: Id,
    balance: i64,
    is_paying: bool,
    orders: VecDeque<Id>,
}

impl Behaviour for Account {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        match received.kind {
            ASK => self.orders.push_back(received.value as Id),
            MORE => {
                self.balance += received.value as i64;
                return out.tell(received.from, note(ANSWER, self.id, 0));
            }
            _ => {
                self.is_paying = false;
                out.tell(0, note(ANSWER, self.id, 0));
            }
        }
        if self.is_paying {
            return;
        }
        if let Some(to) = self.orders.pop_front() {
            self.is_paying = true;
            self.balance -= 10;
            out.tell(to, note(MORE, self.id, 10));
        }
    }
}
