//! Journals that can't be used.

use fiber_test_support::trial;

use crate::sweep::Sweep;

#[trial]
fn calls_outside_of_the_first_process_are_refused() {
    let (out, _) = Sweep::new().run("in a task", &[]);
    for place in ["task", "process"] {
        let line = out.lines().find(|line| line.starts_with(&format!("{place}: ")));
        assert!(line.is_some_and(|line| line.contains("first process")), "{place}:\n{out}");
    }
}

#[trial]
fn a_second_program_is_refused_by_the_name_of_the_first() {
    let sweep = Sweep::new();
    let mut first = sweep.start("waiting", &[]);
    first.line("open");
    let second = sweep.program("squares", &[("ITEMS", "1")]).run().code(1);
    let pid = first.pid().to_string();
    assert!(
        second.errors.contains("Error: journal") && second.errors.contains(&pid),
        "{}",
        second.errors
    );
    first.say("end");
    let first = first.end().code(0);
    assert!(first.out.contains("[0, 1, 4]"), "{}", first.out);
    sweep.take_ran();
    assert_eq!(sweep.run("squares", &[("ITEMS", "0,1,3")]).1, ["3"]);
}

#[trial]
fn an_unusable_folder_is_an_error_of_the_call() {
    let sweep = Sweep::new();
    std::fs::write(sweep.journal(), "a file").unwrap();
    let ended = sweep.program("squares", &[("ITEMS", "1")]).run().code(1);
    let path = sweep.journal().display().to_string();
    assert!(
        ended.errors.contains("Error: journal") && ended.errors.contains(&path),
        "{}",
        ended.errors
    );
    assert_eq!(sweep.take_ran(), Vec::<String>::new());
}

#[trial]
fn a_full_disk_ends_the_calls_and_nothing_hangs() {
    let sweep = Sweep::new();
    let (out, _) = sweep.run("no room", &[("LIMIT", "1")]);
    assert!(out.contains("returned some\nstream: journal") && out.ends_with("stopped"), "{out}");
    let (out, _) = sweep.run("no room", &[]);
    assert_eq!(out, "returned all\nstopped");
}

#[trial]
fn values_of_another_build_are_errors_that_name_the_journal_and_its_version() {
    let sweep = Sweep::new();
    let kinds = ["pool: ", "output: ", "task: ", "ring: ", "actor: ", "entity: ", "queue: "];
    let (out, _) = sweep.run("other build", &[]);
    assert!(kinds.iter().all(|kind| out.contains(&format!("{kind}Ok("))), "{out}");
    let (out, _) = sweep.run("other build", &[("OTHER_BUILD", "1")]);
    let path = sweep.journal().display().to_string();
    for kind in kinds {
        let line = out.lines().find(|line| line.starts_with(kind)).expect("there is one");
        let words = ["missing field `y`", path.as_str(), "Journal::version"];
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
}
