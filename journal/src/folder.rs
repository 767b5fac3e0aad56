//! The folder of a journal.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fiber_core::{Error, Result, check_own_dir};
use rustix::io::Errno;

use crate::disk;
use crate::format::SegmentKind;
use crate::problem::Problem;

/// A journal's folder, open.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    file: File,
}

impl Folder {
    /// Opens the folder at `path`, and creates it if it is missing.
    pub(crate) fn create(path: &Path) -> Result<Folder> {
        let path = std::path::absolute(path)
            .map_err(|error| Problem::system("find", path, error).of(path))?;
        let refused = |error| Problem::system("create the folder", &path, error).of(&path);
        create(&path).and_then(|()| check_own_dir(&path)).map_err(refused)?;
        let folder = Folder::open(&path)?;
        if !folder.has_segments() {
            sync_names(&path).map_err(refused)?;
        }
        Ok(folder)
    }

    /// Opens the folder at `path`, which exists.
    pub(crate) fn open(path: &Path) -> Result<Folder> {
        let refused = |error| Problem::system("open the folder", path, error).of(path);
        let file = File::open(path).map_err(refused)?;
        if !file.metadata().map_err(refused)?.is_dir() {
            return Err(refused(Errno::NOTDIR.into()));
        }
        Ok(Folder { path: path.to_owned(), file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what identifies the folder, whatever path leads to it.
    pub(crate) fn identity(&self) -> Result<(u64, u64)> {
        let data = self.file.metadata();
        let data = data.map_err(|error| self.refusal("open the folder", &self.path, error))?;
        Ok((data.dev(), data.ino()))
    }

    /// Makes the names of files durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = disk::sync_folder(&self.file, &self.path);
        synced.map_err(|error| self.refusal("sync the folder", &self.path, error))
    }

    /// Makes the error for a path in this folder.
    pub(crate) fn refusal(&self, what: &str, path: &Path, error: impl Into<io::Error>) -> Error {
        Problem::system(what, path, error).of(&self.path)
    }

    /// Makes an error of this journal.
    pub(crate) fn error(&self, words: impl Into<String>) -> Error {
        Problem::new(words).of(&self.path)
    }

    /// Returns the path of a segment.
    pub(crate) fn segment(&self, kind: SegmentKind, number: u32) -> PathBuf {
        self.path.join(format!("{number:08}.{}", kind.extension()))
    }

    /// Returns the path of the sidecar index of a segment of outcomes.
    pub(crate) fn sidecar(&self, number: u32) -> PathBuf {
        self.path.join(format!("{number:08}.index"))
    }

    /// Returns the numbers of the segments of this kind, in ascending order.
    pub(crate) fn segments(&self, kind: SegmentKind) -> Result<Vec<u32>> {
        let mut numbers = Vec::new();
        for path in self.files()? {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if path.extension().is_some_and(|extension| extension == kind.extension())
                && stem.bytes().all(|byte| byte.is_ascii_digit())
                && let Ok(number) = stem.parse()
            {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns whether the folder has segments that can be listed.
    pub(crate) fn has_segments(&self) -> bool {
        let has = |kind| self.segments(kind).is_ok_and(|numbers| !numbers.is_empty());
        has(SegmentKind::Outcomes) || has(SegmentKind::Slots)
    }

    /// Removes files that a killed process has not finished.
    pub(crate) fn remove_unfinished(&self) -> Result<()> {
        for path in self.files()? {
            if path.extension().is_some_and(|extension| extension == UNFINISHED) {
                disk::remove_file(&path).map_err(|error| self.refusal("remove", &path, error))?;
            }
        }
        Ok(())
    }

    /// Returns the size of all files in bytes.
    pub(crate) fn size(&self) -> Result<u64> {
        Ok(self.files()?.iter().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum())
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let list = || {
            let files = fs::read_dir(&self.path)?;
            files.map(|file| Ok(file?.path())).collect::<io::Result<_>>()
        };
        list().map_err(|error| self.refusal("list the folder", &self.path, error))
    }

    /// Writes a file, makes it durable, and only then gives it its name.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<File> {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".");
        unfinished.push(UNFINISHED);
        let unfinished = PathBuf::from(unfinished);
        let written = (|| {
            let file = disk::create(&unfinished)?;
            disk::write_all_at(&file, [bytes, &[]], 0)?;
            disk::sync_all(&file)?;
            disk::rename(&unfinished, path)?;
            disk::sync_folder(&self.file, &self.path)?;
            Ok(file)
        })();
        if written.is_err() {
            let _ = disk::remove_file(&unfinished);
        }
        written
    }
}

/// The extension of files that are being written.
pub(crate) const UNFINISHED: &str = "new";

/// Creates a folder and those above it.
fn create(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(data) if data.is_dir() => return Ok(()),
        Ok(_) => return Err(Errno::NOTDIR.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let Some(parent) = path.parent() else { return Ok(()) };
    create(parent)?;
    match disk::create_dir(path) {
        // Another process may have created it meanwhile.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Makes the names of a folder and of those above it durable. A process that was killed may have
/// created them, and not have come to this.
fn sync_names(path: &Path) -> io::Result<()> {
    for above in path.ancestors().skip(1) {
        // A folder that can't be read, or that its file system can't sync, has no new names.
        let Ok(folder) = File::open(above) else { continue };
        let synced = disk::sync_folder(&folder, above);
        let errno = synced.as_ref().err().and_then(Errno::from_io_error);
        if !matches!(errno, Some(Errno::INVAL | Errno::NOTSUP | Errno::ROFS)) {
            synced?;
        }
    }
    Ok(())
}
