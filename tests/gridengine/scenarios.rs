//! The programs that only these tests start.

use std::collections::BTreeSet;
use std::time::Duration;

use fiber::sync::Barrier;
use fiber::{Meta, Pool};
use fiber_test_support::{init, scenario, tasks};

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns a pool of the default size, all of whose workers are ready.
fn whole_pool() -> Pool {
    init();
    let pool = Pool::builder().start().wait().unwrap();
    pool.wait_until_ready().wait().unwrap();
    pool
}

/// Prints where the workers of a pool run, and what they have of the job.
#[scenario("places")]
fn places() {
    let pool = whole_pool();
    let place = |all: Barrier| {
        all.wait_all().wait().unwrap();
        (host(), std::env::current_dir().unwrap())
    };
    let workers = tasks::all_at_once(pool.ready_workers());
    let seen = pool.chunk(1).map(place, workers).wait().unwrap();
    let hosts: BTreeSet<_> = seen.iter().map(|(host, ..)| host).collect();
    println!("{} workers on {} hosts", seen.len(), hosts.len());
    let own = std::env::current_dir().unwrap();
    println!("in one directory: {}", seen.iter().all(|(.., directory)| *directory == own));
    let greetings = |()| std::env::var("GREETING").unwrap_or_default();
    let greetings = pool.map(greetings, [(); 8]).wait().unwrap();
    println!("greetings: {:?}", greetings.into_iter().collect::<BTreeSet<_>>());
    let key = |()| std::env::vars().any(|(name, value)| name == "FIBER_KEY" && value != "-");
    println!("the key is exported: {}", pool.apply(key, ()).wait().unwrap());
}

/// Prints a line from each host, on both streams.
#[scenario("voices")]
fn voices() {
    let pool = whole_pool();
    let speak = |all: Barrier| {
        println!("out of {}", host());
        eprintln!("err of {}", host());
        all.wait_all().wait().unwrap();
    };
    pool.chunk(1).map(speak, tasks::all_at_once(pool.ready_workers())).wait().unwrap();
}

/// Starts workers that work for ever, on all hosts.
#[scenario("endless")]
fn endless() {
    let pool = whole_pool();
    println!("pid {}", std::process::id());
    pool.map(|_: u32| std::thread::sleep(Duration::from_secs(600)), 0..4).wait().unwrap();
}

/// Prints why tasks fail that end their workers.
#[scenario("deaths")]
fn deaths() {
    let pool = whole_pool().max_deaths(1);
    let exit = |code: i32| -> () { std::process::exit(code) };
    println!("exit: {}", pool.apply(exit, 3).wait().unwrap_err());
    let abort = || -> () { std::process::abort() };
    println!("abort: {}", pool.apply(abort, ()).wait().unwrap_err());
}

/// Maps more tasks than there is time for.
#[scenario("limited")]
fn limited() {
    init();
    crate::limited::unrecorded();
}

/// Prints in how many jobs of Grid Engine four workers run.
#[scenario("four in jobs")]
fn four_in_jobs() {
    init();
    let pool = Pool::builder().processes(4).start().wait().unwrap();
    pool.wait_until_ready().wait().unwrap();
    let job = |all: Barrier| {
        all.wait_all().wait().unwrap();
        std::env::var("JOB_ID").unwrap()
    };
    let jobs = pool.chunk(1).map(job, tasks::all_at_once(4)).wait().unwrap();
    println!("4 workers in {} jobs", jobs.into_iter().collect::<BTreeSet<_>>().len());
}

/// Maps tasks until they have run in two jobs, and says so.
#[scenario("until another job")]
fn until_another_job() {
    init();
    let pool = Pool::builder().processes(2).start().wait().unwrap();
    let job = |()| {
        std::thread::sleep(Duration::from_millis(20));
        std::env::var("JOB_ID").unwrap()
    };
    let mut jobs = BTreeSet::new();
    while jobs.len() < 2 {
        jobs.extend(pool.max_deaths(1).map(job, [(); 8]).wait().unwrap());
    }
    println!("ran in {} jobs", jobs.len());
}

/// Asks for a worker of two cores.
#[scenario("one wide task")]
fn one_wide_task() {
    init();
    let pool = Pool::builder().processes(1).meta(Meta::new().cpu(2.0)).start().wait();
    let done = pool.and_then(|pool| pool.apply(|()| (), ()).wait());
    println!("{}", done.expect_err("no pilot has room for it"));
}

/// Prints why a task fails that takes 3 GB of memory.
#[scenario("hungry alone")]
fn hungry_alone() {
    let pool = whole_pool().max_deaths(1);
    println!("{}", pool.apply(|()| vec![1u8; 3_000_000_000].len(), ()).wait().unwrap_err());
}

/// Prints why two tasks fail that take 1.2 GB of memory each.
#[scenario("hungry together")]
fn hungry_together() {
    init();
    let pool = Pool::builder().processes(2).start().wait().unwrap();
    pool.wait_until_ready().wait().unwrap();
    let eat = |()| {
        let eaten = vec![1u8; 1_200_000_000];
        std::thread::sleep(Duration::from_secs(600));
        eaten.len()
    };
    let problem = pool.max_deaths(1).map(eat, [(); 2]).wait().unwrap_err();
    println!("{problem}");
}

#[scenario("too wide")]
fn too_wide() {
    init();
    tasks::too_large(Meta::new().cpu(64.0));
}

#[scenario("too many GPUs")]
fn too_many_gpus() {
    init();
    tasks::too_large(Meta::new().gpu(99));
}
