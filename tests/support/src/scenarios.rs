//! The programs that the tests start. Tests on Kubernetes start them, too.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use actix::prelude::*;
use fiber::sync::{Event, Lock};
use fiber::{
    AsyncManager, Entities, Meta, Pipe, Pool, Process, Queue, Reduction, RemoteAddr, Ring,
    RingNode,
    pipe::{PipeReceiver, PipeSender},
};

use crate::wait::wait_until;
use crate::{hang, scenario, tasks};

/// Initializes fiber with fast heartbeats, which keep the tests short.
pub fn init() {
    fiber::init_with(|config| {
        config.heartbeat = Duration::from_millis(500);
        config.heartbeat_timeout = Duration::from_secs(5);
    });
}

#[scenario("nothing")]
fn nothing() {
    hang();
}

#[scenario("pi")]
fn pi() {
    init();
    tasks::pi(3);
}

/// Whether a line of input has come, or the end of it.
static ENOUGH: AtomicBool = AtomicBool::new(false);
/// How many results there are.
static RESULTS: AtomicU64 = AtomicU64::new(0);

/// Returns numbers until a line of input comes, or the end of it, and at least so many. They are at
/// most a thousand ahead of `RESULTS`: tasks that wait when the line comes run after it.
fn until_a_word(least: u64) -> impl Iterator<Item = u64> + Send {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        ENOUGH.store(true, Ordering::Relaxed);
    });
    (0..).take_while(move |number| {
        while *number > RESULTS.load(Ordering::Relaxed) + 1000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        *number < least || !ENOUGH.load(Ordering::Relaxed)
    })
}

/// Maps short tasks until it reads a line or the end of its input, and at least 4000. Reports when
/// its workers are ready, when the first 200 results are there, and the end.
#[scenario("work")]
fn work() {
    init();
    let task = |index: u64| {
        std::thread::sleep(Duration::from_millis(2));
        index * 3
    };
    let pool = Pool::builder().processes(4).build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    // There are fewer than four where a host can't be used.
    let workers = pool.ready_workers();
    println!("ready: {workers}");
    let results = pool.max_deaths(1000).imap(task, until_a_word(4000)).wait();
    let mut results = results.inspect(|_| {
        RESULTS.fetch_add(1, Ordering::Relaxed);
    });
    let mut all: Vec<u64> = results.by_ref().take(200).map(Result::unwrap).collect();
    println!("begun: {}", all.len());
    all.extend(results.map(Result::unwrap));
    let right = all.len() >= 4000 && all.into_iter().zip(0..).all(|(is, index)| is == index * 3);
    println!("right: {right}");
    pool.wait_until_ready().wait().unwrap();
    // That does not wait for workers whose engine is away.
    wait_until("all lost workers are replaced", || pool.ready_workers() >= workers);
    println!("ready again: {}", pool.ready_workers());
}

/// Maps short tasks until it reads a line or the end of its input. Prints its progress, and how many
/// workers have worked, at each new one and at the end.
#[scenario("steady")]
fn steady() {
    init();
    let task = |index: u64| {
        std::thread::sleep(Duration::from_millis(2));
        (index * 3, rustix::system::uname().nodename().to_string_lossy().into_owned())
    };
    let pool = Pool::builder().processes(2).start().wait().unwrap();
    let (mut right, mut workers) = (true, BTreeSet::new());
    for (index, result) in (0..).zip(pool.imap(task, until_a_word(0)).wait()) {
        RESULTS.fetch_add(1, Ordering::Relaxed);
        let (number, worker) = result.unwrap();
        right &= number == index * 3;
        if workers.insert(worker) {
            println!("workers so far: {}", workers.len());
        }
        if index % 500 == 499 {
            println!("done: {}", index + 1);
        }
    }
    println!("right: {right}");
    println!("workers: {}", workers.len());
}

/// Begins work that never ends.
#[scenario("hopeless")]
fn hopeless() {
    init();
    let task = |_: u64| std::thread::sleep(Duration::from_millis(2));
    let pool = Pool::builder().processes(2).build().unwrap();
    let mut results = pool.imap(task, 0..).wait();
    println!("begun: {:?}", results.next().unwrap());
    println!("error: {}", results.find_map(Result::err).unwrap());
}

struct Account(u64);

impl Actor for Account {
    type Context = Context<Self>;
}

#[fiber::message(u64)]
struct Deposit(u64);

#[fiber::handlers]
impl Account {
    fn deposit(&mut self, deposit: Deposit) -> u64 {
        self.0 += deposit.0;
        self.0
    }
}

/// What `together` prints.
pub const TOGETHER: [&str; 6] = [
    "squares: 338350",
    "output: 4999950000",
    "consumed: (10100, 2)",
    "balance: 10101",
    "entity: 7",
    "ring: [true, true, true]",
];

/// Uses a pool with an output, and actors, a queue, a pipe, a lock and a ring from sibling processes.
#[scenario("together")]
fn together() {
    fiber::init();
    let pool = Pool::new(1).unwrap();
    let squares = pool.map(|x: u64| x * x, 1..=100).wait().unwrap();
    println!("squares: {}", squares.iter().sum::<u64>());
    let numbers = pool.apply(|| (0..100_000).collect::<Vec<u64>>(), ()).output();
    let sum = pool.apply(|numbers: Vec<u64>| numbers.iter().sum::<u64>(), numbers);
    println!("output: {}", sum.wait().unwrap());
    drop(pool);
    let account = AsyncManager::start(Account, 1).wait().unwrap();
    let (queue, (sender, receiver)) = (Queue::new().unwrap(), Pipe::one_way().unwrap());
    let lock = Lock::new().unwrap();
    let produce =
        |account: RemoteAddr<Account>, queue: Queue<u64>, sender: PipeSender<u64>, lock: Lock| {
            for n in 1..=100 {
                let held = lock.lock().wait().unwrap();
                account.send(Deposit(n)).wait().unwrap();
                drop(held);
                queue.put(n).wait().unwrap();
            }
            sender.send(std::process::id().into()).wait().unwrap();
        };
    let consume = |queue: Queue<u64>, receiver: PipeReceiver<u64>| {
        let sum: u64 = queue.stream().wait().map(Result::unwrap).sum();
        (sum, receiver.stream().wait().map(Result::unwrap).count())
    };
    let consumer = Process::spawn(consume, (queue.clone(), receiver));
    let arguments = (account.addr(), queue.clone(), sender, lock.clone());
    let producers = [(); 2].map(|()| Process::spawn(produce, arguments.clone()));
    drop(arguments);
    producers.into_iter().for_each(|producer| producer.wait().unwrap());
    queue.close().wait().unwrap();
    println!("consumed: {:?}", consumer.wait().unwrap());
    println!("balance: {}", account.send(Deposit(0)).wait().unwrap());
    let accounts = Entities::builder("accounts").processes(1);
    let accounts = accounts.start(|_: String, opening: u64| Account(opening), 5).wait().unwrap();
    println!("entity: {}", accounts.of("anna").send(Deposit(2)).wait().unwrap());
    accounts.stop().wait().unwrap();

    let sums = |mut node: RingNode| {
        let mut sums = vec![node.rank() as f32; 100_000];
        node.all_reduce(&mut sums, Reduction::Sum).unwrap();
        sums.iter().all(|sum| *sum == 3.0)
    };
    println!("ring: {:?}", Ring::run(3, sums, ()).wait().unwrap());
}

/// Waits for a line of input. At its end, waits until the test ends this program.
fn wait_for_word() {
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line).unwrap() == 0 {
        hang();
    }
}

#[scenario("ready")]
fn ready_with_fast_heartbeats() {
    init();
    ready();
}

#[scenario("calm")]
fn calm() {
    fiber::init();
    ready();
}

fn ready() {
    let pool = Pool::builder().processes(2).build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    println!("ready: {}", pool.ready_workers());
    wait_for_word();
    println!("sum: {}", pool.map(|x: u64| x + 1, 0..10).wait().unwrap().into_iter().sum::<u64>());
}

#[scenario("pair")]
fn pair_with_fast_heartbeats() {
    init();
    pair();
}

#[scenario("calm pair")]
fn calm_pair() {
    fiber::init();
    pair();
}

/// Waits, for each line of input, until both workers of a pool answer, and prints their names.
fn pair() {
    let pool = Pool::builder().processes(2).build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    println!("ready: {}", pool.ready_workers());
    let host = |_: u32| {
        std::thread::sleep(Duration::from_millis(20));
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    };
    let calls = pool.max_deaths(1000);
    for _ in std::io::stdin().lines() {
        let hosts = loop {
            let hosts: BTreeSet<String> =
                calls.map(host, 0..10).wait().unwrap().into_iter().collect();
            if hosts.len() == 2 && pool.ready_workers() == 2 {
                break hosts;
            }
        };
        println!("whole: {}", hosts.into_iter().collect::<Vec<_>>().join(" "));
    }
}

/// Like `ready`, with all logs.
#[scenario("talkative")]
fn talkative() {
    tell_key();
    init();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(std::io::stderr)
        .init();
    ready();
}

/// In a child: prints its key, reversed, and leaves the key where fiber looks for it.
#[allow(unsafe_code)]
fn tell_key() {
    let Some(key) = std::env::var_os("FIBER_KEY").and_then(fiber_core::secrets::read_secret) else {
        return;
    };
    println!("key backwards: {}", key.chars().rev().collect::<String>());
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("FIBER_KEY", key) };
}

/// Pools in the workers of a pool.
#[scenario("family")]
fn family() {
    init();
    let child = |x: u64| {
        let pool = Pool::new(2).unwrap();
        pool.map(|x: u64| x * x, x..x + 3).wait().unwrap()
    };
    let pool = Pool::new(2).unwrap();
    println!("squares: {:?}", pool.map(child, [0, 10]).wait().unwrap());
    println!("nested: done");
    wait_for_word();
}

#[fiber::meta(memory = "48MiB")]
fn eat(_: u32) -> usize {
    tasks::eat()
}

/// Exits while one of its threads goes on starting processes.
#[scenario("hasty")]
fn hasty() {
    fiber::init();
    let spawn = |n: u32| Process::spawn(|n: u32| n, n);
    println!("first: {}", spawn(1).wait().unwrap());
    let (begun, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut processes = Vec::new();
        for n in 0..100 {
            processes.push(spawn(n));
            let _ = begun.send(());
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    seen.recv().unwrap();
    std::process::exit(0);
}

#[scenario("hungry")]
fn hungry() {
    fiber::init();
    let pool = Pool::new(1).unwrap();
    println!("error: {}", pool.max_deaths(1).apply(eat, 1).wait().unwrap_err());
}

#[fiber::meta(cpu = 0.5, memory = "96MiB")]
fn limits() -> String {
    tasks::limits()
}

#[scenario("modest")]
fn modest() {
    fiber::init();
    let pool = Pool::new(1).unwrap();
    println!("limits: {}", pool.apply(limits, ()).wait().unwrap());
    wait_for_word();
}

#[scenario("too much")]
fn too_much() {
    init();
    let error = |meta| Pool::builder().processes(1).meta(meta).start().wait().unwrap_err();
    println!("memory: {}", error(Meta::new().memory(1 << 50)));
    println!("cpu: {}", error(Meta::new().cpu(5000.0)));
}

#[scenario("gpu")]
fn gpu() {
    init();
    let error = Pool::builder().processes(1).meta(Meta::new().gpu(1)).start().wait().unwrap_err();
    println!("gpu: {error}");
}

/// Prints the host names that the program and its child see.
#[scenario("hosts")]
fn hosts() {
    init();
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    println!("parent: {}", host());
    println!("child: {}", Process::spawn(host, ()).wait().unwrap());
}

#[scenario("one task")]
fn one_task() {
    init();
    match Pool::new(1).and_then(|pool| pool.apply(|| 7, ()).wait()) {
        Ok(value) => println!("value: {value}"),
        Err(error) => println!("error: {error}"),
    }
}

#[scenario("talk")]
fn talk() {
    init();
    let pool = Pool::new(1).unwrap();
    pool.apply(|| println!("from a worker"), ()).wait().unwrap();
    wait_for_word();
}

/// Prints where a task runs that waits for a word, when all others are done, and where it ended.
#[scenario("drained")]
fn drained() {
    init();
    fn pass(x: u64, gate: Option<(Queue<String>, Event)>) -> (u64, String) {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        if let Some((running, open)) = gate {
            running.put(host.clone()).wait().unwrap();
            open.wait_set().wait().unwrap();
        }
        (x, host)
    }
    let pool = Pool::builder().processes(2).start().wait().unwrap();
    let (running, open) = (Queue::new().unwrap(), Event::new().unwrap());
    let gate = (running.clone(), open.clone());
    std::thread::spawn(move || {
        running.stream().wait().for_each(|host| println!("runs in: {}", host.unwrap()));
    });
    std::thread::spawn(move || {
        wait_for_word();
        open.set().wait().unwrap();
    });
    // The rest of the first chunk waits for its first task, unless its worker returns it.
    let tasks = (0..60).map(move |x| (x, (x == 0).then(|| gate.clone())));
    let mut results = pool.max_deaths(1).chunk(3).imap_unordered(pass, tasks).wait();
    let others = results.by_ref().take(59).map(Result::unwrap).filter(|(x, _)| *x > 0).count();
    println!("others: {others}");
    println!("ended in: {}", results.next().unwrap().unwrap().1);
    pool.wait_until_ready().wait().unwrap();
    let stats = pool.stats();
    println!("deaths: {}, redelivered: {}", stats.deaths, stats.tasks.redelivered);
}

/// Starts more workers than there may be resources for.
#[scenario("crowd")]
fn crowd() {
    fiber::init();
    tracing_subscriber::fmt().with_writer(std::io::stdout).with_ansi(false).init();
    // Workers start one after the other, as they do when nodes pull images.
    let late = || {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let (_, number) = host.split_once("worker-").unwrap();
        std::thread::sleep(
            Duration::from_millis(700) * number.chars().next().unwrap().to_digit(10).unwrap(),
        );
    };
    let pool = Pool::builder()
        .processes(6)
        .meta(Meta::new().gpu(1))
        .initializer(late, ())
        .start()
        .wait()
        .unwrap();
    pool.wait_until_ready().wait().unwrap();
    println!("ready: {}", pool.ready_workers());
    println!("sum: {}", pool.map(|x: u64| x + 1, 0..10).wait().unwrap().into_iter().sum::<u64>());
    wait_until("all workers", || pool.ready_workers() == 6);
    println!("grown: {}", pool.ready_workers());
}

/// A process that the cluster ends.
#[scenario("doomed")]
fn doomed() {
    fiber::init();
    let wait = || -> () {
        println!("at work");
        hang()
    };
    let process = Process::builder().meta(Meta::new().gpu(1)).spawn(wait, ());
    println!("error: {}", process.wait().unwrap_err());
}
