//! Looks for the configuration file above the working directory, and refuses one that another user
//! could have written.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::ConfigProblem;

/// The mode bit of a directory in which only owners may replace files, as `/tmp`.
const STICKY: u32 = 0o1000;

/// Where to look, and for whom.
pub(super) struct Search {
    pub(super) from: PathBuf,
    /// The last directory to look in.
    pub(super) home: Option<PathBuf>,
    /// The user of this process.
    pub(super) user: u32,
}

impl Search {
    /// Looks from the working directory, for this process's user.
    pub(super) fn here() -> Search {
        Search {
            from: std::env::current_dir().unwrap_or_default(),
            home: std::env::home_dir().and_then(|home| home.canonicalize().ok()),
            user: rustix::process::geteuid().as_raw(),
        }
    }

    /// Returns the path of a file in the directory, or in the nearest one above it: up to the home
    /// directory, and within one file system.
    ///
    /// # Errors
    /// Another user could have written the file.
    pub(super) fn find(&self, name: &str) -> Result<Option<PathBuf>, ConfigProblem> {
        let device = |directory: &Path| fs::metadata(directory).map(|known| known.dev()).ok();
        let start = device(&self.from);
        for directory in self.from.ancestors() {
            if device(directory) != start {
                break;
            }
            let path = directory.join(name);
            if path.is_file() {
                return match self.distrusts(&path) {
                    Some(why) => Err(ConfigProblem::Untrusted { path, why }),
                    None => Ok(Some(path)),
                };
            }
            if self.home.as_deref() == Some(directory) {
                break;
            }
        }
        Ok(None)
    }

    /// Returns why another user could have written a file, unless it is safe. The directories on the
    /// way to it count, too: who can write one can replace what is in it.
    fn distrusts(&self, path: &Path) -> Option<String> {
        let unknown = |error| Some(format!("`{}`: {error}", path.display()));
        let link = match fs::symlink_metadata(path) {
            Ok(link) => link,
            Err(error) => return unknown(error),
        };
        if let Some(why) = self.distrusts_owner(path, &link) {
            return Some(why);
        }
        let target = match path.canonicalize() {
            Ok(target) => target,
            Err(error) => return unknown(error),
        };
        target.ancestors().find_map(|place| match fs::metadata(place) {
            Ok(known) => {
                self.distrusts_owner(place, &known).or_else(|| self.distrusts_mode(place, &known))
            }
            Err(error) => Some(format!("`{}`: {error}", place.display())),
        })
    }

    fn distrusts_owner(&self, place: &Path, known: &Metadata) -> Option<String> {
        let owner = known.uid();
        (owner != self.user && owner != 0)
            .then(|| format!("`{}` belongs to the user {owner}", place.display()))
    }

    fn distrusts_mode(&self, place: &Path, known: &Metadata) -> Option<String> {
        if known.is_dir() && known.mode() & STICKY != 0 {
            return None;
        }
        // Many systems give each user a group of the same number, in which nobody else is.
        let is_of_group = known.mode() & 0o020 != 0 && ![0, self.user].contains(&known.gid());
        let is_of_all = known.mode() & 0o002 != 0;
        (is_of_group || is_of_all)
            .then(|| format!("other users can write `{}`", place.display()))
    }
}
