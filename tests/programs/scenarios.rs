//! The programs that the tests start.

mod apart;
mod buffers;
mod detached;
mod draining;
mod forks;
mod logs;
mod managed;
mod metrics;
mod nested;
mod network;
mod placed;
mod shortages;
mod silent_connections;
mod slots;
mod starters;
mod surroundings;
mod thread_ends;
mod timeline;
mod told;
mod traced;
mod unfinished;

use std::io::{BufRead, Write};
use std::path::Path;

use fiber::{Config, Error, Pool, Process, config::OutputMode, sync::Barrier};
use fiber_test_support::program::pid;
use fiber_test_support::scenario;
use fiber_test_support::wait::wait_until;
use rustix::process::{Signal, kill_process};
use serde::{Deserialize, Serialize};

pub(crate) use self::apart::IN_NEW_NAMESPACE;

fn square(x: u64) -> u64 {
    x * x
}

#[scenario("progress")]
fn progress() {
    fiber::init();
    let pool = Pool::new(2).unwrap();
    let squares = pool.map(square, 0..300).progress("squares").wait().unwrap();
    println!("sum {}", squares.into_iter().sum::<u64>());
}

/// The program and its workers print lines during a progress bar: the workers before a file `go`
/// exists, the program after that.
#[scenario("progress beside lines")]
fn progress_beside_lines() {
    fn speak(x: u64) -> u64 {
        wait_until("the test's file", || x == 0 || Path::new("bar").exists());
        println!("worker {x}");
        eprintln!("also worker {x}");
        x
    }
    fiber::init();
    let pool = Pool::new(2).unwrap();
    let mut results = pool.imap(speak, 0..8).progress("lines").wait();
    let first = results.next().unwrap().unwrap();
    std::fs::write("bar", "").unwrap();
    wait_until("the test's file", || Path::new("go").exists());
    // Many programs print while they iterate.
    let mut out = std::io::stdout().lock();
    for x in [first].into_iter().chain(results.map(Result::unwrap)) {
        fiber::pool::suspend_progress(|| writeln!(out, "program {x}").unwrap());
    }
}

fn hang() {
    fiber_test_support::hang()
}

/// Reads a line of standard input, by which a test controls the program.
fn read_line() -> Option<String> {
    std::io::stdin().lock().lines().next()?.ok()
}

mod async_main {
    use super::{Pool, scenario, square};

    #[scenario("async main")]
    #[fiber::main]
    async fn main() -> fiber::Result<()> {
        let pool = Pool::builder().processes(2).start().await?;
        println!("sum {}", pool.map(square, 0..10).await?.iter().sum::<u64>());
        Ok(())
    }
}

mod plain_main {
    use super::{Pool, scenario, square};

    #[scenario("plain main")]
    #[fiber::main]
    fn main() -> fiber::Result<()> {
        let pool = Pool::builder().processes(2).start().wait()?;
        println!("sum {}", pool.map(square, 0..10).wait()?.iter().sum::<u64>());
        Ok(())
    }
}

#[scenario("main with init")]
fn main_with_init() -> fiber::Result<()> {
    fiber::init();
    let pool = Pool::new(2)?;
    println!("sum {}", pool.map(square, 0..10).wait()?.iter().sum::<u64>());
    Ok(())
}

mod failing_main {
    use super::{Pool, scenario};

    #[scenario("failing main")]
    #[fiber::main]
    async fn main() -> Result<(), String> {
        let pool = Pool::new(1).map_err(|error| error.to_string())?;
        pool.try_apply(|| Err::<(), _>("no such luck"), ()).await.map_err(|error| error.to_string())
    }
}

/// Continues `main` when all processes of the family work.
enum Then {
    Wait,
    Return,
    Exit,
    ExitOnThread,
    Panic,
}

#[scenario("family")]
fn family_that_waits() {
    family(&Then::Wait);
}

#[scenario("family, main returns")]
fn family_whose_main_returns() {
    family(&Then::Return);
}

#[scenario("family, main exits")]
fn family_whose_main_exits() {
    family(&Then::Exit);
}

#[scenario("family, a thread exits")]
fn family_with_a_thread_that_exits() {
    family(&Then::ExitOnThread);
}

#[scenario("family, main panics")]
fn family_whose_main_panics() {
    family(&Then::Panic);
}

/// Starts two workers and a process, each of which starts two more: with this one, ten processes.
fn family(then: &Then) {
    fiber::init();
    let pool = Pool::builder().processes(2).build().expect("a pool can be made");
    let _calls = pool.map(parent, 0..2);
    drop(Process::spawn(parent, 2));
    let all_at_work = || (0..9).all(|name| Path::new(&name.to_string()).exists());
    wait_until("work of all", all_at_work);
    println!("all at work");
    match then {
        Then::Wait => hang(),
        Then::Return => {}
        Then::Exit => std::process::exit(5),
        Then::ExitOnThread => {
            let _ = std::thread::spawn(|| std::process::exit(5)).join();
        }
        Then::Panic => panic!("main has had enough"),
    }
}

fn parent(number: u32) {
    for child in [3 + 2 * number, 4 + 2 * number] {
        drop(Process::spawn(be_there, child));
    }
    be_there(number);
}

fn be_there(name: u32) {
    println!("{name} was here");
    std::fs::write(name.to_string(), "").expect("the working directory can be written to");
    hang();
}

#[scenario("no init")]
fn no_init() {
    eprintln!("main began");
    let pool = Pool::new(2).map(drop).unwrap_err();
    let process = Process::spawn(square, 2).wait().unwrap_err();
    let supervisor = fiber::Supervisor::builder("app").start().wait().map(drop).unwrap_err();
    println!("pool: {pool}\nprocess: {process}\nsupervisor: {supervisor}");
}

#[scenario("main without init")]
fn main_without_init() -> fiber::Result<()> {
    Pool::new(1).map(drop)
}

#[scenario("panic")]
fn panicking() {
    fiber::init();
    let pool = Pool::new(1).unwrap();
    let error = pool.apply(|x: u32| -> u32 { panic!("the cause {x}") }, 7).wait().unwrap_err();
    println!("message: {error}\ndebug: {error:?}");
}

#[scenario("panic that aborts")]
fn panicking_for_good() {
    extern "C" fn foreign(x: u32) {
        panic!("the cause {x}");
    }
    fiber::init();
    let pool = Pool::new(1).unwrap().max_deaths(1);
    println!("{}", pool.apply(|x: u32| foreign(x), 7).wait().unwrap_err());
}

#[scenario("init too late")]
fn init_too_late() {
    eprintln!("main began");
    std::thread::spawn(hang);
    fiber::init();
    eprintln!("main went on");
    println!("{}", Pool::new(1).and_then(|pool| pool.map(square, 0..3).wait()).unwrap_err());
}

#[scenario("init in a runtime")]
#[actix::main]
async fn init_in_a_runtime() {
    eprintln!("main began");
    fiber::init();
    eprintln!("main went on");
    println!("{}", Pool::new(1).unwrap().map(square, 0..3).await.unwrap_err());
}

#[scenario("init in the parent alone")]
fn init_in_parent_alone() {
    eprintln!("main began");
    if std::env::var_os("FIBER_PARENT").is_none() {
        fiber::init();
    }
    match Process::spawn(square, 2).wait() {
        Err(Error::NotInitialized) => std::process::exit(1),
        other => println!("{}", other.unwrap_err()),
    }
}

#[scenario("init after work")]
fn init_after_work() {
    eprintln!("main began");
    if std::env::var_os("FIBER_PARENT").is_some() {
        hang();
    }
    fiber::init();
    println!("{}", Process::spawn(square, 2).wait().unwrap_err());
}

/// Works for each line that it reads.
#[scenario("work on demand")]
fn work_on_demand() {
    fiber::init();
    let pool = Pool::new(2).expect("a pool can be made");
    pool.wait_until_ready().wait().expect("workers can be started");
    println!("ready");
    while let Some(line) = read_line() {
        match &*line {
            "map" => {
                println!("sum {}", pool.map(square, 0..1000).wait().unwrap().iter().sum::<u64>())
            }
            "lose workers" => {
                let task = |path: String| {
                    if std::fs::File::create_new(path).is_ok() {
                        std::process::abort();
                    }
                    std::process::id()
                };
                let lost = (0..6).map(|n| format!("{n}.lost"));
                println!("lost {}", pool.map(task, lost).wait().unwrap().len());
            }
            "spawn" => {
                println!("spawned {}", Process::spawn(square, 3).wait().unwrap())
            }
            other => panic!("`{other}` is no work"),
        }
    }
}

#[scenario("stopped children")]
fn stopped_children() {
    fiber::init();
    let stop = || -> u32 {
        let _ = kill_process(rustix::process::getpid(), Signal::STOP);
        std::process::id()
    };
    // Side by side, as the heartbeats of each are missed for seconds.
    let process = Process::spawn(stop, ());
    let mortal = Pool::new(1).unwrap().max_deaths(2);
    let task = mortal.apply(stop, ());
    // It has connected, and is not ready yet.
    let stop = || kill_process(rustix::process::getpid(), Signal::STOP).unwrap();
    let unready = Pool::builder().processes(1).initializer(stop, ()).build().unwrap();
    let start = unready.apply(square, 3);
    let pool = Pool::new(1).unwrap();
    let first = pool.apply(std::process::id, ()).wait().unwrap();
    kill_process(pid(first), Signal::STOP).unwrap();
    let second = pool.apply(std::process::id, ()).wait().unwrap();
    println!("replaced: {}", first != second);
    println!("process: {}", process.wait().unwrap_err());
    println!("task: {}", task.wait().unwrap_err());
    println!("initializer: {}", start.wait().unwrap_err());
}

#[scenario("too large")]
fn too_large() {
    fiber::init();
    let give = |length: usize| "x".repeat(length);
    let take = |text: String| text.len();
    let long = || "x".repeat(100_000);
    let pool = Pool::new(1).unwrap();
    println!("argument: {}", pool.apply(take, long()).wait().unwrap_err());
    println!(
        "argument among others: {}",
        pool.map(take, ["a".to_string(), long()]).wait().unwrap_err()
    );
    println!("result: {}", pool.apply(give, 100_000).wait().unwrap_err());
    println!("broadcast: {}", pool.broadcast(long()).unwrap_err());
    let join = |text: String, more: String| (text + &more).len();
    pool.apply(join, ("a".to_string(), "b".to_string())).wait().unwrap();
    // The usual times of both functions are known, so the second task follows the first one.
    let gate = fiber::sync::Event::new().unwrap();
    let wait = |gate: fiber::sync::Event| gate.wait_set().wait().map_or(0, |()| 65_000_usize);
    let length = pool.apply(wait, gate.clone()).output();
    let joined = pool.apply(join, (pool.apply(give, length).output(), "x".repeat(1000)));
    gate.set().wait().unwrap();
    println!("input made by the task before: {}", joined.wait().unwrap_err());
    let halves = pool.map(give, [40_000, 40_000]).outputs();
    let both = |texts: Vec<String>| texts.concat().len();
    println!("inputs: {}", pool.apply(both, halves).wait().unwrap_err());
    let topic = fiber::Topic::new().unwrap();
    println!("message of a topic: {}", topic.publish(long()).wait().unwrap_err());
    println!("spawned argument: {}", Process::spawn(take, long()).wait().unwrap_err());
    println!("spawned result: {}", Process::spawn(give, 100_000).wait().unwrap_err());
    println!("the pool goes on: {}", pool.apply(take, "x".repeat(60_000)).wait().unwrap());
    println!("many small ones: {}", pool.map(give, vec![1000; 1000]).wait().unwrap().len());
}

/// A value that does not deserialize: it writes something else than it reads.
#[derive(Debug, Deserialize)]
struct Crooked {
    _value: u32,
}

impl Serialize for Crooked {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("crooked")
    }
}

#[scenario("crooked results")]
fn crooked_results() {
    fiber::init();
    let pool = Pool::new(1).unwrap();
    println!("result: {}", pool.apply(|| Crooked { _value: 1 }, ()).wait().unwrap_err());
    println!(
        "argument: {}",
        pool.apply(|_: Crooked| (), Crooked { _value: 1 }).wait().unwrap_err()
    );
    println!("in a map: {}", pool.map(|_: u32| Crooked { _value: 1 }, 0..3).wait().unwrap_err());
    println!("the pool goes on: {}", pool.apply(square, 3).wait().unwrap());
}

#[scenario("first error")]
fn first_error() {
    fiber::init();
    println!("{}", Pool::builder().build().map(drop).unwrap_err());
    println!("{}", Process::spawn(square, 2).wait().unwrap_err());
}

#[scenario("configuration")]
fn plain_configuration() {
    configuration(false);
}

#[scenario("configuration in code")]
fn configuration_in_code() {
    configuration(true);
}

fn configuration(in_code: bool) {
    fiber::init();
    if in_code {
        fiber::init_with(|config| config.processes = 3);
    }
    let show = || {
        let config = Config::load().unwrap();
        format!(
            "{} processes, {:?} heartbeat, {} at most",
            config.processes, config.heartbeat, config.max_message
        )
    };
    println!("parent: {}", show());
    println!("child: {}", Process::spawn(show, ()).wait().unwrap());
    let grandchild = move || Process::spawn(show, ()).wait().unwrap();
    println!("grandchild: {}", Process::spawn(grandchild, ()).wait().unwrap());
    let pool = Pool::builder().start().wait().unwrap();
    pool.wait_until_ready().wait().unwrap();
    println!("workers: {}", pool.ready_workers());
    let pool = Pool::builder().processes(1).start().wait().unwrap();
    println!("workers by the builder: {}", pool.ready_workers());
    // The parent's configuration counts, not the child's directory and environment.
    let elsewhere = move || {
        std::env::set_current_dir("/").unwrap();
        Pool::builder().start().wait().unwrap().wait_until_ready().wait().unwrap();
        show()
    };
    println!("elsewhere: {}", Process::spawn(elsewhere, ()).wait().unwrap());
}

#[scenario("output")]
fn output() {
    fiber::init();
    let talk = || -> () {
        println!("from standard output");
        eprintln!("from standard error");
        print!("and a last line without an end");
        std::process::exit(4)
    };
    let talker = Process::builder().name("talker").spawn(talk, ());
    talker.wait().unwrap_err();
    let quiet = Process::builder().name("quiet").output(OutputMode::Null);
    quiet.spawn(|| println!("from nowhere"), ()).wait().unwrap();
    let pool = Pool::builder().name("choir").processes(1).build().unwrap();
    pool.apply(|| println!("from a worker"), ()).wait().unwrap();
    pool.stop().wait().unwrap();
}

/// All workers print the same line, again and again until a file exists.
#[scenario("equal lines")]
fn equal_lines() {
    const WORKERS: usize = 4;
    fiber::init();
    let pool = Pool::builder().name("choir").processes(WORKERS).build().unwrap();
    let barrier = Barrier::new(WORKERS).unwrap();
    let sing = |round: u64, barrier: Barrier| {
        barrier.wait_all().wait().unwrap();
        println!("round {round}");
    };
    let mut rounds = 0;
    while !Path::new("enough").exists() {
        pool.map(sing, vec![(rounds, barrier.clone()); WORKERS]).wait().unwrap();
        rounds += 1;
    }
    println!("rounds {rounds}");
}

/// Prints more than any pipe holds, and reports to standard error.
#[scenario("chatter")]
fn chatter() {
    fiber::init();
    let chat = |task: u64| {
        (0..1000).for_each(|line| {
            println!("task {task}, line {line}, and more of it so that there is a lot")
        });
        task
    };
    let pool = Pool::new(2).unwrap();
    eprintln!("sum {}", pool.map(chat, 0..20).wait().unwrap().iter().sum::<u64>());
    let process = Process::spawn(chat, 7);
    eprintln!("spawned {}", process.wait().unwrap());
    pool.stop().wait().unwrap();
}

/// Prints more than the pipes hold, right before the end.
#[scenario("report")]
fn report() {
    fiber::init();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    report_without_a_log();
}

#[scenario("report without a log")]
fn report_without_a_log() {
    fiber::init();
    let report = || (0..5000).for_each(|line| println!("line {line:<75}"));
    Process::spawn(report, ()).wait().unwrap();
}

/// Limits the address space to little more than the program uses already, as `ulimit -v` does.
#[scenario("little address space")]
fn little_address_space() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let size = status.lines().find_map(|line| {
        line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    let room = (size.expect("the kernel says it") << 10) + (12 << 20);
    setrlimit(Resource::As, Rlimit { current: Some(room), maximum: Some(room) })
        .expect("limits can be lowered");
    fiber::init();
    println!("initialized");
}

#[scenario("killed as they start")]
fn killed_as_they_start() {
    if std::env::var_os("FIBER_PARENT").is_some() {
        let _ = kill_process(rustix::process::getpid(), Signal::KILL);
    }
    fiber::init();
    println!("{}", Process::spawn(square, 2).wait().unwrap_err());
}

#[scenario("out of memory")]
fn out_of_memory() {
    fiber::init();
    /// Joins a control group, and allocates more memory than it allows: the first time, or always.
    fn swallow(first: bool) -> usize {
        if first && std::fs::File::create_new("swallowed").is_err() {
            return 7;
        }
        let group = std::env::var_os("GROUP").expect("the test sets it");
        std::fs::write(group, std::process::id().to_string()).expect("the group can be joined");
        std::hint::black_box(vec![1u8; 256 << 20]).len()
    }
    let pool = Pool::new(1).unwrap();
    println!("again: {}", pool.apply(swallow, true).wait().unwrap());
    println!("given up: {}", pool.max_deaths(2).apply(swallow, false).wait().unwrap_err());
    println!("process: {}", Process::spawn(swallow, false).wait().unwrap_err());
    println!("the pool goes on: {}", pool.apply(square, 3).wait().unwrap());
}
