//! Reading the configuration from code, environment and file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once, OnceLock};

use bytesize::ByteSize;
use parking_lot::Mutex;
use serde_json::Value;

use super::found::Search;
use super::section::entries;
use super::sources::{Environment, SourceValues, text};
use super::{Config, ConfigProblem, ConfigSource, LinkKind, PREFIX};
use crate::error::{Error, Result};
use crate::json::{Problem, ReadError, Unread, Values, read};
use crate::variables;

const FILE: &str = "fiber.toml";

type Override = Arc<dyn Fn(&mut Config) + Send + Sync>;

/// A program sets them before its first session.
static OVERRIDES: Mutex<Overrides> = Mutex::new(Overrides::Open(Vec::new()));
/// The parent's configuration, which a child process has from its start.
static INHERITED: OnceLock<Config> = OnceLock::new();

/// The overrides that [`Config::set`] has registered.
enum Overrides {
    /// Nothing has read the configuration yet.
    Open(Vec<Override>),
    Read(Vec<Override>),
}

impl Config {
    /// Registers `overrides`, which take precedence over environment and file. Several calls apply
    /// in their order. It has no effect in children: they use their parent's configuration.
    ///
    /// Nothing is read yet: fiber calls `overrides` when it makes the first pool, process or other
    /// object.
    ///
    /// # Panics
    /// If fiber has read the configuration already: the overrides would have no effect.
    ///
    /// # Examples
    /// ```
    /// # use fiber_core as fiber;
    /// use fiber::{Config, OutputMode};
    ///
    /// Config::set(|config| {
    ///     config.processes = 4;
    ///     config.output = OutputMode::Prefix;
    /// });
    /// assert_eq!(Config::load()?.output, OutputMode::Prefix);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn set(overrides: impl Fn(&mut Config) + Send + Sync + 'static) {
        match &mut *OVERRIDES.lock() {
            Overrides::Open(list) => list.push(Arc::new(overrides)),
            Overrides::Read(_) => panic!(
                "`Config::set` or `fiber::init_with` was called after fiber had read the \
                 configuration: call it before the first pool, process or other object of fiber is \
                 made"
            ),
        }
    }

    /// Makes this process use its parent's configuration.
    #[doc(hidden)]
    pub fn inherit(self) {
        let _ = INHERITED.set(self);
    }

    /// Returns the configuration of this process. From then on, [`Config::set`] panics.
    ///
    /// In the head process it reads the file and the environment, at each call. A child returns its
    /// parent's configuration.
    ///
    /// # Errors
    /// [`Error::Config`], which names the option, where it is set and what would be right.
    ///
    /// # Examples
    /// ```
    /// # use fiber_core as fiber;
    /// use std::time::Duration;
    ///
    /// let config = fiber::Config::load()?;
    /// assert_eq!(config.heartbeat, Duration::from_secs(1));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn load() -> Result<Config> {
        if let Some(inherited) = INHERITED.get() {
            return Ok(inherited.clone());
        }
        if !variables::are_own() {
            return Err(ConfigProblem::CallerHasFewerRights.into());
        }
        let named = std::env::var_os(variables::CONFIG).map(PathBuf::from);
        if let Some(path) = named.as_ref().filter(|path| !path.is_file()) {
            return Err(ConfigProblem::NotAFile { path: path.clone() }.into());
        }
        let file = match named {
            Some(path) => Some(path),
            None => Search::here().find(FILE)?,
        };
        static SAID: Once = Once::new();
        if let Some(path) = &file {
            SAID.call_once(|| tracing::info!("read the configuration in `{}`", path.display()));
        }
        let environment = Environment::new(PREFIX, &variables::ALL);
        let mut config = Config::read(file.as_deref(), environment)?;
        take_overrides().iter().for_each(|apply| apply(&mut config));
        config.check()?;
        Ok(config)
    }

    pub(super) fn read(file: Option<&Path>, environment: Environment) -> Result<Config> {
        let mut sources = Vec::new();
        if let Some(file) = file {
            sources.push(SourceValues::of_file(file)?);
        }
        sources.push(SourceValues::of_environment(environment)?);
        let mut options = defaults();
        sources.iter().for_each(|source| options.extend(source.options.clone()));
        let mut config: Config = read(&options).map_err(|error| problem(&sources, error))?;
        for entry in entries() {
            let of_sources =
                sources.iter().filter_map(|source| source.sections.get(entry.name)?.as_object());
            let values: Values = of_sources.flat_map(|values| values.clone()).collect();
            (entry.check)(&values).map_err(|mut error| {
                error.0.path.insert(0, entry.name.into());
                problem(&sources, error)
            })?;
            if !values.is_empty() {
                config.sections.replace(entry.name, values);
            }
        }
        Ok(config)
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.link == LinkKind::Nng && cfg!(not(feature = "nng")) {
            return Err(Error::missing_feature("the link `nng`", "nng"));
        }
        let least = self.heartbeat.saturating_mul(2);
        if self.heartbeat.is_zero() || self.heartbeat_timeout < least {
            let problem = format!(
                "it must be at least twice `heartbeat` ({:?}), which must be more than 0s",
                self.heartbeat
            );
            let timeout = format!("{:?}", self.heartbeat_timeout);
            return Err(ConfigProblem::value("heartbeat_timeout", timeout, problem).into());
        }
        if !(ByteSize::kib(4)..=ByteSize::gib(2)).contains(&self.max_message) {
            let problem = "it must be between 4 KiB and 2 GiB";
            return Err(ConfigProblem::value("max_message", self.max_message, problem).into());
        }
        // Children get the configuration as text.
        let paths = [("log_dir", &self.log_dir), ("journals", &self.journals)].into_iter();
        let more = [("spill_dir", &self.spill_dir), ("timeline", &self.timeline)].into_iter();
        let more = more.filter_map(|(option, path)| Some((option, path.as_ref()?)));
        match paths.chain(more).find(|(_, path)| path.to_str().is_none()) {
            None => Ok(()),
            Some((option, path)) => {
                Err(ConfigProblem::value(option, path.display(), "it must be UTF-8").into())
            }
        }
    }
}

fn defaults() -> Values {
    match serde_json::to_value(Config::default()) {
        Ok(Value::Object(values)) => values,
        other => unreachable!("the default configuration serializes: {other:?}"),
    }
}

/// Returns what was registered, and refuses more from now on.
fn take_overrides() -> Vec<Override> {
    let mut overrides = OVERRIDES.lock();
    let list = match &mut *overrides {
        Overrides::Open(list) => std::mem::take(list),
        Overrides::Read(list) => return list.clone(),
    };
    *overrides = Overrides::Read(list.clone());
    list
}

/// Returns the problem behind an error of reading these sources, of which later ones win.
fn problem(sources: &[SourceValues], error: ReadError) -> ConfigProblem {
    let Unread { path, problem } = *error.0;
    let (option, reason) = match problem {
        Problem::UnknownField(option) => (option, None),
        Problem::Unusable(reason) => (path.join("."), Some(reason)),
    };
    let found = sources.iter().rev().find_map(|source| source.find(&option));
    let source = found.as_ref().map_or(ConfigSource::Merged, |found| found.source.clone());
    let Some(problem) = reason else { return ConfigProblem::UnknownOption { source, option } };
    let value = found.as_ref().map(|found| text(found.value)).unwrap_or_default();
    ConfigProblem::InvalidValue { source, option, value, problem }
}
