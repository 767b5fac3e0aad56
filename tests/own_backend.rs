//! The promises of backends, kept by a backend outside of fiber: that of the example `launcher`.

#[path = "../examples/launcher/backend.rs"]
mod backend;

use std::process::ExitCode;

use fiber::backend::conformance::{self, Promise};
use fiber::backend::{Backend, JobSpec};
use fiber::config::Config;
use libtest_mimic::{Arguments, Trial};

use self::backend::Launcher;

fn main() -> ExitCode {
    fiber::init();
    if let Some(code) = conformance::run_if_job() {
        std::process::exit(code);
    }
    let promises = conformance::ALL.iter().chain(conformance::OF_LIMITS);
    let mut trials: Vec<_> = promises.map(keeps).collect();
    trials.push(Trial::test("workers_are_started_by_the_command", || {
        workers_are_started_by_the_command();
        Ok(())
    }));
    trials.push(Trial::test("a_command_that_is_missing_is_named", || {
        a_command_that_is_missing_is_named();
        Ok(())
    }));
    trials.push(Trial::test("an_empty_command_is_refused", || {
        an_empty_command_is_refused();
        Ok(())
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Returns a configuration with the command that starts processes.
fn launched_by(command: &str) -> Config {
    let mut config = Config::default();
    config.backend = "launcher".into();
    config.edit(|launcher: &mut backend::LauncherSection| launcher.command = command.into());
    config
}

fn keeps(promise: &'static Promise) -> Trial {
    Trial::test(promise.name(), || {
        promise.check(&launched_by("nice -n 3"));
        Ok(())
    })
}

/// Returns how nice a worker is, and how nice its own worker is.
fn niceness_of_two_levels() -> (i32, i32) {
    let own = || rustix::process::nice(0).expect("it is not changed");
    let pool = fiber::Pool::new(1).expect("the backend is known to children, too");
    (own(), pool.apply(own, ()).wait().expect("its worker runs it"))
}

fn workers_are_started_by_the_command() {
    fiber::init_with(|config| *config = launched_by("nice -n 3"));
    let here = rustix::process::nice(0).expect("it is not changed");
    let pool = fiber::Pool::new(1).expect("the configuration is right");
    let found = pool.apply(niceness_of_two_levels, ()).wait().expect("a worker runs it");
    assert_eq!(found, (here + 3, here + 6));
}

fn a_command_that_is_missing_is_named() {
    let launcher = Launcher::new(&launched_by("/no/such/command")).expect("it is one word");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let started =
        runtime.expect("there is room for one").block_on(launcher.create(JobSpec::new("worker-1")));
    let problem = started.expect_err("there is no such command").to_string();
    assert!(problem.contains("there is no command `/no/such/command`: install it"), "{problem}");
}

fn an_empty_command_is_refused() {
    let problem = Launcher::new(&launched_by(" ")).expect_err("it has no words").to_string();
    assert!(problem.contains("`launcher.command` is ` `"), "{problem}");
}
