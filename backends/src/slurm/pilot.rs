//! Pilots: Slurm jobs that this process submits for more hosts. Each has one node for itself,
//! unless the configured options say otherwise.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use fiber_core::{Exit, ExitReason};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::jobs::{self, Job as SlurmJob};
use super::queue::Queue;
use super::script::{BatchScript, named};
use super::states::{self, Ending, ScriptExit, State};
use super::{commands, options};
use crate::batch::{program_path, quoted};
use crate::job_handle::{self, JobCommand, JobCommands};
use crate::output::{Tail, print_message};
use crate::owner::JobOwner;
use crate::{BackendError, Job, JobPlace, JobSpec, JobState, SlurmSection, WaitReason};

/// The begin of a pilot's comment, before its id and its owner.
const COMMENT: &str = "fiber-pilot ";
/// The begin of a pilot's id, and of the names of its files.
const ID: &str = "fiber-";
/// Options that a pilot can't have from outside.
const RESERVED: [(&str, &str); 5] = [
    ("comment", "fiber finds its pilots by their comments"),
    ("array", "a pilot is one job: raise `slurm.pilots`"),
    ("wrap", "a pilot runs this program"),
    ("parsable", "fiber reads the job's id itself"),
    ("wait", "fiber waits for its pilots itself"),
];
/// How long the files of a pilot are left alone that Slurm does not list: it may be submitted just
/// now, or Slurm may have lost it for a moment.
const UNKNOWN: Duration = Duration::from_secs(120);
/// How long a job may be missing in Slurm's answers before it counts as gone.
const GRACE: Duration = Duration::from_secs(30);
/// The pause before `scancel` is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// Returns the script of the pilot called `id`, which finds the secrets of its host in `key`.
///
/// # Errors
/// The program's path or the owner is not known, or a configured option can't be passed on.
fn script(
    section: &SlurmSection,
    id: &str,
    key: &Path,
    spec: &JobSpec,
) -> Result<BatchScript, BackendError> {
    for option in &section.options {
        if let Some((_, why)) = options::find(option, &RESERVED) {
            return Err(refused!(
                "`slurm.options` has `{option}`, which can't be passed on: {why}"
            ));
        }
    }
    let mut options = vec![
        format!("--job-name={id}"),
        format!("--comment={COMMENT}{id} {}", JobOwner::this_process()?.to_text()),
        "--nodes=1".into(),
        "--ntasks=1".into(),
        "--exclusive".into(),
        "--mem=0".into(),
        // The key of its host is gone by then, and this process submits another one.
        "--no-requeue".into(),
        "--export=ALL".into(),
        format!("--output={}", key.with_extension("out").display()),
        format!("--time={}", minutes(section.time)),
    ];
    let SlurmSection { partition, account, qos, .. } = section;
    options.extend(named(partition.as_ref(), account.as_ref(), qos.as_ref()));
    // Later options win.
    options.extend(section.options.iter().cloned());
    let key = quoted(&key.display().to_string());
    let mut command = format!("exec <{key} && rm -f {key} && exec env");
    let secrets = spec.secrets.iter().map(|(name, _)| (*name, "-".to_string()));
    for (name, value) in spec.variables().chain(secrets) {
        let _ = write!(command, " {name}={}", quoted(&value));
    }
    let arguments = spec.arguments.iter().map(|argument| argument.to_string_lossy());
    for word in std::iter::once(program_path()?.to_string_lossy()).chain(arguments) {
        let _ = write!(command, " {}", quoted(&word));
    }
    command.push('\n');
    BatchScript::new(options, command)
}

/// Returns a time limit as Slurm takes it: minutes, rounded up.
fn minutes(time: Duration) -> u64 {
    time.as_secs().div_ceil(60).max(1)
}

/// The files of a pilot on the shared file system, which are removed with this.
#[derive(Debug)]
struct PilotFiles {
    key: PathBuf,
    out: PathBuf,
}

impl PilotFiles {
    /// Writes the secrets of a pilot's host, for this user alone.
    fn create(key: &Path, spec: &JobSpec) -> Result<PilotFiles, BackendError> {
        let create = || {
            fs::create_dir_all(key.parent().unwrap_or(Path::new(".")))?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(key)?;
            spec.secrets.iter().try_for_each(|(_, value)| writeln!(file, "{value}"))
        };
        let files = PilotFiles { key: key.to_path_buf(), out: key.with_extension("out") };
        match create() {
            Ok(()) => Ok(files),
            Err(error) => Err(refused!(
                "the file `{}` can't be written: {error} (set `slurm.dir` to a directory that all \
                 nodes share)",
                key.display()
            )),
        }
    }

    fn tail(&self) -> Vec<u8> {
        let output = fs::read(&self.out).unwrap_or_default();
        output[output.len().saturating_sub(4 << 10)..].to_vec()
    }
}

impl Drop for PilotFiles {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.key);
        let _ = fs::remove_file(&self.out);
    }
}

/// Submits a pilot for a host.
///
/// # Errors
/// Slurm refuses it, with a remedy.
pub(super) async fn submit(
    section: &SlurmSection,
    queue: &Arc<Queue>,
    id: &str,
    spec: &JobSpec,
) -> Result<Arc<dyn Job>, BackendError> {
    let directory = std::path::absolute(&section.dir).map_err(|error| error.to_string())?;
    let key = directory.join(format!("{id}.key"));
    let script = script(section, id, &key, spec)?;
    if section.dry_run {
        // A person reads it once.
        static PRINTED: AtomicBool = AtomicBool::new(false);
        if !PRINTED.swap(true, Ordering::Relaxed) {
            print_message(script.to_string()).await;
        }
        return Err("`slurm.dry_run` is set: the script of a pilot is printed, and none is \
                    submitted"
            .into());
    }
    let files = PilotFiles::create(&key, spec)?;
    tracing::debug!("submitting a pilot:\n{script}");
    let id = script.submit().await?;
    let tail = Tail::default();
    let (job, states, commands) =
        job_handle::new(JobPlace::Job { id: id.to_string() }, tail.clone());
    let pilot = Pilot { id, queue: Arc::clone(queue), files, tail };
    fiber_core::spawn_local(pilot.watch(states, commands));
    Ok(job)
}

struct Pilot {
    /// The id of its job.
    id: String,
    queue: Arc<Queue>,
    files: PilotFiles,
    tail: Tail,
}

impl Pilot {
    async fn watch(self, states: watch::Sender<JobState>, mut commands: JobCommands) {
        let mut answers = self.queue.subscribe();
        let mut killed = false;
        let mut missing_since = None;
        let reason = loop {
            tokio::select! {
                biased;
                command = commands.next(), if !killed => {
                    killed = command == JobCommand::Kill;
                    self.carry_out(command).await;
                    self.queue.look_soon();
                }
                answer = answers.recv() => {
                    let Ok(jobs) = answer else { continue };
                    match jobs.iter().find(|job| job.id == self.id) {
                        Some(job) => {
                            missing_since = None;
                            match progress(job, killed) {
                                Progress::Ended(reason) => break reason,
                                Progress::Hopeless(problem) => {
                                    self.carry_out(JobCommand::Kill).await;
                                    break ExitReason::NotStarted(problem);
                                }
                                Progress::In(state) => {
                                    states.send_if_modified(|known| {
                                        let changed = *known != state;
                                        *known = state;
                                        changed
                                    });
                                }
                            }
                        }
                        None if killed => break ExitReason::Signal(9),
                        None => {
                            let since = *missing_since.get_or_insert_with(Instant::now);
                            if since.elapsed() > GRACE {
                                let problem = "Slurm does not list the job any more".to_string();
                                break ExitReason::Evicted(problem);
                            }
                        }
                    }
                }
            }
        };
        self.tail.add(&self.files.tail());
        drop(self.files);
        states.send_replace(JobState::Ended(Exit::new(reason, self.tail.lines())));
    }

    /// Tries until Slurm answers: a pilot that is left pending takes a node later.
    async fn carry_out(&self, command: JobCommand) {
        let job = &self.id;
        loop {
            let done = match command {
                JobCommand::Kill => commands::cancel(&[job]).await,
                // Its batch script has become the host.
                JobCommand::Terminate => commands::cancel(&["--batch", "--signal=TERM", job]).await,
            };
            match done {
                Err(error) if error.is_passing() => {
                    tracing::warn!("the pilot {job} is not cancelled yet: {error}");
                    sleep(RETRY).await;
                }
                Err(error) => return tracing::debug!("the pilot {job}: {error}"),
                Ok(()) => return,
            }
        }
    }
}

/// The state of a pilot, read from Slurm's answer.
#[derive(Debug, PartialEq)]
enum Progress {
    In(JobState),
    /// It never starts.
    Hopeless(String),
    Ended(ExitReason),
}

fn progress(job: &SlurmJob, killed: bool) -> Progress {
    let reason = &job.reason;
    match job.state() {
        // It ends soon.
        State::Pending if killed => Progress::In(JobState::Running),
        State::Pending if states::is_hopeless(reason) => Progress::Hopeless(format!(
            "Slurm never starts it: {}; see `slurm.partition`, `slurm.account`, `slurm.time` and \
             `slurm.options`",
            states::explained(reason)
        )),
        State::Pending => {
            Progress::In(JobState::Waiting(WaitReason::Resources(format!("Slurm: {reason}"))))
        }
        State::Running | State::Suspended => Progress::In(JobState::Running),
        State::Ended(ending) => Progress::Ended(exit_reason(job, ending, killed)),
    }
}

fn exit_reason(job: &SlurmJob, ending: Ending, killed: bool) -> ExitReason {
    let why = || format!("its job is {} ({})", job.word, job.reason);
    match ending {
        Ending::Completed => ExitReason::Normal,
        Ending::Failed | Ending::Cancelled if killed => ExitReason::Signal(9),
        Ending::Failed => match job.exit {
            ScriptExit { signal: signal @ 1.., .. } => ExitReason::Signal(signal),
            // It has failed all the same.
            ScriptExit { code, .. } => ExitReason::Code(code.max(1)),
        },
        Ending::OutOfMemory => ExitReason::OutOfMemory,
        Ending::Preempted => ExitReason::Preempted(why()),
        Ending::Cancelled => ExitReason::Cancelled(why()),
        Ending::TimeLimit
        | Ending::Deadline
        | Ending::NodeFailed
        | Ending::BootFailed
        | Ending::LaunchFailed
        | Ending::Revoked => ExitReason::Evicted(why()),
    }
}

/// Cancels the pilots of processes that are gone, removes the files in `directory` that they or
/// others have left, and returns the names of all.
///
/// # Errors
/// Slurm's commands fail, or a file can't be removed.
pub(crate) async fn sweep(directory: &Path) -> Result<Vec<String>, BackendError> {
    // Before Slurm is asked: the job of a file that is younger may be missing in its answer.
    let files = files(directory)?;
    let jobs = jobs::of_this_user().await?;
    let mut removed = BTreeSet::new();
    for job in &jobs {
        if !job.has_ended() && mark(job).is_some_and(|(_, owner)| owner.is_a_dead_process()) {
            commands::cancel(&[&job.id]).await?;
            removed.insert(job.name.clone());
        }
    }
    for file in files {
        if is_left_over(&file, &jobs) {
            match fs::remove_file(&file.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(refused!("{} can't be removed: {error}", file.path.display()));
                }
                _ => removed.insert(file.id),
            };
        }
    }
    Ok(removed.into_iter().collect())
}

/// A file of a pilot.
struct PilotFile {
    path: PathBuf,
    /// The id of the pilot.
    id: String,
    written: SystemTime,
}

fn files(directory: &Path) -> Result<Vec<PilotFile>, BackendError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => {
            entries.map_err(|error| format!("{} can't be read: {error}", directory.display()))?
        }
    };
    let file = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let path = entry.path();
        let is_of_pilot = path.extension().is_some_and(|kind| kind == "key" || kind == "out");
        let id = path.file_stem()?.to_str().filter(|id| is_of_pilot && id.starts_with(ID))?;
        let written = entry.metadata().ok()?.modified().ok()?;
        Some(PilotFile { id: id.to_string(), written, path })
    };
    Ok(entries.filter_map(file).collect())
}

/// Returns whether nobody needs a file any more.
fn is_left_over(file: &PilotFile, jobs: &[SlurmJob]) -> bool {
    let is_old = || file.written.elapsed().is_ok_and(|age| age > UNKNOWN);
    let of_file = |job: &&SlurmJob| mark(job).is_some_and(|(id, _)| id == file.id);
    match jobs.iter().find(of_file) {
        Some(job) => {
            mark(job).is_some_and(|(_, owner)| owner.is_a_dead_process())
                || job.has_ended() && is_old()
        }
        None => is_old(),
    }
}

/// Returns a pilot's id and its owner.
fn mark(job: &SlurmJob) -> Option<(&str, JobOwner)> {
    let (id, owner) = job.comment.strip_prefix(COMMENT)?.split_once(' ')?;
    Some((id, JobOwner::from_text(owner)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: &str, reason: &str) -> SlurmJob {
        SlurmJob { reason: reason.into(), ..SlurmJob::sample("1", state) }
    }

    fn spec() -> JobSpec {
        JobSpec {
            name: "host-1".into(),
            arguments: vec!["a b".into()],
            parent: None,
            environment: Vec::new(),
            secrets: vec![("FIBER_KEY", "hush".into())],
            restarts: 0,
            meta: fiber_core::Meta::new(),
            output: fiber_core::OutputMode::Null.into(),
            log_dir: "logs".into(),
            machine: Some("pilot-1".into()),
            processes: 1,
        }
    }

    #[test]
    fn states_are_told_apart() {
        let waits = progress(&job("PENDING", "Priority"), false);
        let reason = WaitReason::Resources("Slurm: Priority".into());
        assert_eq!(waits, Progress::In(JobState::Waiting(reason)));
        for reason in ["PartitionTimeLimit", "JobHeldAdmin"] {
            let progress = progress(&job("PENDING", reason), false);
            assert!(matches!(progress, Progress::Hopeless(_)), "{reason}: {progress:?}");
        }
        let ended = |state: &str, killed| match progress(&job(state, "None"), killed) {
            Progress::Ended(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(ended("CANCELLED", true), ExitReason::Signal(9));
        assert_eq!(ended("OUT_OF_MEMORY", false), ExitReason::OutOfMemory);
        for state in ["CANCELLED", "PREEMPTED", "NODE_FAIL", "LAUNCH_FAILED"] {
            assert!(ended(state, false).is_disruption(), "{state}");
        }
    }

    #[test]
    fn a_script_that_fails_has_an_exit_code_or_a_signal() {
        let ended = |exit: &str| {
            let exit = ScriptExit::parse(exit);
            let failed = SlurmJob { exit, ..job("FAILED", "NonZeroExitCode") };
            exit_reason(&failed, Ending::Failed, false)
        };
        assert_eq!(ended("3:0"), ExitReason::Code(3));
        assert_eq!(ended("0:9"), ExitReason::Signal(9));
        assert_eq!(ended("0:0"), ExitReason::Code(1));
    }

    #[test]
    fn files_are_left_over_when_nobody_needs_them() {
        let age = |seconds| PilotFile {
            path: "x".into(),
            id: "fiber-1".into(),
            written: SystemTime::now() - Duration::from_secs(seconds),
        };
        let own = JobOwner::this_process().unwrap();
        let of = |state: &str, owner: &JobOwner| SlurmJob {
            comment: format!("{COMMENT}fiber-1 {}", owner.to_text()),
            ..job(state, "None")
        };
        for (state, seconds, expected) in [
            ("RUNNING", 999, false),
            ("PENDING", 999, false),
            ("COMPLETED", 1, false),
            ("FAILED", 999, true),
        ] {
            assert_eq!(is_left_over(&age(seconds), &[of(state, &own)]), expected, "{state}");
        }
        assert!(is_left_over(&age(999), &[]) && !is_left_over(&age(1), &[]));
        let JobOwner::Process { boot, namespace, pid, started } = own else { panic!("a process") };
        let dead = JobOwner::Process { boot, namespace, pid, started: started + 1 };
        assert!(is_left_over(&age(1), &[of("COMPLETED", &dead)]));
        assert!(is_left_over(&age(1), &[of("PENDING", &dead)]));
    }

    #[test]
    fn options_that_would_break_pilots_are_refused() {
        let mut section = SlurmSection::default();
        for option in ["--comment=x", "-a1-3", "-QW", "--wrap=true"] {
            section.options = vec![option.into()];
            let refused = script(&section, "fiber-1", Path::new("/x.key"), &spec());
            let problem = refused.unwrap_err().to_string();
            assert!(problem.contains("`slurm.options`") && problem.contains(option), "{problem}");
        }
    }

    #[test]
    fn a_script_takes_options_verbatim_and_shows_no_key() {
        let section = SlurmSection {
            partition: Some("long".into()),
            options: vec!["--constraint=a&b|c d".into(), "--licenses=it's".into()],
            ..SlurmSection::default()
        };
        let script = script(&section, "fiber-1", Path::new("/shared/x.key"), &spec()).unwrap();
        let text = script.to_string();
        for line in [
            "#SBATCH --partition=long\n",
            "#SBATCH --constraint=\"a&b|c d\"\n",
            "#SBATCH --time=60\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.contains("exec </shared/x.key && rm -f /shared/x.key && exec env"), "{text}");
        assert!(text.contains(" FIBER_KEY=- ") && text.ends_with(" 'a b'\n"), "{text}");
        assert!(!text.contains("hush"), "{text}");
    }
}
