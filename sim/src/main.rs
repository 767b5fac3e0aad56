//! Plays scenarios of `fiber-sim` under many seeds, or one seed again.

mod hunt;
mod player;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use fiber_sim::{Limits, scenarios};
use fiber_world::History;
use lexopt::prelude::*;

use self::player::{Order, Seeds};

const HELP: &str = "\
fiber-sim [OPTIONS]: plays scenarios of fiber in simulated worlds

  --for SECONDS         plays fresh seeds on all cores for so long (default: 60)
  --most COUNT          plays so many fresh seeds at most (default: any number)
  --known FILE          plays the seeds of a file first
  --fresh-from SEED     the first fresh seed (default: SIM_FRESH_FROM of the environment, or any)
  --twice COUNT         plays so many fresh seeds twice, and compares their histories
  --seed SEED           plays one seed, and prints its history
  --html FILE           writes that history as a page, too
  --trace               prints each change of threads, too
  --seeds FROM..TO      plays these seeds from this process, until one fails
  --history KIND        prints their histories: none, events or trace (default: none)
  --scenario NAME       plays this scenario alone
  --limits LIMITS       ITEMS,PROCESSES,FAULTS,UNUSUAL: the largest numbers that are drawn
  --core NUMBER         plays on this core, of those that it may use (default: 0)
  --list                names the scenarios";

/// The requests of the command line.
#[derive(Default)]
struct Asked {
    seed: Option<u64>,
    seeds: Option<Seeds>,
    time: Option<u64>,
    most: Option<u64>,
    twice: Option<u64>,
    /// The first fresh seed.
    fresh: Option<u64>,
    known: Option<String>,
    scenario: Option<String>,
    limits: Limits,
    trace: bool,
    /// The kind of history that a player prints.
    history: Option<History>,
    html: Option<PathBuf>,
    /// The core that plays, of those that the process may use.
    core: usize,
    /// The work of a player that this program has started.
    order: Option<Order>,
    list: bool,
    help: bool,
}

fn ask() -> Result<Asked, lexopt::Error> {
    let mut asked = Asked::default();
    if let Some(seed) = std::env::var_os("SIM_FRESH_FROM") {
        asked.fresh = Some(seed.parse()?);
    }
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seed") => asked.seed = Some(parser.value()?.parse()?),
            Long("seeds") => asked.seeds = Some(parser.value()?.parse()?),
            Long("for") => asked.time = Some(parser.value()?.parse()?),
            Long("most") => asked.most = Some(parser.value()?.parse()?),
            Long("twice") => asked.twice = Some(parser.value()?.parse()?),
            Long("fresh-from") => asked.fresh = Some(parser.value()?.parse()?),
            Long("known") => asked.known = Some(parser.value()?.string()?),
            Long("scenario") => asked.scenario = Some(parser.value()?.string()?),
            Long("limits") => asked.limits = parser.value()?.parse()?,
            Long("html") => asked.html = Some(parser.value()?.into()),
            Long("history") => asked.history = Some(parser.value()?.parse_with(player::history)?),
            Long("trace") => asked.trace = true,
            Long("order") => asked.order = Some(parser.value()?.parse()?),
            Long("core") => asked.core = parser.value()?.parse()?,
            Long("list") => asked.list = true,
            Long("help") | Short('h') => asked.help = true,
            other => return Err(other.unexpected()),
        }
    }
    Ok(asked)
}

fn main() -> ExitCode {
    if let Err(error) = fiber_world::fix_addresses() {
        eprintln!("fiber-sim: a seed may not lead to the same history again: {error}");
    }
    let asked = match ask() {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("fiber-sim: {error}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    if asked.html.is_some() && asked.seed.is_none() {
        eprintln!("fiber-sim: --html takes the history of one seed: add --seed SEED");
        return ExitCode::from(2);
    }
    if let Some(order) = asked.order {
        return player::play_all(order);
    }
    if asked.help {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    if asked.list {
        scenarios::ALL.iter().for_each(|scenario| println!("{}", scenario.name));
        return ExitCode::SUCCESS;
    }
    let scenario = match asked.scenario.as_deref().map(|name| (name, scenarios::named(name))) {
        Some((name, None)) => {
            eprintln!("fiber-sim: there is no scenario `{name}`: --list names them");
            return ExitCode::from(2);
        }
        Some((_, Some(scenario))) => Some(scenario.name),
        None => None,
    };
    if let Some(seeds) = asked.seeds {
        let (core, history) = (asked.core, asked.history.unwrap_or(History::None));
        let order = Order { core, seeds, scenario, limits: asked.limits, history };
        // In place of this process, whose arguments have taken other memory.
        let error = order.command().exec();
        eprintln!("fiber-sim: it can't be started again: {error}");
        return ExitCode::FAILURE;
    }
    if let Some(seed) = asked.seed {
        let history = if asked.trace { History::Trace } else { History::Events };
        return hunt::show(seed, scenario, asked.limits, history, asked.html.as_deref());
    }
    let first = asked.fresh.unwrap_or_else(|| fastrand::u64(..u64::MAX / 2));
    if let Some(count) = asked.twice {
        return hunt::compare(first, count, scenario, asked.limits);
    }
    let time = Duration::from_secs(asked.time.unwrap_or(60));
    let most = asked.most.unwrap_or(u64::MAX);
    hunt::hunt(time, first, most, asked.known.as_deref(), scenario, asked.limits)
}
