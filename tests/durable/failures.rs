//! Tasks that have failed.

use fiber_test_support::trial;

use crate::sweep::Sweep;

const KEEP: (&str, &str) = ("KEEP", "1");
const MENDED: (&str, &str) = ("MENDED", "1");

#[trial]
fn failed_tasks_run_again() {
    let sweep = Sweep::new();
    let (out, ran) = sweep.run("failing", &[]);
    assert!(out.contains("0 gives 0\n1 fails: ") && out.contains("1 is odd"), "{out}");
    assert!(out.contains("3 fails: ") && out.contains("three is odd"), "{out}");
    assert_eq!(ran.iter().filter(|note| *note == "101").count(), 3, "with two retries");
    let (again, ran) = sweep.run("failing", &[]);
    assert_eq!(again, out);
    assert_eq!(ran, ["1", "101", "101", "101", "3", "5", "7"]);
    let (mended, ran) = sweep.run("failing", &[MENDED]);
    assert!(mended.contains("5 gives 5") && mended.contains("map Ok([2, 7])"), "{mended}");
    assert_eq!(ran, ["1", "101", "3", "5", "7"]);
    // Results take precedence over earlier failures.
    let (kept, ran) = sweep.run("failing", &[KEEP]);
    assert!(kept.contains("1 gives 1\n") && kept.contains("3 fails: "), "{kept}");
    assert_eq!(ran, Vec::<String>::new());
}

#[trial]
fn kept_failures_come_back_as_they_were() {
    let sweep = Sweep::new();
    let (first, _) = sweep.run("failing", &[KEEP]);
    let (again, ran) = sweep.run("failing", &[KEEP, MENDED]);
    assert_eq!((again, ran), (first, vec![]));
}

#[trial]
fn abandoned_tasks_run_again() {
    let sweep = Sweep::new();
    let (out, _) = sweep.run("abandoned", &[]);
    let expected =
        "0 returns\n1 dies: 1 Signal(6) [\"the last line of 1\"]\n2 returns\n5 times out";
    assert!(out.contains(expected), "{out}");
    let (mended, ran) = sweep.run("abandoned", &[MENDED]);
    assert_eq!(mended, "0 returns\n1 returns\n2 returns\n5 returns");
    assert_eq!(ran, ["abort 1", "sleep 5"]);
}

#[trial]
fn kept_abandoned_tasks_come_back_as_they_were() {
    let sweep = Sweep::new();
    let (first, _) = sweep.run("abandoned", &[KEEP]);
    let results = |out: &str| -> Vec<String> {
        // The output of the worker is among the lines of the first run.
        out.lines()
            .filter(|line| !line.contains("the last line of 1") || line.contains("dies"))
            .map(String::from)
            .collect()
    };
    let (again, ran) = sweep.run("abandoned", &[KEEP, MENDED]);
    assert_eq!((results(&again), ran), (results(&first), vec![]));
}
