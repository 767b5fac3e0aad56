//! Random lives of supervisors: whatever happens in whatever order, the promises hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fastrand::Rng;
use fiber_core::ExitReason;
use fiber_core::stats::Strategy as Restarts;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Effect, Event, Key, Options, Origin, Request, Rules, StopMethod, Supervision, Turn};
use crate::supervisor::intensity::{Intensity, RestartLimits};
use crate::supervisor::{Backoff, Counts, Restart, Shutdown};
use fiber_test_support::trace;

const CRASH: ExitReason = ExitReason::Code(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Something that may happen to a supervisor. A number selects a child that exists.
#[derive(Clone, Debug)]
enum Happening {
    Started(usize),
    Exited {
        child: usize,
        is_normal: bool,
        has_worked: bool,
    },
    /// A report of an incarnation that may have ended.
    Stale {
        child: usize,
        started: bool,
    },
    Add {
        name: u8,
        rules: Choice,
        is_awaited: bool,
    },
    StopChild {
        name: u8,
        kill: bool,
    },
    /// The time goes on until the deadline, if there is one.
    Wait,
    Pass(Duration),
    Stop,
    Kill,
}

/// The rules of a child.
#[derive(Clone, Copy, Debug)]
struct Choice {
    restart: Restart,
    shutdown: Shutdown,
    counts: bool,
}

/// The supervisor and its first children.
#[derive(Clone, Debug)]
struct Start {
    strategy: Restarts,
    restarts: u32,
    children: Vec<Choice>,
    seed: u64,
}

fn choice() -> impl Strategy<Value = Choice> {
    let restart = prop_oneof![
        4 => Just(Restart::Permanent),
        1 => Just(Restart::Transient),
        1 => Just(Restart::Temporary),
    ];
    let shutdown = prop_oneof![
        Just(Shutdown::Kill),
        Just(Shutdown::Wait),
        Just(Shutdown::After(Duration::ZERO)),
        Just(Shutdown::After(Duration::from_secs(3))),
        Just(Shutdown::After(Duration::MAX)),
    ];
    (restart, shutdown, any::<bool>()).prop_map(|(restart, shutdown, counts)| Choice {
        restart,
        shutdown,
        counts,
    })
}

fn start() -> impl Strategy<Value = Start> {
    let strategy = prop_oneof![
        Just(Restarts::OneForOne),
        Just(Restarts::OneForAll),
        Just(Restarts::RestForOne)
    ];
    (strategy, 0u32..6, vec(choice(), 0..5), any::<u64>()).prop_map(
        |(strategy, restarts, children, seed)| Start { strategy, restarts, children, seed },
    )
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        9 => any::<usize>().prop_map(Happening::Started),
        6 => (any::<usize>(), any::<bool>(), any::<bool>()).prop_map(
            |(child, is_normal, has_worked)| Happening::Exited { child, is_normal, has_worked }
        ),
        1 => (any::<usize>(), any::<bool>())
            .prop_map(|(child, started)| Happening::Stale { child, started }),
        3 => (0u8..9, choice(), any::<bool>())
            .prop_map(|(name, rules, is_awaited)| Happening::Add { name, rules, is_awaited }),
        2 => (0u8..9, any::<bool>()).prop_map(|(name, kill)| Happening::StopChild { name, kill }),
        4 => Just(Happening::Wait),
        2 => (0u64..4_000).prop_map(|millis| Happening::Pass(Duration::from_millis(millis))),
        1 => proptest::bool::weighted(0.2)
            .prop_map(|stop| if stop { Happening::Stop } else { Happening::Wait }),
        1 => proptest::bool::weighted(0.1)
            .prop_map(|kill| if kill { Happening::Kill } else { Happening::Wait }),
    ]
}

/// A child as its effects show it.
#[derive(Debug, Default)]
struct Seen {
    incarnation: u64,
    is_alive: bool,
    has_started: bool,
    was_asked: bool,
    was_killed: bool,
}

/// A supervision, and the world around it.
struct Story {
    supervision: Supervision,
    now: Instant,
    began: Instant,
    chance: Rng,
    children: BTreeMap<Key, Seen>,
    unanswered: BTreeSet<Request>,
    last_request: u64,
    is_ready: bool,
    end: Option<ExitReason>,
    /// The effects, as text, with the time of each.
    trace: Vec<String>,
}

impl Story {
    fn new(start: &Start) -> Story {
        let options = Options {
            strategy: start.strategy,
            limits: RestartLimits {
                intensity: Intensity { restarts: start.restarts, period: Duration::from_secs(5) },
                backoff: Backoff::new(Duration::from_millis(100), LONGEST_PAUSE),
            },
            is_quiet: false,
            is_of_one: false,
        };
        let now = Instant::now();
        let mut story = Story {
            supervision: Supervision::new("app", options),
            now,
            began: now,
            chance: Rng::with_seed(start.seed),
            children: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            last_request: 0,
            is_ready: false,
            end: None,
            trace: Vec::new(),
        };
        for (number, choice) in start.children.iter().enumerate() {
            let name = format!("child-{number}");
            let key = story.supervision.insert(&name, rules(*choice), Origin::Builder).unwrap();
            story.children.insert(key, Seen::default());
        }
        story.feed(Event::Begin);
        story
    }

    fn select(&self, number: usize, is: impl Fn(&Seen) -> bool) -> Option<(Key, u64)> {
        let all: Vec<_> = self.children.iter().filter(|(_, seen)| is(seen)).collect();
        let (key, seen) = all.get(number.checked_rem(all.len())?)?;
        Some((**key, seen.incarnation))
    }

    fn request(&mut self) -> Request {
        self.last_request += 1;
        self.unanswered.insert(Request(self.last_request));
        Request(self.last_request)
    }

    fn happen(&mut self, happening: &Happening) {
        let event = match happening {
            Happening::Started(number) => {
                let starting = |seen: &Seen| seen.is_alive && !seen.has_started;
                let Some((key, incarnation)) = self.select(*number, starting) else { return };
                Event::Started { key, incarnation }
            }
            Happening::Exited { child, is_normal, has_worked } => {
                let Some((key, incarnation)) = self.select(*child, |seen| seen.is_alive) else {
                    return;
                };
                let reason = if *is_normal { ExitReason::Normal } else { CRASH };
                Event::Exited { key, incarnation, reason, has_worked: *has_worked }
            }
            Happening::Stale { child, started } => {
                let Some((key, incarnation)) = self.select(*child, |_| true) else { return };
                let Some(incarnation) = incarnation.checked_sub(1) else { return };
                let before = self.trace.len();
                match started {
                    true => self.feed(Event::Started { key, incarnation }),
                    false => self.feed(Event::Exited {
                        key,
                        incarnation,
                        reason: CRASH,
                        has_worked: false,
                    }),
                }
                assert_eq!(self.trace.len(), before, "it comes from an earlier incarnation");
                return;
            }
            Happening::Add { name, rules: choice, is_awaited } => {
                let request = self.request();
                let origin = if *is_awaited { Origin::Adding(request) } else { Origin::Added };
                let name = format!("child-{name}");
                match self.supervision.insert(&name, rules(*choice), origin) {
                    Ok(key) => {
                        self.children.insert(key, Seen::default());
                        if !is_awaited {
                            self.unanswered.remove(&request);
                        }
                        Event::Added(key)
                    }
                    Err(_) => {
                        self.unanswered.remove(&request);
                        return;
                    }
                }
            }
            Happening::StopChild { name, kill } => {
                let method = if *kill { StopMethod::Kill(CRASH) } else { StopMethod::Stop };
                let (name, request) = (format!("child-{name}"), self.request());
                Event::StopChild { name, method, request }
            }
            Happening::Wait => {
                let Some(deadline) = self.supervision.deadline() else { return };
                self.now = self.now.max(deadline);
                Event::Deadline
            }
            Happening::Pass(time) => {
                self.now += *time;
                Event::Deadline
            }
            Happening::Stop => Event::Stop,
            Happening::Kill => Event::Kill(CRASH),
        };
        self.feed(event);
    }

    fn feed(&mut self, event: Event) {
        let mut effects = Vec::new();
        let had_ended = self.end.is_some();
        let (now, chance) = (self.now, &mut || self.chance.f64());
        if let (Event::StopChild { request, .. }, true) = (&event, had_ended) {
            // The driver has gone.
            self.unanswered.remove(request);
        }
        self.supervision.handle(event, &mut Turn { now, chance, effects: &mut effects });
        assert!(!had_ended || effects.is_empty(), "{effects:?} after the end");
        for effect in effects {
            self.trace.push(format!("{:?} {effect:?}", self.now - self.began));
            self.check(effect);
        }
    }

    fn check(&mut self, effect: Effect) {
        assert!(self.end.is_none(), "{effect:?} after the end");
        let child = |key: Key, children: &mut BTreeMap<Key, Seen>| {
            children.remove(&key).expect("no effect for a child that was removed")
        };
        match effect {
            Effect::Start { key, incarnation } => {
                let seen = child(key, &mut self.children);
                assert!(!seen.is_alive, "{key:?} has two incarnations");
                assert_eq!(incarnation, seen.incarnation + 1);
                let seen = Seen { incarnation, is_alive: true, ..Seen::default() };
                self.children.insert(key, seen);
            }
            Effect::Started(key) => {
                let seen = child(key, &mut self.children);
                assert!(seen.is_alive && !seen.has_started);
                self.children.insert(key, Seen { has_started: true, ..seen });
            }
            Effect::Shutdown(key) => {
                let seen = child(key, &mut self.children);
                assert!(seen.is_alive && seen.has_started && !seen.was_asked && !seen.was_killed);
                self.children.insert(key, Seen { was_asked: true, ..seen });
            }
            Effect::Kill(key, _) => {
                let seen = child(key, &mut self.children);
                assert!(seen.is_alive && seen.has_started && !seen.was_killed);
                self.children.insert(key, Seen { was_killed: true, ..seen });
            }
            Effect::Ended { key, .. } => {
                let seen = child(key, &mut self.children);
                assert!(seen.is_alive, "{key:?} ended twice");
                self.children.insert(key, Seen { is_alive: false, ..seen });
            }
            Effect::Finished(key) => {
                let seen = child(key, &mut self.children);
                assert!(!seen.is_alive);
                self.children.insert(key, seen);
            }
            Effect::Remove { key, .. } => assert!(!child(key, &mut self.children).is_alive),
            Effect::Answer(request, _) => {
                assert!(self.unanswered.remove(&request), "{request:?} has two answers");
            }
            Effect::Failed { pause, .. } => assert!(pause <= LONGEST_PAUSE),
            Effect::Late(key) => assert!(self.children[&key].was_asked),
            Effect::Unconfirmed(key) => assert!(self.children[&key].was_killed),
            Effect::GaveUp(_) => {}
            Effect::Ready => assert!(!std::mem::replace(&mut self.is_ready, true), "ready twice"),
            Effect::End(reason) => {
                assert!(self.children.is_empty(), "{:?} are left", self.children);
                self.end = Some(reason);
            }
        }
    }

    /// Stops the supervisor, and lets all children end.
    fn finish(&mut self) {
        self.feed(Event::Stop);
        for _ in 0..1_000 {
            if self.end.is_some() {
                break;
            }
            self.happen(&Happening::Exited { child: 0, is_normal: true, has_worked: false });
        }
        assert!(self.end.is_some(), "the supervisor does not end: {:?}", self.children);
        assert_eq!(self.unanswered, BTreeSet::new(), "these callers got no answer");
    }
}

fn rules(choice: Choice) -> Rules {
    let Choice { restart, shutdown, counts } = choice;
    let counts = if counts { Counts::Always } else { Counts::BeforeReady };
    Rules { restart, shutdown, counts, gives_up_itself: false }
}

/// Lives a life to its end. Returns the effects.
fn live((start, happenings): &(Start, Vec<Happening>)) -> Vec<String> {
    let mut story = Story::new(start);
    happenings.iter().for_each(|happening| story.happen(happening));
    story.finish();
    story.trace
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn random_supervisors_keep_their_promises(life in (start(), vec(happening(), 0..80))) {
        live(&life);
    }
}

#[test]
fn a_seed_determines_the_effects_of_a_supervisor() {
    trace::assert_repeatable(
        concat!(module_path!(), "::a_seed_determines_the_effects_of_a_supervisor"),
        |seed| live(&trace::drawn(seed, (start(), vec(happening(), 100)))),
    );
}
