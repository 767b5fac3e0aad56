//! Paths that another user could have written, or could lead elsewhere.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The mode bit of a directory in which only owners may replace files, as `/tmp`.
const STICKY: u32 = 0o1000;

/// Symbolic links on the way to a file: as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// The users that a process trusts: its own, and root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trust {
    /// The user of this process.
    pub(crate) user: u32,
    /// The group whose only member is this user.
    pub(crate) own_group: Option<u32>,
}

impl Trust {
    pub(crate) fn of_this_process() -> Trust {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        // A primary group with the number of its user has no other members, as `useradd` makes it.
        let own_group = Some(group.as_raw()).filter(|group| *group == user.as_raw());
        Trust { user: user.as_raw(), own_group }
    }

    /// Returns why another user could have written a file, or `None` if nobody else could. A user
    /// who can write a directory on the way to the file, or owns a link there, can replace the file.
    pub(crate) fn distrusts_way(&self, path: &Path) -> Option<String> {
        distrusts_any(path, |place, known| self.distrusts(place, known))
    }

    /// Returns why another user could have chosen what a path names, or `None` if nobody else
    /// could. Only names in directories where all users create some count, as in `/tmp`: the mode of
    /// any other directory is its owner's choice.
    pub(crate) fn distrusts_shared_names(&self, path: &Path) -> Option<String> {
        let is_shared = |directory: &Path| {
            fs::symlink_metadata(directory)
                .is_ok_and(|known| known.mode() & STICKY != 0 && known.mode() & 0o022 != 0)
        };
        distrusts_any(path, |place, known| match place.parent().is_some_and(is_shared) {
            true => self.distrusts(place, known),
            false => None,
        })
    }

    /// Returns why another user can add files to a directory, or `None` if nobody else can.
    pub(crate) fn distrusts_directory(&self, path: &Path) -> Option<String> {
        match fs::metadata(path) {
            Err(error) => Some(format!("`{}`: {error}", path.display())),
            Ok(known) => {
                self.distrusts_owner(path, &known).or_else(|| self.others_write(path, &known))
            }
        }
    }

    fn distrusts(&self, place: &Path, known: &Metadata) -> Option<String> {
        let only_owners_replace = known.is_dir() && known.mode() & STICKY != 0;
        let distrusts_mode = || match known.is_symlink() || only_owners_replace {
            true => None,
            false => self.others_write(place, known),
        };
        self.distrusts_owner(place, known).or_else(distrusts_mode)
    }

    fn distrusts_owner(&self, place: &Path, known: &Metadata) -> Option<String> {
        let owner = known.uid();
        (owner != self.user && owner != 0)
            .then(|| format!("`{}` belongs to the user {owner}", place.display()))
    }

    fn others_write(&self, place: &Path, known: &Metadata) -> Option<String> {
        let is_trusted = known.gid() == 0 || Some(known.gid()) == self.own_group;
        let group_can = known.mode() & 0o020 != 0 && !is_trusted;
        let all_can = known.mode() & 0o002 != 0;
        (group_can || all_can).then(|| format!("other users can write `{}`", place.display()))
    }
}

/// Follows an absolute path through its links, and returns the first objection of `distrusts` to a
/// component.
fn distrusts_any(
    path: &Path,
    distrusts: impl Fn(&Path, &Metadata) -> Option<String>,
) -> Option<String> {
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
        if let Some(why) = distrusts(&place, &entry) {
            return Some(why);
        }
        match target {
            None => {}
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

/// Returns the components of a path, the last one first. The first one of an absolute path is `/`.
fn components(path: &Path) -> Vec<PathBuf> {
    path.components().rev().map(|component| PathBuf::from(component.as_os_str())).collect()
}
