//! The programs that the tests start.

use std::collections::BTreeSet;
use std::time::Duration;

use fiber::sync::Barrier;
use fiber::{Meta, Pool, Process, Ring, RingNode};
use fiber_runtime::runtime::Runtime;
use fiber_test_support::{init, scenario, tasks};

#[scenario("pi")]
fn pi() {
    tasks::pi(4);
}

#[scenario("work")]
fn short_work() {
    work(600, 1);
}

#[scenario("work for 30 seconds")]
fn work_for_30_seconds() {
    work(6000, 1);
}

#[scenario("work after deaths")]
fn work_after_deaths() {
    work(600, 3);
}

/// Kills a process, and starts another one.
#[scenario("kills")]
fn kills() {
    let nothing = |()| fiber_test_support::hang();
    let process = Process::spawn(nothing, ());
    process.started().wait().unwrap();
    process.kill();
    println!("killed: {:?}", process.join().wait().unwrap().reason);
    println!("next: {}", Process::spawn(|x: u32| x + 1, 1).wait().unwrap());
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Prints where the workers of a pool of the default size run, and with which resources.
#[scenario("places")]
fn places() {
    let pool = Pool::builder().start().wait().unwrap();
    pool.wait_until_ready().wait().unwrap();
    let place = |all: Barrier| {
        all.wait_all().wait().unwrap();
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let cores = std::thread::available_parallelism().unwrap();
        (variable("SLURMD_NODENAME"), groups, cores.get())
    };
    let workers = tasks::all_at_once(pool.ready_workers());
    let seen = pool.chunk(1).map(place, workers).wait().unwrap();
    let nodes: BTreeSet<_> = seen.iter().map(|(node, ..)| node).collect();
    println!("{} workers on {} nodes", seen.len(), nodes.len());
    let in_steps = seen.iter().all(|(.., groups, cores)| groups.contains("/step_") && *cores <= 2);
    println!("in the steps' cgroups: {in_steps}");
    let key = |()| std::env::vars().any(|(name, _)| name == "FIBER_KEY");
    println!("the key is exported: {}", pool.apply(key, ()).wait().unwrap());
}

/// Maps tasks of 20 ms, and reports the hosts of the workers, when 50 results are there, and whether
/// all are right. A task fails after `max_deaths` deaths.
fn work(tasks: u64, max_deaths: u32) {
    let task = |index: u64| {
        std::thread::sleep(Duration::from_millis(20));
        index * 3
    };
    let pool = Pool::builder().processes(4).start().wait().unwrap();
    pool.wait_until_ready().wait().unwrap();
    let host = |all: Barrier| {
        all.wait_all().wait().unwrap();
        std::os::unix::process::parent_id()
    };
    let hosts = pool.chunk(1).map(host, tasks::all_at_once(4)).wait().unwrap();
    for host in hosts.into_iter().collect::<BTreeSet<_>>() {
        println!("host {host}");
    }
    let mut results = pool.max_deaths(max_deaths).imap(task, 0..tasks).wait();
    let mut all: Vec<u64> = results.by_ref().take(50).map(Result::unwrap).collect();
    println!("begun");
    all.extend(results.map(Result::unwrap));
    println!("right: {}", all.into_iter().eq((0..tasks).map(|index| index * 3)));
}

/// Runs rings that have one process for each node. Each follows a pool that takes all cores, and is
/// dropped at work. Prints the number of nodes of each ring.
#[scenario("ring after pool")]
fn ring_after_pool() {
    for _ in 0..5 {
        let pool = Pool::builder().processes(4).start().wait().unwrap();
        let work = pool.map(|_: u32| std::thread::sleep(Duration::from_secs(600)), 0..4);
        drop((work, pool));
        let nodes = Ring::run(2, |_: RingNode| variable("SLURMD_NODENAME"), ()).wait().unwrap();
        println!("a ring on {} nodes", nodes.iter().collect::<BTreeSet<_>>().len());
    }
}

/// Starts workers that work for ever.
#[scenario("endless")]
fn endless() {
    let pool = Pool::builder().processes(4).start().wait().unwrap();
    println!("pid {}", std::process::id());
    pool.map(|_: u32| std::thread::sleep(Duration::from_secs(600)), 0..4).wait().unwrap();
}

#[scenario("too wide")]
fn too_wide() {
    init();
    tasks::too_large(Meta::new().cpu(64.0));
}

/// The length of the texts that `overheard` exchanges with a worker.
pub(crate) const TEXT: usize = 64 << 10;

/// Returns 64 random digits, again and again.
fn random_text() -> String {
    let digits = format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
    digits.repeat(TEXT / digits.len())
}

/// Lets a worker return a text for another one. Prints the digits of both and the session's key:
/// backwards, so that no copy of this output is what a listener looks for.
#[scenario("overheard")]
fn overheard() {
    let pool = Pool::builder().processes(4).start().wait().unwrap();
    let argument = random_text();
    let result = pool.apply(|_: String| random_text(), argument.clone()).wait().unwrap();
    let key = Runtime::get().unwrap().key().reveal();
    let printed = [("key", &*key), ("argument", &argument[..64]), ("result", &result[..64])];
    for (name, secret) in printed {
        println!("{name} backwards: {}", secret.chars().rev().collect::<String>());
    }
}
