//! Options of the command that belong to one backend, as data.

use std::time::Duration;

/// An option of the command that a backend brings along.
#[derive(Clone, Copy, Debug)]
pub struct BackendOption {
    /// Its name: `partition` for `--partition`.
    pub name: &'static str,
    /// The kind of its value, and how often it may be given.
    pub kind: OptionKind,
    /// The name of its value in the help, such as `COUNT`; empty for a flag.
    pub value: &'static str,
    /// Its effect, for the help.
    pub help: &'static str,
    /// The names of options that can't be given with it.
    pub conflicts: &'static [&'static str],
}

impl BackendOption {
    /// Returns an option that can be given with all others.
    pub const fn new(
        name: &'static str,
        kind: OptionKind,
        value: &'static str,
        help: &'static str,
    ) -> BackendOption {
        BackendOption { name, kind, value, help, conflicts: &[] }
    }
}

/// The kind of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// It has no value.
    Flag,
    /// Its value is any text.
    Text,
    /// Its value is any text, which may begin with a hyphen. It can be given several times.
    Verbatim,
    /// Its value is a number from 1.
    Count,
    /// Its value is a time, such as `2h`.
    Time,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// The value of a flag that is given.
    Flag,
    /// The value of [`OptionKind::Text`] and [`OptionKind::Verbatim`].
    Text(String),
    /// The value of [`OptionKind::Count`].
    Count(u32),
    /// The value of [`OptionKind::Time`].
    Time(Duration),
}

/// The options of backends that a command line has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionValues(Vec<(&'static str, OptionValue)>);

impl OptionValues {
    /// Adds an option, after those that were added before.
    pub fn add(&mut self, name: &'static str, value: OptionValue) {
        self.0.push((name, value));
    }

    /// Returns the names of the options, in the order in which they were added.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    /// Returns whether the option is given.
    pub fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// Returns the value of an option of [`OptionKind::Text`].
    pub fn text(&self, name: &str) -> Option<String> {
        self.texts(name).next()
    }

    /// Returns the values of an option of [`OptionKind::Verbatim`].
    pub fn texts(&self, name: &str) -> impl Iterator<Item = String> {
        self.values(name).filter_map(|value| match value {
            OptionValue::Text(text) => Some(text.clone()),
            _ => None,
        })
    }

    /// Returns the value of an option of [`OptionKind::Count`].
    pub fn count(&self, name: &str) -> Option<u32> {
        self.values(name).find_map(|value| match value {
            OptionValue::Count(count) => Some(*count),
            _ => None,
        })
    }

    /// Returns the value of an option of [`OptionKind::Time`].
    pub fn time(&self, name: &str) -> Option<Duration> {
        self.values(name).find_map(|value| match value {
            OptionValue::Time(time) => Some(*time),
            _ => None,
        })
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &OptionValue> {
        self.0.iter().filter(move |(other, _)| *other == name).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_has_the_values_that_were_given() {
        let mut values = OptionValues::default();
        values.add("nodes", OptionValue::Count(4));
        for text in ["--a", "-b"] {
            values.add("slurm", OptionValue::Text(text.into()));
        }
        assert_eq!((values.count("nodes"), values.text("nodes")), (Some(4), None));
        assert_eq!(values.texts("slurm").collect::<Vec<_>>(), ["--a", "-b"]);
        assert!(values.has("slurm") && !values.has("time"));
        assert_eq!(values.names().collect::<Vec<_>>(), ["nodes", "slurm", "slurm"]);
    }
}
