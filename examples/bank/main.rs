//! A bank whose processes die at any time, and that loses no transfer: accounts by key, which keep
//! their state by events in a journal.
//!
//! ```text
//! cargo run --release -p fiber-examples --example bank    # end it with Ctrl-C or kill -9
//! cargo run --release -p fiber-examples --example bank    # it goes on, and checks all accounts
//! fiber journal show fiber-journals/bank                  # what it has recorded
//! rm -r fiber-journals/bank fiber-journals/bank-receipts  # a new bank
//! ```
//!
//! Four tellers transfer money between 20 accounts, each in a process of its own. A transfer changes
//! two accounts, which may be in different processes: `account.rs` says how both change, or none.
//! Each teller notes the answers that it gets in a file of receipts. Meanwhile processes kill
//! themselves in the worst moments, all processes of accounts are killed at once, and accounts move
//! to other processes. At the end, the balances must be those that the receipts say.
//!
//! `--transfers 1000` sets how many transfers each teller makes, `--deaths 50` that one step of 50
//! kills its process (0 is none), and `--folder` where the journal and the receipts are.

mod account;
mod teller;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use fiber::prelude::*;
use fiber::supervisor::Backoff;
use fiber::{Entities, Journal};
use lexopt::prelude::*;
use rustix::process::{Signal, getpid, kill_process};

use self::account::{Account, Outcome, ShowBalance, deliver};
use self::teller::{Receipt, Teller, receipts, work};

/// The name of the entities.
const BANK: &str = "bank";
const ACCOUNTS: usize = 20;
const TELLERS: u32 = 4;
/// The balance of a new account.
const OPENING: u64 = 1_000;

struct Options {
    transfers: u64,
    deaths: u32,
    folder: PathBuf,
}

impl Options {
    fn read() -> Result<Options, lexopt::Error> {
        let mut options = Options { transfers: 250, deaths: 150, folder: "fiber-journals".into() };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("transfers") => options.transfers = arguments.value()?.parse()?,
                Long("deaths") => options.deaths = arguments.value()?.parse()?,
                Long("folder") => options.folder = arguments.value()?.into(),
                other => return Err(other.unexpected()),
            }
        }
        Ok(options)
    }
}

fn account_name(number: usize) -> String {
    format!("account-{number}")
}

/// Kills this process in one call of `deaths`.
fn perhaps_die(deaths: u32) {
    if deaths > 0 && fastrand::u32(0..deaths) == 0 {
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

/// Kills the processes of the accounts, or lets the accounts move to more or fewer processes.
async fn disturb(accounts: &Entities<Account>) -> fiber::Result<()> {
    if fastrand::bool() {
        println!("killing all processes of accounts");
        accounts.kill_processes();
        return Ok(());
    }
    let processes = fastrand::usize(1..=4);
    println!("moving the accounts to {processes} processes");
    accounts.scale(processes).await
}

/// Compares all accounts with the receipts of the tellers.
async fn check(
    accounts: &Entities<Account>,
    folder: &Path,
    transfers: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut expected: BTreeMap<_, _> =
        (0..ACCOUNTS).map(|number| (account_name(number), OPENING as i64)).collect();
    let (mut accepted, mut refused) = (0, 0);
    for teller in 0..TELLERS {
        let receipts = receipts(folder, teller)?;
        if (receipts.len() as u64) < transfers {
            return Err(format!("teller {teller} has only {} receipts", receipts.len()).into());
        }
        for Receipt { order, outcome } in receipts {
            match outcome {
                Outcome::Accepted => {
                    accepted += 1;
                    *expected.entry(order.from).or_default() -= order.amount as i64;
                    *expected.entry(order.to).or_default() += order.amount as i64;
                }
                Outcome::Refused => refused += 1,
            }
        }
    }
    // Reminders deliver the payments that are still under way, within a second.
    for name in expected.keys() {
        deliver(name.clone()).await?;
    }
    let mut sum = 0;
    for (name, expected) in &expected {
        let balance = accounts.of(name).resend().send(ShowBalance).await? as i64;
        if balance != *expected {
            return Err(format!("{name} has {balance} in place of {expected}").into());
        }
        sum += balance;
    }
    if sum != OPENING as i64 * ACCOUNTS as i64 {
        return Err(format!("the accounts have {sum} in sum").into());
    }
    println!("{accepted} transfers were accepted, and {refused} refused for want of money");
    println!("each is in both accounts once; {ACCOUNTS} accounts have {sum} in sum");
    Ok(())
}

#[fiber::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Options { transfers, deaths, folder } = Options::read()?;
    let (journal, receipts) = (folder.join("bank"), folder.join("bank-receipts"));
    std::fs::create_dir_all(&receipts)
        .map_err(|error| format!("{} can't be created: {error}", receipts.display()))?;

    // The processes may die as often as they like.
    let accounts = Entities::builder(BANK).processes(2).events_and_snapshots(50).reminders();
    let accounts = accounts.durable(Journal::at(journal)).manager(|process| {
        process.intensity(u32::MAX, Duration::from_secs(1)).backoff(Backoff::none())
    });
    let accounts = accounts.start(Account::new, deaths).await?;
    let pool = Pool::builder().name("tellers").processes(TELLERS as usize).start().await?;
    let tellers: Vec<_> = (0..TELLERS)
        .map(|number| Teller { number, transfers, deaths, folder: receipts.clone() })
        .collect();
    let mut all_work = pin!(pool.max_deaths(u32::MAX).try_map(work, tellers));
    loop {
        tokio::select! {
            done = &mut all_work => break drop(done?),
            () = tokio::time::sleep(Duration::from_millis(200)), if deaths > 0 => {
                disturb(&accounts).await?;
            }
        }
    }
    check(&accounts, &receipts, transfers).await?;
    accounts.stop().await?;
    Ok(())
}
