//! Programs that tell the same to many processes. The configuration says that a host is for two of
//! them.

use std::time::Duration;

use actix::prelude::*;
use fiber::actor_pool::ActorPoolAddr;
use fiber::supervisor::Backoff;
use fiber::topic::{Slow, Topic};
use fiber::{ActorPool, Error, Process, Queue};
use fiber_test_support::scenario;
use fiber_transport::traffic;
use serde::{Deserialize, Serialize};

use super::placed::{host_of, kill_host, numbers};

/// Bytes of a message that travel inside of its frame.
const LENGTH: usize = 20_000;

struct Listener {
    number: u32,
    heard: Vec<u32>,
}

impl Actor for Listener {
    type Context = Context<Self>;
}

/// Asks for all numbers that were told. It may kill one of the actors, or have no answer.
#[fiber::message(Vec<u32>)]
#[derive(Clone, Default)]
struct Tell {
    number: u32,
    text: String,
    kills: Option<u32>,
    has_no_answer: bool,
}

impl Handler<Tell> for Listener {
    type Result = ResponseFuture<Vec<u32>>;

    fn handle(&mut self, tell: Tell, _: &mut Context<Self>) -> Self::Result {
        if tell.kills == Some(self.number) {
            std::process::abort();
        }
        self.heard.push(tell.number);
        let heard = self.heard.clone();
        Box::pin(async move {
            if tell.has_no_answer {
                std::future::pending::<()>().await;
            }
            heard
        })
    }
}

fn tell(number: u32) -> Tell {
    Tell { number, ..Tell::default() }
}

/// Checks that a message goes to two hosts once, and not to each of their four processes.
fn check_traffic(send: impl FnOnce(String)) {
    let before = traffic().0;
    send("-".repeat(LENGTH));
    let sent = (traffic().0 - before) as usize;
    assert!((2 * LENGTH..3 * LENGTH).contains(&sent), "{sent} bytes");
}

#[scenario("actors told together")]
fn told_together() {
    fiber::init();
    let pool = ActorPool::builder().name("told");
    let pool = pool.manager(|manager| manager.backoff(Backoff::none()));
    let pool = pool.start(|number: u32| Listener { number, heard: Vec::new() }, 0..4);
    let pool = pool.wait().unwrap();
    assert_eq!(numbers("told-"), [2, 2]);
    // The first message to each actor waits until it is found.
    pool.broadcast(tell(0)).all().wait().unwrap();
    check_traffic(|text| {
        pool.broadcast(Tell { text, ..tell(1) }).all().wait().unwrap();
    });
    println!("each host gets it once");

    let first = pool.addrs().next().unwrap();
    let is_for_first = |number: u32| (2..300).contains(&number) && number.is_multiple_of(3);
    for number in 2..300 {
        if is_for_first(number) {
            first.do_send(tell(number));
        } else {
            pool.do_broadcast(tell(number));
        }
    }
    let all = pool.broadcast(tell(300)).all().wait().unwrap();
    for (place, heard) in all.into_iter().enumerate() {
        let expected = (0..=300).filter(|number| place == 0 || !is_for_first(*number));
        assert!(heard.iter().copied().eq(expected), "{place}: {heard:?}");
    }
    println!("messages keep their order");

    let outcomes = pool.broadcast(Tell { kills: Some(1), ..tell(301) }).try_all().wait().unwrap();
    let lens = outcomes.iter().map(|outcome| outcome.as_ref().ok().map(Vec::len));
    assert!(lens.eq([Some(302), None, Some(203), Some(203)]), "{outcomes:?}");
    assert_eq!(pool.broadcast(tell(302)).all().wait().unwrap()[1], [302]);
    println!("a member that dies fails alone");

    let host = host_of("told-3");
    let there = (0..4).filter(|number| host_of(&format!("told-{number}")) == host);
    let there: Vec<usize> = there.collect();
    let outcomes = pool.broadcast(Tell { has_no_answer: true, ..tell(303) }).as_completed();
    kill_host(&host);
    let lost = outcomes.wait().take(there.len());
    let mut lost: Vec<_> = lost.map(|(place, heard)| heard.map_or(place, |_| 9)).collect();
    lost.sort_unstable();
    assert_eq!(lost, there);
    println!("the members of a lost host fail");
}

/// The answers of some actors. The text makes them long.
#[derive(Serialize, Deserialize)]
struct Report {
    asked_by: u32,
    text: String,
    members: Vec<u32>,
    merged_by: Vec<u32>,
}

/// Asks for a report. It may kill one of the actors.
#[fiber::message(Report)]
struct AskReport {
    asked_by: u32,
    kills: Option<u32>,
}

fn ask_report() -> AskReport {
    AskReport { asked_by: std::process::id(), kills: None }
}

#[fiber::handlers]
impl Listener {
    fn report(&mut self, ask: AskReport) -> Report {
        if ask.kills == Some(self.number) {
            std::process::abort();
        }
        Report {
            asked_by: ask.asked_by,
            text: "-".repeat(LENGTH),
            members: vec![self.number],
            merged_by: Vec::new(),
        }
    }
}

/// Notes where two reports are merged.
fn merge(mut left: Report, right: Report) -> Report {
    left.members.extend(right.members);
    left.merged_by.extend(right.merged_by);
    left.merged_by.push(std::process::id());
    left
}

/// Merges in the process that has asked, and fails in others.
fn merge_at_the_caller(left: Report, right: Report) -> Report {
    assert_eq!(std::process::id(), left.asked_by, "this process merges nothing");
    merge(left, right)
}

#[scenario("actors merged together")]
fn merged_together() {
    fiber::init();
    let pool = ActorPool::builder().name("merged");
    let pool = pool.manager(|manager| manager.backoff(Backoff::none()));
    let pool = pool.start(|number: u32| Listener { number, heard: Vec::new() }, 0..4);
    let pool = pool.wait().unwrap();
    assert_eq!(numbers("merged-"), [2, 2]);
    let first_host = host_of("merged-0");
    let mut by_host: Vec<u32> = (0..4).collect();
    by_host.sort_by_key(|number| host_of(&format!("merged-{number}")) != first_host);
    // The first message to each actor waits until it is found.
    pool.broadcast(tell(0)).all().wait().unwrap();

    let own = std::process::id();
    let before = traffic().1;
    let report = pool.reduce(ask_report(), merge).wait().unwrap().unwrap();
    let received = (traffic().1 - before) as usize;
    assert!((2 * LENGTH..3 * LENGTH).contains(&received), "{received} bytes");
    assert_eq!((report.members, report.text.len()), (by_host.clone(), LENGTH));
    let merged_by: Vec<_> = report.merged_by.iter().map(|pid| *pid == own).collect();
    assert_eq!(merged_by, [false, false, true]);
    println!("each host merges its answers");

    let report = pool.reduce(ask_report(), merge_at_the_caller).wait().unwrap().unwrap();
    assert_eq!((report.members, report.merged_by), (by_host, vec![own; 3]));
    let limit = Duration::from_secs(600);
    let limited: ActorPoolAddr<_> = pool.addrs().map(|addr| addr.timeout(limit)).collect();
    let report = limited.reduce(ask_report(), merge).wait().unwrap().unwrap();
    assert_eq!((report.members, report.merged_by), ((0..4).collect(), vec![own; 3]));
    // No actor has ended with the function that failed.
    assert!(pool.broadcast(tell(1)).all().wait().unwrap().iter().all(|heard| heard == &[0, 1]));
    println!("the caller merges what hosts can't");

    drop(pool.reduce(ask_report(), merge));
    let error = pool.reduce(AskReport { kills: Some(1), ..ask_report() }, merge).wait();
    let Err(Error::Member { index: 1, name, cause }) = error else { panic!("it has an answer") };
    assert_eq!(name, "merged-1");
    assert!(matches!(*cause, Error::ActorStopped { .. }), "{cause}");
    println!("a failure names the actor");
}

#[scenario("processes told together")]
fn processes_told_together() {
    fiber::init();
    let (topic, ready) = (Topic::new().unwrap(), Queue::new().unwrap());
    let listen = |topic: Topic<String>, ready: Queue<()>| {
        let subscription = topic.subscribe(Slow::Wait).wait().unwrap();
        ready.put(()).wait().unwrap();
        subscription.wait().next().unwrap().unwrap().len()
    };
    let listen = |_| Process::spawn(listen, (topic.clone(), ready.clone()));
    let listeners: Vec<_> = (0..4).map(listen).collect();
    (0..4).for_each(|_| ready.get().wait().unwrap());
    check_traffic(|text| {
        topic.publish(text).wait().unwrap();
        for listener in listeners {
            assert_eq!(listener.wait().unwrap(), LENGTH);
        }
    });
}
