//! Programs that look at what they have inherited.

use std::fs::{self, File};
use std::process::Command;

use fiber::Pool;
use fiber_test_support::scenario;
use fiber_test_support::wait::wait_until;
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
