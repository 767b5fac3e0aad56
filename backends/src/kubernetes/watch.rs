//! Pod events: one watch on the API server serves all pods of this process.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use backon::ExponentialBuilder;
use futures_util::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, ExponentialBackoff, watcher};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::api_server::{ApiServer, is_forbidden};
use super::names::SESSION;
use crate::outage::Outage;

/// Seconds after which the API server ends a watch, so that the client begins another one. A watch
/// that is still open then is lost.
const WATCH: u32 = 15;
/// The pause between attempts while the API server is away, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long an API server has to refuse a watch before that counts as its answer.
const REFUSED: Duration = Duration::from_secs(3);
/// Time for the watch to report a new pod that a list lacks, before the API server is asked for it.
const CONFIRM: Duration = Duration::from_secs(1);

/// An event of a pod.
#[derive(Debug)]
pub(super) enum PodEvent {
    /// The pod was created or has changed.
    Applied(Box<Pod>),
    /// The pod was deleted. Carries its last state if it is known.
    Deleted(Option<Box<Pod>>),
}

/// The watch for this session's pods, and the subscribers by pod name.
#[derive(Debug)]
pub(super) struct PodWatch {
    subscribers: Mutex<HashMap<String, Subscriber>>,
    /// Takes the names of pods that a list should have had: they were created during it, or deleted
    /// before it.
    unconfirmed: mpsc::UnboundedSender<Unconfirmed>,
}

#[derive(Debug)]
struct Subscriber {
    sender: mpsc::UnboundedSender<PodEvent>,
    created: bool,
    /// Whether an event or a list has shown the pod.
    seen: bool,
    /// Whether a list has ended since the subscription.
    listed_since: bool,
}

/// A pod that was created, and that no event and no list has shown.
#[derive(Debug)]
struct Unconfirmed {
    pod: String,
    since: Instant,
}

impl PodWatch {
    /// Watches the pods of a session until the result is dropped.
    pub(super) fn start(server: &ApiServer, session: &str) -> Arc<PodWatch> {
        let (watch, unconfirmed) = PodWatch::new();
        fiber_core::spawn_local(watch_pods(
            Arc::downgrade(&watch),
            server.clone(),
            session.to_string(),
        ));
        fiber_core::spawn_local(confirm_pods(Arc::downgrade(&watch), server.clone(), unconfirmed));
        watch
    }

    fn new() -> (Arc<PodWatch>, mpsc::UnboundedReceiver<Unconfirmed>) {
        let (unconfirmed, receiver) = mpsc::unbounded_channel();
        (Arc::new(PodWatch { subscribers: Mutex::default(), unconfirmed }), receiver)
    }

    /// Subscribes to the events of a pod. Call it before the pod's creation.
    pub(super) fn subscribe(self: &Arc<PodWatch>, name: &str) -> PodSubscription {
        let (sender, receiver) = mpsc::unbounded_channel();
        let subscriber = Subscriber { sender, created: false, seen: false, listed_since: false };
        self.subscribers.lock().insert(name.to_string(), subscriber);
        PodSubscription { watch: Arc::clone(self), name: name.to_string(), receiver }
    }

    /// Takes an event. `missing` are the pods that existed before the list at the beginning of the
    /// watch began, and that it has not shown yet.
    fn handle(&self, event: Event<Pod>, missing: &mut HashSet<String>) {
        match event {
            Event::Apply(pod) => self.send(pod, PodEvent::Applied),
            Event::Delete(pod) => self.send(pod, |pod| PodEvent::Deleted(Some(pod))),
            Event::Init => {
                let subscribers = self.subscribers.lock();
                let created = subscribers.iter().filter(|(_, subscriber)| subscriber.created);
                *missing = created.map(|(name, _)| name.clone()).collect();
            }
            Event::InitApply(pod) => {
                missing.remove(pod.metadata.name.as_deref().unwrap_or_default());
                self.send(pod, PodEvent::Applied);
            }
            Event::InitDone => {
                for (name, subscriber) in self.subscribers.lock().iter_mut() {
                    subscriber.listed_since = true;
                    if missing.remove(name) {
                        subscriber.send(PodEvent::Deleted(None));
                    } else if subscriber.created && !subscriber.seen {
                        self.confirm(name);
                    }
                }
            }
        }
    }

    fn send(&self, pod: Pod, event: impl FnOnce(Box<Pod>) -> PodEvent) {
        let mut subscribers = self.subscribers.lock();
        let name = pod.metadata.name.clone().unwrap_or_default();
        if let Some(subscriber) = subscribers.get_mut(&name) {
            subscriber.send(event(Box::new(pod)));
        }
    }

    fn confirm(&self, pod: &str) {
        let since = Instant::now();
        // The receiver is gone if the local tasks have ended, with the process.
        let _ = self.unconfirmed.send(Unconfirmed { pod: pod.to_string(), since });
    }

    /// Returns the channel of the pod's subscriber if the pod was created and never seen.
    fn unseen(&self, pod: &str) -> Option<mpsc::UnboundedSender<PodEvent>> {
        let subscribers = self.subscribers.lock();
        let subscriber = subscribers.get(pod)?;
        (subscriber.created && !subscriber.seen).then(|| subscriber.sender.clone())
    }

    /// Reports the deletion of a pod that the API server does not have, unless an event has shown
    /// the pod meanwhile, or its name belongs to another subscription now.
    fn report_missing(&self, pod: &str, asked_for: &mpsc::UnboundedSender<PodEvent>) {
        let mut subscribers = self.subscribers.lock();
        let subscriber = subscribers.get_mut(pod);
        if let Some(subscriber) = subscriber.filter(|subscriber| !subscriber.seen)
            && subscriber.sender.same_channel(asked_for)
        {
            subscriber.send(PodEvent::Deleted(None));
        }
    }
}

impl Subscriber {
    fn send(&mut self, event: PodEvent) {
        self.seen = true;
        // The subscription is being dropped if this fails.
        let _ = self.sender.send(event);
    }
}

async fn watch_pods(watch: Weak<PodWatch>, server: ApiServer, session: String) {
    let config = watcher::Config::default().labels(&format!("{SESSION}={session}")).timeout(WATCH);
    let events = with_backoff(watcher(server.api::<Pod>(), config), is_answer);
    handle_events(watch, events, |error| explain(&server, error)).await;
}

/// Passes events to the watch until it is dropped. `explain` formats errors.
async fn handle_events(
    watch: Weak<PodWatch>,
    events: impl Stream<Item = watcher::Result<Event<Pod>>>,
    explain: impl Fn(&watcher::Error) -> String,
) {
    let mut events = pin!(events);
    let mut missing = HashSet::new();
    let mut outage = Outage::default();
    while let Some(event) = events.next().await {
        let Some(watch) = watch.upgrade() else { return };
        match event {
            Ok(event) => {
                if is_answer(&event) {
                    outage.end();
                }
                watch.handle(event, &mut missing);
            }
            // An expired resource version is the normal end of a watch: the next one begins with a
            // list.
            Err(watcher::Error::WatchError(status)) if status.code == 410 => {}
            Err(error) => outage.log(&format!(
                "the API server sends no events of pods for now: {}",
                explain(&error)
            )),
        }
    }
}

/// Asks the API server for pods that were created around the time of a list, and that neither the
/// list nor the watch has shown: the watch never reports those that were deleted before the list.
async fn confirm_pods(
    watch: Weak<PodWatch>,
    server: ApiServer,
    mut unconfirmed: mpsc::UnboundedReceiver<Unconfirmed>,
) {
    while let Some(Unconfirmed { pod, since }) = unconfirmed.recv().await {
        sleep_until(since + CONFIRM).await;
        let Some(unseen) = watch.upgrade().and_then(|watch| watch.unseen(&pod)) else { continue };
        match server.api::<Pod>().get_opt(&pod).await {
            Ok(None) => {
                if let Some(watch) = watch.upgrade() {
                    watch.report_missing(&pod, &unseen);
                }
            }
            Ok(Some(_)) => {}
            // The watch has failed as well, and begins again with a list.
            Err(error) => tracing::debug!("the pod {pod} can't be read: {error}"),
        }
    }
}

/// Pauses after each error of a watch, twice as long each time until an event is an answer. kube's
/// own `StreamBackoff` takes each event for one, also [`Event::Init`].
pub(super) fn with_backoff<T>(
    events: impl Stream<Item = watcher::Result<T>>,
    is_answer: fn(&T) -> bool,
) -> impl Stream<Item = watcher::Result<T>> {
    let pauses = ExponentialBuilder::default().without_max_times();
    let pauses = pauses.with_min_delay(BACKOFF.0).with_max_delay(BACKOFF.1);
    let begin = (Box::pin(events), ExponentialBackoff::from(pauses), None);
    stream::unfold(begin, move |(mut events, mut pauses, pause)| async move {
        if let Some(pause) = pause {
            sleep(pause).await;
        }
        let event = events.next().await?;
        let pause = match &event {
            Ok(event) => {
                if is_answer(event) {
                    pauses.reset();
                }
                None
            }
            Err(_) => pauses.next(),
        };
        Some((event, (events, pauses, pause)))
    })
}

/// Returns whether the API server has sent an event: the client announces a list itself, before it
/// asks for it.
pub(super) fn is_answer<K>(event: &Event<K>) -> bool {
    !matches!(event, Event::Init)
}

/// The refusals of a watch. A single one may pass: an API server that has just started may not have
/// read its roles yet.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The times of the first and the last refusal of a row without a long pause.
    row: Option<(Instant, Instant)>,
}

impl Refusals {
    /// Takes the next item of a watch. Returns `None` for an error that may pass.
    ///
    /// # Errors
    /// The API server has refused the watch for a while: a right is missing.
    pub(super) fn check<T>(&mut self, item: watcher::Result<T>) -> Result<Option<T>, kube::Error> {
        let error = match item {
            Ok(item) => return Ok(Some(item)),
            Err(error) => error,
        };
        tracing::debug!("a watch has failed: {error}");
        match error {
            watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)
                if is_forbidden(&error) =>
            {
                let now = Instant::now();
                let row = self.row.filter(|(_, last)| now - *last < 2 * REFUSED);
                let first = row.map_or(now, |(first, _)| first);
                self.row = Some((first, now));
                if now - first < REFUSED { Ok(None) } else { Err(error) }
            }
            _ => Ok(None),
        }
    }
}

fn explain(server: &ApiServer, error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => server.explain(error).into(),
        other => other.to_string(),
    }
}

/// A subscription to the events of one pod.
#[derive(Debug)]
pub(super) struct PodSubscription {
    watch: Arc<PodWatch>,
    name: String,
    receiver: mpsc::UnboundedReceiver<PodEvent>,
}

impl PodSubscription {
    /// Marks the pod as created: from now on, its absence means that it was deleted.
    pub(super) fn created(&self) {
        if let Some(subscriber) = self.watch.subscribers.lock().get_mut(&self.name) {
            subscriber.created = true;
            if subscriber.listed_since && !subscriber.seen {
                self.watch.confirm(&self.name);
            }
        }
    }

    /// Waits for the pod's next event.
    pub(super) async fn next(&mut self) -> PodEvent {
        // The sender stays in the map until this is dropped.
        self.receiver.recv().await.unwrap_or(PodEvent::Deleted(None))
    }
}

impl Drop for PodSubscription {
    fn drop(&mut self) {
        self.watch.subscribers.lock().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use tracing::Level;

    use super::*;
    use crate::outage::tests::CapturedLog;

    fn pod(name: &str) -> Pod {
        let metadata = ObjectMeta { name: Some(name.into()), ..Default::default() };
        Pod { metadata, ..Default::default() }
    }

    #[test]
    fn a_pod_that_a_later_list_lacks_was_deleted() {
        let (watch, mut unconfirmed) = PodWatch::new();
        let (mut missing, mut subscription) = (HashSet::new(), watch.subscribe("a"));
        subscription.created();
        watch.handle(Event::Init, &mut missing);
        watch.handle(Event::InitDone, &mut missing);
        assert!(matches!(subscription.next().now_or_never(), Some(PodEvent::Deleted(None))));
        assert!(unconfirmed.try_recv().is_err());
    }

    #[test]
    fn a_pod_that_is_created_and_deleted_during_a_list_is_reported() {
        let (watch, mut unconfirmed) = PodWatch::new();
        let (mut missing, mut subscription) = (HashSet::new(), watch.subscribe("a"));
        watch.handle(Event::Init, &mut missing);
        subscription.created();
        watch.handle(Event::InitDone, &mut missing);
        assert_eq!(unconfirmed.try_recv().expect("it may be deleted").pod, "a");
        watch.report_missing("a", &watch.unseen("a").expect("no event has shown it"));
        assert!(matches!(subscription.next().now_or_never(), Some(PodEvent::Deleted(None))));
    }

    #[test]
    fn a_pod_whose_creation_is_confirmed_after_the_list_is_reported() {
        let (watch, mut unconfirmed) = PodWatch::new();
        let (mut missing, subscription) = (HashSet::new(), watch.subscribe("a"));
        watch.handle(Event::Init, &mut missing);
        watch.handle(Event::InitDone, &mut missing);
        assert!(unconfirmed.try_recv().is_err());
        subscription.created();
        assert_eq!(unconfirmed.try_recv().expect("it may be deleted").pod, "a");
    }

    #[test]
    fn a_pod_that_events_have_shown_needs_no_confirmation() {
        let (watch, mut unconfirmed) = PodWatch::new();
        let (mut missing, mut subscription) = (HashSet::new(), watch.subscribe("a"));
        watch.handle(Event::Init, &mut missing);
        subscription.created();
        let unseen = watch.unseen("a").expect("no event has shown it");
        watch.handle(Event::InitApply(pod("a")), &mut missing);
        watch.handle(Event::InitDone, &mut missing);
        assert!(unconfirmed.try_recv().is_err() && watch.unseen("a").is_none());
        watch.report_missing("a", &unseen);
        assert!(matches!(subscription.next().now_or_never(), Some(PodEvent::Applied(_))));
        assert!(subscription.next().now_or_never().is_none());
    }

    #[test]
    fn an_answer_for_an_earlier_pod_of_a_name_says_nothing_of_the_next() {
        let (watch, _unconfirmed) = PodWatch::new();
        let first = watch.subscribe("a");
        first.created();
        let asked_for = watch.unseen("a").expect("no event has shown it");
        drop(first);
        let mut second = watch.subscribe("a");
        second.created();
        watch.report_missing("a", &asked_for);
        assert!(second.next().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_until_the_api_server_answers() {
        let away = || Err(watcher::Error::NoResourceVersion);
        let attempts = [Ok(Event::Init), away(), Ok(Event::Init), away(), Ok(Event::Init), away()];
        let answer = [Ok(Event::Init), Ok(Event::InitDone), away(), Ok(Event::Init)];
        let events = stream::iter(attempts.into_iter().chain(answer));
        let mut events = pin!(with_backoff(events, is_answer::<Pod>));
        let mut pauses = Vec::new();
        let mut last = Instant::now();
        while events.next().await.is_some() {
            pauses.push((Instant::now() - last).as_millis() / BACKOFF.0.as_millis());
            last = Instant::now();
        }
        // An attempt begins after a pause, and fails without one.
        assert_eq!(pauses, [0, 0, 1, 0, 2, 0, 4, 0, 0, 1]);
    }

    #[tokio::test]
    async fn an_api_server_that_lists_nothing_is_warned_of_once() {
        let mut log = CapturedLog::begin();
        let (watch, _unconfirmed) = PodWatch::new();
        let away = || Err(watcher::Error::NoResourceVersion);
        let attempts = [Ok(Event::Init), away(), Ok(Event::Init), away()];
        let answer = [Ok(Event::Init), Ok(Event::InitDone), away()];
        let events = stream::iter(attempts.into_iter().chain(answer));
        handle_events(Arc::downgrade(&watch), events, ToString::to_string).await;
        let levels = log.levels("the API server sends no events of pods for now", 3).await;
        assert_eq!(levels, [Level::WARN, Level::DEBUG, Level::WARN]);
    }
}
