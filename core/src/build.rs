//! Which build of the program this process runs.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::shortage;

const EXECUTABLE: &str = "/proc/self/exe";

/// Identifies a build of the program: the linker's build id, else a hash of the executable.
///
/// Code travels between nodes as a place in the binary, so two nodes may talk only if their builds
/// are the same.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BuildId(String);

impl BuildId {
    /// Returns the build that this process runs, also when its file was replaced or deleted since.
    /// The first success is kept; a failure is not, because the system may only be short of
    /// descriptors for now.
    ///
    /// # Errors
    /// [`Error::System`], if the executable can't be read.
    pub fn current() -> Result<&'static BuildId> {
        static CURRENT: OnceLock<BuildId> = OnceLock::new();
        if let Some(known) = CURRENT.get() {
            return Ok(known);
        }
        let build = BuildId::of(Path::new(EXECUTABLE)).map_err(|error| {
            Error::system(
                format!("the build of this program ({EXECUTABLE}) can't be read"),
                shortage::Explained(error),
            )
        })?;
        Ok(CURRENT.get_or_init(|| build))
    }

    /// The build in the executable at `path`.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn of(path: &Path) -> io::Result<BuildId> {
        let cache = ReadCache::new(File::open(path)?);
        // Only the headers and the note are read: the note is what makes a start-up of milliseconds
        // possible.
        if let Some(note) = build_id_note(&cache) {
            return Ok(BuildId(note.iter().map(|byte| format!("{byte:02x}")).collect()));
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(File::open(path)?)?;
        Ok(BuildId(format!("blake3-{}", hasher.finalize())))
    }

    /// Returns whether the linker put the id into the binary, which a binary without its debug
    /// sections keeps.
    pub fn is_from_linker(&self) -> bool {
        !self.0.starts_with("blake3-")
    }

    /// Returns the build id that another process states.
    pub fn stated(text: impl Into<String>) -> BuildId {
        BuildId(text.into())
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({})", self.0)
    }
}

fn build_id_note<'data, R: ReadRef<'data>>(data: R) -> Option<&'data [u8]> {
    let header = elf::FileHeader64::<object::Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, data).ok()? {
        let Ok(Some(mut notes)) = segment.notes(endian, data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                return Some(note.desc());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::BuildId;

    #[test]
    fn the_current_build_has_an_id() {
        let id = BuildId::current().unwrap().to_string();
        assert!(id.len() >= 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }
}
