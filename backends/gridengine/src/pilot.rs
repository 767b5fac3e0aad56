//! Pilots: jobs of Grid Engine for more hosts. Each has slots on one host.

use std::fs;
use std::path::PathBuf;

use fiber_backends::batch::{
    CommandError, EXIT, GRACE, PILOT_ID, PilotFiles, PilotJob, PilotRequest, PilotSettings,
    PilotSystem, Progress, Words, ended_in, has_started_in, program_path, quoted, reason_of_code,
};
use fiber_backends::cluster::{ExitStatus, ProcessState};
use fiber_backends::{BackendError, JobState, Room, WaitReason};
use fiber_core::{Config, ExitReason};

use super::options::{seconds, verbatim};
use super::queue::{self, Details, QueuedJob};
use super::script::{self, BatchScript, JobScript, text_of};
use super::section::GridEngineSection;
use super::{WORDS, commands, environments, task};

/// The name of a pilot's context that has its owner.
const CONTEXT: &str = "fiber_pilot";

/// The pilots that the configuration asks for.
#[derive(Debug)]
pub(super) struct GridEnginePilots {
    section: GridEngineSection,
    working_dir: Option<String>,
}

impl GridEnginePilots {
    pub(super) fn new(config: &Config) -> GridEnginePilots {
        GridEnginePilots { section: config.section(), working_dir: config.working_dir.clone() }
    }
}

impl PilotSystem for GridEnginePilots {
    const WORDS: Words = WORDS;
    type Script = BatchScript;

    fn settings(&self) -> PilotSettings<'_> {
        let GridEngineSection { pilots, dry_run, dir, slots, .. } = &self.section;
        // Only the host itself knows its graphics processors.
        let room = Some(Room { cpu: (*slots).into(), memory: None, gpu: u32::MAX });
        PilotSettings { most: *pilots, dry_run: *dry_run, dir, room }
    }

    async fn script(&self, request: &PilotRequest<'_>) -> Result<BatchScript, BackendError> {
        let pe = self.environment().await?;
        let options = options(&self.section, pe, request, &self.directory()?)?;
        BatchScript::new(options, text(&self.section, request, &self.directory()?)?)
    }

    /// The environment of this process.
    fn private_lines() -> Vec<u8> {
        task::environment_for_job()
    }

    async fn submit(script: &BatchScript) -> Result<String, CommandError> {
        script.submit().await
    }

    async fn jobs() -> Result<Vec<PilotJob>, CommandError> {
        let queued = queue::jobs().await?;
        let pilots: Vec<&str> =
            queued.iter().filter(|job| is_pilot(job)).map(|job| job.id.as_str()).collect();
        let details = queue::details(&pilots).await;
        Ok(queued.iter().map(|job| pilot(job, details.get(&job.id))).collect())
    }

    /// Reads the record of the script: Grid Engine forgets a job at its end.
    fn ended(files: &PilotFiles, was_listed: bool) -> Option<ExitReason> {
        let record = files.path(EXIT);
        match ended_in(&record) {
            Some(status) => Some(exit_reason(status)),
            None if !was_listed => None,
            None if has_started_in(&record) => Some(ExitReason::Evicted(
                "Grid Engine killed its job without a warning: `qacct -j` may say why".into(),
            )),
            None => Some(ExitReason::Cancelled("its job was deleted".into())),
        }
    }

    async fn terminate(job: &str) -> Result<(), CommandError> {
        commands::delete(job).await
    }

    async fn cancel(job: &str, files: Option<&PilotFiles>) -> Result<(), CommandError> {
        if let Some(files) = files {
            // Without it, the script gives the host time to end.
            let _ = fs::write(files.path(GRACE), "0\n");
        }
        commands::delete(job).await
    }
}

impl GridEnginePilots {
    /// Returns the parallel environment of a pilot, which needs none for one slot.
    async fn environment(&self) -> Result<Option<String>, BackendError> {
        let GridEngineSection { pe, slots, .. } = &self.section;
        match (pe, slots) {
            (_, 1) => Ok(None),
            (pe, slots) => environments::choose_for_one_host(pe.as_deref(), *slots).await.map(Some),
        }
    }

    fn directory(&self) -> Result<String, BackendError> {
        match &self.working_dir {
            Some(directory) => Ok(directory.clone()),
            None => script::directory(),
        }
    }
}

/// Returns the options of `qsub`. The last of each kind wins.
fn options(
    section: &GridEngineSection,
    pe: Option<String>,
    request: &PilotRequest<'_>,
    directory: &str,
) -> Result<Vec<String>, BackendError> {
    let owner = request.owner()?.replace(' ', ":");
    let context = format!("{CONTEXT}={owner}");
    let output = text_of(&request.output())?;
    let mut words = script::common_options(request.id, &context, &output, directory, false);
    if let Some(pe) = pe {
        words.extend(["-pe".to_string(), pe, section.slots.to_string()]);
    }
    let GridEngineSection { queue, project, .. } = section;
    let limit = Some(seconds(section.time));
    words.extend(script::place_options(queue.as_ref(), project.as_ref(), limit)?);
    for option in &section.options {
        words.extend(verbatim(
            option,
            &format!("`{option}` in `gridengine.options`"),
            OWN_REMEDIES,
        )?);
    }
    Ok(words)
}

/// Remedies for options that are refused, which differ from those of `fiber run`.
const OWN_REMEDIES: &[(&str, &str)] = &[
    ("-N", "fiber finds its pilots by their names"),
    ("-t", "a pilot is one job: raise `gridengine.pilots`"),
    ("-tc", "a pilot is one job: raise `gridengine.pilots`"),
    ("-sync", "fiber waits for its pilots itself"),
    ("-now", "pilots wait for their slots"),
    ("-terse", "fiber reads the job's id itself; see `gridengine.dry_run`"),
    ("-pe", "set `gridengine.pe` and `gridengine.slots`"),
    ("-wd", "set `working_dir`"),
    ("-cwd", "set `working_dir`"),
    ("-b", "a pilot runs this program"),
];

/// Returns the script.
fn text(
    section: &GridEngineSection,
    request: &PilotRequest<'_>,
    directory: &str,
) -> Result<String, BackendError> {
    let key = quoted(&text_of(&request.key)?);
    let files = quoted(&text_of(&request.key.with_extension(""))?);
    // The secrets are the standard input of the host, after the line with the environment.
    let mut exports = format!(
        "fiber_files={files}\nfiber_is_pilot=1\nexec <{key} && rm -f {key}\n\
         IFS= read -r fiber_environment && eval \"$fiber_environment\"\n\
         unset fiber_environment fiber_line_end\n"
    );
    for (name, value) in request.variables() {
        exports.push_str(&format!("export {name}={}\n", quoted(&value)));
    }
    let program = text_of(&PathBuf::from(program_path()?))?;
    let script = JobScript {
        exports,
        limit: Some(seconds(section.time)),
        directory,
        program: &program,
        arguments: &request.arguments(),
        restarts: 0,
    };
    Ok(script.text())
}

fn is_pilot(job: &QueuedJob) -> bool {
    job.name.starts_with(PILOT_ID)
}

/// Returns a job as one that may be a pilot.
fn pilot(job: &QueuedJob, details: Option<&Details>) -> PilotJob {
    let entries = details.map_or("", |details| &details.context).split(',');
    let mut owners = entries.filter_map(|entry| {
        Some(entry.trim().strip_prefix(CONTEXT)?.strip_prefix('=')?.replace(':', " "))
    });
    PilotJob {
        id: job.id.clone(),
        name: job.name.clone(),
        progress: progress(job, details),
        pilot: is_pilot(job).then(|| job.name.clone()),
        owner: owners.next(),
    }
}

fn progress(job: &QueuedJob, details: Option<&Details>) -> Progress {
    match job.process_state(details) {
        ProcessState::Starting(Some(reason)) if job.has_failed() => Progress::Hopeless(format!(
            "Grid Engine could not start it, {reason}; see `gridengine.dir` and \
             `gridengine.options`"
        )),
        ProcessState::Starting(reason) => {
            let reason = reason.unwrap_or_else(|| "no reason is known yet".into());
            Progress::In(JobState::Waiting(WaitReason::Resources(format!("Grid Engine: {reason}"))))
        }
        _ => Progress::In(JobState::Running),
    }
}

fn exit_reason(status: ExitStatus) -> ExitReason {
    match (status.reason.as_deref(), status.code) {
        (Some(script::OUT_OF_MEMORY), _) => ExitReason::OutOfMemory,
        (Some(script::TIME_LIMIT), _) => {
            ExitReason::Evicted("its job has reached its time limit".into())
        }
        (Some(_), _) => ExitReason::Cancelled("its job was deleted".into()),
        (None, code) => reason_of_code(code),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::sample_spec;

    fn job(letters: &str) -> QueuedJob {
        QueuedJob { letters: letters.into(), ..QueuedJob::sample("7", "fiber-1") }
    }

    #[test]
    fn states_are_told_apart() {
        let details = |reason: &str| Details { reasons: vec![reason.into()], ..Details::default() };
        let waits = progress(&job("qw"), Some(&details("no slots")));
        let reason = WaitReason::Resources("Grid Engine: no slots".into());
        assert_eq!(waits, Progress::In(JobState::Waiting(reason)));
        let failed = progress(&job("Eqw"), Some(&details("no disk")));
        assert!(
            matches!(&failed, Progress::Hopeless(why) if why.contains("no disk")),
            "{failed:?}"
        );
        for letters in ["r", "dr", "s"] {
            assert_eq!(progress(&job(letters), None), Progress::In(JobState::Running));
        }
    }

    #[test]
    fn ends_are_those_that_the_script_records() {
        let ended = |code, reason: Option<&str>| {
            exit_reason(ExitStatus { code, reason: reason.map(String::from) })
        };
        assert_eq!(ended(0, None), ExitReason::Normal);
        assert_eq!(ended(137, None), ExitReason::Signal(9));
        assert_eq!(ended(3, None), ExitReason::Code(3));
        assert_eq!(ended(143, Some(script::OUT_OF_MEMORY)), ExitReason::OutOfMemory);
        for reason in [script::CANCELLED, script::TIME_LIMIT] {
            let ended = ended(143, Some(reason));
            assert!(
                matches!(ended, ExitReason::Cancelled(_) | ExitReason::Evicted(_)),
                "{ended:?}"
            );
        }
    }

    #[test]
    fn a_pilot_is_known_by_its_name_and_its_owner_by_the_context() {
        let (spec, key) = (sample_spec(), PathBuf::from("/x.key"));
        let owner = PilotRequest { id: "fiber-1", key, spec: &spec }.owner().unwrap();
        let context = format!("x=1,{CONTEXT}={}", owner.replace(' ', ":"));
        let details = Details { context, ..Details::default() };
        let found = pilot(&job("r"), Some(&details));
        assert_eq!((found.pilot.as_deref(), found.owner), (Some("fiber-1"), Some(owner)));
        let other = pilot(&QueuedJob::sample("7", "pi"), None);
        assert_eq!((other.pilot, other.owner), (None, None));
    }

    #[test]
    fn a_script_takes_options_and_shows_no_key() {
        let section = GridEngineSection {
            slots: 4,
            queue: Some("long.q".into()),
            options: vec!["-l h_vmem=4G".into()],
            ..GridEngineSection::default()
        };
        let (spec, key) = (sample_spec(), PathBuf::from("/a b/fiber-1.key"));
        let request = PilotRequest { id: "fiber-1", key, spec: &spec };
        let options = options(&section, Some("mpi".into()), &request, "/work").unwrap();
        let text = text(&section, &request, "/work").unwrap();
        let script = BatchScript::new(options, text).unwrap().to_string();
        for line in [
            "#$ -N fiber-1",
            "#$ -o '/a b/fiber-1.out'",
            "#$ -pe mpi 4",
            "#$ -q long.q",
            "#$ -l h_rt=3600",
            "#$ -l h_vmem=4G",
            "exec <'/a b/fiber-1.key' && rm -f '/a b/fiber-1.key'",
            "fiber_files='/a b/fiber-1'",
            "export FIBER_KEY=-",
        ] {
            assert!(script.lines().any(|other| other == line), "{line} is missing in\n{script}");
        }
        assert!(!script.contains("hush"), "{script}");
        let checked = std::process::Command::new("sh").args(["-n", "-c", &script]).output();
        assert!(checked.unwrap().status.success());
    }

    #[test]
    fn options_that_would_break_pilots_are_refused() {
        let (spec, key) = (sample_spec(), PathBuf::from("/x.key"));
        let request = PilotRequest { id: "fiber-1", key, spec: &spec };
        for (option, why) in
            [("-N x", "names"), ("-t 1-3", "gridengine.pilots"), ("x", "no option")]
        {
            let options = vec![option.to_string()];
            let section = GridEngineSection { options, ..GridEngineSection::default() };
            let problem = super::options(&section, None, &request, "/").unwrap_err().to_string();
            assert!(problem.contains("`gridengine.options`") && problem.contains(why), "{problem}");
        }
        let section = GridEngineSection { time: Duration::ZERO, ..GridEngineSection::default() };
        assert!(super::options(&section, None, &request, "/").is_err());
    }
}
