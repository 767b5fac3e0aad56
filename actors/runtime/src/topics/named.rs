//! The topics that the processes of the session know by their names. They are in the head.

use std::collections::HashMap;
use std::sync::Arc;

use fiber_core::stats::{NameKind, NameStats, Report};
use fiber_core::{FailureKind, ProcessId};
use parking_lot::Mutex;

use super::machine::ClientId;
use super::wire::{CLOSE, OPEN, Open};
use super::{Incoming, Topic};
use crate::mesh::{Mesh, PeerId, Port, PortId, Registry, Request, unknown_object};
use crate::sources::{Source, Sources};

/// All topics with names. One is forgotten when it has neither a client nor a retained message.
pub(crate) struct NamedTopics {
    registry: &'static Registry,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_name: HashMap<Arc<str>, Arc<Topic>>,
    opened: HashMap<ClientId, (Arc<str>, Arc<Topic>)>,
}

impl NamedTopics {
    /// Opens the port of the head.
    pub(crate) fn open(mesh: &'static Mesh, sources: &'static Sources) {
        let registry = mesh.registry();
        let topics = NamedTopics { registry, state: Mutex::default() };
        sources.register(&registry.ports().open_for_good(PortId::TOPICS, topics));
    }

    fn open_topic(&self, open: &Open, incoming: Incoming) {
        let Some(name) = &open.name else {
            let problem = "the topic has no name";
            return incoming.requester.fail(FailureKind::Arguments, &problem);
        };
        let mut state = self.state.lock();
        let client = incoming.client;
        let make = || Arc::new(Topic::new(self.registry));
        let topic = Arc::clone(state.by_name.entry(Arc::clone(name)).or_insert_with(make));
        state.opened.insert(client, (Arc::clone(name), Arc::clone(&topic)));
        // Without the lock: what this says to this process may be a message to this port.
        drop(state);
        if !topic.open(open, incoming) {
            self.close(client);
        }
    }

    /// Forgets a client, and its topic if nothing else needs that.
    fn close(&self, client: ClientId) {
        let mut state = self.state.lock();
        let Some((name, topic)) = state.opened.remove(&client) else { return };
        let is_used = state.opened.values().any(|(other, _)| *other == name);
        if !is_used && topic.state.lock().machine.is_empty() {
            state.by_name.remove(&name);
        }
    }
}

impl Source for NamedTopics {
    fn report(&self, _: ProcessId, report: &mut Report) {
        let topics = self.state.lock().by_name.clone();
        let stats = |(name, topic): (Arc<str>, Arc<Topic>)| {
            let state = topic.state.lock();
            let of = state.message.as_deref().unwrap_or_default().to_string();
            let subscriptions = state.machine.subscriptions() as u64;
            NameStats::new(name.to_string(), NameKind::Topic, of, subscriptions)
        };
        let mut topics: Vec<_> = topics.into_iter().map(stats).collect();
        topics.sort_by(|one, other| one.name.cmp(&other.name));
        report.names.append(&mut topics);
    }
}

impl Port for NamedTopics {
    fn receive(&self, request: Request) {
        let Ok(incoming) = Incoming::read(request) else { return };
        if incoming.kind == OPEN {
            if let Ok((open, incoming)) = incoming.operation() {
                self.open_topic(&open, incoming);
            }
            return;
        }
        let (client, is_close) = (incoming.client, incoming.kind == CLOSE);
        let topic = self.state.lock().opened.get(&client).map(|(_, topic)| Arc::clone(topic));
        match topic {
            Some(topic) => topic.receive(incoming),
            None => incoming.requester.ended(unknown_object()),
        }
        if is_close {
            self.close(client);
        }
    }

    fn lost(&self, peer: PeerId) {
        let state = self.state.lock();
        let lost = state.opened.iter().filter(|(client, _)| client.peer == peer);
        let mut lost: Vec<_> = lost.map(|(client, (_, topic))| (*client, topic.clone())).collect();
        drop(state);
        lost.sort_unstable_by_key(|(client, _)| *client);
        for (client, topic) in lost {
            topic.lost(peer);
            self.close(client);
        }
    }
}
