//! The output of a session: a file that the job's nodes and this machine share.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use fiber_core::{Error, Result};
use futures_util::StreamExt;
use futures_util::stream::{LocalBoxStream, unfold};
use tokio::time::{Duration, Instant, sleep};

use super::cluster::{BatchCluster, PAUSE, SILENT};
use super::session_job::SessionJob;
use super::system::BatchSystem;
use crate::BackendError;
use crate::cluster::session::{OutputChunk, ProcessState};

/// The pause between two looks at the file.
const LOOK: Duration = Duration::from_millis(100);
/// How long a job waits before this says so.
const PATIENCE: Duration = Duration::from_secs(3);
/// The largest chunk.
const CHUNK: u64 = 64 << 10;

/// Opens the output of a session, from its beginning or the last `tail` lines.
pub(super) async fn open<'a, S: BatchSystem>(
    cluster: &'a BatchCluster<S>,
    name: &'a str,
    follow: bool,
    tail: Option<u64>,
) -> std::result::Result<LocalBoxStream<'a, Result<OutputChunk>>, BackendError> {
    if S::is_host(name) {
        return Err("it is a part of the session's output: ask for that".into());
    }
    let Some(job) = cluster.job(name).await? else {
        return at_hand(cluster, name, false, tail)?.ok_or_else(|| "it was removed".into());
    };
    let follow = follow && !job.has_ended();
    let mut follower = Follower::open(cluster, name, job.output.clone(), follow, tail)?;
    follower.look_at(&job);
    Ok(follower.chunks())
}

/// Opens the output of the session's newest record, if there is one.
pub(super) fn at_hand<'a, S: BatchSystem>(
    cluster: &'a BatchCluster<S>,
    name: &'a str,
    follow: bool,
    tail: Option<u64>,
) -> std::result::Result<Option<LocalBoxStream<'a, Result<OutputChunk>>>, BackendError> {
    let mut records = cluster.records.all()?;
    records.retain(|record| record.name == name);
    let Some(record) = records.into_iter().max_by_key(|record| record.written) else {
        return Ok(None);
    };
    let path = cluster.records.path(name, &record.id);
    Ok(Some(Follower::open(cluster, name, path, follow, tail)?.chunks()))
}

struct Follower<'a, S> {
    cluster: &'a BatchCluster<S>,
    name: &'a str,
    path: PathBuf,
    offset: u64,
    /// Whether nothing more is written.
    is_complete: bool,
    asked: Option<Instant>,
    pause: Duration,
    /// When the job was known last.
    known: Instant,
    begun: Instant,
    /// The last reason to wait that was reported.
    said: String,
}

impl<'a, S: BatchSystem> Follower<'a, S> {
    fn open(
        cluster: &'a BatchCluster<S>,
        name: &'a str,
        path: PathBuf,
        follow: bool,
        tail: Option<u64>,
    ) -> std::result::Result<Follower<'a, S>, BackendError> {
        let offset = match tail {
            None => 0,
            Some(lines) => start_of_tail(&path, lines).map_err(|error| explain(&path, &error))?,
        };
        Ok(Follower {
            cluster,
            name,
            path,
            offset,
            is_complete: !follow,
            asked: None,
            pause: PAUSE.0,
            known: Instant::now(),
            begun: Instant::now(),
            said: String::new(),
        })
    }

    fn chunks(self) -> LocalBoxStream<'a, Result<OutputChunk>> {
        let chunks = unfold(self, |mut follower| async move {
            let chunk = follower.next().await?;
            Some((chunk, follower))
        });
        chunks.boxed_local()
    }

    async fn next(&mut self) -> Option<Result<OutputChunk>> {
        loop {
            // Whether the job has ended is asked before the last look at the file.
            let was_complete = self.is_complete;
            match read(&self.path, self.offset) {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => {
                    self.offset += bytes.len() as u64;
                    return Some(Ok(OutputChunk::Stdout(Bytes::from(bytes))));
                }
                Err(error) => {
                    self.is_complete = true;
                    return Some(Err(unreadable(self.name, explain(&self.path, &error))));
                }
            }
            if was_complete {
                return None;
            }
            if self.asked.is_none_or(|asked| asked.elapsed() >= self.pause) {
                if let Err(problem) = self.ask().await {
                    self.is_complete = true;
                    return Some(Err(unreadable(self.name, problem)));
                }
                self.asked = Some(Instant::now());
                self.pause = (self.pause * 3 / 2).min(PAUSE.1);
            }
            if !self.is_complete {
                sleep(LOOK).await;
            }
        }
    }

    /// Asks whether the job has ended. A job that is unknown for a while has.
    async fn ask(&mut self) -> std::result::Result<(), BackendError> {
        match self.cluster.job(self.name).await {
            Ok(Some(job)) => {
                self.known = Instant::now();
                self.look_at(&job);
                self.is_complete = job.has_ended();
            }
            Ok(None) => {
                self.is_complete = self.known.elapsed() > S::FORGETS || !self.path.exists();
            }
            Err(problem) if self.known.elapsed() > SILENT => return Err(problem),
            Err(_) => {}
        }
        Ok(())
    }

    /// Says why a job waits, once for each reason.
    fn look_at(&mut self, job: &SessionJob) {
        let ProcessState::Starting(Some(reason)) = &job.state else { return };
        if self.said != *reason && self.begun.elapsed() > PATIENCE {
            self.said.clone_from(reason);
            tracing::warn!("job {} waits: {reason}", job.id);
        }
    }
}

/// Reads the next chunk. Opens the file each time: a network file system asks its server then
/// whether it has grown.
fn read(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        // A device such as /dev/null, if the user names that.
        return Ok(Vec::new());
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(CHUNK).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the offset of the last `lines` lines of a file.
fn start_of_tail(path: &Path, lines: u64) -> io::Result<u64> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Ok(0);
    }
    let length = file.metadata()?.len();
    if lines == 0 {
        return Ok(length);
    }
    let mut found = 0;
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(CHUNK);
        let mut block = vec![0; (end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut block)?;
        for (index, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let at = start + index as u64;
            // The end of the last line begins no other one.
            if at + 1 < length {
                found += 1;
            }
            if found == lines {
                return Ok(at + 1);
            }
        }
        end = start;
    }
    Ok(0)
}

fn explain(path: &Path, error: &io::Error) -> String {
    format!("{} can't be read: {error}", path.display())
}

pub(super) fn unreadable(name: &str, problem: impl Into<BackendError>) -> Error {
    Error::system(format!("the output of {name} can't be read"), problem.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found_in_any_block() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("out");
        let tail = |lines| {
            let offset = start_of_tail(&path, lines).unwrap();
            String::from_utf8(read(&path, offset).unwrap()).unwrap()
        };
        assert_eq!(tail(3), "");
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!((tail(0).as_str(), tail(1).as_str()), ("", "three\n"));
        assert_eq!((tail(2).as_str(), tail(9).as_str()), ("two\nthree\n", "one\ntwo\nthree\n"));
        std::fs::write(&path, "one\ntwo").unwrap();
        assert_eq!(tail(1), "two");
        let long = format!("begin\n{}\nend\n", "x".repeat(CHUNK as usize));
        std::fs::write(&path, long).unwrap();
        assert_eq!(start_of_tail(&path, 2).unwrap(), 6);
    }
}
