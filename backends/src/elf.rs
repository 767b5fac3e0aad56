//! The machine that a program's file needs.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use object::read::ReadRef;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};

/// The requirements in a program's ELF header.
#[derive(Debug, Default)]
pub(crate) struct Requirements {
    /// Its loader (`PT_INTERP`), if it is dynamically linked.
    pub(crate) loader: Option<PathBuf>,
    /// Its architecture, as in `uname -m`. `None` for an unusual one.
    pub(crate) machine: Option<&'static str>,
}

impl Requirements {
    /// Reads the requirements of a program.
    ///
    /// # Errors
    /// The file can't be read, or is no 64-bit ELF executable.
    pub(crate) fn of<'data>(data: impl ReadRef<'data>) -> io::Result<Requirements> {
        let header = elf::FileHeader64::<Endianness>::parse(data).map_err(io::Error::other)?;
        let endian = header.endian().map_err(io::Error::other)?;
        if !matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN) {
            return Err(io::Error::other("it is no executable"));
        }
        let machine = match header.e_machine(endian) {
            elf::EM_X86_64 => Some("x86_64"),
            elf::EM_AARCH64 => Some("aarch64"),
            elf::EM_RISCV => Some("riscv64"),
            elf::EM_PPC64 if endian == Endianness::Little => Some("ppc64le"),
            elf::EM_S390 => Some("s390x"),
            _ => None,
        };
        let mut segments = header.program_headers(endian, data).map_err(io::Error::other)?.iter();
        let loader = segments.find_map(|segment| segment.interpreter(endian, data).ok().flatten());
        Ok(Requirements { loader: loader.map(|path| OsStr::from_bytes(path).into()), machine })
    }
}
