//! Where and how a program records.

use std::path::{Path, PathBuf};

use fiber_core::{Config, Error, Result};

/// Where calls record the outcomes of their tasks, and how.
///
/// A program that is started again does not run the tasks whose outcomes its journal has. A text is
/// the journal of that name: `pool.durable("sweep-7")`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    place: Place,
    pub(crate) version: String,
    pub(crate) call: Option<String>,
    pub(crate) keeps_failures: bool,
    pub(crate) is_synced: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Name(String),
    Path(PathBuf),
}

impl Journal {
    /// Makes the journal of this name: a folder in the folder `journals` of the configuration
    /// (`fiber-journals` in the working directory).
    ///
    /// # Examples
    /// ```
    /// # use fiber_journal as fiber;
    /// let config = fiber_core::Config::default();
    /// let journal = fiber::Journal::new("sweep-7");
    /// assert_eq!(journal.path(&config)?, config.journals.join("sweep-7"));
    /// # Ok::<(), fiber_core::Error>(())
    /// ```
    pub fn new(name: impl Into<String>) -> Journal {
        Journal::of(Place::Name(name.into()))
    }

    /// Makes the journal in the folder at `path`, which is created if it is missing.
    ///
    /// # Examples
    /// ```
    /// # use fiber_journal as fiber;
    /// let journal = fiber::Journal::at("/data/sweep");
    /// let path = journal.path(&fiber_core::Config::default())?;
    /// assert_eq!(path, std::path::Path::new("/data/sweep"));
    /// # Ok::<(), fiber_core::Error>(())
    /// ```
    pub fn at(path: impl Into<PathBuf>) -> Journal {
        Journal::of(Place::Path(path.into()))
    }

    fn of(place: Place) -> Journal {
        let version = String::new();
        Journal { place, version, call: None, keeps_failures: false, is_synced: true }
    }

    /// Sets the version of the task's function. Outcomes of other versions are not used: change it
    /// when the function gives other results than before.
    ///
    /// # Examples
    /// ```
    /// # use fiber_journal as fiber;
    /// let before = fiber::Journal::new("sweep");
    /// assert_ne!(before.clone().version("2"), before); // its outcomes are not used
    /// # Ok::<(), fiber_core::Error>(())
    /// ```
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Journal {
        Journal { version: version.into(), ..self }
    }

    /// Names the call. Without a name, a call is identified by its function and by how many calls
    /// of this function the program has made with this journal before.
    ///
    /// # Examples
    /// ```
    /// # use fiber_journal as fiber;
    /// // The calls of one function keep their outcomes, in whatever order the program makes them.
    /// let training = fiber::Journal::new("sweep").call("training");
    /// let validation = fiber::Journal::new("sweep").call("validation");
    /// assert_ne!(training, validation);
    /// # Ok::<(), fiber_core::Error>(())
    /// ```
    #[must_use]
    pub fn call(self, name: impl Into<String>) -> Journal {
        Journal { call: Some(name.into()), ..self }
    }

    /// Delivers recorded failures of tasks again. Otherwise a task that has failed runs again when
    /// the program is started again.
    ///
    /// # Examples
    /// ```
    /// # use fiber_journal as fiber;
    /// let journal = fiber::Journal::new("downloads").keep_failures();
    /// # assert_ne!(journal, fiber::Journal::new("downloads"));
    /// # Ok::<(), fiber_core::Error>(())
    /// ```
    #[must_use]
    pub fn keep_failures(self) -> Journal {
        Journal { keeps_failures: true, ..self }
    }

    /// Delivers outcomes before they are on the disk. It is faster where the disk is slow. If the
    /// machine crashes or loses power, the outcomes of the last seconds may be lost, and their
    /// tasks run again. Nothing is lost if only the program ends, however it ends.
    ///
    /// # Examples
    /// ```
    /// # use fiber_journal as fiber;
    /// let journal = fiber::Journal::new("many-small-tasks").without_sync();
    /// # assert_ne!(journal, fiber::Journal::new("many-small-tasks"));
    /// # Ok::<(), fiber_core::Error>(())
    /// ```
    #[must_use]
    pub fn without_sync(self) -> Journal {
        Journal { is_synced: false, ..self }
    }

    /// Returns the version that was set, or an empty text.
    #[doc(hidden)]
    pub fn version_name(&self) -> &str {
        &self.version
    }

    /// Returns the name that the call got.
    #[doc(hidden)]
    pub fn call_name(&self) -> Option<&str> {
        self.call.as_deref()
    }

    /// Returns whether recorded failures are delivered again.
    #[doc(hidden)]
    pub fn keeps_failures(&self) -> bool {
        self.keeps_failures
    }

    /// Returns the journal's folder.
    ///
    /// # Errors
    /// [`fiber_core::Error::Invalid`] for a name that can't be the name of a folder.
    ///
    /// # Examples
    /// ```
    /// # use fiber_journal as fiber;
    /// let config = fiber_core::Config::default();
    /// assert!(fiber::Journal::new("a/b").path(&config).is_err()); // a path is for `at`
    /// ```
    pub fn path(&self, config: &Config) -> Result<PathBuf> {
        match &self.place {
            Place::Path(path) => Ok(path.clone()),
            Place::Name(name) => match problem(name) {
                None => Ok(Path::new(&config.journals).join(name)),
                Some(problem) => Err(Error::invalid(
                    "Journal::new",
                    format!(
                        "`{name}` {problem}: the name is that of a folder in `{}`; \
                         `Journal::at(path)` takes a path",
                        config.journals.display()
                    ),
                )),
            },
        }
    }
}

/// Returns why a name can't be the name of a folder.
fn problem(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("is empty"),
        "." | ".." => Some("is the name of a folder that exists everywhere"),
        name if name.contains('/') => Some("has a `/`"),
        name if name.contains('\0') => Some("has a zero byte"),
        name if name.len() > 255 => Some("is longer than 255 bytes"),
        _ => None,
    }
}

impl From<&str> for Journal {
    fn from(name: &str) -> Journal {
        Journal::new(name)
    }
}

impl From<String> for Journal {
    fn from(name: String) -> Journal {
        Journal::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_folder_in_the_configured_one() {
        let mut config = Config::default();
        config.journals = "/data/journals".into();
        let path = |journal: Journal| journal.path(&config);
        assert_eq!(
            path("sweep-7".into()).expect("it is a name"),
            Path::new("/data/journals/sweep-7")
        );
        assert_eq!(path(Journal::at("a/b")).expect("it is a path"), Path::new("a/b"));
        for name in ["", ".", "..", "a/b", "/tmp", "../a", "a\0", &"a".repeat(256)] {
            let error = path(name.into()).expect_err(name);
            let is_invalid = matches!(error, Error::Invalid { method: "Journal::new", .. });
            assert!(is_invalid && error.to_string().contains("Journal::at"), "{error}");
        }
    }
}
