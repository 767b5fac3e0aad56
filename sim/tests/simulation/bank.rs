use std::collections::BTreeSet;
use std::time::Duration;

use fiber::actix::{self, prelude::*};
use fiber::manager::{Snapshot, Snapshots};
use fiber::prelude::*;
use fiber::sim::{self, Faults};
use fiber::supervisor::Backoff;

/// An account: its balance, and the transfers that it has seen. A message that is sent again counts
/// once.
struct Account {
    balance: i64,
    seen: BTreeSet<u64>,
}

impl Actor for Account {
    type Context = Context<Self>;
}

impl Snapshot for Account {
    type State = (i64, BTreeSet<u64>);

    fn snapshot(&self) -> Self::State {
        (self.balance, self.seen.clone())
    }

    fn restore(&mut self, (balance, seen): Self::State) {
        (self.balance, self.seen) = (balance, seen);
    }
}

#[fiber::message]
struct Change {
    transfer: u64,
    amount: i64,
}

/// Asks for the balance, and whether the account has seen a transfer.
#[fiber::message((i64, bool))]
struct Look {
    transfer: u64,
}

#[fiber::handlers]
impl Account {
    fn change(&mut self, Change { transfer, amount }: Change) {
        if self.seen.insert(transfer) {
            self.balance += amount;
        }
    }

    fn look(&mut self, Look { transfer }: Look) -> (i64, bool) {
        (self.balance, self.seen.contains(&transfer))
    }
}

async fn change(account: &RemoteAddr<Account>, transfer: u64, amount: i64) -> fiber::Result<()> {
    loop {
        account.send(Change { transfer, amount }).await?;
        // An account that dies now comes back without the change, although it has answered. The
        // answer to a later message arrives after the snapshot with the change.
        let (_, has_seen) = account.send(Look { transfer }).await?;
        if has_seen {
            return Ok(());
        }
    }
}

async fn transfer(
    from: RemoteAddr<Account>,
    to: RemoteAddr<Account>,
    number: u64,
    amount: i64,
) -> fiber::Result<()> {
    change(&from, number, -amount).await?;
    change(&to, number, amount).await
}

#[test]
fn the_bank_keeps_its_sum() {
    sim::check(60, async |world| {
        let mut managers = Vec::new();
        for number in 0..3 {
            let account = AsyncManager::builder()
                .name(format!("account-{number}"))
                .snapshots(Snapshots::every_messages(1))
                .intensity(u32::MAX, Duration::from_secs(1))
                .backoff(Backoff::none())
                .start(|balance| Account { balance, seen: BTreeSet::new() }, 1000);
            managers.push(account.await?);
        }
        // Calls that are pending when an account dies are sent again.
        let accounts: Vec<_> = managers.iter().map(|manager| manager.addr().resend()).collect();

        let storm = world.storm(Faults { kills: 6, ..Faults::default() });
        let transfers: Vec<_> = (0..60)
            .map(|number| {
                let from = world.draw(0..3) as usize;
                let (from, to) = (accounts[from].clone(), accounts[(from + 1) % 3].clone());
                actix::spawn(transfer(from, to, number, world.draw(1..100) as i64))
            })
            .collect();
        for transfer in transfers {
            transfer.await??;
        }
        world.calm(storm).await;

        let mut sum = 0;
        for account in &accounts {
            sum += account.send(Look { transfer: 0 }).await?.0;
        }
        assert_eq!(sum, 3000, "the sum of all accounts");
        Ok(())
    });
}
