//! The director: a test that lets players play seeds, and tells what they have found.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{env, thread};

use fiber_core::variables::{
    SIM_COUNT as COUNT, SIM_HTML as HTML, SIM_PLAY as PLAY, SIM_SEED as SEED,
};
use rustix::fs::{MemfdFlags, memfd_create};

use super::Seeds;
use super::player::{HERE, Order};
use super::report::Play;
use crate::process::{fix_addresses_of_children, use_core};

/// How many seeds a player plays, at most.
const BATCH: u64 = 25;

/// A call of [`check`](super::check) in a test.
pub(super) struct Test {
    /// The name of the test; `None` in a program with a `main` of its own.
    pub(super) name: Option<String>,
    call: u32,
}

impl Test {
    /// Returns the test that this thread runs. `type_name` is that of a closure in it.
    pub(super) fn current(type_name: &str, call: u32) -> Test {
        let thread = thread::current();
        // Rust's test harness gives its threads the names of their tests.
        let name = thread.name().filter(|name| *name != "main").or_else(|| {
            let function = type_name.split("::{{closure}}").next().unwrap_or(type_name);
            function.split_once("::").map(|(_, path)| path)
        });
        let name = name.filter(|name| *name != "main").map(ToString::to_string);
        Test { name, call }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env::current_exe().expect("the program has a path"));
        match &self.name {
            Some(name) => command.args([name, "--exact", "--include-ignored", "--nocapture"]),
            None => command.args(env::args_os().skip(1)),
        };
        command.args(self.name.iter().map(|_| "--test-threads=1"));
        command.env_remove(SEED).env_remove(COUNT).env_remove(HTML);
        command
    }
}

/// Plays the seeds.
///
/// # Errors
/// The first one that was seen to fail, with its history, or what the test or its environment has
/// wrong.
pub(super) fn direct(test: &Test, seeds: Seeds) -> Result<(), String> {
    if seeds == Seeds::Fresh(0) {
        return Err("no seed checks nothing: ask for at least one".into());
    }
    let asked = match env::var(SEED) {
        Ok(text) => Some(parse_seeds(&text)?),
        Err(env::VarError::NotPresent) => None,
        Err(error) => return Err(format!("{SEED}: {error}")),
    };
    match (seeds, asked) {
        (Seeds::One(seed), _) => show(test, &[seed], true),
        (Seeds::Fresh(_), Some(seeds)) => show(test, &seeds, false),
        (Seeds::Fresh(count), None) => hunt(test, parse_count()?.unwrap_or(count)),
    }
}

fn parse_seeds(text: &str) -> Result<Vec<u64>, String> {
    let parse = |seed: &str| {
        let wrong = |_| {
            format!(
                "{SEED} is `{text}`: it has to be a seed, which is a number below 2^64, or several \
                 with commas between them"
            )
        };
        seed.trim().parse().map_err(wrong)
    };
    text.split(',').map(parse).collect()
}

fn parse_count() -> Result<Option<u64>, String> {
    let Ok(text) = env::var(COUNT) else { return Ok(None) };
    match text.parse() {
        Ok(0) | Err(_) => {
            Err(format!("{COUNT} is `{text}`: it has to be a number of seeds, from 1"))
        }
        Ok(count) => Ok(Some(count)),
    }
}

/// Plays given seeds, and prints their histories.
fn show(test: &Test, seeds: &[u64], are_in_code: bool) -> Result<(), String> {
    for first in seeds.iter().copied() {
        let played = play(test, 0, &Order { call: test.call, first, count: 1 })?;
        let Some(play) = played else { continue };
        println!("{}", play.whole());
        play.write_page()?;
        if play.failure().is_some() {
            return Err(play.summary(test, are_in_code));
        }
    }
    Ok(())
}

/// Plays fresh seeds on all cores, until one fails.
fn hunt(test: &Test, count: u64) -> Result<(), String> {
    // Short, since people type them.
    let first = fastrand::u64(..1_000_000_000);
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let batch = count.div_ceil(cores as u64).min(BATCH);
    let hunt = |core| {
        while !is_over.load(Ordering::Relaxed) {
            let from = next.fetch_add(batch, Ordering::Relaxed);
            if from >= count {
                break;
            }
            let count = batch.min(count - from);
            let order = Order { call: test.call, first: first + from, count };
            let found =
                play(test, core, &order).map(|play| play.filter(|play| play.failure().is_some()));
            if !matches!(found, Ok(None)) {
                is_over.store(true, Ordering::Relaxed);
                return found;
            }
        }
        Ok(None)
    };
    let found: Result<Vec<_>, _> = thread::scope(|scope| {
        let players: Vec<_> = (0..cores).map(|core| scope.spawn(move || hunt(core))).collect();
        players.into_iter().map(|player| player.join().expect("it does not panic")).collect()
    });
    match found?.into_iter().flatten().min_by_key(|play| play.seed) {
        Some(play) => {
            play.write_page()?;
            Err(format!("{}\n{}", play.last_lines(), play.summary(test, false)))
        }
        None => {
            println!("{count} seeds from {first} on have not failed");
            Ok(())
        }
    }
}

/// Lets a player play. Returns the play that it has reported.
fn play(test: &Test, core: usize, order: &Order) -> Result<Option<Play>, String> {
    let no_room =
        |error: rustix::io::Errno| format!("{}: no room for a report: {error}", test.what());
    let report = File::from(memfd_create("fiber-report", MemfdFlags::CLOEXEC).map_err(no_room)?);
    let output = File::from(memfd_create("fiber-output", MemfdFlags::CLOEXEC).map_err(no_room)?);
    let mut command = test.command();
    command.env(PLAY, order.to_string()).stdin(clone(&report));
    command.stdout(clone(&output)).stderr(clone(&output));
    // A thread hands its core and the form of its addresses on to the process that it starts.
    let start = || {
        let is_exact = use_core(core).and_then(|()| fix_addresses_of_children());
        if let Err(error) = is_exact {
            warn(&error);
        }
        command.status()
    };
    let status = thread::scope(|scope| scope.spawn(start).join().expect("it does not panic"));
    let status = status.map_err(|error| format!("{}: can't be started: {error}", test.what()))?;
    let (report, output) = (contents(report), contents(output));
    match report.strip_prefix(HERE) {
        Some(report) if status.success() => Ok(Play::parse(report, &output)),
        Some(_) => Err(format!("{}: its player ended: {status}\n{}", test.what(), lossy(&output))),
        None => Err(test.not_reached(status, &lossy(&output))),
    }
}

impl Test {
    fn what(&self) -> String {
        self.name.as_ref().map_or("this program".into(), |name| format!("the test `{name}`"))
    }

    fn not_reached(&self, status: ExitStatus, output: &str) -> String {
        format!(
            "{} was started again, to play its seeds in a process of its own, and has ended \
             ({status}) without this call. Call `fiber::sim::check` and `run` on the thread of a \
             function with `#[test]`, or of `main`, and not under a condition that a process of \
             its own may not meet. Its output:\n{output}",
            self.what()
        )
    }
}

fn clone(file: &File) -> Stdio {
    file.try_clone().expect("the process has room for a descriptor").into()
}

fn contents(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    read.expect("it is in memory");
    bytes
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Says once that a seed may have several histories.
fn warn(error: &std::io::Error) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        eprintln!(
            "fiber::sim: the system does not let processes have fixed addresses, as in some \
             containers, or one core ({error}): now and then, a seed may have another history \
             when it is played again"
        );
    });
}
