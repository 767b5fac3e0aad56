//! The records of this user's sessions on one cluster: the files of their output.
//!
//! Each is `NAME.JOB.out` in a folder of the user's home, which login nodes and compute nodes
//! share. Beside it are the exit code, `NAME.JOB.exit`, and the output of hosts, in
//! `NAME.JOB.hosts`. A session is removed when its record is.
//!
//! A copy of a session's program, or its environment, is in `sessions/SESSION`: the id of a job is
//! not known before it may start.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, fs, io};

use fiber_core::create_own_dir;

use crate::BackendError;
use crate::cluster::session::ExitStatus;

/// The end of the name of a file with an exit code.
pub const EXIT: &str = "exit";
/// The end of the name of a folder with the output of hosts.
pub(crate) const HOSTS: &str = "hosts";
/// The end of the name of a file with the session and the program of a job, for batch systems that
/// do not keep them.
const ABOUT: &str = "session";
/// The end of the name of a file with the seconds that a head has to end, once it is asked to.
pub const GRACE: &str = "grace";
/// The end of the name of a file with the name of the host that runs the script.
pub const NODE: &str = "node";
/// The end of the name of a file with the number of restarts.
pub const RESTARTS: &str = "restarts";
/// The text in place of an exit code while the program runs.
const STARTED: &str = "started";
/// The folder of what jobs need before their ids are known.
const SESSIONS: &str = "sessions";

/// Returns the path of the copy of a program.
pub fn copy_path(folder: &Path, session: &str, original: &Path) -> PathBuf {
    let name = original.file_name().unwrap_or(OsStr::new("program"));
    folder.join(SESSIONS).join(session).join(name)
}

/// Returns the path of the file with the environment of a session.
pub fn environment_path(folder: &Path, session: &str) -> PathBuf {
    folder.join(SESSIONS).join(session).join("environment")
}

/// The folder of the records of one cluster.
#[derive(Debug)]
pub struct Records {
    folder: PathBuf,
}

/// The record of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The name of the session.
    pub name: String,
    /// The id of its job.
    pub id: String,
    /// When the output was written last.
    pub written: Option<SystemTime>,
}

impl Record {
    /// Returns whether nothing was written for some time.
    pub(crate) fn is_older_than(&self, time: Duration) -> bool {
        is_older_than(self.written, time)
    }
}

fn is_older_than(written: Option<SystemTime>, time: Duration) -> bool {
    let age = written.and_then(|written| written.elapsed().ok());
    age.is_some_and(|age| age > time)
}

fn remove_folder(path: &Path) -> Result<(), BackendError> {
    removed(fs::remove_dir_all(path), path)
}

/// Returns the problem if something could not be removed. What does not exist is removed.
fn removed(result: io::Result<()>, path: &Path) -> Result<(), BackendError> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(refused!("{} can't be removed: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

impl Records {
    /// Opens the records of a cluster of a backend. Creates nothing.
    pub fn open(backend: &str, cluster: &str) -> Result<Records, BackendError> {
        Ok(Records { folder: folder()?.join(backend).join(cluster) })
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the file of a session's output.
    pub fn path(&self, name: &str, id: &str) -> PathBuf {
        self.file(name, id, "out")
    }

    fn file(&self, name: &str, id: &str, kind: &str) -> PathBuf {
        self.folder.join(format!("{name}.{id}.{kind}"))
    }

    /// Returns the folder of the output of a session's hosts, which they create.
    pub(crate) fn hosts(&self, name: &str, id: &str) -> PathBuf {
        self.file(name, id, HOSTS)
    }

    /// Returns how the program has ended, from the exit code that the batch script has written,
    /// and the reason behind it.
    pub fn ended(&self, record: &Record) -> Option<ExitStatus> {
        ended_in(&self.file(&record.name, &record.id, EXIT))
    }

    pub(crate) fn has(&self, name: &str, id: &str) -> bool {
        self.path(name, id).exists()
    }

    /// Creates the folder.
    ///
    /// # Errors
    /// It can't be created.
    pub fn create_folder(&self) -> Result<(), BackendError> {
        create_own_dir(&self.folder).map_err(|error| {
            refused!(
                "the folder {} for output can't be created: {error}: set XDG_STATE_HOME to a \
                 folder that all nodes share",
                self.folder.display()
            )
        })
    }

    /// Fails if a session that has ended has left its output under this name: commands could not
    /// tell both from each other, and would remove both.
    pub fn must_be_free(&self, name: &str) -> Result<(), BackendError> {
        match self.all()?.iter().find(|record| record.name == name) {
            None => Ok(()),
            Some(record) => Err(refused!(
                "the output of an earlier session `{name}` is in {}: choose another name, or \
                 remove it (`fiber kill {name}`)",
                self.path(name, &record.id).display()
            )),
        }
    }

    /// Creates the record of a job. The job may have created it, and written to it, already.
    pub(crate) fn create(&self, name: &str, id: &str) -> Result<(), BackendError> {
        let path = self.path(name, id);
        let created = fs::OpenOptions::new().create(true).append(true).open(&path);
        created.map(drop).map_err(|error| refused!("{} can't be written: {error}", path.display()))
    }

    /// Creates the record of a job, with its session and its program.
    pub fn describe(
        &self,
        name: &str,
        id: &str,
        session: &str,
        program: &str,
    ) -> Result<(), BackendError> {
        self.write(name, id, ABOUT, &format!("{session} {program}\n"))?;
        self.create(name, id)
    }

    /// Returns the session and the program of a job, and when it was submitted.
    pub fn description(&self, record: &Record) -> Option<(String, String, Option<SystemTime>)> {
        let path = self.file(&record.name, &record.id, ABOUT);
        let text = fs::read_to_string(&path).ok()?;
        let (session, program) = text.trim_end_matches('\n').split_once(' ')?;
        let written = fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
        Some((session.to_string(), program.to_string(), written))
    }

    /// Returns whether the batch script has begun, and has written no exit code yet.
    pub fn has_started(&self, record: &Record) -> bool {
        has_started_in(&self.file(&record.name, &record.id, EXIT))
    }

    /// Returns how often the program was started again, as the batch script has counted.
    pub fn restarts(&self, record: &Record) -> u64 {
        let text = fs::read_to_string(self.file(&record.name, &record.id, RESTARTS));
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// Returns the host on which the batch script has begun last.
    pub fn node(&self, record: &Record) -> Option<String> {
        let text = fs::read_to_string(self.file(&record.name, &record.id, NODE)).ok()?;
        Some(text.trim().to_string()).filter(|name| !name.is_empty())
    }

    /// Says to the batch script how long the head has to end.
    pub fn write_grace(&self, name: &str, id: &str, seconds: u32) -> Result<(), BackendError> {
        self.write(name, id, GRACE, &format!("{seconds}\n"))
    }

    fn write(&self, name: &str, id: &str, kind: &str, text: &str) -> Result<(), BackendError> {
        let path = self.file(name, id, kind);
        fs::write(&path, text)
            .map_err(|error| refused!("{} can't be written: {error}", path.display()))
    }

    /// Removes the record of a job, and all files beside it.
    pub fn remove(&self, name: &str, id: &str) -> Result<(), BackendError> {
        remove_folder(&self.hosts(name, id))?;
        // The record itself is the last: without it, nothing leads to the others.
        let others = [EXIT, ABOUT, GRACE, NODE, RESTARTS].map(|kind| self.file(name, id, kind));
        for path in others.into_iter().chain([self.path(name, id)]) {
            removed(fs::remove_file(&path), &path)?;
        }
        Ok(())
    }

    /// Copies the program of a session for its nodes.
    pub fn copy_program(&self, session: &str, original: &Path) -> Result<(), BackendError> {
        let copy = copy_path(&self.folder, session, original);
        let made = || {
            create_own_dir(copy.parent().unwrap_or(&self.folder))?;
            fs::copy(original, &copy)
        };
        made().map(drop).map_err(|error| {
            refused!(
                "the program {} can't be copied to {}: {error}",
                original.display(),
                copy.display()
            )
        })
    }

    /// Writes the environment of a session, which only this user may read.
    pub fn write_environment(&self, session: &str, text: &[u8]) -> Result<(), BackendError> {
        let path = environment_path(&self.folder, session);
        let written = || {
            create_own_dir(path.parent().unwrap_or(&self.folder))?;
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(text)
        };
        written().map_err(|error| refused!("{} can't be written: {error}", path.display()))
    }

    /// Removes the copy of a session's program and its environment, if they are there.
    pub fn remove_needs(&self, session: &str) -> Result<(), BackendError> {
        remove_folder(&self.folder.join(SESSIONS).join(session))
    }

    /// Removes the copies and environments that no session needs any more. A young one may be of a
    /// session whose job is not submitted yet.
    pub(crate) fn remove_old_needs(
        &self,
        older_than: Duration,
        is_needed: impl Fn(&str) -> bool,
    ) -> Result<(), BackendError> {
        let Ok(entries) = fs::read_dir(self.folder.join(SESSIONS)) else { return Ok(()) };
        for entry in entries.flatten() {
            let written = entry.metadata().and_then(|metadata| metadata.modified()).ok();
            if let Some(session) = entry.file_name().to_str().filter(|session| !is_needed(session))
                && is_older_than(written, older_than)
            {
                self.remove_needs(session)?;
            }
        }
        Ok(())
    }

    /// Returns all records.
    ///
    /// # Errors
    /// The folder can't be read.
    pub fn all(&self) -> Result<Vec<Record>, BackendError> {
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

/// Returns the exit code in a file of a batch script, and the reason behind it.
pub fn ended_in(path: &Path) -> Option<ExitStatus> {
    let text = fs::read_to_string(path).ok()?;
    let (code, reason) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let reason = Some(reason.to_string()).filter(|reason| !reason.is_empty());
    Some(ExitStatus { code: code.parse().ok()?, reason })
}

/// Returns whether a batch script has begun, and has written no exit code into its file yet.
pub fn has_started_in(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == STARTED)
}

/// Returns the folder of the records of all batch systems.
fn folder() -> Result<PathBuf, BackendError> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    let missing = "HOME is not set: set XDG_STATE_HOME to a folder that all nodes share";
    Ok(state.ok_or(missing)?.join("fiber"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_record_is_a_file_of_output() {
        let folder = tempfile::tempdir().expect("there is room");
        let records = Records { folder: folder.path().join("cluster") };
        assert_eq!(records.all(), Ok(Vec::new()));
        records.create_folder().unwrap();
        let mode = fs::metadata(records.folder()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(records.path("job-1", "17"), "said").unwrap();
        records.create("job-1", "17").unwrap();
        assert_eq!(fs::read_to_string(records.path("job-1", "17")).unwrap(), "said");
        let all = records.all().unwrap();
        assert_eq!((all.len(), all[0].name.as_str(), all[0].id.as_str()), (1, "job-1", "17"));
        let taken = records.must_be_free("job-1").unwrap_err().to_string();
        assert!(taken.contains("job-1.17.out") && taken.contains("`fiber kill job-1`"), "{taken}");
        assert_eq!(records.must_be_free("job"), Ok(()));
        assert_eq!(records.ended(&all[0]), None);
        fs::write(records.file("job-1", "17", EXIT), "3\n").unwrap();
        fs::create_dir(records.hosts("job-1", "17")).unwrap();
        let ended = |code, reason: Option<&str>| {
            Some(ExitStatus { code, reason: reason.map(String::from) })
        };
        assert_eq!(records.ended(&all[0]), ended(3, None));
        fs::write(records.file("job-1", "17", EXIT), "143 its time limit\n").unwrap();
        assert_eq!(records.ended(&all[0]), ended(143, Some("its time limit")));
        records.describe("job-1", "17", "00aa", "/a b/pi").unwrap();
        let (session, program, _) = records.description(&all[0]).unwrap();
        assert_eq!((&*session, &*program), ("00aa", "/a b/pi"));
        records.write_grace("job-1", "17", 5).unwrap();
        assert!(!records.has_started(&all[0]));
        fs::write(records.file("job-1", "17", EXIT), "started\n").unwrap();
        assert!(records.has_started(&all[0]) && records.ended(&all[0]).is_none());
        assert_eq!(records.node(&all[0]), None);
        fs::write(records.file("job-1", "17", NODE), "n1\n").unwrap();
        assert_eq!(records.node(&all[0]).as_deref(), Some("n1"));
        records.remove("job-1", "17").unwrap();
        records.remove("job-1", "17").unwrap();
        assert_eq!(fs::read_dir(records.folder()).unwrap().count(), 0);
    }

    #[test]
    fn an_environment_is_its_users_alone() {
        let folder = tempfile::tempdir().expect("there is room");
        let records = Records { folder: folder.path().join("cluster") };
        records.write_environment("00aa", b"export A=b\n").unwrap();
        let path = environment_path(records.folder(), "00aa");
        assert_eq!(fs::read_to_string(&path).unwrap(), "export A=b\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        records.remove_needs("00aa").unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn copies_of_programs_go_when_no_session_needs_them() {
        let folder = tempfile::tempdir().expect("there is room");
        let records = Records { folder: folder.path().join("cluster") };
        let original = folder.path().join("lab");
        fs::write(&original, "code").unwrap();
        let copy = |session| copy_path(&records.folder, session, &original);
        for session in ["needed", "ended"] {
            records.copy_program(session, &original).unwrap();
            assert_eq!(fs::read_to_string(copy(session)).unwrap(), "code");
        }
        let is_needed = |session: &str| session == "needed";
        records.remove_old_needs(Duration::from_secs(60), is_needed).unwrap();
        assert!(copy("ended").exists(), "it is young");
        records.remove_old_needs(Duration::ZERO, is_needed).unwrap();
        assert!(copy("needed").exists() && !copy("ended").exists());
        records.remove_needs("needed").unwrap();
        records.remove_needs("needed").unwrap();
        assert!(!copy("needed").exists());
    }
}
