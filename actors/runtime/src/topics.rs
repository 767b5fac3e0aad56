//! Topics: a message that is published goes to all subscriptions, in any process.
//!
//! - A topic is a port of the process that owns it. Its `machine` decides who gets a message and
//!   which publisher waits. It never decodes a message.
//! - A process that uses a topic has a client of it, which is a port, too. A message goes to each
//!   client once, however many subscriptions that has ([`wire`]), and to each host of clients.
//! - Topics with names are in the head, behind one port (`named`): `PortId::TOPICS`.

mod machine;
mod named;
#[cfg(test)]
mod tests;
pub mod wire;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use fiber_core::{FailureKind, ProcessId};
use fiber_transport::{Link, Message, Received};
use fiber_values::blob::Blobs;
use fiber_values::codec;
use parking_lot::{Mutex, MutexGuard};

pub use self::machine::size;
use self::machine::{ClientId, Machine, Outlet};
pub(crate) use self::named::NamedTopics;
use self::wire::{
    CLOSE, MISSED, OPEN, Open, PUBLISH, READ, Read, Retention, SUBSCRIBE, TO_ALL, TO_SOME,
    TOO_SLOW, UNSUBSCRIBE,
};
use crate::mesh::{
    FanOut, Mesh, PeerId, Port, PortId, Registry, Request, Requester, Responder, port_head,
    unknown_object,
};

/// The largest number of subscriptions that a frame names: a frame has little room beside its
/// message.
const MOST_IN_FRAME: usize = 4096;

/// A topic of this process.
pub(crate) struct Topic {
    registry: &'static Registry,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    machine: Machine<Requester>,
    clients: HashMap<ClientId, Client>,
    /// The type of the messages, by the first client.
    message: Option<Arc<str>>,
    here: Here,
    /// It is flushed before the lock is free.
    fan_out: FanOut,
}

/// A process that uses the topic.
struct Client {
    process: ProcessId,
    /// `None` if it is this process.
    link: Option<Arc<dyn Link>>,
    /// Its request to open the topic, which is answered when that ends.
    _opening: Requester,
}

/// Messages to this process itself. They are said without the topic's lock, which code that hears
/// of it may need.
#[derive(Default)]
struct Here {
    waiting: VecDeque<ToHere>,
    /// Whether a thread says it.
    is_speaking: bool,
}

enum ToHere {
    Push(PortId, Received),
    Answer(Requester),
}

/// A message to a topic.
struct Incoming {
    client: ClientId,
    kind: u8,
    body: Received,
    requester: Requester,
    link: Option<Arc<dyn Link>>,
}

impl Incoming {
    /// Reads a message.
    ///
    /// # Errors
    /// It is none; its sender is told.
    fn read(request: Request) -> Result<Incoming, ()> {
        let Request { mut body, requester, link } = request;
        if body.len() < 9 {
            requester.fail(FailureKind::Arguments, &"a topic has no such request");
            return Err(());
        }
        let port = PortId(body.bytes.get_u64_le());
        let kind = body.bytes.get_u8();
        let client = ClientId { peer: requester.peer, port };
        Ok(Incoming { client, kind, body, requester, link })
    }

    /// Reads its operation, in MessagePack.
    ///
    /// # Errors
    /// It can't be read; its sender is told.
    fn operation<T: serde::de::DeserializeOwned>(self) -> Result<(T, Incoming), ()> {
        match codec::decode(&self.body.bytes) {
            Ok(operation) => Ok((operation, self)),
            Err(error) => {
                self.requester.fail(FailureKind::Arguments, &error);
                Err(())
            }
        }
    }
}

impl Topic {
    fn new(registry: &'static Registry) -> Topic {
        Topic { registry, state: Mutex::default() }
    }

    /// Handles a message, but for the first of a client.
    fn receive(&self, incoming: Incoming) {
        let Incoming { client, kind, body, requester, .. } = incoming;
        let mut state = self.state.lock();
        if !state.clients.contains_key(&client) {
            drop(state);
            return requester.ended(unknown_object());
        }
        let (machine, mut out) = state.parts();
        match kind {
            PUBLISH if !body.is_empty() => {
                let mut message = body;
                let retention = Retention::from_byte(message.bytes.get_u8());
                machine.publish(message, retention, requester, &mut out);
            }
            SUBSCRIBE => match codec::decode(&body.bytes) {
                Ok(subscribe) => {
                    machine.subscribe(client, &subscribe, &mut out);
                    out.admitted(requester);
                }
                Err(error) => {
                    drop(state);
                    return requester.fail(FailureKind::Arguments, &error);
                }
            },
            UNSUBSCRIBE if body.len() >= 8 => {
                let mut body = body.bytes;
                machine.unsubscribe(client, body.get_u64_le(), &mut out);
            }
            READ => {
                let mut body = body.bytes;
                machine.read(client, std::iter::from_fn(|| Read::take(&mut body)), &mut out);
            }
            CLOSE => state.close(&[client]),
            _ => {
                drop(state);
                return requester.fail(FailureKind::Arguments, &"a topic has no such request");
            }
        }
        self.speak(state);
    }

    /// Handles the first message of a client. What its process has said over earlier links, and
    /// comes later, does not count any more. Returns whether messages of its type are wanted; else
    /// it is told.
    fn open(&self, open: &Open, incoming: Incoming) -> bool {
        let Incoming { client, requester, link, .. } = incoming;
        let mut state = self.state.lock();
        let known = state.message.get_or_insert_with(|| Arc::clone(&open.message));
        if **known != *open.message {
            let known = Arc::clone(known);
            drop(state);
            requester.answer(&known);
            return false;
        }
        let of_process = state.clients.iter().filter(|(_, other)| other.process == open.process);
        let earlier = of_process.map(|(id, _)| *id).filter(|id| id.peer != client.peer);
        let mut earlier: Vec<_> = earlier.collect();
        earlier.sort_unstable();
        state.close(&earlier);
        state.machine.open(client);
        state.clients.insert(client, Client { process: open.process, link, _opening: requester });
        self.speak(state);
        true
    }

    fn lost(&self, peer: PeerId) {
        let mut state = self.state.lock();
        let lost: Vec<_> = state.machine.clients().filter(|client| client.peer == peer).collect();
        state.close(&lost);
        self.speak(state);
    }

    /// Says to this process what is to be said, in its order, unless another thread does. Other
    /// processes are told first.
    fn speak(&self, mut state: MutexGuard<'_, State>) {
        state.fan_out.flush();
        if state.here.is_speaking {
            return;
        }
        while !state.here.waiting.is_empty() {
            state.here.is_speaking = true;
            let waiting = std::mem::take(&mut state.here.waiting);
            MutexGuard::unlocked(&mut state, || {
                for message in waiting {
                    match message {
                        ToHere::Answer(requester) => requester.answer_bytes(&[]),
                        ToHere::Push(port, body) => {
                            let requester = Requester::new(PeerId::LOCAL, Responder::none());
                            let request = Request { body, requester, link: None };
                            self.registry.ports().deliver(port, request);
                        }
                    }
                }
            });
            state.here.is_speaking = false;
        }
    }
}

impl State {
    fn parts(&mut self) -> (&mut Machine<Requester>, Out<'_>) {
        let (clients, here, fan_out) = (&self.clients, &mut self.here, &self.fan_out);
        (&mut self.machine, Out { clients, here, fan_out })
    }

    /// Removes clients, with their subscriptions.
    fn close(&mut self, clients: &[ClientId]) {
        let (machine, mut out) = self.parts();
        clients.iter().for_each(|client| machine.close(*client, &mut out));
        clients.iter().for_each(|client| drop(self.clients.remove(client)));
    }
}

/// Sends what the machine says.
struct Out<'a> {
    clients: &'a HashMap<ClientId, Client>,
    here: &'a mut Here,
    fan_out: &'a FanOut,
}

impl Out<'_> {
    fn push(&mut self, client: ClientId, body: &[u8], message: &Received) {
        let Some(Client { link, .. }) = self.clients.get(&client) else { return };
        match link {
            Some(link) => {
                let mut head = port_head(client.port);
                head.extend_from_slice(body);
                let Received { bytes: body, blobs } = message.clone();
                self.fan_out.send(link, Message { head, body, blobs });
            }
            None => {
                let bytes = Bytes::from([body, &message.bytes].concat());
                let body = Received { bytes, blobs: message.blobs.clone() };
                self.here.waiting.push_back(ToHere::Push(client.port, body));
            }
        }
    }
}

impl Outlet<Requester> for Out<'_> {
    fn deliver(&mut self, client: ClientId, to: Option<&[u64]>, message: &Received) {
        let Some(to) = to else { return self.push(client, &[TO_ALL], message) };
        for to in to.chunks(MOST_IN_FRAME) {
            let mut body = vec![TO_SOME];
            body.extend_from_slice(&(to.len() as u32).to_le_bytes());
            to.iter().for_each(|subscription| body.extend_from_slice(&subscription.to_le_bytes()));
            self.push(client, &body, message);
        }
    }

    fn missed(&mut self, client: ClientId, subscription: u64, count: u64) {
        let mut body = vec![MISSED];
        [subscription, count].iter().for_each(|part| body.extend_from_slice(&part.to_le_bytes()));
        self.push(client, &body, &Received::default());
    }

    fn too_slow(&mut self, client: ClientId, subscription: u64) {
        let mut body = vec![TOO_SLOW];
        body.extend_from_slice(&subscription.to_le_bytes());
        self.push(client, &body, &Received::default());
    }

    fn admitted(&mut self, publisher: Requester) {
        if publisher.peer == PeerId::LOCAL {
            self.here.waiting.push_back(ToHere::Answer(publisher));
        } else {
            // The publisher may subscribe, too.
            self.fan_out.flush();
            publisher.answer_bytes(&[]);
        }
    }
}

/// A topic without a name, which lives as long as its handles.
pub struct TopicPort {
    topic: Topic,
    port: PortId,
}

impl TopicPort {
    /// Makes a topic of this process.
    pub fn open(mesh: &'static Mesh) -> Arc<TopicPort> {
        let registry = mesh.registry();
        registry.ports().open(|port| TopicPort { topic: Topic::new(registry), port })
    }

    /// Returns the number of its port.
    pub fn port(&self) -> PortId {
        self.port
    }
}

impl Port for TopicPort {
    fn receive(&self, request: Request) {
        let Ok(incoming) = Incoming::read(request) else { return };
        if incoming.kind != OPEN {
            return self.topic.receive(incoming);
        }
        if let Ok((open, incoming)) = incoming.operation() {
            self.topic.open(&open, incoming);
        }
    }

    fn lost(&self, peer: PeerId) {
        self.topic.lost(peer);
    }
}

/// Appends a message without blobs to one that a client begins: its kind is `OPEN` or `SUBSCRIBE`.
pub fn append_operation<T: serde::Serialize>(frame: &mut Vec<u8>, kind: u8, operation: &T) {
    frame.push(kind);
    let appended: Result<Blobs, _> = codec::append_apart(frame, operation);
    appended.expect("operations can be serialized");
}
