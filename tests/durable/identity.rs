//! The identity of a task.

use fiber_test_support::trial;

use crate::sweep::Sweep;

#[trial]
fn arguments_may_be_added_changed_removed_and_moved() {
    let sweep = Sweep::new();
    let squares = |items: &str| sweep.run("squares", &[("ITEMS", items)]);
    assert_eq!(squares("1,2,3"), ("[1, 4, 9]".into(), vec!["1".into(), "2".into(), "3".into()]));
    assert_eq!(squares("1,2,3,4"), ("[1, 4, 9, 16]".into(), vec!["4".into()]));
    assert_eq!(squares("1,7,3"), ("[1, 49, 9]".into(), vec!["7".into()]));
    assert_eq!(squares("3,1"), ("[9, 1]".into(), vec![]));
    assert_eq!(squares("4,3,2,7,1"), ("[16, 9, 4, 49, 1]".into(), vec![]));
    assert_eq!(squares(""), ("[]".into(), vec![]));
}

#[trial]
fn equal_arguments_are_tasks_of_their_own() {
    let sweep = Sweep::new();
    let squares = |items: &str| sweep.run("squares", &[("ITEMS", items)]);
    assert_eq!(squares("5,5").1, ["5", "5"]);
    assert_eq!(squares("5,5,5"), ("[25, 25, 25]".into(), vec!["5".into()]));
    assert_eq!(squares("5,5,5"), ("[25, 25, 25]".into(), vec![]));
}

#[trial]
fn single_tasks_of_a_function_are_one_call() {
    let sweep = Sweep::new();
    let single = |items: &str| sweep.run("single tasks", &[("ITEMS", items)]);
    assert_eq!(single("1,2,2").1, ["1", "2", "2"]);
    assert_eq!(single("2,1,2,3"), ("[4, 1, 4, 9]".into(), vec!["3".into()]));
    assert_eq!(sweep.run("squares", &[("ITEMS", "1")]).1, ["1"], "`map` is another call");
}

#[trial]
fn equal_calls_have_outcomes_of_their_own() {
    let sweep = Sweep::new();
    let calls = || sweep.run("two calls", &[("ITEMS", "1,2")]);
    let (first, ran) = calls();
    assert_eq!(ran, ["1", "1", "2", "2"]);
    assert_eq!(calls(), (first, vec![]), "each result is of the process that has run the task");
}

#[trial]
fn another_version_runs_and_the_old_one_stays() {
    let sweep = Sweep::new();
    let version =
        |version: &str| sweep.run("squares", &[("ITEMS", "1"), ("VERSION", version)]).1.len();
    assert_eq!(["", "2", "2", "", "3"].map(version), [1, 1, 0, 0, 1]);
}

#[trial]
fn another_name_of_the_call_runs() {
    let sweep = Sweep::new();
    let call = |name: &str| sweep.run("squares", &[("ITEMS", "1"), ("CALL", name)]).1.len();
    assert_eq!(["", "coarse", "fine", "coarse", ""].map(call), [1, 1, 1, 0, 0]);
}

#[trial]
fn handles_are_refused() {
    let (out, _) = Sweep::new().run("handles", &[]);
    for kind in ["queue", "map", "broadcast", "pipe", "address"] {
        let beginning = format!("{kind}: ");
        let line = out.lines().find(|line| line.starts_with(&beginning));
        assert!(line.is_some_and(|line| line.contains("has a handle")), "{kind}:\n{out}");
    }
    assert!(out.contains("none: Ok(())"), "{out}");
    assert!(out.contains("imap: [Some(1), None, Some(3)]"), "{out}");
}

#[trial]
fn closures_of_one_path_are_refused() {
    let (out, _) = Sweep::new().run("closures", &[]);
    assert!(out.contains("apply: ") && out.contains("Journal::call"), "{out}");
    assert!(out.contains("reserved: ") && out.contains("begins with `#`"), "{out}");
}
