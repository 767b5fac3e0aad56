//! The files of a pilot on the shared file system.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fiber_core::create_private_dir;
use rustix::fs::OFlags;

use super::{ID, PilotRequest};
use crate::BackendError;
use crate::batch::records::{EXIT, GRACE, NODE};

/// The ends of the names of all files.
const KINDS: [&str; 5] = ["key", "out", EXIT, GRACE, NODE];
/// The size of the output whose end is kept, in bytes.
const TAIL: u64 = 4 << 10;
/// Neither a link is followed, nor a pipe waited for.
const OWN_FILE: i32 = (OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits()) as i32;

/// The files of a pilot, which are removed with this.
#[derive(Debug)]
pub struct PilotFiles {
    key: PathBuf,
}

impl PilotFiles {
    /// Writes the private lines of a pilot and the secrets of its host, for this user alone.
    pub(super) fn create(
        request: &PilotRequest<'_>,
        mut content: Vec<u8>,
        section: &str,
    ) -> Result<PilotFiles, BackendError> {
        let key = &request.key;
        content.extend_from_slice(request.spec.secret_lines().as_bytes());
        let create = || {
            // Others could put links to this user's files at names that pilots write, and secrets
            // of their own in the place of these.
            create_private_dir(key.parent().unwrap_or(Path::new(".")))?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(key)?;
            file.write_all(&content)
        };
        let files = PilotFiles { key: key.clone() };
        create().map(|()| files).map_err(|error| {
            refused!(
                "the file `{}` can't be written: {error} (set `{section}.dir` to a directory that \
                 all nodes share)",
                key.display()
            )
        })
    }

    /// Returns the path of one of the files.
    pub fn path(&self, kind: &str) -> PathBuf {
        self.key.with_extension(kind)
    }

    /// Returns the end of the output.
    pub(super) fn tail(&self) -> Vec<u8> {
        let tail = || {
            let path = self.path("out");
            // It may be of any size.
            let mut file = OpenOptions::new().read(true).custom_flags(OWN_FILE).open(path)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
            let mut bytes = Vec::new();
            file.take(TAIL).read_to_end(&mut bytes)?;
            io::Result::Ok(bytes)
        };
        tail().unwrap_or_default()
    }
}

impl Drop for PilotFiles {
    fn drop(&mut self) {
        for kind in KINDS {
            let _ = fs::remove_file(self.path(kind));
        }
    }
}

/// A file of a pilot of any process.
pub(super) struct LeftFile {
    pub(super) path: PathBuf,
    /// The id of the pilot.
    pub(super) id: String,
    pub(super) written: SystemTime,
}

/// Returns the files of pilots in a directory.
pub(super) fn all(directory: &Path) -> Result<Vec<LeftFile>, BackendError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => {
            entries.map_err(|error| format!("{} can't be read: {error}", directory.display()))?
        }
    };
    let file = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let path = entry.path();
        let is_of_pilot = path.extension().is_some_and(|kind| KINDS.iter().any(|one| kind == *one));
        let id = path.file_stem()?.to_str().filter(|id| is_of_pilot && id.starts_with(ID))?;
        let written = entry.metadata().ok()?.modified().ok()?;
        Some(LeftFile { id: id.to_string(), written, path })
    };
    Ok(entries.filter_map(file).collect())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::batch::pilot::sample_spec;

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("pilots");
        let spec = sample_spec();
        let create = || {
            let key = directory.join("fiber-1.key");
            PilotFiles::create(&PilotRequest { id: "fiber-1", key, spec: &spec }, vec![], "slurm")
        };
        let files = create().unwrap();
        assert!(!format!("{spec:?} {files:?}").contains("hush"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&files.path("key"))), (0o700, 0o600));
        drop(files);
        fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        let problem = create().unwrap_err().to_string();
        let place = directory.display();
        assert!(problem.contains(&format!("other users can write `{place}`")), "{problem}");
        assert!(problem.contains("set `slurm.dir`"), "{problem}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }
}
