//! Values beyond the limit of memory, in files of this process.
//!
//! The files have no names: they end with the process, however that ends. They are mapped, so a
//! value in one is read as one in memory is, and the kernel keeps as much of it there as it has
//! room for. They are written by `write`, never through the mapping: a full disk is an error then,
//! and not the end of the process.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::blob::{Blob, Blobs};
use fiber_core::value_memory::Spilled;

/// The length of a file that several values share. It takes as much of the disk as was written.
const SEGMENT: usize = 64 << 20;
/// How much is written to see whether there is room.
const PROBE: usize = 64 << 10;
/// Numbers in arrays are read where they are.
const ALIGNMENT: usize = 64;

// Values leave the memory of the process, whichever session they are of.
static FOLDER: Mutex<Option<PathBuf>> = Mutex::new(None);
static CURRENT: Mutex<Weak<Segment>> = Mutex::new(Weak::new());
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Sets the folder of the files. Without one, it is that of `TMPDIR`, or `/var/tmp`.
pub fn set_folder(folder: Option<PathBuf>) {
    *FOLDER.lock() = folder;
}

/// Returns the folder of the files.
pub fn folder() -> PathBuf {
    let set = FOLDER.lock().clone();
    // `/tmp` often is memory itself.
    set.or_else(|| std::env::var_os("TMPDIR").map(PathBuf::from)).unwrap_or("/var/tmp".into())
}

/// Returns whether the last value could be written.
pub fn is_possible() -> bool {
    !HAS_FAILED.load(Relaxed)
}

/// After a value could not be written, looks whether one can be now.
pub fn try_again() {
    if !is_possible() && write(&[0; PROBE]).is_ok() {
        HAS_FAILED.store(false, Relaxed);
    }
}

/// Writes an encoded value to a file, without what is in shared memory. Returns the same value,
/// whose bytes are in the file as long as they are used.
///
/// # Errors
/// The file can't be made, or the disk is full. Then [`is_possible`] returns `false` until
/// [`try_again`] finds room.
pub fn spill(bytes: &Bytes, blobs: &Blobs) -> io::Result<(Bytes, Blobs)> {
    let written = || {
        let blob = |blob: &Blob| match blob.as_shared() {
            Some(_) => Ok(blob.clone()),
            None => write(blob).map(Blob::private),
        };
        let blobs: io::Result<Vec<Blob>> = blobs.iter().map(blob).collect();
        Ok((write(bytes)?, blobs?.into()))
    };
    written().inspect_err(|_| HAS_FAILED.store(true, Relaxed))
}

fn write(bytes: &[u8]) -> io::Result<Bytes> {
    if bytes.is_empty() {
        return Ok(Bytes::new());
    }
    let mut current = CURRENT.lock();
    let segment = match current.upgrade().filter(|segment| segment.room() >= bytes.len()) {
        Some(segment) => segment,
        None => {
            let segment = Arc::new(Segment::new(&folder(), bytes.len().max(SEGMENT))?);
            *current = Arc::downgrade(&segment);
            segment
        }
    };
    let mut used = segment.used.lock();
    let offset = *used;
    segment.file.write_all_at(bytes, offset as u64)?;
    *used = (offset + bytes.len()).next_multiple_of(ALIGNMENT);
    drop(used);
    let part = Part { segment, offset, len: bytes.len(), _spilled: Spilled::new(bytes.len()) };
    Ok(Bytes::from_owner(part))
}

/// A file, which ends with the last value in it.
struct Segment {
    file: File,
    base: NonNull<u8>,
    len: usize,
    used: Mutex<usize>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only read.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    fn new(folder: &Path, len: usize) -> io::Result<Segment> {
        let file = unnamed(folder)?;
        file.set_len(len as u64)?;
        // SAFETY: the kernel chooses the address of the new mapping.
        let base = unsafe {
            mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &file, 0)
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Segment { file, base, len, used: Mutex::new(0) })
    }

    fn room(&self) -> usize {
        self.len.saturating_sub(*self.used.lock())
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no part of it is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Makes a file without a name.
fn unnamed(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let unnamed = options.clone().custom_flags(libc::O_TMPFILE).open(folder);
    match unnamed {
        // Some file systems make none.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
            let name = format!(".fiber-{:016x}", u64::from_ne_bytes(fiber_core::random()));
            let path = folder.join(name);
            let file = options.create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        made => made,
    }
}

/// A value in a file.
struct Part {
    segment: Arc<Segment>,
    offset: usize,
    len: usize,
    _spilled: Spilled,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range was written before this part was made, is within the mapping, and is
        // not written again while the segment exists.
        unsafe { std::slice::from_raw_parts(self.segment.base.as_ptr().add(self.offset), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fiber_core::value_memory::value_memory;

    /// One test, because the folder is that of the process.
    #[test]
    fn values_in_files_are_read_until_they_are_dropped() {
        let values: Vec<Bytes> = (0..100_u8).map(|n| vec![n; 10_000 + n as usize].into()).collect();
        let spill_one = |value: &Bytes| {
            let blobs = Blobs::from(vec![Blob::private(value.clone())]);
            spill(&value.slice(..7), &blobs)
        };
        let spilled: Vec<_> = values.iter().map(|value| spill_one(value).unwrap()).collect();
        assert!(value_memory().spilled >= 1_000_000);
        for ((bytes, blobs), value) in spilled.iter().zip(&values) {
            assert_eq!((&bytes[..], &blobs[0][..]), (&value[..7], &value[..]));
            assert_eq!(blobs[0].as_ptr().addr() % ALIGNMENT, 0);
        }
        let large = Bytes::from(vec![1; SEGMENT + 1]);
        assert_eq!(write(&large).unwrap(), large);
        drop(spilled);
        assert_eq!(value_memory().spilled, 0);
        assert!(CURRENT.lock().upgrade().is_none(), "the file is gone");

        set_folder(Some("/proc/no-folder".into()));
        assert!(spill_one(&values[0]).is_err());
        try_again();
        assert!(!is_possible());
        set_folder(None);
        try_again();
        assert!(is_possible() && spill_one(&values[0]).is_ok());
    }
}
