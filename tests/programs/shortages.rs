//! Pools, managed actors and rings survive a temporary shortage of descriptors or processes.

use std::os::unix::fs::PermissionsExt;

use fiber_test_support::program::{Program, Setup, copy_executable, is_guard, pid};
use fiber_test_support::trial;
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

/// The system's error message.
const SHORTAGE: &str = "Too many open files";

/// Waits until `count` starts of workers have failed.
fn await_failed_starts(program: &Program, count: usize) {
    (0..count).for_each(|_| drop(program.line_with("could not be started")));
}

#[trial]
fn a_pool_works_with_fewer_workers_during_a_shortage_and_recovers() {
    let mut program = Setup::new("shortage of some").start();
    let warning = program.line_with("works with 2 of 3 workers");
    assert!(
        warning.contains("WARN") && warning.contains("pool `short`") && warning.contains(SHORTAGE),
        "{warning}"
    );
    program.say("go on");
    assert_eq!(program.line("meanwhile "), "42");
    assert_eq!(program.line("ready "), "2");
    program.line("all right");
    let ending = program.end().code(0).says(&["pool `short` has all its 3 workers again"]);
    assert!(!ending.out.contains("works with"), "the warning appears once: {}", ending.out);
}

#[trial]
fn a_pool_that_lost_all_workers_during_a_shortage_recovers() {
    let mut program = Setup::new("shortage of all").start();
    await_failed_starts(&program, 16);
    program.say("go on");
    program.end().code(0).says(&["done 42"]);
}

#[trial]
fn a_pool_that_can_start_no_worker_gives_up_with_the_reason() {
    let program = Setup::new("shortage of all").env("FIBER_START_TIMEOUT", "3s").start();
    let error = program.line("failed ");
    assert!(
        error.starts_with("pool `short` failed: ") && error.contains("starts of workers in a row"),
        "{error}"
    );
    assert!(error.contains(SHORTAGE), "{error}");
    program.end().code(0);
}

#[trial]
fn a_managed_actor_survives_a_shortage() {
    let mut program = Setup::new("shortage of a managed actor").start();
    (0..6).for_each(|_| drop(program.line_with(SHORTAGE)));
    program.say("go on");
    program.end().code(0).says(&["doubled 42"]);
}

#[trial]
fn a_managed_actor_whose_host_has_died_survives_a_shortage() {
    let setup = Setup::new("shortage of a managed actor").env("FIBER_PROCESSES_PER_JOB", "2");
    let mut program = setup.start();
    (0..6).for_each(|_| drop(program.line_with(SHORTAGE)));
    program.say("go on");
    program.end().code(0).says(&["doubled 42"]);
}

/// A limit that is used up: the system's error message, and the remedy in fiber's.
struct Limit {
    resource: &'static str,
    message: &'static str,
    remedy: &'static str,
}

const LIMITS: [Limit; 2] = [
    Limit { resource: "files", message: SHORTAGE, remedy: "ulimit -n" },
    Limit {
        resource: "processes",
        message: "Resource temporarily unavailable",
        remedy: "ulimit -u",
    },
];

/// A copy of this program that any user may run.
struct Copy {
    place: TempDir,
}

impl Copy {
    fn new() -> Copy {
        let place = TempDir::new().expect("a directory can be created");
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755))
            .expect("it is this process's");
        copy_executable(&place.path().join("program"));
        Copy { place }
    }

    /// Returns a program that is short of this limit. The kernel does not limit the processes of
    /// root, so the program runs as another user.
    fn short_of(&self, scenario: &str, limit: &Limit) -> Setup {
        let setup = Setup::with_executable(scenario, &self.place.path().join("program"))
            .env("SHORTAGE", limit.resource);
        match rustix::process::geteuid().is_root() {
            true => setup.user(60_000 + std::process::id() % 5000),
            false => setup,
        }
    }
}

#[trial]
fn an_actor_pool_goes_on_during_a_shortage_and_is_whole_after_it() {
    let copy = Copy::new();
    for limit in LIMITS {
        let mut program = copy.short_of("shortage of an actor pool", &limit).start();
        (0..4).for_each(|_| drop(program.line_with(limit.message)));
        program.say("ask");
        assert_eq!([program.line("meanwhile "), program.line("meanwhile ")], ["42", "42"]);
        program.say("go on");
        let ending = program.end().code(0);
        ending.says(&["afterwards 42", "whole Ok([4, 4, 4])"]);
    }
}

#[trial]
fn a_ring_that_is_started_during_a_shortage_fails_and_names_the_limit() {
    let copy = Copy::new();
    for limit in LIMITS {
        let ending = copy.short_of("shortage at the start of a ring", &limit).run().code(0);
        ending.says(&[
            "failed `short/rank-",
            "could not be started",
            limit.message,
            limit.remedy,
            "later [0, 1, 2]",
        ]);
    }
}

#[trial]
fn a_ring_restarts_its_ranks_after_a_shortage() {
    let copy = Copy::new();
    for limit in LIMITS {
        let mut program = copy.short_of("shortage of a ring", &limit).start();
        (0..6).for_each(|_| drop(program.line_with(limit.message)));
        program.say("go on");
        program.end().code(0).says(&["restarted [0, 1, 2]"]);
    }
}

#[trial]
fn a_ring_gives_up_on_a_shortage_that_lasts_and_names_the_limit() {
    let copy = Copy::new();
    let programs = LIMITS.map(|limit| {
        let setup = copy.short_of("shortage of a ring", &limit).env("FIBER_START_TIMEOUT", "2s");
        (setup.start(), limit)
    });
    for (program, limit) in programs {
        (0..3).for_each(|_| drop(program.line_with(limit.message)));
        let error = program.line("failed ");
        assert!(error.contains("could not be started"), "{error}");
        assert!(error.contains(limit.message) && error.contains(limit.remedy), "{error}");
        program.end().code(0);
    }
}

#[trial]
fn a_rank_that_is_short_of_descriptors_names_the_limit_or_goes_on_after_it() {
    let program = Setup::new("shortage of a rank").env("FIBER_LINK", "unix").start();
    for short in ["sender", "receiver", "receiver of memory", "initializer"] {
        let outcome = program.line(&format!("{short}: "));
        assert!(outcome.contains(SHORTAGE) && outcome.contains("ulimit -n"), "{short}: {outcome}");
    }
    for short in ["passing", "passing without memory"] {
        assert_eq!(program.line(&format!("{short}: ")), r#"["sent", "arrived"]"#);
    }
    program.end().code(0);
}

#[trial]
fn a_guard_that_is_lost_during_a_shortage_is_replaced_after_it() {
    let mut program = Setup::new("shortage of a guard").start();
    program.line("ready");
    let guard = |program: &Program| program.processes().into_iter().find(|pid| is_guard(*pid));
    program.wait_until("a guard", || guard(&program).is_some());
    program.say("begin");
    program.line("short");
    kill_process(pid(guard(&program).expect("it runs")), Signal::KILL).expect("it runs");
    let problem = program.line_with("guard of this process can't be started");
    assert!(problem.contains(SHORTAGE), "{problem}");
    program.say("go on");
    program.wait_until("another guard", || guard(&program).is_some());
    program.say("end");
    program.end().code(0);
}

#[trial]
fn output_is_forwarded_after_a_shortage_of_threads() {
    let copy = Copy::new();
    let mut program = copy.short_of("shortage of a printer", &LIMITS[1]).start();
    let problem = program.line_with("output of a child process is lost");
    assert!(problem.contains(LIMITS[1].remedy), "{problem}");
    program.say("go on");
    program.line("a worker prints late");
    program.say("end");
    program.end().code(0);
}
