//! Sources of configuration values: a TOML file and environment variables.
//!
//! figment has both too. Its parsers of TOML and of variables bring twelve crates, and a third of
//! fiber's own build time.

use figment::providers::Format;
use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};
use serde::de::DeserializeOwned;

/// The name of the environment in errors of figment.
pub(super) const ENVIRONMENT: &str = "environment";

/// The format of `fiber.toml`.
pub(super) struct Toml;

impl Format for Toml {
    type Error = toml::de::Error;

    const NAME: &'static str = "TOML";

    fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, toml::de::Error> {
        toml::from_str(text)
    }
}

/// The environment variables that begin with a prefix.
pub(super) struct Environment {
    prefix: &'static str,
    ignored: &'static [&'static str],
}

impl Environment {
    /// Reads the variables that begin with `prefix`, except those in `ignored`.
    pub(super) fn new(prefix: &'static str, ignored: &'static [&'static str]) -> Environment {
        Environment { prefix, ignored }
    }
}

impl Provider for Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named(ENVIRONMENT)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let values = std::env::vars_os().filter_map(|(name, text)| {
            let name = name.to_string_lossy().to_uppercase();
            let key = name.strip_prefix(self.prefix)?;
            if self.ignored.contains(&name.as_str()) {
                return None;
            }
            Some((key.to_lowercase(), value(&text.to_string_lossy())))
        });
        Ok(Profile::Default.collect(values.collect()))
    }
}

/// Parses a text as `true`, `false`, a number, a `"quoted"` text or a `[list, of, them]`. Any other
/// text stays a text.
fn value(text: &str) -> Value {
    let text = text.trim();
    if let Some(list) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
        return items.map(value).collect::<Vec<_>>().into();
    }
    if let Some(quoted) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        return quoted.into();
    }
    match text {
        "true" => true.into(),
        "false" => false.into(),
        _ => {
            let number = text.parse::<u64>().map(Value::from).ok();
            let number = number.or_else(|| text.parse::<i64>().map(Value::from).ok());
            let float = || text.contains('.').then(|| text.parse::<f64>().ok()).flatten();
            number.or_else(|| float().map(Value::from)).unwrap_or_else(|| text.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::value;
    use figment::value::Value;

    #[test]
    fn a_variable_is_read_as_the_type_that_it_looks_like() {
        let list = |items: &[Value]| Value::from(items.to_vec());
        for (text, expected) in [
            ("true", true.into()),
            (" 7 ", 7_u64.into()),
            ("-7", (-7_i64).into()),
            ("0.5", 0.5.into()),
            ("10s", "10s".into()),
            ("1.2.3.4", "1.2.3.4".into()),
            ("nan", "nan".into()),
            ("\"7\"", "7".into()),
            ("/a:/b, /c:/d", "/a:/b, /c:/d".into()),
            ("[0, gpu, ]", list(&[0_u64.into(), "gpu".into()])),
            ("", "".into()),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }
}
