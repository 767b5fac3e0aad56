//! The sessions of a Grid Engine cluster, for the command `fiber`.
//!
//! The job of a session has its name. Grid Engine forgets a job at its end, so a session is what
//! its record says: a job of which Grid Engine does not know has ended, as its script has written.

mod inspect;
mod job_options;
mod submission;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fiber_backends::BackendError;
use fiber_backends::batch::{
    BatchCluster, BatchSystem, Record, Records, SessionJob, Words, options, sweep_pilots, variable,
};
use fiber_backends::cluster::{
    ByteStream, Cluster, ExitStatus, ProcessState, Progress, RunRequest, SessionBackend, Started,
};
use fiber_core::{Config, Meta, Result};

use self::submission::{CONTEXT, Submission};
use super::backend::unusable;
use super::pilot::GridEnginePilots;
use super::queue::{self, QueuedJob};
use super::script::CANCELLED;
use super::section::GridEngineSection;
use super::{WORDS, commands};

/// Grid Engine, as the command sees it.
pub(crate) static SESSIONS: SessionBackend = SessionBackend {
    run_options: job_options::OPTIONS,
    run_about: "On Grid Engine, the program is the head of a job with a parallel environment, and \
                its workers run in the slots of that job.",
    run_examples: &["--pe mpi --slots 16 -a target/release/my-program"],
    refused: (
        &["image", "dockerfile", "bundle", "volume", "cpu", "memory", "gpu"],
        "Grid Engine runs the program from the file system that its hosts share, in slots of them \
         (`--slots`): leave it out",
    ),
    ..SessionBackend::new(
        WORDS.backend,
        WORDS.title,
        "Jobs of the Grid Engine cluster that this host submits to",
        |config| Box::pin(connect(config)),
    )
};

/// The folder of Debian's packages for what `SGE_ROOT` names elsewhere.
const ROOT: &str = "/var/lib/gridengine";

/// Connects to this host's cluster.
async fn connect(config: &Config) -> Result<Box<dyn Cluster>> {
    let open = async { Records::open(WORDS.backend, &cluster_name().await?) };
    let records = open.await.map_err(unusable)?;
    let system = GridEngineCluster { pilots: config.section::<GridEngineSection>().dir };
    Ok(Box::new(BatchCluster::new(system, records)))
}

/// Returns the name of the cluster: that of its master, since the cell often has the name `default`.
/// It is in a file, which can be read while sge_qmaster does not answer, or `qconf` says it.
async fn cluster_name() -> Result<String, BackendError> {
    let root = variable("SGE_ROOT").unwrap_or_else(|| ROOT.into());
    let cell = variable("SGE_CELL").unwrap_or_else(|| "default".into());
    let file = Path::new(&root).join(cell).join("common/act_qmaster");
    let master = match std::fs::read_to_string(file) {
        Ok(master) if !master.trim().is_empty() => master,
        _ => commands::run("qconf", &["-sss"]).await?,
    };
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = master.trim().chars().filter(|c| plain(*c)).collect();
    match name.is_empty() {
        true => Err("`qconf -sss` does not say which host is the cluster's master".into()),
        false => Ok(name),
    }
}

/// The Grid Engine cluster.
#[derive(Debug)]
struct GridEngineCluster {
    /// The files of pilots.
    pilots: PathBuf,
}

impl BatchSystem for GridEngineCluster {
    const WORDS: Words = WORDS;
    const FORGETS: Duration = Duration::ZERO;
    // A script that does not end its head leaves that to Grid Engine, after the queue's `notify`.
    const KILLED: Duration = Duration::from_secs(90);

    async fn start(
        &self,
        records: &Records,
        run: &RunRequest,
        progress: &dyn Progress,
    ) -> Result<Started, BackendError> {
        let submission = Submission::of(run, records).await?;
        if run.options.has(options::DRY_RUN.name) {
            return Ok(Started::Described(submission.script.to_string()));
        }
        let jobs = self.jobs(records).await?;
        submission.submit(run, records, &jobs, progress).await?;
        Ok(Started::Elsewhere)
    }

    async fn jobs(&self, records: &Records) -> Result<Vec<SessionJob>, BackendError> {
        // A job whose record is read before the question is in the answer, or has ended.
        let known = records.all()?;
        let queued = queue::jobs().await?;
        let of = |record: &Record| queued.iter().find(|job| job.id == record.id);
        let pending: Vec<&str> = known
            .iter()
            .filter_map(of)
            .filter(|job| job.is_pending())
            .map(|job| job.id.as_str())
            .collect();
        let details = queue::details(&pending).await;
        let job = |record: Record| {
            let queued = of(&record);
            let state = match queued {
                Some(job) => job.process_state(details.get(&job.id)),
                None => ProcessState::Ended(ended(records, &record)),
            };
            session(records, record, state, queued)
        };
        let mut jobs: Vec<SessionJob> = known.into_iter().map(job).collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(job.id.parse::<u64>().unwrap_or(0)));
        Ok(jobs)
    }

    async fn cancel(&self, id: &str) -> Result<(), BackendError> {
        Ok(commands::delete(id).await?)
    }

    async fn cancel_session(&self, session: &str) -> Result<(), BackendError> {
        let queued = queue::jobs().await?;
        let ids: Vec<&str> = queued.iter().map(|job| job.id.as_str()).collect();
        let entry = format!("{CONTEXT}={session}");
        for (id, details) in queue::details(&ids).await {
            if details.context.split(',').any(|other| other == entry) {
                commands::delete(&id).await?;
            }
        }
        Ok(())
    }

    async fn ask_to_end(
        &self,
        records: &Records,
        job: &SessionJob,
        grace: u32,
    ) -> Result<(), BackendError> {
        records.write_grace(&job.name, &job.id, grace)?;
        if let ProcessState::Paused(_) = job.state {
            // Its script handles no signal while it is suspended.
            commands::run("qmod", &["-usj", &job.id]).await?;
        }
        Ok(commands::delete(&job.id).await?)
    }

    async fn kill(&self, records: &Records, job: &SessionJob) -> Result<(), BackendError> {
        self.ask_to_end(records, job, 0).await
    }

    async fn inspect(&self, job: &SessionJob) -> Result<Box<dyn ByteStream>> {
        inspect::connect(job).await
    }

    async fn sweep(&self) -> Result<Vec<String>, BackendError> {
        sweep_pilots::<GridEnginePilots>(&self.pilots).await
    }
}

/// Returns how a job has ended that Grid Engine does not list any more.
fn ended(records: &Records, record: &Record) -> ExitStatus {
    let because = |code, reason: String| ExitStatus { code, reason: Some(reason) };
    records.ended(record).unwrap_or_else(|| match records.has_started(record) {
        // Its script writes the exit code, unless it is killed.
        true => {
            because(128 + 9, format!("killed by Grid Engine: `qacct -j {}` may say why", record.id))
        }
        false => because(128 + 15, CANCELLED.into()),
    })
}

fn session(
    records: &Records,
    record: Record,
    state: ProcessState,
    queued: Option<&QueuedJob>,
) -> SessionJob {
    let (session, program, submitted): (String, String, Option<SystemTime>) =
        records.description(&record).unwrap_or_default();
    let mut meta = Meta::new();
    meta.cpu = queued.and_then(|job| job.slots);
    SessionJob {
        session,
        program,
        state,
        restarts: records.restarts(&record),
        submitted,
        meta,
        node: queued.map_or_else(|| records.node(&record), |job| job.host.clone()),
        output: records.path(&record.name, &record.id),
        name: record.name,
        id: record.id,
    }
}
