//! Programs that temporarily have no descriptors left, or can start no processes.

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fiber::{Pool, Process, Ring, RingNode};
use fiber_test_support::scenario;
use fiber_test_support::signals::kill;
use fiber_test_support::wait::wait_until;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing_subscriber::filter::LevelFilter;

/// Prevents opening descriptors until it is dropped, or starting processes if the environment says
/// so.
pub(super) struct Shortage {
    resource: Resource,
    before: Rlimit,
}

impl Shortage {
    pub(super) fn begin() -> Shortage {
        let resource = match std::env::var("SHORTAGE").as_deref() {
            Ok("processes") => Resource::Nproc,
            _ => Resource::Nofile,
        };
        Shortage::of(resource, 0)
    }

    fn of(resource: Resource, rest: u64) -> Shortage {
        let before = getrlimit(resource);
        setrlimit(resource, Rlimit { current: Some(rest), ..before })
            .expect("the limit can be lowered");
        Shortage { resource, before }
    }

    /// Leaves this process `count` descriptors.
    fn of_all_files_but(count: usize) -> Shortage {
        // The runtime reads files of the kernel now and then: their descriptors are free soon.
        let is_taken = |number: &u64| {
            std::fs::read_link(format!("/proc/self/fd/{number}"))
                .is_ok_and(|file| !file.starts_with("/proc") && !file.starts_with("/sys"))
        };
        let free = (0..).filter(|number| !is_taken(number)).nth(count);
        Shortage::of(Resource::Nofile, free.expect("there are more numbers than descriptors"))
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        setrlimit(self.resource, self.before).expect("the limit can be restored");
    }
}

pub(super) fn log() {
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::DEBUG).with_ansi(false);
    log.with_writer(std::io::stdout).init();
}

fn begin(processes: usize) -> Pool {
    fiber::init();
    log();
    let pool = Pool::builder().name("short").processes(processes).build().expect("the pool starts");
    pool.wait_until_ready().wait().expect("workers can be started");
    pool
}

fn work(x: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(1));
    2 * x
}

fn pid(_: u32) -> u32 {
    std::thread::sleep(Duration::from_millis(100));
    std::process::id()
}

/// Waits for a line from the test.
pub(super) fn wait_for_word() {
    std::io::stdin().lock().lines().next();
}

/// Kills one of three workers during a map and a shortage.
#[scenario("shortage of some")]
fn of_some() {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    static ITEMS: AtomicU64 = AtomicU64::new(0);
    let pool = begin(3);
    // The iterator is as slow as the tasks, so that the feeder is not far ahead.
    let items = std::iter::from_fn(|| {
        std::thread::sleep(Duration::from_millis(1));
        (!ENOUGH.load(Ordering::SeqCst)).then(|| ITEMS.fetch_add(1, Ordering::SeqCst))
    });
    let map = pool.map(work, items);
    let victim = pool.apply(pid, 0).wait().expect("a worker returns its process id");
    let shortage = Shortage::begin();
    kill(victim);
    wait_for_word();
    println!("meanwhile {}", pool.apply(work, 21).wait().expect("the other workers run the task"));
    pool.wait_until_ready().wait().expect("the other workers are ready");
    println!("ready {}", pool.ready_workers());
    drop(shortage);
    wait_until("all workers", || pool.ready_workers() == 3);
    ENOUGH.store(true, Ordering::SeqCst);
    let results = map.wait().expect("the map continues");
    assert!(
        results.into_iter().eq((0..ITEMS.load(Ordering::SeqCst)).map(|x| 2 * x)),
        "each result is correct"
    );
    println!("all right");
}

/// Kills all workers during a shortage, which ends when the test says so.
#[scenario("shortage of all")]
fn of_all() {
    let pool = begin(2);
    let workers: std::collections::BTreeSet<_> =
        pool.map(pid, 0..8).wait().unwrap().into_iter().collect();
    let shortage = Shortage::begin();
    workers.into_iter().for_each(kill);
    wait_until("the end of all workers", || pool.ready_workers() == 0);
    let call = pool.apply(work, 21);
    let freeing = std::thread::spawn(move || {
        wait_for_word();
        drop(shortage);
    });
    match call.wait() {
        Ok(result) => println!("done {result}"),
        Err(error) => println!("failed {error}"),
    }
    drop(freeing);
}

/// Has a worker, and a shortage on demand.
#[scenario("shortage of a guard")]
fn of_a_guard() {
    let _pool = begin(1);
    println!("ready");
    wait_for_word();
    // The guard's end frees some descriptors, so few are left anyway: those of the standard streams
    // and one more.
    let shortage = Shortage::of(Resource::Nofile, 4);
    println!("short");
    wait_for_word();
    drop(shortage);
    wait_for_word();
}

/// Has a worker that prints its first line during a shortage, and more after it.
#[scenario("shortage of a printer")]
fn of_a_printer() {
    let pool = begin(1);
    let print = |line: String| println!("a worker prints {line}");
    let shortage = Shortage::begin();
    pool.apply(print, "early".to_string()).wait().expect("the worker is there");
    wait_for_word();
    drop(shortage);
    pool.apply(print, "late".to_string()).wait().expect("the worker is there");
    wait_for_word();
}

/// Starts a ring during a shortage, and another one after it.
#[scenario("shortage at the start of a ring")]
fn at_the_start_of_a_ring() {
    fiber::init();
    // Some limits are raised when the first child starts.
    Process::spawn(work, 21).wait().expect("a process starts");
    let shortage = Shortage::begin();
    let ring = || Ring::builder().name("short").size(3).run(|node: RingNode| node.rank(), ());
    println!("failed {}", ring().wait().unwrap_err());
    drop(shortage);
    println!("later {:?}", ring().wait().expect("the shortage is over"));
}

/// Starts a ring that takes a checkpoint, and kills a rank during a shortage, which ends when the
/// test says so.
#[scenario("shortage of a ring")]
fn of_a_ring() {
    fn until_restarted(mut node: RingNode, ready: PathBuf) -> fiber::Result<usize> {
        if node.restored::<()>()?.is_some() {
            return Ok(node.rank());
        }
        node.checkpoint(&())?;
        node.barrier()?;
        std::fs::write(ready.join(format!("{}.ready", node.rank())), "").expect("there is room");
        loop {
            node.barrier()?;
        }
    }
    fiber::init();
    log();
    let place = std::env::current_dir().expect("there is one");
    // Each start that fails takes longer than a second.
    let ring = Ring::builder().name("short").size(3).intensity(3, Duration::from_secs(60));
    let ring = ring.try_run(until_restarted, place.clone());
    wait_until("a file of each rank", || {
        (0..3).all(|rank| place.join(format!("{rank}.ready")).exists())
    });
    // The system refuses a thread, too, during a shortage of processes.
    let (begun, shortage) = std::sync::mpsc::channel();
    let ending = std::thread::spawn(move || {
        wait_for_word();
        drop(shortage.recv());
    });
    begun.send(Shortage::begin()).expect("the thread waits");
    ring.kill_rank(1);
    match ring.wait() {
        Ok(ranks) => println!("restarted {ranks:?}"),
        Err(error) => println!("failed {error}"),
    }
    drop(ending);
}

/// Runs rings side by side, each with one rank that is short of descriptors in some way.
#[scenario("shortage of a rank")]
fn of_a_rank() {
    /// Rank 0 sends to rank 1 while one of them has only `rest` descriptors left.
    fn send(mut node: RingNode, short: usize, rest: usize, passes: bool) -> fiber::Result<String> {
        let file = |name: &str| PathBuf::from(format!("{short}-{rest}-{passes}.{name}"));
        let shortage = (node.rank() == short).then(|| Shortage::of_all_files_but(rest));
        if shortage.is_some() {
            // The directory can be made without a descriptor.
            std::fs::create_dir(file("short")).expect("there is room");
        }
        wait_until("the shortage", || file("short").exists());
        if node.rank() == 0 {
            if short != 0 {
                std::fs::create_dir(file("sends")).expect("there is room");
            }
            node.send_right(&"arrived".to_string())?;
            return Ok("sent".into());
        }
        if passes {
            wait_until("the first message", || file("sends").exists());
            // Time to meet the shortage. If it is too short, the test only tests less.
            std::thread::sleep(Duration::from_millis(300));
            drop(shortage);
            return node.recv_left();
        }
        let received = node.recv_left();
        drop(shortage);
        received
    }
    fn begin_shortage() {
        std::mem::forget(Shortage::of_all_files_but(0));
    }
    fiber::init();
    let rings = [
        ("sender", 0, 0, false),
        ("receiver", 1, 0, false),
        ("receiver of memory", 1, 1, false),
        ("passing", 1, 0, true),
        ("passing without memory", 1, 1, true),
    ]
    .map(|(what, short, rest, passes)| {
        (what, Ring::builder().size(2).try_run(send, (short, rest, passes)))
    });
    let initialized = Ring::builder().size(2).initializer(begin_shortage, ());
    let initialized = initialized.run(|node: RingNode| node.rank(), ());
    for (what, ring) in rings {
        match ring.wait() {
            Ok(values) => println!("{what}: {values:?}"),
            Err(error) => println!("{what}: failed: {error}"),
        }
    }
    println!("initializer: {}", initialized.wait().unwrap_err());
}
