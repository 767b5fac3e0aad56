//! `fiber run`, `ps`, `top`, `stack`, `profile`, `logs`, `attach`, `wait` and `kill` on programs of
//! this host, in pipes and in a real terminal: tmux.
//!
//! This binary is also the program that they look at: with a scenario in its environment, it plays
//! that.

mod attach;
mod entities;
mod pipes;
mod restarts;
mod screen;
mod terminal;

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use fiber::Pool;
use fiber_test_support::program::{Program, SCENARIO, Setup};
use fiber_test_support::{Test, run_scenario, run_tests, scenario};

fn main() -> ExitCode {
    // The command starts this program as a bridge to its inspector, too.
    fiber::init_with(|config| config.heartbeat = Duration::from_millis(200));
    run_scenario(|| {}).unwrap_or_else(|| {
        let has_tmux = Command::new("tmux").arg("-V").output().is_ok();
        if !has_tmux {
            eprintln!("SKIPPED: the screen; Debian's package tmux has the terminal for it");
        }
        run_tests(|test| !has_tmux && ["attach", "screen"].contains(&test.topic()))
    })
}

/// The variable that lets a worker of the program keep a core busy.
const BURNS: &str = "BURNS";

/// Runs a pool of three workers: one spins, the others have short tasks until the program ends.
#[scenario("busy")]
fn busy() -> ! {
    let pool = Pool::builder().name("squares").processes(3).build().expect("it starts");
    pool.wait_until_ready().wait().expect("its workers start");
    let _spinning = pool.apply(spin, std::env::var_os(BURNS).is_some());
    println!("ready");
    loop {
        pool.map(square, 0..100).wait().expect("no task fails");
    }
}

fn spin(burns: bool) {
    println!("a worker speaks");
    let mut number = 0_u64;
    loop {
        number = std::hint::black_box(number + 1);
        if !burns {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn square(number: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(2));
    number * number
}

/// Starts the program and waits until its workers have tasks.
fn start() -> Program {
    let program = Setup::new("busy").start();
    program.line("ready");
    program
}

/// Configures the command.
fn fiber(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fiber"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FIBER_") || name == SCENARIO {
            command.env_remove(name);
        }
    }
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// Runs the command, and returns its exit code, output and errors.
#[track_caller]
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = fiber(arguments).stdin(Stdio::null()).output().expect("it can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Returns the name of this program.
fn own_name() -> String {
    let path = std::env::current_exe().expect("this binary is somewhere");
    path.file_name().expect("it is a file").to_string_lossy().into_owned()
}
