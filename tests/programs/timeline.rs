//! The timeline that a program writes for Perfetto.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fiber_test_support::program::Setup;
use fiber_test_support::trial;
use rustix::process::Signal;
use serde_json::Value;

fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read(path).expect("the file was written");
    serde_json::from_slice(&text).expect("it is JSON")
}

/// Returns the events of one kind and category.
fn select<'a>(events: &'a [Value], phase: &str, category: &str) -> Vec<&'a Value> {
    let wanted = |event: &&Value| event["ph"] == phase && event["cat"] == category;
    events.iter().filter(wanted).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[trial]
fn what_workers_run_is_shown_with_deaths_and_calls() {
    let ending = Setup::new("timeline").env("FIBER_TIMELINE", "run.json").run().code(0);
    let events = events(&ending.directory().join("run.json"));

    let names: BTreeMap<u64, &str> = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| (number(&event["pid"]), event["args"]["name"].as_str().unwrap()))
        .collect();
    assert_eq!(
        names.values().collect::<BTreeSet<_>>(),
        BTreeSet::from([&"pool ovens", &"pool kilns"])
    );
    let threads: BTreeSet<_> = events
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .filter(|event| names[&number(&event["pid"])] == "pool ovens")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    let expected = ["calls", "worker-1", "worker-1 thread 2", "worker-2", "worker-2 thread 2"];
    assert_eq!(threads, BTreeSet::from(expected));

    // Slices of one track do not overlap.
    let mut tracks: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let (begin, length) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        let track = (number(&event["pid"]), number(&event["tid"]));
        tracks.entry(track).or_default().push((begin, begin + length));
    }
    for slices in tracks.values_mut() {
        slices.sort_by(|one, other| one.0.total_cmp(&other.0));
        let overlaps = |pair: &[(f64, f64)]| pair[0].1 > pair[1].0 + 0.01;
        assert!(!slices.windows(2).any(overlaps), "{slices:?}");
    }

    let tasks = select(&events, "X", "task");
    let of = |name: &str| tasks.iter().filter(|task| task["name"] == name).collect::<Vec<_>>();
    let baked = of("bake");
    let indices: BTreeSet<_> = baked.iter().map(|task| number(&task["args"]["first"])).collect();
    assert_eq!((baked.len(), indices), (12, (0..12).collect()));
    for task in baked {
        assert_eq!(task["args"]["function"], "programs::scenarios::timeline::bake");
        let micros = task["dur"].as_f64().unwrap();
        assert!(micros > 100_000.0, "{task}");
    }
    let named = |task: &&&Value| {
        let name = task["name"].as_str().unwrap_or_default();
        name.starts_with("all::{closure@tests/programs/scenarios/timeline.rs:")
    };
    let short: Vec<_> = tasks.iter().filter(named).collect();
    let count: u64 = short.iter().map(|task| number(&task["args"]["count"])).sum();
    assert_eq!(count, 100_000);
    assert!(short.len() < 10_000, "{}", short.len());

    let died: Vec<_> = select(&events, "X", "died").iter().map(|task| &task["name"]).collect();
    assert_eq!(died, ["burst_once", "burst"]);
    let again = select(&events, "X", "redelivered");
    let [again] = again[..] else { panic!("{again:?}") };
    assert_eq!((&again["name"], number(&again["args"]["first"])), (&"burst_once".into(), 0));

    let marks = select(&events, "i", "event");
    let count = |name: &str| marks.iter().filter(|mark| mark["name"] == name).count();
    assert_eq!((count("died"), count("redelivered"), count("abandoned")), (2, 1, 1));
    assert_eq!(select(&events, "B", "call").len(), 4);
    assert_eq!(events.iter().filter(|event| event["ph"] == "E").count(), 4);
}

#[trial]
fn a_killed_program_leaves_a_complete_file() {
    let setup = Setup::new("timeline until killed").env("FIBER_TIMELINE", "run.json");
    let path = setup.directory().join("run.json");
    let program = setup.start();
    program.line("baked");
    // While the program writes it, the file is complete, too.
    program.wait_until("the slices", || select(&events(&path), "X", "task").len() == 3);
    program.signal(Signal::KILL);
    let ending = program.end().signal(Signal::KILL);
    assert_eq!(select(&events(&path), "X", "task").len(), 3);
    drop(ending);
}

#[trial]
fn the_file_does_not_exceed_its_limit() {
    let setup = Setup::new("timeline of many calls").env("FIBER_TIMELINE", "run.json");
    let ending = setup.env("FIBER_TIMELINE_SIZE", "64KiB").run().code(0);
    let path = ending.directory().join("run.json");
    let length = std::fs::metadata(&path).unwrap().len();
    assert!((40 << 10..=64 << 10).contains(&length), "{length}");
    assert!(events(&path).len() > 100);
}

#[trial]
fn a_file_that_can_not_be_written_is_an_error() {
    let setup = Setup::new("timeline").env("FIBER_TIMELINE", "/no/such/run.json");
    let ending = setup.run();
    for words in ["timeline", "/no/such/run.json", "No such file"] {
        assert!(ending.errors.contains(words), "{}", ending.errors);
    }
    assert_ne!(ending.exit_code(), Some(0));
}
