//! Entities whose state is the sum of their events.

use std::time::Duration;

use actix::prelude::*;
use fiber::entities::{EventSourced, RecordedEvent};
use fiber::supervisor::Backoff;
use fiber::{Entities, Error, Journal};
use fiber_test_support::soak;
use fiber_test_support::wait::wait_until;
use serde::{Deserialize, Serialize};

use super::account::{Account, Add, Deposit, GoToSleep, See, Where};

#[test]
fn events_outlive_sleep_and_the_death_of_the_process() {
    let accounts = Entities::builder("events").processes(2).events();
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    for round in 1..=3 {
        for key in 0..10 {
            let account = accounts.of(key);
            assert_eq!(
                account.send(Deposit(i64::from(key))).wait().unwrap(),
                round * i64::from(key)
            );
        }
        accounts.of(round).send(GoToSleep).wait().unwrap();
        let place = |key: i64| accounts.of(key).resend().send(Where).wait().unwrap().1;
        let before: Vec<_> = (0..10).map(place).collect();
        accounts.kill_processes();
        // A message that is sent before might be handled twice.
        wait_until("the restart of all processes", || {
            (0..10).map(place).zip(&before).all(|(after, before)| after != *before)
        });
    }
}

#[test]
fn an_answered_event_is_recorded_when_processes_are_killed() {
    let accounts = Entities::builder("acknowledged").processes(1).events();
    let accounts = accounts
        .manager(|process| process.intensity(100, Duration::from_secs(1)).backoff(Backoff::none()));
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    for round in 0..soak() {
        let account = accounts.of(round);
        let mut answered = 0;
        for number in 0..200 {
            if number % 20 == 10 {
                accounts.kill_processes();
            }
            if account.send(See(number)).wait().is_ok() {
                answered += 1;
            }
        }
        let seen = account.resend().send(See(1000)).wait().unwrap();
        // A message may have been recorded, and its answer lost. None is there twice.
        assert!(seen.len() > answered, "{} of {answered}", seen.len());
        assert!(seen.is_sorted_by(|one, other| one < other), "{seen:?}");
    }
}

#[test]
fn events_and_reads_of_one_caller_keep_their_order() {
    let accounts = Entities::builder("ordered").processes(1).events();
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    let anna = accounts.of("anna");
    let answers: Vec<_> = (0..500).map(|number| anna.send(See(number))).collect();
    for (number, answer) in (1..).zip(answers) {
        let seen = answer.wait().unwrap();
        assert_eq!(seen, (0..number).collect::<Vec<_>>());
    }
}

#[test]
fn a_journal_keeps_them_for_the_next_start_with_and_without_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let journal = || Journal::at(folder.path());
    let start = || {
        let accounts = Entities::builder("durable").processes(2).events_and_snapshots(3);
        accounts.durable(journal()).start(Account::new, ()).wait().unwrap()
    };
    for run in 1..=4 {
        let accounts = start();
        for key in ["anna", "b/e@r#t", ""] {
            for more in 1..=5 {
                let expected = (run - 1) * 5 + more;
                assert_eq!(accounts.of(key).send(Deposit(1)).wait().unwrap(), expected);
            }
        }
        accounts.stop().wait().unwrap();
    }
    // A program without the snapshots can't know their effects.
    let accounts = Entities::builder("durable").processes(1).events().durable(journal());
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    let error = accounts.of("anna").send(Deposit(1)).wait().unwrap_err();
    assert!(error.to_string().contains("events_and_snapshots"), "{error}");
}

#[test]
fn one_journal_has_entities_of_a_name_once() {
    let folder = tempfile::tempdir().unwrap();
    let builder = |name: &str| {
        Entities::builder(name).processes(1).events().durable(Journal::at(folder.path()))
    };
    let accounts = builder("once").start(Account::new, ()).wait().unwrap();
    let error = builder("once").start(Account::new, ()).wait().unwrap_err();
    assert!(matches!(error, Error::Invalid { .. } | Error::NameTaken { .. }), "{error:?}");
    let error = builder("with/slash").start(Account::new, ()).wait().unwrap_err();
    assert!(error.to_string().contains("must not be empty, nor contain"), "{error}");
    accounts.of("anna").send(Add(1)).wait().unwrap();
}

/// A thermometer, of which two versions of a program exist.
struct Old(f64);
struct New(f64);

impl Actor for Old {
    type Context = Context<Self>;
}

impl Actor for New {
    type Context = Context<Self>;
}

#[fiber::message(f64)]
struct Warm(f64);

impl EventSourced for Old {
    type Event = f64;

    fn apply(&mut self, fahrenheit: f64) {
        self.0 += fahrenheit;
    }
}

#[fiber::handlers]
impl Old {
    fn warm(&mut self, Warm(degrees): Warm) -> f64 {
        self.persist(degrees);
        self.0
    }
}

#[derive(Serialize, Deserialize)]
struct Celsius {
    degrees: f64,
}

impl EventSourced for New {
    type Event = Celsius;

    const VERSION: u32 = 2;

    fn apply(&mut self, event: Celsius) {
        self.0 += event.degrees;
    }

    fn upcast(event: RecordedEvent<'_>) -> fiber::Result<Celsius> {
        match event.version() {
            1 => event.decode::<f64>().map(|degrees| Celsius { degrees: degrees / 1.8 }),
            _ => Err(event.unknown_version()),
        }
    }
}

#[fiber::handlers]
impl New {
    fn warm(&mut self, Warm(degrees): Warm) -> f64 {
        self.persist(Celsius { degrees });
        self.0
    }
}

#[test]
fn a_newer_program_reads_older_events_and_an_older_one_refuses_newer_ones() {
    let folder = tempfile::tempdir().unwrap();
    let journal = || Journal::at(folder.path());
    let old = || {
        let rooms = Entities::builder("rooms").processes(1).events().durable(journal());
        rooms.start(|_: String, ()| Old(0.0), ()).wait().unwrap()
    };
    let rooms = old();
    assert_eq!(rooms.of("kitchen").send(Warm(18.0)).wait().unwrap(), 18.0);
    rooms.stop().wait().unwrap();
    let rooms = Entities::builder("rooms").processes(1).events().durable(journal());
    let rooms = rooms.start(|_: String, ()| New(0.0), ()).wait().unwrap();
    assert_eq!(rooms.of("kitchen").send(Warm(5.0)).wait().unwrap(), 15.0);
    rooms.stop().wait().unwrap();
    let rooms = old();
    let error = rooms.of("kitchen").send(Warm(1.0)).wait().unwrap_err();
    assert!(error.to_string().contains("recorded in version 2"), "{error}");
    assert_eq!(rooms.of("cellar").send(Warm(1.0)).wait().unwrap(), 1.0);
}

#[test]
fn an_event_outside_of_entities_is_applied_alone() {
    let mut account = Account::default();
    account.persist(super::account::Event::Deposited(5));
    assert_eq!(account.balance, 5);
}
