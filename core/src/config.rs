//! Configuration: code over environment over file.

mod sources;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use bytesize::ByteSize;
use figment::Figment;
use figment::error::Kind;
use figment::providers::{Format, Serialized};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::spin;
use sources::{Environment, Toml};

const PREFIX: &str = "FIBER_";
const FILE: &str = "fiber.toml";

/// How a program's processes are run. Children receive their parent's.
///
/// Each value is taken from the code ([`Config::set`], builders), else from the environment
/// (`FIBER_` and the field's name in capitals), else from `fiber.toml` in the working directory (or
/// the file that `FIBER_CONFIG` names), else it is the default. Unknown names are errors.
///
/// Durations are written as `500ms`, `10s` or `2m`, sizes as `64KiB` or `1GiB`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// Where processes run: `local`, `docker` or `kubernetes`.
    pub backend: String,
    /// What carries messages between processes: `unix` (one host) or `nng` (TCP).
    pub link: LinkKind,
    /// Worker processes of a pool that does not say; 0 for one a processor core.
    pub processes: usize,
    /// Where the output of children goes: `inherit`, `prefix` (each line after the process's name),
    /// `file` (one a process, in `log_dir`) or `null`.
    pub output: OutputMode,
    /// The directory for `output = "file"`. It is made if it is missing.
    pub log_dir: PathBuf,
    /// How often a child gives a sign of life.
    #[serde(with = "human_duration")]
    pub heartbeat: Duration,
    /// After how much silence a child counts as dead. At least twice `heartbeat`.
    #[serde(with = "human_duration")]
    pub heartbeat_timeout: Duration,
    /// How long a child may take to connect and be ready.
    #[serde(with = "human_duration")]
    pub start_timeout: Duration,
    /// How long a child may wait until there is room for it in the cluster. This does not count as
    /// its start. A pool whose other workers are at work waits for as long as it takes.
    #[serde(with = "human_duration")]
    pub schedule_timeout: Duration,
    /// How long the image of a child may take to be fetched to where the child is to run, which
    /// does not count as its start either.
    #[serde(with = "human_duration")]
    pub pull_timeout: Duration,
    /// How long a child may take to end before it is killed.
    #[serde(with = "human_duration")]
    pub shutdown_timeout: Duration,
    /// How long a thread that waits for another process looks again before it sleeps, while nobody
    /// else wants its core: an answer that comes meanwhile finds it awake. 0 for not at all.
    #[serde(with = "human_duration")]
    pub spin: Duration,
    /// The largest message: one task's arguments, or one result. At most 2 GiB.
    pub max_message: ByteSize,
    /// How many bytes of arguments and results one call of a pool may store in the process that
    /// made it.
    pub call_buffer: ByteSize,
    /// Whether the parent ends its children on SIGINT, SIGTERM and SIGHUP before it dies of them.
    pub signals: bool,
    /// The image that containers are made from. Without one: the image of this process's own
    /// container, or one that is made of this program and the libraries that it uses.
    pub image: Option<String>,
    /// The registry to which images are pushed that fiber makes: `HOST[:PORT][/PATH]`. Without one
    /// they stay where they were made, and a cluster's nodes have to share this host's Docker
    /// engine.
    pub registry: Option<String>,
    /// The program's path in `image`, where the image's own entry point is something else.
    pub program: Option<String>,
    /// The network of containers: the name of one that exists, or `host`. Without one: that of this
    /// process's own container, or the engine's `bridge`.
    pub network: Option<String>,
    /// The address at which this process listens for its children, where the right one can't be
    /// found out.
    pub bind_host: Option<IpAddr>,
    /// The name or address under which children in containers and on other hosts reach this
    /// process, where that is another than the one at which it listens.
    pub advertised_host: Option<String>,
    /// What is mounted into containers: `SOURCE:TARGET`, or `SOURCE:TARGET:ro` to read only, where
    /// the source is an absolute path or the name of a volume: on Kubernetes, of a claim.
    #[serde(deserialize_with = "loose::list")]
    pub mounts: Vec<String>,
    /// Variables of containers: `NAME=VALUE`, or `NAME` for the value that this process has.
    #[serde(deserialize_with = "loose::list")]
    pub environment: Vec<String>,
    /// The user that containers run as, by name or number: `USER` or `USER:GROUP`. Without one: the
    /// image's; in an image that was made of this program, the user that runs it.
    #[serde(deserialize_with = "loose::text")]
    pub user: Option<String>,
    /// The working directory in containers. Without one: the image's.
    pub working_dir: Option<String>,
    /// Whether processes in containers may start containers themselves, for pools in pools: they
    /// are given the Docker engine's socket, and with it the rights of root on its host; on
    /// Kubernetes, the token of their service account.
    pub nested: bool,
    /// The namespace of pods. Without one: that of this process's own pod, or the one of the
    /// kubeconfig.
    pub namespace: Option<String>,
    /// The service account of pods. Without one: that of this process's own pod, or the namespace's
    /// default.
    pub service_account: Option<String>,
    /// The Secrets with which nodes fetch images, besides those of this process's own pod.
    #[serde(deserialize_with = "loose::list")]
    pub pull_secrets: Vec<String>,
    /// Labels that nodes need for pods to run there, besides those that this process's own pod asks
    /// for: `NAME=VALUE`.
    #[serde(deserialize_with = "loose::list")]
    pub node_selector: Vec<String>,
    /// Taints of nodes that pods put up with, besides those that this process's own pod does:
    /// `KEY`, `KEY:EFFECT`, `KEY=VALUE` or `KEY=VALUE:EFFECT`.
    #[serde(deserialize_with = "loose::list")]
    pub tolerations: Vec<String>,
    /// The graphics processors that may be given to workers, by index or id. Without a list: all
    /// that are found.
    #[serde(deserialize_with = "loose::some_list")]
    pub gpus: Option<Vec<String>>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            backend: "local".into(),
            link: LinkKind::Unix,
            processes: 0,
            output: OutputMode::Inherit,
            log_dir: "fiber-logs".into(),
            heartbeat: Duration::from_secs(1),
            heartbeat_timeout: Duration::from_secs(10),
            start_timeout: Duration::from_secs(60),
            schedule_timeout: Duration::from_secs(300),
            pull_timeout: Duration::from_secs(600),
            shutdown_timeout: Duration::from_secs(5),
            spin: spin::DEFAULT,
            max_message: ByteSize::gib(1),
            call_buffer: ByteSize::mib(64),
            signals: true,
            image: None,
            registry: None,
            program: None,
            network: None,
            bind_host: None,
            advertised_host: None,
            mounts: Vec::new(),
            environment: vec!["RUST_LOG".into(), "RUST_BACKTRACE".into()],
            user: None,
            working_dir: None,
            nested: false,
            namespace: None,
            service_account: None,
            pull_secrets: Vec::new(),
            node_selector: Vec::new(),
            tolerations: Vec::new(),
            gpus: None,
        }
    }
}

/// What carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LinkKind {
    /// A Unix stream socket: one host.
    Unix,
    /// nng over TCP.
    Nng,
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkKind::Unix => "unix",
            LinkKind::Nng => "nng",
        })
    }
}

/// Where the output of children goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OutputMode {
    /// To the parent's standard output and error, line by line.
    Inherit,
    /// The same, each line after the name of its process.
    Prefix,
    /// To a file a process: standard output and error together.
    File,
    /// Nowhere. The last lines are still told when the process fails.
    Null,
}

type Overrides = Box<dyn Fn(&mut Config) + Send + Sync>;
static OVERRIDES: OnceLock<Overrides> = OnceLock::new();
static INHERITED: OnceLock<Config> = OnceLock::new();

impl Config {
    /// Has `overrides` applied over what environment and file say. It counts once, before the first
    /// process starts.
    pub fn set(overrides: impl Fn(&mut Config) + Send + Sync + 'static) {
        let _ = OVERRIDES.set(Box::new(overrides));
    }

    /// Makes a child use its parent's configuration.
    pub fn inherit(self) {
        let _ = INHERITED.set(self);
    }

    /// The configuration of this process.
    ///
    /// # Errors
    /// [`Error::Config`], which names the value, where it stands and what would be right.
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
        let mut config = Config::read(
            &named.unwrap_or_else(|| FILE.into()),
            Environment::new(PREFIX, &["CONFIG", "NODE", "KEY"]),
        )?;
        if let Some(overrides) = OVERRIDES.get() {
            overrides(&mut config);
        }
        config.check()?;
        Ok(config)
    }

    fn read(file: &Path, environment: Environment) -> Result<Config> {
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

fn explain(error: &figment::Error) -> String {
    let key = error.path.join(".");
    let place = error.metadata.as_ref().map(|metadata| (&*metadata.name, metadata.source.as_ref()));
    let environment = matches!(place, Some((name, _)) if name.contains("environment"));
    let (name, place) = match place {
        _ if environment => {
            (format!("{PREFIX}{}", key.to_uppercase()), "the environment".to_string())
        }
        Some((_, Some(source))) => (key, format!("`{source}`")),
        _ => (key, "the configuration".to_string()),
    };
    let fields = |expected: &[&str]| expected.join(", ");
    match &error.kind {
        Kind::UnknownField(field, expected) => {
            let name = if environment {
                format!("{PREFIX}{}", field.to_uppercase())
            } else {
                field.clone()
            };
            format!(
                "{place} sets `{name}`, which does not exist: remove it, or use one of: {}",
                fields(expected)
            )
        }
        Kind::UnknownVariant(value, expected) => {
            format!("{place} sets `{name}` to `{value}`: it must be one of: {}", fields(expected))
        }
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!("{place} sets `{name}` to {found}: it must be {expected}")
        }
        kind if name.is_empty() => format!("{place} can't be read: {kind}"),
        kind => format!("{place} sets `{name}` to something that can't be used: {kind}"),
    }
}

mod human_duration {
    use std::time::Duration;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(*duration))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map_err(|problem| {
            D::Error::custom(format!("`{text}`: {problem} (write `500ms`, `10s` or `2m`)"))
        })
    }
}

/// Values that the environment can only give as one text, and texts that look like numbers there.
mod loose {
    use serde::{Deserialize, Deserializer};

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text, or a list of texts")]
    enum Loose {
        Text(String),
        Number(u64),
        List(Vec<Loose>),
    }

    impl Loose {
        fn texts(self) -> Vec<String> {
            match self {
                Loose::Text(text) => text
                    .split(',')
                    .map(|part| part.trim().to_string())
                    .filter(|part| !part.is_empty())
                    .collect(),
                Loose::Number(number) => vec![number.to_string()],
                Loose::List(list) => list.into_iter().flat_map(Loose::whole).collect(),
            }
        }

        /// An element of a list may have commas in it.
        fn whole(self) -> Vec<String> {
            match self {
                Loose::Text(text) => vec![text],
                other => other.texts(),
            }
        }
    }

    pub(super) fn text<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<String>, D::Error> {
        Ok(Option::<Loose>::deserialize(deserializer)?.map(|loose| loose.whole().join(",")))
    }

    pub(super) fn list<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<String>, D::Error> {
        Ok(Loose::deserialize(deserializer)?.texts())
    }

    pub(super) fn some_list<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<String>>, D::Error> {
        Ok(Option::<Loose>::deserialize(deserializer)?.map(Loose::texts))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn from_file(text: &str) -> Result<Config> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        // Not this process's environment, in which a link may be set for the tests.
        Config::read(file.path(), Environment::new("FIBER_NOT_SET_", &[]))
    }

    fn error_of(text: &str) -> String {
        from_file(text).unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_read_over_the_defaults() {
        let config = from_file("link = 'nng'\nheartbeat = '250ms'\nmax_message = '64MiB'").unwrap();
        assert_eq!(config.link, LinkKind::Nng);
        assert_eq!(config.heartbeat, Duration::from_millis(250));
        assert_eq!(config.max_message, ByteSize::mib(64));
        assert_eq!(config.backend, "local");
    }

    #[test]
    fn errors_name_key_value_place_and_remedy() {
        let unknown = error_of("heart_beat = '1s'");
        assert!(
            unknown.contains("`heart_beat`, which does not exist")
                && unknown.contains("heartbeat_timeout"),
            "{unknown}"
        );
        let variant = error_of("link = 'pigeon'");
        assert!(
            variant.contains("`link` to `pigeon`") && variant.contains("unix, nng"),
            "{variant}"
        );
        let duration = error_of("heartbeat = 'soon'");
        assert!(duration.contains("`heartbeat`") && duration.contains("500ms"), "{duration}");
        let number = error_of("processes = 'many'");
        assert!(number.contains("`processes`") && number.contains("many"), "{number}");
        assert!(error_of("link =").contains("can't be read"));
    }

    #[test]
    fn lists_are_written_as_lists_or_with_commas() {
        let of = |text: &str| from_file(text).unwrap();
        assert_eq!(of("mounts = ['/a:/b', '/c:/d:ro']").mounts, ["/a:/b", "/c:/d:ro"]);
        assert_eq!(of("mounts = '/a:/b, /c:/d:ro'").mounts, ["/a:/b", "/c:/d:ro"]);
        assert_eq!(of("environment = ['LIST=a,b']").environment, ["LIST=a,b"]);
        assert_eq!(of("gpus = [0, 3]").gpus.unwrap(), ["0", "3"]);
        assert_eq!(of("gpus = 2").gpus.unwrap(), ["2"]);
        assert_eq!(of("user = 1000").user.unwrap(), "1000");
        let wrong = error_of("mounts = true");
        assert!(wrong.contains("`mounts`") && wrong.contains("a list of texts"), "{wrong}");
    }

    #[test]
    fn the_configuration_travels_to_children() {
        let config =
            from_file("output = 'prefix'\nuser = 1\nbind_host = '127.0.0.1'\nmounts = '/a:/b'")
                .unwrap();
        let bytes = crate::codec::encode(&config).unwrap();
        assert_eq!(crate::codec::decode::<Config>(&bytes).unwrap(), config);
    }
}
