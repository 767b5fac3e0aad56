//! Options in sections.

use super::*;

crate::section! {
    /// Options of the backend `ssh`, as a stand-in for those in fiber-backends.
    struct TestSection in "ssh" {
        /// The machines.
        #[serde(deserialize_with = "lenient::list")]
        hosts: Vec<String> = Vec::new(),
        /// Where copies of programs are kept.
        #[serde(deserialize_with = "lenient::path")]
        cache: Option<PathBuf> = None,
        /// The size limit.
        #[serde(with = "values::size")]
        cache_size: ByteSize = ByteSize::gib(2),
        /// How long it waits.
        #[serde(with = "duration")]
        patience: Duration = Duration::from_secs(10),
    }
}

inventory::submit! {
    SectionTable(|| vec![SectionEntry::of::<TestSection>(), SectionEntry::missing("absent")])
}

/// Reads variables of the environment, which begin with `prefix` in place of `FIBER_`.
fn from_variables(prefix: &'static str, variables: &[(&str, &str)]) -> Result<Config> {
    let named = variables.iter().map(|(name, value)| (format!("{prefix}{name}"), *value));
    Config::read(None, Environment::of(prefix, named))
}

fn section(config: &Config) -> TestSection {
    config.section()
}

fn hosts(config: Result<Config>) -> Vec<String> {
    section(&config.unwrap()).hosts
}

#[test]
fn a_section_is_read_from_the_file() {
    let text = "link = 'nng'\n[ssh]\nhosts = ['a', 'b']\npatience = '3s'\ncache_size = '1MiB'";
    let config = from_file(text).unwrap();
    let ssh = section(&config);
    assert_eq!((ssh.hosts, ssh.patience), (vec!["a".into(), "b".into()], Duration::from_secs(3)));
    assert_eq!((ssh.cache_size, ssh.cache), (ByteSize::mib(1), None));
    assert_eq!(config.link, LinkKind::Nng);
    assert_eq!(hosts(from_file("ssh.hosts = 'a,b'")), ["a", "b"]);
}

#[test]
fn a_section_is_read_from_the_environment() {
    let set = [("SSH_HOSTS", "a, b"), ("SSH_PATIENCE", "1m"), ("PROCESSES", "3")];
    let config = from_variables("FIBER_", &set).unwrap();
    let ssh = section(&config);
    assert_eq!((ssh.hosts, ssh.patience), (vec!["a".into(), "b".into()], Duration::from_secs(60)));
    assert_eq!(config.processes, 3);
}

#[test]
fn the_environment_overrides_the_file() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"[ssh]\nhosts = 'a'\ncache = '/y'").unwrap();
    let variables = [("FIBER_SSH_HOSTS".to_string(), "b"), ("FIBER_SSH_CACHE".to_string(), "/z")];
    let environment = Environment::of("FIBER_", variables.into_iter());
    let ssh = section(&Config::read(Some(file.path()), environment).unwrap());
    assert_eq!((ssh.hosts, ssh.cache), (vec!["b".into()], Some("/z".into())));
}

/// Kubernetes makes them for a Service named `fiber`, and for one named `fiber-x`.
#[test]
fn variables_of_services_are_no_options() {
    let url = "tcp://10.0.0.7:9464";
    let variables = [
        ("SERVICE_HOST", "10.0.0.7"),
        ("SERVICE_PORT", "9464"),
        ("SERVICE_PORT_METRICS", "9464"),
        ("PORT", url),
        ("PORT_9464_TCP", url),
        ("PORT_9464_TCP_PROTO", "tcp"),
        ("X_SERVICE_HOST", "10.0.0.7"),
        ("X_PORT", url),
    ];
    from_variables("FIBER_", &variables).expect("they are not fiber's");
    assert!(from_variables("FIBER_", &[("PORT", "9464")]).is_err(), "it is of the user");
}

#[test]
fn an_unknown_key_of_a_section_is_an_error_that_names_the_near_one_and_all() {
    let error = error_of("[ssh]\nhost = 'a'");
    for part in ["sets `ssh.host`, which", "did you mean `ssh.hosts`?", "ssh.cache, ssh.cache_size"]
    {
        assert!(error.contains(part), "{error}");
    }
    assert!(!error.contains("heartbeat"), "{error}");
    let error = from_variables("FIBER_", &[("SSH_HOST", "a")]).unwrap_err().to_string();
    assert!(
        error.contains("sets `FIBER_SSH_HOST`") && error.contains("mean `FIBER_SSH_HOSTS`?"),
        "{error}"
    );
    assert!(error_of("[shh]\nhosts = 'a'").contains("sets `shh`, which does not exist"));
    assert!(error_of("[sections.ssh]\nhosts = 'a'").contains("`sections`, which does not exist"));
}

#[test]
fn a_section_of_a_part_that_is_missing_is_skipped() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"processes = 3\n[absent]\nanything = [1]\n").unwrap();
    let variables = [("FIBER_ABSENT_OTHER", "x"), ("FIBER_SSH_HOSTS", "a")].into_iter();
    let variables = variables.map(|(name, value)| (name.to_string(), value));
    let config = Config::read(Some(file.path()), Environment::of("FIBER_", variables)).unwrap();
    assert_eq!((config.processes, section(&config).hosts), (3, vec!["a".to_string()]));
    let wrong = error_of("absent = 1");
    assert!(wrong.contains("`absent`, which does not exist"), "{wrong}");
}

#[test]
fn wrong_values_in_sections_name_the_key() {
    let error = error_of("[ssh]\npatience = 'soon'");
    assert!(error.contains("sets `ssh.patience` to `soon`") && error.contains("500ms"), "{error}");
    let error = from_variables("FIBER_", &[("SSH_PATIENCE", "soon")]).unwrap_err().to_string();
    assert!(error.contains("the environment sets `FIBER_SSH_PATIENCE` to `soon`"), "{error}");
    let error = error_of("ssh.cache_size = 'much'");
    assert!(error.contains("sets `ssh.cache_size` to `much`"), "{error}");
    assert!(error_of("ssh_cache = '/x'").contains("did you mean `ssh.cache`?"));
    let error = error_of("ssh = 3");
    assert!(error.contains("sets `ssh` to `3`") && error.contains("write `[ssh]`"), "{error}");
    let error = from_variables("FIBER_", &[("SSH", "a")]).unwrap_err().to_string();
    assert!(error.contains("sets `FIBER_SSH`, which does not exist"), "{error}");
}

#[test]
fn sections_travel_to_children() {
    let config =
        from_file("[ssh]\nhosts = ['a']\ncache_size = 1_000_001\npatience = '7s'").unwrap();
    let json = serde_json::to_string(&config).unwrap();
    let child: Config = serde_json::from_str(&json).unwrap();
    assert_eq!(section(&child), section(&config));
    assert_eq!(section(&child).cache_size, ByteSize(1_000_001));
}

#[test]
fn a_section_may_get_its_defaults_back() {
    let mut config = from_file("[ssh]\ncache = '/x'").unwrap();
    config.edit(|ssh: &mut TestSection| ssh.cache = None);
    assert_eq!(section(&config), TestSection::default());
    let json = serde_json::to_string(&config).unwrap();
    let child: Config = serde_json::from_str(&json).unwrap();
    assert_eq!(section(&child), TestSection::default());
}

#[test]
fn the_page_has_sections() {
    let page = Config::page();
    for row in [
        "## `[ssh]`\n",
        "| `hosts` | `FIBER_SSH_HOSTS` | | The machines. |",
        "| `cache` | `FIBER_SSH_CACHE` | | Where copies of programs are kept. |",
        "| `patience` | `FIBER_SSH_PATIENCE` | `10s` | How long it waits. |",
    ] {
        assert!(page.contains(row), "{page}");
    }
}
