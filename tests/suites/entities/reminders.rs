//! Reminders of entities.

use std::time::{Duration, Instant};

use fiber::entities::this;
use fiber::{Entities, Error, Journal};
use fiber_test_support::wait::wait_for;

use super::account::{Account, Add, RemindYourself};

/// The balance of a key once it is at least this.
fn balance(accounts: &Entities<Account>, key: &str, at_least: i64) -> i64 {
    wait_for(key, || {
        let balance = accounts.of(key).send(Add(0)).wait().unwrap();
        if balance >= at_least { Ok(balance) } else { Err(balance) }
    })
}

#[test]
fn a_reminder_wakes_a_sleeping_entity_once_or_again_and_again() {
    let accounts = Entities::builder("reminded").processes(1).idle(Duration::from_millis(1));
    let accounts = accounts.events().reminders().start(Account::new, ()).wait().unwrap();
    accounts.of("once").remind("pay", Duration::from_millis(20)).wait().unwrap();
    accounts.of("often").remind_every("pay", Duration::from_millis(10)).wait().unwrap();
    let begun = Instant::now();
    accounts.of("never").remind("pay", Duration::from_millis(100)).wait().unwrap();
    accounts.of("never").forget_reminder("pay").wait().unwrap();
    // On a busy host it may be due before it is forgotten.
    let in_time = begun.elapsed() < Duration::from_millis(100);
    accounts.of("later").remind("pay", Duration::from_secs(3600)).wait().unwrap();
    accounts.of("later").remind("pay", Duration::from_millis(1)).wait().unwrap();
    assert_eq!(balance(&accounts, "later", 100), 100);
    assert_eq!(balance(&accounts, "once", 100), 100);
    balance(&accounts, "often", 500);
    accounts.of("often").forget_reminder("pay").wait().unwrap();
    accounts.of("once").forget_reminder("no such reminder").wait().unwrap();
    // A reminder that is due behind them shows that their times have passed.
    accounts.of("last").remind("pay", Duration::from_millis(120)).wait().unwrap();
    balance(&accounts, "last", 100);
    assert_eq!(balance(&accounts, "once", 0), 100);
    assert!(!in_time || balance(&accounts, "never", 0) == 0);
}

#[test]
fn an_entity_knows_its_own_address() {
    let accounts = Entities::builder("own-address").processes(1).events().reminders();
    let accounts = accounts.start(Account::new, ()).wait().unwrap();
    let anna = accounts.of("anna");
    assert_eq!(anna.send(RemindYourself).wait().unwrap(), anna);
    balance(&accounts, "anna", 100);
    let error = this::<Account>().unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
}

#[test]
fn reminders_outlive_the_program_in_a_journal_and_the_death_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let accounts = Entities::builder("bills").processes(1).events().reminders();
        let accounts = accounts.durable(Journal::at(folder.path()));
        accounts.start(Account::new, ()).wait().unwrap()
    };
    let accounts = start();
    accounts.of("anna").remind("pay", Duration::from_millis(400)).wait().unwrap();
    accounts.of("bert").remind("pay", Duration::from_secs(3600)).wait().unwrap();
    accounts.stop().wait().unwrap();
    let accounts = start();
    accounts.kill_processes();
    assert_eq!(balance_after_deaths(&accounts), 100);
    accounts.of("bert").forget_reminder("pay").wait().unwrap();
    accounts.stop().wait().unwrap();
    let accounts = start();
    assert_eq!(balance(&accounts, "anna", 0), 100);
}

fn balance_after_deaths(accounts: &Entities<Account>) -> i64 {
    wait_for("the reminder", || match accounts.of("anna").resend().send(Add(0)).wait().unwrap() {
        0 => Err(()),
        balance => Ok(balance),
    })
}
