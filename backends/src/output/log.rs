//! Logs: one file a process.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use fiber_core::{Error, OutputMode, Result};

use crate::JobSpec;

/// The file that a process prints to.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    pub(crate) file: File,
    /// Where what this process prints begins: the file may hold what an earlier one of the same
    /// name printed.
    start: u64,
}

impl Log {
    /// The one of a job that is to have one.
    pub(crate) fn of(spec: &JobSpec) -> Result<Option<Log>> {
        match spec.output {
            OutputMode::File => Log::open(spec).map(Some),
            _ => Ok(None),
        }
    }

    fn open(spec: &JobSpec) -> Result<Log> {
        let path = spec.log_dir.join(format!("{}.log", spec.name.replace('/', "-")));
        let open = || -> std::io::Result<Log> {
            fs::create_dir_all(&spec.log_dir)?;
            let file = OpenOptions::new().create(true).append(true).open(&path)?;
            let start = file.metadata()?.len();
            Ok(Log { path: path.clone(), file, start })
        };
        open().map_err(|error| Error::Start {
            name: spec.name.clone(),
            problem: format!(
                "its log `{}` can't be opened: {error} (set `log_dir` to a directory that can be written)",
                path.display()
            ),
        })
    }

    /// The last part of what the process printed.
    pub(crate) fn end(&self) -> Vec<u8> {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            let mut file = File::open(&self.path)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(self.start.max(length.saturating_sub(4 << 10))))?;
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().unwrap_or_default()
    }
}
