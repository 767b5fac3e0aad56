//! The file of a process for blobs beyond the limit of memory, which near processes map as they map
//! its [arena](super::arena).
//!
//! Links lend its blobs as those of the arena, so they are read from the page cache, and no socket
//! carries them. The file is in `spill_dir`.
//!
//! **Ranges.** The file is sparse. Ranges are used again as those of the arena are, and what is
//! free at the end goes back to the disk: a file system that can't do that has no such file, and
//! values go to files then that nobody maps. Each range for itself would cost too much: the kernel
//! holds up the file's readers and writers meanwhile, and may tell the disk at once. A thread of its
//! own frees ranges, so that no link waits for a disk.
//!
//! **It is written by `write`**, never through a mapping: a full disk is an error then, and not the
//! end of the process.
//!
//! **Nothing stays behind.** The file has no name. The kernel frees it with the last process that
//! has it open or mapped.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock};

use fiber_core::value_memory::Spilled;
use fiber_core::{forks, start_thread};
use parking_lot::RwLock;
use rustix::fs::FallocateFlags;

use super::allocator::{Allocator, Pages};
use super::arena::longest;
use super::mapping::{Mapping, MappingId, read_only};
use super::ranges::{PAGE, Ranges};
use super::{Blob, Memory, Shared};

/// The longest file: each process that reads it maps all of it.
const LONGEST: u64 = 256 << 30;

/// Free space at the file's end that stays, in bytes.
const KEPT: usize = 64 << 20;

/// One of each folder, for the process. There is one folder, but for tests.
static FILES: RwLock<Vec<&'static BlobFile>> = RwLock::new(Vec::new());

struct BlobFile {
    folder: PathBuf,
    file: File,
    mapping: Arc<Mapping>,
    allocator: Allocator<File>,
}

impl Pages for File {
    /// Does nothing: writing provides them.
    fn provide(&self, _: usize, _: usize) -> bool {
        true
    }

    fn give_back(&self, start: usize, len: usize) -> bool {
        punch(self, start, len).is_ok()
    }
}

/// A range in use. Dropping it frees the range.
struct Range {
    place: Place,
    _spilled: Spilled,
}

#[derive(Clone, Copy)]
struct Place {
    file: &'static BlobFile,
    offset: usize,
    /// A multiple of [`PAGE`].
    len: usize,
}

/// The thread that frees ranges, if it could be started.
static FREED: LazyLock<Option<Sender<Place>>> = LazyLock::new(|| {
    let (freed, places) = channel::<Place>();
    let free = move || places.into_iter().for_each(Place::free);
    start_thread("fiber-spill", free).ok().map(|_| freed)
});

/// Writes a blob to the file in a folder, which `make` makes. Returns `None` if the file system has
/// no such files, or the file is full.
pub(crate) fn write(
    folder: &Path,
    bytes: &[u8],
    make: impl FnOnce(&Path) -> io::Result<File>,
) -> io::Result<Option<Blob>> {
    if forks::is_forked() {
        return Ok(None);
    }
    let Some(file) = file_in(folder, make)? else { return Ok(None) };
    let Some(len) = bytes.len().checked_next_multiple_of(PAGE).filter(|len| *len > 0) else {
        return Ok(None);
    };
    let Some(offset) = file.allocator.take(len) else { return Ok(None) };
    let place = Place { file, offset, len };
    let range = Range { place, _spilled: Spilled::new(bytes.len()) };
    file.file.write_all_at(bytes, offset as u64)?;
    let (mapping, len) = (Arc::clone(&file.mapping), bytes.len());
    Ok(Some(Blob(Memory::Shared(Shared { mapping, offset, len, hold: Arc::new(range) }))))
}

/// Returns whether a peer can have borrowed these bytes, if they are of a file of this process.
pub(super) fn can_be_lent(mapping: &Mapping, offset: usize, len: usize) -> bool {
    let files = FILES.read();
    let file = files.iter().find(|file| file.mapping.id() == mapping.id());
    file.is_some_and(|file| file.allocator.are_taken(offset, len))
}

fn file_in(
    folder: &Path,
    make: impl FnOnce(&Path) -> io::Result<File>,
) -> io::Result<Option<&'static BlobFile>> {
    let find =
        |files: &[&'static BlobFile]| files.iter().find(|file| file.folder == folder).copied();
    if let Some(file) = find(&FILES.read()) {
        return Ok(Some(file));
    }
    let mut files = FILES.write();
    if let Some(file) = find(&files) {
        return Ok(Some(file));
    }
    let Some(file) = BlobFile::new(folder, make(folder)?)? else { return Ok(None) };
    let file: &'static BlobFile = Box::leak(Box::new(file));
    files.push(file);
    Ok(Some(file))
}

impl BlobFile {
    /// Returns `None` if the file can't be lent.
    fn new(folder: &Path, file: File) -> io::Result<Option<BlobFile>> {
        let disk = rustix::fs::fstatvfs(&file)?;
        let disk = disk.f_blocks.saturating_mul(disk.f_frsize);
        let len = longest(disk.min(LONGEST));
        // A file system may have shorter files.
        if len == 0 || file.set_len(len as u64).is_err() || punch(&file, 0, PAGE).is_err() {
            return Ok(None);
        }
        // Other processes get a descriptor that can't change the file.
        let read_only = read_only(&file)?;
        let id = MappingId(u128::from_le_bytes(fiber_core::random()));
        // A file that kept a name, as network file systems may give it one, is none to be lent.
        let Ok(mapping) = Mapping::own_file(id, read_only) else { return Ok(None) };
        let allocator = Allocator::new(Ranges::new(len), file.try_clone()?, || KEPT);
        Ok(Some(BlobFile { folder: folder.to_owned(), file, mapping, allocator }))
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if forks::is_forked() {
            return;
        }
        let place = self.place;
        if FREED.as_ref().is_none_or(|freed| freed.send(place).is_err()) {
            place.free();
        }
    }
}

impl Place {
    fn free(self) {
        self.file.allocator.free(self.offset, self.len);
    }
}

pub(super) fn punch(file: impl AsFd, offset: usize, len: usize) -> rustix::io::Result<()> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, hole, offset as u64, len as u64)
}
