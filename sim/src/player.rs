//! A process that plays seeds. It forks one for each, which therefore begins with the same memory,
//! whichever seeds were played before: on addresses depend, among others, the orders in which
//! parking_lot wakes threads.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use fiber_sim::scenarios::{self, Scenario};
use fiber_sim::{Limits, folder, play};
use fiber_world::{Apart, History, Kind, Log, Options, page, run_apart};

/// The beginnings of lines of a player.
pub(crate) const PLAYS: &str = "plays ";
pub(crate) const FAILED: &str = "failed ";
pub(crate) const LATE: &str = "late ";
pub(crate) const PASSED: &str = "passed ";
/// How long a seed may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// The variable with the path of the page of a history. An argument would change the memory.
pub(crate) const PAGE: &str = "FIBER_SIM_PAGE";

/// The seeds that a player plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seeds {
    pub(crate) from: u64,
    /// The first that it does not play.
    pub(crate) to: u64,
}

impl fmt::Display for Seeds {
    /// All have one length, since the addresses of memory depend on it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}..{:020}", self.from, self.to)
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        let (from, to) = text.split_once("..").ok_or("it has no `..`")?;
        let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no seed"));
        Ok(Seeds { from: number(from)?, to: number(to)? })
    }
}

/// The work of a player. Its text, the player's only argument, always has one length: the addresses
/// of memory depend on it, and a seed has the same history whoever asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// The core that plays, of those that the process may use.
    pub(crate) core: usize,
    pub(crate) seeds: Seeds,
    /// The name of the scenario, unless the seeds draw theirs.
    pub(crate) scenario: Option<&'static str>,
    pub(crate) limits: Limits,
    /// The kind of history that it prints.
    pub(crate) history: History,
}

impl Order {
    /// The word for seeds that draw their scenarios.
    const DRAWN: &str = "-";

    /// Returns the command of a player that plays this.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("the program has a path"));
        // The program's path is in memory, too.
        command.arg0("fiber-sim").args(["--order", &self.to_string()]);
        // Symbols of panics that a scenario expects take longer than its world.
        command.env("RUST_BACKTRACE", "0");
        command
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Order { core, seeds, scenario, limits, history } = self;
        let Limits { items, processes, faults, unusual } = limits;
        let (scenario, history) = (scenario.unwrap_or(Order::DRAWN), name(*history));
        let unusual = u8::from(*unusual);
        let limits = format_args!("{items:020},{processes:020},{faults:010},{unusual}");
        write!(f, "{core:06} {seeds} {limits} {history:6} {scenario:32}")
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Order, String> {
        let wrong =
            || format!("`{text}` is no order for a player: it is made by `fiber-sim` itself");
        let mut words = text.split_ascii_whitespace();
        let mut word = || words.next().ok_or_else(wrong);
        let core = word()?.parse().map_err(|_| wrong())?;
        let (seeds, limits, history) = (word()?.parse()?, word()?.parse()?, history(word()?)?);
        let scenario = match word()? {
            Order::DRAWN => None,
            name => Some(scenarios::named(name).ok_or_else(wrong)?.name),
        };
        Ok(Order { core, seeds, scenario, limits, history })
    }
}

/// All kinds of histories.
const HISTORIES: [History; 3] = [History::None, History::Events, History::Trace];

/// Returns the name of a kind of history.
fn name(history: History) -> &'static str {
    match history {
        History::None => "none",
        History::Events => "events",
        History::Trace => "trace",
    }
}

/// Returns the kind of history of a name.
pub(crate) fn history(text: &str) -> Result<History, String> {
    let named = HISTORIES.into_iter().find(|history| name(*history) == text);
    named.ok_or_else(|| format!("`{text}` is no kind of history"))
}

/// Plays seeds until one fails. Prints lines that begin with [`PLAYS`], [`FAILED`] and [`LATE`], and
/// the histories that are asked for, or how many nanoseconds passed in the worlds ([`PASSED`]).
pub(crate) fn play_all(order: Order) -> ExitCode {
    let Order { core, seeds, scenario, limits, history } = order;
    if let Err(error) = fiber_world::use_core(core) {
        eprintln!("fiber-sim: a seed may not lead to the same history again: {error}");
    }
    // A panic is the failure of its seed, which is printed.
    std::panic::set_hook(Box::new(|_| ()));
    let log = Arc::new(Log::new().expect("the process has room for a history"));
    let folder = folder(std::process::id());
    // An earlier player of this number may have been killed.
    let _ = std::fs::remove_dir_all(&folder);
    let mut nanos = 0;
    for seed in seeds.from..seeds.to {
        println!("{PLAYS}{seed}");
        log.clear();
        let scenario = scenarios::of(seed, scenario);
        let end = run_apart(LIMIT, || {
            let options = Options { history, log: Some(Arc::clone(&log)), ..Options::default() };
            let report = play(seed, scenario, limits, options, folder.clone());
            let (time, switches) = (report.time, report.switches);
            let add = |kind, text| log.add(time.as_nanos() as u64, 0, kind, text);
            match &report.failure {
                Some(failure) => add(Kind::Failure, format_args!("{failure}")),
                None => {
                    add(Kind::Success, format_args!("it passed in {switches} changes of threads"));
                }
            }
        });
        if !log.has(Kind::Success) && !log.has(Kind::Failure) {
            let add = |text| log.add(log.nanos(), 0, Kind::Failure, text);
            match &end {
                Ok(end) => add(format_args!("{end}")),
                Err(error) => add(format_args!("it can't be played: {error}")),
            }
            let _ = std::fs::remove_dir_all(&folder);
        }
        // In a process of its own, too: the memory that it takes is not there for the next seed.
        let shown = (history != History::None).then(|| {
            run_apart(LIMIT, || {
                if let Err(error) = show(seed, scenario, &log) {
                    eprintln!("fiber-sim: {error}");
                    resume_unwind(Box::new(()));
                }
            })
        });
        match shown {
            None | Some(Ok(Apart::Exited(0))) => {}
            Some(Ok(_)) => return ExitCode::from(2),
            Some(Err(error)) => {
                eprintln!("fiber-sim: its history can't be shown: {error}");
                return ExitCode::from(2);
            }
        }
        if log.has(Kind::Failure) {
            let failure = log.events().pop().map_or_else(String::new, |event| event.text);
            let is_late = matches!(end, Ok(Apart::TimedOut(_)));
            let kind = if is_late { LATE } else { FAILED };
            println!("{kind}{} {}", scenario.name, failure.replace('\n', " "));
            return ExitCode::FAILURE;
        }
        nanos += log.nanos();
    }
    if history == History::None {
        println!("{PASSED}{nanos}");
    }
    ExitCode::SUCCESS
}

/// Prints a history, and writes its page if there is to be one.
fn show(seed: u64, scenario: &Scenario, log: &Log) -> Result<(), String> {
    let events = log.events();
    let mut output = io::stdout().lock();
    for event in &events {
        // A reader that has closed the output does not want the rest.
        let _ = writeln!(output, "{event}");
    }
    let outcome = if log.has(Kind::Failure) { "it fails" } else { "no failure" };
    let title = format!("seed {seed}, scenario {}: {outcome}", scenario.name);
    let _ = writeln!(output, "{title}");
    let Some(path) = std::env::var_os(PAGE) else { return Ok(()) };
    std::fs::write(&path, page(&title, &events))
        .map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_back_from_their_texts_which_have_one_length() {
        let small = Order {
            core: 0,
            seeds: Seeds { from: 0, to: 1 },
            scenario: None,
            limits: Limits { items: 1, processes: 1, faults: 0, unusual: false },
            history: History::None,
        };
        let large = Order {
            core: 1023,
            seeds: Seeds { from: u64::MAX - 1, to: u64::MAX },
            scenario: Some("handler-streams"),
            limits: Limits { items: u32::MAX.into(), faults: u32::MAX, ..Limits::default() },
            history: History::Events,
        };
        assert_eq!(small.to_string().len(), large.to_string().len());
        for order in [small, large] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for wrong in ["", "0", "0 1..2 200,5,4,1 none", "0 1..2 200,5,4,1 none no-such-scenario"] {
            let problem = wrong.parse::<Order>().unwrap_err();
            assert!(problem.contains("no order for a player"), "{problem}");
        }
    }
}
