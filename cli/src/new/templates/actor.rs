//! An actor in a process of its own: fiber restarts it when it dies, with the state that it had.

use fiber::manager::{Snapshot, Snapshots};
use fiber::prelude::*;

/// A plain actix actor.
struct Account {
    balance: i64,
}

impl Actor for Account {
    type Context = Context<Self>;
}

/// The state that outlives the actor's process.
impl Snapshot for Account {
    type State = i64;

    fn snapshot(&self) -> i64 {
        self.balance
    }

    fn restore(&mut self, balance: i64) {
        self.balance = balance;
    }
}

/// A message, which travels between processes. A negative amount is a withdrawal.
#[fiber::message(i64)]
struct Deposit(i64);

#[fiber::handlers]
impl Account {
    fn deposit(&mut self, Deposit(amount): Deposit) -> i64 {
        let balance = self.balance + amount;
        assert!(balance >= 0, "{} is too little for {amount}", self.balance);
        self.balance = balance;
        balance
    }
}

fn open(balance: i64) -> fiber::Result<AsyncManager<Account>> {
    AsyncManager::builder()
        .name("account")
        .snapshots(Snapshots::every_messages(1))
        .start(|balance| Account { balance }, balance)
        .wait() // in async code: `.await`
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    let account = open(100)?;
    println!("after a deposit: {}", account.send(Deposit(20)).wait()?);

    // A panic fails its call alone.
    let error = account
        .send(Deposit(-500))
        .wait()
        .expect_err("the account has too little");
    println!("refused: {error}");

    // The address works in any process: here in the workers of a pool.
    let deposit = |account: RemoteAddr<Account>| account.send(Deposit(5)).wait();
    Pool::new(2)?
        .try_map(deposit, vec![account.addr(); 4])
        .wait()?;
    println!("after four more: {}", account.send(Deposit(0)).wait()?);

    println!("{}", fiber::tree()); // each supervised process, with its restarts
    account.stop().wait()
}

#[cfg(test)]
mod tests {
    use super::Deposit;

    // Lets this test binary start processes: once in a test binary.
    fiber::test_harness!();

    #[test]
    fn the_balance_outlives_the_process() {
        let account = super::open(100).expect("its process starts");
        account.send(Deposit(20)).wait().expect("it answers");
        account
            .send(Deposit(0))
            .wait()
            .expect("it has taken a snapshot before");
        account.kill_process();
        let again = account.addr().resend(); // sends a call again whose process has died
        assert_eq!(
            again
                .send(Deposit(5))
                .wait()
                .expect("the next process answers"),
            125
        );
    }

    #[test]
    fn an_overdraft_is_refused() {
        let account = super::open(100).expect("its process starts");
        let error = account
            .send(Deposit(-500))
            .wait()
            .expect_err("100 is too little");
        assert!(
            error.to_string().contains("100 is too little for -500"),
            "{error}"
        );
        assert_eq!(
            account.send(Deposit(0)).wait().expect("it is restarted"),
            100
        );
    }
}
