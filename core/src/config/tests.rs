mod found;
mod sections;

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use super::sources::Environment;
use super::*;
use crate::error::{Error, Result};

fn from_file(text: &str) -> Result<Config> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    // Not this process's environment, in which a link may be set for the tests.
    Config::read(Some(file.path()), Environment::new("FIBER_NOT_SET_", &[]))
}

fn error_of(text: &str) -> String {
    from_file(text).unwrap_err().to_string()
}

#[test]
fn a_malformed_file_is_an_error_with_its_place_and_problem() {
    for (text, problem) in [
        ("processes =", "unexpected eof encountered at line 1 column 12"),
        ("backend = 'local'\nheartbeat = 1s", "invalid number at line 2 column 13"),
        ("\nlink = nng", "did you mean to use a quoted string? at line 2 column 8"),
        ("output = \"prefix", "unterminated string at line 1 column 10"),
        ("processes = 1\nprocesses = 2", "duplicate key: `processes` at line 2 column 1"),
        ("[ssh]\n\n[ssh]", "redefinition of table `ssh` for key `ssh` at line 3 column 1"),
        ("[ssh]\nhosts = ['a'\n", "expected a right bracket, found eof at line 3 column 1"),
        ("output = 2026-01-01", "invalid number at line 1 column 10"),
    ] {
        let error = error_of(text);
        let (_, found) = error.split_once("` can't be read: ").unwrap();
        assert!(found.ends_with(problem), "{text:?}: {error}");
    }
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
            && unknown.contains("did you mean `heartbeat`?")
            && unknown.contains("heartbeat_timeout"),
        "{unknown}"
    );
    let variant = error_of("link = 'pigeon'");
    assert!(variant.contains("`link` to `pigeon`") && variant.contains("unix, nng"), "{variant}");
    let duration = error_of("heartbeat = 'soon'");
    assert!(duration.contains("`heartbeat`") && duration.contains("500ms"), "{duration}");
    let duration = error_of("heartbeat = 5");
    let words = "it must be a duration such as `500ms`, `10s` or `2m`, and is 5";
    assert!(duration.ends_with(words), "{duration}");
    let number = error_of("processes = 'many'");
    assert!(number.contains("`processes`") && number.contains("many"), "{number}");
    for amount in ["call_buffer = 'lots'", "call_buffer = true"] {
        let amount = error_of(amount);
        assert!(amount.contains("it must be an amount such as `64MiB`"), "{amount}");
    }
    assert!(error_of("link =").contains("can't be read"));
}

#[test]
fn an_error_holds_source_key_and_value() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"processes = '3'").unwrap();
    let source = ConfigSource::File(file.path().to_path_buf());
    let error =
        Config::read(Some(file.path()), Environment::new("FIBER_NOT_SET_", &[])).unwrap_err();
    let Error::Config(ConfigProblem::InvalidValue { source: found, option, value, .. }) = &error
    else {
        panic!("{error:#?}");
    };
    assert_eq!((found, option.as_str(), value.as_str()), (&source, "processes", "3"));
    assert!(
        error
            .to_string()
            .ends_with("to `3`: it must be a whole number of 0 or more, and is the text \"3\""),
        "{error}"
    );
}

#[test]
fn a_heartbeat_has_any_time_but_none() {
    let check = |heartbeat, heartbeat_timeout| {
        Config { heartbeat, heartbeat_timeout, ..Config::default() }.check()
    };
    check(Duration::MAX, Duration::MAX).unwrap();
    for (heartbeat, timeout) in [
        (Duration::ZERO, Duration::MAX),
        (Duration::MAX, Duration::from_secs(10)),
        (Duration::from_secs(6), Duration::from_secs(10)),
    ] {
        let error = check(heartbeat, timeout).unwrap_err().to_string();
        assert!(error.contains("`heartbeat_timeout`") && error.contains("twice"), "{error}");
    }
}

#[test]
fn paths_are_utf_8() {
    let latin_1 = || PathBuf::from(OsStr::from_bytes(b"caf\xe9"));
    let log_dir = Config { log_dir: latin_1(), ..Config::default() };
    let timeline = Config { timeline: Some(latin_1()), ..Config::default() };
    for (config, option) in [(log_dir, "`log_dir`"), (timeline, "`timeline`")] {
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains(option) && error.contains("it must be UTF-8"), "{error}");
    }
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
fn an_address_has_a_port() {
    let of = |text: &str| from_file(text).unwrap().metrics.map(|address| address.to_string());
    assert_eq!(of("metrics = '127.0.0.1:9464'").unwrap(), "127.0.0.1:9464");
    assert_eq!(of("metrics = '[::1]:0'").unwrap(), "[::1]:0");
    assert_eq!(of(""), None);
    let number = error_of("metrics = 9464");
    assert!(number.contains("`127.0.0.1:9464`"));
    for wrong in ["'localhost:9464'", "'127.0.0.1'", "'127.0.0.1:99999'", "true"] {
        let error = error_of(&format!("metrics = {wrong}"));
        assert!(error.contains("`metrics`") && error.contains("`127.0.0.1:9464`"), "{error}");
    }
}

#[test]
fn the_configuration_travels_to_children() {
    let config =
        from_file("output = 'prefix'\nuser = 1\nbind_host = '127.0.0.1'\nmetrics = '[::1]:80'")
            .unwrap();
    let json = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config);
}
