//! The sessions that a namespace's pods belong to.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use fiber_core::{ExitReason, Meta};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;

use super::api_server::ApiServer;
use super::kept;
use super::names::{GPU, NAME, OWNER, RESTARTS, SESSION, program_container};
use super::restarted::{self, job_of};
use super::status::{PodState, pod_state};
use crate::JobPlace;
use crate::cluster::session::{ExitStatus, ProcessState, SessionProcess};
use crate::owner::JobOwner;

/// The component of a session's head, in the recommended labels.
pub(super) const HEAD: &str = "head";

/// Returns the processes of all sessions, from the annotations of the pods.
pub(super) async fn list(server: &ApiServer) -> Result<Vec<SessionProcess>, kube::Error> {
    let pods = server.api::<Pod>().list(&ListParams::default().labels(SESSION)).await?.items;
    let uids: HashMap<String, String> = pods
        .iter()
        .filter_map(|pod| Some((pod.metadata.uid.clone()?, name(pod)?.to_string())))
        .collect();
    let (of_jobs, pods): (Vec<Pod>, Vec<Pod>) =
        pods.into_iter().partition(|pod| job_of(pod).is_some());
    let mut processes = restarted_heads(restarted::jobs(server, SESSION).await?, of_jobs);
    for pod in &pods {
        let Some(name) = pod.metadata.name.clone() else { continue };
        let annotation = |key| pod.metadata.annotations.as_ref()?.get(key).map(String::as_str);
        let parent = match annotation(OWNER).and_then(JobOwner::from_text) {
            None => None,
            Some(JobOwner::Pod { uid, .. }) if uids.contains_key(&uid) => uids.get(&uid).cloned(),
            Some(owner) => {
                let head = external_head(server, &owner).await?;
                let job = head.job.clone();
                if !processes.iter().any(|other| other.job == job) {
                    processes.push(head);
                }
                Some(job)
            }
        };
        let named = annotation(NAME).unwrap_or_default().to_string();
        processes.push(SessionProcess {
            machine: node(pod),
            state: state(pod),
            restarts: annotation(RESTARTS).and_then(|count| count.parse().ok()).unwrap_or(0),
            meta: meta(pod),
            started_at: created(&pod.metadata),
            ..SessionProcess::of_job(name.clone(), named, parent, JobPlace::Pod { name })
        });
    }
    Ok(processes)
}

/// Returns the name by which the command calls a pod's process: that of the pod, or of its Job.
fn name(pod: &Pod) -> Option<&str> {
    job_of(pod).or(pod.metadata.name.as_deref())
}

/// Returns the name of the node on which a pod runs, once it has one.
fn node(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

/// Returns the heads that Kubernetes starts again, from their Jobs and the pods of these.
fn restarted_heads(jobs: Vec<Job>, pods: Vec<Pod>) -> Vec<SessionProcess> {
    let mut heads: BTreeMap<String, (Option<Job>, Vec<Pod>)> = BTreeMap::new();
    for job in jobs {
        let name = job.metadata.name.clone().unwrap_or_default();
        heads.entry(name).or_default().0 = Some(job);
    }
    for pod in pods {
        heads.entry(job_of(&pod).unwrap_or_default().to_string()).or_default().1.push(pod);
    }
    let head = |(name, (job, mut pods)): (String, (Option<Job>, Vec<Pod>))| {
        restarted::sort(&mut pods);
        let newest = pods.last();
        let of_job = job.as_ref().map(|job| &job.metadata);
        let metadata = of_job.or(newest.map(|pod| &pod.metadata))?;
        let program = metadata.annotations.as_ref().and_then(|annotations| annotations.get(NAME));
        let goes_on = job.as_ref().is_some_and(|job| !restarted::is_finished(job));
        let place = match newest.and_then(|pod| pod.metadata.name.as_deref()) {
            Some(pod) => JobPlace::Pod { name: pod.to_string() },
            None => JobPlace::Job { id: name.clone() },
        };
        Some(SessionProcess {
            program: program.cloned(),
            machine: newest.and_then(node),
            state: match newest {
                Some(pod) if goes_on && restarted::is_over(pod) => match state(pod) {
                    ended @ ProcessState::Ended(_) if kept::is_done(pod) => ended,
                    ProcessState::Ended(ended) => {
                        let why = match kept::container(pod) {
                            Some(container) => kept::problem(container),
                            None => format!("again, after exit code {}", ended.code),
                        };
                        ProcessState::Starting(Some(why))
                    }
                    _ => ProcessState::Starting(Some("again, after its pod was deleted".into())),
                },
                Some(pod) => state(pod),
                None if goes_on => ProcessState::Starting(None),
                None => ProcessState::Gone,
            },
            restarts: job.as_ref().map_or(0, restarted::restarts),
            meta: newest.map(meta).unwrap_or_default(),
            started_at: created(metadata),
            ..SessionProcess::new(name, place)
        })
    };
    heads.into_iter().filter_map(head).collect()
}

fn created(metadata: &ObjectMeta) -> Option<SystemTime> {
    let seconds = metadata.creation_timestamp.as_ref()?.0.as_second();
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// Removes the pods of heads that have ended, and returns the names of the heads.
pub(super) async fn remove_ended_heads(server: &ApiServer) -> Result<Vec<String>, kube::Error> {
    let heads = format!("{SESSION},app.kubernetes.io/component={HEAD}");
    let mut removed = Vec::new();
    let mut pods = server.api::<Pod>().list(&ListParams::default().labels(&heads)).await?.items;
    restarted::sort(&mut pods);
    let is_done = |job: &&Job| {
        let newest = pods.iter().rfind(|pod| job_of(pod) == job.metadata.name.as_deref());
        restarted::is_finished(job) || newest.is_some_and(kept::is_done)
    };
    let jobs = restarted::jobs(server, &heads).await?;
    // A refusal keeps nothing else.
    let mut refused = None;
    for name in jobs.iter().filter(is_done).filter_map(|job| job.metadata.name.as_deref()) {
        match restarted::remove_job(server, name).await {
            Ok(()) => removed.push(name.to_string()),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    let is_of_job = |pod: &Pod| {
        job_of(pod)
            .is_some_and(|job| jobs.iter().any(|one| one.metadata.name.as_deref() == Some(job)))
    };
    pods.retain(|pod| !is_of_job(pod));
    for pod in pods {
        if let (ProcessState::Ended(_), Some(name)) = (state(&pod), &pod.metadata.name) {
            match server.remove::<Pod>(name).await {
                Ok(_) => removed.push(name.clone()),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
    }
    refused.map_or(Ok(removed), Err)
}

/// Returns a head outside of fiber's pods: a program on a host, or in a user's own pod.
async fn external_head(
    server: &ApiServer,
    owner: &JobOwner,
) -> Result<SessionProcess, kube::Error> {
    let JobOwner::Pod { name, uid } = owner else { return Ok(owner.head_on_host()) };
    let found = server.api::<Pod>().get_opt(name).await?;
    let found = found.filter(|pod| pod.metadata.uid.as_ref() == Some(uid));
    Ok(SessionProcess {
        program: Some("program".into()),
        machine: found.as_ref().and_then(node),
        state: found.as_ref().map_or(ProcessState::Gone, state),
        ..SessionProcess::new(name, JobPlace::Pod { name: name.clone() })
    })
}

fn state(pod: &Pod) -> ProcessState {
    match pod_state(pod) {
        PodState::Starting => ProcessState::Starting(None),
        PodState::Waiting(reason) => ProcessState::Starting(Some(reason.message().into())),
        PodState::MissingClaim(message)
        | PodState::CannotStart(message)
        | PodState::Rejected(message) => ProcessState::Starting(Some(message)),
        PodState::Running => ProcessState::Running,
        PodState::Ended(reason) => ProcessState::Ended(exit_status(&reason)),
    }
}

/// Returns the exit status as a shell reports it.
pub(super) fn exit_status(reason: &ExitReason) -> ExitStatus {
    match reason {
        ExitReason::Normal => ExitStatus { code: 0, reason: None },
        ExitReason::Code(code) => ExitStatus { code: *code, reason: None },
        ExitReason::Signal(signal) => ExitStatus { code: 128 + signal, reason: None },
        ExitReason::OutOfMemory => ExitStatus { code: 137, reason: Some("out of memory".into()) },
        other => ExitStatus { code: 137, reason: Some(other.to_string()) },
    }
}

/// Returns the resource limits of a pod.
fn meta(pod: &Pod) -> Meta {
    let container = pod.spec.as_ref().and_then(program_container);
    let limits = container
        .and_then(|container| container.resources.as_ref()?.limits.clone())
        .unwrap_or_default();
    let limit = |limits: &BTreeMap<String, Quantity>, name: &str| {
        limits.get(name).and_then(|limit| parse_quantity(&limit.0))
    };
    let mut meta = Meta::new();
    meta.cpu = limit(&limits, "cpu");
    meta.memory = limit(&limits, "memory").map(|bytes| ByteSize(bytes as u64));
    meta.gpu = limit(&limits, GPU).map(|count| count as u32);
    meta
}

/// Parses a quantity: `500m`, `96Mi`, `2`.
fn parse_quantity(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        _ => return None,
    };
    digits.parse::<f64>().ok().map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{parse_quantity, remove_ended_heads};
    use crate::kubernetes::api_server::test_server;

    /// Answers like an API server that has a finished Job, which its user may see and not delete.
    fn refuses_to_delete(request: &str) -> (u16, String) {
        let job = json!({
            "metadata": { "name": "fiber-1" },
            "status": { "conditions": [{ "type": "Complete", "status": "True" }] },
        });
        let refusal = json!({ "status": "Failure", "code": 403, "reason": "Forbidden",
            "message": "User \"anna\" cannot delete resource \"jobs\"" });
        match request.contains("/jobs") {
            _ if request.starts_with("DELETE") => (403, refusal.to_string()),
            true => (200, json!({ "metadata": {}, "items": [job] }).to_string()),
            false => (200, json!({ "metadata": {}, "items": [] }).to_string()),
        }
    }

    #[tokio::test]
    async fn a_job_that_may_not_be_deleted_is_not_removed() {
        let server = test_server::start(refuses_to_delete).await;
        let removed = remove_ended_heads(&server).await;
        let problem = removed.expect_err("it stays").to_string();
        assert!(problem.contains("cannot delete"), "{problem}");
    }

    #[test]
    fn quantities_are_parsed_as_kubernetes_formats_them() {
        let amounts = ["2", "500m", "96Mi", "1Gi", "1k", "100663296"].map(parse_quantity);
        assert_eq!(
            amounts,
            [2.0, 0.5, 100_663_296.0, 1_073_741_824.0, 1000.0, 100_663_296.0].map(Some)
        );
        assert_eq!(parse_quantity("many"), None);
    }
}
