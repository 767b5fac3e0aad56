//! Programs that run in a world, with their checks.

mod actor_pools;
mod actors;
mod durable;
mod entities;
mod graphs;
mod inner;
mod maps;
mod names;
mod nested;
mod objects;
mod peers;
mod placed;
mod processes;
mod rings;
mod sessions;
mod starts;
mod streams;
mod topics;
mod trees;
mod workers;

use std::error::Error;

use crate::Ground;

type Outcome = Result<(), Box<dyn Error>>;

/// A program with its checks.
#[derive(Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    pub(crate) run: fn(&mut Ground) -> Outcome,
}

/// All scenarios.
pub const ALL: &[Scenario] = &[
    Scenario { name: "map", run: maps::map },
    Scenario { name: "calls", run: maps::calls },
    Scenario { name: "room", run: maps::room },
    Scenario { name: "cancel", run: maps::cancel },
    Scenario { name: "scale", run: maps::scale },
    Scenario { name: "failures", run: maps::failures },
    Scenario { name: "graph", run: graphs::graph },
    Scenario { name: "reduce", run: graphs::reduce },
    Scenario { name: "streams", run: graphs::streams },
    Scenario { name: "travel", run: graphs::travel },
    Scenario { name: "near", run: graphs::near },
    Scenario { name: "stay", run: graphs::stay },
    Scenario { name: "inner", run: inner::inner },
    Scenario { name: "nested", run: nested::nested },
    Scenario { name: "queue", run: objects::queue },
    Scenario { name: "gets", run: objects::gets },
    Scenario { name: "lock", run: objects::lock },
    Scenario { name: "values", run: objects::values },
    Scenario { name: "pipe", run: objects::pipe },
    Scenario { name: "handles", run: objects::handles },
    Scenario { name: "task-streams", run: streams::tasks },
    Scenario { name: "handler-streams", run: streams::handlers },
    Scenario { name: "peers", run: peers::values },
    Scenario { name: "passed", run: peers::passed },
    Scenario { name: "callers", run: peers::callers },
    Scenario { name: "processes", run: processes::processes },
    Scenario { name: "supervisors", run: processes::supervisors },
    Scenario { name: "strategies", run: processes::strategies },
    Scenario { name: "stubborn", run: trees::stubborn },
    Scenario { name: "flappers", run: trees::flappers },
    Scenario { name: "groups", run: trees::groups },
    Scenario { name: "managers", run: actors::managers },
    Scenario { name: "actor-pool", run: actor_pools::changes },
    Scenario { name: "placed", run: placed::placed },
    Scenario { name: "timeouts", run: actors::timeouts },
    Scenario { name: "snapshots", run: actors::snapshots },
    Scenario { name: "order", run: actors::order },
    Scenario { name: "names", run: names::names },
    Scenario { name: "topics", run: topics::topics },
    Scenario { name: "entities", run: entities::entities },
    Scenario { name: "entity-snapshots", run: entities::snapshots },
    Scenario { name: "rings", run: rings::rings },
    Scenario { name: "mistakes", run: rings::mistakes },
    Scenario { name: "hosts", run: workers::hosts },
    Scenario { name: "drains", run: workers::drains },
    Scenario { name: "blame", run: workers::blame },
    Scenario { name: "limits", run: workers::limits },
    Scenario { name: "refusals", run: starts::refusals },
    Scenario { name: "infants", run: starts::infants },
    Scenario { name: "waits", run: starts::waits },
    Scenario { name: "unborn", run: starts::unborn },
    Scenario { name: "broadcasts", run: sessions::broadcasts },
    Scenario { name: "shortages", run: sessions::shortages },
    Scenario { name: "everything", run: sessions::everything },
    Scenario { name: "durable-calls", run: durable::calls },
    Scenario { name: "crashes", run: durable::crashes },
    Scenario { name: "durable-graph", run: durable::graph },
    Scenario { name: "durable-queue", run: durable::queue },
    Scenario { name: "durable-actor", run: durable::actor },
    Scenario { name: "durable-entities", run: entities::durable },
    Scenario { name: "hosted-entities", run: entities::hosted },
];

/// A scenario that fails with three items or more. No seed draws it: a test looks how its failure
/// is made smaller.
const FAILING: &Scenario = &Scenario {
    name: "failing",
    run: |ground| match ground.items(200) {
        ..3 => Ok(()),
        items => Err(format!("there are {items} items").into()),
    },
};

/// Returns the scenario of this name.
pub fn named(name: &str) -> Option<&'static Scenario> {
    ALL.iter().chain([FAILING]).find(|scenario| scenario.name == name)
}

/// Returns the scenario of this name, or the one that a seed draws.
///
/// # Panics
/// If there is no scenario of this name.
pub fn of(seed: u64, name: Option<&str>) -> &'static Scenario {
    let Some(name) = name else {
        return fastrand::Rng::with_seed(seed).choice(ALL).expect("there are some");
    };
    named(name).unwrap_or_else(|| panic!("there is no scenario `{name}`"))
}
