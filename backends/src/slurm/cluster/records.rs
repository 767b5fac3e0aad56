//! The records of this user's sessions on one cluster: the files of their output.
//!
//! Each is `NAME.JOB.out` in a folder of the user's home, which login nodes and compute nodes share.
//! A session is removed when its record is.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, fs, io};

/// The folder of the records of one cluster.
#[derive(Debug)]
pub(super) struct Records {
    folder: PathBuf,
}

/// The record of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The name of the session.
    pub(super) name: String,
    /// The id of its job.
    pub(super) id: String,
    /// When the output was written last.
    pub(super) written: Option<SystemTime>,
}

impl Record {
    /// Returns whether nothing was written for some time.
    pub(super) fn is_older_than(&self, time: Duration) -> bool {
        let age = self.written.and_then(|written| written.elapsed().ok());
        age.is_some_and(|age| age > time)
    }
}

impl Records {
    /// Opens the records of a cluster. Creates nothing.
    pub(super) fn open(cluster: &str) -> Result<Records, String> {
        Ok(Records { folder: folder()?.join(cluster) })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn path(&self, name: &str, id: &str) -> PathBuf {
        self.folder.join(format!("{name}.{id}.out"))
    }

    pub(super) fn has(&self, name: &str, id: &str) -> bool {
        self.path(name, id).exists()
    }

    pub(super) fn create_folder(&self) -> Result<(), String> {
        fs::create_dir_all(&self.folder).map_err(|error| {
            format!(
                "the folder {} for output can't be created: {error}: set XDG_STATE_HOME to a \
                 folder that all nodes share",
                self.folder.display()
            )
        })
    }

    /// Creates the record of a job. The job may have created it, and written to it, already.
    pub(super) fn create(&self, name: &str, id: &str) -> Result<(), String> {
        let path = self.path(name, id);
        let created = fs::OpenOptions::new().create(true).append(true).open(&path);
        created.map(drop).map_err(|error| format!("{} can't be written: {error}", path.display()))
    }

    pub(super) fn remove(&self, name: &str, id: &str) -> Result<(), String> {
        let path = self.path(name, id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("{} can't be removed: {error}", path.display()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn all(&self) -> Result<Vec<Record>, String> {
        let unreadable = |error: io::Error| {
            format!("the folder {} can't be read: {error}", self.folder.display())
        };
        let mut records = Vec::new();
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(records),
            entries => entries.map_err(unreadable)?,
        };
        for entry in entries {
            let entry = entry.map_err(unreadable)?;
            let file = entry.file_name();
            let names = file.to_str().and_then(|file| file.strip_suffix(".out"));
            if let Some((name, id)) = names.and_then(|names| names.rsplit_once('.')) {
                let written = entry.metadata().and_then(|metadata| metadata.modified()).ok();
                records.push(Record { name: name.into(), id: id.into(), written });
            }
        }
        Ok(records)
    }
}

/// Returns the folder of all clusters' records.
fn folder() -> Result<PathBuf, String> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    let missing = "HOME is not set: set XDG_STATE_HOME to a folder that all nodes share";
    Ok(state.ok_or(missing)?.join("fiber/slurm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_file_of_output() {
        let folder = tempfile::tempdir().expect("there is room");
        let records = Records { folder: folder.path().join("cluster") };
        assert_eq!(records.all(), Ok(Vec::new()));
        records.create_folder().unwrap();
        fs::write(records.path("job-1", "17"), "said").unwrap();
        records.create("job-1", "17").unwrap();
        assert_eq!(fs::read_to_string(records.path("job-1", "17")).unwrap(), "said");
        let all = records.all().unwrap();
        assert_eq!((all.len(), all[0].name.as_str(), all[0].id.as_str()), (1, "job-1", "17"));
        records.remove("job-1", "17").unwrap();
        records.remove("job-1", "17").unwrap();
        assert!(!records.has("job-1", "17"));
    }
}
