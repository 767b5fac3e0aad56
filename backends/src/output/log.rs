//! Log files, one for each process name.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use fiber_core::{Error, OutputMode, Result, open_own, shortage};

use crate::JobSpec;

/// The log file of a process.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    pub(crate) file: File,
    /// The offset where this process's output begins. An earlier process of the same name may have
    /// written the file's first part.
    start: u64,
}

impl Log {
    /// Opens the log file of a job with [`OutputMode::File`].
    pub(crate) fn of(spec: &JobSpec) -> Result<Option<Log>> {
        match spec.output.mode {
            OutputMode::File => Log::open(spec).map(Some),
            _ => Ok(None),
        }
    }

    fn open(spec: &JobSpec) -> Result<Log> {
        let path = spec.log_dir.join(format!("{}.log", spec.name.replace('/', "-")));
        let open = || -> std::io::Result<Log> {
            fs::create_dir_all(&spec.log_dir)?;
            let file = open_own(&path, OpenOptions::new().append(true))?;
            let start = file.metadata()?.len();
            Ok(Log { path: path.clone(), file, start })
        };
        open().map_err(|error| {
            let problem = format!(
                "its log file `{}` can't be opened: {} (set `log_dir` to a writable \
                 directory)",
                path.display(),
                shortage::explain(&error)
            );
            Error::not_started(&spec.name, problem)
        })
    }

    /// Returns the last 4 KiB of the process's output.
    pub(crate) fn tail(&self) -> Vec<u8> {
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
