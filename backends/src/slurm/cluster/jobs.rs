//! The jobs that `fiber run` has submitted, and their hosts.

use std::env;

use fiber_core::read_lossy;

use super::super::commands::{self, CommandError};
use super::super::jobs::{self, Job, Step};
use super::status;
use crate::batch::SessionJob;
use crate::cluster::session::SessionProcess;
use crate::{BackendError, JobPlace};

/// The first word of the comment of each job that `fiber run` has submitted.
pub(super) const MARK: &str = "fiber";

/// Returns the session of a job, if it has one.
fn session(job: Job) -> Option<SessionJob> {
    let mut words = job.comment.splitn(3, ' ');
    if words.next() != Some(MARK) {
        return None;
    }
    let (session, program) = (words.next()?.to_string(), words.next()?.to_string());
    Some(SessionJob {
        session,
        program,
        state: status::process_state(&job),
        meta: job.meta(),
        name: job.name,
        id: job.id,
        restarts: job.restarts,
        submitted: job.submitted,
        node: job.node,
        output: job.output.into(),
    })
}

/// Returns a host of a session, as `fiber ps` shows it.
fn host(session: &str, step: Step) -> SessionProcess {
    let place = JobPlace::Step { id: Some(step.id.clone()), node: None, client: None };
    SessionProcess {
        job: step.id,
        parent: Some(session.to_string()),
        machine: step.node,
        // It is a part of the session's.
        has_output: false,
        started_at: step.started,
        ..SessionProcess::new(step.name, place)
    }
}

/// Returns the jobs of all sessions that Slurm knows, newest first.
pub(super) async fn all() -> Result<Vec<SessionJob>, CommandError> {
    Ok(jobs::of_this_user().await?.into_iter().filter_map(session).collect())
}

/// Returns the hosts of these sessions.
pub(super) async fn hosts_of(jobs: &[SessionJob]) -> Result<Vec<SessionProcess>, CommandError> {
    let of = |step: Step| {
        let job = jobs.iter().find(|job| job.id == step.job)?;
        Some(host(&job.name, step))
    };
    Ok(hosts().await?.into_iter().filter_map(of).collect())
}

/// Returns the steps that are hosts: not those of `fiber top` and others.
pub(super) async fn hosts() -> Result<Vec<Step>, CommandError> {
    let steps = jobs::steps().await?.into_iter();
    Ok(steps.filter(|step| step.name != super::inspect::STEP).collect())
}

/// Keeps a job from being queued again after its end. A job that has ended needs nothing.
pub(super) async fn forbid_requeue(id: &str) {
    let _ = commands::run("scontrol", &["update", &format!("JobId={id}"), "Requeue=0"]).await;
}

/// The file that configures Slurm on most systems.
const CONFIGURATION: &str = "/etc/slurm/slurm.conf";

/// Returns the name of the cluster: as its file says, which can be read while slurmctld does not
/// answer, or as slurmctld says.
pub(super) async fn cluster_name() -> Result<String, BackendError> {
    // This variable may ask for another cluster than the file's.
    if env::var_os("SLURM_CLUSTERS").is_none() {
        let path = env::var_os("SLURM_CONF").unwrap_or_else(|| CONFIGURATION.into());
        if let Some(name) = read_lossy(path).ok().and_then(|text| name_in(&text)) {
            return Ok(name);
        }
    }
    let shown = commands::run("scontrol", &["show", "config"]).await?;
    name_in(&shown).ok_or_else(|| "`scontrol show config` does not say the cluster's name".into())
}

fn name_in(configuration: &str) -> Option<String> {
    let mut fields = configuration.lines().filter_map(|line| line.split_once('='));
    let (_, name) = fields.find(|(key, _)| key.trim().eq_ignore_ascii_case("ClusterName"))?;
    let name = name.split('#').next().unwrap_or_default().trim();
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    // Slurm itself knows it in small letters.
    Some(name.to_lowercase()).filter(|name| !name.is_empty() && name.chars().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_cluster_stands_in_its_file_and_in_slurms_answer() {
        let name = |text| name_in(text);
        assert_eq!(name("# ClusterName=x\nclustername=lab_1 # ours\n").as_deref(), Some("lab_1"));
        assert_eq!(name("ClusterName             = Lab\n").as_deref(), Some("lab"));
        assert_eq!(name("SlurmctldHost=a\n"), None);
        assert_eq!(name("ClusterName=../x\n"), None);
    }

    #[test]
    fn a_sessions_job_is_known_by_its_comment() {
        let of = |comment: &str| {
            session(Job {
                name: "pi".into(),
                node: Some("n1".into()),
                comment: comment.into(),
                ..Job::sample("17", "FAILED")
            })
        };
        let job = of("fiber 00aa11bb /home/a b/pi").expect("it is one");
        assert_eq!((&*job.session, &*job.program), ("00aa11bb", "/home/a b/pi"));
        let process = job.process();
        assert_eq!(process.program.as_deref(), Some("pi"));
        let place = process.place.to_string();
        assert_eq!((place.as_str(), process.machine.as_deref()), ("job 17", Some("n1")));
        assert_eq!(of("fibers of others"), None);
        assert_eq!(of("fiber-pilot fiber-1 owner"), None);
    }
}
