//! Log files, one for each process name.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use fiber_core::{OutputMode, create_own_dir, open_own, shortage};

use crate::{BackendError, JobSpec};

/// The log file of a process.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) file: File,
    /// The offset where this process's output begins. An earlier process of the same name may have
    /// written the file's first part.
    start: u64,
}

impl Log {
    /// Opens the log file of a job with [`OutputMode::File`].
    pub(crate) fn of(spec: &JobSpec) -> Result<Option<Log>, BackendError> {
        match spec.output.mode {
            OutputMode::File => Log::open(spec).map(Some),
            _ => Ok(None),
        }
    }

    fn open(spec: &JobSpec) -> Result<Log, BackendError> {
        let path = spec.log_dir.join(format!("{}.log", spec.name.replace('/', "-")));
        let open = || -> std::io::Result<Log> {
            create_own_dir(&spec.log_dir)?;
            let file = open_own(&path, OpenOptions::new().read(true).append(true))?;
            let start = file.metadata()?.len();
            Ok(Log { file, start })
        };
        open().map_err(|error| {
            let message = format!(
                "its log file `{}` can't be opened: {} (set `log_dir` to a writable directory)",
                path.display(),
                shortage::explain(&error)
            );
            BackendError::of_system(&error, message)
        })
    }

    /// Returns the last 4 KiB of the process's output.
    pub(crate) fn tail(&self) -> Vec<u8> {
        let read = || -> std::io::Result<Vec<u8>> {
            let length = self.file.metadata()?.len();
            let begin = self.start.max(length.saturating_sub(4 << 10));
            let mut bytes = vec![0; length.saturating_sub(begin) as usize];
            self.file.read_exact_at(&mut bytes, begin)?;
            Ok(bytes)
        };
        read().unwrap_or_default()
    }
}
