//! The identity of a program's build.

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
use crate::executable::executable;
use crate::shortage;

/// The id of a build of the program: the linker's build id, else a hash of the executable.
///
/// Functions travel between processes as a place in the binary, so only processes of the same build
/// may connect.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BuildId(String);

impl BuildId {
    /// Returns the build that this process runs, also if its file was replaced or deleted since.
    /// The next call retries after a failure, which may be a passing shortage of descriptors.
    ///
    /// # Errors
    /// [`Error::System`] if the executable can't be read.
    pub fn current() -> Result<&'static BuildId> {
        // The executable of the process.
        static CURRENT: OnceLock<BuildId> = OnceLock::new();
        if let Some(known) = CURRENT.get() {
            return Ok(known);
        }
        let file = executable();
        let build = BuildId::of(file).map_err(|error| {
            Error::system(
                format!("the build of this program ({}) can't be read", file.display()),
                shortage::Explained(error),
            )
        })?;
        Ok(CURRENT.get_or_init(|| build))
    }

    /// Returns the build of the executable at `path`.
    ///
    /// # Errors
    /// The error of reading the file.
    pub fn of(path: &Path) -> io::Result<BuildId> {
        let cache = ReadCache::new(File::open(path)?);
        // This reads only the headers and the note. Hashing the whole file would take most of the
        // start-up time.
        if let Some(note) = build_id_note(&cache) {
            return Ok(BuildId(note.iter().map(|byte| format!("{byte:02x}")).collect()));
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(File::open(path)?)?;
        Ok(BuildId(format!("blake3-{}", hasher.finalize())))
    }

    /// Returns whether the id is from the linker. A binary keeps such an id when its debug sections
    /// are removed.
    pub fn is_from_linker(&self) -> bool {
        !self.0.starts_with("blake3-")
    }

    /// Makes the build id that another process has sent.
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
