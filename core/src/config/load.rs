//! Reading the configuration from code, environment and file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytesize::ByteSize;
use figment::error::Kind;
use figment::providers::{Format, Serialized};
use figment::value::Value;
use figment::{Figment, Metadata, Source};
use parking_lot::Mutex;

use super::earlier::{CodeChanges, EarlierNames};
use super::section::entries;
use super::sources::{ENVIRONMENT, Environment, SourceValues, Toml};
use super::{Config, ConfigProblem, ConfigSource, LinkKind, PREFIX};
use crate::error::{Error, Result};
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
    pub fn inherit(mut self) {
        self.earlier = EarlierNames::of(&self.sections);
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
        let named = std::env::var_os(variables::CONFIG).map(PathBuf::from);
        if let Some(path) = named.as_ref().filter(|path| !path.is_file()) {
            return Err(ConfigProblem::NotAFile { path: path.clone() }.into());
        }
        let file = named.unwrap_or_else(|| FILE.into());
        let mut config = Config::read(&file, Environment::new(PREFIX, &variables::ALL))?;
        config.change(take_overrides().iter().map(|apply| |config: &mut Config| apply(config)))?;
        config.check()?;
        Ok(config)
    }

    pub(super) fn read(file: &Path, environment: Environment) -> Result<Config> {
        let mut options = Figment::from(Serialized::defaults(Config::default()));
        let mut sections = Figment::new();
        for source in [SourceValues::read(Toml::file(file))?, SourceValues::read(environment)?] {
            options = options.merge(source.options);
            sections = sections.merge(source.sections);
        }
        let mut config: Config = options.extract().map_err(|error| problem(&options, &error))?;
        for entry in entries() {
            let Ok(Value::Dict(_, values)) = sections.find_value(entry.name) else { continue };
            (entry.check)(&sections).map_err(|mut error| {
                error.path.insert(0, entry.name.into());
                problem(&sections, &error)
            })?;
            config.sections.replace(entry.name, values);
        }
        config.earlier = EarlierNames::of(&config.sections);
        Ok(config)
    }

    /// Lets code change the configuration, which has been read from the other sources.
    pub(super) fn change(
        &mut self,
        changes: impl Iterator<Item = impl Fn(&mut Config)>,
    ) -> Result<()> {
        let mut so_far = CodeChanges::default();
        for change in changes {
            so_far.apply(self, change)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.link == LinkKind::Nng && cfg!(not(feature = "nng")) {
            return Err(Error::missing_feature("the link `nng`", "nng"));
        }
        if self.heartbeat.is_zero() || self.heartbeat_timeout < 2 * self.heartbeat {
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
        Ok(())
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

impl ConfigSource {
    /// Returns the source with this description for figment.
    pub(super) fn of(metadata: &Metadata) -> ConfigSource {
        match &metadata.source {
            _ if metadata.name == ENVIRONMENT => ConfigSource::Environment,
            Some(Source::File(path)) => ConfigSource::File(path.clone()),
            _ => ConfigSource::Merged,
        }
    }
}

/// Returns the problem behind an error of figment.
fn problem(sources: &Figment, error: &figment::Error) -> ConfigProblem {
    let option = error.path.join(".");
    let source = error.metadata.as_ref().map_or(ConfigSource::Merged, ConfigSource::of);
    let problem = match &error.kind {
        Kind::UnknownField(field, _) => {
            return ConfigProblem::UnknownOption { source, option: field.clone() };
        }
        kind if option.is_empty() => {
            return ConfigProblem::Unreadable { source, message: kind.to_string() };
        }
        Kind::UnknownVariant(_, expected) => format!("it must be one of: {}", expected.join(", ")),
        Kind::InvalidType(found, expected) => format!("it must be {expected}, and is {found}"),
        Kind::InvalidValue(_, expected) => format!("it must be {expected}"),
        kind => kind.to_string(),
    };
    let value = sources.find_value(&option).as_ref().map(text).unwrap_or_default();
    ConfigProblem::InvalidValue { source, option, value, problem }
}

/// Returns a value as a file or the environment spells it.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(_, text) => text.clone(),
        Value::Bool(_, flag) => flag.to_string(),
        Value::Num(_, number) => match (number.to_u128(), number.to_i128(), number.to_f64()) {
            (Some(number), ..) => number.to_string(),
            (_, Some(number), _) => number.to_string(),
            (.., number) => number.map(|number| number.to_string()).unwrap_or_default(),
        },
        Value::Array(_, values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        other => format!("{other:?}"),
    }
}
