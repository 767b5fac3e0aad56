//! Programs whose managed actors lose a process while no process can be started, or panic.

use actix::prelude::*;
use fiber::{ActorPool, AsyncManager};
use fiber_test_support::scenario;
use fiber_test_support::signals::kill;

use super::shortages::{self, Shortage};

struct Doubler;

impl Actor for Doubler {
    type Context = Context<Doubler>;
}

#[fiber::message(u64)]
#[derive(Clone)]
struct Double(u64);

#[fiber::message]
struct Fail;

#[fiber::handlers]
impl Doubler {
    fn double(&mut self, Double(x): Double) -> u64 {
        2 * x
    }

    fn fail(&mut self, _: Fail) {
        panic!("the cause {}", 7);
    }
}

#[fiber::message]
struct FailLater;

impl Handler<FailLater> for Doubler {
    type Result = ResponseActFuture<Doubler, ()>;

    fn handle(&mut self, _: FailLater, _: &mut Context<Doubler>) -> Self::Result {
        async fn fail() {
            panic!("the cause {}", 7);
        }
        Box::pin(fail().into_actor(self))
    }
}

/// Ends as soon as it knows that a handler has panicked.
#[scenario("handler that panics")]
fn failing() {
    fiber::init();
    let manager = AsyncManager::start(|()| Doubler, ()).wait().expect("the actor starts");
    let error = match std::env::args().nth(1).as_deref() {
        Some("later") => manager.send(FailLater).wait(),
        _ => manager.send(Fail).wait(),
    };
    println!("{:?}", error.unwrap_err());
    std::process::exit(0);
}

/// Returns the parent of a process: of one that shares its job, the host.
fn parent(process: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|number| number.trim().parse().ok()).expect("it has a parent")
}

#[scenario("shortage of a managed actor")]
fn shortage() {
    fiber::init();
    shortages::log();
    let manager = AsyncManager::builder().start(|()| Doubler, ()).wait().expect("the actor starts");
    let process = manager.pid().expect("the process runs");
    let shares_job = std::env::var_os("FIBER_PROCESSES_PER_JOB").is_some();
    let victim = if shares_job { parent(process) } else { process };
    let shortage = Shortage::begin();
    kill(victim);
    shortages::wait_for_word();
    drop(shortage);
    println!("doubled {}", manager.send(Double(21)).wait().expect("the actor is restarted"));
}

/// Kills the process of one of three actors during a shortage.
#[scenario("shortage of an actor pool")]
fn shortage_of_a_pool() {
    fiber::init();
    shortages::log();
    let pool = ActorPool::builder().start(|_: u32| Doubler, 0..3).wait().expect("actors start");
    let victim = pool.managers().nth(1).and_then(AsyncManager::pid).expect("its process runs");
    let shortage = Shortage::begin();
    kill(victim);
    shortages::wait_for_word();
    let mut replies: Vec<_> = pool.broadcast(Double(21)).into_iter().collect();
    let lost = replies.remove(1);
    for reply in replies {
        println!("meanwhile {}", reply.wait().expect("the other actors answer"));
    }
    shortages::wait_for_word();
    drop(shortage);
    println!("afterwards {}", lost.wait().expect("the actor is restarted"));
    println!("whole {:?}", pool.broadcast(Double(2)).all().wait());
}
