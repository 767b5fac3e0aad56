//! Programs that choose the hosts of their managed actors. The configuration says how many
//! processes a host is for: 2, if any.

use std::collections::BTreeMap;

use actix::prelude::*;
use fiber::error::ExitReason;
use fiber::manager::ManagerBuilder;
use fiber::stats::{JobPlace, ProcessRole, ProcessState, ProcessStats};
use fiber::supervisor::Backoff;
use fiber::{ActorPool, AsyncManager, Entities, Error, Process, RemoteAddr, Reply};
use fiber_test_support::scenario;
use fiber_test_support::signals::kill;
use fiber_test_support::wait::{wait_for, wait_until};

struct Idle;

impl Actor for Idle {
    type Context = Context<Self>;
}

/// Asks for the pid.
#[fiber::message(u32)]
#[derive(Clone)]
struct Pid;

#[fiber::handlers]
impl Idle {
    fn pid(&mut self, _: Pid) -> u32 {
        std::process::id()
    }
}

fn processes() -> Vec<ProcessStats> {
    fiber::stats().expect("the program is initialized").report.processes
}

/// Returns the host of a process, once it runs.
pub(super) fn host_of(name: &str) -> String {
    wait_for(name, || {
        let found = processes().into_iter().find(|process| process.name == name);
        match found.and_then(|process| process.job) {
            Some(JobPlace::Hosted { host, .. }) => Ok(host),
            other => Err(other),
        }
    })
}

/// Returns how many of the processes are in each host.
pub(super) fn numbers(prefix: &str) -> Vec<usize> {
    let mut hosts = BTreeMap::<String, usize>::new();
    for process in processes().into_iter().filter(|process| process.name.starts_with(prefix)) {
        if let Some(JobPlace::Hosted { host, .. }) = process.job {
            *hosts.entry(host).or_default() += 1;
        }
    }
    hosts.into_values().collect()
}

pub(super) fn kill_host(name: &str) {
    let all = processes();
    let host = all.iter().find(|process| process.name == name && process.role == ProcessRole::Host);
    kill(host.and_then(|host| host.pid).expect("the host runs"));
}

fn named(name: &str) -> ManagerBuilder {
    AsyncManager::builder().name(name).backoff(Backoff::none())
}

fn start(builder: ManagerBuilder) -> Reply<AsyncManager<Idle>> {
    builder.start(|()| Idle, ())
}

fn started(builder: ManagerBuilder) -> AsyncManager<Idle> {
    start(builder).wait().expect("the actor starts")
}

fn refused(builder: ManagerBuilder) -> String {
    start(builder).wait().expect_err("there is no such place").to_string()
}

/// Calls an actor until a process answers that is not `old`.
fn successor(actor: &RemoteAddr<Idle>, old: u32) -> u32 {
    wait_for("an answer of another process", || match actor.clone().resend().send(Pid).wait() {
        Ok(pid) if pid != old => Ok(pid),
        other => Err(other),
    })
}

/// Actors start beside others and in hosts that they name, and again after their deaths.
#[scenario("placed actors")]
fn placed() {
    fiber::init();
    let [first, second, third] = ["first", "second", "third"].map(|name| started(named(name)));
    let (host, other) = (host_of("first"), host_of("third"));
    assert_eq!((host_of("second"), host == other), (host.clone(), false));
    assert_eq!((host.as_str(), other.as_str()), ("processes/host-1", "processes/host-2"));

    // Both hosts have a place: the rule decides.
    second.stop().wait().unwrap();
    let beside = started(named("beside").beside(&third));
    assert_eq!(host_of("beside"), other);
    let chosen = started(named("chosen").on_host(&*host));
    assert_eq!(host_of("chosen"), host);
    println!("actors start where they are to");

    // Both hosts are full.
    let waiting = start(named("waiting").on_host(&*host));
    let is_full = |process: &ProcessStats| {
        process.name == "waiting"
            && matches!(&process.state, ProcessState::Waiting(why)
                if why.contains("host `processes/host-1` is full: it has 2 processes"))
    };
    wait_until("a full host", || processes().iter().any(is_full));
    let fourth = started(named("fourth"));
    assert_eq!(host_of("fourth"), "processes/host-3", "others do not wait");
    first.stop().wait().unwrap();
    let waiting = waiting.wait().expect("there is a place");
    assert_eq!(host_of("waiting"), host);
    println!("an actor waits for a place");

    let pid = beside.send(Pid).wait().unwrap();
    kill(pid);
    let pid = successor(&beside, pid);
    assert_eq!(host_of("beside"), other);
    // The next host of both is another one, and the same. One has two places, or a new one will.
    fourth.stop().wait().unwrap();
    kill_host(&other);
    successor(&beside, pid);
    let next = host_of("third");
    assert!(host_of("beside") == next && next != other, "{next}");
    println!("restarted actors are beside each other");

    let pid = waiting.send(Pid).wait().unwrap();
    kill(pid);
    successor(&waiting, pid);
    assert_eq!(host_of("waiting"), host);
    kill_host(&host);
    for actor in [&chosen, &waiting] {
        let reason = actor.join().wait().unwrap();
        assert!(matches!(reason, ExitReason::IntensityReached { .. }), "{reason}");
        let text = reason.to_string();
        assert!(text.contains("host `processes/host-1` has ended: it was killed by"), "{text}");
        assert!(text.contains("there are `processes/host-"), "{text}");
    }
    println!("a lost host is named");

    let unknown = refused(named("lost").on_host("processes/host-9"));
    assert!(unknown.contains("there is no host `processes/host-9`; there are `proc"), "{unknown}");
    let large = refused(named("large").on_host(&*next).meta(fiber::Meta::new().gpu(1)));
    let place = "is for a process without requests, not for a process of 1 GPU";
    assert!(large.contains(&format!("a place in host `{next}` {place}")), "{large}");
    let gone = refused(named("late").beside(&chosen));
    assert!(gone.contains("it is to start beside `chosen`, which has ended"), "{gone}");
    let in_a_host = |outside: RemoteAddr<Idle>| {
        let own = started(named("own"));
        started(named("neighbor").beside(&own));
        let there = named("there");
        [refused(there.clone().on_host("processes/host-3")), refused(there.beside(&outside))]
    };
    let [chosen, beside] = Process::builder().spawn(in_a_host, third.addr()).wait().unwrap();
    // Over nng, a process knows that it is in a host.
    let says = |error: &str, words: &str| {
        error.contains("this process is in a host itself") || error.contains(words)
    };
    assert!(says(&chosen, "for what this process starts: choose it where"), "{chosen}");
    assert!(says(&beside, "beside `third`, whose process is neither"), "{beside}");
    println!("errors say what to do");
}

/// Actors of pools and processes of entities are spread, and again after the end of a host.
#[scenario("spread actors")]
fn spread() {
    fiber::init();
    let pool = ActorPool::builder().name("pool").spread();
    let pool = pool.manager(|manager| manager.backoff(Backoff::none()));
    let pool = pool.start(|_: u64| Idle, 0..3).wait().unwrap();
    let spread = numbers("pool-");
    assert!(spread == [1, 2] || spread == [2, 1], "{spread:?}");
    let pid = pool.managers().next().unwrap().send(Pid).wait().unwrap();
    kill_host(&host_of("pool-0"));
    successor(&pool.managers().next().unwrap().addr(), pid);
    wait_until("all workers", || numbers("pool-").iter().sum::<usize>() == 3);
    assert_eq!(numbers("pool-").len(), 2);
    println!("a pool is spread");
    pool.stop().wait().unwrap();

    let entities = Entities::builder("cells").processes(2).spread();
    let entities = entities.start(|_: String, ()| Idle, ()).wait().unwrap();
    assert_eq!(numbers("cells-"), [1, 1]);
    entities.scale(4).wait().unwrap();
    assert_eq!(numbers("cells-"), [2, 2]);
    entities.of("anna").send(Pid).wait().unwrap();
    println!("entities are spread");

    let both = ActorPool::builder().manager(|manager| manager.on_host("a")).spread();
    let error = both.start(|_: u64| Idle, 0..2).wait().unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    let both = Entities::builder("b").manager(|manager| manager.on_host("a")).spread();
    let error = both.start(|_: String, ()| Idle, ()).wait().unwrap_err().to_string();
    assert!(error.contains("`on_host`"), "{error}");
}

/// Without hosts, all processes of this machine are beside each other.
#[scenario("placed without hosts")]
fn without_hosts() {
    fiber::init();
    let error = refused(named("lost").on_host("n1"));
    let remedy = "set `processes_per_job` (`FIBER_PROCESSES_PER_JOB`) to 2 or more";
    assert!(error.contains("there is no host `n1`") && error.contains(remedy), "{error}");
    let one = started(named("one"));
    let other = started(named("other").beside(&one));
    assert_ne!(one.send(Pid).wait().unwrap(), other.send(Pid).wait().unwrap());
    let pool = ActorPool::builder().spread().start(|_: u64| Idle, 0..2).wait().unwrap();
    assert_eq!(pool.broadcast(Pid).len(), 2);
    one.stop().wait().unwrap();
    let error = refused(named("late").beside(&one));
    assert!(error.contains("`one`, which has ended"), "{error}");
}
