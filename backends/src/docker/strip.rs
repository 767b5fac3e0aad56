//! Reads an executable without its debug sections.
//!
//! They are most of a program's bytes, and no process in a container needs them to run. The symbol
//! table stays, so backtraces still name functions. Addresses and the linker's build id stay as
//! they are, so the stripped program is the same build.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use object::LittleEndian;
use object::elf::{FileHeader64, SHF_ALLOC, SHT_NOBITS};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

/// Offsets in the ELF header and in a section header, 64-bit.
const E_SHOFF: usize = 0x28;
const SH_TYPE: usize = 0x04;
const SH_OFFSET: usize = 0x18;
const SH_SIZE: usize = 0x20;
const SECTION_HEADER: usize = 0x40;

/// The parts of a stripped executable, in the order of the new file.
#[derive(Clone, Debug)]
pub(super) struct Stripped {
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    /// Bytes that differ from the original.
    New(Vec<u8>),
    /// A range of the original.
    Old(Range<u64>),
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Part::New(bytes) => bytes.len() as u64,
            Part::Old(range) => range.end - range.start,
        }
    }
}

impl Stripped {
    /// Finds the debug sections of an executable. Returns `None` if it has none, or if it is not a
    /// little-endian 64-bit ELF file with the usual order: first the loaded part, then the rest.
    pub(super) fn of(executable: &Path) -> io::Result<Option<Stripped>> {
        let cache = ReadCache::new(File::open(executable)?);
        Ok(parts(&cache).map(|parts| Stripped { parts }))
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.parts.iter().map(Part::len).sum()
    }

    /// Opens `executable`, the file that it was made of, without the debug sections.
    pub(super) fn open(&self, executable: &Path) -> io::Result<Box<dyn Read>> {
        let mut whole: Box<dyn Read> = Box::new(io::empty());
        for part in &self.parts {
            whole = match part {
                Part::New(bytes) => Box::new(whole.chain(Cursor::new(bytes.clone()))),
                Part::Old(range) => {
                    let mut file = File::open(executable)?;
                    file.seek(SeekFrom::Start(range.start))?;
                    Box::new(whole.chain(file.take(part.len())))
                }
            };
        }
        Ok(whole)
    }
}

fn parts(data: &ReadCache<File>) -> Option<Vec<Part>> {
    let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let segments_end = segments.iter().map(|segment| {
        let (start, length) = segment.file_range(endian);
        start + length
    });
    let loaded_end = segments_end.max()?;
    let sections = header.sections(endian, data).ok()?;

    let mut table = Vec::new();
    let mut parts = Vec::new();
    let mut end = loaded_end;
    let mut strips = false;
    for section in sections.iter() {
        let mut entry = object::bytes_of(section).to_vec();
        debug_assert_eq!(entry.len(), SECTION_HEADER);
        let name = sections.section_name(endian, section).ok()?;
        let in_file = section.file_range(endian).filter(|(_, length)| *length > 0);
        if name.starts_with(b".debug_") || name.starts_with(b".zdebug_") {
            // An entry without contents keeps the numbers of the others.
            entry[SH_TYPE..][..4].copy_from_slice(&SHT_NOBITS.to_le_bytes());
            entry[SH_OFFSET..][..8].copy_from_slice(&end.to_le_bytes());
            entry[SH_SIZE..][..8].copy_from_slice(&0_u64.to_le_bytes());
            strips = true;
        } else if let Some((start, length)) = in_file
            && start + length > loaded_end
        {
            if section.sh_flags(endian) & u64::from(SHF_ALLOC) != 0 || start < loaded_end {
                return None;
            }
            end = pad(&mut parts, end, section.sh_addralign(endian).max(1));
            parts.push(Part::Old(start..start + length));
            entry[SH_OFFSET..][..8].copy_from_slice(&end.to_le_bytes());
            end += length;
        }
        table.extend(entry);
    }
    if !strips {
        return None;
    }
    let place = pad(&mut parts, end, 8);
    parts.push(Part::New(table));
    let mut head = object::bytes_of(header).to_vec();
    head[E_SHOFF..][..8].copy_from_slice(&place.to_le_bytes());
    let after = head.len() as u64;
    Some([Part::New(head), Part::Old(after..loaded_end)].into_iter().chain(parts).collect())
}

/// Fills up to a multiple of `alignment`, and returns it.
fn pad(parts: &mut Vec<Part>, end: u64, alignment: u64) -> u64 {
    let aligned = end.next_multiple_of(alignment);
    parts.push(Part::New(vec![0; (aligned - end) as usize]));
    aligned
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use fiber_core::BuildId;
    use object::{Object, ObjectSection};

    use super::*;

    #[test]
    fn a_stripped_program_runs_and_is_the_same_build_with_the_same_symbols() {
        let own = Path::new("/proc/self/exe");
        let stripped = Stripped::of(own).unwrap().expect("tests have debug sections");
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        io::copy(&mut stripped.open(own).unwrap(), &mut File::create(&program).unwrap()).unwrap();

        let [before, after] = [own, &program].map(|path| fs::read(path).unwrap());
        assert_eq!(after.len() as u64, stripped.len());
        assert!(after.len() < before.len());
        assert_eq!(BuildId::of(&program).unwrap(), BuildId::of(own).unwrap());
        let symbols = |bytes: &[u8]| {
            let file = object::File::parse(bytes).unwrap();
            let debug = file.section_by_name(".debug_info").unwrap();
            assert!(bytes.len() == before.len() || debug.data().unwrap().is_empty());
            let table = file.section_by_name(".symtab").unwrap();
            table.data().unwrap().to_vec()
        };
        assert!(symbols(&before) == symbols(&after));
        assert!(Stripped::of(&program).unwrap().is_none_or(|again| again.len() == stripped.len()));

        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let listed = Command::new(&program).arg("--list").output().unwrap();
        assert!(listed.status.success(), "{listed:?}");
    }

    #[test]
    fn other_files_are_left_as_they_are() {
        assert!(Stripped::of(Path::new("/proc/self/status")).unwrap().is_none());
        assert!(Stripped::of(Path::new("/dev/null")).unwrap().is_none());
    }
}
