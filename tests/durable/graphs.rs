//! Durable tasks that take the values of others.

use fiber_journal::Reader;
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::Signal;

use crate::sweep::Sweep;

const EIGHT: (&str, &str) = ("ITEMS", "10,20,30,40,50,60,70,80");

/// Returns how many outcomes the journal has.
fn recorded(sweep: &Sweep) -> u64 {
    let summary = Reader::open(&sweep.journal()).unwrap().summary().unwrap();
    summary.calls.iter().map(|call| call.returned).sum()
}

#[trial]
fn a_graph_that_is_killed_at_any_moment_runs_what_is_not_recorded() {
    let sweep = Sweep::new();
    let items: Vec<_> = (0..256).map(|item| (item * 10).to_string()).collect();
    let items = [("ITEMS", &*items.join(","))];
    const TASKS: u64 = 256 + 255 + 1;
    for stop_after in [1, 100, 150] {
        let before = if sweep.journal().exists() { recorded(&sweep) } else { 0 };
        let program = sweep.start("graph", &items);
        let ran = || std::fs::read_to_string(sweep.ran_file()).unwrap_or_default().lines().count();
        wait_until("a recorded task", || ran() >= stop_after || !program.has_not_ended());
        program.signal(Signal::KILL);
        program.end();
        assert!(recorded(&sweep) <= before + sweep.take_ran().len() as u64);
    }
    let before = recorded(&sweep);
    let (out, ran) = sweep.run("graph", &items);
    assert_eq!(out, format!("total {}\nrecorded {before}", 2 * 255 * 128));
    assert_eq!(ran.len() as u64, TASKS - before);
    assert_eq!(recorded(&sweep), TASKS);
}

#[trial]
fn a_changed_leaf_runs_what_depends_on_its_value() {
    let sweep = Sweep::new();
    sweep.run("graph", &[EIGHT]);
    let (out, ran) = sweep.run("graph", &[("ITEMS", "10,20,30,41,50,60,70,80")]);
    assert_eq!(out, "total 72\nrecorded 15");
    assert_eq!(ran, ["leaf 41"], "it gives the same value");
    let (out, ran) = sweep.run("graph", &[("ITEMS", "10,20,30,90,50,60,70,80")]);
    assert_eq!(out, "total 82\nrecorded 11");
    assert_eq!(ran, ["finish", "join 15 26", "join 3 12", "join 3 9", "leaf 90"]);
    assert_eq!(sweep.run("graph", &[EIGHT]).1, Vec::<String>::new());
}

#[trial]
fn merges_are_found_by_their_values() {
    let sweep = Sweep::new();
    let (out, ran) = sweep.run("reduce", &[EIGHT]);
    assert_eq!((out.as_str(), ran.len()), ("total Some(36) recorded 0", 8 + 7));
    let (out, ran) = sweep.run("reduce", &[EIGHT]);
    assert_eq!((out.as_str(), ran.len()), ("total Some(36) recorded 15", 0));
    let (out, ran) = sweep.run("reduce", &[("ITEMS", "10,20,30,40,50,60,70,80,90")]);
    assert_eq!(out, "total Some(45) recorded 15");
    assert_eq!(ran, ["join 36 9", "leaf 90"], "the tree of the others is as before");
    assert_eq!(sweep.run("reduce", &[("ITEMS", "")]).0, "total None recorded 0");
}

#[trial]
fn equal_inputs_make_tasks_of_their_own() {
    let sweep = Sweep::new();
    let equal = [("ITEMS", "10,20,10,20")];
    let (out, ran) = sweep.run("graph", &equal);
    assert_eq!((out.as_str(), ran.len()), ("total 12\nrecorded 0", 8));
    let (out, ran) = sweep.run("graph", &equal);
    assert_eq!((out.as_str(), ran.len()), ("total 12\nrecorded 8", 0));
}

#[trial]
fn inputs_of_calls_that_are_not_durable_are_looked_up_by_their_values() {
    let sweep = Sweep::new();
    let plain = [EIGHT, ("PLAIN_LEAVES", "1")];
    assert_eq!(sweep.run("graph", &plain).1.len(), 16);
    let (out, ran) = sweep.run("graph", &plain);
    assert_eq!(out, "total 72\nrecorded 8");
    assert!(ran.len() == 8 && ran.iter().all(|task| task.starts_with("leaf")), "{ran:?}");
}

#[trial]
fn failed_inputs_run_again_and_kept_ones_fail_again() {
    let sweep = Sweep::new();
    let items = ("ITEMS", "10,20,3,40");
    let (first, ran) = sweep.run("graph", &[items]);
    assert!(first.contains("failed: ") && first.contains("an input failed: task 2"), "{first}");
    assert_eq!(ran, ["join 1 2", "leaf 10", "leaf 20", "leaf 3", "leaf 40"]);
    let (again, ran) = sweep.run("graph", &[items]);
    assert!(again.contains("an input failed: task 2") && again.ends_with("recorded 4"), "{again}");
    assert_eq!(ran, ["leaf 3"]);
    let (kept, ran) = sweep.run("graph", &[items, ("KEEP", "1")]);
    assert!(kept.contains("an input failed: task 2") && kept.ends_with("recorded 5"), "{kept}");
    assert_eq!(ran, Vec::<String>::new());
    let (mended, ran) = sweep.run("graph", &[items, ("MENDED", "1")]);
    assert_eq!(mended, "total 14\nrecorded 4");
    assert_eq!(ran, ["finish", "join 0 4", "join 3 4", "leaf 3"]);
}

#[trial]
fn large_values_have_one_identity_wherever_they_are() {
    let sweep = Sweep::new();
    let (first, ran) = sweep.run("large graph", &[]);
    assert_eq!(ran, ["make", "make", "make", "sum", "sum", "take"]);
    let (again, ran) = sweep.run("large graph", &[]);
    assert_eq!((first.replace("recorded 0", "recorded 6"), ran), (again, vec![]));
    // Other versions make the values again. Over nng nothing is in shared memory; with room for
    // little, only a part of it.
    let variables = [("FIBER_LINK", "nng"), ("FIBER_VALUE_MEMORY", "1MiB"), ("OTHER", "")];
    for (version, variable) in ["2", "3", "4"].into_iter().zip(variables) {
        let (out, ran) = sweep.run("large graph", &[("VERSION", version), variable]);
        assert_eq!(out, first.replace("recorded 0", "recorded 1"));
        assert_eq!(ran, ["make", "make", "make", "sum", "sum"], "{variable:?}");
    }
}

#[trial]
fn handles_are_refused() {
    let (out, _) = Sweep::new().run("graph of handles", &[]);
    for kind in ["argument", "put"] {
        let line = out.lines().find(|line| line.starts_with(&format!("{kind}: ")));
        assert!(line.is_some_and(|line| line.contains("has a handle")), "{kind}:\n{out}");
    }
    assert!(out.ends_with("none: 5"), "{out}");
}
