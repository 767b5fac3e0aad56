//! The sessions of a Slurm cluster, for the command `fiber`.
//!
//! The job of a session has its name, and a comment by which it is found. Slurm knows jobs until
//! some minutes after their end.

mod batch;
mod inspect;
mod job_options;
mod jobs;
mod partitions;
mod status;
mod submission;

use std::path::PathBuf;
use std::time::Duration;

use fiber_core::{Config, Result};
use tokio::time::{Instant, sleep};

use super::backend::unusable;
use super::jobs::is_step;
use super::pilot::SlurmPilots;
use super::{WORDS, commands};
use crate::batch::{
    BatchCluster, BatchSystem, PAUSE, Record, Records, SessionJob, Words, options, sweep_pilots,
};
use crate::cluster::session::{
    ByteStream, Cluster, ExitStatus, ProcessState, RunRequest, SessionProcess,
};
use crate::cluster::{SessionBackend, Started};
use crate::progress::Progress;
use crate::{BackendError, SlurmSection};

/// Slurm, as the command sees it.
pub(crate) static SESSIONS: SessionBackend = SessionBackend {
    run_options: job_options::OPTIONS,
    run_about: "On Slurm, the program is the head of a batch job, started once on its first node, \
                in this directory and this environment. Its workers run on all nodes of the job. \
                The job gets whole nodes, unless --cpu, --memory or an option after --slurm say \
                how much of each node.",
    run_examples: &[
        "--nodes 4 --time 2h -a target/release/my-program",
        "--gpu 2 --slurm=--constraint=a100 target/release/my-program",
    ],
    refused: (
        &["image", "dockerfile", "bundle", "volume"],
        "Slurm runs the program from the file system that its nodes share: leave it out",
    ),
    ..SessionBackend::new(
        WORDS.backend,
        WORDS.title,
        "Jobs of the Slurm cluster that this host belongs to",
        |config| Box::pin(connect(config)),
    )
};

/// Connects to the cluster that `SLURM_CONF` names, or this machine's.
async fn connect(config: &Config) -> Result<Box<dyn Cluster>> {
    let open = async { Records::open(WORDS.backend, &jobs::cluster_name().await?) };
    let records = open.await.map_err(unusable)?;
    let system = SlurmCluster { pilots: config.section::<SlurmSection>().dir };
    Ok(Box::new(BatchCluster::new(system, records)))
}

/// The Slurm cluster.
#[derive(Debug)]
struct SlurmCluster {
    /// The files of pilots.
    pilots: PathBuf,
}

impl BatchSystem for SlurmCluster {
    const WORDS: Words = WORDS;
    const FORGETS: Duration = Duration::from_secs(120);
    const KILLED: Duration = Duration::from_secs(60);

    async fn start(
        &self,
        records: &Records,
        run: &RunRequest,
        progress: &dyn Progress,
    ) -> Result<Started, BackendError> {
        if run.options.has(options::DRY_RUN.name) {
            let script = submission::script(records, run)?;
            return Ok(Started::Described(script.to_string()));
        }
        submission::submit(records, run, progress).await?;
        Ok(Started::Elsewhere)
    }

    async fn jobs(&self, _: &Records) -> Result<Vec<SessionJob>, BackendError> {
        Ok(jobs::all().await?)
    }

    async fn hosts(&self, jobs: &[SessionJob]) -> Result<Vec<SessionProcess>, BackendError> {
        Ok(jobs::hosts_of(jobs).await?)
    }

    async fn remembered(&self, records: &Records, record: &Record) -> Option<ExitStatus> {
        status::remembered(records, record).await
    }

    async fn cancel(&self, id: &str) -> Result<(), BackendError> {
        Ok(commands::cancel(&[id]).await?)
    }

    async fn ask_to_end(
        &self,
        records: &Records,
        job: &SessionJob,
        _: u32,
    ) -> Result<(), BackendError> {
        // A job that ends now is not to be queued again.
        jobs::forbid_requeue(&job.id).await;
        // Slurm sends a suspended job no signal but SIGKILL. Only operators may let it go on.
        if let ProcessState::Paused(_) = job.state
            && commands::run("scontrol", &["resume", &job.id]).await.is_err()
        {
            return self.kill(records, job).await;
        }
        let ask = format!("--signal={}", batch::ASK_TO_END);
        Ok(commands::cancel(&[&ask, "--batch", &job.id]).await?)
    }

    async fn kill(&self, _: &Records, job: &SessionJob) -> Result<(), BackendError> {
        jobs::forbid_requeue(&job.id).await;
        commands::cancel(&["--signal=KILL", "--full", &job.id]).await?;
        Ok(commands::cancel(&[&job.id]).await?)
    }

    fn is_host(name: &str) -> bool {
        is_step(name)
    }

    async fn end_host(&self, step: &str, grace: u32) -> Result<(), BackendError> {
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

    async fn inspect(&self, job: &SessionJob) -> Result<Box<dyn ByteStream>> {
        inspect::connect(job).await
    }

    async fn sweep(&self) -> Result<Vec<String>, BackendError> {
        sweep_pilots::<SlurmPilots>(&self.pilots).await
    }
}
