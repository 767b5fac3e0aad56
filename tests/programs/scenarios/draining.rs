//! Programs and workers that SIGTERM asks to end.

use std::path::Path;
use std::time::{Duration, Instant};

use actix::prelude::*;
use axum::{Router, routing::get};
use fiber::supervisor::{Backoff, Restart};
use fiber::{Entities, Journal, Pool, Process};
use fiber_test_support::program::pid;
use fiber_test_support::scenario;
use fiber_test_support::wait::{wait_for, wait_until};
use rustix::process::{Signal, kill_process, test_kill_process};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::hang;

/// Writes the id of this process into a file, at once for those that look.
fn announce(file: &str) {
    std::fs::write(format!("{file}.new"), std::process::id().to_string()).unwrap();
    std::fs::rename(format!("{file}.new"), file).unwrap();
}

fn announced(file: &str) -> rustix::process::Pid {
    wait_until("the test's file", || Path::new(file).exists());
    pid(std::fs::read_to_string(file).unwrap().parse().unwrap())
}

fn announce_and_hang(file: String) {
    announce(&file);
    hang();
}

/// A task that never ends the first time, and its nested process, get SIGTERM.
#[scenario("endless task")]
fn endless_task() {
    fn task(x: u64) -> u64 {
        if Path::new("nested").exists() {
            return x;
        }
        let nested = Process::spawn(announce_and_hang, "nested".to_string());
        announced("nested");
        announce("worker");
        drop(nested.wait());
        unreachable!("the nested process never ends");
    }
    fiber::init();
    let pool = Pool::new(1).unwrap();
    let call = pool.max_deaths(1).apply(task, 1);
    let (worker, nested) = (announced("worker"), announced("nested"));
    let start = Instant::now();
    kill_process(worker, Signal::TERM).unwrap();
    let result = call.wait().unwrap();
    println!("ended after its grace period: {}", start.elapsed() >= Duration::from_millis(300));
    wait_until("the end of the child", || test_kill_process(nested).is_err());
    println!("result: {result}, deaths: {}", pool.stats().deaths);
}

/// An entity that keeps its callers waiting.
struct Clerk;

impl Actor for Clerk {
    type Context = Context<Self>;
}

/// Asks for its process.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u32")]
struct Where;

impl Handler<Where> for Clerk {
    type Result = u32;

    fn handle(&mut self, _: Where, _: &mut Context<Self>) -> u32 {
        std::process::id()
    }
}

/// Blocks its process for good.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
struct Hang;

impl Handler<Hang> for Clerk {
    type Result = ();

    fn handle(&mut self, _: Hang, _: &mut Context<Self>) {
        announce_and_hang("hanging".into());
    }
}

/// Is answered when there is a file `go`.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "String")]
struct Ask;

impl Handler<Ask> for Clerk {
    type Result = ResponseFuture<String>;

    fn handle(&mut self, _: Ask, _: &mut Context<Self>) -> ResponseFuture<String> {
        announce("asked");
        Box::pin(async {
            while !Path::new("go").exists() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            "the answer".into()
        })
    }
}

/// One of two processes of entities hangs and gets SIGTERM. After its death it would start again
/// in an hour: only the first restart comes at once.
#[scenario("entities that hang")]
fn entities_that_hang() {
    fiber::init();
    let hour = Duration::from_secs(60 * 60);
    let backoff = Backoff::new(hour, hour).jitter(0.0).reset_after(hour);
    let clerks = Entities::builder("clerks").processes(2).manager(|each| each.backoff(backoff));
    let clerks = clerks.start(|_: String, ()| Clerk, ()).wait().unwrap();
    let place = |key: u32| clerks.of(key).resend().send(Where).wait().unwrap();
    let first = place(0);
    let neighbor = (1..).find(|key| place(*key) == first).unwrap();
    kill_process(pid(first), Signal::KILL).unwrap();
    let second = wait_for("its restart", || match place(0) {
        restarted if restarted != first => Ok(restarted),
        dying => Err(dying),
    });
    drop(clerks.of(0).send(Hang));
    assert_eq!(announced("hanging"), pid(second));
    kill_process(pid(second), Signal::TERM).unwrap();
    println!("moved: {}", place(neighbor) != second);
    println!("processes: {}", clerks.processes().wait().unwrap());
    clerks.stop().wait().unwrap();
}

/// The only process of entities gets SIGTERM, and dies for good before its successor has started.
#[scenario("entities that die before their successor")]
fn entities_that_die_early() {
    if Path::new("hold").exists() {
        announce("held");
        wait_until("the death", || !Path::new("hold").exists());
    }
    fiber::init();
    let clerks = Entities::builder("clerks").processes(1);
    let clerks = clerks.manager(|each| each.restart(Restart::Temporary));
    let clerks = clerks.start(|_: String, ()| Clerk, ()).wait().unwrap();
    let place = || clerks.of(0).resend().send(Where).wait();
    let first = place().unwrap();
    std::fs::write("hold", "").unwrap();
    kill_process(pid(first), Signal::TERM).unwrap();
    let successor = announced("held");
    kill_process(pid(first), Signal::KILL).unwrap();
    // It fails once there are no processes.
    place().unwrap_err();
    std::fs::remove_file("hold").unwrap();
    println!("replaced: {}", pid(wait_for("the successor", place)) == successor);
    println!("processes: {}", clerks.processes().wait().unwrap());
    clerks.stop().wait().unwrap();
}

/// A service whose only page comes from an entity.
#[scenario("service of entities")]
fn service_of_entities() {
    fiber::init();
    let clerks = Entities::builder("clerks").processes(1).start(|_: String, ()| Clerk, ());
    let clerks = clerks.wait().unwrap();
    let clerk = clerks.of(1);
    let page = move || {
        let clerk = clerk.clone();
        async move { clerk.send(Ask).await.unwrap() }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let app = Router::new().route("/", get(page));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut terminated = signal(SignalKind::terminate()).unwrap();
        println!("listens at {}", listener.local_addr().unwrap());
        let end = async move {
            terminated.recv().await;
            println!("terminated");
        };
        axum::serve(listener, app).with_graceful_shutdown(end).await.unwrap();
    });
    clerks.stop().wait().unwrap();
}

/// Reports a task, and waits for a file `go` if the task is one of the first two.
fn record_run(x: u64, folder: String) -> u64 {
    use std::io::Write;
    let folder = Path::new(&folder);
    std::fs::write(folder.join(format!("begun-{x}")), "").unwrap();
    wait_until("the test's file", || x > 1 || folder.join("go").exists());
    let runs = std::fs::File::options().create(true).append(true).open(folder.join("runs"));
    runs.unwrap().write_all(format!("{x}\n").as_bytes()).unwrap();
    x
}

fn folder() -> String {
    std::env::var("FOLDER").unwrap()
}

fn wait_until_begun(task: u64) {
    let begun = Path::new(&folder()).join(format!("begun-{task}"));
    wait_until("the task's start", || begun.exists());
}

/// A durable call of 1000 tasks, of which the first two wait.
#[scenario("durable map")]
fn durable_map() {
    fiber::init();
    let pool = Pool::new(2).unwrap().durable(Journal::at(format!("{}/journal", folder())));
    let tasks = (0..1000).map(|x| (x, folder()));
    let call = pool.map(record_run, tasks);
    std::thread::spawn(|| {
        (0..2).for_each(wait_until_begun);
        println!("two tasks run");
    });
    println!("sum: {}", call.wait().unwrap().iter().sum::<u64>());
}

/// Durable calls in a row, the second after a word.
#[scenario("durable calls")]
fn durable_calls() {
    fiber::init();
    let pool = Pool::new(1).unwrap().durable(Journal::at(format!("{}/journal", folder())));
    for x in 0..1000 {
        let call = pool.apply(record_run, (x, folder()));
        wait_until_begun(x);
        println!("task runs: {x}");
        println!("done: {}", call.wait().unwrap());
        if x == 0 {
            super::read_line();
        }
    }
}
