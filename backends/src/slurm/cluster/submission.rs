//! Submits the job of a session.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::script::BatchScript;
use super::super::{commands, jobs, states};
use super::job_options::JobOptions;
use super::{batch, jobs as sessions, partitions};
use crate::BackendError;
use crate::batch::{PAUSE, Records, program_of};
use crate::cluster::session::RunRequest;
use crate::progress::Progress;

/// Time for Slurm to see that a job never starts.
const SEEN: Duration = Duration::from_secs(2);

/// Returns the batch script of a session. Creates the folder for its output, which must exist when
/// the job starts.
pub(super) fn script(records: &Records, run: &RunRequest) -> Result<BatchScript, BackendError> {
    let script = batch::script(run, records.folder())?;
    records.create_folder()?;
    Ok(script)
}

/// Submits a job and returns when Slurm has it, and does not refuse to start it.
pub(super) async fn submit(
    records: &Records,
    run: &RunRequest,
    progress: &dyn Progress,
) -> Result<(), BackendError> {
    let script = script(records, run)?;
    partitions::check(&JobOptions::of(run)).await?;
    if sessions::all().await?.iter().any(|job| job.name == run.name && !job.has_ended()) {
        return Err(refused!(
            "a job `{0}` exists already: choose another name, or end that one (`fiber kill {0}`)",
            run.name
        ));
    }
    records.must_be_free(&run.name)?;
    let step = progress.begin("submitting the job");
    if batch::copies_program(run) {
        records.copy_program(&run.session, &program_of(run)?)?;
    }
    let submitted = async {
        let id = script.submit().await?;
        let started = async {
            records.create(&run.name, &id)?;
            must_be_startable(&id).await
        };
        if let Err(problem) = started.await {
            commands::cancel(&[&id]).await?;
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

/// Fails for a job that Slurm has accepted and never starts.
async fn must_be_startable(id: &str) -> Result<(), BackendError> {
    let begun = Instant::now();
    while begun.elapsed() < SEEN {
        let job = jobs::of_this_user().await?.into_iter().find(|job| job.id == id);
        match job {
            Some(job) if job.is_pending() && states::is_hopeless(&job.reason) => {
                return Err(refused!(
                    "Slurm does not start the job: {}: see `--partition`, `--account`, `--qos`, \
                     `--nodes` and `--time`",
                    states::explained(&job.reason)
                ));
            }
            // The scheduler has not looked at it yet.
            None => {}
            Some(job) if job.is_pending() && matches!(job.reason.as_str(), "None" | "") => {}
            Some(_) => break,
        }
        sleep(PAUSE.0).await;
    }
    Ok(())
}
