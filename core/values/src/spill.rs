//! Values beyond the limit of memory, in files of this process.
//!
//! The files have no names: they end with the process, however that ends. They are mapped, so a
//! value in one is read as one in memory is, and the kernel keeps as much of it there as it has
//! room for. They are written by `write`, never through the mapping: a full disk is an error then,
//! and not the end of the process.
//!
//! Large parts of values go to one file (`blob::file`) that links lend to near processes.
//! Short ones, and those of a process that lends nothing, go to segments.

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

use crate::blob::{Blob, Blobs, MIN_LEN, arena, file};
use crate::codec::EncodedValue;
use fiber_core::value_memory::{self, Spilled, Stored};

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

/// Writes encoded bytes and their blobs to a file, without what is in shared memory. Returns the
/// same, which are in the file as long as they are used.
///
/// # Errors
/// The file can't be made, or the disk is full. Then [`is_possible`] returns `false` until
/// [`try_again`] finds room.
pub fn spill(bytes: &Bytes, blobs: &Blobs) -> io::Result<(Bytes, Blobs)> {
    noted((|| Ok((write(bytes)?, spill_blobs(blobs)?)))())
}

/// As [`spill`], for a value. A long encoding becomes a blob, so that links can lend it.
///
/// # Errors
/// As [`spill`].
pub(crate) fn spill_value(value: &EncodedValue) -> io::Result<EncodedValue> {
    let spilled = || {
        let blobs = spill_blobs(&value.blobs)?;
        match write_lendable(&value.bytes)? {
            Some(encoding) => Ok(EncodedValue::in_blob(encoding, &blobs)),
            None => Ok(EncodedValue { bytes: write(&value.bytes)?, blobs }),
        }
    };
    noted(spilled())
}

/// Writes what is large of a value, and in no shared memory because that has no room, to the file
/// that near processes map: no link has to carry it. It stays as it is if that is not possible.
pub fn spill_for_others(bytes: &mut Vec<u8>, blobs: &mut Blobs) {
    let has_no_room = bytes.len() >= MIN_LEN && bytes.len() as u64 > value_memory::room();
    let is_needed = has_no_room || blobs.iter().any(Blob::is_private);
    if !is_needed || !arena::is_enabled() {
        return;
    }
    try_again();
    if !is_possible() {
        return;
    }
    if let Ok(spilled) = noted(spill_blobs(blobs)) {
        *blobs = spilled;
    }
    if has_no_room && let Ok(Some(encoding)) = noted(write_lendable(bytes)) {
        let value = EncodedValue::in_blob(encoding, blobs);
        (*bytes, *blobs) = (value.bytes.into(), value.blobs);
    }
}

fn spill_blobs(blobs: &Blobs) -> io::Result<Blobs> {
    let spilled = |blob: &Blob| {
        if !blob.is_private() {
            return Ok(blob.clone());
        }
        match write_lendable(blob)? {
            Some(blob) => Ok(blob),
            None => write(blob).map(Blob::private),
        }
    };
    let blobs: io::Result<Vec<_>> = blobs.iter().map(spilled).collect();
    Ok(blobs?.into())
}

fn noted<T>(written: io::Result<T>) -> io::Result<T> {
    written.inspect_err(|_| HAS_FAILED.store(true, Relaxed))
}

/// Counts an encoded value, or writes it to a file if memory is short.
pub(crate) fn keep(value: EncodedValue) -> (EncodedValue, Stored) {
    let len = value.private_len();
    if value_memory::is_short() {
        try_again();
        if is_possible()
            && let Ok(spilled) = spill_value(&value)
        {
            return (spilled, Stored::default());
        }
        warn_of_memory();
    }
    (value, Stored::new(len))
}

#[cold]
pub(crate) fn warn_of_memory() {
    static HAS_WARNED: AtomicBool = AtomicBool::new(false);
    if !HAS_WARNED.swap(true, Relaxed) {
        tracing::warn!(
            "outputs of tasks need more memory than they may ({}), and can't be written to {}: free \
             room there, name another folder (`FIBER_SPILL_DIR`), or raise `FIBER_VALUE_MEMORY`",
            value_memory::value_memory(),
            folder().display()
        );
    }
}

/// Writes bytes to the file that links lend. Returns `None` if they are short, or there is none.
fn write_lendable(bytes: &[u8]) -> io::Result<Option<Blob>> {
    if bytes.len() < MIN_LEN || !arena::is_enabled() {
        return Ok(None);
    }
    file::write(&folder(), bytes, unnamed)
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

/// A file of this process alone, which ends with the last value in it.
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
    use crate::Array;
    use crate::codec;
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

        large_parts_are_lent();

        set_folder(Some("/proc/no-folder".into()));
        assert!(spill_one(&values[0]).is_err());
        try_again();
        assert!(!is_possible());
        set_folder(None);
        try_again();
        assert!(is_possible() && spill_one(&values[0]).is_ok());
    }
    /// A process that lends memory lends what is in its file.
    fn large_parts_are_lent() {
        arena::enable(true);
        let (array, text) = (Array::from(vec![7_u32; MIN_LEN]), "x".repeat(MIN_LEN));
        let mut bytes = Vec::new();
        let blobs = codec::append_alone(&mut bytes, &(array.clone(), text.clone())).unwrap();
        let value = EncodedValue { bytes: bytes.into(), blobs };
        let spilled = spill_value(&value).unwrap();
        let blobs = &spilled.blobs;
        assert_eq!((spilled.bytes.len(), blobs.len(), blobs.private_len()), (1, 2, 0));
        assert!(blobs.iter().all(|blob| blob.as_shared().is_some()));
        assert_eq!(spilled.decode::<(Array<u32>, String)>().unwrap(), (array, text));
        let len = value.size() as u64;
        assert_eq!(value_memory().spilled, len);
        let disk = |blobs: &Blobs| {
            let file = blobs[0].as_shared().unwrap().mapping().file();
            rustix::fs::fstat(file).unwrap().st_blocks as u64 * 512
        };
        assert!(disk(blobs) >= len);
        // Dropped values leave the disk, but for little, and their place is taken again.
        let places = |blobs: &Blobs| -> Vec<_> {
            blobs.iter().map(|blob| blob.as_shared().unwrap().offset()).collect()
        };
        let before = places(blobs);
        let large = Blobs::from(vec![Blob::private(vec![1; 2 * SEGMENT].into())]);
        let (small, large) = (spill_blobs(&blob(1)).unwrap(), spill_blobs(&large).unwrap());
        assert!(disk(&small) >= 2 * SEGMENT as u64);
        drop((spilled, large));
        while disk(&small) > SEGMENT as u64 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(small[0].iter().all(|byte| *byte == 1));
        assert_eq!(places(&spill_value(&value).unwrap().blobs), before);
        drop(small);
        assert_eq!(value_memory().spilled, 0);
    }

    fn blob(byte: u8) -> Blobs {
        vec![Blob::private(vec![byte; MIN_LEN].into())].into()
    }
}
