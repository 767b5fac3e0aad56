//! The order of configuration sources, and errors that name key, value and remedy.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fiber_test_support::program::{ProgramOutput, Setup};
use fiber_test_support::trial;

#[trial]
fn code_overrides_environment_overrides_file() {
    let file = "processes = 5\nheartbeat = '700ms'\nmax_message = '3MiB'\n";
    let setup = |name| Setup::new(name).file("fiber.toml", file).env("FIBER_HEARTBEAT", "800ms");
    setup("configuration").run().code(0).says(&[
        "parent: 5 processes, 800ms heartbeat, 3.0 MiB at most",
        "workers: 5\n",
        "workers by the builder: 1",
    ]);
    setup("configuration")
        .env("FIBER_PROCESSES", "4")
        .run()
        .code(0)
        .says(&["parent: 4 processes", "workers: 4\n"]);
    let in_code = setup("configuration in code").env("FIBER_PROCESSES", "4");
    in_code
        .run()
        .code(0)
        .says(&["parent: 3 processes, 800ms heartbeat, 3.0 MiB at most", "workers: 3\n"]);
}

#[trial]
fn a_file_can_be_named() {
    let setup = Setup::new("configuration")
        .file("fiber.toml", "processes = 5")
        .file("other.toml", "processes = 2");
    setup.env("FIBER_CONFIG", "other.toml").run().code(0).says(&["parent: 2 processes"]);
    let missing = Setup::new("first error").env("FIBER_CONFIG", "missing.toml").run().code(0);
    missing.says(&["FIBER_CONFIG names `missing.toml`, which is not a file: correct or unset it"]);
}

#[trial]
fn the_log_names_the_file() {
    let ending = Setup::new("detached").file("fiber.toml", "processes = 5").run().code(0);
    let line = ending.out.lines().find(|line| line.contains("read the configuration in `"));
    assert!(line.is_some_and(|line| line.ends_with("/fiber.toml`")), "{}", ending.out);
}

#[trial]
fn children_get_their_parents_configuration() {
    let setup = Setup::new("configuration in code").file("fiber.toml", "heartbeat = '700ms'");
    setup.env("FIBER_MAX_MESSAGE", "2MiB").run().code(0).says(&[
        "child: 3 processes, 700ms heartbeat, 2.0 MiB at most",
        "grandchild: 3 processes, 700ms heartbeat, 2.0 MiB at most",
        "elsewhere: 3 processes, 700ms heartbeat, 2.0 MiB at most",
    ]);
}

/// Checks the errors of a program's pool and process under this configuration.
fn error(setup: Setup, texts: &[&str]) -> ProgramOutput {
    let ending = setup.run().code(0).says(texts);
    assert_eq!(ending.out.matches("wrong configuration: ").count(), 2, "{}", ending.out);
    ending
}

#[trial]
fn an_unknown_backend_is_an_error() {
    let texts = ["`backend` is `moon`: there is no such backend", "FIBER_BACKEND", "`local`"];
    error(Setup::new("first error").env("FIBER_BACKEND", "moon"), &texts);
    error(Setup::new("first error").file("fiber.toml", "backend = 'moon'"), &texts);
}

#[trial]
fn unknown_and_malformed_variables_are_errors() {
    for (name, value, texts) in [
        ("FIBER_PROCESES", "3", ["`FIBER_PROCESES`, which does not exist", "FIBER_PROCESSES"]),
        ("FIBER_LINK", "pigeon", ["`FIBER_LINK` to `pigeon`", "unix, nng"]),
        (
            "FIBER_OUTPUT",
            "loud",
            ["`FIBER_OUTPUT` to `loud`", "inherit, prefix, merge, file, null"],
        ),
        ("FIBER_HEARTBEAT", "soon", ["`FIBER_HEARTBEAT`", "`500ms`"]),
        ("FIBER_PROCESSES", "many", ["`FIBER_PROCESSES`", "many"]),
        ("FIBER_PROCESSES", "-1", ["`FIBER_PROCESSES`", "-1"]),
        ("FIBER_MAX_MESSAGE", "huge", ["`FIBER_MAX_MESSAGE`", "huge"]),
        ("FIBER_SIGNALS", "perhaps", ["`FIBER_SIGNALS`", "perhaps"]),
    ] {
        error(Setup::new("first error").env(name, value), &texts);
    }
    let latin_1 = OsStr::from_bytes(b"caf\xe9");
    error(Setup::new("first error").env("FIBER_LOG_DIR", latin_1), &["FIBER_LOG_DIR", "UTF-8"]);
}

#[trial]
fn contradicting_options_are_errors() {
    let heartbeat = Setup::new("first error").env("FIBER_HEARTBEAT", "9s");
    error(heartbeat, &["`heartbeat_timeout` is `10s`: it must be at least twice `heartbeat` (9s)"]);
    error(
        Setup::new("first error").env("FIBER_MAX_MESSAGE", "12"),
        &[": it must be between 4 KiB and 2 GiB"],
    );
    error(
        Setup::new("first error").env("FIBER_MAX_MESSAGE", "5GiB"),
        &[": it must be between 4 KiB and 2 GiB"],
    );
}

#[trial]
fn zero_processes_mean_one_for_each_core() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Setup::new("configuration")
        .env("FIBER_PROCESSES", "0")
        .run()
        .code(0)
        .says(&[&format!("workers: {cores}\n")]);
}
