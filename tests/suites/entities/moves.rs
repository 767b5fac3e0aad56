//! Keys that move from process to process.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fiber::manager::Snapshots;
use fiber::{Entities, Error};
use fiber_test_support::signals::{exists, kill, send};
use fiber_test_support::wait::{wait_for, wait_until};
use rustix::process::Signal;

use super::account::{Account, Add, Block, Deposit, See, Slow, Where};

#[test]
fn state_moves_with_its_key_and_other_keys_stay() {
    let accounts =
        Entities::builder("moving").processes(2).snapshots(Snapshots::every_messages(1000));
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    let places = || -> Vec<u32> {
        (0..40).map(|key| accounts.of(key).send(Where).wait().unwrap().1).collect()
    };
    for key in 0..40 {
        accounts.of(key).send(Add(key)).wait().unwrap();
    }
    let before = places();
    accounts.scale(4).wait().unwrap();
    let after = places();
    let stayed: HashSet<_> = before.iter().collect();
    let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
    let moved: Vec<_> = moved.map(|(_, after)| after).collect();
    assert!((5..35).contains(&moved.len()), "{} of 40 moved", moved.len());
    assert!(moved.iter().all(|pid| !stayed.contains(pid)));
    accounts.scale(1).wait().unwrap();
    assert_eq!(places().into_iter().collect::<HashSet<_>>().len(), 1);
    for key in 0..40 {
        assert_eq!(accounts.of(key).send(Add(0)).wait().unwrap(), key);
    }
}

const KEYS: u64 = 24;

/// Changes the processes while messages come, and checks that none is lost or out of order.
fn under_load(accounts: &Entities<Account>, change: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sender = |start: u64| {
            let (accounts, is_over) = (accounts.addr(), &is_over);
            move || {
                let mut number = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let answers: Vec<_> = (start..KEYS)
                        .step_by(2)
                        .flat_map(|key| [(key, 2 * number), (key, 2 * number + 1)])
                        .map(|(key, number)| accounts.of(key).send(See(number)))
                        .collect();
                    number += 1;
                    answers.into_iter().for_each(|answer| drop(answer.wait().unwrap()));
                }
                number
            }
        };
        let senders = [scope.spawn(sender(0)), scope.spawn(sender(1))];
        change();
        is_over.store(true, Ordering::Relaxed);
        senders.map(|sender| sender.join().unwrap())
    });
    for key in 0..KEYS {
        let last = 2 * sent[key as usize % 2];
        let seen = accounts.of(key).send(See(last)).wait().unwrap();
        assert_eq!(seen, (0..=last).collect::<Vec<_>>());
    }
}

#[test]
fn nothing_is_lost_or_out_of_order_while_keys_move_under_load() {
    let accounts = Entities::builder("loaded").processes(1).events();
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    under_load(&accounts, || {
        for count in [3, 2, 4, 1, 2] {
            accounts.scale(count).wait().unwrap();
        }
    });
}

/// A drained node: its processes get SIGTERM, first one of two, then all, then the only one.
#[test]
fn nothing_is_lost_or_out_of_order_when_processes_get_sigterm() {
    let accounts = Entities::builder("drained").processes(2).events();
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    let place = |key: u64| accounts.of(key).send(Where).wait().unwrap().1;
    let drain = |pids: HashSet<u32>| {
        let slow: Vec<_> =
            (0..KEYS).map(|key| accounts.of(key).send(Slow(Duration::from_millis(50)))).collect();
        pids.iter().for_each(|pid| send(Signal::TERM, *pid));
        wait_until("the end of the drained processes", || pids.iter().all(|pid| !exists(*pid)));
        assert!((0..KEYS).all(|key| !pids.contains(&place(key))));
        for answer in slow {
            answer.wait().unwrap();
        }
    };
    under_load(&accounts, || {
        drain(HashSet::from([place(0)]));
        assert_eq!(accounts.processes().wait().unwrap(), 2);
        drain((0..KEYS).map(place).collect());
        assert_eq!(accounts.processes().wait().unwrap(), 2);
        accounts.scale(1).wait().unwrap();
        drain(HashSet::from([place(0)]));
    });
    assert_eq!(accounts.processes().wait().unwrap(), 1);
}

#[test]
fn the_successor_of_a_process_that_hangs_at_sigterm_does_not_wait_for_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = Entities::builder("stuck").processes(2).start(Account::new, ()).wait().unwrap();
    let anna = accounts.of("anna").resend();
    let (_, stuck) = anna.send(Where).wait().unwrap();
    let begun = folder.path().join("begun");
    drop(accounts.of("anna").send(Block(begun.clone())));
    wait_until("its handler", || begun.exists());
    send(Signal::TERM, stuck);
    wait_until("the successor", || {
        let processes = fiber::stats().unwrap().report.processes;
        processes.iter().any(|one| one.name.contains("stuck-3") && one.pid.is_some())
    });
    // It would hang for the grace period of 25 s.
    kill(stuck);
    let (_, pid) = anna.send(Where).wait().unwrap();
    assert_ne!(pid, stuck);
}

#[test]
fn a_busy_entity_answers_before_its_key_moves() {
    let accounts = Entities::builder("busy-moves").processes(1).events();
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    let keys: Vec<_> = (0..10).map(|key| accounts.of(key)).collect();
    let slow: Vec<_> = keys
        .iter()
        .map(|key| {
            key.send(Deposit(1)).wait().unwrap();
            key.send(Slow(Duration::from_millis(300)))
        })
        .collect();
    accounts.scale(3).wait().unwrap();
    let behind: Vec<_> = keys.iter().map(|key| key.send(Deposit(1))).collect();
    for answer in slow {
        assert_eq!(answer.wait().unwrap(), 1);
    }
    for answer in behind {
        assert_eq!(answer.wait().unwrap(), 2);
    }
}

#[test]
fn messages_fail_when_no_process_is_left() {
    let accounts = Entities::builder("lost").processes(1);
    let accounts = accounts.manager(|process| process.intensity(0, Duration::from_secs(60)));
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    accounts.of("anna").send(Add(1)).wait().unwrap();
    accounts.kill_processes();
    wait_until("the end of the process", || accounts.processes().wait().unwrap() == 0);
    let error = accounts.of("anna").send(Add(1)).wait().unwrap_err();
    assert!(matches!(error, Error::ActorStopped { .. }), "{error:?}");
    let error = accounts.of("bert").send(Add(1)).wait().unwrap_err();
    assert!(matches!(error, Error::ActorStopped { .. }), "{error:?}");
}

#[test]
fn a_process_that_ends_for_good_leaves_its_keys_to_the_others() {
    let accounts = Entities::builder("mortal").processes(2).events();
    let accounts = accounts.manager(|process| process.intensity(0, Duration::from_secs(60)));
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    let (_, pid) = accounts.of("anna").send(Where).wait().unwrap();
    accounts.of("anna").send(Deposit(1)).wait().unwrap();
    kill(pid);
    let balance = wait_for("an answer", || accounts.of("anna").send(Deposit(1)).wait());
    assert_eq!(balance, 2);
    wait_until("the end of one process", || accounts.processes().wait().unwrap() == 1);
}
