//! A topic as a process sees it. All handles and subscriptions of the process share it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};

use bytes::Buf;
use fiber_core::{Error, ProcessId, Result, forks};
use fiber_runtime::mesh::{Payload, PeerId, Port, PortId, Request};
use fiber_runtime::objects::{Handle, PortConnection, PortRef, Response, with_remedy};
use fiber_runtime::runtime::Runtime;
use fiber_runtime::topics::append_operation;
use fiber_runtime::topics::wire::{
    CLOSE, MISSED, OPEN, Open, PUBLISH, READ, Retention, SUBSCRIBE, TO_ALL, TO_SOME, TOO_SLOW,
    UNSUBSCRIBE, WhenFull,
};
use fiber_transport::Received;
use fiber_values::blob::Blobs;
use fiber_values::codec;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::buffer::{Buffer, End, Next};

/// The remedy if the owner is alive.
const SUBSCRIBE_AGAIN: &str =
    "messages may be lost, so its subscriptions in this process have ended: subscribe again";
/// The largest number of subscriptions of which one frame tells the topic.
const MOST_READS: usize = 2048;

/// Where a topic is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    /// In the head, under this name.
    Named(Arc<str>),
    /// In the process that has made it.
    Object(Handle),
}

impl Place {
    /// Returns the name of the topic in errors.
    pub(super) fn what(&self) -> String {
        match self {
            Place::Named(name) => format!("topic `{name}`"),
            Place::Object(handle) => handle.name.to_string(),
        }
    }
}

/// This process's side of a topic.
pub(super) struct Client {
    place: Place,
    message: &'static str,
    /// All messages take it, so that none arrives after others were lost with it.
    owner: PortConnection,
    port_ref: PortRef,
    port: PortId,
    runtime: &'static Runtime,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    buffers: BTreeMap<u64, Arc<Buffer>>,
    last: u64,
    failed: Option<Error>,
}

/// A topic, and the type of its messages.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Named(Arc<str>, &'static str),
    Object(ProcessId, PortId, &'static str),
}

/// The clients of a session in this process.
#[derive(Default)]
struct Clients(Mutex<HashMap<Key, Weak<Client>>>);

impl Client {
    /// Returns this process's client of a topic.
    pub(super) fn of(place: &Place, message: &'static str) -> Result<Arc<Client>> {
        let (runtime, port_ref) = match place {
            Place::Named(_) => {
                let runtime = Runtime::get()?;
                (runtime, PortRef::topics(runtime, &place.what())?)
            }
            Place::Object(handle) => (handle.runtime()?, PortRef::clone(handle)),
        };
        let mut clients = runtime.part::<Clients>().0.lock();
        let key = key(place, message);
        if let Some(client) = clients.get(&key).and_then(Weak::upgrade)
            && client.failure().is_none()
        {
            return Ok(client);
        }
        clients.retain(|_, client| client.strong_count() > 0);
        let owner = port_ref.connection()?;
        let client = runtime.registry().ports().open(|port| Client {
            place: place.clone(),
            message,
            owner,
            port_ref,
            port,
            runtime,
            state: Mutex::default(),
        });
        clients.insert(key, Arc::downgrade(&client));
        client.open();
        Ok(client)
    }

    /// Opens the topic. The answer comes if it is refused, or if the topic has ended.
    fn open(self: &Arc<Client>) {
        let name = match &self.place {
            Place::Named(name) => Some(Arc::clone(name)),
            Place::Object(_) => None,
        };
        let open = Open { name, message: self.message.into(), process: self.runtime.id() };
        let mut frame = self.begin();
        append_operation(&mut frame, OPEN, &open);
        let client = Arc::downgrade(self);
        self.owner.request_then(frame, move |answer| {
            let Some(client) = client.upgrade() else { return };
            let error = answer.and_then(|found| codec::decode::<String>(&found));
            client.fail(error.map_or_else(|error| error, |found| client.other_type(found)));
        });
    }

    fn other_type(&self, found: String) -> Error {
        Error::OtherType { what: self.place.what(), found, asked: self.message }
    }

    fn fail(&self, error: Error) {
        let error = with_remedy(error, SUBSCRIBE_AGAIN);
        let mut state = self.state.lock();
        let error = state.failed.get_or_insert(error).clone();
        let buffers = std::mem::take(&mut state.buffers);
        drop(state);
        buffers.values().filter_map(|buffer| buffer.fail(&error)).for_each(Waker::wake);
    }

    /// Returns why the client can't be used any more.
    pub(super) fn failure(&self) -> Option<Error> {
        self.state.lock().failed.clone()
    }

    /// Returns the name of the topic in errors.
    pub(super) fn what(&self) -> String {
        self.place.what()
    }

    /// Returns the error of a request, which may be that the topic was not opened.
    pub(super) fn explain(&self, error: Error) -> Error {
        match self.failure() {
            Some(refused @ Error::OtherType { .. }) => refused,
            _ => error,
        }
    }

    /// Returns the largest size of a message.
    pub(super) fn limit(&self) -> u64 {
        self.runtime.config().max_message.as_u64()
    }

    pub(super) fn runtime(&self) -> &'static Runtime {
        self.runtime
    }

    /// Returns the start of a message to the topic.
    fn begin(&self) -> Vec<u8> {
        let mut frame = self.port_ref.payload();
        frame.extend_from_slice(&self.port.0.to_le_bytes());
        frame
    }

    /// Returns the start of a publication, behind which the message comes.
    pub(super) fn begin_publication(&self, retention: Retention) -> Vec<u8> {
        let mut frame = self.begin();
        frame.extend_from_slice(&[PUBLISH, retention as u8]);
        frame
    }

    /// Publishes a message. The response comes when all that wait have room.
    pub(super) fn publish(&self, frame: Vec<u8>, blobs: Blobs) -> Response {
        self.runtime.mesh().unsent().send();
        self.owner.request(Payload::whole(frame, blobs))
    }

    /// Subscribes. The receiver gets the outcome when the topic knows the subscription.
    pub(super) fn subscribe(
        self: &Arc<Client>,
        when_full: WhenFull,
        capacity: u32,
    ) -> (Messages, oneshot::Receiver<Result<()>>) {
        self.runtime.mesh().unsent().send();
        let buffer = Arc::new(Buffer::new(when_full, capacity));
        let mut state = self.state.lock();
        state.last += 1;
        let id = state.last;
        match &state.failed {
            Some(error) => drop(buffer.fail(error)),
            None => drop(state.buffers.insert(id, Arc::clone(&buffer))),
        }
        drop(state);
        let mut frame = self.begin();
        append_operation(&mut frame, SUBSCRIBE, &buffer.request(id, capacity));
        let (done, outcome) = oneshot::channel();
        let of_buffer = Arc::downgrade(&buffer);
        let client = Arc::downgrade(self);
        self.owner.request_then(frame, move |answer| {
            if let (Ok(_), Some(buffer)) = (&answer, of_buffer.upgrade()) {
                buffer.is_there();
            }
            let explain = |error| match client.upgrade() {
                Some(client) => client.explain(error),
                None => error,
            };
            let _ = done.send(answer.map(drop).map_err(explain));
        });
        (Messages { client: Arc::clone(self), buffer, id }, outcome)
    }

    /// Ends a subscription, unless it has ended.
    fn unsubscribe(&self, id: u64) {
        // In a fork, the lock may be held for good.
        if forks::is_forked() {
            return;
        }
        let is_subscribed = self.state.lock().buffers.remove(&id).is_some();
        if is_subscribed {
            let mut frame = self.begin();
            frame.push(UNSUBSCRIBE);
            frame.extend_from_slice(&id.to_le_bytes());
            self.owner.send(frame);
        }
    }

    /// Tells the topic what the subscriptions have read.
    fn say_read(&self) {
        let state = self.state.lock();
        let reads = state.buffers.iter().filter_map(|(id, buffer)| buffer.take_read(*id));
        let reads: Vec<_> = reads.collect();
        drop(state);
        for reads in reads.chunks(MOST_READS) {
            let mut frame = self.begin();
            frame.push(READ);
            reads.iter().for_each(|read| read.append(&mut frame));
            self.owner.send(frame);
        }
    }

    /// Takes a message for these subscriptions, or for all.
    fn received(&self, to: Option<&[u64]>, message: &Received) {
        let state = self.state.lock();
        let mut readers = Vec::new();
        let mut is_due = false;
        let mut push = |buffer: &Arc<Buffer>| {
            let (due, reader) = buffer.push(message, to.is_none());
            is_due |= due;
            readers.extend(reader);
        };
        match to {
            None => state.buffers.values().for_each(&mut push),
            Some(ids) => ids.iter().filter_map(|id| state.buffers.get(id)).for_each(&mut push),
        }
        drop(state);
        readers.into_iter().for_each(Waker::wake);
        if is_due {
            self.say_read();
        }
    }
}

fn key(place: &Place, message: &'static str) -> Key {
    match place {
        Place::Named(name) => Key::Named(Arc::clone(name), message),
        Place::Object(handle) => Key::Object(handle.owner(), handle.id, message),
    }
}

impl Port for Client {
    fn receive(&self, request: Request) {
        let Received { mut bytes, blobs } = request.body;
        match (!bytes.is_empty()).then(|| bytes.get_u8()) {
            Some(TO_ALL) => self.received(None, &Received { bytes, blobs }),
            Some(TO_SOME) if bytes.len() >= 4 => {
                let count = bytes.get_u32_le() as usize;
                if bytes.len() >= 8 * count {
                    let to: Vec<u64> = (0..count).map(|_| bytes.get_u64_le()).collect();
                    self.received(Some(&to), &Received { bytes, blobs });
                }
            }
            Some(MISSED) if bytes.len() >= 16 => {
                let (id, count) = (bytes.get_u64_le(), bytes.get_u64_le());
                if let Some(buffer) = self.state.lock().buffers.get(&id) {
                    buffer.miss(count);
                }
            }
            Some(TOO_SLOW) if bytes.len() >= 8 => {
                let buffer = self.state.lock().buffers.remove(&bytes.get_u64_le());
                buffer.and_then(|buffer| buffer.end_too_slow()).into_iter().for_each(Waker::wake);
            }
            _ => tracing::error!("{} sent a message of an unknown type", self.what()),
        }
    }

    fn lost(&self, _: PeerId) {}
}

impl Drop for Client {
    fn drop(&mut self) {
        // A fork's client is that of the original.
        if forks::is_forked() {
            return;
        }
        if self.state.get_mut().failed.is_none() {
            let mut frame = self.begin();
            frame.push(CLOSE);
            self.owner.send(frame);
        }
    }
}

/// Waits for the outcome of a subscription.
///
/// # Errors
/// It was refused, or the topic can't be reached.
pub(super) async fn outcome(outcome: oneshot::Receiver<Result<()>>) -> Result<()> {
    let ended = |_| Err(Error::system("a subscription failed", "fiber's thread ended"));
    outcome.await.unwrap_or_else(ended)
}

/// The messages of one subscription, encoded. Dropping it ends the subscription.
pub(super) struct Messages {
    client: Arc<Client>,
    buffer: Arc<Buffer>,
    id: u64,
}

impl Messages {
    /// Returns the next message; an error is the last.
    pub(super) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Result<Received>> {
        // No message comes there, and a lock may be held for good.
        forks::check()?;
        Poll::Ready(match ready!(self.buffer.poll_next(context)) {
            Next::Message { message, is_due } => {
                if is_due {
                    self.client.say_read();
                }
                Ok(message)
            }
            Next::End(End::TooSlow(waiting)) => {
                Err(Error::TooSlow { topic: self.client.what(), waiting })
            }
            Next::End(End::Failed(error)) => Err(error),
        })
    }

    /// Returns how many messages it has missed, because they were not the newest.
    pub(super) fn missed(&self) -> u64 {
        self.buffer.missed()
    }

    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Ends the subscription: no more messages come.
    pub(super) fn end(&self) {
        if !forks::is_forked() {
            self.client.unsubscribe(self.id);
            self.buffer.clear();
        }
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.client.unsubscribe(self.id);
    }
}
