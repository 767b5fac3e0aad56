//! The loader and libraries that a program needs.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::elf;
use object::read::elf::{FileHeader, SectionHeader};
use object::read::{ReadCache, ReadRef};

use crate::BackendError;

/// A library of a program.
#[derive(Clone, Debug)]
pub(super) struct Library {
    pub(super) path: PathBuf,
    /// The name by which programs ask for it (its soname).
    pub(super) name: String,
}

/// Returns the files with executable mappings in this table of `/proc/PID/maps`.
pub(super) fn executable_mappings(maps: &[u8]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = lines(maps)
        .filter_map(|line| {
            let mut fields = line.splitn(6, |byte| *byte == b' ').skip(1);
            let rights = fields.next()?;
            let path = fields.nth(3)?.trim_ascii_start();
            (rights.contains(&b'x') && path.starts_with(b"/")).then(|| path_of(path))
        })
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn path_of(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

/// Lists the libraries of a program, by asking its loader.
///
/// # Errors
/// The reason why they can't be listed, with a remedy.
pub(super) fn list_libraries(
    program: &Path,
    loader: &Path,
    machine: Option<&str>,
) -> Result<Vec<Library>, BackendError> {
    let shown = program.display();
    if machine != Some(std::env::consts::ARCH) {
        return Err(refused!(
            "`{shown}` is for another architecture ({}) than this host ({}): build it for this \
             one, or name an image that has it",
            machine.unwrap_or("an unusual one"),
            std::env::consts::ARCH
        ));
    }
    let listing = Command::new(loader).arg("--list").arg(program).output().map_err(|error| {
        format!(
            "the loader of `{shown}`, {}, can't be run: {error}; link it statically, or name an \
             image",
            loader.display()
        )
    })?;
    let stdout = String::from_utf8_lossy(&listing.stdout);
    if let Some(missing) = missing_in(&stdout) {
        return Err(refused!(
            "`{shown}` needs the library {missing}, which is not found: install it, or set \
             LD_LIBRARY_PATH"
        ));
    }
    if !listing.status.success() {
        let problem = String::from_utf8_lossy(&listing.stderr);
        return Err(refused!("the libraries of `{shown}` can't be listed: {}", problem.trim()));
    }
    Ok(listed(&listing.stdout))
}

/// Parses the loader's listing, one `name => path (address)` a line. Entries without a path are
/// the kernel's, or the loader itself.
fn listed(listing: &[u8]) -> Vec<Library> {
    let library = |line: &[u8]| {
        let arrow = line.windows(4).position(|part| part == b" => ")?;
        let (name, found) = (line[..arrow].trim_ascii(), &line[arrow + 4..]);
        let path = &found[..found.windows(2).rposition(|part| part == b" (")?];
        let name = path_of(name).file_name()?.to_string_lossy().into_owned();
        path.starts_with(b"/").then(|| Library { path: path_of(path), name })
    };
    lines(listing).filter_map(library).collect()
}

fn missing_in(listing: &str) -> Option<&str> {
    listing.lines().find_map(|line| line.trim().strip_suffix(" => not found"))
}

/// Returns a library's soname, or else its file name.
///
/// # Errors
/// The file can't be read.
pub(super) fn soname_or_file_name(path: &Path) -> io::Result<String> {
    let cache = ReadCache::new(File::open(path)?);
    let name = soname(&cache).map(|name| String::from_utf8_lossy(name).into_owned());
    Ok(name.unwrap_or_else(|| path.file_name().unwrap_or_default().to_string_lossy().into_owned()))
}

fn soname<'data, R: ReadRef<'data>>(data: R) -> Option<&'data [u8]> {
    let header = elf::FileHeader64::<object::Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    sections.iter().find_map(|section| {
        let (entries, strings) = section.dynamic(endian, data).ok()??;
        let strings = sections.strings(endian, data, strings).ok()?;
        entries.iter().find_map(|entry| {
            use object::read::elf::Dyn;
            let wanted = entry.tag32(endian) == Some(elf::DT_SONAME);
            wanted.then(|| strings.get(entry.val32(endian)?).ok()).flatten()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaders_list_of_libraries_is_parsed() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/with space/libc.so.6 \
                    (0x00007f00)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n";
        let libraries = listed(listing.as_bytes());
        assert_eq!(libraries.len(), 1);
        assert_eq!(
            (libraries[0].name.as_str(), &*libraries[0].path),
            ("libc.so.6", Path::new("/lib/with space/libc.so.6"))
        );
        assert_eq!(missing_in(listing), None);
        assert_eq!(missing_in("\tlibz.so.1 => not found\n"), Some("libz.so.1"));
    }

    #[test]
    fn only_executable_mappings_count_as_code() {
        let maps = b"55d0-55d1 r--p 00000000 08:01 1   /bin/program\n\
                    55d1-55d2 r-xp 00001000 08:01 1   /bin/program\n\
                    7f00-7f01 r-xp 00000000 08:01 2   /lib/with space.so\n\
                    7f01-7f02 rw-p 00000000 00:00 0 \n\
                    7f01-7f02 r-xp 00000000 08:01 3   /lib/caf\xe9.so\n\
                    7f02-7f03 r--p 00000000 08:01 3   /data\n\
                    7ffd-7ffe r-xp 00000000 00:00 0   [vdso]\n";
        assert_eq!(
            executable_mappings(maps),
            [path_of(b"/bin/program"), path_of(b"/lib/caf\xe9.so"), path_of(b"/lib/with space.so")]
        );
    }
}
