//! Plays seeds in processes, one on each core, until one fails. A failure is then made smaller.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use fiber_sim::{Limits, scenarios};
use fiber_world::History;

use crate::player::{FAILED, LATE, LIMIT, Order, PAGE, PASSED, PLAYS, Seeds};

/// How many seeds a player plays.
const BATCH: u64 = 200;

/// How many lines of the history of a seed are printed that takes too long.
const SHOWN: usize = 100;

/// How many nanoseconds have passed in worlds.
static NANOS: AtomicU64 = AtomicU64::new(0);

/// A seed that has failed.
struct Failure {
    seed: u64,
    scenario: &'static str,
    problem: String,
    limits: Limits,
}

/// Plays the seeds of a file, and fresh ones from the first for a time, or until so many are played.
pub(crate) fn hunt(
    time: Duration,
    first: u64,
    most: u64,
    known: Option<&str>,
    scenario: Option<&'static str>,
    limits: Limits,
) -> ExitCode {
    let known = match known.map(read_seeds).transpose() {
        Ok(known) => known.unwrap_or_default(),
        Err(problem) => {
            eprintln!("fiber-sim: {problem}");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    for (seed, scenario) in &known {
        if let Some(failure) = play_batch(0, *seed, seed + 1, Some(scenario), limits) {
            return report(failure);
        }
    }
    let (next, is_over) = (AtomicU64::new(first), AtomicBool::new(false));
    let until = Instant::now() + time;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let hunt = |core| {
        while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
            let from = next.fetch_add(BATCH, Ordering::Relaxed);
            let to = (from + BATCH).min(first.saturating_add(most));
            if from >= to {
                break;
            }
            if let Some(failure) = play_batch(core, from, to, scenario, limits) {
                is_over.store(true, Ordering::Relaxed);
                return Some(failure);
            }
        }
        None
    };
    let failures: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || hunt(core))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let played = (next.into_inner() - first).min(most);
    match failures.into_iter().flatten().next() {
        Some(failure) => report(failure),
        None => {
            let (known, passed) = (known.len(), NANOS.load(Ordering::Relaxed));
            println!(
                "{played} fresh seeds from {first} and {known} known ones in {:.0?}: no failure",
                began.elapsed()
            );
            let cores_took = began.elapsed().as_nanos() as u64 * cores as u64;
            let (passed, times) = (Duration::from_nanos(passed), passed / cores_took.max(1));
            println!("{passed:.0?} passed in them: on each core {times} times as fast as a clock");
            ExitCode::SUCCESS
        }
    }
}

/// Plays fresh seeds twice, each time in a process of its own, until one has two histories.
pub(crate) fn compare(
    first: u64,
    count: u64,
    scenario: Option<&'static str>,
    limits: Limits,
) -> ExitCode {
    let next = AtomicU64::new(first);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let compare = |core| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return None;
            }
            let [one, other] = [core, core + 1].map(|core| history(core, seed, scenario, limits));
            if one != other {
                next.store(first + count, Ordering::Relaxed);
                return Some((seed, difference(&one, &other)));
            }
        }
    };
    let differing = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || compare(core))).collect();
        threads.into_iter().find_map(|thread| thread.join().expect("it does not panic"))
    });
    match differing {
        Some((seed, difference)) => {
            println!("FAILED: seed {seed} has two histories: fiber-sim --seed {seed} --trace");
            println!("{difference}");
            ExitCode::FAILURE
        }
        None => {
            println!("{count} fresh seeds: each had the same history twice");
            ExitCode::SUCCESS
        }
    }
}

/// Returns the first lines that differ, with some before them.
fn difference(one: &[u8], other: &[u8]) -> String {
    const BEFORE: usize = 5;
    let [one, other] = [one, other].map(String::from_utf8_lossy);
    let (mut one, mut other) = (one.lines(), other.lines());
    let mut same = VecDeque::new();
    loop {
        let (line, other_line) = (one.next(), other.next());
        if line != other_line || line.is_none() {
            let end = "(the end)";
            let (line, other_line) = (line.unwrap_or(end), other_line.unwrap_or(end));
            let same: Vec<_> = same.into_iter().collect();
            return format!("{}\none:   {line}\nother: {other_line}", same.join("\n"));
        }
        same.extend(line);
        if same.len() > BEFORE {
            same.pop_front();
        }
    }
}

/// Returns what a player prints that plays the seed, each change of threads included.
fn history(core: usize, seed: u64, scenario: Option<&'static str>, limits: Limits) -> Vec<u8> {
    let seeds = Seeds { from: seed, to: seed + 1 };
    let order = Order { core, seeds, scenario, limits, history: History::Trace };
    order.command().output().expect("a process can be started").stdout
}

/// Plays one seed, and shows its history.
pub(crate) fn show(
    seed: u64,
    scenario: Option<&'static str>,
    limits: Limits,
    history: History,
    html: Option<&Path>,
) -> ExitCode {
    let seeds = Seeds { from: seed, to: seed + 1 };
    let mut player = Order { core: 0, seeds, scenario, limits, history }.command();
    player.envs(html.map(|path| (PAGE, path)));
    let status = player.status().expect("a process can be started");
    status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8))
}

/// Reads seeds with the names of their scenarios. The rest of a line is the bug's name.
fn read_seeds(path: &str) -> Result<Vec<(u64, &'static str)>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            let mut words = line.split_whitespace();
            let seed = words.next().and_then(|seed| seed.parse().ok());
            let scenario = words.next().and_then(scenarios::named).map(|scenario| scenario.name);
            seed.zip(scenario).ok_or_else(|| {
                format!(
                    "{path}, line {}: it is not a seed, a scenario and a bug's name",
                    number + 1
                )
            })
        })
        .collect()
}

/// Lets players play seeds. Returns the one that has failed.
///
/// A seed that takes longer than [`LIMIT`] is played again, with its history. That is the same, so a
/// world that computes without end does so again. One that ends then stood still with its machine.
fn play_batch(
    core: usize,
    from: u64,
    to: u64,
    scenario: Option<&'static str>,
    limits: Limits,
) -> Option<Failure> {
    let mut from = from;
    while from < to {
        match play_until_late(core, Seeds { from, to }, scenario, limits, History::None) {
            End::Played => break,
            End::Failed(failure) => return Some(failure),
            End::Late(Failure { seed, problem, .. }) => {
                println!("seed {seed}: {problem}; it is played again");
                let again = Seeds { from: seed, to: seed + 1 };
                match play_until_late(core, again, scenario, limits, History::Events) {
                    End::Played => from = seed + 1,
                    End::Failed(failure) | End::Late(failure) => return Some(failure),
                }
            }
        }
    }
    None
}

/// How a batch of seeds has ended.
enum End {
    Played,
    Failed(Failure),
    /// A seed took longer than [`LIMIT`].
    Late(Failure),
}

/// Lets a player play seeds until one fails or is late. If its player keeps its history, the end of
/// that is printed.
fn play_until_late(
    core: usize,
    seeds: Seeds,
    scenario: Option<&'static str>,
    limits: Limits,
    history: History,
) -> End {
    let mut player = Order { core, seeds, scenario, limits, history }.command();
    let mut child = player.stdout(Stdio::piped()).spawn().expect("a process can be started");
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let (lines, arriving) = channel();
    std::thread::spawn(move || {
        output.lines().map_while(Result::ok).all(|line| lines.send(line).is_ok())
    });
    let mut seed = seeds.from;
    let drawn = |seed| scenarios::of(seed, scenario).name;
    let failure = |seed, problem: &str| Failure {
        seed,
        scenario: drawn(seed),
        problem: problem.into(),
        limits,
    };
    let (mut takes_long, mut last) = (false, VecDeque::new());
    loop {
        match arriving.recv_timeout(if takes_long { Duration::MAX } else { LIMIT * 3 / 4 }) {
            Ok(line) => {
                let problem = |line: &str| line.split_once(' ').map(|(_, it)| it.to_string());
                if let Some(played) = line.strip_prefix(PLAYS) {
                    seed = played.parse().unwrap_or(seed);
                    takes_long = false;
                } else if let Some(problem) = line.strip_prefix(FAILED).and_then(problem) {
                    let _ = child.wait();
                    return End::Failed(failure(seed, &problem));
                } else if let Some(problem) = line.strip_prefix(LATE).and_then(problem) {
                    let _ = child.wait();
                    last.iter().for_each(|line| println!("{line}"));
                    return End::Late(failure(seed, &problem));
                } else if let Some(nanos) = line.strip_prefix(PASSED) {
                    NANOS.fetch_add(nanos.parse().unwrap_or(0), Ordering::Relaxed);
                } else if history != History::None {
                    // Other lines are the program's.
                    last.push_back(line);
                    if last.len() > SHOWN {
                        last.pop_front();
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                takes_long = true;
                println!("seed {seed}, scenario {}, takes long:", drawn(seed));
                threads_of_children(child.id()).iter().for_each(|thread| println!("  {thread}"));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait().expect("it is a child");
                return if status.success() {
                    End::Played
                } else {
                    End::Failed(failure(seed, &format!("its player ended: {status}")))
                };
            }
        }
    }
}

/// Returns a line for each thread of a process's children: its name, its state and processor time,
/// and where it waits in the kernel.
fn threads_of_children(process: u32) -> Vec<String> {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let children = read(format!("/proc/{process}/task/{process}/children"));
    let mut lines = Vec::new();
    for child in children.split_whitespace() {
        let tasks = format!("/proc/{child}/task");
        for task in std::fs::read_dir(tasks).into_iter().flatten().map_while(Result::ok) {
            let file = |name: &str| read(task.path().join(name).display().to_string());
            let stat = file("stat");
            let (_, stat) = stat.rsplit_once(')').unwrap_or_default();
            let stat: Vec<_> = stat.split_whitespace().collect();
            let field = |at: usize| stat.get(at).copied().unwrap_or("?");
            let (state, user, system) = (field(0), field(11), field(12));
            let (name, place, call) = (file("comm"), file("wchan"), file("syscall"));
            let (name, call) = (name.trim(), call.trim());
            lines.push(format!("{name}: {state}, {user} + {system} ticks, {place}, call {call}"));
        }
    }
    lines
}

/// Makes a failure smaller, and prints it.
fn report(failure: Failure) -> ExitCode {
    println!("seed {}, scenario {}: {}", failure.seed, failure.scenario, failure.problem);
    let Failure { seed, scenario, problem, limits } = smaller(failure);
    let program = std::env::args().next().unwrap_or_default();
    println!(
        "FAILED: {problem}\nthe smallest that fails: {program} --seed {seed} --scenario {scenario} \
         --limits {limits}"
    );
    ExitCode::FAILURE
}

/// Looks for smaller numbers with which the scenario fails, with this seed or another one: other
/// numbers lead to another order of the threads.
fn smaller(mut failure: Failure) -> Failure {
    const TRIES: u64 = 50;
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let Limits { items, processes, faults, .. } = failure.limits;
        let candidates = [
            Limits { unusual: false, ..failure.limits },
            Limits { faults: faults / 2, ..failure.limits },
            Limits { items: items.div_ceil(2), ..failure.limits },
            Limits { processes: processes.div_ceil(2), ..failure.limits },
        ];
        let found =
            candidates.into_iter().filter(|limits| *limits != failure.limits).find_map(|limits| {
                let (from, to) = (failure.seed, failure.seed + TRIES);
                (Instant::now() < until)
                    .then(|| play_batch(0, from, to, Some(failure.scenario), limits))
                    .flatten()
            });
        match found {
            Some(found) => failure = found,
            None => return failure,
        }
    }
}
