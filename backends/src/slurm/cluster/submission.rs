//! Submits the job of a session.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::commands;
use super::records::Records;
use super::{PAUSE, jobs, partitions, script, status};
use crate::cluster::session::RunRequest;
use crate::progress::Progress;

/// Time for Slurm to see that a job never starts.
const SEEN: Duration = Duration::from_secs(2);

/// Returns the options of `sbatch` for a session, and its batch script. Creates the folder for its
/// output, which must exist when the job starts.
pub(super) fn script(records: &Records, run: &RunRequest) -> Result<(Vec<String>, String), String> {
    let options = script::options(run, records.folder())?;
    let text = script::script(run, &options)?;
    records.create_folder()?;
    Ok((options, text))
}

/// Submits a job and returns when Slurm has it, and does not refuse to start it.
pub(super) async fn submit(
    records: &Records,
    run: &RunRequest,
    progress: &dyn Progress,
) -> Result<(), String> {
    let (options, text) = script(records, run)?;
    partitions::check(&run.allocation).await?;
    if jobs::all().await?.iter().any(|job| job.name == run.name && !job.has_ended()) {
        return Err(format!(
            "a job `{0}` exists already: choose another name, or end that one (`fiber kill {0}`)",
            run.name
        ));
    }
    let step = progress.begin("submitting the job");
    // On the command line as well: there they overrule variables such as SBATCH_PARTITION.
    let mut arguments = vec!["--parsable"];
    arguments.extend(options.iter().map(String::as_str));
    let answer = commands::sbatch(&arguments, &text).await?;
    let id = id(&answer)?;
    let started = async {
        records.create(&run.name, &id)?;
        must_be_startable(&id).await
    };
    if let Err(problem) = started.await {
        commands::scancel(&[&id]).await?;
        records.remove(&run.name, &id)?;
        return Err(problem);
    }
    step.done();
    Ok(())
}

/// Returns the id of the job from `ID` or `ID;CLUSTER`.
fn id(answer: &str) -> Result<String, String> {
    let last = answer.lines().last().unwrap_or_default();
    let id = last.split(';').next().unwrap_or_default().trim();
    match !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(id.to_string()),
        false => Err(format!(
            "sbatch answered `{answer}` instead of a job's id: `squeue --me` shows whether there \
             is a job"
        )),
    }
}

/// Fails for a job that Slurm has accepted and never starts.
async fn must_be_startable(id: &str) -> Result<(), String> {
    let begun = Instant::now();
    while begun.elapsed() < SEEN {
        let job = jobs::all().await?.into_iter().find(|job| job.id == id);
        match job {
            Some(job) if job.is_pending() && status::is_hopeless(&job.reason) => {
                return Err(format!(
                    "Slurm does not start the job: {}: see `--partition`, `--account`, `--qos`, \
                     `--nodes` and `--time`",
                    status::explained(&job.reason)
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

#[cfg(test)]
mod tests {
    use super::id;

    #[test]
    fn the_id_is_read_from_parsable_answers() {
        assert_eq!(id("4711"), Ok("4711".into()));
        assert_eq!(id("4711;cluster"), Ok("4711".into()));
        assert!(id("Submitted batch job 4711").unwrap_err().contains("squeue"));
        assert!(id("").is_err());
    }
}
