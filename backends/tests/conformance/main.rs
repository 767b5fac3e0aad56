//! The promises of all backends, tested for each.
//!
//! `local` is always tested, other backends if `TEST_BACKENDS` names them
//! (`TEST_BACKENDS=docker,…`), and then they have to be available. Add a new backend to
//! [`BACKENDS`]. `TEST_REGISTRY` names a registry for nodes that do not share this host's Docker
//! engine.
//!
//! The jobs run this program again, with a command in its arguments.

mod job;
mod promises;
mod registry;

use std::process::ExitCode;

use fiber_core::Config;
use libtest_mimic::{Arguments, Trial};

/// A backend under test: its name, and its configuration.
struct Subject {
    name: &'static str,
    configure: fn(&mut Config),
    /// Whether it is available anywhere.
    always: bool,
    /// Whether its jobs run from images.
    images: bool,
}

const BACKENDS: &[Subject] = &[
    Subject { name: "local", configure: |_| {}, always: true, images: false },
    Subject { name: "docker", configure: |_| {}, always: false, images: true },
    Subject { name: "kubernetes", configure: registry_of_nodes, always: false, images: true },
];

fn registry_of_nodes(config: &mut Config) {
    config.registry = std::env::var("TEST_REGISTRY").ok().filter(|registry| !registry.is_empty());
}

fn main() -> ExitCode {
    fiber_backends::run_if_guard();
    if let Some(code) = job::run_if_asked() {
        return code;
    }
    let wanted = std::env::var("TEST_BACKENDS").unwrap_or_default();
    let wanted: Vec<&str> =
        wanted.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if let Some(unknown) =
        wanted.iter().find(|name| BACKENDS.iter().all(|subject| subject.name != **name))
    {
        eprintln!("error: TEST_BACKENDS names `{unknown}`, which is no backend");
        return ExitCode::FAILURE;
    }
    let mut trials = Vec::new();
    for Subject { name, configure, always, images } in BACKENDS {
        let asked = *always || wanted.contains(name);
        if !asked {
            eprintln!(
                "SKIPPED: the promises of the backend `{name}`; TEST_BACKENDS={name} enables them"
            );
        }
        let of_images = if *images { promises::OF_IMAGES } else { &[] };
        for (promise, keep) in promises::ALL.iter().chain(of_images) {
            let test = move || {
                let mut config = Config::default();
                config.backend = name.to_string();
                configure(&mut config);
                promises::check(&config, *keep);
                Ok(())
            };
            trials.push(Trial::test(format!("{name}::{promise}"), test).with_ignored_flag(!asked));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
