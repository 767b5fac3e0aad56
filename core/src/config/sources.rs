//! Sources of configuration values: a TOML file and environment variables.
//!
//! [`SourceValues`] puts options into their sections, by whichever name a source has them.
//!
//! figment has both too. Its parsers of TOML and of variables bring twelve crates, and a third of
//! fiber's own build time.

use std::ffi::OsString;

use figment::providers::Format;
use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};
use serde::de::DeserializeOwned;

use super::section::{SectionEntry, entries};
use super::{ConfigProblem, ConfigSource};

/// The name of the environment in errors of figment.
pub(super) const ENVIRONMENT: &str = "environment";

/// The values of one source.
pub(super) struct SourceValues {
    pub(super) options: TaggedValues,
    /// The values of sections, by the section's name.
    pub(super) sections: TaggedValues,
}

/// Values for figment, with their source for its errors.
pub(super) struct TaggedValues {
    metadata: Metadata,
    values: Dict,
}

impl SourceValues {
    /// Reads a source.
    ///
    /// # Errors
    /// It can't be read, has an option by two names, or a section has an unknown key.
    pub(super) fn read(provider: impl Provider) -> Result<SourceValues, ConfigProblem> {
        let metadata = provider.metadata();
        let source = ConfigSource::of(&metadata);
        let values = provider.data().map_err(|error| ConfigProblem::Unreadable {
            source: source.clone(),
            message: error.kind.to_string(),
        })?;
        let mut options: Dict = values.into_values().flatten().collect();
        let mut sections = Dict::new();
        for entry in entries() {
            let values = take_section(&mut options, &entry, &source)?;
            if !values.is_empty() {
                sections.insert(entry.name.into(), values.into());
            }
        }
        // The name of a field that no source has.
        if options.contains_key("sections") {
            return Err(ConfigProblem::UnknownOption { source, option: "sections".into() });
        }
        let tagged = |values| TaggedValues { metadata: metadata.clone(), values };
        Ok(SourceValues { options: tagged(options), sections: tagged(sections) })
    }
}

/// Takes a section's values out of `options`.
fn take_section(
    options: &mut Dict,
    entry: &SectionEntry,
    source: &ConfigSource,
) -> Result<Dict, ConfigProblem> {
    let is_environment = *source == ConfigSource::Environment;
    let mut section = match options.remove(entry.name) {
        None => Dict::new(),
        Some(Value::Dict(_, values)) => values,
        Some(_) if is_environment => {
            let (source, option) = (source.clone(), entry.name.into());
            return Err(ConfigProblem::UnknownOption { source, option });
        }
        Some(value) => {
            return Err(ConfigProblem::InvalidValue {
                source: source.clone(),
                option: entry.name.into(),
                value: super::load::text(&value),
                problem: format!("it is a section: write `[{}]`, and its keys below", entry.name),
            });
        }
    };
    if let Some(unknown) =
        section.keys().find(|name| entry.keys.iter().all(|key| key.name != **name))
    {
        let (source, option) = (source.clone(), entry.option(unknown));
        return Err(ConfigProblem::UnknownOption { source, option });
    }
    for key in entry.keys {
        let variable = is_environment.then(|| options.remove(&entry.variable(key.name))).flatten();
        section.extend(variable.map(|value| (key.name.into(), value)));
        let Some(earlier) = key.earlier else { continue };
        let Some(value) = options.remove(earlier) else { continue };
        if section.insert(key.name.into(), value).is_some() {
            let (source, option) = (source.clone(), entry.option(key.name));
            return Err(ConfigProblem::SetTwice { source, option, earlier: earlier.into() });
        }
    }
    Ok(section)
}

impl Provider for TaggedValues {
    fn metadata(&self) -> Metadata {
        self.metadata.clone()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

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
pub(super) struct Environment(Dict);

impl Environment {
    /// Reads this process's variables that begin with `prefix`, except those in `ignored`.
    pub(super) fn new(prefix: &str, ignored: &[&str]) -> Environment {
        let lossy = |text: &OsString| text.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(name, text)| (lossy(&name), lossy(&text)));
        let variables = variables.filter(|(name, _)| !ignored.contains(&&*name.to_uppercase()));
        Environment::of(prefix, variables)
    }

    /// Takes the variables that begin with `prefix`.
    pub(super) fn of(
        prefix: &str,
        variables: impl Iterator<Item = (String, impl AsRef<str>)>,
    ) -> Environment {
        let values = variables.filter_map(|(name, text)| {
            let name = name.to_uppercase();
            Some((name.strip_prefix(prefix)?.to_lowercase(), value(text.as_ref())))
        });
        Environment(values.collect())
    }
}

impl Provider for Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named(ENVIRONMENT)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.0.clone()))
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
