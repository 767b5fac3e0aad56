//! What happens to containers: one stream of events from the engine for all of this process's.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::EventMessage;
use bollard::query_parameters::{EventsOptions, ListContainersOptions};
use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::engine::Engine;
use super::owner::SESSION;

/// How long to wait before the engine is asked again, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// What happened to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The kernel killed a process in it for want of memory.
    OutOfMemory,
    /// Its process ended with this code.
    Died(i64),
    /// It is gone. Everything else was told before, unless the engine was away.
    Removed,
}

/// Who wants to know what of which container.
#[derive(Debug)]
pub(super) struct Events {
    engine: Arc<Engine>,
    filter: String,
    watched: Mutex<HashMap<String, mpsc::UnboundedSender<Event>>>,
}

impl Events {
    /// Follows the containers of a session for as long as anybody holds this.
    pub(super) fn subscribe(engine: Arc<Engine>, session: &str) -> Arc<Events> {
        let filter = format!("{SESSION}={session}");
        let events = Arc::new(Events { engine, filter, watched: Mutex::default() });
        tokio::task::spawn_local(follow(Arc::downgrade(&events)));
        events
    }

    /// The events of a container that was not started yet.
    pub(super) fn of(self: &Arc<Events>, container: &str) -> Watched {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.watched.lock().insert(container.to_string(), sender);
        Watched { events: Arc::clone(self), container: container.to_string(), receiver }
    }

    fn tell(&self, container: &str, event: Event) {
        if let Some(watcher) = self.watched.lock().get(container) {
            let _ = watcher.send(event);
        }
    }

    fn pass(&self, message: EventMessage) {
        let Some(actor) = message.actor else { return };
        let Some(container) = actor.id else { return };
        let attributes = actor.attributes.unwrap_or_default();
        match message.action.as_deref() {
            Some("oom") => self.tell(&container, Event::OutOfMemory),
            Some("die") => {
                let code = attributes.get("exitCode").and_then(|code| code.parse().ok());
                self.tell(&container, Event::Died(code.unwrap_or(-1)));
            }
            Some("destroy") => self.tell(&container, Event::Removed),
            _ => {}
        }
    }

    /// After events may have been missed: tells of containers that are there no more, or have
    /// ended.
    async fn catch_up(&self) -> Result<(), Error> {
        let watched: Vec<String> = self.watched.lock().keys().cloned().collect();
        let options = ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([("label".to_string(), vec![self.filter.clone()])])),
            ..Default::default()
        };
        let listed = self.engine.api.list_containers(Some(options)).await?;
        for container in watched {
            if !listed.iter().any(|one| one.id.as_deref() == Some(&container)) {
                self.tell(&container, Event::Removed);
                continue;
            }
            let Ok(found) = self.engine.api.inspect_container(&container, None).await else {
                continue;
            };
            let Some(state) = found
                .state
                .filter(|state| state.finished_at.is_some() && state.running == Some(false))
            else {
                continue;
            };
            if state.status == Some(bollard::models::ContainerStateStatusEnum::EXITED) {
                self.tell(&container, Event::Died(state.exit_code.unwrap_or(-1)));
            }
        }
        Ok(())
    }
}

/// A container whose events are followed.
#[derive(Debug)]
pub(super) struct Watched {
    events: Arc<Events>,
    container: String,
    receiver: mpsc::UnboundedReceiver<Event>,
}

impl Watched {
    pub(super) async fn next(&mut self) -> Event {
        // The sender is in the map for as long as this lives.
        self.receiver.recv().await.unwrap_or(Event::Removed)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.events.watched.lock().remove(&self.container);
    }
}

async fn follow(events: Weak<Events>) {
    let (mut pause, longest) = BACKOFF;
    loop {
        let Some(here) = events.upgrade() else { return };
        let options = EventsOptions {
            // What the engine still knows of earlier ones: so none is missed, however late it hears
            // of this.
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
        let problem = loop {
            match stream.next().await {
                Some(Ok(message)) => {
                    pause = BACKOFF.0;
                    let Some(events) = events.upgrade() else { return };
                    events.pass(message);
                }
                Some(Err(error)) => break error.to_string(),
                None => break "the stream ended".to_string(),
            }
        };
        tracing::warn!("the Docker engine tells no events for now: {problem}");
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(longest);
        let Some(here) = events.upgrade() else { return };
        if let Err(error) = here.catch_up().await {
            tracing::debug!("{}", here.engine.explain(&error));
        }
    }
}
