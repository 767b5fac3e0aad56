//! Programs that fork, and that change their user, while fiber works in them.

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

#[trial]
fn in_a_fork_all_is_an_error_and_the_original_goes_on() {
    let ended = Setup::new("forks").run().code(0);
    ended.says(&[
        "apply: this process is a fork",
        "the fork ended with Some(0)",
        "all is as before",
    ]);
}

#[trial]
fn the_fork_of_a_worker_leaves_the_children_of_the_worker_alone() {
    let ended = Setup::new("forks in a task").run().code(0);
    ended.says(&["the fork ended with Some(0)", "the worker lives"]);
}

#[trial]
fn the_fork_of_a_rank_leaves_the_streams_of_the_rank_alone() {
    let ended = Setup::new("forks in a rank").run().code(0);
    ended.says(&["the fork ended with Some(0)", "sums Ok([3, 3])"]);
}

#[trial]
fn a_fork_ends_by_the_signals_that_end_its_original() {
    Setup::new("ends its fork").run().code(0).says(&["a signal that ended the fork: Some(15)"]);
}

#[trial]
fn the_fork_of_a_worker_sends_nothing_to_other_processes() {
    for link in ["unix", "nng"] {
        let program = Setup::new("forks with handles of others").env("FIBER_LINK", link);
        program.run().code(0).says(&["the fork ended with Some(0)", "received Ok((7, 5))"]);
    }
}

#[trial]
fn a_program_may_fork_before_it_uses_fiber() {
    let ended = Setup::new("forks before it starts").run().code(0);
    assert_eq!(ended.out.matches("sum 5").count(), 2, "{}", ended.out);
}

#[trial]
fn a_pool_whose_program_has_given_up_root_ends_at_once_with_the_reason() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can give it up");
    }
    let program = Setup::new("gives up root").env("FIBER_LINK", "unix");
    let ended = program.run().code(0);
    let reason = "has changed its user from 0 to 60000";
    for what in ["then: ", "process: "] {
        let line = ended.out.lines().find(|line| line.starts_with(what)).expect("it is printed");
        assert!(line.contains(reason), "{line}");
    }
    assert!(!ended.errors.contains("can't work for its parent"), "{}", ended.errors);
}
