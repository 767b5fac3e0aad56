//! Looks for the configuration file above the working directory, and refuses one that another user
//! could have written.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::ConfigProblem;

/// The mode bit of a directory in which only owners may replace files, as `/tmp`.
const STICKY: u32 = 0o1000;

/// Symbolic links on the way to a file: as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Where to look, and for whom.
pub(super) struct Search {
    pub(super) from: PathBuf,
    /// The last directory to look in.
    pub(super) home: Option<PathBuf>,
    /// The user of this process.
    pub(super) user: u32,
    /// The group whose only member is this user.
    pub(super) own_group: Option<u32>,
}

impl Search {
    /// Looks from the working directory, for this process's user.
    pub(super) fn here() -> Search {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        // A primary group with the number of its user has no other members, as `useradd` makes it.
        let own_group = Some(group.as_raw()).filter(|group| *group == user.as_raw());
        Search {
            from: std::env::current_dir().unwrap_or_default(),
            home: std::env::home_dir().and_then(|home| home.canonicalize().ok()),
            user: user.as_raw(),
            own_group,
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

    /// Returns why another user could have written a file, or `None` if nobody else could. A user
    /// who can write a directory on the way to the file, or owns a link there, can replace the file.
    fn distrusts(&self, path: &Path) -> Option<String> {
        let mut rest: Vec<PathBuf> = components(path);
        let mut place = PathBuf::new();
        let mut links = 0;
        while let Some(component) = rest.pop() {
            if component == Path::new("..") {
                place.pop();
                continue;
            }
            place.push(component);
            let entry = fs::symlink_metadata(&place);
            let next = entry.and_then(|entry| {
                let target = entry.is_symlink().then(|| fs::read_link(&place)).transpose()?;
                Ok((entry, target))
            });
            let (entry, target) = match next {
                Ok(next) => next,
                Err(error) => return Some(format!("`{}`: {error}", place.display())),
            };
            if let Some(why) = self.distrusts_owner(&place, &entry) {
                return Some(why);
            }
            match target {
                None => {
                    if let Some(why) = self.distrusts_mode(&place, &entry) {
                        return Some(why);
                    }
                }
                Some(_) if links == MOST_LINKS => {
                    return Some(format!("`{}` leads through too many links", path.display()));
                }
                Some(target) => {
                    links += 1;
                    // An absolute target replaces the place.
                    place.pop();
                    rest.extend(components(&target));
                }
            }
        }
        None
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
        let is_trusted = known.gid() == 0 || Some(known.gid()) == self.own_group;
        let group_can = known.mode() & 0o020 != 0 && !is_trusted;
        let all_can = known.mode() & 0o002 != 0;
        (group_can || all_can).then(|| format!("other users can write `{}`", place.display()))
    }
}

/// Returns the components of a path, the last one first. The first one of an absolute path is `/`.
fn components(path: &Path) -> Vec<PathBuf> {
    path.components().rev().map(|component| PathBuf::from(component.as_os_str())).collect()
}
