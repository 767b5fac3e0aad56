//! A program that is killed again and again, and started again until it is done.
//!
//! `make soak` kills it more often.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fiber_journal::{CallLabel, Journal, Store};
use fiber_test_support::program::Program;
use fiber_test_support::{soak, trial};
use fiber_values::codec;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::scenarios::{SEEN, simulate};
use crate::sweep::Sweep;

/// The tasks of a sweep.
const TASKS: u64 = 10_000;
const TASKS_TEXT: &str = "10000";
const SIGNALS: [Signal; 4] = [Signal::KILL, Signal::TERM, Signal::ABORT, Signal::KILL];

/// The number of kills, unless `make soak` asks for more.
const KILLS: usize = 20;

#[trial]
fn a_program_that_is_killed_at_any_moment_goes_on_where_it_was() {
    // Only `make soak` looks for moments that no run has had.
    let seed = if soak() > 1 { rand::random() } else { 17 };
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut killed, mut sweeps, begun) = (0, 0, Instant::now());
    // Both forms are killed, however few kills are asked for.
    while killed < KILLS * soak() || sweeps < 2 {
        let form = if sweeps % 2 == 0 { "imap" } else { "map" };
        killed += sweep_with_kills(form, &mut random);
        sweeps += 1;
    }
    println!("{killed} kills in {sweeps} sweeps and {:.0?}", begun.elapsed());
}

/// Kills a sweep until it is done. Returns how often.
fn sweep_with_kills(form: &str, random: &mut SmallRng) -> usize {
    let sweep = Sweep::new();
    let seen = sweep.journal().with_file_name("seen");
    let variables =
        [("ITEMS", TASKS_TEXT), ("FORM", form), (SEEN, seen.to_str().expect("it is UTF-8"))];
    let mut runs: HashMap<u64, u64> = HashMap::new();
    let mut recorded_before = HashSet::new();
    for kills in 0.. {
        let program = sweep.start("sweep", &variables);
        let signal = SIGNALS[random.random_range(0..SIGNALS.len())];
        if random.random_bool(0.8) {
            program.line("begun");
        }
        wait_for_a_moment(&program, &sweep, random);
        let is_alive = program.has_not_ended();
        if is_alive {
            program.signal(signal);
        }
        // It also checks that no process and no temporary file is left.
        let ended = program.end();
        for task in numbers(&sweep.ran_file()) {
            assert!(
                !recorded_before.contains(&task),
                "task {task} ran, and its result is recorded"
            );
            *runs.entry(task).or_default() += 1;
        }
        let _ = std::fs::remove_file(sweep.ran_file());
        if ended.out.contains("complete") {
            assert_eq!(runs.len() as u64, TASKS, "each task ran");
            return kills;
        }
        assert!(is_alive, "it ended by itself: {}{}", ended.out, ended.errors);
        tear(&sweep.journal(), random);
        let recorded = recorded(&sweep.journal());
        assert!(recorded.is_superset(&recorded_before), "nothing is lost");
        let lost = numbers(&seen).into_iter().find(|task| !recorded.contains(task));
        assert_eq!(lost, None, "what the program has seen is recorded");
        recorded_before = recorded;
    }
    unreachable!("it is done at some time")
}

/// Waits for a random time, or until a random number of tasks has run: on a busy machine no task
/// may run in that time, and a sweep would never end.
fn wait_for_a_moment(program: &Program, sweep: &Sweep, random: &mut SmallRng) {
    if random.random_bool(0.5) {
        std::thread::sleep(Duration::from_micros(random.random_range(0..250_000)));
        return;
    }
    let bytes = 8 * random.random_range(1..TASKS / 4);
    let ran = || std::fs::metadata(sweep.ran_file()).map_or(0, |file| file.len());
    while ran() < bytes && program.has_not_ended() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the tasks whose outcomes a journal has.
fn recorded(journal: &Path) -> HashSet<u64> {
    // The program is to find it as it was.
    let copy = TempDir::new().unwrap();
    for file in std::fs::read_dir(journal).into_iter().flatten().flatten() {
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let store = Store::open(copy.path(), &Journal::at(copy.path())).unwrap();
    let function = format!("{} -> u64", std::any::type_name_of_val(&simulate));
    let label = CallLabel { name: "sweep".into(), function, version: String::new() };
    let call = store.call(&label);
    let is_recorded = |task: &u64| {
        let key = store.keys(call).key(&codec::encode(task).unwrap(), [].into_iter());
        store.take(key, false).unwrap().is_some()
    };
    (0..TASKS).filter(is_recorded).collect()
}

/// Adds the beginning of a write to the journal that never came to its end.
fn tear(journal: &Path, random: &mut SmallRng) {
    let segments = std::fs::read_dir(journal).into_iter().flatten().flatten();
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|name| name == "segment");
    let last = segments.map(|entry| entry.path()).filter(is_segment).max();
    if let Some(last) = last.filter(|_| random.random_bool(0.3)) {
        let torn: Vec<u8> = (0..random.random_range(1..300)).map(|_| random.random()).collect();
        let mut file = std::fs::File::options().append(true).open(last).unwrap();
        std::io::Write::write_all(&mut file, &torn).unwrap();
    }
}

/// Reads the numbers in a file.
fn numbers(file: &Path) -> Vec<u64> {
    let bytes = std::fs::read(file).unwrap_or_default();
    bytes.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect()
}
