//! Starts of programs and of their processes, and errors that explain why one failed.

use fiber_test_support::program::{ProgramOutput, Setup};
use fiber_test_support::trial;

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

#[trial]
fn every_kind_of_main_works() {
    for main in ["async main", "plain main", "main with init"] {
        Setup::new(main).run().code(0).says(&["sum 285"]);
    }
}

#[trial]
fn a_failing_main_fails_the_program() {
    let ending = Setup::new("failing main").run().code(1);
    assert!(ending.errors.contains("no such luck"), "{}", ending.errors);
}

/// Counts the starts of `main`, in the program and in its processes.
fn begun(ending: &ProgramOutput) -> usize {
    ending.errors.lines().filter(|line| *line == "main began").count()
}

#[trial]
fn without_init_the_error_names_the_remedy() {
    let ending = Setup::new("no init").run().code(0).says(&[
        "pool: fiber is not initialized in this program: make `fiber::init();` the first line of \
         `main`",
        "process: fiber is not initialized in this program",
        "supervisor: fiber is not initialized in this program",
        "#[fiber::main]",
        "fiber::test_harness!();",
    ]);
    assert_eq!(begun(&ending), 1);
}

#[trial]
fn a_main_that_returns_an_error_prints_the_remedy() {
    let ending = Setup::new("main without init").run().code(1);
    let says = "Error: fiber is not initialized in this program: make `fiber::init();` the first \
                line of `main`";
    assert!(ending.errors.contains(says), "{}", ending.errors);
}

#[trial]
fn init_after_the_start_of_a_thread_is_an_error() {
    for late in ["init too late", "init in a runtime"] {
        let ending = Setup::new(late).run().code(0).says(&["use `#[fiber::main]` in their place"]);
        let words =
            "must come before anything that starts a thread: make it the first line of `main`";
        let both = format!("{}{}", ending.out, ending.errors);
        assert_eq!(both.matches(words).count(), 1, "{both}");
        assert_eq!(ending.errors.matches("main went on").count(), 1, "{}", ending.errors);
        assert!(begun(&ending) < 20, "{}", ending.errors);
    }
}

#[trial]
fn children_without_init_do_not_multiply() {
    let ending = Setup::new("init in the parent alone").run().code(0);
    let ending = ending.says(&[
        "exited with code 1 before it was ready: is `fiber::init()` the first thing that `main` \
         does?",
    ]);
    assert_eq!(begun(&ending), 2, "{}", ending.errors);
}

#[trial]
fn children_that_never_reach_init_are_killed() {
    let setup = Setup::new("init after work").env("FIBER_START_TIMEOUT", "3s");
    let ending = setup.run().code(0).says(&[
        "did not connect and get ready within 3s: is `fiber::init()` the first thing that \
         `main` does?",
        "start_timeout",
    ]);
    assert_eq!(begun(&ending), 2, "{}", ending.errors);
}

fn start_child(parent: &str, key: &str) -> ProgramOutput {
    Setup::new("main with init").env("FIBER_PARENT", parent).env("FIBER_KEY", key).run()
}

#[trial]
fn a_child_that_can_not_connect_prints_why_and_exits() {
    for address in ["unix:fiber-nobody", "nng:tcp://127.0.0.1:1"] {
        let ending =
            start_child(&format!("7,8,{},8,alone,{address}", std::process::id()), KEY).code(70);
        let text = format!(
            "this process can't work for its parent: the parent can't be reached at {address}"
        );
        assert!(
            ending.errors.contains(&text) && ending.out.is_empty(),
            "{}{}",
            ending.errors,
            ending.out
        );
    }
}

#[trial]
fn a_child_with_wrong_variables_prints_why_and_exits() {
    let at = |address: &str| format!("7,8,{},8,alone,{address}", std::process::id());
    let (parent, pigeon) = (at("unix:fiber-nobody"), at("pigeon:post"));
    let wrong =
        [("nonsense", KEY), ("", KEY), (&*pigeon, KEY), (&*parent, "short"), (&*parent, "")];
    for (parent, key) in wrong {
        let ending = start_child(parent, key).code(70);
        assert!(ending.errors.contains("FIBER_PARENT and FIBER_KEY"), "{}", ending.errors);
        assert!(ending.errors.contains("unset them") && ending.out.is_empty(), "{}", ending.errors);
    }
    let ending = Setup::new("main with init").env("FIBER_PARENT", &parent).run().code(70);
    assert!(ending.errors.contains("unset them"), "{}", ending.errors);
}
