//! The promises of all backends, tested for each.
//!
//! `local` is always tested, other backends if `TEST_BACKENDS` names them
//! (`TEST_BACKENDS=docker,…`), and then they have to be available. Add a new backend to
//! [`BACKENDS`]. `TEST_REGISTRY` names a registry for nodes that do not share this host's Docker
//! engine, and `TEST_SSH_CONFIG` ssh's configuration for the machines `a`, `b` and `c`.
//!
//! The jobs run this program again, with a command in its arguments.

use std::process::{Command, ExitCode};

use fiber_backends::SshSection;
use fiber_conformance as conformance;
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
    /// Whether it limits the resources of its jobs. Otherwise their hosts do.
    limits: bool,
}

/// A backend that is available anywhere, and all of whose jobs run on this host.
const LOCAL: Subject =
    Subject { name: "local", configure: |_| {}, always: true, images: false, limits: true };
/// A backend that `TEST_BACKENDS` has to name.
const ENGINE: Subject = Subject { always: false, ..LOCAL };

const BACKENDS: &[Subject] = &[
    LOCAL,
    Subject { name: "docker", images: true, ..ENGINE },
    Subject { name: "kubernetes", configure: registry_of_nodes, images: true, ..ENGINE },
    Subject { name: "slurm", ..ENGINE },
    Subject { name: "ssh", configure: machines, limits: false, ..ENGINE },
];

fn machines(config: &mut Config) {
    config.edit(|ssh: &mut SshSection| {
        ssh.hosts = ["a", "b", "c"].map(String::from).to_vec();
        ssh.config = std::env::var_os("TEST_SSH_CONFIG").map(Into::into);
    });
}

fn registry_of_nodes(config: &mut Config) {
    config.registry = std::env::var("TEST_REGISTRY").ok().filter(|registry| !registry.is_empty());
}

fn main() -> ExitCode {
    fiber_backends::run_if_helper();
    if let Some(code) = conformance::run_if_job() {
        std::process::exit(code);
    }
    let wanted = std::env::var("TEST_BACKENDS").unwrap_or_default();
    let wanted: Vec<&str> = wanted.split(',').map(str::trim).collect();
    let arguments = Arguments::from_args();
    let is_outside = std::env::var_os("SLURM_JOB_ID").is_none();
    if wanted.contains(&"slurm") && is_outside && runs(&arguments, "slurm::") {
        return in_an_allocation(&wanted);
    }
    let mut trials = Vec::new();
    for Subject { name, configure, always, images, limits } in BACKENDS {
        let asked = *always || wanted.contains(name);
        if !asked {
            eprintln!(
                "SKIPPED: the promises of the backend `{name}`; TEST_BACKENDS={name} enables them"
            );
        }
        let of_images = if *images { conformance::OF_IMAGES } else { &[] };
        let of_limits = if *limits { conformance::OF_LIMITS } else { &[] };
        for promise in conformance::ALL.iter().chain(of_images).chain(of_limits) {
            let test = move || {
                let mut config = Config::default();
                config.backend = name.to_string();
                configure(&mut config);
                promise.check(&config);
                Ok(())
            };
            trials.push(
                Trial::test(format!("{name}::{}", promise.name()), test).with_ignored_flag(!asked),
            );
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Returns whether this process is to run tests whose names begin with this. nextest starts it for
/// their list, and once for each test.
fn runs(arguments: &Arguments, prefix: &str) -> bool {
    let is_excluded = |name: &String| arguments.exact && !name.starts_with(prefix);
    !arguments.list && !arguments.filter.as_ref().is_some_and(is_excluded)
}

/// Runs this program again in an allocation of Slurm, whose steps are the jobs of `slurm`.
fn in_an_allocation(wanted: &[&str]) -> ExitCode {
    let executable = std::env::current_exe().expect("it has a path");
    let salloc = Command::new("salloc")
        .args(["--quiet", "--nodes=2", "--cpus-per-task=2", "--gres=gpu:2", "--time=5"])
        .arg(executable)
        .args(std::env::args_os().skip(1))
        .env("TEST_BACKENDS", wanted.join(","))
        .status();
    let code = salloc.expect("`make slurm-up` installs Slurm").code();
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
