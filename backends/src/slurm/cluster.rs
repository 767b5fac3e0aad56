//! The sessions of a Slurm cluster, for the command `fiber`.
//!
//! The head of a session is the batch script's program. Its job has the session's name, and a
//! comment by which it is found. Its output goes to a file in a folder of the user, which also is
//! the record of the session: Slurm forgets jobs some minutes after their end.

mod batch;
mod inspect;
mod job_options;
mod jobs;
mod output;
mod partitions;
mod records;
mod status;
mod submission;

use std::path::PathBuf;
use std::time::Duration;

use fiber_core::{Config, Error, Result};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::LocalBoxStream;
use tokio::time::{Instant, sleep};

use self::job_options::DRY_RUN;
use self::jobs::SessionJob;
use self::records::Records;
use super::jobs::is_step;
use super::states::State;
use super::{commands, pilot};
use crate::cluster::session::{
    ByteStream, Cluster, ExitStatus, OutputChunk, RunRequest, SessionProcess,
};
use crate::cluster::volume::Volume;
use crate::cluster::{SessionBackend, Started};
use crate::progress::Progress;
use crate::{BackendError, SlurmSection};

/// How long a job may be unknown, or the controller silent, before the job counts as gone.
const UNKNOWN: Duration = Duration::from_secs(120);
/// The pause between two questions about a job, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Time for the end of a job after SIGKILL.
const KILLED: Duration = Duration::from_secs(60);

/// Slurm, as the command sees it.
pub(crate) static SESSIONS: SessionBackend = SessionBackend {
    run_options: job_options::OPTIONS,
    refused: (
        &["image", "dockerfile", "bundle", "volume"],
        "Slurm runs the program from the file system that its nodes share: leave it out",
    ),
    ..SessionBackend::new(
        "slurm",
        "Slurm",
        "Jobs of the Slurm cluster that this host belongs to",
        |config| {
            Box::pin(async {
                Ok(Box::new(SlurmCluster::connect(config).await?) as Box<dyn Cluster>)
            })
        },
    )
};

/// The sessions of this user on a Slurm cluster.
#[derive(Debug)]
pub(crate) struct SlurmCluster {
    records: Records,
    /// The files of pilots.
    pilots: PathBuf,
}

impl SlurmCluster {
    /// Connects to the cluster that `SLURM_CONF` names, or this machine's.
    ///
    /// # Errors
    /// [`Error::System`] if Slurm's commands are missing or its controller does not answer.
    pub(crate) async fn connect(config: &Config) -> Result<SlurmCluster> {
        let connect = async {
            let cluster = jobs::cluster_name().await?;
            Records::open(&cluster)
        };
        let records =
            connect.await.map_err(|problem| Error::system("Slurm can't be used", problem))?;
        Ok(SlurmCluster { records, pilots: config.section::<SlurmSection>().dir })
    }

    /// Submits the job of a session, or describes it.
    async fn submit(
        &self,
        run: &RunRequest,
        progress: &dyn Progress,
    ) -> Result<Started, BackendError> {
        if run.options.has(DRY_RUN) {
            let script = submission::script(&self.records, run)?;
            return Ok(Started::Described(script.to_string()));
        }
        submission::submit(&self.records, run, progress).await?;
        Ok(Started::Elsewhere)
    }

    /// Returns the newest job of each session of which anything is left.
    async fn sessions(&self) -> Result<Vec<SessionJob>, BackendError> {
        let mut sessions: Vec<SessionJob> = Vec::new();
        for job in jobs::all().await? {
            let is_left = !job.has_ended() || self.records.has(&job.name, &job.id);
            if !is_left || sessions.iter().any(|newer| newer.name == job.name) {
                continue;
            }
            sessions.push(job);
        }
        Ok(sessions)
    }

    /// Returns the job of a session, if Slurm still knows it.
    async fn job(&self, name: &str) -> Result<Option<SessionJob>, BackendError> {
        Ok(self.sessions().await?.into_iter().find(|job| job.name == name))
    }

    /// Waits until the job of a session fulfils a condition, or is unknown for a while. Tolerates a
    /// controller that does not answer.
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
                    let jobs = jobs::all().await.map_err(BackendError::from);
                    jobs.map(|jobs| jobs.into_iter().find(|job| job.id == *id))
                }
            };
            let problem = match job {
                Ok(Some(job)) if reached(&job) => return Ok(Some(job)),
                Ok(Some(job)) => {
                    (known, seen) = (Instant::now(), Some(job.id.clone()));
                    None
                }
                // It has ended before this command has looked for it.
                Ok(None) if seen.is_none() => return Ok(None),
                Ok(None) => Some(None),
                Err(problem) => Some(Some(problem)),
            };
            match problem {
                Some(problem) if known.elapsed() > UNKNOWN => {
                    return problem.map_or(Ok(None), Err);
                }
                _ => sleep(pause).await,
            }
            pause = (pause * 3 / 2).min(PAUSE.1);
        }
    }

    async fn end(&self, name: &str, grace: u32) -> Result<(), BackendError> {
        let Some(job) = self.job(name).await?.filter(|job| !job.has_ended()) else {
            return Ok(());
        };
        if job.is_pending() {
            commands::cancel(&[&job.id]).await?;
        } else {
            // A job that ends now is not to be queued again.
            jobs::forbid_requeue(&job.id).await;
            if grace > 0 {
                let ask = format!("--signal={}", batch::ASK_TO_END);
                commands::cancel(&[&ask, "--batch", &job.id]).await?;
                let ended = self.watch(name, |job| job.has_ended());
                let limit = Duration::from_secs(grace.into());
                if let Ok(ended) = tokio::time::timeout(limit, ended).await {
                    return ended.map(drop);
                }
            }
            commands::cancel(&["--signal=KILL", "--full", &job.id]).await?;
            commands::cancel(&[&job.id]).await?;
        }
        match tokio::time::timeout(KILLED, self.watch(name, |job| job.has_ended())).await {
            Ok(ended) => ended.map(drop),
            Err(_) => Err(BackendError::TimedOut(format!(
                "job {} does not end: its node may not answer (`scontrol show job {}`)",
                job.id, job.id
            ))),
        }
    }

    /// Removes the copies of programs whose sessions have ended.
    fn remove_programs(&self, jobs: &[SessionJob]) -> Result<(), BackendError> {
        for job in jobs.iter().filter(|job| job.has_ended()) {
            self.records.remove_program(&job.session)?;
        }
        let is_needed = |session: &str| jobs.iter().any(|job| job.session == session);
        self.records.remove_programs(UNKNOWN, is_needed)
    }

    /// Ends a step: a host of a session.
    async fn end_step(step: &str, grace: u32) -> Result<(), BackendError> {
        if grace > 0 {
            commands::cancel(&["--signal=TERM", step]).await?;
            let deadline = Instant::now() + Duration::from_secs(grace.into());
            while Instant::now() < deadline {
                if !jobs::hosts().await?.iter().any(|other| other.id == step) {
                    return Ok(());
                }
                sleep(PAUSE.0).await;
            }
        }
        Ok(commands::cancel(&["--signal=KILL", step]).await?)
    }
}

impl Cluster for SlurmCluster {
    fn unit(&self) -> &'static str {
        "job"
    }

    fn includes(&self, backend: &str) -> bool {
        backend == SESSIONS.name
    }

    fn start<'a>(
        &'a self,
        run: &'a RunRequest,
        progress: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<Started>> {
        Box::pin(async move {
            let started = self.submit(run, progress).await;
            started.map_err(|problem| Error::not_started(&run.name, problem))
        })
    }

    fn remove_session<'a>(&'a self, session: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let remove = async {
                for job in jobs::all().await?.iter().filter(|job| job.session == session) {
                    if !job.has_ended() {
                        commands::cancel(&[&job.id]).await?;
                    }
                    self.records.remove(&job.name, &job.id)?;
                }
                self.records.remove_program(session)
            };
            let removed: Result<(), BackendError> = remove.await;
            removed.map_err(|problem| {
                Error::system(format!("the job of session {session} can't be removed"), problem)
            })
        })
    }

    fn processes(&self) -> LocalBoxFuture<'_, Result<Vec<SessionProcess>>> {
        Box::pin(async move {
            let list = async {
                let sessions = self.sessions().await?;
                let steps = jobs::hosts().await?;
                let mut processes: Vec<SessionProcess> =
                    sessions.iter().map(SessionJob::process).collect();
                for step in steps {
                    if let Some(job) = sessions.iter().find(|job| job.id == step.job) {
                        processes.push(job.host(step));
                    }
                }
                let known = |name: &str| sessions.iter().any(|job| job.name == name);
                for record in self.records.all()?.into_iter().filter(|record| !known(&record.name))
                {
                    processes.push(status::forgotten(&self.records, &record).await);
                }
                Ok::<_, BackendError>(processes)
            };
            let listed = list.await;
            listed.map_err(|problem| Error::system("the jobs can't be listed", problem))
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

    fn wait<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<ExitStatus>> {
        Box::pin(async move {
            let wait = async {
                let job = self.watch(name, |job| job.has_ended()).await?;
                if let Some(status) = job.and_then(|job| job.exit_status()) {
                    return Ok(status);
                }
                let record = self.records.all()?.into_iter().find(|record| record.name == name);
                let known = match record {
                    Some(record) => status::remembered(&self.records, &record).await,
                    None => None,
                };
                known.ok_or_else(|| "Slurm does not know its job any more".into())
            };
            let ended: Result<ExitStatus, BackendError> = wait.await;
            ended.map_err(|problem| {
                Error::system(format!("the exit status of {name} is unknown"), problem)
            })
        })
    }

    fn stop<'a>(&'a self, name: &'a str, grace: u32) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let ended = match is_step(name) {
                true => SlurmCluster::end_step(name, grace).await,
                false => self.end(name, grace).await,
            };
            ended.map_err(|problem| Error::system(format!("{name} can't be stopped"), problem))
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let remove = async {
                if is_step(name) {
                    return SlurmCluster::end_step(name, 0).await;
                }
                self.end(name, 0).await?;
                for record in self.records.all()?.iter().filter(|record| record.name == name) {
                    self.records.remove(name, &record.id)?;
                }
                let jobs = jobs::all().await?;
                self.remove_programs(&jobs)
            };
            let removed: Result<(), BackendError> = remove.await;
            removed.map_err(|problem| Error::system(format!("{name} can't be removed"), problem))
        })
    }

    fn keep_output<'a>(
        &'a self,
        name: &'a str,
        code: i32,
    ) -> LocalBoxFuture<'a, Result<Vec<PathBuf>>> {
        Box::pin(async move {
            let keep = async {
                let jobs = jobs::all().await?;
                self.remove_programs(&jobs)?;
                let Some(job) = jobs.iter().find(|job| job.name == name) else {
                    return Ok(Vec::new());
                };
                let output = PathBuf::from(&job.output);
                let hosts = self.records.hosts(&job.name, &job.id);
                Ok(match (output.is_file() && code != 0, hosts.is_dir()) {
                    (true, false) => vec![output],
                    (_, true) => vec![output, hosts],
                    (false, false) => Vec::new(),
                })
            };
            let kept: Result<Vec<PathBuf>, BackendError> = keep.await;
            kept.map_err(|problem| output::unreadable(name, problem))
        })
    }

    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move {
            let sweep = async {
                let jobs = jobs::all().await?;
                let mut removed = Vec::new();
                for record in self.records.all()? {
                    let has_ended = match jobs.iter().find(|job| job.id == record.id) {
                        Some(job) => job.has_ended(),
                        // Slurm may have lost it for a moment.
                        None => record.is_older_than(UNKNOWN),
                    };
                    if has_ended {
                        self.records.remove(&record.name, &record.id)?;
                        removed.push(record.name);
                    }
                }
                self.remove_programs(&jobs)?;
                removed.extend(pilot::sweep(&self.pilots).await?);
                Ok(removed)
            };
            let swept: Result<Vec<String>, BackendError> = sweep.await;
            swept.map_err(|problem| {
                Error::system("leftovers of dead sessions can't be removed", problem)
            })
        })
    }

    fn inspect<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<Box<dyn ByteStream>>> {
        Box::pin(async move {
            let job = self.job(name).await;
            match job.map_err(|problem| Error::system(format!("{name} can't be asked"), problem))? {
                Some(job) if job.state() == State::Running => inspect::connect(&job).await,
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
        let problem = "a Slurm cluster has no volumes: its machines share file systems, so copy \
                       with `cp` or `rsync` on a login node";
        Box::pin(std::future::ready(Err(Error::system(format!("volume `{claim}`"), problem))))
    }
}
