//! A queue of another process, as this process sees it. All handles of the process share it.
//!
//! [`Sending`] gathers the elements on their way to the owner; [`Receiving`] has the elements that
//! the owner sent.

mod receiving;
mod sending;

use std::sync::{Arc, OnceLock, Weak};
use std::thread;

use bytes::Buf;
use dashmap::{DashMap, Entry};
use fiber_core::at_exit::at_exit;
use fiber_core::{CloseReason, Error, ProcessId, Result, forks};
use fiber_transport::Received;
use fiber_values::transfer::Uncommitted;
use parking_lot::Mutex;

use self::receiving::Receiving;
use self::sending::Sending;
use super::handle::operation_payload;
use super::wire::{Closing, DELIVER, ENDED, Operation, PREFETCH, RECALL};
use fiber_runtime::mesh::{Payload, PeerId, Port, PortId, Request, Unsent};
use fiber_runtime::objects::{Handle, PortConnection, Response, with_remedy};
use fiber_runtime::runtime::Runtime;

/// This process's side of a queue of another process.
pub(super) struct Client {
    queue: Handle,
    /// All messages take it, so that none arrives after others were lost with it.
    owner: PortConnection,
    port: PortId,
    runtime: &'static Runtime,
    state: Mutex<ClientState>,
}

#[derive(Default)]
struct ClientState {
    sending: Sending,
    receiving: Receiving,
    closing: Option<Closing>,
    failed: Option<Error>,
}

/// The remedy if the owner is alive.
const GET_ANOTHER: &str = "if the owner is alive, get another handle of the queue from it (of a \
                           pipe, make another), for this process's handles stay unusable";

/// The clients of a session in this process.
#[derive(Default)]
struct Clients {
    by_queue: DashMap<(ProcessId, PortId), Weak<Client>>,
    has_hooks: OnceLock<()>,
}

impl Clients {
    fn of(runtime: &'static Runtime) -> &'static Clients {
        let clients: &'static Clients = runtime.part();
        clients.has_hooks.get_or_init(|| {
            at_exit(|waiting_allowed| clients.finish(waiting_allowed));
            runtime.mesh().unsent().set_send_all(|| clients.send_all());
        });
        clients
    }

    fn all(&self) -> Vec<Arc<Client>> {
        self.by_queue.iter().filter_map(|client| client.upgrade()).collect()
    }

    /// Sends the frames that the clients hold back.
    fn send_all(&self) {
        for client in self.all() {
            client.send_frame(&mut client.state.lock());
        }
    }

    /// Sends all frames and returns all unused elements before this process exits. The runtime
    /// waits for the messages to arrive.
    fn finish(&self, waiting_allowed: bool) {
        if !waiting_allowed {
            return;
        }
        for client in self.all() {
            let mut state = client.state.lock();
            client.send_frame(&mut state);
            if state.failed.is_none() {
                client.return_unused(&mut state);
            }
        }
    }
}

impl Client {
    /// Returns this process's client of a queue.
    pub(super) fn of(runtime: &'static Runtime, queue: &Handle) -> Result<Arc<Client>> {
        let key = (queue.owner(), queue.id);
        let clients = Clients::of(runtime);
        let place = loop {
            match clients.by_queue.entry(key) {
                Entry::Vacant(place) => break place,
                Entry::Occupied(place) => {
                    if let Some(client) = place.get().upgrade() {
                        return Ok(client);
                    }
                }
            }
            // The last client is being dropped. Its messages have to be sent before this one's.
            thread::yield_now();
        };
        let owner = queue.connection()?;
        let client = runtime.registry().ports().open(|port| Client {
            queue: queue.clone(),
            owner,
            port,
            runtime,
            state: Mutex::default(),
        });
        drop(place.insert(Arc::downgrade(&client)));
        let weak = Arc::downgrade(&client);
        let attach = client.payload(&Operation::Attach(client.port));
        client.owner.request_then(attach, move |answer| {
            if let (Some(client), Err(error)) = (weak.upgrade(), answer) {
                client.fail(error);
            }
        });
        Ok(client)
    }

    fn unsent(&self) -> &'static Unsent {
        self.runtime.mesh().unsent()
    }

    fn payload(&self, operation: &Operation) -> Payload {
        operation_payload(&self.queue, operation)
    }

    /// Sends an operation. The owner receives it after the earlier elements of this process.
    pub(super) fn request(self: &Arc<Self>, operation: &Operation) -> Response {
        let mut state = self.state.lock();
        self.catch_up(&mut state);
        self.owner.request(self.payload(operation))
    }

    /// Sends an operation that has no result, as [`request`](Client::request).
    pub(super) fn send(self: &Arc<Self>, operation: &Operation) {
        let mut state = self.state.lock();
        self.catch_up(&mut state);
        self.owner.send(self.payload(operation));
    }

    /// Settles `uncommitted` after a message that says that all elements which were got are used.
    pub(super) fn commit_when_used(self: &Arc<Self>, uncommitted: Uncommitted) {
        self.catch_up(&mut self.state.lock());
        uncommitted.commit();
    }

    /// Sends everything that the owner does not know yet.
    fn catch_up(self: &Arc<Self>, state: &mut ClientState) {
        self.send_frame(state);
        self.report_used(&mut state.receiving);
    }

    /// Returns the error of a queue that takes no more elements.
    pub(super) fn check(&self) -> Result<()> {
        self.check_state(&self.state.lock())
    }

    fn check_state(&self, state: &ClientState) -> Result<()> {
        match (&state.failed, state.closing) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(closing)) => Err(self.closed(closing.reason())),
            (None, None) => Ok(()),
        }
    }

    fn closed(&self, reason: CloseReason) -> Error {
        Error::Closed { what: self.queue.name.to_string(), reason }
    }

    fn ended(&self, reason: Closing) {
        let mut state = self.state.lock();
        state.closing = Some(reason);
        state.receiving.break_promises();
    }

    fn fail(&self, error: Error) {
        // After a lost link, elements on their way may be lost, and so may the knowledge which
        // elements this process has used. So its handles must not go on as if nothing had happened.
        let error = with_remedy(error, GET_ANOTHER);
        let mut state = self.state.lock();
        state.failed.get_or_insert(error);
        state.receiving.clear();
        state.sending.clear(self.unsent());
        drop(state);
        self.unregister();
    }

    fn unregister(&self) {
        let key = (self.queue.owner(), self.queue.id);
        let clients: &Clients = self.runtime.part();
        clients.by_queue.remove_if(&key, |_, client| std::ptr::eq(client.as_ptr(), self));
    }
}

impl Port for Client {
    fn receive(&self, request: Request) {
        let mut body = request.body;
        match (!body.is_empty()).then(|| body.bytes.get_u8()) {
            Some(DELIVER) => self.received(body, true),
            Some(PREFETCH) => self.received(body, false),
            Some(RECALL) => self.return_unused(&mut self.state.lock()),
            Some(ENDED) => {
                self.ended(Closing::from_byte(body.first().copied().unwrap_or_default()))
            }
            _ => tracing::error!("{} sent a message of an unknown type", self.queue.name),
        }
    }

    fn lost(&self, _: PeerId) {}
}

impl Drop for Client {
    fn drop(&mut self) {
        // In a fork, the locks of the clients may be held for good.
        if forks::is_forked() {
            return;
        }
        let state = self.state.get_mut();
        if state.failed.is_none() {
            // This is sent even if there is nothing to return: more elements may be on their way.
            let operation = state.receiving.return_unused();
            self.owner.send(self.payload(&operation));
        }
        self.unregister();
    }
}

/// The body of an answer, or the error of its request.
type Answer = Result<Received>;
