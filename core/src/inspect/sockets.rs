//! The sockets of inspectors, which are files named by their sessions.
//!
//! Each user has a directory for them that no other user can enter, so no other user can connect,
//! or choose a name there. A head makes the directory in the first place where that succeeds; a
//! search covers all places.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Where the directories of users are. The last place is not always there, and a logout removes it
/// under programs that go on.
const PLACES: [&str; 2] = ["/tmp", "/dev/shm"];
const LAST_PLACE: &str = "XDG_RUNTIME_DIR";
const DIRECTORY: &str = "fiber-";
/// Hexadecimal digits of a session's number.
const DIGITS: usize = 16;
/// The end of a socket's name until it listens.
const NEW: &str = ".new";
/// The time after which a socket that does not listen is abandoned.
const READY_AFTER: Duration = Duration::from_secs(60);

/// The directories of users.
#[derive(Debug)]
struct Places {
    parents: Vec<PathBuf>,
    /// The user of this process.
    user: u32,
}

impl Places {
    fn of_this_process() -> Places {
        let last =
            std::env::var_os(LAST_PLACE).map(PathBuf::from).filter(|path| path.is_absolute());
        let parents = PLACES.iter().map(PathBuf::from).chain(last).collect();
        Places { parents, user: rustix::process::geteuid().as_raw() }
    }

    fn own(&self) -> impl Iterator<Item = PathBuf> {
        self.parents.iter().map(|parent| parent.join(format!("{DIRECTORY}{}", self.user)))
    }

    /// Returns the directories of this user, or of all users if this one is root.
    fn all(&self) -> Vec<PathBuf> {
        if self.user != 0 {
            return self.own().filter(|directory| is_private(directory, self.user)).collect();
        }
        let entries = self.parents.iter().filter_map(|parent| fs::read_dir(parent).ok());
        let of_user = |path: &Path| {
            let name = path.file_name()?.to_str()?;
            name.strip_prefix(DIRECTORY)?.parse().ok()
        };
        entries
            .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
            .filter(|path| of_user(path).is_some_and(|user| is_private(path, user)))
            .collect()
    }

    fn sockets(&self) -> Vec<PathBuf> {
        self.all().iter().flat_map(|directory| sockets_in(directory)).collect()
    }

    fn listen(&self, session: u64) -> io::Result<(UnixListener, PathBuf)> {
        let mut problems = Vec::new();
        for directory in self.own() {
            match listen_in(&directory, self.user, session) {
                Ok(listening) => return Ok(listening),
                Err(error) => problems.push(format!("`{}`: {error}", directory.display())),
            }
        }
        Err(io::Error::other(problems.join("; ")))
    }
}

/// Returns the paths of the sockets of this user's inspectors on this host, or in this container;
/// for root, of all users. Sockets of killed programs may be among them.
pub fn sockets() -> Vec<PathBuf> {
    Places::of_this_process().sockets()
}

/// Returns the socket of a session's inspector and its path, which the head removes at its end.
/// Removes the sockets of heads that were killed.
///
/// # Errors
/// No directory can have it. The error names them, with the reasons.
pub fn listen(session: u64) -> io::Result<(UnixListener, PathBuf)> {
    Places::of_this_process().listen(session)
}

/// Returns whether a directory belongs to this user, who alone can enter it.
fn is_private(directory: &Path, user: u32) -> bool {
    fs::symlink_metadata(directory)
        .is_ok_and(|known| known.is_dir() && known.uid() == user && known.mode() & 0o077 == 0)
}

fn sockets_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| is_session(&entry.file_name()))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .map(|entry| entry.path())
        .collect()
}

fn is_session(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.len() == DIGITS && name.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn listen_in(directory: &Path, user: u32, session: u64) -> io::Result<(UnixListener, PathBuf)> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !is_private(directory, user) {
        let problem = "it is another user's, or others can enter it";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    remove_abandoned(directory);
    let path = directory.join(format!("{session:0DIGITS$x}"));
    // It gets its name when it listens: before, it would pass for abandoned.
    let new = directory.join(format!("{session:0DIGITS$x}{NEW}"));
    let listener = UnixListener::bind(&new)?;
    fs::rename(&new, &path)?;
    Ok((listener, path))
}

/// Removes the sockets of heads that were killed.
fn remove_abandoned(directory: &Path) {
    for socket in sockets_in(directory).iter().filter(|socket| is_abandoned(socket)) {
        let _ = fs::remove_file(socket);
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().as_bytes().ends_with(NEW.as_bytes())) {
        let age = entry.metadata().and_then(|known| known.modified()).map(|made| made.elapsed());
        if matches!(age, Ok(Ok(age)) if age > READY_AFTER) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns whether nobody listens at a socket any more. A head that is stopped or busy still listens.
fn is_abandoned(socket: &Path) -> bool {
    let connected = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let own = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&own, &SocketAddrUnix::new(socket)?)
    };
    connected() == Err(Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::net::UnixStream;

    use tempfile::TempDir;

    use super::*;

    const STRANGER: u32 = 54_321;

    /// Two parents of directories.
    fn places() -> (TempDir, Places) {
        let top = tempfile::tempdir().unwrap();
        let parents = ["a", "b"].map(|name| top.path().join(name));
        parents.iter().for_each(|parent| fs::create_dir(parent).unwrap());
        let user = rustix::process::geteuid().as_raw();
        (top, Places { parents: parents.to_vec(), user })
    }

    fn own(places: &Places) -> PathBuf {
        places.own().next().unwrap()
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_socket_is_found_in_a_directory_of_its_user() {
        let (_top, places) = places();
        assert!(places.sockets().is_empty());
        let (listener, path) = places.listen(0xfeed).unwrap();
        assert_eq!(path, own(&places).join("000000000000feed"));
        assert_eq!(fs::metadata(own(&places)).unwrap().mode() & 0o777, 0o700);
        assert_eq!(places.sockets(), std::slice::from_ref(&path));
        let _stream = UnixStream::connect(path).unwrap();
        assert!(listener.accept().is_ok());
    }

    #[test]
    fn the_sockets_of_killed_heads_are_removed() {
        let (_top, places) = places();
        drop(places.listen(1).unwrap());
        let (_busy, kept) = places.listen(2).unwrap();
        let (_listener, path) = places.listen(3).unwrap();
        let mut found = places.sockets();
        found.sort();
        assert_eq!(found, [kept, path]);
    }

    #[test]
    fn another_place_serves_where_a_directory_is_not_this_users_alone() {
        let (_top, places) = places();
        fs::create_dir(own(&places)).unwrap();
        set_mode(&own(&places), 0o755);
        let (_listener, path) = places.listen(1).unwrap();
        assert!(path.starts_with(&places.parents[1]), "{path:?}");
        assert_eq!(places.sockets(), [path]);
    }

    #[test]
    fn the_reasons_are_named_if_no_place_serves() {
        let (_top, places) = places();
        let [first, second] = &places.parents[..] else { panic!() };
        fs::remove_dir(first).unwrap();
        std::os::unix::fs::symlink("/", second.join(format!("fiber-{}", places.user))).unwrap();
        let problem = places.listen(1).unwrap_err().to_string();
        assert!(
            problem.contains("No such file") && problem.contains("another user's"),
            "{problem}"
        );
    }

    #[test]
    fn names_that_no_head_chose_are_left_alone() {
        let (_top, places) = places();
        let (_listener, path) = places.listen(1).unwrap();
        let others: [&[u8]; 4] =
            [b"\x1b[31m", b"\xff\xff", b"000000000000000A", b"00000000000000001"];
        for name in others {
            drop(UnixListener::bind(own(&places).join(OsStr::from_bytes(name))).unwrap());
        }
        fs::write(own(&places).join("00000000000000aa"), "").unwrap();
        assert_eq!(places.sockets(), [path]);
        drop(places.listen(2).unwrap());
        assert_eq!(fs::read_dir(own(&places)).unwrap().count(), 2 + others.len() + 1);
    }

    #[test]
    fn root_finds_the_sockets_of_all_users() {
        let (_top, mut places) = places();
        if places.user != 0 {
            return println!("skipped: a directory of another user takes root");
        }
        places.user = STRANGER;
        fs::create_dir(own(&places)).unwrap();
        set_mode(&own(&places), 0o700);
        assert!(places.listen(1).is_err());
        chown(own(&places), Some(STRANGER), None).unwrap();
        let (_listener, path) = places.listen(2).unwrap();
        places.user = 0;
        assert_eq!(places.sockets(), [path]);
    }
}
