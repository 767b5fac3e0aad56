//! A supervisor with two local actors, one of which owns a pool, and an actor in its own process.
//! The program prints the tree before and after some of them have died.
//!
//! ```text
//! cargo run -p fiber-examples --example supervised_tree
//! ```

use std::time::Duration;

use actix::prelude::*;
use fiber::supervisor::{ChildSpec, ChildState};
use fiber::{AsyncManager, Pool, Supervisor, error::ExitReason};

/// Counts words on a pool of worker processes that it owns.
struct Librarian {
    pool: Pool,
}

impl Actor for Librarian {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "fiber::Result<usize>")]
struct CountWords(Vec<String>);

impl Handler<CountWords> for Librarian {
    type Result = ResponseFuture<fiber::Result<usize>>;

    fn handle(&mut self, count: CountWords, _: &mut Context<Self>) -> Self::Result {
        let counts = self.pool.map(|page: String| page.split_whitespace().count(), count.0);
        Box::pin(async { Ok(counts.await?.into_iter().sum()) })
    }
}

/// Keeps a balance, in a process of its own.
struct Account {
    balance: i64,
}

impl Actor for Account {
    type Context = Context<Self>;
}

#[fiber::message(i64)]
struct Book(i64);

#[fiber::handlers]
impl Account {
    fn book(&mut self, book: Book) -> i64 {
        self.balance += book.0;
        self.balance
    }
}

/// Panics at each complaint.
struct Clerk;

impl Actor for Clerk {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "()")]
struct Complain;

#[fiber::handlers]
impl Clerk {
    fn complain(&mut self, _: Complain) {
        panic!("the clerk is busy");
    }
}

#[fiber::main]
async fn main() -> fiber::Result<()> {
    let (account_child, account) =
        AsyncManager::builder().name("account").child(|| Account { balance: 100 }, ())?;
    let librarian = || Librarian { pool: Pool::new(2).expect("the pool's options are valid") };
    let office = Supervisor::builder("office")
        .child(account_child)
        .child(ChildSpec::actor("librarian", librarian))
        .child(ChildSpec::actor("clerk", || Clerk))
        .start()
        .await?;

    println!("the balance is {}", account.send(Book(5)).await?);
    let pages = vec!["to be or not to be".to_string(), "that is the question".to_string()];
    println!(
        "the pages have {} words",
        office.child::<Librarian>("librarian")?.send(CountWords(pages)).await??
    );
    println!("\n{}", fiber::tree());

    let complaint = office.child::<Clerk>("clerk")?.send(Complain).await;
    println!("the clerk failed: {}", complaint.expect_err("it panics"));
    office.kill_child("account", ExitReason::Signal(9)).await?;

    // The restarted account has the balance that its factory sets. Messages wait until then.
    let restarted =
        || fiber::tree().find("office/account").is_some_and(|account| account.restarts > 0);
    while !restarted() {
        actix::clock::sleep(Duration::from_millis(1)).await;
    }
    println!("after the restart the balance is {}", account.send(Book(5)).await?);
    while fiber::tree().find("office/clerk").is_none_or(|clerk| clerk.state != ChildState::Running)
    {
        actix::clock::sleep(Duration::from_millis(1)).await;
    }
    println!("\n{}", fiber::tree());
    office.stop().await
}
