//! The disk of a simulated world.
//!
//! Its files are real ones in a temporary folder, and have what programs read: the system's cache.
//! Beside them, the disk remembers what a power loss would leave: the content that was synced, and
//! each later change, of which any part may be lost. Names are durable when their folder is synced.

mod content;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;

pub use self::content::Fate;
use self::content::{Change, Content, Kept};
use super::World;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Disk {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The files that were changed, by their numbers here.
    files: Vec<Content>,
    /// The numbers of files, by their inodes.
    numbers: HashMap<u64, usize>,
    folders: BTreeMap<PathBuf, Folder>,
    /// Until when it has no room.
    full_until: Option<Instant>,
}

/// The names in a folder.
#[derive(Debug)]
struct Folder {
    durable: BTreeMap<OsString, Entry>,
    /// The changes since its last sync.
    changes: Vec<NameChange>,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    File(usize),
    Folder,
}

#[derive(Debug)]
enum NameChange {
    Link(OsString, Entry),
    Rename(OsString, OsString, Entry),
    Remove(OsString),
}

/// How long a sync takes usually, and at most if the disk is slow, in microseconds.
const SYNC: u64 = 20_000;
const SLOW_SYNC: u64 = if cfg!(test) { SYNC } else { 5_000_000 };
/// How long the disk is full, at most, in milliseconds.
const FULL: u64 = 5_000;

impl Disk {
    /// Writes both parts at an offset. A full disk may write some of it.
    ///
    /// # Errors
    /// The system's error that a program gets: the disk is full, or its process is dead.
    pub fn write_all_at(
        &self,
        world: &dyn World,
        file: &File,
        parts: [&[u8]; 2],
        offset: u64,
    ) -> io::Result<()> {
        refuse_dead(world)?;
        let mut bytes = parts.concat();
        let mut state = self.state.lock();
        let room = state.check_room(world);
        if room.is_err() {
            bytes.truncate(world.draw(bytes.len() as u64) as usize);
        }
        let number = state.number(file)?;
        file.write_all_at(&bytes, offset)?;
        state.files[number].change(Change::Write { offset, bytes });
        room
    }

    /// Sets the length of a file.
    ///
    /// # Errors
    /// As [`write_all_at`](Disk::write_all_at).
    pub fn set_len(&self, world: &dyn World, file: &File, len: u64) -> io::Result<()> {
        refuse_dead(world)?;
        let mut state = self.state.lock();
        let number = state.number(file)?;
        file.set_len(len)?;
        state.files[number].change(Change::SetLen(len));
        Ok(())
    }

    /// Makes the content of a file durable. This takes its time, and may fail: the changes are then
    /// lost in part, and no later sync writes them.
    ///
    /// # Errors
    /// As [`write_all_at`](Disk::write_all_at), and EIO.
    pub fn sync(&self, world: &dyn World, file: &File) -> io::Result<()> {
        let result = wait_for_sync(world);
        refuse_dead(world)?;
        let mut state = self.state.lock();
        let number = state.number(file)?;
        let content = &mut state.files[number];
        if result.is_ok() {
            content.sync();
            return Ok(());
        }
        content.lose(world);
        if world.draw(2) == 0 {
            // After a failed sync, some file systems read the disk again, others keep their memory.
            show(file, content)?;
        }
        result
    }

    /// Makes the content of a file durable, and lets its readers see what the disk has.
    ///
    /// # Errors
    /// As [`sync`](Disk::sync).
    pub fn settle(&self, world: &dyn World, file: &File) -> io::Result<()> {
        self.sync(world, file)?;
        let mut state = self.state.lock();
        let number = state.number(file)?;
        show(file, &state.files[number])
    }

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// As [`sync`](Disk::sync). The names may be lost at a power loss then.
    pub fn sync_folder(&self, world: &dyn World, path: &Path) -> io::Result<()> {
        wait_for_sync(world)?;
        refuse_dead(world)?;
        if let Some(folder) = self.state.lock().folders.get_mut(path) {
            folder.changes.drain(..).for_each(|change| change.apply(&mut folder.durable));
        }
        Ok(())
    }

    /// Creates a file, or makes one that is there empty.
    ///
    /// # Errors
    /// As [`write_all_at`](Disk::write_all_at), and the system's.
    pub fn create(&self, world: &dyn World, path: &Path) -> io::Result<File> {
        refuse_dead(world)?;
        let mut state = self.state.lock();
        state.check_room(world)?;
        let is_new = !path.exists();
        let (folder, name) = split(path);
        state.folder(folder)?;
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        if is_new {
            let number = state.add(file.metadata()?.ino(), Content::default());
            let link = NameChange::Link(name.into(), Entry::File(number));
            state.folder(folder)?.changes.push(link);
        } else {
            let number = state.number(&file)?;
            file.set_len(0)?;
            state.files[number].change(Change::SetLen(0));
        }
        Ok(file)
    }

    /// Creates a folder.
    ///
    /// # Errors
    /// As [`create`](Disk::create).
    pub fn create_dir(&self, world: &dyn World, path: &Path) -> io::Result<()> {
        refuse_dead(world)?;
        let mut state = self.state.lock();
        state.check_room(world)?;
        let (folder, name) = split(path);
        state.folder(folder)?;
        fs::create_dir(path)?;
        state.folder(folder)?.changes.push(NameChange::Link(name.into(), Entry::Folder));
        Ok(())
    }

    /// Renames a file within its folder.
    ///
    /// # Errors
    /// The system's, and EIO for a dead process.
    pub fn rename(&self, world: &dyn World, from: &Path, to: &Path) -> io::Result<()> {
        refuse_dead(world)?;
        let mut state = self.state.lock();
        let ((folder, from_name), (_, to_name)) = (split(from), split(to));
        let number = state.number(&File::open(from)?)?;
        fs::rename(from, to)?;
        let (from, to) = (from_name.into(), to_name.into());
        let change = NameChange::Rename(from, to, Entry::File(number));
        state.folder(folder)?.changes.push(change);
        Ok(())
    }

    /// Removes a file.
    ///
    /// # Errors
    /// As [`rename`](Disk::rename).
    pub fn remove_file(&self, world: &dyn World, path: &Path) -> io::Result<()> {
        refuse_dead(world)?;
        let mut state = self.state.lock();
        let (folder, name) = split(path);
        state.folder(folder)?;
        fs::remove_file(path)?;
        state.folder(folder)?.changes.push(NameChange::Remove(name.into()));
        Ok(())
    }

    /// Lets a full disk have room again.
    pub fn make_room(&self) {
        self.state.lock().full_until = None;
    }

    /// Makes the files what the disk holds after a power loss: what was synced, and any part of the
    /// later changes.
    ///
    /// # Errors
    /// The system's.
    pub fn lose_power(&self, world: &dyn World) -> io::Result<()> {
        let mut state = std::mem::take(&mut *self.state.lock());
        state.files.iter_mut().for_each(|content| content.lose(world));
        for (path, folder) in &mut state.folders {
            // Its own name is lost.
            if !path.exists() {
                continue;
            }
            let mut known: Vec<_> = folder.durable.keys().cloned().collect();
            let kept = Kept::draw(world);
            for change in folder.changes.drain(..) {
                known.extend(change.names().cloned());
                if kept.keeps(world) {
                    change.apply(&mut folder.durable);
                }
            }
            for name in known {
                let path = path.join(&name);
                match folder.durable.get(&name) {
                    Some(Entry::File(number)) => {
                        fs::write(path, state.files[*number].durable())?;
                    }
                    Some(Entry::Folder) => {}
                    None if path.is_dir() => fs::remove_dir_all(path)?,
                    None if path.exists() => fs::remove_file(path)?,
                    None => {}
                }
            }
        }
        Ok(())
    }
}

impl State {
    /// Returns the number of a file, whose folder is known from then on.
    fn number(&mut self, file: &File) -> io::Result<usize> {
        let inode = file.metadata()?.ino();
        if !self.numbers.contains_key(&inode) {
            let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
            self.folder(split(&path).0)?;
        }
        self.numbers.get(&inode).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn add(&mut self, inode: u64, content: Content) -> usize {
        self.files.push(content);
        self.numbers.insert(inode, self.files.len() - 1);
        self.files.len() - 1
    }

    /// Returns a folder. One that was not changed before is durable as it is.
    fn folder(&mut self, path: &Path) -> io::Result<&mut Folder> {
        if !self.folders.contains_key(path) {
            let mut entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
            entries.sort_unstable_by_key(DirEntry::file_name);
            let mut durable = BTreeMap::new();
            for entry in entries {
                let kind = match entry.file_type()?.is_dir() {
                    true => Entry::Folder,
                    false => {
                        let content = Content::of(fs::read(entry.path())?);
                        Entry::File(self.add(entry.ino(), content))
                    }
                };
                durable.insert(entry.file_name(), kind);
            }
            self.folders.insert(path.into(), Folder { durable, changes: Vec::new() });
        }
        Ok(self.folders.get_mut(path).expect("it was inserted"))
    }

    /// Returns an error if the disk is full.
    fn check_room(&mut self, world: &dyn World) -> io::Result<()> {
        let is_full = self.full_until.is_some_and(|until| Instant::now() < until);
        if !is_full && world.draw(4) == 0 && world.is_unusual("the disk is full") {
            self.full_until = Some(Instant::now() + Duration::from_millis(world.draw(FULL)));
            return Err(Errno::NOSPC.into());
        }
        if is_full { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }
}

impl NameChange {
    /// Returns the names that it changes.
    fn names(&self) -> impl Iterator<Item = &OsString> {
        let (one, other) = match self {
            NameChange::Link(name, _) | NameChange::Remove(name) => (name, None),
            NameChange::Rename(from, to, _) => (from, Some(to)),
        };
        std::iter::once(one).chain(other)
    }

    fn apply(self, entries: &mut BTreeMap<OsString, Entry>) {
        match self {
            NameChange::Link(name, entry) => drop(entries.insert(name, entry)),
            NameChange::Remove(name) => drop(entries.remove(&name)),
            NameChange::Rename(from, to, entry) => {
                entries.remove(&from);
                entries.insert(to, entry);
            }
        }
    }
}

/// Lets readers of a file see what the disk has.
fn show(file: &File, content: &Content) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all_at(content.durable(), 0)
}

fn refuse_dead(world: &dyn World) -> io::Result<()> {
    if world.is_dead() { Err(Errno::IO.into()) } else { Ok(()) }
}

/// Waits until a sync is done. Returns an error if it fails.
fn wait_for_sync(world: &dyn World) -> io::Result<()> {
    let longest = if world.is_unusual("a sync is slow") { SLOW_SYNC } else { SYNC };
    std::thread::sleep(Duration::from_micros(world.draw(longest)));
    let fails = world.draw(4) == 0 && world.is_unusual("a sync fails");
    if fails { Err(Errno::IO.into()) } else { Ok(()) }
}

/// Splits a path into its folder and its name.
fn split(path: &Path) -> (&Path, &OsStr) {
    path.parent().zip(path.file_name()).expect("it is the path of a file")
}
