//! An entity's life in its process: it starts with a message, sleeps, panics.

use std::collections::HashSet;
use std::time::Duration;

use fiber::entities::{EntitiesAddr, find_entities};
use fiber::manager::Snapshots;
use fiber::{Entities, Error, Pool, find};
use fiber_test_support::wait::wait_until;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::account::{Account, Add, Deposit, GoToSleep, Panic, Slow, Unreadable, Where};

#[test]
fn each_key_has_an_entity_of_its_own_in_one_process() {
    let accounts = Entities::builder("own").processes(3).start(Account::new, ()).wait().unwrap();
    let mut pids = HashSet::new();
    for key in 0..30 {
        let (found, pid) = accounts.of(key).send(Where).wait().unwrap();
        assert_eq!(found, key.to_string());
        assert_eq!(accounts.of(key).send(Where).wait().unwrap().1, pid);
        assert_eq!(accounts.of(key).send(Add(i64::from(key))).wait().unwrap(), i64::from(key));
        pids.insert(pid);
    }
    assert_eq!(pids.len(), 3);
    assert!(!pids.contains(&std::process::id()));
}

#[test]
fn any_process_finds_them_and_reaches_the_same_ones() {
    let accounts = Entities::builder("found").processes(2).start(Account::new, ()).wait().unwrap();
    let by_name = |key: u32| find_entities::<Account>("found").wait()?.of(key).send(Add(1)).wait();
    let by_addr =
        |(accounts, key): (EntitiesAddr<Account>, u32)| accounts.of(key).send(Add(1)).wait();
    let pool = Pool::new(2).unwrap();
    pool.try_map(by_name, (0..40).map(|number| number % 4)).wait().unwrap();
    let addrs: Vec<_> = (0..40).map(|number| (accounts.addr(), number % 4)).collect();
    pool.try_map(by_addr, addrs).wait().unwrap();
    for key in 0..4 {
        assert_eq!(accounts.of(key).send(Add(0)).wait().unwrap(), 20);
    }
}

#[test]
fn a_name_of_another_kind_or_type_is_refused() {
    let _accounts = Entities::builder("typed").processes(1).start(Account::new, ()).wait().unwrap();
    let again = Entities::builder("typed").processes(1).start(Account::new, ()).wait();
    assert!(matches!(again, Err(Error::NameTaken { .. })), "{again:?}");
    let error = find::<Account>("typed").wait().unwrap_err();
    assert!(matches!(error, Error::OtherType { .. }), "{error:?}");
    let error = find_entities::<Account>("no such entities").wait().unwrap_err();
    assert!(matches!(error, Error::NoSuchName { .. }), "{error:?}");
}

#[test]
fn the_name_is_free_when_they_have_stopped_and_messages_fail() {
    let start = || Entities::builder("again").processes(1).start(Account::new, ()).wait().unwrap();
    let accounts = start();
    let old = accounts.of("anna");
    assert_eq!(old.send(Add(1)).wait().unwrap(), 1);
    accounts.stop().wait().unwrap();
    let error = old.send(Add(1)).wait().unwrap_err();
    assert!(matches!(error, Error::ActorStopped { .. }), "{error:?}");
    let accounts = start();
    assert_eq!(accounts.of("anna").send(Add(1)).wait().unwrap(), 1);
}

#[test]
fn a_panic_fails_its_call_and_the_next_message_finds_the_kept_state() {
    let accounts = Entities::builder("panics").processes(1).events();
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    let anna = accounts.of("anna");
    anna.send(Deposit(5)).wait().unwrap();
    // Without an event, this is lost with the actor.
    anna.send(Add(100)).wait().unwrap();
    let slow = anna.send(Slow(Duration::from_secs(3600)));
    let panicking = anna.send(Panic);
    let behind = anna.send(Deposit(1));
    let error = panicking.wait().unwrap_err();
    assert!(error.to_string().contains("the account is closed"), "{error}");
    let error = slow.wait().unwrap_err();
    assert!(error.to_string().contains("the account is closed"), "{error}");
    assert_eq!(behind.wait().unwrap(), 6);
    assert_eq!(accounts.of("bert").send(Add(1)).wait().unwrap(), 1);
}

#[test]
fn a_message_that_panics_when_it_is_read_costs_no_entity() {
    let accounts = Entities::builder("unread").processes(1).start(Account::new, ()).wait().unwrap();
    accounts.of("bert").send(Add(5)).wait().unwrap();
    let error = accounts.of("anna").send(Unreadable).wait().unwrap_err();
    assert!(error.to_string().contains("nobody can read it"), "{error}");
    // Nothing keeps his balance but his life.
    assert_eq!(accounts.of("bert").send(Add(0)).wait().unwrap(), 5);
}

#[test]
fn messages_without_an_answer_that_reach_no_entity_are_dead_letters() {
    let accounts = Entities::builder("letters").processes(1).start(Account::new, ());
    let accounts = accounts.wait().unwrap();
    let anna = accounts.of("anna");
    anna.do_send(Add(1));
    assert_eq!(anna.send(Add(1)).wait().unwrap(), 2);
    accounts.stop().wait().unwrap();
    (0..3).for_each(|_| anna.do_send(Add(1)));
    wait_until("three dead letters", || {
        let letters = fiber::stats().unwrap().report.dead_letters;
        letters.iter().any(|letters| letters.actor == "letters" && letters.count == 3)
    });
}

#[test]
fn a_factory_that_panics_fails_the_messages_and_is_called_again() {
    let create = |key: String, (): ()| {
        assert!(!key.starts_with("bad"), "no account for {key}");
        Account::new(key, ())
    };
    let accounts = Entities::builder("unmade").processes(1).start(create, ()).wait().unwrap();
    for _ in 0..2 {
        let error = accounts.of("bad one").send(Add(1)).wait().unwrap_err();
        assert!(error.to_string().contains("no account for bad one"), "{error}");
    }
    assert_eq!(accounts.of("good one").send(Add(1)).wait().unwrap(), 1);
}

#[test]
fn an_entity_without_messages_sleeps_and_its_snapshot_wakes_up() {
    let accounts = Entities::builder("sleepers").processes(1).idle(Duration::from_millis(5));
    let accounts = accounts.snapshots(Snapshots::every_messages(1000));
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    let anna = accounts.of("anna");
    for sum in 1..=5 {
        assert_eq!(anna.send(Add(1)).wait().unwrap(), sum);
        std::thread::sleep(Duration::from_millis(30));
    }
    // Where nothing is kept, the state of the factory shows that an entity has slept.
    let forgetful = Entities::builder("forgetful").processes(1).idle(Duration::from_millis(5));
    let forgetful = forgetful.start(Account::new, ()).wait().unwrap();
    assert_eq!(forgetful.of("anna").send(Add(1)).wait().unwrap(), 1);
    wait_until("its sleep", || forgetful.of("anna").send(Add(1)).wait().unwrap() == 1);
    // It is saved when it ends by itself, too.
    anna.send(GoToSleep).wait().unwrap();
    assert_eq!(anna.send(Add(1)).wait().unwrap(), 6);
}

#[test]
fn messages_behind_one_that_ends_the_entity_go_to_the_next_one() {
    let accounts =
        Entities::builder("restless").processes(1).snapshots(Snapshots::every_messages(1));
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    let anna = accounts.of("anna");
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(anna.send(Add(1)));
        drop(anna.send(GoToSleep));
    }
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.wait().unwrap()).collect();
    assert_eq!(answers, (1..=20).collect::<Vec<_>>());
}

#[test]
fn bad_options_are_refused_with_what_to_do() {
    let start = || Entities::builder("bad").processes(0).start(Account::new, ());
    assert!(start().wait().unwrap_err().to_string().contains("at least 1 process"));
    let accounts = Entities::builder("plain").processes(1).start(Account::new, ()).wait().unwrap();
    assert!(accounts.scale(0).wait().unwrap_err().to_string().contains("`stop` ends all"));
    let error = accounts.of("anna").send(Deposit(1)).wait().unwrap_err();
    assert!(error.to_string().contains("Entities::builder(..).events()"), "{error}");
    let error = accounts.of("anna").remind("x", Duration::from_secs(1)).wait().unwrap_err();
    assert!(error.to_string().contains("Entities::builder(..).reminders()"), "{error}");
    let error = accounts.of("anna").remind_every("x", Duration::ZERO).wait().unwrap_err();
    assert!(error.to_string().contains("at least 1 ms"), "{error}");
}

#[test]
fn more_processes_than_any_session_has_are_refused() {
    let before = getrlimit(Resource::Data);
    // Without the check, this would end by a lack of memory, and not take all of the machine's.
    let limit = Rlimit { current: Some(4 << 30), ..before };
    setrlimit(Resource::Data, limit).expect("it is a soft limit");
    let endless = Entities::builder("endless").processes(usize::MAX).start(Account::new, ());
    let error = endless.wait().unwrap_err();
    assert!(matches!(error, Error::Invalid { method: "EntitiesBuilder::processes", .. }));
    assert!(error.to_string().contains("there can be 100000"), "{error}");
    let few = Entities::builder("few").processes(1).start(Account::new, ()).wait().unwrap();
    let error = few.scale(usize::MAX).wait().unwrap_err();
    assert!(matches!(error, Error::Invalid { method: "Entities::scale", .. }), "{error}");
    assert_eq!(few.processes().wait().unwrap(), 1);
    setrlimit(Resource::Data, before).expect("it was the limit");
}
