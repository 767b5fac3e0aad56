//! The parts of the command line that backends bring along: their names and their options.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, RangedI64ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use fiber_backends::cluster::{
    BackendOption, OptionKind, OptionValue, OptionValues, SessionBackend, backends, missing,
};

/// Returns the parser of a backend's name. One that this build lacks is an error later, which says
/// how to get it.
pub(super) fn names() -> PossibleValuesParser {
    let value = |backend: &SessionBackend| PossibleValue::new(backend.name).help(backend.about);
    let lacks = missing().map(|name| PossibleValue::new(name).hide(true));
    backends().map(value).chain(lacks).collect::<Vec<_>>().into()
}

/// The help of `fiber run` for all backends.
const RUN: &str = "\
Starts a program in a container, pod or batch job, from which it starts its workers.

Without --image, fiber builds the image from the Dockerfile in this directory if there is one, and \
else from the program CMD and its libraries: that needs neither a base image nor a registry. If a \
registry is configured (`registry`, FIBER_REGISTRY), fiber pushes the image there.

The program gets its configuration from this directory's fiber.toml and this environment. With the \
backend `local`, it simply runs.";
/// The end of the help of `fiber run`.
const RUN_CODES: &str = "Exit codes: with --attach that of the program; 125 if it could not be \
started, 126 if CMD can't be executed, 127 if there is no such program, 128 and the signal's number \
if this command was interrupted.";

/// Returns the description of `fiber run`, with the paragraphs of backends.
pub(super) fn run_about() -> String {
    let own = backends().map(|backend| backend.run_about).filter(|about| !about.is_empty());
    std::iter::once(RUN).chain(own).collect::<Vec<_>>().join("\n\n")
}

/// Returns the examples of `fiber run`, and its exit codes.
pub(super) fn run_examples() -> String {
    let mut examples = String::from("Examples:\n");
    for SessionBackend { name, run_examples, .. } in backends() {
        for example in *run_examples {
            examples += &format!("  fiber run --backend {name} {example}\n");
        }
    }
    examples + "\n" + RUN_CODES
}

/// The options of `fiber run` that not every backend has.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunOptions(pub(crate) OptionValues);

/// The options that say in which part of a backend sessions run.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlaceOptions(pub(crate) OptionValues);

impl RunOptions {
    /// Returns why these options can't be given for a backend, if it lacks one of them.
    pub(crate) fn problem(&self, backend: &SessionBackend) -> Option<String> {
        problem(&self.0, backend.name, |backend| backend.run_options)
    }
}

impl PlaceOptions {
    /// Changes a configuration by these options.
    pub(crate) fn apply(&self, config: &mut fiber_core::Config) {
        backends().for_each(|backend| (backend.place)(&self.0, config));
    }

    /// Returns why these options can't be given for a backend, if it lacks one of them.
    pub(crate) fn problem(&self, backend: &str) -> Option<String> {
        problem(&self.0, backend, |backend| backend.place_options)
    }
}

/// The options that a backend has.
type OptionsOf = fn(&SessionBackend) -> &'static [BackendOption];

fn problem(given: &OptionValues, backend: &str, of: OptionsOf) -> Option<String> {
    let wrong = given.names().find_map(|name| {
        let owners = owners(name, of);
        owners.iter().all(|owner| owner.name != backend).then_some((name, owners))
    });
    let (name, owners) = wrong?;
    let titles = titles(&owners);
    let remedy = owners.first().map_or("", |owner| owner.name);
    Some(format!(
        "--{name} is for {titles}, but the backend is `{backend}`: add `--backend {remedy}`, or \
         leave it out"
    ))
}

/// Returns the backends that have an option of this name.
fn owners(name: &str, of: OptionsOf) -> Vec<&'static SessionBackend> {
    backends().filter(|backend| of(backend).iter().any(|option| option.name == name)).collect()
}

fn titles(owners: &[&SessionBackend]) -> String {
    owners.iter().map(|owner| owner.title).collect::<Vec<_>>().join(" and ")
}

/// Returns the options of all backends. Several backends may have one of the same name: then the
/// first one describes it.
fn options(of: OptionsOf) -> Vec<&'static BackendOption> {
    let mut options: Vec<&'static BackendOption> = Vec::new();
    for option in backends().flat_map(of) {
        if !options.iter().any(|other| other.name == option.name) {
            options.push(option);
        }
    }
    options
}

fn argument(option: &'static BackendOption) -> Arg {
    let argument = Arg::new(option.name)
        .long(option.name)
        .help(option.help)
        .conflicts_with_all(option.conflicts);
    let with_value = |argument: Arg| argument.value_name(option.value);
    match option.kind {
        OptionKind::Flag => argument.action(ArgAction::SetTrue),
        OptionKind::Text => with_value(argument),
        OptionKind::Verbatim => {
            with_value(argument).action(ArgAction::Append).allow_hyphen_values(true)
        }
        OptionKind::Count => {
            with_value(argument).value_parser(RangedI64ValueParser::<u32>::new().range(1..))
        }
        OptionKind::Time => with_value(argument).value_parser(humantime::parse_duration),
    }
}

fn values(matches: &ArgMatches, of: OptionsOf) -> OptionValues {
    let mut values = OptionValues::default();
    for option in options(of) {
        let name = option.name;
        match option.kind {
            OptionKind::Flag if matches.get_flag(name) => values.add(name, OptionValue::Flag),
            OptionKind::Flag => {}
            OptionKind::Text | OptionKind::Verbatim => {
                for text in matches.get_many::<String>(name).into_iter().flatten() {
                    values.add(name, OptionValue::Text(text.clone()));
                }
            }
            OptionKind::Count => {
                if let Some(count) = matches.get_one::<u32>(name) {
                    values.add(name, OptionValue::Count(*count));
                }
            }
            OptionKind::Time => {
                if let Some(time) = matches.get_one::<Duration>(name) {
                    values.add(name, OptionValue::Time(*time));
                }
            }
        }
    }
    values
}

/// Parses the options of backends as a part of a derived command line.
macro_rules! parse_options {
    ($type:ident, $of:expr, $argument:expr) => {
        impl Args for $type {
            fn augment_args(command: Command) -> Command {
                command.args(options($of).into_iter().map($argument))
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }

        impl FromArgMatches for $type {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
                Ok($type(values(matches, $of)))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
                *self = $type(values(matches, $of));
                Ok(())
            }
        }
    };
}

parse_options!(PlaceOptions, |backend| backend.place_options, argument);
parse_options!(RunOptions, |backend| backend.run_options, |option| {
    let owners = owners(option.name, |backend| backend.run_options);
    argument(option).help_heading(format!("{} only", titles(&owners)))
});

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<OptionValues, Error> {
        let shared = ["attach", "json"].map(Arg::new);
        let command = RunOptions::augment_args(Command::new("run").args(shared));
        let matches = command.try_get_matches_from([&["run"], words].concat())?;
        Ok(RunOptions::from_arg_matches(&matches)?.0)
    }

    #[test]
    fn options_are_read_by_their_kinds() {
        let given =
            parsed(&["--nodes", "4", "--time=2h", "--slurm=-a", "--slurm", "-b", "--dry-run"]);
        let given = given.unwrap();
        assert_eq!(given.count("nodes"), Some(4));
        assert_eq!(given.time("time"), Some(Duration::from_secs(7200)));
        assert_eq!(given.texts("slurm").collect::<Vec<_>>(), ["-a", "-b"]);
        assert!(given.has("dry-run") && !given.has("partition"));
        for wrong in [&["--nodes", "0"], &["--nodes", "many"], &["--time", "soon"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(parsed(&[]).unwrap(), OptionValues::default());
    }

    #[test]
    fn an_option_of_another_backend_is_refused() {
        let backend = |name: &str| backends().find(|backend| backend.name == name).unwrap();
        let given = RunOptions(parsed(&["--qos", "high"]).unwrap());
        assert_eq!(given.problem(backend("slurm")), None);
        let problem = given.problem(backend("docker")).unwrap();
        assert!(
            problem.starts_with("--qos is for Slurm, but the backend is `docker`"),
            "{problem}"
        );
        assert!(problem.contains("--backend slurm"), "{problem}");
    }
}
