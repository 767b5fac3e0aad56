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

/// Where a volume is mounted that does not say.
const PERSISTENT: &str = "/persistent";

/// A volume, and where it is to be seen: `claim`, `claim:/path` or `claim:/path:ro`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMount {
    /// The name of a Docker volume, or of a persistent volume claim.
    pub claim: String,
    /// The absolute path at which processes see it.
    pub path: String,
    /// Whether they may only read it.
    pub read_only: bool,
}

impl FromStr for VolumeMount {
    type Err = Error;

    fn from_str(text: &str) -> Result<VolumeMount> {
        let wrong = |problem: &str| Error::Invalid {
            what: "volume",
            problem: format!(
                "`{text}` {problem}: write CLAIM, CLAIM:/PATH or CLAIM:/PATH:ro, where CLAIM is the name of a volume \
                 (without a path it is mounted at {PERSISTENT})"
            ),
        };
        let mut parts = text.split(':');
        let claim = parts.next().unwrap_or_default();
        let path = parts.next().unwrap_or(PERSISTENT);
        let read_only = match parts.next() {
            None | Some("rw") => false,
            Some("ro") => true,
            Some(_) => return Err(wrong("ends in neither `ro` nor `rw`")),
        };
        if parts.next().is_some() {
            return Err(wrong("has too many parts"));
        }
        if !is_claim(claim) {
            return Err(wrong("begins with no name of a volume"));
        }
        if !path.starts_with('/') || path == "/" || path.split('/').any(|part| part == "..") {
            return Err(wrong("has no absolute path below `/`"));
        }
        Ok(VolumeMount { claim: claim.into(), path: path.into(), read_only })
    }
}

/// Whether a volume may be called like this.
pub(crate) fn is_claim(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

/// What is at a path of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    /// A directory.
    Directory,
    /// A file, or anything else that is no directory.
    File,
}

/// A volume that can be read and written from here.
pub trait Volume: Debug {
    /// What is at `path`, if anything is.
    ///
    /// # Errors
    /// [`Error::System`].
    fn kind<'a>(&'a self, path: &'a str) -> LocalBoxFuture<'a, Result<Option<VolumeKind>>>;

    /// What is at `path`, as a tar archive whose first name is the last one of `path`.
    fn read<'a>(&'a self, path: &'a str) -> LocalBoxStream<'a, Result<Bytes>>;

    /// Unpacks a tar archive in a directory that exists.
    ///
    /// # Errors
    /// [`Error::System`], and what fails in `archive`.
    fn write<'a>(
        &'a self,
        directory: &'a str,
        archive: BoxStream<'static, io::Result<Bytes>>,
    ) -> LocalBoxFuture<'a, Result<()>>;
}

/// What a program does in a container that has a volume mounted, where the engine can't read or
/// write it by itself: `hold` stays until it is ended, `kind PATH` prints what is there, `read
/// PATH` prints an archive, `write DIRECTORY` unpacks one.
///
/// # Errors
/// What can't be done, in words.
pub fn serve(words: &[&str]) -> Result<(), String> {
    let explain = |error: io::Error| error.to_string();
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
        other => Err(format!("{other:?} is nothing that can be asked of a volume")),
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
    fn what_is_wrong_with_a_volume_is_said() {
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
