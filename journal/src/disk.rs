//! The changes of a journal's files. In a simulated world, its disk makes them.

use std::fs::{self, DirBuilder, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Lets the disk of this thread's world do it, if the thread is in one.
macro_rules! simulated {
    ($function:ident($($argument:expr),*)) => {
        #[cfg(feature = "simulation")]
        if let Some(world) = fiber_core::simulation::world() {
            return world.disk().$function(world, $($argument),*);
        }
    };
}

/// Creates a file for reading and writing, or makes one that is there empty.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    simulated!(create(path));
    File::options().read(true).write(true).create(true).truncate(true).open(path)
}

/// Writes both, at an offset.
pub(crate) fn write_all_at(file: &File, parts: [&[u8]; 2], mut offset: u64) -> io::Result<()> {
    simulated!(write_all_at(file, parts, offset));
    let mut parts = parts.map(IoSlice::new);
    let mut parts = &mut parts[..];
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match rustix::io::pwritev(file, parts, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut parts, written);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sets the length of a file.
pub(crate) fn set_len(file: &File, len: u64) -> io::Result<()> {
    simulated!(set_len(file, len));
    file.set_len(len)
}

/// Waits until the content of a file is on disk.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    simulated!(sync(file));
    file.sync_data()
}

/// Waits until the content and all properties of a file are on disk.
pub(crate) fn sync_all(file: &File) -> io::Result<()> {
    simulated!(sync(file));
    file.sync_all()
}

/// Waits until the content of a file is on disk, and lets the next reads see what the disk has.
/// After a sync that failed, the system's cache may hold what is not there, and no later sync
/// writes it.
pub(crate) fn settle(file: &File) -> io::Result<()> {
    simulated!(settle(file));
    file.sync_data()?;
    // A file system without a disk, such as that of /dev/shm, has nothing else to read.
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    Ok(())
}

/// Waits until the names in an open folder are on disk.
#[cfg_attr(not(feature = "simulation"), expect(unused_variables, reason = "it is open"))]
pub(crate) fn sync_folder(folder: &File, path: &Path) -> io::Result<()> {
    simulated!(sync_folder(path));
    folder.sync_all()
}

/// Creates a folder for this user alone.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    simulated!(create_dir(path));
    DirBuilder::new().mode(0o700).create(path)
}

/// Renames a file within its folder.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    simulated!(rename(from, to));
    fs::rename(from, to)
}

pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    simulated!(remove_file(path));
    fs::remove_file(path)
}
