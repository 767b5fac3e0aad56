//! What every backend promises, asked of each of them.
//!
//! `local` is asked always, others when `TEST_BACKENDS` names them (`TEST_BACKENDS=docker,…`): then
//! they have to be there. A new backend is added to [`BACKENDS`]. Nodes that do not share this
//! host's Docker engine get images from the registry that `TEST_REGISTRY` names.
//!
//! The jobs are this program again, called with what they are to do.

mod job;
mod promises;
mod registry;

use std::process::ExitCode;

use fiber_core::Config;
use libtest_mimic::{Arguments, Trial};

/// A backend by its name in the configuration, and what else the configuration has to say for its
/// tests.
struct Subject {
    name: &'static str,
    configure: fn(&mut Config),
    /// Whether it can be asked anywhere.
    always: bool,
    /// Whether its jobs are made from images.
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
                "SKIPPED: the promises of the backend `{name}`; TEST_BACKENDS={name} asks for them"
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
