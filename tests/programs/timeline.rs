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

/// Returns the function, the call and the first task of the slice around a time on a track.
fn slice_at(events: &[Value], arrow: &Value) -> (String, u64, u64) {
    let at = arrow["ts"].as_f64().unwrap();
    let around = |event: &&&Value| {
        let (begin, length) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        (&event["pid"], &event["tid"]) == (&arrow["pid"], &arrow["tid"])
            && begin <= at
            && at <= begin + length
    };
    let slices = select(events, "X", "task");
    let slice = slices.iter().find(around).unwrap_or_else(|| panic!("no slice around {arrow}"));
    let name = slice["name"].as_str().unwrap().to_string();
    (name, number(&slice["args"]["call"]), number(&slice["args"]["first"]))
}

#[trial]
fn arrows_lead_from_values_to_the_tasks_that_took_them() {
    let ending = Setup::new("timeline of a graph").env("FIBER_TIMELINE", "run.json").run().code(0);
    assert_eq!(ending.out.trim(), "14");
    let events = events(&ending.directory().join("run.json"));
    let (begins, ends) = (select(&events, "s", "input"), select(&events, "f", "input"));
    assert_eq!(begins.len(), ends.len());
    let arrow = |(begin, end): (&&Value, &&Value)| {
        assert_eq!((&begin["id"], &begin["name"]), (&end["id"], &end["name"]));
        assert!(begin["ts"].as_f64() <= end["ts"].as_f64(), "{begin} {end}");
        assert_eq!(end["bp"], "e");
        (slice_at(&events, begin), slice_at(&events, end))
    };
    let mut arrows: Vec<_> = begins.iter().zip(&ends).map(arrow).collect();
    arrows.sort();
    // The calls in their order: `put` makes none.
    let end = |function: &str, call, first| (function.to_string(), call, first);
    let baked = |call, first| end("bake_one", call, first);
    let mut expected: Vec<_> = (0..4).map(|index| (baked(1, index), end("stack", 2, 0))).collect();
    // Two of the three values are merged, and then the third with what they became.
    expected.extend([
        (baked(3, 0), end("merge", 4, 0)),
        (baked(3, 1), end("merge", 4, 0)),
        (end("merge", 4, 0), end("merge", 4, 1)),
        (baked(3, 2), end("merge", 4, 1)),
        (end("stack", 2, 0), end("merge", 5, 0)),
        (end("merge", 4, 1), end("merge", 5, 0)),
    ]);
    expected.sort();
    assert_eq!(arrows, expected);
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

#[trial]
fn a_file_of_another_kind_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("authorized_keys");
    for text in ["ssh-ed25519 AAAA\n", "[1, 2]\n"] {
        std::fs::write(&path, text).unwrap();
        let ending = Setup::new("timeline").env("FIBER_TIMELINE", &path).run();
        assert!(ending.errors.contains("something else than a timeline"), "{}", ending.errors);
        assert_ne!(ending.exit_code(), Some(0));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
