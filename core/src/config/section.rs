//! Sections of the configuration: each belongs to the part of a program that it configures.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Config;
use crate::json::{ReadError, Values, read};

/// The options of one section of the configuration: `[NAME]` in the file, `FIBER_NAME_KEY` in the
/// environment. [`section!`](crate::section!) implements it.
pub trait Section: Default + Serialize + DeserializeOwned {
    /// The section's name, in lower case.
    const NAME: &'static str;
    /// The purpose of the section, for its documentation.
    const ABOUT: &'static str;
    /// All keys.
    const KEYS: &'static [SectionKey];
}

/// A key of a [`Section`], as its documentation shows it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SectionKey {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Its meaning. Line breaks don't count.
    pub documentation: &'static str,
}

impl SectionKey {
    /// Makes a key.
    pub const fn new(name: &'static str, documentation: &'static str) -> SectionKey {
        SectionKey { name, documentation }
    }
}

/// Defines a section of the configuration: a struct with its options and their defaults, which is a
/// [`Section`].
///
/// The doc comments become the section's documentation. The struct derives serde's traits, so the
/// crate that defines it depends on `serde`.
///
/// # Examples
/// ```
/// fiber_core::section! {
///     /// Options of the launcher.
///     pub struct LauncherSection in "launcher" {
///         /// The command that starts a process.
///         command: String = "nice".into(),
///         /// How nice it is.
///         level: u32 = 10,
///     }
/// }
///
/// let mut config = fiber_core::Config::default();
/// config.edit(|launcher: &mut LauncherSection| launcher.level = 19);
/// assert_eq!(config.section::<LauncherSection>().level, 19);
/// assert_eq!(config.section::<LauncherSection>().command, "nice");
/// ```
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $visibility:vis struct $section:ident in $name:literal {
            $(
                $(#[doc = $documentation:literal])+
                $(#[serde($($serde:tt)*)])?
                $key:ident: $type:ty = $default:expr,
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[non_exhaustive]
        $visibility struct $section {
            $(
                $(#[doc = $documentation])+
                $(#[serde($($serde)*)])?
                pub $key: $type,
            )+
        }

        impl Default for $section {
            fn default() -> $section {
                $section { $($key: $default,)+ }
            }
        }

        impl $crate::Section for $section {
            const NAME: &'static str = $name;
            const ABOUT: &'static str = concat!($($about, "\n"),+);
            const KEYS: &'static [$crate::SectionKey] = &[$(
                $crate::SectionKey::new(stringify!($key), concat!($($documentation, "\n"),+)),
            )+];
        }
    };
}

/// A section that sources of the configuration may have.
#[derive(Clone, Copy, Debug)]
pub struct SectionEntry {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) keys: &'static [SectionKey],
    is_forwarded: bool,
    pub(super) defaults: fn() -> Values,
    /// Checks whether the section can be read from values.
    pub(super) check: fn(&Values) -> Result<(), ReadError>,
}

impl SectionEntry {
    /// Makes the entry of a section.
    pub const fn of<T: Section>() -> SectionEntry {
        SectionEntry {
            name: T::NAME,
            about: T::ABOUT,
            keys: T::KEYS,
            is_forwarded: true,
            defaults: || values(&T::default()),
            check: |values| read::<T>(values).map(drop),
        }
    }

    /// Makes the entry of a section whose part this build lacks. Its keys are not known here, so none
    /// is checked.
    pub const fn missing(name: &'static str) -> SectionEntry {
        SectionEntry {
            name,
            about: "",
            keys: &[],
            is_forwarded: false,
            defaults: Values::new,
            check: |_| Ok(()),
        }
    }

    /// Makes `fiber run` keep the section from the program that it starts: it says where that runs.
    #[must_use]
    pub const fn not_forwarded(mut self) -> SectionEntry {
        self.is_forwarded = false;
        self
    }

    /// Returns an option's name as errors and files spell it: `NAME.KEY`.
    pub(super) fn option(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    /// Returns an option's name in the environment, in lower case and without `FIBER_`.
    pub(super) fn variable(&self, key: &str) -> String {
        format!("{}_{key}", self.name)
    }
}

/// Returns the sections of one crate. Each crate that has some submits such a table.
#[doc(hidden)]
#[derive(Debug)]
pub struct SectionTable(pub fn() -> Vec<SectionEntry>);

inventory::collect!(SectionTable);

/// Returns all sections of this program.
pub(super) fn entries() -> impl Iterator<Item = SectionEntry> {
    let mut entries = Vec::new();
    inventory::iter::<SectionTable>().for_each(|table| entries.append(&mut (table.0)()));
    entries.into_iter()
}

/// The values of sections: those that differ from the defaults, or that a source sets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sections(Values);

impl Sections {
    pub(super) fn get(&self, section: &str, key: &str) -> Option<&Value> {
        self.0.get(section)?.get(key)
    }

    pub(super) fn replace(&mut self, section: &str, values: Values) {
        self.0.insert(section.into(), values.into());
    }
}

impl Config {
    /// Returns the options of a section.
    ///
    /// # Examples
    /// ```
    /// fiber_core::section! {
    ///     /// Options of the launcher.
    ///     struct LauncherSection in "launcher" {
    ///         /// How nice processes are.
    ///         level: u32 = 10,
    ///     }
    /// }
    ///
    /// let config = fiber_core::Config::default();
    /// assert_eq!(config.section::<LauncherSection>().level, 10);
    /// ```
    pub fn section<T: Section>(&self) -> T {
        let values = self.sections.0.get(T::NAME).and_then(Value::as_object);
        // Loading the configuration has checked them, and `edit` takes them from a `T`.
        values.and_then(|values| read(values).ok()).unwrap_or_default()
    }

    /// Changes options of a section.
    ///
    /// # Panics
    /// If a value can't be written in a file, such as a path that is not UTF-8.
    ///
    /// # Examples
    /// ```
    /// fiber_core::section! {
    ///     /// Options of the launcher.
    ///     struct LauncherSection in "launcher" {
    ///         /// How nice processes are.
    ///         level: u32 = 10,
    ///     }
    /// }
    ///
    /// let mut config = fiber_core::Config::default();
    /// config.edit(|launcher: &mut LauncherSection| launcher.level = 19);
    /// assert_eq!(config.section::<LauncherSection>().level, 19);
    /// ```
    pub fn edit<T: Section>(&mut self, change: impl FnOnce(&mut T)) {
        let mut section = self.section::<T>();
        change(&mut section);
        let defaults = values(&T::default());
        let is_set = |key: &String| self.sections.get(T::NAME, key).is_some();
        let mut values = values(&section);
        values.retain(|key, value| is_set(key) || defaults.get(key) != Some(value));
        self.sections.replace(T::NAME, values);
    }

    /// Returns whether `fiber run` forwards a section to the program that it starts.
    #[doc(hidden)]
    pub fn is_forwarded(section: &str) -> bool {
        entries().any(|entry| entry.name == section && entry.is_forwarded)
    }
}

/// Returns a section's values by their keys.
fn values<T: Section>(section: &T) -> Values {
    match serde_json::to_value(section) {
        Ok(Value::Object(values)) => values,
        Ok(_) => panic!("the section `{}` is no struct", T::NAME),
        Err(error) => panic!("the section `{}` can't be written: {error}", T::NAME),
    }
}
