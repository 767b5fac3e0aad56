//! Tar archives of one file or directory, for copies between a host and volumes.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tar::{Archive, Builder, EntryType};

/// Writes the file or directory at `path`, with all that is below it. Symbolic links stay links.
///
/// # Errors
/// Errors of reading the files and of writing the archive.
pub fn pack(path: &Path, archive: impl Write) -> io::Result<()> {
    let mut builder = Builder::new(archive);
    builder.follow_symlinks(false);
    // `rename` replaces this name on the way.
    let name = Path::new("copy");
    let explain =
        |error: io::Error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display()));
    if fs::metadata(path).map_err(explain)?.is_dir() {
        builder.append_dir_all(name, path).map_err(explain)?;
    } else {
        // A link that the user named stands for its target.
        builder
            .append_path_with_name(fs::canonicalize(path).map_err(explain)?, name)
            .map_err(explain)?;
    }
    builder.into_inner()?.flush()
}

/// Unpacks an archive below a directory. Does not read what follows the archive's end. Files get no
/// set-user-ID bits: as root's, they would give root's rights.
///
/// # Errors
/// Errors of reading, of writing, and of parsing the archive.
pub fn unpack(archive: impl Read, directory: &Path) -> io::Result<()> {
    let mut entries = Archive::new(archive);
    entries.set_preserve_permissions(true);
    entries.set_mask(0o7000);
    entries.unpack(directory)
}

/// Replaces the first path component of all entries by `name`, and reads the archive to its end.
///
/// # Errors
/// Errors of reading, of writing, and of parsing the archive.
pub fn rename(mut archive: impl Read, renamed: impl Write, name: &Path) -> io::Result<()> {
    let mut builder = Builder::new(renamed);
    let mut entries = Archive::new(&mut archive);
    for entry in entries.entries()? {
        let mut entry = entry?;
        let path = below(&entry.path()?, name);
        let mut header = entry.header().clone();
        let target = entry.link_name()?.map(|target| target.into_owned());
        match (entry.header().entry_type(), target) {
            // A hard link names another entry of this archive.
            (EntryType::Link, Some(target)) => {
                builder.append_link(&mut header, path, below(&target, name))?
            }
            (EntryType::Symlink, Some(target)) => builder.append_link(&mut header, path, target)?,
            _ => builder.append_data(&mut header, path, &mut entry)?,
        }
    }
    builder.into_inner()?.flush()?;
    drain(archive)
}

fn below(path: &Path, name: &Path) -> PathBuf {
    let parts = path.components().filter(|part| !matches!(part, std::path::Component::CurDir));
    // One component at a time: joining an empty rest would add a slash.
    parts.skip(1).fold(name.to_path_buf(), |path, part| path.join(part))
}

/// Reads the padding after an archive's end. Its writer would fail otherwise.
///
/// # Errors
/// Errors of reading the archive.
pub fn drain(mut archive: impl Read) -> io::Result<()> {
    io::copy(&mut archive, &mut io::sink()).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn round_trip(source: &Path, name: &str, target: &Path) {
        let (mut packed, mut renamed) = (Vec::new(), Vec::new());
        pack(source, &mut packed).unwrap();
        rename(&*packed, &mut renamed, Path::new(name)).unwrap();
        unpack(&*renamed, target).unwrap();
    }

    #[test]
    fn a_directory_arrives_as_it_was_under_another_name() {
        let directory = tempfile::tempdir().unwrap();
        let (source, target) = (directory.path().join("source"), directory.path().join("target"));
        let deep = "d".repeat(90);
        fs::create_dir_all(source.join(&deep).join(&deep)).unwrap();
        fs::create_dir(&target).unwrap();
        fs::write(source.join(&deep).join(&deep).join("file"), "deep").unwrap();
        fs::write(source.join("run"), "x").unwrap();
        fs::set_permissions(source.join("run"), fs::Permissions::from_mode(0o6750)).unwrap();
        symlink("run", source.join("link")).unwrap();
        round_trip(&source, "copy of it", &target);
        let arrived = target.join("copy of it");
        assert_eq!(fs::read(arrived.join(&deep).join(&deep).join("file")).unwrap(), b"deep");
        assert_eq!(fs::metadata(arrived.join("run")).unwrap().permissions().mode() & 0o7777, 0o750);
        assert_eq!(fs::read_link(arrived.join("link")).unwrap(), Path::new("run"));
    }

    #[test]
    fn a_file_arrives_under_another_name() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a"), "content").unwrap();
        round_trip(&directory.path().join("a"), "b", directory.path());
        assert_eq!(fs::read(directory.path().join("b")).unwrap(), b"content");
    }

    #[test]
    fn nothing_is_unpacked_outside_of_the_target() {
        let mut packed = Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(4);
        // No builder writes such a path.
        header.as_old_mut().name[..12].copy_from_slice(b"x/../../evil");
        header.set_cksum();
        packed.append(&header, &b"evil"[..]).unwrap();
        let packed = packed.into_inner().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let _ = unpack(&*packed, &inner);
        assert!(!directory.path().join("evil").exists());
        assert!(rename(&*packed, Vec::new(), Path::new("y")).is_err());
    }
}
