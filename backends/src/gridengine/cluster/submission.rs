//! Submits the job of a session.

use std::path::Path;

use super::super::allocation::ENDS_AT;
use super::super::commands;
use super::environments;
use super::job_options::JobOptions;
use crate::BackendError;
use crate::batch::{self, HeadScript, Records, SessionJob, program_of, quoted};
use crate::cluster::session::RunRequest;
use crate::progress::Progress;

/// The name of a job's context by which fiber finds the job of a session without a record.
pub(super) const CONTEXT: &str = "fiber";
/// How many seconds a head has to end if `fiber kill` does not say it: the `notify` of queues,
/// after which Grid Engine kills the job, is 60 s by default.
const GRACE: u32 = 50;

/// A script with the options of its `qsub`.
pub(super) struct Submission {
    options: Vec<String>,
    script: String,
    /// The path of the program.
    program: String,
}

impl Submission {
    /// Prepares the job of a session. Creates the folder for its output, which must exist when the
    /// job starts.
    pub(super) async fn of(run: &RunRequest, records: &Records) -> Result<Self, BackendError> {
        if run.restarts > 0 {
            return Err("Grid Engine does not start a session again: leave --restarts out, and \
                        start it once more; durable calls go on"
                .into());
        }
        let options = JobOptions::of(run)?;
        let program = program_of(run)?;
        let program = program.to_str().map(String::from).ok_or_else(|| {
            refused!("the path {} is no UTF-8, which a script needs", program.display())
        })?;
        let script = script(run, &options, &program, records.folder())?;
        let pe = environments::choose(&options).await?;
        let options = qsub_options(run, &options, &pe, records.folder())?;
        records.create_folder()?;
        Ok(Submission { options, script, program })
    }

    /// Returns the script, with its options as comments for `qsub`.
    pub(super) fn described(&self) -> String {
        let mut lines = String::from("#!/bin/sh\n");
        for words in self.options.chunk_by(|_, next| !next.starts_with('-')) {
            let words: Vec<String> = words.iter().map(|word| directive(word)).collect();
            lines.push_str(&format!("#$ {}\n", words.join(" ")));
        }
        lines + &self.script
    }

    /// Submits the job and returns when Grid Engine has it.
    pub(super) async fn submit(
        &self,
        run: &RunRequest,
        records: &Records,
        jobs: &[SessionJob],
        progress: &dyn Progress,
    ) -> Result<(), BackendError> {
        if jobs.iter().any(|job| job.name == run.name && !job.has_ended()) {
            return Err(refused!(
                "a job `{0}` exists already: choose another name, or end that one (`fiber kill {0}`)",
                run.name
            ));
        }
        let step = progress.begin("submitting the job");
        let id = commands::submit(&self.options, &format!("#!/bin/sh\n{}", self.script)).await?;
        if let Err(problem) = records.describe(&run.name, &id, &run.session, &self.program) {
            commands::delete(&id).await?;
            records.remove(&run.name, &id)?;
            return Err(problem);
        }
        step.done();
        Ok(())
    }
}

/// Returns a word as a line `#$` has it, which knows quotes and no variables of a shell.
fn directive(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-$*".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => quoted(word),
    }
}

/// Returns the options of `qsub`. The last of each kind wins.
fn qsub_options(
    run: &RunRequest,
    options: &JobOptions,
    pe: &str,
    folder: &Path,
) -> Result<Vec<String>, BackendError> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| words.extend([option.to_string(), value]);
    add("-N", run.name.clone());
    add("-ac", format!("{CONTEXT}={}", run.session));
    add("-S", "/bin/sh".into());
    add("-j", "y".into());
    add("-o", format!("{}/{}.$JOB_ID.out", folder.display(), run.name));
    add("-wd", directory()?);
    add("-pe", pe.to_string());
    words.push(options.slots.to_string());
    let mut add = |option: &str, value: String| words.extend([option.to_string(), value]);
    // A job that no hosts can ever run is refused.
    add("-w", "e".into());
    add("-r", "n".into());
    if let Some(queue) = &options.queue {
        add("-q", queue.clone());
    }
    if let Some(project) = &options.project {
        add("-P", project.clone());
    }
    if let Some(limit) = options.limit() {
        if limit == 0 {
            return Err("the time limit is too short: give at least `--time 1s`".into());
        }
        add("-l", format!("h_rt={limit}"));
    }
    // The environment of `fiber run`, and a signal before the end.
    words.extend(["-V".to_string(), "-notify".to_string()]);
    words.extend(options.words.iter().cloned());
    match words.iter().find(|word| word.contains(['\n', '\0'])) {
        Some(wrong) => Err(refused!("`{wrong}` has a line break, which no option of qsub may have")),
        None => Ok(words),
    }
}

/// The functions of the script. Grid Engine sends SIGUSR2 to all processes of a job before it kills
/// them (`-notify`): at `qdel`, and at the time limit.
const FUNCTIONS: &str = r#"# Ends the head in order, before Grid Engine kills the job.
fiber_stop() {
    fiber_signal=USR2
    [ -z "$fiber_reason" ] || return 0
    fiber_reason=cancelled
    [ -z "$fiber_limit" ] || [ "$(date +%s)" -lt $((fiber_limit - 5)) ] || fiber_reason='its time limit'
    kill -TERM $fiber_head
    (
        trap '' USR1 USR2
        fiber_waited=0
        # `fiber kill` may shorten the time while it passes.
        while [ "$fiber_waited" -lt "$(cat "$fiber_files.grace" || echo "$fiber_grace")" ]; do
            sleep 1
            fiber_waited=$((fiber_waited + 1))
        done
        kill -KILL $fiber_head
    ) &
}"#;
const TRAPS: &str = "trap fiber_stop USR2
# The head has them already.
for fiber_signal in USR1 XCPU; do
    trap \"fiber_signal=$fiber_signal\" $fiber_signal
done";
/// A head that has ended in order was cancelled all the same.
const ENDED: &str = r#"[ -z "$fiber_reason" ] || [ $fiber_code -ne 0 ] || fiber_code=143"#;

/// Returns the batch script.
fn script(
    run: &RunRequest,
    options: &JobOptions,
    program: &str,
    folder: &Path,
) -> Result<String, BackendError> {
    let files = quoted(&format!("{}/{}.", folder.display(), run.name)) + "$JOB_ID";
    let mut exports = batch::exports(run, "gridengine", &files)?;
    exports.push_str(&format!("fiber_grace={GRACE}\nfiber_limit=\n"));
    if let Some(limit) = options.limit() {
        exports.push_str(&format!(
            "fiber_limit=$(($(date +%s) + {limit}))\nexport {ENDS_AT}=\"$JOB_ID $fiber_limit\"\n"
        ));
    }
    let script = HeadScript {
        exports,
        node: "$(hostname)",
        directory: &directory()?,
        elsewhere: "`cd DIRECTORY`",
        program,
        arguments: &run.command,
        missing: "put it on a file system that all hosts share",
        begin: "echo started >\"$fiber_files.exit\"",
        before_end: String::new(),
        functions: FUNCTIONS,
        ignored: "# A program that wants to know of them sets handlers.\n    trap '' USR1 USR2",
        traps: TRAPS,
        ended: ENDED,
    };
    Ok(script.text())
}

/// Returns the working directory of the session.
fn directory() -> Result<String, BackendError> {
    let path = std::env::current_dir()
        .map_err(|error| format!("the working directory can't be told: {error}"))?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fiber_core::Meta;

    use super::*;
    use crate::cluster::session::ProgramSource;
    use crate::cluster::{OptionValue, OptionValues};

    fn run(options: &[(&'static str, OptionValue)]) -> RunRequest {
        let mut values = OptionValues::default();
        options.iter().for_each(|(name, value)| values.add(name, value.clone()));
        RunRequest {
            session: "00aa11bb".into(),
            name: "job-1".into(),
            source: ProgramSource::Executable("/opt/my tools/pi".into()),
            command: vec!["--seed".into(), "it's".into()],
            meta: Meta::new(),
            volumes: Vec::new(),
            environment: vec![("GIVEN".into(), "a b".into())],
            restarts: 0,
            given: Vec::new(),
            options: values,
        }
    }

    fn described(run: &RunRequest) -> String {
        let folder = Path::new("/home/eve");
        let options = JobOptions::of(run).unwrap();
        let script = script(run, &options, "/opt/my tools/pi", folder).unwrap();
        let options = qsub_options(run, &options, "mpi", folder).unwrap();
        Submission { options, script, program: String::new() }.described()
    }

    #[test]
    fn a_script_has_all_of_a_session() {
        let script = described(&run(&[
            ("slots", OptionValue::Count(4)),
            ("time", OptionValue::Time(Duration::from_secs(7200))),
            ("queue", OptionValue::Text("long.q".into())),
            ("gridengine", OptionValue::Text("-l h_vmem=4G".into())),
        ]));
        for line in [
            "#!/bin/sh",
            "#$ -N job-1",
            "#$ -ac fiber=00aa11bb",
            "#$ -pe mpi 4",
            "#$ -l h_rt=7200",
            "#$ -q long.q",
            "#$ -l h_vmem=4G",
            "#$ -notify",
            "export FIBER_BACKEND=gridengine",
            "export GIVEN='a b'",
            "fiber_files=/home/eve/job-1.$JOB_ID",
            "fiber_limit=$(($(date +%s) + 7200))",
            r#"    exec $fiber_plain '/opt/my tools/pi' --seed "it's" <&3 2>&4 3<&- 4>&-"#,
        ] {
            assert!(script.lines().any(|other| other == line), "{line} is missing in\n{script}");
        }
        let checked = std::process::Command::new("sh").args(["-n", "-c", &script]).output();
        assert!(checked.unwrap().status.success());
    }

    #[test]
    fn a_session_without_a_limit_has_none() {
        let script = described(&run(&[]));
        assert!(!script.contains("h_rt") && !script.contains(ENDS_AT), "{script}");
        assert!(script.contains("#$ -pe mpi 1\n"), "{script}");
    }
}
