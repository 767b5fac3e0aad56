//! Pods whose program has ended while other containers go on, such as those of a service mesh.
//! For Kubernetes the pod then goes on, so its Job neither completes nor starts the program again.

use std::time::Duration;

use fiber_core::ExitReason;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use tokio::time::{Instant, sleep};

use super::api_server::ApiServer;
use super::names::program_container;
use super::restarted::pods;
use super::status::exit_reason;

/// The time for the other containers to end after the program, as some do.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two looks at a session's pods.
const PAUSE: Duration = Duration::from_secs(3);

/// Returns the name of a container that goes on in a pod whose program has ended.
pub(super) fn container(pod: &Pod) -> Option<&str> {
    if pod.metadata.deletion_timestamp.is_some() || exit_reason(pod).is_none() {
        return None;
    }
    let program = pod.spec.as_ref().and_then(program_container)?.name.as_str();
    let runs = |status: &&ContainerStatus| {
        let state = status.state.as_ref();
        status.name != program && state.is_some_and(|state| state.running.is_some())
    };
    pod.status.as_ref()?.container_statuses.iter().flatten().find(runs).map(|one| &*one.name)
}

/// Returns whether a pod is kept whose program has done its work.
pub(super) fn is_done(pod: &Pod) -> bool {
    container(pod).is_some() && exit_reason(pod) == Some(ExitReason::Normal)
}

/// The pod that other containers keep, and since when it is known.
#[derive(Debug, Default)]
pub(super) struct KeptPod(Option<(String, Instant)>);

impl KeptPod {
    /// Returns whether the program of a session is not started again, because its newest pod is
    /// kept.
    pub(super) async fn ends(&mut self, server: &ApiServer, session: &str) -> bool {
        let Ok(pods) = pods(server, session).await else { return false };
        pods.last().is_some_and(|pod| self.is_last(pod))
    }

    fn is_last(&mut self, pod: &Pod) -> bool {
        let kept = container(pod).and(pod.metadata.name.as_deref());
        let since = match (self.0.take(), kept) {
            (_, None) => return false,
            (Some((known, since)), Some(name)) if known == name => since,
            (_, Some(_)) => Instant::now(),
        };
        self.0 = kept.map(|name| (name.to_string(), since));
        is_done(pod) || since.elapsed() > PATIENCE
    }
}

/// Waits until the program of a session is not started again, because its newest pod is kept.
pub(super) async fn wait(server: &ApiServer, session: &str) {
    let mut kept = KeptPod::default();
    while !kept.ends(server, session).await {
        sleep(PAUSE).await;
    }
}

/// Says why a program that has failed is not started again.
pub(super) fn problem(container: &str) -> String {
    format!("its pod goes on for its container `{container}`")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, exit_code: i32, of_sidecar: &str) -> Pod {
        let pod = json!({
            "metadata": { "name": name },
            "spec": { "containers": [{ "name": "sidecar" }, { "name": "fiber" }] },
            "status": { "phase": "Running", "containerStatuses": [
                { "name": "sidecar", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": { of_sidecar: { "exitCode": 0 } } },
                { "name": "fiber", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": { "terminated": { "exitCode": exit_code } } },
            ] },
        });
        serde_json::from_value(pod).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_program_is_kept_when_its_sidecar_stays() {
        let mut kept = KeptPod::default();
        let failed = |name: &str| pod(name, 3, "running");
        assert_eq!(container(&failed("a")), Some("sidecar"));
        assert!(!kept.is_last(&failed("a")));
        tokio::time::advance(PATIENCE * 2).await;
        assert!(!kept.is_last(&failed("b")), "another pod");
        assert!(!kept.is_last(&pod("b", 3, "terminated")), "the sidecar has ended");
        assert!(!kept.is_last(&failed("b")));
        tokio::time::advance(PATIENCE * 2).await;
        assert!(kept.is_last(&failed("b")));
        assert!(KeptPod::default().is_last(&pod("c", 0, "running")), "it is done");
    }
}
