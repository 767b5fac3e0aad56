//! The problems that a configuration can have.

use std::fmt;
use std::path::PathBuf;

use super::PREFIX;
use super::names::{alternatives, nearest};
use crate::variables;

/// A problem of the configuration, with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigProblem {
    /// `FIBER_CONFIG` names something that is not a file.
    NotAFile {
        /// The value of `FIBER_CONFIG`.
        path: PathBuf,
    },
    /// Another user could have written the file that was found above the working directory.
    Untrusted {
        /// The file.
        path: PathBuf,
        /// The owner or the mode that lets another user write it.
        why: String,
    },
    /// The program's file has a setuid or setgid bit, or capabilities, so its caller has set the
    /// environment and the working directory.
    CallerHasFewerRights,
    /// A source can't be read.
    Unreadable {
        /// The source.
        source: ConfigSource,
        /// The error, with its place in the source.
        message: String,
    },
    /// A source sets an option that does not exist.
    UnknownOption {
        /// The source.
        source: ConfigSource,
        /// The name, as in a file: without `FIBER_`, in lower case; `SECTION.KEY` in a section.
        option: String,
    },
    /// An option has a value that it can't use.
    InvalidValue {
        /// The source of the value.
        source: ConfigSource,
        /// The option's name, as in a file.
        option: String,
        /// The value.
        value: String,
        /// Why the option can't use the value, or which values it can use.
        problem: String,
    },
    /// A list has an element that the option can't use.
    InvalidElement {
        /// The option's name, as in a file.
        option: &'static str,
        /// The element.
        element: String,
        /// The form that the option can use.
        problem: String,
    },
    /// The configuration asks for a part of fiber that the program was built without.
    MissingFeature {
        /// The part.
        part: &'static str,
        /// The cargo feature that has the part.
        feature: &'static str,
    },
}

/// A source of configuration values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigSource {
    /// The environment variables that begin with `FIBER_`.
    Environment,
    /// A file.
    File(PathBuf),
    /// The program's code: [`Config::set`](crate::Config::set).
    Code,
    /// Code, environment, file and defaults together. Fiber checks some values only after it has
    /// merged these sources.
    Merged,
}

impl ConfigProblem {
    /// Makes a [`ConfigProblem::InvalidValue`] for a value of the merged configuration.
    #[doc(hidden)]
    pub fn value(
        option: &'static str,
        value: impl fmt::Display,
        problem: impl Into<String>,
    ) -> ConfigProblem {
        ConfigProblem::InvalidValue {
            source: ConfigSource::Merged,
            option: option.into(),
            value: value.to_string(),
            problem: problem.into(),
        }
    }

    /// Makes a [`ConfigProblem::InvalidElement`].
    #[doc(hidden)]
    pub fn element(
        option: &'static str,
        element: impl Into<String>,
        problem: impl Into<String>,
    ) -> ConfigProblem {
        ConfigProblem::InvalidElement { option, element: element.into(), problem: problem.into() }
    }
}

impl ConfigSource {
    /// Returns an option's name as this source spells it.
    pub(super) fn spell(&self, option: &str) -> String {
        match self {
            ConfigSource::Environment => {
                format!("{PREFIX}{}", option.replace('.', "_").to_uppercase())
            }
            ConfigSource::File(_) | ConfigSource::Code | ConfigSource::Merged => option.to_string(),
        }
    }
}

impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigSource::Environment => f.write_str("the environment"),
            ConfigSource::File(path) => write!(f, "`{}`", path.display()),
            ConfigSource::Code => f.write_str("the program"),
            ConfigSource::Merged => f.write_str("the configuration"),
        }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigProblem::NotAFile { path } => write!(
                f,
                "{} names `{}`, which is not a file: correct or unset it",
                variables::CONFIG,
                path.display()
            ),
            ConfigProblem::Untrusted { path, why } => write!(
                f,
                "`{path}` is not used, because {why}: remove it, correct the owner and the mode, or \
                 trust it with {variable}={path}",
                path = path.display(),
                variable = variables::CONFIG
            ),
            ConfigProblem::CallerHasFewerRights => f.write_str(
                "this program's file has a setuid or setgid bit, or capabilities, so its caller, who \
                 has fewer rights, would set fiber's options: start it as the user it is to run as",
            ),
            ConfigProblem::Unreadable { source, message } => {
                write!(f, "{source} can't be read: {message}")
            }
            ConfigProblem::UnknownOption { source, option } => {
                let (name, names) = (source.spell(option), alternatives(source, option));
                let meant = nearest(&name, names.iter().map(String::as_str));
                let meant = meant.map(|near| format!("did you mean `{near}`? If not, "));
                write!(
                    f,
                    "{source} sets `{name}`, which does not exist: {}remove it, or use one of: {}",
                    meant.unwrap_or_default(),
                    names.join(", ")
                )
            }
            ConfigProblem::InvalidValue {
                source: ConfigSource::Merged,
                option,
                value,
                problem,
            } => write!(f, "`{option}` is `{value}`: {problem}"),
            ConfigProblem::InvalidValue { source, option, value, problem } => {
                write!(f, "{source} sets `{}` to `{value}`: {problem}", source.spell(option))
            }
            ConfigProblem::InvalidElement { option, element, problem } => {
                write!(f, "`{option}` has `{element}`: {problem}")
            }
            ConfigProblem::MissingFeature { part, feature } => write!(
                f,
                "this program was built without {part}: add fiber's feature `{feature}` \
                 (cargo add fiber --features {feature}) and build it again"
            ),
        }
    }
}

impl std::error::Error for ConfigProblem {}
