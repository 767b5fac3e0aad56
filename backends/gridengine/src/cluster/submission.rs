//! Submits the job of a session.

use std::path::Path;

use fiber_backends::BackendError;
use fiber_backends::batch::{self, Records, SessionJob, environment_path, program_of, quoted};
use fiber_backends::cluster::{Progress, RunRequest};

use super::super::script::{self, BatchScript, JobScript, text_of};
use super::super::{commands, environments, task};
use super::job_options::JobOptions;

/// The name of a job's context by which fiber finds the job of a session without a record.
pub(super) const CONTEXT: &str = "fiber";
/// A script with what its job needs.
pub(super) struct Submission {
    pub(super) script: BatchScript,
    /// The lines that set the environment: the script reads them from a file, because Grid Engine
    /// shows the environment of a job to everybody.
    environment: Vec<u8>,
    /// The path of the program.
    program: String,
}

impl Submission {
    /// Prepares the job of a session. Creates the folder for its output, which must exist when the
    /// job starts.
    pub(super) async fn of(run: &RunRequest, records: &Records) -> Result<Self, BackendError> {
        let options = JobOptions::of(run)?;
        let program = text_of(&program_of(run)?)?;
        let script = script_of(run, &options, &program, records.folder())?;
        let environment = environment_of(run, records.folder())?;
        let pe = environments::choose(options.pe.as_deref(), options.slots).await?;
        let options = qsub_options(run, &options, &pe, records.folder())?;
        let script = BatchScript::new(options, script)?;
        records.create_folder()?;
        Ok(Submission { script, environment, program })
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
        records.must_be_free(&run.name)?;
        let step = progress.begin("submitting the job");
        records.write_environment(&run.session, &self.environment)?;
        let submitted = async {
            let id = self.script.submit().await?;
            if let Err(problem) = records.describe(&run.name, &id, &run.session, &self.program) {
                commands::delete(&id).await?;
                records.remove(&run.name, &id)?;
                return Err(problem);
            }
            Ok(())
        };
        if let Err(problem) = submitted.await {
            records.remove_needs(&run.session)?;
            return Err(problem);
        }
        step.done();
        Ok(())
    }
}

/// Returns the options of `qsub`. The last of each kind wins.
fn qsub_options(
    run: &RunRequest,
    options: &JobOptions,
    pe: &str,
    folder: &Path,
) -> Result<Vec<String>, BackendError> {
    let context = format!("{CONTEXT}={}", run.session);
    let output = format!("{}/{}.$JOB_ID.out", folder.display(), run.name);
    let directory = script::directory()?;
    let is_restarted = run.restarts > 0;
    let mut words = script::common_options(&run.name, &context, &output, &directory, is_restarted);
    words.extend(["-pe".to_string(), pe.to_string(), options.slots.to_string()]);
    let JobOptions { queue, project, .. } = options;
    words.extend(script::place_options(queue.as_ref(), project.as_ref(), options.limit())?);
    words.extend(options.words.iter().cloned());
    Ok(words)
}

/// Returns the batch script.
fn script_of(
    run: &RunRequest,
    options: &JobOptions,
    program: &str,
    folder: &Path,
) -> Result<String, BackendError> {
    let environment = quoted(&text_of(&environment_path(folder, &run.session))?);
    let script = JobScript {
        exports: format!(". {environment}\n"),
        limit: options.limit(),
        directory: &script::directory()?,
        program,
        arguments: &run.command,
        restarts: run.restarts,
    };
    Ok(script.text())
}

/// Returns the lines that set the environment of this process, and the variables of a session.
fn environment_of(run: &RunRequest, folder: &Path) -> Result<Vec<u8>, BackendError> {
    let files = quoted(&format!("{}/{}.", folder.display(), run.name)) + "$JOB_ID";
    let mut lines = task::environment_for_job();
    lines.extend_from_slice(b"unset fiber_line_end\n");
    lines.extend_from_slice(batch::exports(run, "gridengine", &files)?.as_bytes());
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fiber_backends::cluster::{OptionValue, OptionValues, ProgramSource};
    use fiber_core::Meta;

    use super::*;
    use crate::allocation::ENDS_AT;

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
            attach: false,
            given: Vec::new(),
            options: values,
        }
    }

    fn described(run: &RunRequest) -> String {
        let folder = Path::new("/home/eve");
        let options = JobOptions::of(run).unwrap();
        let script = script_of(run, &options, "/opt/my tools/pi", folder).unwrap();
        let options = qsub_options(run, &options, "mpi", folder).unwrap();
        BatchScript::new(options, script).unwrap().to_string()
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
            ". /home/eve/sessions/00aa11bb/environment",
            "fiber_limit=7200",
            r#"    exec $fiber_plain '/opt/my tools/pi' --seed "it's" <&3 2>&4 3<&- 4>&-"#,
        ] {
            assert!(script.lines().any(|other| other == line), "{line} is missing in\n{script}");
        }
        let environment = environment_of(&run(&[]), Path::new("/home/eve")).unwrap();
        let environment = String::from_utf8_lossy(&environment);
        for line in [
            "export FIBER_BACKEND=gridengine",
            "export GIVEN='a b'",
            "fiber_files=/home/eve/job-1.$JOB_ID",
        ] {
            assert!(environment.lines().any(|other| other == line), "{line}: {environment}");
        }
        for script in [&*script, &environment] {
            let checked = std::process::Command::new("sh").args(["-n", "-c", script]).output();
            assert!(checked.unwrap().status.success());
        }
    }

    #[test]
    fn a_session_without_a_limit_has_none() {
        let script = described(&run(&[]));
        assert!(!script.contains("#$ -l ") && !script.contains(ENDS_AT), "{script}");
        assert!(script.contains("#$ -pe mpi 1\n") && script.contains("#$ -r n\n"), "{script}");
        let restarted = described(&RunRequest { restarts: 2, ..run(&[]) });
        assert!(restarted.contains("#$ -r y\n") && restarted.contains("-lt 2 ]"), "{restarted}");
    }
}
