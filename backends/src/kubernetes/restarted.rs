//! Heads that Kubernetes starts again: Jobs of `batch/v1`. The Job has the session's name, and
//! makes a pod for each start.

use std::cmp::Reverse;

use fiber_core::ExitReason;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, Toleration};
use kube::api::{DeleteParams, ListParams};
use tokio::time::{Instant, sleep};

use super::api_server::{ApiServer, is_forbidden, is_missing};
use super::names::SESSION;
use super::startup::StartTimeouts;
use super::status::exit_reason;
use super::{events, kept, object_watch};
use crate::BackendError;
use crate::progress::Progress;

/// The label with the name of a pod's Job. Kubernetes sets it.
const JOB: &str = "job-name";
/// The seconds for which a head stays on a node that is lost. Meanwhile its workers elsewhere have
/// lost it and ended, so Kubernetes' default of 300 s would only delay the work.
const LOST_NODE: i64 = 30;
/// The taints of lost nodes.
const LOST: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// The pause before a Job is looked at again that has no pod yet.
pub(super) const PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

/// Returns the Job that runs a head, and starts it again up to `restarts` times.
pub(super) fn job(pod: Pod, restarts: u32) -> Job {
    let mut spec = pod.spec.unwrap_or_default();
    let tolerations = spec.tolerations.get_or_insert_default();
    for taint in LOST {
        if tolerations.iter().all(|toleration| toleration.key.as_deref() != Some(taint)) {
            tolerations.push(Toleration {
                key: Some(taint.into()),
                operator: Some("Exists".into()),
                effect: Some("NoExecute".into()),
                toleration_seconds: Some(LOST_NODE),
                value: None,
            });
        }
    }
    let mut of_pod = pod.metadata.clone();
    of_pod.name = None;
    Job {
        metadata: pod.metadata,
        spec: Some(JobSpec {
            backoff_limit: Some(i32::try_from(restarts).unwrap_or(i32::MAX)),
            template: PodTemplateSpec { metadata: Some(of_pod), spec: Some(spec) },
            ..Default::default()
        }),
        status: None,
    }
}

/// Returns the name of the Job that made a pod: the name of the session.
pub(super) fn job_of(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(JOB).map(String::as_str)
}

/// Returns the pods of a session's starts, oldest first.
pub(super) async fn pods(server: &ApiServer, session: &str) -> Result<Vec<Pod>, kube::Error> {
    let selector = ListParams::default().labels(&format!("{SESSION},{JOB}={session}"));
    let mut pods = server.api::<Pod>().list(&selector).await?.items;
    sort(&mut pods);
    Ok(pods)
}

/// Sorts the pods of one Job by age. One that has ended comes before its replacement.
pub(super) fn sort(pods: &mut [Pod]) {
    pods.sort_by_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, Reverse(is_over(pod)))
    });
}

/// Returns the name of the pod that runs a head: its own, or that of its last start.
pub(super) async fn current(server: &ApiServer, head: &str) -> Result<String, kube::Error> {
    if server.api::<Pod>().get_opt(head).await?.is_some() {
        return Ok(head.to_string());
    }
    let newest = pods(server, head).await?.pop();
    Ok(newest.and_then(|pod| pod.metadata.name).unwrap_or_else(|| head.to_string()))
}

/// Returns the Jobs of all sessions; none if this user may not list them.
pub(super) async fn jobs(server: &ApiServer, selector: &str) -> Result<Vec<Job>, kube::Error> {
    let jobs = server.api::<Job>().list(&ListParams::default().labels(selector)).await;
    match jobs {
        Err(error) if is_forbidden(&error) || is_missing(&error) => Ok(Vec::new()),
        jobs => Ok(jobs?.items),
    }
}

/// Returns whether a Job makes no more pods.
pub(super) fn is_finished(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| {
        condition.status == "True" && matches!(&*condition.type_, "Complete" | "Failed")
    })
}

/// Returns how many times Kubernetes has started the head again.
pub(super) fn restarts(job: &Job) -> u64 {
    let failed = job.status.as_ref().and_then(|status| status.failed).unwrap_or(0);
    let limit = job.spec.as_ref().and_then(|spec| spec.backoff_limit).unwrap_or(0);
    u64::try_from(failed.min(limit)).unwrap_or(0)
}

/// Returns whether a session of this name makes no more pods.
pub(super) async fn has_finished(server: &ApiServer, session: &str) -> Result<bool, kube::Error> {
    match server.api::<Job>().get_opt(session).await {
        // Without the right to read Jobs, the end of the last pod is the best guess.
        Err(error) if is_forbidden(&error) => Ok(true),
        job => Ok(job?.is_none_or(|job| is_finished(&job))),
    }
}

/// Waits for the first pod of a Job, and returns its name.
///
/// # Errors
/// Kubernetes' reason why there is none.
pub(super) async fn first_pod(
    server: &ApiServer,
    session: &str,
    timeouts: StartTimeouts,
    progress: &dyn Progress,
) -> Result<String, BackendError> {
    let mut step = progress.begin(&format!("creating a pod for {session}"));
    let deadline = Instant::from(fiber_core::deadline_after(timeouts.start));
    loop {
        let pods = pods(server, session).await.map_err(|error| server.explain(&error))?;
        if let Some(name) = pods.into_iter().next().and_then(|pod| pod.metadata.name) {
            step.done();
            return Ok(name);
        }
        let event = events::last(server, "Job", session).await;
        if Instant::now() > deadline {
            let problem = event.unwrap_or_else(|| "its Job has no pod".into());
            return Err(refused!(
                "no pod was created within {:?} (`start_timeout` sets the limit): {problem}",
                timeouts.start
            ));
        }
        if let Some(event) = event {
            step.detail(&event);
        }
        sleep(PAUSE).await;
    }
}

/// Waits until a session makes no more pods and its last one has ended. Returns `None` if it was
/// deleted without a report of its exit status.
///
/// # Errors
/// The right to watch it is missing.
pub(super) async fn wait(
    server: &ApiServer,
    session: &str,
) -> Result<Option<ExitReason>, kube::Error> {
    let complete = tokio::select! {
        complete = object_watch::wait_for(server, session, completeness) => {
            complete?.unwrap_or(false)
        }
        () = kept::wait(server, session) => false,
    };
    let newest = pods(server, session).await.ok().and_then(|mut pods| pods.pop());
    if let Some(container) =
        newest.as_ref().filter(|pod| !kept::is_done(pod)).and_then(kept::container)
    {
        tracing::warn!("{session} is not started again: {}", kept::problem(container));
    }
    let status = match newest.and_then(|pod| pod.metadata.name) {
        Some(pod) => object_watch::wait_for(server, &pod, exit_reason).await?,
        None => None,
    };
    Ok(status.or(complete.then_some(ExitReason::Normal)))
}

/// Returns whether a Job is complete, if it is finished.
fn completeness(job: &Job) -> Option<bool> {
    let succeeded = job.status.as_ref().is_some_and(|status| status.succeeded > Some(0));
    is_finished(job).then_some(succeeded)
}

/// Deletes the Job of a session, which then makes no more pods. Its pods are deleted, too, each
/// with its grace period.
///
/// # Errors
/// The API server's error. A Job that does not exist is no error.
pub(super) async fn remove_job(server: &ApiServer, session: &str) -> Result<(), kube::Error> {
    match server.api::<Job>().delete(session, &DeleteParams::background()).await {
        Err(error) if is_missing(&error) => Ok(()),
        result => result.map(drop),
    }
}

/// Deletes the Job of a session that may have none, like [`remove_job`].
pub(super) async fn remove_job_if_any(
    server: &ApiServer,
    session: &str,
) -> Result<(), kube::Error> {
    match remove_job(server, session).await {
        // A user without the right has no such session either.
        Err(error) if is_forbidden(&error) && pods(server, session).await?.is_empty() => Ok(()),
        result => result,
    }
}

/// Returns whether a pod has ended or is being removed.
pub(super) fn is_over(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() || exit_reason(pod).is_some()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
    use k8s_openapi::api::core::v1::PodSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    #[test]
    fn a_job_has_the_name_of_the_session_and_leaves_a_lost_node_soon() {
        let own = Toleration { key: Some(LOST[0].into()), ..Default::default() };
        let spec = PodSpec { tolerations: Some(vec![own.clone()]), ..Default::default() };
        let metadata = ObjectMeta { name: Some("train".into()), ..Default::default() };
        let job = job(Pod { metadata, spec: Some(spec), status: None }, 3);
        assert_eq!(job.metadata.name.as_deref(), Some("train"));
        let spec = job.spec.unwrap();
        assert_eq!((spec.backoff_limit, spec.template.metadata.unwrap().name), (Some(3), None));
        let tolerations = spec.template.spec.unwrap().tolerations.unwrap();
        assert_eq!(tolerations[0], own);
        assert_eq!(tolerations[1].key.as_deref(), Some(LOST[1]));
        assert_eq!((tolerations[1].toleration_seconds, tolerations.len()), (Some(LOST_NODE), 2));
    }

    #[test]
    fn the_failure_that_ends_a_job_is_no_restart() {
        let mut job = job(Pod::default(), 2);
        assert!(!is_finished(&job) && restarts(&job) == 0);
        let condition =
            JobCondition { type_: "Failed".into(), status: "True".into(), ..Default::default() };
        let conditions = Some(vec![condition]);
        job.status = Some(JobStatus { failed: Some(3), conditions, ..Default::default() });
        assert!(is_finished(&job) && restarts(&job) == 2);
    }
}
