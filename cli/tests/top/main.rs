//! `fiber run`, `ps`, `top`, `stack`, `profile`, `logs`, `attach`, `wait` and `kill` on programs of
//! this host, in pipes and in a real terminal: tmux.
//!
//! This binary is also the program that they look at: with a scenario in its environment, it plays
//! that.

mod attach;
mod pipes;
#[path = "../../../tests/programs/program.rs"]
#[allow(dead_code)]
mod program;
mod restarts;
mod screen;
mod terminal;

use std::process::{Command, ExitCode};
use std::time::Duration;

use fiber::Pool;
use libtest_mimic::{Arguments, Trial};

use self::program::{Program, SCENARIO, Setup};

fn main() -> ExitCode {
    // The command starts this program as a bridge to its inspector, too.
    fiber::init_with(|config| config.heartbeat = Duration::from_millis(200));
    match std::env::var(SCENARIO).as_deref() {
        Err(_) => {}
        Ok("busy") => return busy(),
        Ok("lost twice") => return restarts::lost_twice(),
        Ok(other) => panic!("there is no scenario `{other}`"),
    }
    let has_tmux = Command::new("tmux").arg("-V").output().is_ok();
    if !has_tmux {
        eprintln!("SKIPPED: the screen; Debian's package tmux has the terminal for it");
    }
    let trial = |(name, test): &(&'static str, fn()), ignored| {
        let test = *test;
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(*name, run).with_ignored_flag(ignored)
    };
    let pipes = pipes::TESTS.iter().chain(restarts::TESTS).map(|test| trial(test, false));
    let screens = screen::TESTS.iter().chain(attach::TESTS);
    let screen = screens.map(|test| trial(test, !has_tmux));
    libtest_mimic::run(&Arguments::from_args(), pipes.chain(screen).collect()).exit_code()
}

/// Lists tests by name.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        pub(crate) const TESTS: &[(&str, fn())] = &[$((stringify!($test), $test)),+];
    };
}
use tests;

/// Runs a pool of three workers: one spins, the others have short tasks until the program ends.
fn busy() -> ExitCode {
    let pool = Pool::builder().name("squares").processes(3).build().expect("it starts");
    pool.wait_until_ready().wait().expect("its workers start");
    let _spinning = pool.apply(spin, ());
    println!("ready");
    loop {
        pool.map(square, 0..100).wait().expect("no task fails");
    }
}

fn spin(_: ()) {
    println!("a worker speaks");
    let mut number = 0_u64;
    loop {
        number = std::hint::black_box(number + 1);
    }
}

fn square(number: u64) -> u64 {
    std::thread::sleep(Duration::from_micros(100));
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

/// Returns the name of this program.
fn own_name() -> String {
    let path = std::env::current_exe().expect("this binary is somewhere");
    path.file_name().expect("it is a file").to_string_lossy().into_owned()
}
