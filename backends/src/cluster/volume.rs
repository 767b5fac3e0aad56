//! Volumes: storage that outlives sessions.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;

use bytes::Bytes;
use fiber_core::{Error, Result};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{BoxStream, LocalBoxStream};

use super::archive;
use crate::BackendError;

/// The default mount path.
const DEFAULT_PATH: &str = "/persistent";

/// A volume with its mount path: `claim`, `claim:/path` or `claim:/path:ro`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMount {
    /// The name of a Docker volume or of a persistent volume claim.
    pub claim: String,
    /// The absolute path at which processes mount it.
    pub path: String,
    /// Whether the mount is read-only.
    pub read_only: bool,
}

impl FromStr for VolumeMount {
    type Err = Error;

    fn from_str(text: &str) -> Result<VolumeMount> {
        let wrong = |problem: &str| {
            let problem = format!(
                "`{text}` {problem}: write CLAIM, CLAIM:/PATH or CLAIM:/PATH:ro, where CLAIM is \
                 the name of a volume (without a path it is mounted at {DEFAULT_PATH})"
            );
            Error::invalid("volume", problem)
        };
        let mut parts = text.split(':');
        let claim = parts.next().unwrap_or_default();
        let path = parts.next().unwrap_or(DEFAULT_PATH);
        let read_only = match parts.next() {
            None | Some("rw") => false,
            Some("ro") => true,
            Some(_) => return Err(wrong("ends in neither `ro` nor `rw`")),
        };
        if parts.next().is_some() {
            return Err(wrong("has too many parts"));
        }
        if !is_claim(claim) {
            return Err(wrong("does not begin with the name of a volume"));
        }
        if !path.starts_with('/') || path == "/" || path.split('/').any(|part| part == "..") {
            return Err(wrong("has no absolute path below `/`"));
        }
        Ok(VolumeMount { claim: claim.into(), path: path.into(), read_only })
    }
}

/// Returns whether `text` is a valid volume name.
pub(crate) fn is_claim(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

/// Makes the error of a volume that does not exist, with the names of those that do.
#[cfg(feature = "docker")]
pub(crate) fn missing(claim: &str, remedy: &str, names: &[String]) -> BackendError {
    let existing = match names {
        [] => "there are none".into(),
        names => format!("there are: {}", names.join(", ")),
    };
    refused!("there is no volume `{claim}`: {remedy}; {existing}")
}

/// The type of a file in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    /// A directory.
    Directory,
    /// A file, or anything else but a directory.
    File,
}

/// A volume that is open for reading and writing.
pub trait Volume: Debug {
    /// Returns the type of the file at `path`, or `None` if there is none.
    ///
    /// # Errors
    /// [`Error::System`].
    fn kind<'a>(&'a self, path: &'a str) -> LocalBoxFuture<'a, Result<Option<VolumeKind>>>;

    /// Returns a tar archive of the file or directory at `path`. Its entries begin with the last
    /// component of `path`.
    fn read<'a>(&'a self, path: &'a str) -> LocalBoxStream<'a, Result<Bytes>>;

    /// Unpacks a tar archive in an existing directory.
    ///
    /// # Errors
    /// [`Error::System`], also for an error of `archive`.
    fn write<'a>(
        &'a self,
        directory: &'a str,
        archive: BoxStream<'static, io::Result<Bytes>>,
    ) -> LocalBoxFuture<'a, Result<()>>;
}

/// Serves a volume from inside a pod that mounts it, where the engine can't read or write it
/// itself: `hold` blocks forever, `kind PATH` prints the file type, `read PATH` prints an archive,
/// `write DIRECTORY` unpacks one.
///
/// # Errors
/// The message for the user.
pub fn serve(words: &[&str]) -> Result<(), BackendError> {
    let explain = |error: io::Error| BackendError::of_system(&error, error.to_string());
    match words {
        ["hold"] => loop {
            std::thread::park();
        },
        ["kind", path] => {
            let kind = match fs::metadata(path) {
                Ok(found) if found.is_dir() => "directory",
                Ok(_) => "file",
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    "nothing"
                }
                Err(error) => return Err(explain(error)),
            };
            println!("{kind}");
            Ok(())
        }
        ["read", path] => archive::pack(Path::new(path), io::stdout().lock()).map_err(explain),
        ["write", directory] => {
            archive::unpack(io::stdin().lock(), Path::new(directory)).map_err(explain)
        }
        other => Err(refused!("{other:?} is no command of a volume")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(text: &str) -> Result<VolumeMount> {
        text.parse()
    }

    #[test]
    fn a_volume_is_mounted_where_it_says_or_at_persistent() {
        let plain = mount("nfs").unwrap();
        assert_eq!((&*plain.claim, &*plain.path, plain.read_only), ("nfs", "/persistent", false));
        let placed = mount("data-1:/data:ro").unwrap();
        assert_eq!((&*placed.claim, &*placed.path, placed.read_only), ("data-1", "/data", true));
    }

    #[test]
    fn an_invalid_volume_is_refused_with_the_right_form() {
        for text in [
            "",
            ":/data",
            "/data",
            "./data",
            "a b",
            "nfs:data",
            "nfs:",
            "nfs:/",
            "nfs:/a/../b",
            "nfs:/a:often",
        ] {
            let error = mount(text).unwrap_err().to_string();
            assert!(
                error.contains(&format!("`{text}`")) && error.contains("CLAIM:/PATH"),
                "{error}"
            );
        }
        assert!(mount("nfs:/a:ro:x").unwrap_err().to_string().contains("too many parts"));
    }
}
