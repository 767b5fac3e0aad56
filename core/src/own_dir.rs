//! Directories that an option or a default names, in which fiber writes files.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::trust::Trust;

/// Creates a directory for this user alone, and those above it that are missing. One that is there
/// keeps its mode.
///
/// # Errors
/// The system's, or as [`check_own_dir`].
pub fn create_own_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    check_own_dir(path)
}

/// Checks a directory that exists, and all on the way to it.
///
/// # Errors
/// [`PermissionDenied`](io::ErrorKind::PermissionDenied) if a name in a directory where all users
/// create some, such as `/tmp`, belongs to another user, or others can write there.
pub fn check_own_dir(path: &Path) -> io::Result<()> {
    refuse(Trust::of_this_process().distrusts_shared_names(&std::path::absolute(path)?))
}

/// Creates a directory as [`create_own_dir`] does, for files that say what a program runs.
///
/// # Errors
/// As [`create_own_dir`]. Wherever the directory is, others may not write there.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    create_own_dir(path)?;
    refuse(Trust::of_this_process().distrusts_directory(path))
}

fn refuse(why: Option<String>) -> io::Result<()> {
    let Some(why) = why else { return Ok(()) };
    let problem = format!("{why}: choose a directory that you alone can write");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use tempfile::TempDir;

    use super::*;

    /// A user that no test runs as.
    const STRANGER: u32 = 54_321;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// A directory as `/tmp`.
    fn shared() -> TempDir {
        let shared = tempfile::tempdir().unwrap();
        set_mode(shared.path(), 0o1777);
        shared
    }

    fn refusal(path: &Path) -> String {
        create_own_dir(path).unwrap_err().to_string()
    }

    #[test]
    fn a_new_directory_and_those_above_it_are_closed() {
        let shared = shared();
        let below = shared.path().join("a/b");
        create_own_dir(&below).unwrap();
        for directory in [&*below, below.parent().unwrap()] {
            assert_eq!(fs::metadata(directory).unwrap().permissions().mode() & 0o777, 0o700);
        }
        create_own_dir(&below).unwrap();
    }

    #[test]
    fn a_name_in_a_shared_directory_that_others_can_write_is_refused() {
        let shared = shared();
        let open = shared.path().join("open");
        fs::create_dir(&open).unwrap();
        set_mode(&open, 0o777);
        let expected = format!(
            "other users can write `{}`: choose a directory that you alone can write",
            open.display()
        );
        assert_eq!(refusal(&open), expected);
        assert_eq!(refusal(&open.join("below")), expected);
        // Elsewhere, the mode is the owner's choice.
        set_mode(shared.path(), 0o755);
        create_own_dir(&open).unwrap();
    }

    #[test]
    fn a_name_of_another_user_in_a_shared_directory_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: a directory of another user takes root");
        }
        let shared = shared();
        let [foreign, own, link] = ["foreign", "own", "link"].map(|name| shared.path().join(name));
        for directory in [&foreign, &own] {
            fs::create_dir(directory).unwrap();
        }
        chown(&foreign, Some(STRANGER), None).unwrap();
        let belongs =
            |path: &Path| format!("`{}` belongs to the user {STRANGER}: choose", path.display());
        assert!(refusal(&foreign.join("below")).starts_with(&belongs(&foreign)));
        symlink(&own, &link).unwrap();
        create_own_dir(&link.join("below")).unwrap();
        lchown(&link, Some(STRANGER), None).unwrap();
        // The kernel may not follow it either.
        let refused = check_own_dir(&link.join("below")).unwrap_err().to_string();
        assert!(refused.starts_with(&belongs(&link)), "{refused}");
    }

    #[test]
    fn a_private_directory_is_closed_to_others_wherever_it_is() {
        let top = tempfile::tempdir().unwrap();
        let pilots = top.path().join("pilots");
        create_private_dir(&pilots).unwrap();
        for mode in [0o777, 0o1777] {
            set_mode(&pilots, mode);
            let problem = create_private_dir(&pilots).unwrap_err().to_string();
            assert!(problem.contains("other users can write `"), "{problem}");
        }
        set_mode(&pilots, 0o755);
        create_private_dir(&pilots).unwrap();
    }
}
