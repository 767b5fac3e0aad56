//! Reading the configuration from code, environment and file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytesize::ByteSize;
use figment::Figment;
use figment::error::Kind;
use figment::providers::{Format, Serialized};
use parking_lot::Mutex;

use super::sources::{Environment, Toml};
use super::{Config, LinkKind, PREFIX, SECTIONS};
use crate::error::{Error, Result};

const FILE: &str = "fiber.toml";
/// Variables with the prefix that are not options.
const OTHER_VARIABLES: [&str; 3] = ["CONFIG", "PARENT", "KEY"];

type Override = Arc<dyn Fn(&mut Config) + Send + Sync>;

static OVERRIDES: Mutex<Overrides> = Mutex::new(Overrides::Open(Vec::new()));
static INHERITED: OnceLock<Config> = OnceLock::new();

/// What [`Config::set`] has registered.
enum Overrides {
    /// Nothing has read the configuration yet.
    Open(Vec<Override>),
    Read(Vec<Override>),
}

impl Config {
    /// Registers `overrides`, which count over environment and file. Several calls apply in their
    /// order. In children it has no effect: they use their parent's configuration.
    ///
    /// # Panics
    /// If fiber has read the configuration already, which it does for the first pool, process or
    /// other object of fiber: the overrides would have no effect.
    #[track_caller]
    pub fn set(overrides: impl Fn(&mut Config) + Send + Sync + 'static) {
        match &mut *OVERRIDES.lock() {
            Overrides::Open(list) => list.push(Arc::new(overrides)),
            Overrides::Read(_) => panic!(
                "`Config::set` or `fiber::init_with` was called after fiber had read the configuration: call it before the \
                 first pool, process or other object of fiber is made"
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
    /// # Errors
    /// [`Error::Config`], which names the option, where it is set and what would be right.
    pub fn load() -> Result<Config> {
        if let Some(inherited) = INHERITED.get() {
            return Ok(inherited.clone());
        }
        let named = std::env::var_os("FIBER_CONFIG").map(PathBuf::from);
        if let Some(path) = named.as_ref().filter(|path| !path.is_file()) {
            return Err(Error::Config(format!(
                "FIBER_CONFIG names `{}`, which is not a file: correct or unset it",
                path.display()
            )));
        }
        let file = named.unwrap_or_else(|| FILE.into());
        let mut config = Config::read(&file, Environment::new(PREFIX, &OTHER_VARIABLES))?;
        take_overrides().iter().for_each(|apply| apply(&mut config));
        config.check()?;
        Ok(config)
    }

    pub(super) fn read(file: &Path, environment: Environment) -> Result<Config> {
        Figment::from(Serialized::defaults(Config::default()))
            .merge(Toml::file(file))
            .merge(environment)
            .extract()
            .map_err(|error| Error::Config(explain(&error)))
    }

    fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::Config(text));
        if self.link == LinkKind::Nng && cfg!(not(feature = "nng")) {
            return Err(Error::missing_feature("the link `nng`", "nng"));
        }
        if self.heartbeat.is_zero() || self.heartbeat_timeout < 2 * self.heartbeat {
            return wrong(format!(
                "heartbeat_timeout ({:?}) must be at least twice heartbeat ({:?}), and heartbeat more than 0",
                self.heartbeat_timeout, self.heartbeat
            ));
        }
        if !(ByteSize::kib(4)..=ByteSize::gib(2)).contains(&self.max_message) {
            return wrong(format!(
                "max_message must be between 4 KiB and 2 GiB, and is {}",
                self.max_message
            ));
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

/// Words an error: which option, set where, to what, and what would be right.
fn explain(error: &figment::Error) -> String {
    let key = error.path.join(".");
    let origin = error.metadata.as_ref();
    let in_environment = origin.is_some_and(|origin| origin.name.contains("environment"));
    let spelled = |name: &str| {
        if in_environment { format!("{PREFIX}{}", name.to_uppercase()) } else { name.to_string() }
    };
    let (name, place) = match origin.map(|origin| origin.source.as_ref()) {
        _ if in_environment => (spelled(&key), "the environment".to_string()),
        Some(Some(source)) => (key, format!("`{source}`")),
        _ => (key, "the configuration".to_string()),
    };
    match &error.kind {
        Kind::UnknownField(field, _) => {
            let options = SECTIONS.iter().flat_map(|(_, options)| *options);
            let names: Vec<_> = options.map(|option| spelled(option.name)).collect();
            format!(
                "{place} sets `{}`, which does not exist: remove it, or use one of: {}",
                spelled(field),
                names.join(", ")
            )
        }
        Kind::UnknownVariant(value, expected) => {
            format!(
                "{place} sets `{name}` to `{value}`: it must be one of: {}",
                expected.join(", ")
            )
        }
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!("{place} sets `{name}` to {found}: it must be {expected}")
        }
        kind if name.is_empty() => format!("{place} can't be read: {kind}"),
        kind => format!("{place} sets `{name}` to something that can't be used: {kind}"),
    }
}
