//! Sources of configuration values: a TOML file and environment variables.
//!
//! [`SourceValues`] puts options into their sections, by whichever name a source has them.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::section::{SectionEntry, entries};
use super::{Config, ConfigProblem, ConfigSource};
use crate::json::Values;

static SKIPS_UNKNOWN_SECTIONS: AtomicBool = AtomicBool::new(false);

impl Config {
    /// Makes this process skip sections of files that it does not know: the command reads the files
    /// of programs, which may have backends of their own.
    #[doc(hidden)]
    pub fn skip_unknown_sections() {
        SKIPS_UNKNOWN_SECTIONS.store(true, Ordering::Relaxed);
    }
}

/// The values of one source.
pub(super) struct SourceValues {
    source: ConfigSource,
    pub(super) options: Values,
    /// The values of sections, by the section's name.
    pub(super) sections: Values,
}

/// A value in its source.
pub(super) struct Found<'a> {
    pub(super) source: &'a ConfigSource,
    pub(super) value: &'a Value,
}

impl SourceValues {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// It can't be read, or a section has an unknown key.
    pub(super) fn of_file(path: &Path) -> Result<SourceValues, ConfigProblem> {
        let source = ConfigSource::File(path.to_path_buf());
        let unreadable = |message| ConfigProblem::Unreadable { source: source.clone(), message };
        let text = fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        let options = basic_toml::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        SourceValues::new(source, options)
    }

    /// Takes the values of variables.
    ///
    /// # Errors
    /// A section has an unknown key, or a value is no UTF-8: it would name another file.
    pub(super) fn of_environment(
        Environment(values): Environment,
    ) -> Result<SourceValues, ConfigProblem> {
        let source = ConfigSource::Environment;
        let is_no_text = |value: &Value| text(value).contains(char::REPLACEMENT_CHARACTER);
        if let Some((option, value)) = values.iter().find(|(_, value)| is_no_text(value)) {
            let (option, value) = (option.clone(), text(value));
            let problem = "it must be UTF-8".into();
            return Err(ConfigProblem::InvalidValue { source, option, value, problem });
        }
        SourceValues::new(source, values)
    }

    fn new(source: ConfigSource, mut options: Values) -> Result<SourceValues, ConfigProblem> {
        let mut sections = Values::new();
        for entry in entries() {
            let values = take_section(&mut options, &entry, &source)?;
            if !values.is_empty() {
                sections.insert(entry.name.into(), values.into());
            }
        }
        if SKIPS_UNKNOWN_SECTIONS.load(Ordering::Relaxed) {
            options.retain(|_, value| !value.is_object());
        }
        // The name of a field that no source has.
        if options.contains_key("sections") {
            return Err(ConfigProblem::UnknownOption { source, option: "sections".into() });
        }
        Ok(SourceValues { source, options, sections })
    }

    /// Returns an option, `KEY` or `SECTION.KEY`, if the source has it.
    pub(super) fn find(&self, option: &str) -> Option<Found<'_>> {
        let value = match option.split_once('.') {
            Some((section, key)) => self.sections.get(section)?.get(key),
            None => self.options.get(option),
        };
        Some(Found { source: &self.source, value: value? })
    }
}

/// Returns a value as a file or the environment spells it.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Takes a section's values out of `options`.
fn take_section(
    options: &mut Values,
    entry: &SectionEntry,
    source: &ConfigSource,
) -> Result<Values, ConfigProblem> {
    let is_environment = *source == ConfigSource::Environment;
    if entry.keys.is_empty() {
        let own = entry.variable("");
        options.retain(|name, value| match is_environment {
            true => !name.starts_with(&own),
            false => name != entry.name || !value.is_object(),
        });
        return Ok(Values::new());
    }
    let mut section = match options.remove(entry.name) {
        None => Values::new(),
        Some(Value::Object(values)) => values,
        Some(_) if is_environment => {
            let (source, option) = (source.clone(), entry.name.into());
            return Err(ConfigProblem::UnknownOption { source, option });
        }
        Some(value) => {
            return Err(ConfigProblem::InvalidValue {
                source: source.clone(),
                option: entry.name.into(),
                value: text(&value),
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
    }
    Ok(section)
}

/// The environment variables that begin with a prefix.
pub(super) struct Environment(Values);

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
            let name = name.strip_prefix(prefix)?;
            (!is_of_a_service(name, text.as_ref()))
                .then(|| (name.to_lowercase(), value(text.as_ref())))
        });
        Environment(values.collect())
    }
}

/// Returns whether Kubernetes has made this variable for a Service whose name begins like the
/// prefix, such as `fiber`: with its address and ports.
fn is_of_a_service(name: &str, text: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_protocol = |word: &str| matches!(word, "TCP" | "UDP" | "SCTP");
    let is_url = || ["tcp://", "udp://", "sctp://"].iter().any(|scheme| text.starts_with(scheme));
    words.windows(2).any(|pair| matches!(pair, ["SERVICE", "HOST" | "PORT"]))
        || words
            .windows(3)
            .any(|three| three[0] == "PORT" && is_number(three[1]) && is_protocol(three[2]))
        || words.last() == Some(&"PORT") && is_url()
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
    use serde_json::Value;

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
