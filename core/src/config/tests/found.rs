//! Which file above the working directory counts.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;
use tempfile::TempDir;

use super::super::found::Search;
use crate::trust::Trust;

const NAME: &str = "fiber.toml";
/// A user that no test runs as.
const STRANGER: u32 = 54_321;

/// A directory with the file, and two directories below it.
struct Place {
    top: TempDir,
    below: PathBuf,
}

impl Place {
    fn new() -> Place {
        let top = tempfile::tempdir().unwrap();
        let below = top.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        fs::write(top.path().join(NAME), "").unwrap();
        Place { top, below }
    }

    fn file(&self) -> PathBuf {
        self.top.path().join(NAME)
    }

    fn search(&self) -> Search {
        search_from(self.below.clone())
    }

    /// Returns the error, which names the file and the remedy.
    fn refusal(&self) -> String {
        let error = self.search().find(NAME).unwrap_err().to_string();
        let remedy = format!("trust it with FIBER_CONFIG={}", self.file().display());
        assert!(error.ends_with(&remedy), "{error}");
        error
    }
}

fn search_from(from: PathBuf) -> Search {
    let user = geteuid().as_raw();
    Search { from, home: None, trust: Trust { user, own_group: Some(user) } }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_nearest_file_counts() {
    let place = Place::new();
    assert_eq!(place.search().find(NAME).unwrap(), Some(place.file()));
    let nearer = place.top.path().join("a").join(NAME);
    fs::write(&nearer, "").unwrap();
    assert_eq!(place.search().find(NAME).unwrap(), Some(nearer));
}

#[test]
fn no_file_above_the_home_directory_counts() {
    let place = Place::new();
    let home = Some(place.top.path().join("a"));
    assert_eq!(Search { home, ..place.search() }.find(NAME).unwrap(), None);
    let home = Some(place.top.path().to_path_buf());
    assert_eq!(Search { home, ..place.search() }.find(NAME).unwrap(), Some(place.file()));
}

/// This test runs once more where the directory below the file is another file system.
#[test]
fn no_file_of_another_file_system_counts() {
    const MOUNTED: &str = "TEST_MOUNTED";
    if let Some(mounted) = env::var_os(MOUNTED) {
        return assert_eq!(search_from(mounted.into()).find(NAME).unwrap(), None);
    }
    let place = Place::new();
    let name = "config::tests::found::no_file_of_another_file_system_counts";
    let script =
        "mount -t tmpfs tmpfs \"$1\" && mkdir \"$1/b\" || exit 77; exec \"$2\" --exact \"$3\"";
    let ended = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(place.top.path().join("a"))
        .arg(env::current_exe().unwrap())
        .arg(name)
        .env(MOUNTED, &place.below)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&ended.stdout);
    if !ended.status.success() && printed.is_empty() {
        return println!("skipped: this user can't mount a file system");
    }
    assert!(ended.status.success() && printed.contains("1 passed"), "{ended:?}");
}

#[test]
fn a_file_that_others_can_write_or_replace_is_refused() {
    let place = Place::new();
    set_mode(&place.file(), 0o666);
    let error = place.refusal();
    assert!(error.contains(&format!("can write `{}`", place.file().display())), "{error}");
    set_mode(&place.file(), 0o644);
    set_mode(place.top.path(), 0o777);
    let error = place.refusal();
    assert!(error.contains(&format!("can write `{}`", place.top.path().display())), "{error}");
    // Its owner alone can replace it there.
    set_mode(place.top.path(), 0o1777);
    assert_eq!(place.search().find(NAME).unwrap(), Some(place.file()));
}

#[test]
fn a_file_of_another_user_is_refused() {
    let place = Place::new();
    // The owner of the file is another user for this one, who is not root.
    if geteuid().is_root() {
        chown(place.file(), Some(STRANGER), None).unwrap();
    } else {
        let trust = Trust { user: STRANGER, own_group: None };
        let search = Search { trust, ..place.search() };
        let error = search.find(NAME).unwrap_err().to_string();
        return assert!(error.contains("belongs to the user"), "{error}");
    }
    let error = place.refusal();
    assert!(error.contains(&format!("belongs to the user {STRANGER}")), "{error}");
    // A link to a file of this user says as little as another file.
    let own = place.top.path().join("own.toml");
    fs::write(&own, "").unwrap();
    fs::remove_file(place.file()).unwrap();
    symlink(&own, place.file()).unwrap();
    lchown(place.file(), Some(STRANGER), None).unwrap();
    let error = place.refusal();
    assert!(error.contains(&format!("belongs to the user {STRANGER}")), "{error}");
}

#[test]
fn the_way_of_a_link_counts() {
    let place = Place::new();
    let at = |name: &str| place.top.path().join(name);
    let link_to = |target: &Path| {
        let _ = fs::remove_file(place.file());
        symlink(target, place.file()).unwrap();
    };
    fs::create_dir_all(at("kept/open")).unwrap();
    fs::write(at("kept/own.toml"), "").unwrap();
    link_to(Path::new("kept/open/../own.toml"));
    assert_eq!(place.search().find(NAME).unwrap(), Some(place.file()));
    // Others can lead this link elsewhere.
    symlink(at("kept/own.toml"), at("kept/open/further")).unwrap();
    set_mode(&at("kept/open"), 0o777);
    link_to(Path::new("kept/open/further"));
    assert!(place.refusal().contains(&format!("can write `{}`", at("kept/open").display())));
    set_mode(&at("kept/open"), 0o755);
    assert_eq!(place.search().find(NAME).unwrap(), Some(place.file()));
}
