//! Container events: one stream from the engine serves all containers of this process.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::{ContainerStateStatusEnum, EventMessage};
use bollard::query_parameters::EventsOptions;
use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::engine::{Engine, is_away};
use super::labels::SESSION;
use super::sessions::containers;
use crate::outage::Outage;

/// The pause before the next attempt to connect, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// An event of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContainerEvent {
    /// The OOM killer killed a process in it.
    OutOfMemory,
    /// Its process ended with this exit code.
    Died(i64),
    /// It was removed. All its other events came before, unless the engine was away.
    Removed,
}

/// The engine's events for this session's containers, and their subscribers by container id.
#[derive(Debug)]
pub(super) struct ContainerEvents {
    engine: Arc<Engine>,
    filter: String,
    subscribers: Mutex<HashMap<String, mpsc::UnboundedSender<ContainerEvent>>>,
}

impl ContainerEvents {
    /// Follows the events of a session's containers until this is dropped.
    pub(super) fn follow(engine: Arc<Engine>, session: &str) -> Arc<ContainerEvents> {
        let filter = format!("{SESSION}={session}");
        let events = Arc::new(ContainerEvents { engine, filter, subscribers: Mutex::default() });
        fiber_core::spawn_local(follow_events(Arc::downgrade(&events)));
        events
    }

    /// Subscribes to the events of a container. Call it before the container's start.
    pub(super) fn subscribe(self: &Arc<ContainerEvents>, container: &str) -> EventSubscription {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.subscribers.lock().insert(container.to_string(), sender);
        EventSubscription { events: Arc::clone(self), container: container.to_string(), receiver }
    }

    fn send(&self, container: &str, event: ContainerEvent) {
        if let Some(watcher) = self.subscribers.lock().get(container) {
            let _ = watcher.send(event);
        }
    }

    fn dispatch(&self, message: EventMessage) {
        let Some(actor) = message.actor else { return };
        let Some(container) = actor.id else { return };
        let attributes = actor.attributes.unwrap_or_default();
        match message.action.as_deref() {
            Some("oom") => self.send(&container, ContainerEvent::OutOfMemory),
            Some("die") => {
                let code = attributes.get("exitCode").and_then(|code| code.parse().ok());
                self.send(&container, ContainerEvent::Died(code.unwrap_or(-1)));
            }
            Some("destroy") => self.send(&container, ContainerEvent::Removed),
            _ => {}
        }
    }

    /// Sends the events that a break of the stream may have hidden: containers that are gone or
    /// have exited.
    async fn resync(&self) -> Result<(), Error> {
        let subscribers: Vec<String> = self.subscribers.lock().keys().cloned().collect();
        let listed = containers(&self.engine, &self.filter).await?;
        for container in subscribers {
            if !listed.iter().any(|one| one.id.as_deref() == Some(&container)) {
                self.send(&container, ContainerEvent::Removed);
                continue;
            }
            let found = self.engine.api.inspect_container(&container, None).await;
            let state = found.ok().and_then(|found| found.state).unwrap_or_default();
            let has_run = state.finished_at.is_some() && state.running == Some(false);
            if has_run && state.status == Some(ContainerStateStatusEnum::EXITED) {
                self.send(&container, ContainerEvent::Died(state.exit_code.unwrap_or(-1)));
            }
        }
        Ok(())
    }
}

/// A subscription to the events of one container.
#[derive(Debug)]
pub(super) struct EventSubscription {
    events: Arc<ContainerEvents>,
    container: String,
    receiver: mpsc::UnboundedReceiver<ContainerEvent>,
}

impl EventSubscription {
    pub(super) async fn next(&mut self) -> ContainerEvent {
        // The sender stays in the map until this is dropped.
        self.receiver.recv().await.unwrap_or(ContainerEvent::Removed)
    }
}

impl Drop for EventSubscription {
    fn drop(&mut self) {
        self.events.subscribers.lock().remove(&self.container);
    }
}

async fn follow_events(events: Weak<ContainerEvents>) {
    let (mut pause, longest) = BACKOFF;
    let mut outage = Outage::default();
    loop {
        let Some(here) = events.upgrade() else { return };
        let options = EventsOptions {
            // Replay the events that the engine still has, so a late subscription misses none.
            since: Some("1".into()),
            until: None,
            filters: Some(HashMap::from([
                ("type".to_string(), vec!["container".to_string()]),
                ("event".to_string(), ["oom", "die", "destroy"].map(String::from).to_vec()),
                ("label".to_string(), vec![here.filter.clone()]),
            ])),
        };
        let mut stream = Box::pin(here.engine.api.events(Some(options)));
        drop(here);
        let broken = loop {
            match stream.next().await {
                Some(Ok(message)) => {
                    pause = BACKOFF.0;
                    outage.end();
                    let Some(events) = events.upgrade() else { return };
                    events.dispatch(message);
                }
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        tracing::debug!("a stream of the Docker engine's events has ended: {broken:?}");
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(longest);
        let Some(here) = events.upgrade() else { return };
        match problem(broken, here.resync().await) {
            Some(error) => {
                let problem = here.engine.explain(&error);
                outage.log(&format!("the Docker engine sends no events for now: {problem}"));
            }
            None => outage.end(),
        }
    }
}

/// Returns why the engine sends no events: it does not answer, or it refuses them. The end of a
/// stream alone loses nothing if the engine answers after it.
fn problem(broken: Option<Error>, resynced: Result<(), Error>) -> Option<Error> {
    resynced.err().or(broken.filter(|error| !is_away(error)))
}

#[cfg(test)]
mod tests {
    use std::io;

    use bollard::{API_DEFAULT_VERSION, Docker};
    use tracing::Level;

    use super::*;
    use crate::outage::tests::CapturedLog;

    #[tokio::test]
    async fn an_engine_that_is_away_is_warned_of_once_and_in_plain_words() {
        let host = "tcp://127.0.0.1:1".to_string();
        let api = Docker::connect_with_http(&host, 5, API_DEFAULT_VERSION).unwrap();
        let engine = Engine { api, host, memory: None, cores: None, architecture: None };
        let (engine, filter) = (Arc::new(engine), String::new());
        let events = Arc::new(ContainerEvents { engine, filter, subscribers: Mutex::default() });
        let mut log = CapturedLog::begin();
        let words = "no events for now: no Docker engine answers at tcp://127.0.0.1:1: start it";
        tokio::select! {
            () = follow_events(Arc::downgrade(&events)) => unreachable!("the events are there"),
            levels = log.levels(words, 3) => {
                assert_eq!(levels, [Level::WARN, Level::DEBUG, Level::DEBUG]);
            }
        }
    }

    #[test]
    fn a_stream_that_breaks_while_the_engine_answers_is_no_outage() {
        let refused = |status_code| {
            let message = "no events for you".to_string();
            Error::DockerResponseServerError { status_code, message }
        };
        let away = || Error::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert!(problem(None, Ok(())).is_none());
        // The engine was back before the list.
        assert!(problem(Some(away()), Ok(())).is_none());
        assert!(problem(Some(refused(503)), Ok(())).is_none());
        assert!(problem(Some(refused(403)), Ok(())).is_some());
        assert!(problem(None, Err(away())).is_some());
    }
}
