//! Waits for the end of one pod, and keeps the last state that a delete event carries.

use fiber_core::ExitReason;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event, watcher};

use super::api_server::ApiServer;
use super::status::{PodState, pod_state};
use super::watch::{Refusals, with_backoff};

/// The end of a pod.
#[derive(Debug, PartialEq, Eq)]
enum PodEnd {
    Ended(ExitReason),
    /// It was deleted without any report of its exit status.
    Deleted,
}

/// The progress of a watch for one pod.
#[derive(Debug, Default)]
struct ExitWatch {
    /// Whether the list at the beginning of the current watch has the pod.
    listed: bool,
}

impl ExitWatch {
    /// Returns the pod's end if this event reports it.
    fn handle(&mut self, event: Event<Pod>) -> Option<PodEnd> {
        let ended = |pod: &Pod| match pod_state(pod) {
            PodState::Ended(reason) => Some(PodEnd::Ended(reason)),
            _ => None,
        };
        match event {
            Event::Init => {
                self.listed = false;
                None
            }
            Event::InitApply(pod) => {
                self.listed = true;
                ended(&pod)
            }
            Event::InitDone if !self.listed => Some(PodEnd::Deleted),
            Event::InitDone => None,
            Event::Apply(pod) => ended(&pod),
            // The pod's end and its deletion may come as one event.
            Event::Delete(pod) => Some(ended(&pod).unwrap_or(PodEnd::Deleted)),
        }
    }
}

/// Waits for the end of a pod. Returns `None` if it was deleted without a report of its exit
/// status.
///
/// # Errors
/// The right to watch it is missing.
pub(super) async fn wait(
    server: &ApiServer,
    name: &str,
) -> Result<Option<ExitReason>, kube::Error> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = Box::pin(with_backoff(watcher(server.streams::<Pod>(), config)));
    let mut watch = ExitWatch::default();
    let mut refusals = Refusals::default();
    while let Some(event) = events.next().await {
        // After an error the stream begins another watch.
        let Some(event) = refusals.check(event)? else { continue };
        match watch.handle(event) {
            Some(PodEnd::Ended(reason)) => return Ok(Some(reason)),
            Some(PodEnd::Deleted) => return Ok(None),
            None => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        ContainerState, ContainerStateTerminated, ContainerStatus, PodStatus,
    };

    use super::*;

    fn running() -> Pod {
        let status = PodStatus { phase: Some("Running".into()), ..Default::default() };
        Pod { status: Some(status), ..Default::default() }
    }

    fn terminated(exit_code: i32) -> Pod {
        let terminated = ContainerStateTerminated { exit_code, ..Default::default() };
        let state = ContainerState { terminated: Some(terminated), ..Default::default() };
        let container = ContainerStatus { state: Some(state), ..Default::default() };
        let status = PodStatus { container_statuses: Some(vec![container]), ..Default::default() };
        Pod { status: Some(status), ..Default::default() }
    }

    #[test]
    fn the_exit_status_in_a_delete_event_counts() {
        let mut watch = ExitWatch::default();
        for event in [Event::Init, Event::InitApply(running()), Event::InitDone] {
            assert_eq!(watch.handle(event), None);
        }
        let end = watch.handle(Event::Delete(terminated(3)));
        assert_eq!(end, Some(PodEnd::Ended(ExitReason::Code(3))));
    }

    #[test]
    fn a_pod_that_is_deleted_while_it_runs_has_no_exit_status() {
        let end = ExitWatch::default().handle(Event::Delete(running()));
        assert_eq!(end, Some(PodEnd::Deleted));
    }

    #[test]
    fn a_pod_that_a_list_lacks_is_gone() {
        let mut watch = ExitWatch::default();
        assert_eq!(watch.handle(Event::InitApply(running())), None);
        assert_eq!(watch.handle(Event::Init), None);
        assert_eq!(watch.handle(Event::InitDone), Some(PodEnd::Deleted));
    }
}
