//! Programs that look at what they have inherited.

use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Barrier;

use actix::prelude::*;
use fiber::{AsyncManager, Pool, Process, Ring, RingNode};
use fiber_test_support::scenario;
use fiber_test_support::wait::wait_until;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

#[scenario("reads the terminal")]
fn reads_the_terminal() {
    fn open() -> Result<(), String> {
        File::open("/dev/tty").map(drop).map_err(|error| error.to_string())
    }
    fiber::init();
    println!("program: {:?}", open());
    println!("worker: {:?}", Pool::new(1).unwrap().apply(open, ()).wait().unwrap());
}

#[scenario("listens for Ctrl-C itself")]
fn listens_for_ctrl_c_itself() {
    fiber::init();
    let is_first = std::env::args().any(|argument| argument == "first");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let listen = || signal(SignalKind::interrupt()).unwrap();
        let mut early = is_first.then(listen);
        let pool = Pool::new(1).unwrap();
        pool.apply(|| (), ()).await.unwrap();
        let signals = early.get_or_insert_with(listen);
        println!("ready");
        signals.recv().await;
        println!("cleaned up: {}", pool.apply(|| 7, ()).await.unwrap());
    });
}

/// Its tasks leave programs behind, which the first process of the container inherits.
#[scenario("leaves orphans")]
fn leaves_orphans() {
    fiber::init();
    let pool = Pool::new(2).unwrap();
    let leave = |_: u64| {
        let shell = Command::new("sh").args(["-c", "sh -c 'sleep 0.1' & sh -c true &"]).status();
        assert!(shell.unwrap().success());
    };
    pool.map(leave, 0..20u64).wait().unwrap();
    let stats = || {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
    };
    wait_until("no orphan is left", || !stats().any(|stat| stat.contains("(sh) ")));
    println!("all are reaped");
}

/// Its arguments are longer than the programs may have that it starts.
#[scenario("long arguments")]
fn long_arguments() {
    fiber::init();
    // A quarter of the stack is for arguments and variables.
    let limit = Rlimit { current: Some(512 << 10), ..getrlimit(Resource::Stack) };
    setrlimit(Resource::Stack, limit).unwrap();
    println!("{}", Pool::new(1).unwrap().apply(|| (), ()).wait().unwrap_err());
}

#[scenario("writes a large file")]
fn writes_a_large_file() {
    fn write(name: &str) -> std::io::Result<()> {
        fs::write(name, vec![1; 2 << 20])
    }
    fiber::init();
    println!("program: {:?}", write("program").map_err(|error| error.to_string()));
    let task = || write("worker").map_err(|error| error.to_string());
    let pool = Pool::new(1).unwrap();
    println!("worker: {:?}", pool.apply(task, ()).wait().unwrap());
    let command = || {
        let args = ["if=/dev/zero", "of=command", "bs=1M", "count=2"];
        Command::new("dd").args(args).status().unwrap().signal()
    };
    println!("command: {:?}", pool.apply(command, ()).wait().unwrap());
}

#[scenario("works without end")]
fn works_without_end() {
    fn spin() {
        while black_box(true) {
            std::hint::spin_loop();
        }
    }
    fiber::init();
    let pool = Pool::new(1).unwrap().max_deaths(1);
    println!("{}", pool.apply(spin, ()).wait().unwrap_err());
}

/// Uses as many MiB of the stack as a variable says.
fn use_the_stack() -> bool {
    fn go_down(top: usize, used: usize) -> bool {
        let frame = [0_u8; 1024];
        let here = black_box(&frame).as_ptr().addr();
        top.abs_diff(here) >= used || (go_down(top, used) && black_box(&frame)[0] == 0)
    }
    let used: usize = std::env::var("USED").unwrap().parse().unwrap();
    go_down(black_box(&used as *const usize).addr(), used << 20)
}

struct Deep;

impl Actor for Deep {
    type Context = Context<Self>;
}

#[fiber::message(bool)]
struct GoDown;

#[fiber::handlers]
impl Deep {
    fn go_down(&mut self, _: GoDown) -> bool {
        use_the_stack()
    }
}

#[scenario("uses its stack")]
fn uses_its_stack() {
    fiber::init();
    assert!(use_the_stack(), "program");
    let pool = Pool::builder().processes(1).threads_per_worker(2).build().unwrap();
    let task = |_: u64| {
        // Each thread has one of the tasks.
        static BOTH: Barrier = Barrier::new(2);
        BOTH.wait();
        use_the_stack()
    };
    let items = (0..2).filter(|_| use_the_stack());
    assert_eq!(pool.map(task, items).wait().unwrap(), [true, true]);
    assert!(Process::spawn(use_the_stack, ()).wait().unwrap(), "process");
    let deep = AsyncManager::start(|| Deep, ()).wait().unwrap();
    assert!(deep.send(GoDown).wait().unwrap(), "actor");
    assert_eq!(Ring::run(1, |_: RingNode| use_the_stack(), ()).wait().unwrap(), [true]);
    println!("all have room");
}
