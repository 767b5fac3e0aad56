//! A tree of one's own: two local actors, an actor in a process of its own, and a pool, under one
//! supervisor. It is printed before and after some of it has died.
//!
//! ```text
//! cargo run -p fiber-examples --example supervised_tree
//! ```

use std::time::Duration;

use actix::prelude::*;
use fiber::supervisor::{ChildSpec, ChildState};
use fiber::{AsyncManager, Pool, Supervisor, error::ExitReason};
use serde::{Deserialize, Serialize};

/// Counts words, on a pool of worker processes that it owns.
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

/// Keeps a number, in a process of its own.
struct Scheduler {
    balance: i64,
}

impl Actor for Scheduler {
    type Context = Context<Self>;
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "i64")]
struct Book(i64);

impl Handler<Book> for Scheduler {
    type Result = i64;

    fn handle(&mut self, book: Book, _: &mut Context<Self>) -> i64 {
        self.balance += book.0;
        self.balance
    }
}

/// Has a bad day.
struct Clerk;

impl Actor for Clerk {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "()")]
struct Complain;

impl Handler<Complain> for Clerk {
    type Result = ();

    fn handle(&mut self, _: Complain, _: &mut Context<Self>) {
        panic!("enough is enough");
    }
}

#[fiber::main]
async fn main() -> fiber::Result<()> {
    let (ledger_child, scheduler) = AsyncManager::<Scheduler>::builder()
        .name("scheduler")
        .child(|| Scheduler { balance: 100 }, ())?;
    let librarian = || Librarian { pool: Pool::new(2).expect("a pool can be made") };
    let office = Supervisor::builder("office")
        .child(ledger_child)
        .child(ChildSpec::actor("librarian", librarian))
        .child(ChildSpec::actor("clerk", || Clerk))
        .start()
        .await?;

    println!("the scheduler says {}", scheduler.send(Book(5)).await?);
    let pages = vec!["to be or not to be".to_string(), "that is the question".to_string()];
    println!(
        "the pages have {} words",
        office.child::<Librarian>("librarian")?.send(CountWords(pages)).await??
    );
    println!("\n{}", fiber::tree());

    let complaint = office.child::<Clerk>("clerk")?.send(Complain).await;
    println!("the clerk: {}", complaint.expect_err("it panics"));
    office.kill_child("scheduler", ExitReason::Signal(9)).await?;

    // Started anew, it begins with what its factory gives it. What is sent meanwhile waits.
    let restarted =
        || fiber::tree().find("office/scheduler").is_some_and(|scheduler| scheduler.restarts > 0);
    while !restarted() {
        actix::clock::sleep(Duration::from_millis(1)).await;
    }
    println!("the scheduler, killed, says {}", scheduler.send(Book(5)).await?);
    while fiber::tree().find("office/clerk").is_none_or(|clerk| clerk.state != ChildState::Running)
    {
        actix::clock::sleep(Duration::from_millis(1)).await;
    }
    println!("\n{}", fiber::tree());
    office.stop().await
}
