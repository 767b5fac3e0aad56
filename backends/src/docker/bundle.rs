//! A program with its loader and libraries, as the file system of an image. Other programs may come
//! with it.
//!
//! For this program, the libraries are those that the loader has mapped into this very process. For
//! another program, its own loader lists them. Each library keeps its path, and a directory in
//! LD_LIBRARY_PATH gets a link to it under the name by which the program asks for it.

mod libraries;

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use fiber_core::{BuildId, executable, executable_name, shortage, start_thread};
use futures_util::Stream;
use object::read::ReadCache;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use self::libraries::{Library, executable_mappings, list_libraries, soname_or_file_name};
use super::strip::Stripped;
use crate::elf::Requirements;
use crate::{BackendError, program_name};

const PROGRAMS: &str = "/fiber/bin";
const LIBRARIES: &str = "/fiber/lib";
/// The size in bytes of a chunk for the engine, and the number of chunks that may wait.
const CHUNK: usize = 256 << 10;
const CHUNKS: usize = 4;

/// The contents of an image.
#[derive(Debug)]
pub(super) struct Bundle {
    /// The program's file name.
    pub(super) name: String,
    pub(super) build: BuildId,
    pub(super) bytes: u64,
    /// Its architecture, as in `uname -m`. `None` for an unusual one.
    pub(super) machine: Option<&'static str>,
    executable: Executable,
    libraries: Vec<Library>,
    /// Programs that this one starts, which keep their paths.
    others: Vec<(BuildId, Executable)>,
}

/// The file of a program.
#[derive(Clone, Debug)]
struct Executable {
    path: PathBuf,
    /// The file without its debug sections, if it has some.
    stripped: Option<Stripped>,
    /// Its loader, if it is dynamically linked.
    loader: Option<PathBuf>,
}

impl Bundle {
    /// Bundles this program with the libraries that it has loaded.
    ///
    /// # Errors
    /// A file that can't be read, with a remedy.
    pub(super) fn of_this_program() -> Result<Bundle, BackendError> {
        let executable = executable().to_owned();
        let unreadable =
            |error: io::Error| format!("{} can't be read: {error}", executable.display());
        let own = executable_name().map_err(unreadable)?;
        let name = program_name(&own);
        let requirements = requirements_of(&executable).map_err(unreadable)?;
        let maps =
            fs::read("/proc/self/maps").map_err(|error| format!("/proc/self/maps: {error}"))?;
        let mut libraries = Vec::new();
        let is_library = |path: &PathBuf| *path != own;
        for path in executable_mappings(&maps).into_iter().filter(is_library) {
            if path.to_string_lossy().ends_with(" (deleted)") {
                return Err(refused!(
                    "its library {} was replaced since this process started: restart the program",
                    path.display()
                ));
            }
            let name = soname_or_file_name(&path)
                .map_err(|error| format!("its library {}: {error}", path.display()))?;
            libraries.push(Library { path, name });
        }
        let build = BuildId::current().map_err(|error| error.to_string())?.clone();
        Ok(Bundle::new(name, build, executable, requirements, libraries))
    }

    /// Bundles any program with the libraries that its loader finds on this host.
    ///
    /// # Errors
    /// The reason why it can't be bundled, with a remedy.
    pub(super) fn of(program: &Path) -> Result<Bundle, BackendError> {
        let shown = program.display();
        let unreadable = |error: io::Error| format!("`{shown}` can't be read: {error}");
        let mut head = [0; 4];
        let read = File::open(program)
            .and_then(|mut file| io::Read::read(&mut file, &mut head))
            .map_err(unreadable)?;
        if head[..read.min(2)] == *b"#!" {
            return Err(refused!(
                "`{shown}` is a script, and fiber builds images of compiled programs only: name an \
                 image that has its interpreter"
            ));
        }
        let requirements = requirements_of(program).map_err(|_| {
            format!(
                "`{shown}` is no program for Linux (64-bit ELF): build it for Linux, or name \
                     an image that has it"
            )
        })?;
        let libraries = match &requirements.loader {
            Some(loader) => list_libraries(program, loader, requirements.machine)?,
            None => Vec::new(),
        };
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let build = BuildId::of(program).map_err(unreadable)?;
        Ok(Bundle::new(name, build, program.to_path_buf(), requirements, libraries))
    }

    /// Adds programs with their libraries.
    ///
    /// # Errors
    /// A program can't be bundled, or needs other libraries than this one.
    pub(super) fn with(mut self, programs: &[String]) -> Result<Bundle, BackendError> {
        for program in programs {
            let path = Path::new(program);
            if !path.is_absolute() {
                return Err(refused!("`{program}` is no absolute path: correct `bundle`"));
            }
            if self.others.iter().any(|(_, other)| other.path == path) {
                continue;
            }
            let other = Bundle::of(path)?;
            if other.machine != self.machine {
                return Err(refused!(
                    "`{program}` is for another architecture than `{}`",
                    self.name
                ));
            }
            for library in other.libraries {
                self.add_library(library, program)?;
            }
            self.bytes += size(path);
            self.others.push((other.build, other.executable));
        }
        Ok(self)
    }

    /// Adds a library, unless the bundle has it.
    fn add_library(&mut self, library: Library, program: &str) -> Result<(), BackendError> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        match self.libraries.iter().find(|other| other.name == library.name) {
            None => {
                self.bytes += size(&library.path);
                self.libraries.push(library);
            }
            Some(other) if real(&other.path) == real(&library.path) => {}
            Some(other) => {
                return Err(refused!(
                    "`{program}` and `{}` need different libraries `{}` ({} and {}), so one image \
                     can't have both: name an image that has them",
                    self.name,
                    library.name,
                    library.path.display(),
                    other.path.display()
                ));
            }
        }
        Ok(())
    }

    fn new(
        name: String,
        build: BuildId,
        path: PathBuf,
        Requirements { loader, machine }: Requirements,
        libraries: Vec<Library>,
    ) -> Bundle {
        // Without the linker's id, the id is a hash of all bytes.
        let stripped = match build.is_from_linker() {
            true => Stripped::of(&path).ok().flatten(),
            false => None,
        };
        let program = stripped.as_ref().map_or_else(|| size(&path), Stripped::len);
        let bytes = program + libraries.iter().map(|library| size(&library.path)).sum::<u64>();
        let executable = Executable { path, stripped, loader };
        Bundle { name, build, bytes, machine, executable, libraries, others: Vec::new() }
    }

    /// Returns the tag of the image in a repository of this name, which is another one for each build
    /// of each program. Programs whose names differ in characters that repositories lack share one.
    pub(super) fn tag(&self, repository: &str) -> String {
        let is_its_own = self.name == repository;
        if self.others.is_empty() && is_its_own {
            return self.build.to_string();
        }
        let mut hasher = DefaultHasher::new();
        if !is_its_own {
            self.name.hash(&mut hasher);
        }
        for (build, Executable { path, .. }) in &self.others {
            (path, build).hash(&mut hasher);
        }
        format!("{}-{:016x}", self.build, hasher.finish())
    }

    /// Returns the program's path in the image.
    pub(super) fn program(&self) -> String {
        format!("{PROGRAMS}/{}", self.name)
    }

    /// Returns the environment variables for the loader.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        match self.libraries.is_empty() {
            true => Vec::new(),
            false => vec![("LD_LIBRARY_PATH".into(), LIBRARIES.into())],
        }
    }

    /// Returns the file system as a tar archive, which a thread writes while it is read.
    pub(super) fn tar(&self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let (chunks, receiver) = mpsc::channel(CHUNKS);
        let others = self.others.iter().map(|(_, other)| (other.path.clone(), other.clone()));
        let own = (PathBuf::from(self.program()), self.executable.clone());
        let programs: Vec<_> = std::iter::once(own).chain(others).collect();
        // A loader may be a symbolic link, and a library itself.
        let mut loaders: Vec<PathBuf> = Vec::new();
        for loader in programs.iter().filter_map(|(_, program)| program.loader.as_ref()) {
            if !loaders.contains(loader) {
                loaders.push(loader.clone());
            }
        }
        let libraries = self.libraries.clone();
        let refused = chunks.clone();
        let write = move || {
            let mut sink = Sink { chunks, buffer: Vec::with_capacity(CHUNK) };
            let written =
                write(&mut sink, &programs, &loaders, &libraries).and_then(|()| sink.flush());
            if let Err(error) = written {
                // The receiver is gone if the engine gave up.
                let _ = sink.chunks.blocking_send(Err(error));
            }
        };
        if let Err(error) = start_thread("fiber-tar", write) {
            let error = io::Error::new(error.kind(), shortage::explain(&error));
            refused.try_send(Err(error)).expect("nothing was sent before");
        }
        ReceiverStream::new(receiver)
    }
}

fn requirements_of(program: &Path) -> io::Result<Requirements> {
    Requirements::of(&ReadCache::new(File::open(program)?))
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |data| data.len())
}

/// Writes the archive. Programs have their paths in it.
fn write(
    sink: &mut Sink,
    programs: &[(PathBuf, Executable)],
    loaders: &[PathBuf],
    libraries: &[Library],
) -> io::Result<()> {
    let mut tar = tar::Builder::new(sink);
    let mut temporary = header(tar::EntryType::Directory, 0o1777, 0);
    tar.append_data(&mut temporary, "tmp/", io::empty())?;
    for (target, Executable { path, stripped, .. }) in programs {
        match stripped {
            Some(stripped) => {
                let mut header = header(tar::EntryType::Regular, 0o755, stripped.len());
                tar.append_data(&mut header, relative(target), stripped.open(path)?)?;
            }
            None => file(&mut tar, path, target)?,
        }
    }
    for loader in loaders {
        file(&mut tar, loader, loader)?;
    }
    for library in libraries {
        if !loaders.contains(&library.path) {
            file(&mut tar, &library.path, &library.path)?;
        }
        let mut link = header(tar::EntryType::Symlink, 0o777, 0);
        tar.append_link(
            &mut link,
            relative(&Path::new(LIBRARIES).join(&library.name)),
            &library.path,
        )?;
    }
    tar.finish()
}

fn file(tar: &mut tar::Builder<&mut Sink>, source: &Path, target: &Path) -> io::Result<()> {
    let file = File::open(source).map_err(|error| {
        io::Error::new(error.kind(), format!("{} can't be read: {error}", source.display()))
    })?;
    let mut header = header(tar::EntryType::Regular, 0o755, file.metadata()?.len());
    tar.append_data(&mut header, relative(target), file)
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// A writer that sends chunks of its input to a channel.
struct Sink {
    chunks: mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = CHUNK - self.buffer.len();
        let taken = bytes.len().min(room);
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == CHUNK {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        let full = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK));
        if full.is_empty() {
            return Ok(());
        }
        let gone =
            |_| io::Error::new(io::ErrorKind::BrokenPipe, "the Docker engine stopped reading");
        self.chunks.blocking_send(Ok(full.into())).map_err(gone)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_program_is_bundled_with_its_loader_and_libraries() {
        let bundle = Bundle::of_this_program().unwrap();
        assert!(bundle.bytes > 1 << 20);
        let loader = bundle.executable.loader.as_ref();
        assert!(loader.is_some_and(|loader| loader.is_file()), "{bundle:?}");
        assert!(bundle.libraries.iter().any(|library| library.name == "libc.so.6"), "{bundle:?}");
    }

    #[test]
    fn another_program_is_bundled_with_the_libraries_of_its_loader() {
        let own = std::env::current_exe().unwrap();
        let (other, this) = (Bundle::of(&own).unwrap(), Bundle::of_this_program().unwrap());
        assert_eq!(
            (other.build, other.executable.loader, other.machine),
            (this.build, this.executable.loader, this.machine)
        );
        let names = |bundle: &[Library]| {
            bundle.iter().map(|library| library.name.clone()).collect::<Vec<_>>()
        };
        assert!(
            names(&other.libraries).contains(&"libc.so.6".to_string()),
            "{:?}",
            other.libraries
        );
    }

    #[test]
    fn programs_of_one_build_in_one_repository_have_tags_of_their_own() {
        let named = |name: &str| {
            let bundle = Bundle::of_this_program().unwrap();
            Bundle { name: name.into(), ..bundle }.tag("lab_2")
        };
        let build = Bundle::of_this_program().unwrap().build.to_string();
        assert_eq!(named("lab_2"), build);
        assert_ne!(named("lab-2"), build);
        assert_ne!(named("lab-2"), named("Lab-2"));
    }

    #[test]
    fn other_programs_come_with_their_libraries_and_change_the_tag() {
        let alone = Bundle::of_this_program().unwrap();
        let tag = alone.tag("own");
        let both = alone.with(&["/bin/ls".to_string(), "/bin/ls".to_string()]).unwrap();
        assert_eq!((both.others.len(), both.tag("own") == tag), (1, false));
        let needed = Bundle::of(Path::new("/bin/ls")).unwrap().libraries;
        let has = |name: &str| both.libraries.iter().any(|library| library.name == name);
        assert!(!needed.is_empty() && needed.iter().all(|library| has(&library.name)));
        let libraries: Vec<_> = both.libraries.iter().map(|library| &library.name).collect();
        let once: std::collections::BTreeSet<_> = libraries.iter().collect();
        assert_eq!(libraries.len(), once.len(), "{libraries:?}");
    }

    #[test]
    fn other_programs_that_cannot_be_bundled_are_refused() {
        let refused = |path: &str| {
            Bundle::of_this_program().unwrap().with(&[path.to_string()]).unwrap_err().to_string()
        };
        assert!(refused("ls").contains("no absolute path"));
        assert!(refused("/no/such").contains("can't be read"));
        let other = Library { path: "/no/such/libc.so.6".into(), name: "libc.so.6".into() };
        let mut bundle = Bundle::of_this_program().unwrap();
        let problem = bundle.add_library(other, "/bin/x").unwrap_err().to_string();
        assert!(problem.contains("different libraries `libc.so.6`"), "{problem}");
    }

    #[test]
    fn a_file_that_is_no_program_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, bytes).unwrap();
            Bundle::of(&path).unwrap_err().to_string()
        };
        assert!(refused("script", b"#!/bin/sh\n").contains("is a script"));
        assert!(refused("text", b"hello").contains("no program for Linux"));
        assert!(refused("empty", b"").contains("no program for Linux"));
        assert!(
            Bundle::of(Path::new("/no/such")).unwrap_err().to_string().contains("can't be read")
        );
    }

    #[test]
    fn a_program_may_be_in_a_folder_of_any_name_and_needs_its_loader() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join(OsStr::from_bytes(b"caf\xe9"));
        fs::create_dir(&folder).unwrap();
        let program = folder.join("ls");
        let mut bytes = fs::read("/bin/ls").unwrap();
        fs::write(&program, &bytes).unwrap();
        let loader = Bundle::of(&program).unwrap().executable.loader.unwrap();
        let loader = loader.as_os_str().as_bytes();
        let place = bytes.windows(loader.len()).position(|part| part == loader).unwrap();
        bytes[place + 1] = b'?';
        fs::write(&program, bytes).unwrap();
        let problem = Bundle::of(&program).unwrap_err().to_string();
        assert!(problem.contains("/?") && problem.contains("can't be run"), "{problem}");
    }

    #[test]
    fn a_program_of_another_architecture_is_refused() {
        let mut bytes = fs::read(executable()).unwrap();
        // e_machine, little-endian, of a SPARC.
        bytes[18..20].copy_from_slice(&[43, 0]);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        assert!(Bundle::of(file.path()).unwrap_err().to_string().contains("another architecture"));
    }
}
