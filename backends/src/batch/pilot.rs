//! Pilots: jobs that this process submits to a batch system for more hosts, one each.

mod files;
mod queue;
mod sweep;
#[cfg(test)]
mod tests;
mod watch;

use std::fmt::{Debug, Display};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use fiber_core::{Error, ExitReason, Meta};

pub use self::files::PilotFiles;
use self::queue::Queue;
pub use self::sweep::sweep;
use self::watch::Pilot;
use super::{CommandError, Words};
use crate::output::{Tail, print_message};
use crate::owner::{JobOwner, new_session, spawn_sweep};
use crate::{BackendError, Job, JobPlace, JobSpec, JobState, Machine, Room, job_handle};

/// The begin of a pilot's id, and of the names of its files.
pub const ID: &str = "fiber-";
/// The names of pilots as machines, before their number.
const MACHINE: &str = "pilot-";

/// A batch system that takes pilots.
#[allow(async_fn_in_trait, reason = "fiber's thread alone polls the futures")]
pub trait PilotSystem: Debug + 'static {
    /// Its names in messages.
    const WORDS: Words;
    /// The script of a job, with its options.
    type Script: Display;

    /// Returns the configured options that all batch systems have.
    fn settings(&self) -> PilotSettings<'_>;

    /// Returns the script of a pilot.
    ///
    /// # Errors
    /// A configured option can't be passed on, or the cluster does not have what it asks for.
    async fn script(&self, request: &PilotRequest<'_>) -> Result<Self::Script, BackendError>;

    /// Returns lines for the pilot's script that no other user may read. It reads them before the
    /// secrets.
    fn private_lines() -> Vec<u8> {
        Vec::new()
    }

    /// Submits a script and returns the id of its job.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    async fn submit(script: &Self::Script) -> Result<String, CommandError>;

    /// Returns the jobs of this user that may be pilots.
    ///
    /// # Errors
    /// It does not answer.
    async fn jobs() -> Result<Vec<PilotJob>, CommandError>;

    /// Returns how a pilot has ended that is not in [`PilotSystem::jobs`], if that is certain: the
    /// answer may be older than the job.
    fn ended(_files: &PilotFiles, _was_listed: bool) -> Option<ExitReason> {
        None
    }

    /// Asks the host of a pilot to end.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    async fn terminate(job: &str) -> Result<(), CommandError>;

    /// Cancels a pilot in any state.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    async fn cancel(job: &str, files: Option<&PilotFiles>) -> Result<(), CommandError>;
}

/// The options of pilots that all batch systems have.
#[derive(Clone, Copy, Debug)]
pub struct PilotSettings<'a> {
    /// How many there may be.
    pub most: usize,
    /// Whether the first script is printed, and none is submitted.
    pub dry_run: bool,
    /// The directory for their files.
    pub dir: &'a Path,
    /// The room of each, if it is known before it starts.
    pub room: Option<Room>,
}

/// A request for a pilot.
#[derive(Debug)]
pub struct PilotRequest<'a> {
    /// Its id, which is not that of its job.
    pub id: &'a str,
    /// The file with the secrets of its host.
    pub key: PathBuf,
    /// The job of the host.
    pub spec: &'a JobSpec,
}

impl PilotRequest<'_> {
    /// Returns the file for the output of the pilot.
    pub fn output(&self) -> PathBuf {
        self.key.with_extension("out")
    }

    /// Returns the environment variables of the host, without secrets.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.spec.shown_variables()
    }

    /// Returns this process as the pilot's owner: words with spaces, for [`PilotJob::owner`].
    ///
    /// # Errors
    /// The system does not say when this process was started.
    pub fn owner(&self) -> Result<String, BackendError> {
        Ok(JobOwner::this_process()?.to_text())
    }

    /// Returns the program's arguments.
    pub fn arguments(&self) -> Vec<String> {
        self.spec.arguments_as_text()
    }
}

/// A job in the queue that may be a pilot.
#[derive(Clone, Debug, PartialEq)]
pub struct PilotJob {
    /// The id of the job.
    pub id: String,
    /// The name of the job.
    pub name: String,
    /// Its state.
    pub progress: Progress,
    /// The pilot's own id, if it is a pilot.
    pub pilot: Option<String>,
    /// The process that submitted it, if that is known: see [`PilotRequest::owner`].
    pub owner: Option<String>,
}

/// The state of a pilot, read from the answer of the batch system.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// The job of its host is in this state.
    In(JobState),
    /// It never starts.
    Hopeless(String),
    /// It has ended.
    Ended(ExitReason),
}

/// The pilots of this process.
#[derive(Debug)]
pub struct Pilots<S> {
    system: S,
    /// Begins the ids of all.
    session: String,
    submitted: AtomicU64,
    /// How many have a name.
    named: AtomicUsize,
    queue: Arc<Queue<S>>,
}

impl<S: PilotSystem> Pilots<S> {
    /// Makes the pilots of a batch system, none of which is submitted yet.
    pub fn new(system: S) -> Pilots<S> {
        Pilots {
            system,
            session: new_session(),
            submitted: AtomicU64::new(0),
            named: AtomicUsize::new(0),
            queue: Queue::new(),
        }
    }

    /// Returns whether there may be any.
    pub fn are_allowed(&self) -> bool {
        self.system.settings().most > 0
    }

    /// Returns the machine of one more pilot, until there are as many as configured.
    ///
    /// # Errors
    /// A pilot has no room for a process that asks for so much.
    pub fn another_machine(&self, meta: &Meta) -> Result<Option<Machine>, BackendError> {
        let PilotSettings { most, room, .. } = self.system.settings();
        let cores = meta.cpu.unwrap_or(1.0);
        if let Some(Room { cpu, .. }) = room.filter(|room| most > 0 && cores > room.cpu) {
            return Err(refused!(
                "it asks for {cores} cores, but a pilot has {cpu}: raise `{}.slots`",
                S::WORDS.backend
            ));
        }
        let next = |named: usize| (named < most).then_some(named + 1);
        let named = self.named.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        Ok(named.ok().map(|named| Machine { name: format!("{MACHINE}{}", named + 1), room }))
    }

    /// Submits a pilot for a host, if the job is for the machine of a pilot.
    ///
    /// # Errors
    /// The batch system refuses it, with a remedy.
    pub async fn submit_if_asked(
        &self,
        spec: &JobSpec,
    ) -> Result<Option<Arc<dyn Job>>, BackendError> {
        match &spec.machine {
            Some(machine) if machine.starts_with(MACHINE) => self.submit(spec).await.map(Some),
            _ => Ok(None),
        }
    }

    async fn submit(&self, spec: &JobSpec) -> Result<Arc<dyn Job>, BackendError> {
        let PilotSettings { dry_run, dir, .. } = self.system.settings();
        let number = self.submitted.fetch_add(1, Ordering::Relaxed) + 1;
        if number == 1 {
            let dir = dir.to_path_buf();
            spawn_sweep(async move { sweep::<S>(&dir).await });
        }
        let dir = std::path::absolute(dir).map_err(|error| error.to_string())?;
        let id = format!("{ID}{}-{number}", self.session);
        let request = PilotRequest { id: &id, key: dir.join(format!("{id}.key")), spec };
        let script = self.system.script(&request).await?;
        if dry_run {
            return Err(described(&script, S::WORDS.backend).await);
        }
        let files = PilotFiles::create(&request, S::private_lines(), S::WORDS.backend)?;
        tracing::debug!("submitting a pilot:\n{script}");
        let id = S::submit(&script).await?;
        let tail = Tail::default();
        let (job, states, commands) =
            job_handle::new(JobPlace::Job { id: id.clone() }, tail.clone());
        let pilot = Pilot::new(id, Arc::clone(&self.queue), files, tail);
        fiber_core::spawn_local(pilot.watch(states, commands));
        Ok(job)
    }

    /// Cancels the pilots of processes that are gone, removes their files, and returns the names of
    /// all.
    ///
    /// # Errors
    /// The batch system does not answer, or a file can't be removed.
    pub async fn sweep(&self) -> Result<Vec<String>, BackendError> {
        match self.are_allowed() {
            true => sweep::<S>(self.system.settings().dir).await,
            false => Ok(Vec::new()),
        }
    }
}

/// Returns the error of a sweep that has failed.
pub fn pilots_stay(problem: BackendError) -> Error {
    Error::system("leftovers of dead pilots can't be removed", problem)
}

/// Prints the first script, which a person reads once.
async fn described(script: &impl Display, section: &str) -> BackendError {
    static PRINTED: AtomicBool = AtomicBool::new(false);
    if !PRINTED.swap(true, Ordering::Relaxed) {
        print_message(script.to_string()).await;
    }
    refused!("`{section}.dry_run` is set: the script of a pilot is printed, and none is submitted")
}

#[cfg(test)]
pub(crate) fn sample_spec() -> JobSpec {
    JobSpec {
        arguments: vec!["a b".into()],
        secrets: vec![("FIBER_KEY", "hush".into())],
        log_dir: "logs".into(),
        machine: Some("pilot-1".into()),
        ..JobSpec::new("host-1")
    }
}
