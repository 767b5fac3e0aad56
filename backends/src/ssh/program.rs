//! This program, as a machine has to have it.

use std::fs::File;
use std::path::Path;

use fiber_core::{BuildId, executable, executable_name, shortage};
use object::elf;
use object::read::elf::FileHeader;
use object::read::{ReadCache, ReadRef};

use crate::elf::Requirements;
use crate::{BackendError, program_name};

/// This program, and what it needs from a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// The file's name, without odd characters.
    pub(super) name: String,
    pub(super) build: String,
    /// The file's size in bytes.
    pub(super) size: u64,
    /// The system and the architecture, as in `uname -sm`. Empty for an unusual one.
    pub(super) machine: String,
    /// The path of its loader; empty if it is linked statically.
    pub(super) loader: String,
    /// The version of glibc that it needs, as `2.34`; empty without glibc.
    pub(super) glibc: String,
}

impl Program {
    /// Returns the program that this process runs.
    ///
    /// # Errors
    /// Its file can't be read, with a remedy.
    pub(super) fn current() -> Result<Program, BackendError> {
        let path = executable_name().map_err(unreadable)?;
        let build = BuildId::current().map_err(|error| error.to_string())?.to_string();
        let file = File::open(executable()).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        let data = ReadCache::new(file);
        let Requirements { loader, machine } = Requirements::of(&data).unwrap_or_default();
        let machine = machine.map(|name| format!("Linux {name}")).unwrap_or_default();
        let loader = loader.unwrap_or_default().to_string_lossy().into_owned();
        let glibc = newest_glibc(&data).map(|(major, minor)| format!("{major}.{minor}"));
        let glibc = glibc.unwrap_or_default();
        Ok(Program { name: file_name(&path), build, size, machine, loader, glibc })
    }

    /// Describes what it needs.
    pub(super) fn needs(&self) -> String {
        let libc = match (&*self.glibc, &*self.loader) {
            ("", "") => String::new(),
            ("", loader) => format!(" with {loader}"),
            (version, _) => format!(" with glibc {version} or later"),
        };
        format!("{}{libc}", self.machine)
    }
}

/// Explains why this program's file can't be read.
pub(super) fn unreadable(error: std::io::Error) -> String {
    format!("{}: {}", executable().display(), shortage::explain(&error))
}

/// Returns the file name of a program, with only such characters as no shell minds.
fn file_name(path: &Path) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = program_name(path).chars().map(plain).collect();
    // A name of dots would be a directory, and one after a dot a copy in progress.
    format!("{}{name}", if name.is_empty() || name.starts_with('.') { "program" } else { "" })
}

/// Returns the newest version of glibc whose symbols a program uses.
fn newest_glibc<'data>(data: impl ReadRef<'data>) -> Option<(u32, u32)> {
    let header = elf::FileHeader64::<object::Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let (mut libraries, strings) = sections.gnu_verneed(endian, data).ok()??;
    let strings = sections.strings(endian, data, strings).ok()?;
    let mut newest = None;
    while let Ok(Some((_, mut versions))) = libraries.next() {
        while let Ok(Some(version)) = versions.next() {
            let name = version.name(endian, strings).unwrap_or_default();
            newest = newest.max(std::str::from_utf8(name).ok().and_then(glibc_version));
        }
    }
    newest
}

/// Parses `GLIBC_2.34` or `GLIBC_2.2.5`.
fn glibc_version(symbols: &str) -> Option<(u32, u32)> {
    let mut numbers = symbols.strip_prefix("GLIBC_")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_knows_what_it_needs() {
        let program = Program::current().unwrap();
        assert_eq!(program.machine, format!("Linux {}", std::env::consts::ARCH));
        assert!(Path::new(&program.loader).exists(), "{program:?}");
        assert!(program.size > 1000);
        // Only the tests' C library is known to be glibc.
        if cfg!(target_env = "gnu") {
            assert!(program.glibc.starts_with("2."), "{program:?}");
            assert!(program.needs().contains("with glibc 2."), "{}", program.needs());
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(glibc_version("GLIBC_2.2.5"), Some((2, 2)));
        assert!(glibc_version("GLIBC_2.34") > glibc_version("GLIBC_2.4"));
        assert_eq!(glibc_version("GLIBC_PRIVATE"), None);
        assert_eq!(glibc_version("GCC_3.0"), None);
    }

    #[test]
    fn names_are_plain() {
        assert_eq!(file_name(Path::new("/a/my prog'ram (deleted)")), "my_prog_ram");
        assert_eq!(file_name(Path::new("/a/..")), "program");
        assert_eq!(file_name(Path::new("/a/.new")), "program.new");
    }
}
