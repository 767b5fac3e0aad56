//! How programs begin, and how fiber's processes in them do, or why they can't.

use crate::program::{Ending, Setup};

crate::tests![
    every_kind_of_main_works,
    a_failing_main_fails_the_program,
    without_init_the_error_says_what_to_do,
    a_main_that_returns_an_error_prints_what_to_do,
    init_after_a_thread_was_started_is_told,
    children_without_init_do_not_multiply,
    children_that_never_reach_init_are_given_up,
    a_child_that_can_not_connect_says_so_and_ends,
    a_child_that_is_called_with_nonsense_says_so_and_ends,
];

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn every_kind_of_main_works() {
    for main in ["async main", "plain main", "main with init"] {
        Setup::new(main).run().code(0).says(&["sum 285"]);
    }
}

fn a_failing_main_fails_the_program() {
    let ending = Setup::new("failing main").run().code(1);
    assert!(ending.errors.contains("no such luck"), "{}", ending.errors);
}

/// How often `main` began, in the program and in what it started.
fn begun(ending: &Ending) -> usize {
    ending.errors.lines().filter(|line| *line == "main began").count()
}

fn without_init_the_error_says_what_to_do() {
    let ending = Setup::new("no init").run().code(0).says(&[
        "pool: fiber is not initialised in this program: make `fiber::init();` the first line of `main`",
        "process: fiber is not initialised in this program",
        "supervisor: fiber is not initialised in this program",
        "#[fiber::main]",
        "fiber::test_harness!();",
    ]);
    assert_eq!(begun(&ending), 1);
}

fn a_main_that_returns_an_error_prints_what_to_do() {
    let ending = Setup::new("main without init").run().code(1);
    let says = "Error: fiber is not initialised in this program: make `fiber::init();` the first line of `main`";
    assert!(ending.errors.contains(says), "{}", ending.errors);
}

fn init_after_a_thread_was_started_is_told() {
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

fn children_without_init_do_not_multiply() {
    let ending = Setup::new("init in the parent alone")
        .run()
        .code(0)
        .says(&["exited with code 1 before it was ready: is `fiber::init()` the first thing that `main` does?"]);
    assert_eq!(begun(&ending), 2, "{}", ending.errors);
}

fn children_that_never_reach_init_are_given_up() {
    let ending = Setup::new("init after work").env("FIBER_START_TIMEOUT", "500ms").run().code(0).says(&[
        "did not connect and get ready within 500ms: is `fiber::init()` the first thing that `main` does?",
        "start_timeout",
    ]);
    assert_eq!(begun(&ending), 2, "{}", ending.errors);
}

fn called(node: &str, key: &str) -> Ending {
    Setup::new("main with init").env("FIBER_PARENT", node).env("FIBER_KEY", key).run()
}

fn a_child_that_can_not_connect_says_so_and_ends() {
    for address in ["unix:fiber-nobody", "nng:tcp://127.0.0.1:1", "pigeon:post"] {
        let ending = called(&format!("7:8:{}:{address}", std::process::id()), KEY).code(70);
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

fn a_child_that_is_called_with_nonsense_says_so_and_ends() {
    let node = format!("7:8:{}:unix:fiber-nobody", std::process::id());
    for (node, key) in [("nonsense", KEY), ("", KEY), (&*node, "short"), (&*node, "")] {
        let ending = called(node, key).code(70);
        assert!(ending.errors.contains("FIBER_PARENT and FIBER_KEY"), "{}", ending.errors);
        assert!(ending.errors.contains("unset them") && ending.out.is_empty(), "{}", ending.errors);
    }
    let ending = Setup::new("main with init").env("FIBER_PARENT", &node).run().code(70);
    assert!(ending.errors.contains("unset them"), "{}", ending.errors);
}
