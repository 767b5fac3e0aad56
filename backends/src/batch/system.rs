//! The trait that batch systems implement for the command.

use std::fmt::Debug;
use std::time::Duration;

use fiber_core::Result;

use super::records::{Record, Records};
use super::session_job::SessionJob;
use crate::BackendError;
use crate::cluster::Started;
use crate::cluster::session::{ByteStream, ExitStatus, RunRequest, SessionProcess};
use crate::progress::Progress;

/// The names of a batch system in messages.
#[derive(Debug)]
pub struct Words {
    /// The name of its backend: `slurm`.
    pub backend: &'static str,
    /// Its name in texts: `Slurm`.
    pub title: &'static str,
    /// The name of a cluster of it: `a Slurm cluster`.
    pub cluster: &'static str,
    /// The command that shows a job: `scontrol show job`.
    pub show: &'static str,
}

/// A batch system, which [`BatchCluster`](super::BatchCluster) asks.
#[allow(async_fn_in_trait, reason = "fiber's thread alone polls the futures")]
pub trait BatchSystem: Debug {
    /// Its names in messages.
    const WORDS: Words;
    /// How long a job may be missing in its answers before the job counts as gone.
    const FORGETS: Duration;
    /// Time for the end of a job after [`BatchSystem::kill`].
    const KILLED: Duration;

    /// Submits the job of a session, or describes it.
    ///
    /// # Errors
    /// The request can't be granted, or the batch system does not take it.
    async fn start(
        &self,
        records: &Records,
        run: &RunRequest,
        progress: &dyn Progress,
    ) -> Result<Started, BackendError>;

    /// Returns the jobs of sessions that it knows, newest first.
    ///
    /// # Errors
    /// It does not answer.
    async fn jobs(&self, records: &Records) -> Result<Vec<SessionJob>, BackendError>;

    /// Returns the hosts of these sessions, if it lists them. Else only the head knows them.
    ///
    /// # Errors
    /// It does not answer.
    async fn hosts(&self, _jobs: &[SessionJob]) -> Result<Vec<SessionProcess>, BackendError> {
        Ok(Vec::new())
    }

    /// Returns how a job has ended that [`BatchSystem::jobs`] does not have any more, or has
    /// without an exit status.
    async fn remembered(&self, records: &Records, record: &Record) -> Option<ExitStatus> {
        records.ended(record)
    }

    /// Removes a job from its queue, of which nothing runs yet.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    async fn cancel(&self, id: &str) -> Result<(), BackendError>;

    /// Cancels the job of a session whose start was interrupted, if [`BatchSystem::jobs`] does not
    /// have it without a record.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    async fn cancel_session(&self, _session: &str) -> Result<(), BackendError> {
        Ok(())
    }

    /// Asks the head of a job to end within `grace` seconds.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    async fn ask_to_end(
        &self,
        records: &Records,
        job: &SessionJob,
        grace: u32,
    ) -> Result<(), BackendError>;

    /// Kills a job. It may end later.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    async fn kill(&self, records: &Records, job: &SessionJob) -> Result<(), BackendError>;

    /// Returns whether a name is that of a host: see [`BatchSystem::hosts`].
    fn is_host(_name: &str) -> bool {
        false
    }

    /// Ends a host of a session.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    async fn end_host(&self, _name: &str, _grace: u32) -> Result<(), BackendError> {
        Ok(())
    }

    /// Connects to the inspector of the head of a job that runs.
    ///
    /// # Errors
    /// The head's program can't be run as the bridge, or is none.
    async fn inspect(&self, job: &SessionJob) -> Result<Box<dyn ByteStream>>;

    /// Removes leftovers of dead programs that are no sessions, and returns their names.
    ///
    /// # Errors
    /// It does not answer, or a file can't be removed.
    async fn sweep(&self) -> Result<Vec<String>, BackendError>;
}
