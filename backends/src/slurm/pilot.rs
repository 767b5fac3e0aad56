//! Pilots: Slurm jobs for more hosts. Each has one node for itself, unless the configured options
//! say otherwise.

use std::fmt::Write as _;
use std::time::Duration;

use fiber_core::ExitReason;

use super::jobs::{self, Job as SlurmJob};
use super::script::{BatchScript, named};
use super::states::{self, Ending, ScriptExit, State};
use super::{WORDS, commands, options};
use crate::batch::{
    CommandError, PilotFiles, PilotJob, PilotRequest, PilotSettings, PilotSystem, Progress, Words,
    program_path, quoted,
};
use crate::{BackendError, JobState, SlurmSection, WaitReason};

/// The begin of a pilot's comment, before its id and its owner.
const COMMENT: &str = "fiber-pilot ";
/// Options that a pilot can't have from outside.
const RESERVED: [(&str, &str); 5] = [
    ("comment", "fiber finds its pilots by their comments"),
    ("array", "a pilot is one job: raise `slurm.pilots`"),
    ("wrap", "a pilot runs this program"),
    ("parsable", "fiber reads the job's id itself"),
    ("wait", "fiber waits for its pilots itself"),
];

/// The pilots that the section asks for.
#[derive(Debug)]
pub(super) struct SlurmPilots(pub(super) SlurmSection);

impl PilotSystem for SlurmPilots {
    const WORDS: Words = WORDS;
    type Script = BatchScript;

    fn settings(&self) -> PilotSettings<'_> {
        let SlurmSection { pilots, dry_run, dir, .. } = &self.0;
        PilotSettings { most: *pilots, dry_run: *dry_run, dir, room: None }
    }

    async fn script(&self, request: &PilotRequest<'_>) -> Result<BatchScript, BackendError> {
        script(&self.0, request)
    }

    async fn submit(script: &BatchScript) -> Result<String, CommandError> {
        script.submit().await
    }

    async fn jobs() -> Result<Vec<PilotJob>, CommandError> {
        Ok(jobs::of_this_user().await?.iter().map(pilot).collect())
    }

    async fn terminate(job: &str) -> Result<(), CommandError> {
        // Its batch script has become the host.
        commands::cancel(&["--batch", "--signal=TERM", job]).await
    }

    async fn cancel(job: &str, _: Option<&PilotFiles>) -> Result<(), CommandError> {
        commands::cancel(&[job]).await
    }
}

/// Returns the script of a pilot.
fn script(section: &SlurmSection, request: &PilotRequest<'_>) -> Result<BatchScript, BackendError> {
    for option in &section.options {
        if let Some((_, why)) = options::find(option, &RESERVED) {
            return Err(refused!(
                "`slurm.options` has `{option}`, which can't be passed on: {why}"
            ));
        }
    }
    let id = request.id;
    let mut options = vec![
        format!("--job-name={id}"),
        format!("--comment={COMMENT}{id} {}", request.owner()?),
        "--nodes=1".into(),
        "--ntasks=1".into(),
        "--exclusive".into(),
        "--mem=0".into(),
        // The key of its host is gone by then, and this process submits another one.
        "--no-requeue".into(),
        "--export=ALL".into(),
        format!("--output={}", request.output().display()),
        format!("--time={}", minutes(section.time)),
    ];
    let SlurmSection { partition, account, qos, .. } = section;
    options.extend(named(partition.as_ref(), account.as_ref(), qos.as_ref()));
    // Later options win.
    options.extend(section.options.iter().cloned());
    let key = quoted(&request.key.display().to_string());
    let mut command = format!("exec <{key} && rm -f {key} && exec env");
    for (name, value) in request.variables() {
        let _ = write!(command, " {name}={}", quoted(&value));
    }
    let program = program_path()?.to_string_lossy().into_owned();
    for word in std::iter::once(program).chain(request.arguments()) {
        let _ = write!(command, " {}", quoted(&word));
    }
    command.push('\n');
    BatchScript::new(options, command)
}

/// Returns a time limit as Slurm takes it: minutes, rounded up.
fn minutes(time: Duration) -> u64 {
    time.as_secs().div_ceil(60).max(1)
}

/// Returns a job as one that may be a pilot.
fn pilot(job: &SlurmJob) -> PilotJob {
    let mark = job.comment.strip_prefix(COMMENT).and_then(|words| words.split_once(' '));
    PilotJob {
        id: job.id.clone(),
        name: job.name.clone(),
        progress: progress(job),
        pilot: mark.map(|(id, _)| id.to_string()),
        owner: mark.map(|(_, owner)| owner.to_string()),
    }
}

fn progress(job: &SlurmJob) -> Progress {
    let reason = &job.reason;
    match job.state() {
        State::Pending if states::is_hopeless(reason) => Progress::Hopeless(format!(
            "Slurm never starts it: {}; see `slurm.partition`, `slurm.account`, `slurm.time` and \
             `slurm.options`",
            states::explained(reason)
        )),
        State::Pending => {
            Progress::In(JobState::Waiting(WaitReason::Resources(format!("Slurm: {reason}"))))
        }
        State::Running | State::Suspended => Progress::In(JobState::Running),
        State::Ended(ending) => Progress::Ended(exit_reason(job, ending)),
    }
}

fn exit_reason(job: &SlurmJob, ending: Ending) -> ExitReason {
    let why = || format!("its job is {} ({})", job.word, job.reason);
    match ending {
        Ending::Completed => ExitReason::Normal,
        Ending::Failed if job.exit.has_no_output() => ExitReason::NotStarted(format!(
            "{}: set `slurm.dir` to a directory that all nodes share",
            states::NO_OUTPUT
        )),
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::batch::sample_spec;

    fn job(state: &str, reason: &str) -> SlurmJob {
        SlurmJob { reason: reason.into(), ..SlurmJob::sample("1", state) }
    }

    fn script(section: &SlurmSection, key: &str) -> Result<BatchScript, BackendError> {
        let (spec, key) = (sample_spec(), Path::new(key).to_path_buf());
        super::script(section, &PilotRequest { id: "fiber-1", key, spec: &spec })
    }

    #[test]
    fn states_are_told_apart() {
        let waits = progress(&job("PENDING", "Priority"));
        let reason = WaitReason::Resources("Slurm: Priority".into());
        assert_eq!(waits, Progress::In(JobState::Waiting(reason)));
        for reason in ["PartitionTimeLimit", "JobHeldAdmin"] {
            let progress = progress(&job("PENDING", reason));
            assert!(matches!(progress, Progress::Hopeless(_)), "{reason}: {progress:?}");
        }
        let ended = |state: &str| match progress(&job(state, "None")) {
            Progress::Ended(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(ended("OUT_OF_MEMORY"), ExitReason::OutOfMemory);
        for state in ["CANCELLED", "PREEMPTED", "NODE_FAIL", "LAUNCH_FAILED"] {
            assert!(ended(state).is_disruption(), "{state}");
        }
    }

    #[test]
    fn a_script_that_fails_has_an_exit_code_or_a_signal() {
        let ended = |exit: &str| {
            let exit = ScriptExit::parse(exit);
            exit_reason(&SlurmJob { exit, ..job("FAILED", "NonZeroExitCode") }, Ending::Failed)
        };
        assert_eq!(ended("3:0"), ExitReason::Code(3));
        assert_eq!(ended("0:9"), ExitReason::Signal(9));
        assert!(matches!(ended("0:53"), ExitReason::NotStarted(why) if why.contains("slurm.dir")));
        assert_eq!(ended("0:0"), ExitReason::Code(1));
    }

    #[test]
    fn a_pilot_is_known_by_its_comment() {
        let (spec, key) = (sample_spec(), "/x.key".into());
        let owner = PilotRequest { id: "fiber-1", key, spec: &spec }.owner().unwrap();
        let comment = format!("{COMMENT}fiber-1 {owner}");
        let found = pilot(&SlurmJob { comment, ..job("RUNNING", "None") });
        assert_eq!((found.pilot.as_deref(), found.owner), (Some("fiber-1"), Some(owner)));
        let other = pilot(&SlurmJob { comment: "fiber 00aa /x".into(), ..job("RUNNING", "None") });
        assert_eq!((other.pilot, other.owner), (None, None));
    }

    #[test]
    fn options_that_would_break_pilots_are_refused() {
        let mut section = SlurmSection::default();
        for option in ["--comment=x", "-a1-3", "-QW", "--wrap=true"] {
            section.options = vec![option.into()];
            let problem = script(&section, "/x.key").unwrap_err().to_string();
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
        let text = script(&section, "/shared/x.key").unwrap().to_string();
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
