//! Waits for a state of one object, and looks at the last state that a delete event carries, too.

use std::ops::ControlFlow::{self, Break, Continue};

use futures_util::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};

use super::api_server::{ApiServer, Object};
use super::watch::{Refusals, is_answer, with_backoff};

/// The progress of a watch for one object.
#[derive(Debug, Default)]
struct ObjectWatch {
    /// Whether the list at the beginning of the current watch has the object.
    listed: bool,
}

impl ObjectWatch {
    /// Breaks with what `found` returns for the object, or with `None` if the object was deleted.
    fn handle<K, T>(
        &mut self,
        event: Event<K>,
        found: impl Fn(&K) -> Option<T>,
    ) -> ControlFlow<Option<T>> {
        let found = match event {
            Event::Init => {
                self.listed = false;
                None
            }
            Event::InitApply(object) => {
                self.listed = true;
                found(&object)
            }
            Event::InitDone if !self.listed => return Break(None),
            Event::InitDone => None,
            Event::Apply(object) => found(&object),
            // The end of a pod and its deletion may come as one event.
            Event::Delete(object) => return Break(found(&object)),
        };
        found.map_or(Continue(()), |found| Break(Some(found)))
    }
}

/// Waits until `found` returns something for the object of a name. Returns `None` if the object was
/// deleted before.
///
/// # Errors
/// The right to watch it is missing.
pub(super) async fn wait_for<K: Object, T>(
    server: &ApiServer,
    name: &str,
    found: impl Fn(&K) -> Option<T>,
) -> Result<Option<T>, kube::Error> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = Box::pin(with_backoff(watcher(server.streams::<K>(), config), is_answer));
    let mut watch = ObjectWatch::default();
    let mut refusals = Refusals::default();
    while let Some(event) = events.next().await {
        // After an error the stream begins another watch.
        let Some(event) = refusals.check(event)? else { continue };
        if let Break(found) = watch.handle(event, &found) {
            return Ok(found);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use fiber_core::ExitReason;
    use k8s_openapi::api::core::v1::{
        ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus,
    };

    use super::*;
    use crate::kubernetes::status::exit_reason;

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
        let mut watch = ObjectWatch::default();
        for event in [Event::Init, Event::InitApply(running()), Event::InitDone] {
            assert_eq!(watch.handle(event, exit_reason), Continue(()));
        }
        let end = watch.handle(Event::Delete(terminated(3)), exit_reason);
        assert_eq!(end, Break(Some(ExitReason::Code(3))));
    }

    #[test]
    fn a_pod_that_is_deleted_while_it_runs_has_no_exit_status() {
        let end = ObjectWatch::default().handle(Event::Delete(running()), exit_reason);
        assert_eq!(end, Break(None));
    }

    #[test]
    fn a_pod_that_a_list_lacks_is_gone() {
        let mut watch = ObjectWatch::default();
        assert_eq!(watch.handle(Event::InitApply(running()), exit_reason), Continue(()));
        assert_eq!(watch.handle(Event::Init, exit_reason), Continue(()));
        assert_eq!(watch.handle(Event::InitDone, exit_reason), Break(None));
    }
}
