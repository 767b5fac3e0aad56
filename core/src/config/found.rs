//! Looks for the configuration file above the working directory, and refuses one that another user
//! could have written.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::ConfigProblem;
use crate::trust::Trust;

/// Where to look, and for whom.
pub(super) struct Search {
    pub(super) from: PathBuf,
    /// The last directory to look in.
    pub(super) home: Option<PathBuf>,
    pub(super) trust: Trust,
}

impl Search {
    /// Looks from the working directory, for this process's user.
    pub(super) fn here() -> Search {
        Search {
            from: std::env::current_dir().unwrap_or_default(),
            home: std::env::home_dir().and_then(|home| home.canonicalize().ok()),
            trust: Trust::of_this_process(),
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
                return match self.trust.distrusts_way(&path) {
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
}
