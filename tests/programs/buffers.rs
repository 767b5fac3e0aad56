//! The memory of a call is bounded, however slowly its results are taken or its tasks run.

use fiber_test_support::program::{ProgramOutput, Setup};
use fiber_test_support::trial;

/// Runs the program. Returns its peak memory in MiB.
fn peak(setup: Setup) -> u64 {
    number(&setup.run().code(0), "peak")
}

fn consumer(form: &str, size: u64) -> u64 {
    peak(Setup::new("slow consumer").args(&[form, &size.to_string()]))
}

#[trial]
fn waiting_results_take_bounded_memory() {
    for form in ["imap", "imap_unordered"] {
        let peak = consumer(form, 256 << 10);
        assert!(peak < 150, "{form}: {peak} MiB");
    }
}

#[trial]
fn results_that_become_large_take_bounded_memory() {
    let peak = consumer("imap, small ones first", 10 << 20);
    assert!(peak < 300, "{peak} MiB");
}

#[trial]
fn waiting_arguments_take_bounded_memory() {
    let peak = peak(Setup::new("slow worker"));
    assert!(peak < 200, "{peak} MiB");
}

/// Returns the number after `name` in a line of the program's output.
fn number(ending: &ProgramOutput, name: &str) -> u64 {
    let value = ending.out.lines().find_map(|line| line.strip_prefix(name));
    value
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or_else(|| panic!("{}{}", ending.out, ending.errors))
}

#[trial]
fn all_calls_together_take_bounded_memory() {
    let setup = Setup::new("value memory")
        .env("FIBER_CALL_BUFFER", "1GiB")
        .env("FIBER_VALUE_MEMORY", "32MiB");
    let ending = setup.run().code(0);
    let highest = number(&ending, "highest");
    assert!((20..64).contains(&highest), "{highest} MiB");
    assert!(ending.out.contains("shared, limit 32.0 MiB"), "{}", ending.out);
    assert_eq!(number(&ending, "left"), 0);
    assert!(number(&ending, "peak") < 200, "{}", ending.out);
}

#[trial]
fn unbounded_queues_go_on_in_a_file() {
    let ending = Setup::new("spilled queue").env("FIBER_VALUE_MEMORY", "16MiB").run().code(0);
    assert!((183..186).contains(&number(&ending, "spilled")), "{}", ending.out);
    assert!(number(&ending, "stored") <= 17, "{}", ending.out);
    assert_eq!(number(&ending, "left"), 0);
}

#[trial]
fn queues_without_a_file_wait_for_memory_and_say_so() {
    let setup = Setup::new("full queues")
        .env("FIBER_VALUE_MEMORY", "16MiB")
        .env("FIBER_SPILL_DIR", "/proc/no-folder");
    let ending = setup.run().code(0);
    assert!((16..18).contains(&number(&ending, "stored")), "{}", ending.out);
    for part in [
        "the queue `tests/programs/scenarios/buffers.rs:",
        "` waits for memory (values: ",
        "/proc/no-folder",
        "FIBER_SPILL_DIR",
    ] {
        assert!(ending.errors.contains(part), "{part}: {}", ending.errors);
    }
    assert_eq!(number(&ending, "left"), 0);
    assert!(number(&ending, "peak") < 150, "{}", ending.out);
}

#[trial]
fn a_thread_that_puts_and_takes_goes_on_beyond_the_memory_of_values() {
    let ending = Setup::new("circle").env("FIBER_VALUE_MEMORY", "1MiB").run().code(0);
    assert!(ending.out.contains("all came back"), "{}{}", ending.out, ending.errors);
}

#[trial]
fn calls_that_wait_for_memory_say_so_once() {
    let ending = Setup::new("slow call").env("FIBER_VALUE_MEMORY", "1MiB").run().code(0);
    let warnings: Vec<_> =
        ending.out.lines().filter(|line| line.contains("hands out few tasks at a time")).collect();
    let [warning] = warnings[..] else { panic!("{}", ending.out) };
    for part in ["WARN", "slow_task", "(values: ", "limit 1.0 MiB", "FIBER_VALUE_MEMORY"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    assert!(ending.out.contains("all tasks ran"), "{}", ending.out);
}

#[trial]
fn outputs_go_on_in_a_file() {
    let ending = Setup::new("spilled outputs").env("FIBER_VALUE_MEMORY", "16MiB").run().code(0);
    // The workers keep some of them in shared memory, and the others in their files.
    assert!((150..200).contains(&number(&ending, "spilled")), "{}", ending.out);
    assert!(number(&ending, "stored") < 16, "{}", ending.out);
    assert_eq!(number(&ending, "left"), 0);
}

#[trial]
fn outputs_without_a_file_stay_in_memory_and_say_so() {
    let setup = Setup::new("spilled outputs")
        .env("FIBER_VALUE_MEMORY", "16MiB")
        .env("FIBER_SPILL_DIR", "/proc/no-folder");
    let ending = setup.run().code(0);
    assert_eq!(number(&ending, "spilled"), 0, "{}", ending.out);
    let warnings: Vec<_> =
        ending.out.lines().filter(|line| line.contains("outputs of tasks need more")).collect();
    let [warning] = warnings[..] else { panic!("{}", ending.out) };
    for part in ["WARN", "(values: ", "/proc/no-folder", "FIBER_SPILL_DIR", "FIBER_VALUE_MEMORY"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    assert_eq!(number(&ending, "left"), 0);
}

#[trial]
fn outputs_of_an_endless_iterator_take_bounded_memory() {
    let ending = Setup::new("outputs without end").env("FIBER_CALL_BUFFER", "1MiB").run().code(0);
    let highest = number(&ending, "highest");
    assert!((1..4).contains(&highest), "{highest} MiB");
}

#[trial]
fn few_values_wait_for_slow_merges() {
    let ending = Setup::new("slow merges").run().code(0);
    let highest = number(&ending, "highest");
    assert!(highest < 30, "{highest} values of 100");
}
