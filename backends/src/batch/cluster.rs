//! The sessions of a batch system, for the command `fiber`.

use std::path::PathBuf;
use std::time::Duration;

use fiber_core::{Error, Result};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::LocalBoxStream;
use tokio::time::{Instant, sleep};

use super::output;
use super::records::Records;
use super::session_job::SessionJob;
use super::system::BatchSystem;
use crate::BackendError;
use crate::cluster::Started;
use crate::cluster::session::{
    ByteStream, Cluster, ExitStatus, OutputChunk, ProcessState, RunRequest, SessionProcess,
};
use crate::cluster::volume::Volume;
use crate::error::system_error;
use crate::progress::Progress;

/// How long a batch system may be silent before the command gives up.
pub(super) const SILENT: Duration = Duration::from_secs(120);
/// The pause between two questions about a job, at first and at most.
pub const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The sessions of this user on the cluster of a batch system.
#[derive(Debug)]
pub struct BatchCluster<S> {
    system: S,
    pub(super) records: Records,
}

impl<S: BatchSystem> BatchCluster<S> {
    /// Makes the view of a cluster whose records are these.
    pub fn new(system: S, records: Records) -> BatchCluster<S> {
        BatchCluster { system, records }
    }

    async fn jobs(&self) -> Result<Vec<SessionJob>, BackendError> {
        self.system.jobs(&self.records).await
    }

    /// Returns the newest job of each session of which anything is left.
    async fn sessions(&self) -> Result<Vec<SessionJob>, BackendError> {
        let mut sessions: Vec<SessionJob> = Vec::new();
        for job in self.jobs().await? {
            let is_left = !job.has_ended() || self.records.has(&job.name, &job.id);
            if !is_left || sessions.iter().any(|newer| newer.name == job.name) {
                continue;
            }
            sessions.push(job);
        }
        Ok(sessions)
    }

    /// Returns the job of a session, if the batch system still knows it.
    pub(super) async fn job(&self, name: &str) -> Result<Option<SessionJob>, BackendError> {
        Ok(self.sessions().await?.into_iter().find(|job| job.name == name))
    }

    /// Waits until the job of a session fulfils a condition, or is unknown for a while. Tolerates a
    /// batch system that does not answer.
    async fn watch(
        &self,
        name: &str,
        mut reached: impl FnMut(&SessionJob) -> bool,
    ) -> Result<Option<SessionJob>, BackendError> {
        let mut pause = PAUSE.0;
        let mut known = Instant::now();
        let mut seen: Option<String> = None;
        loop {
            let job = match &seen {
                None => self.job(name).await,
                // Ending a session removes its record.
                Some(id) => {
                    self.jobs().await.map(|jobs| jobs.into_iter().find(|job| job.id == *id))
                }
            };
            match job {
                Ok(Some(job)) if reached(&job) => return Ok(Some(job)),
                Ok(Some(job)) => (known, seen) = (Instant::now(), Some(job.id)),
                // It has ended before this command has looked for it.
                Ok(None) if seen.is_none() => return Ok(None),
                Ok(None) if known.elapsed() > S::FORGETS => return Ok(None),
                Err(problem) if known.elapsed() > SILENT => return Err(problem),
                Ok(None) | Err(_) => {}
            }
            sleep(pause).await;
            pause = (pause * 3 / 2).min(PAUSE.1);
        }
    }

    async fn end(&self, name: &str, grace: u32) -> Result<(), BackendError> {
        let Some(job) = self.job(name).await?.filter(|job| !job.has_ended()) else {
            return Ok(());
        };
        if job.is_pending() {
            self.system.cancel(&job.id).await?;
        } else {
            if grace > 0 {
                self.system.ask_to_end(&self.records, &job, grace).await?;
                let ended = self.watch(name, SessionJob::has_ended);
                let limit = Duration::from_secs(grace.into());
                if let Ok(ended) = tokio::time::timeout(limit, ended).await {
                    return ended.map(drop);
                }
            }
            self.system.kill(&self.records, &job).await?;
        }
        match tokio::time::timeout(S::KILLED, self.watch(name, SessionJob::has_ended)).await {
            Ok(ended) => ended.map(drop),
            Err(_) => Err(BackendError::TimedOut(format!(
                "job {0} does not end: its node may not answer (`{1} {0}`)",
                job.id,
                S::WORDS.show
            ))),
        }
    }

    /// Removes the copies of programs and the environments of sessions that have ended.
    fn remove_needs(&self, jobs: &[SessionJob]) -> Result<(), BackendError> {
        for job in jobs.iter().filter(|job| job.has_ended()) {
            self.records.remove_needs(&job.session)?;
        }
        let is_needed = |session: &str| jobs.iter().any(|job| job.session == session);
        self.records.remove_old_needs(SILENT, is_needed)
    }
}

impl<S: BatchSystem> Cluster for BatchCluster<S> {
    fn unit(&self) -> &'static str {
        "job"
    }

    fn includes(&self, backend: &str) -> bool {
        backend == S::WORDS.backend
    }

    fn start<'a>(
        &'a self,
        run: &'a RunRequest,
        progress: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<Started>> {
        Box::pin(async move {
            let started = self.system.start(&self.records, run, progress).await;
            started.map_err(|problem| Error::not_started(&run.name, problem))
        })
    }

    fn remove_session<'a>(&'a self, session: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let remove = async {
                for job in self.jobs().await?.iter().filter(|job| job.session == session) {
                    if !job.has_ended() {
                        self.system.cancel(&job.id).await?;
                    }
                    self.records.remove(&job.name, &job.id)?;
                }
                self.system.cancel_session(session).await?;
                self.records.remove_needs(session)
            };
            let failed = format!("the job of session {session} can't be removed");
            remove.await.map_err(system_error(failed))
        })
    }

    fn processes(&self) -> LocalBoxFuture<'_, Result<Vec<SessionProcess>>> {
        Box::pin(async move {
            let list = async {
                let sessions = self.sessions().await?;
                let mut processes: Vec<SessionProcess> =
                    sessions.iter().map(SessionJob::process).collect();
                processes.extend(self.system.hosts(&sessions).await?);
                let known = |name: &str| sessions.iter().any(|job| job.name == name);
                for record in self.records.all()?.into_iter().filter(|record| !known(&record.name))
                {
                    let ended = self.system.remembered(&self.records, &record).await;
                    processes.push(SessionJob::of_record(record, ended).process());
                }
                Ok(processes)
            };
            list.await.map_err(system_error("the jobs can't be listed"))
        })
    }

    fn logs<'a>(
        &'a self,
        name: &'a str,
        follow: bool,
        tail: Option<u64>,
    ) -> LocalBoxFuture<'a, Result<LocalBoxStream<'a, Result<OutputChunk>>>> {
        Box::pin(async move {
            let opened = output::open(self, name, follow, tail).await;
            opened.map_err(|problem| output::unreadable(name, problem))
        })
    }

    fn logs_at_hand<'a>(
        &'a self,
        name: &'a str,
        follow: bool,
        tail: Option<u64>,
    ) -> Result<Option<LocalBoxStream<'a, Result<OutputChunk>>>> {
        let opened = output::at_hand(self, name, follow, tail);
        opened.map_err(|problem| output::unreadable(name, problem))
    }

    fn wait<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<ExitStatus>> {
        Box::pin(async move {
            let wait = async {
                let job = self.watch(name, SessionJob::has_ended).await?;
                if let Some(status) = job.and_then(SessionJob::exit_status) {
                    return Ok(status);
                }
                let record = self.records.all()?.into_iter().find(|record| record.name == name);
                let known = match record {
                    Some(record) => self.system.remembered(&self.records, &record).await,
                    None => None,
                };
                known.ok_or_else(|| refused!("{} does not know its job any more", S::WORDS.title))
            };
            wait.await.map_err(system_error(format!("the exit status of {name} is unknown")))
        })
    }

    fn stop<'a>(&'a self, name: &'a str, grace: u32) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let ended = match S::is_host(name) {
                true => self.system.end_host(name, grace).await,
                false => self.end(name, grace).await,
            };
            ended.map_err(system_error(format!("{name} can't be stopped")))
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let remove = async {
                if S::is_host(name) {
                    return self.system.end_host(name, 0).await;
                }
                self.end(name, 0).await?;
                for record in self.records.all()?.iter().filter(|record| record.name == name) {
                    self.records.remove(name, &record.id)?;
                }
                let jobs = self.jobs().await?;
                self.remove_needs(&jobs)
            };
            remove.await.map_err(system_error(format!("{name} can't be removed")))
        })
    }

    fn keep_output<'a>(
        &'a self,
        name: &'a str,
        code: i32,
    ) -> LocalBoxFuture<'a, Result<Vec<PathBuf>>> {
        Box::pin(async move {
            let keep = async {
                let jobs = self.jobs().await?;
                self.remove_needs(&jobs)?;
                let Some(job) = jobs.iter().find(|job| job.name == name) else {
                    return Ok(Vec::new());
                };
                let output = job.output.clone();
                let hosts = self.records.hosts(&job.name, &job.id);
                Ok(match (output.is_file() && code != 0, hosts.is_dir()) {
                    (true, false) => vec![output],
                    (_, true) => vec![output, hosts],
                    (false, false) => Vec::new(),
                })
            };
            keep.await.map_err(|problem: BackendError| output::unreadable(name, problem))
        })
    }

    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move {
            let sweep = async {
                let jobs = self.jobs().await?;
                let mut removed = Vec::new();
                for record in self.records.all()? {
                    let has_ended = match jobs.iter().find(|job| job.id == record.id) {
                        Some(job) => job.has_ended(),
                        // It may be lost for a moment, or submitted just now.
                        None => record.is_older_than(SILENT),
                    };
                    if has_ended {
                        self.records.remove(&record.name, &record.id)?;
                        removed.push(record.name);
                    }
                }
                self.remove_needs(&jobs)?;
                removed.extend(self.system.sweep().await?);
                Ok(removed)
            };
            sweep.await.map_err(system_error("leftovers of dead sessions can't be removed"))
        })
    }

    fn inspect<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<Box<dyn ByteStream>>> {
        Box::pin(async move {
            let asked = self.job(name).await;
            match asked.map_err(system_error(format!("{name} can't be asked")))? {
                Some(job) if job.state == ProcessState::Running => self.system.inspect(&job).await,
                _ => crate::cluster::bridge::failed(name, "it does not run"),
            }
        })
    }

    fn volume<'a>(
        &'a self,
        claim: &'a str,
        _: &'a str,
        _: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<Box<dyn Volume + 'a>>> {
        let problem = format!(
            "{} has no volumes: its machines share file systems, so copy with `cp` or `rsync` on a \
             login node",
            S::WORDS.cluster
        );
        Box::pin(std::future::ready(Err(Error::system(format!("volume `{claim}`"), problem))))
    }
}
