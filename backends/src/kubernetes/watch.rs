//! What happens to pods: one watch on the API server for all of this process's.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::utils::{Backoff, StreamBackoff};
use kube::runtime::watcher::{self, Event, watcher};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::api_server::ApiServer;
use super::names::SESSION;

/// After how many seconds the API server ends a watch, so that another one is begun. One that was
/// not ended by then is lost.
const WATCH: u32 = 15;
/// Backoff between attempts while the API server is away, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// What was seen of a pod.
#[derive(Debug)]
pub(super) enum PodEvent {
    /// It is like this now.
    Applied(Box<Pod>),
    /// It is gone, and was last like this, if that is known.
    Deleted(Option<Box<Pod>>),
}

/// Who wants to know what of which pod.
#[derive(Debug, Default)]
pub(super) struct PodWatch {
    subscribers: Mutex<HashMap<String, Subscriber>>,
}

#[derive(Debug)]
struct Subscriber {
    sender: mpsc::UnboundedSender<PodEvent>,
    /// Whether the pod was created, so that it is gone if there is none of its name.
    created: bool,
}

impl PodWatch {
    /// Follows the pods of a session for as long as anybody holds this.
    pub(super) fn start(server: &ApiServer, session: &str) -> Arc<PodWatch> {
        let watch = Arc::new(PodWatch::default());
        let config =
            watcher::Config::default().labels(&format!("{SESSION}={session}")).timeout(WATCH);
        let events = StreamBackoff::new(
            watcher(server.api::<Pod>(), config),
            WatchBackoff { next: PAUSES.0 },
        );
        let following = Arc::downgrade(&watch);
        let server = server.clone();
        tokio::task::spawn_local(async move {
            let mut events = Box::pin(events);
            let (mut listed, mut missing) = (HashSet::new(), HashSet::new());
            let mut away = false;
            while let Some(event) = events.next().await {
                let Some(watch) = Weak::upgrade(&following) else { return };
                match event {
                    Ok(event) => {
                        away = false;
                        watch.handle(event, &mut listed, &mut missing);
                    }
                    // A resource version that is too old is the normal end of a watch: it begins
                    // anew.
                    Err(watcher::Error::WatchError(status)) if status.code == 410 => {}
                    Err(error) if away => {
                        tracing::debug!("the API server still tells nothing of pods: {error}")
                    }
                    Err(error) => {
                        away = true;
                        tracing::warn!(
                            "the API server tells nothing of pods for now: {}",
                            explain(&server, &error)
                        );
                    }
                }
            }
        });
        watch
    }

    /// What is seen of a pod that will be created.
    pub(super) fn subscribe(self: &Arc<PodWatch>, name: &str) -> PodSubscription {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.subscribers.lock().insert(name.to_string(), Subscriber { sender, created: false });
        PodSubscription { watch: Arc::clone(self), name: name.to_string(), receiver }
    }

    fn handle(
        &self,
        event: Event<Pod>,
        listed: &mut HashSet<String>,
        missing: &mut HashSet<String>,
    ) {
        match event {
            Event::Apply(pod) => self.send(pod, PodEvent::Applied),
            Event::Delete(pod) => self.send(pod, |pod| PodEvent::Deleted(Some(pod))),
            // A list begins: what was there before and does not stand in it is gone.
            Event::Init => {
                listed.clear();
                let subscribers = self.subscribers.lock();
                *missing = subscribers
                    .iter()
                    .filter(|(_, interest)| interest.created)
                    .map(|(name, _)| name.clone())
                    .collect();
            }
            Event::InitApply(pod) => {
                listed.extend(pod.metadata.name.clone());
                self.send(pod, PodEvent::Applied);
            }
            Event::InitDone => {
                let subscribers = self.subscribers.lock();
                for interest in missing.difference(listed).filter_map(|name| subscribers.get(name))
                {
                    let _ = interest.sender.send(PodEvent::Deleted(None));
                }
            }
        }
    }

    fn send(&self, pod: Pod, sight: impl FnOnce(Box<Pod>) -> PodEvent) {
        let subscribers = self.subscribers.lock();
        if let Some(interest) = pod.metadata.name.as_ref().and_then(|name| subscribers.get(name)) {
            let _ = interest.sender.send(sight(Box::new(pod)));
        }
    }
}

fn explain(server: &ApiServer, error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => server.explain(error),
        other => other.to_string(),
    }
}

/// A pod that is subscribers.
#[derive(Debug)]
pub(super) struct PodSubscription {
    watch: Arc<PodWatch>,
    name: String,
    receiver: mpsc::UnboundedReceiver<PodEvent>,
}

impl PodSubscription {
    /// To be called when the pod has been created.
    pub(super) fn created(&self) {
        if let Some(interest) = self.watch.subscribers.lock().get_mut(&self.name) {
            interest.created = true;
        }
    }

    pub(super) async fn next(&mut self) -> PodEvent {
        // The sender is in the map for as long as this lives.
        self.receiver.recv().await.unwrap_or(PodEvent::Deleted(None))
    }
}

impl Drop for PodSubscription {
    fn drop(&mut self) {
        self.watch.subscribers.lock().remove(&self.name);
    }
}

/// Doubles them.
struct WatchBackoff {
    next: Duration,
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.next = (2 * pause).min(PAUSES.1);
        Some(pause)
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.next = PAUSES.0;
    }
}
