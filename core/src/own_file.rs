//! Files that an option or a default names, which fiber writes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a file for writing, and creates it if there is none. Of what is there already, only a
/// regular file of this process's user is opened: in a directory that others can write, a name
/// could lead elsewhere.
///
/// # Errors
/// The system's, or [`PermissionDenied`](io::ErrorKind::PermissionDenied) with what is there.
pub fn open_own(path: &Path, options: &OpenOptions) -> io::Result<File> {
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        opened => return opened,
    }
    let refused = |what: &str| io::Error::new(io::ErrorKind::PermissionDenied, what.to_string());
    // A pipe without a reader would hold this process up.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = options.clone().custom_flags(flags).open(path).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ELOOP) => refused("it is a symbolic link, which fiber does not follow here"),
            _ => error,
        }
    })?;
    let known = file.metadata()?;
    if !known.is_file() {
        return Err(refused("it is no regular file"));
    }
    if known.nlink() > 1 {
        return Err(refused("it has another name, too"));
    }
    if known.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("it belongs to another user"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn open(path: &Path) -> io::Result<File> {
        open_own(path, OpenOptions::new().append(true))
    }

    #[test]
    fn a_file_is_created_and_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        for line in ["one\n", "two\n"] {
            open(&path).unwrap().write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(path).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn nothing_but_a_file_of_this_user_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let refusal = |path: &Path| open(path).unwrap_err().to_string();
        symlink(directory.path().join("elsewhere"), &path).unwrap();
        assert!(refusal(&path).contains("symbolic link"));
        assert!(!directory.path().join("elsewhere").exists());
        assert!(refusal(Path::new("/dev/null")).contains("no regular file"));
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: a file of another user takes root");
        }
        let foreign = directory.path().join("foreign");
        fs::write(&foreign, "").unwrap();
        chown(&foreign, Some(54_321), None).unwrap();
        assert!(refusal(&foreign).contains("another user"));
    }
}
