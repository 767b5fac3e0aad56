//! Handles of queues and pipes, without the type of their elements.

use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use fiber_core::{Error, Result, forks};
use fiber_values::codec::{self, EncodedValue};
use fiber_values::transfer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::client::Client;
use super::encoded::Encoded;
use super::name::QueueName;
use super::store::{Capacity, Store};
use super::wire::{Closing, OPERATION, Operation};
use fiber_runtime::durable::{DurableState, ObjectKind};
use fiber_runtime::mesh::Payload;
use fiber_runtime::objects::{Handle, ObjectRef, PortRef, Response};
use fiber_runtime::runtime::Runtime;
use fiber_runtime::sources::Sources;

/// A handle of a queue in any process.
#[derive(Clone)]
pub(crate) struct QueueHandle {
    inner: Arc<QueueHandleInner>,
}

/// How many bytes travel with a stream.
const TOGETHER: usize = 16 << 10;

/// The kind of a queue, which each process that uses it has to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum QueueKind {
    /// Elements that are put are on their way.
    Unbounded,
    /// Elements that are put wait for room.
    Bounded,
    /// Elements that are put wait until they are recorded, in the journal with this folder.
    Durable(String),
}

struct QueueHandleInner {
    handle: Handle,
    kind: QueueKind,
    location: OnceLock<Location>,
}

/// The way from this process to the queue.
pub(super) enum Location {
    Local(Arc<Store>),
    Remote(Arc<Client>),
}

impl QueueHandle {
    pub(super) fn new(name: QueueName, capacity: Capacity) -> Result<QueueHandle> {
        let kind = match capacity {
            Capacity::Elements(_) => QueueKind::Bounded,
            Capacity::Unbounded | Capacity::Bytes(_) => QueueKind::Unbounded,
        };
        QueueHandle::open(Runtime::get()?, name, kind, capacity, |store| store)
    }

    /// Returns the handle of a queue that holds this many bytes, for a stream.
    pub(super) fn stream(name: QueueName, bytes: usize) -> Result<QueueHandle> {
        let (runtime, capacity) = (Runtime::get()?, Capacity::Bytes(bytes));
        QueueHandle::open(runtime, name, QueueKind::Unbounded, capacity, Store::read_in_turn)
    }

    /// Returns the handle of a durable queue.
    pub(super) fn durable(
        runtime: &'static Runtime,
        name: QueueName,
        capacity: Capacity,
        durable: DurableState,
    ) -> Result<QueueHandle> {
        let elements = durable.read(&durable.slots())?;
        let kind = QueueKind::Durable(durable.journal_name());
        let finish = |store: Store| store.with_journal(durable, elements);
        QueueHandle::open(runtime, name, kind, capacity, finish)
    }

    fn open(
        runtime: &'static Runtime,
        QueueName { text, label }: QueueName,
        kind: QueueKind,
        capacity: Capacity,
        finish: impl FnOnce(Store) -> Store,
    ) -> Result<QueueHandle> {
        let ports = runtime.registry().ports();
        let store = ports.open(|port| finish(Store::new(runtime, port, label, capacity)));
        runtime.part::<Sources>().register(&store);
        let port_ref = PortRef::local(runtime, &text, store.port)?;
        let inner = QueueHandleInner {
            handle: Handle::local(port_ref, store.clone()),
            kind,
            location: OnceLock::from(Location::Local(store)),
        };
        Ok(QueueHandle { inner: Arc::new(inner) })
    }

    pub(super) fn kind(&self) -> &QueueKind {
        &self.inner.kind
    }

    /// Returns the folder of the journal of a durable queue.
    pub(super) fn journal(&self) -> Option<&str> {
        match self.kind() {
            QueueKind::Durable(journal) => Some(journal),
            QueueKind::Unbounded | QueueKind::Bounded => None,
        }
    }

    /// Refuses an operation that takes elements without an acknowledgement, if the queue is
    /// durable.
    pub(super) fn check_taking(&self, operation: &'static str) -> Result<()> {
        if self.journal().is_none() {
            return Ok(());
        }
        let problem = "the queue is durable, so its elements have to be acknowledged: take them \
                       with `get_acknowledged`";
        Err(Error::invalid(operation, problem))
    }

    pub(super) fn location(&self) -> Result<&Location> {
        forks::check()?;
        let inner = &*self.inner;
        if let Some(location) = inner.location.get() {
            return Ok(location);
        }
        let runtime = inner.handle.runtime()?;
        let location = if runtime.id() == inner.handle.owner() {
            match inner.handle.object().and_then(|port| Arc::clone(port).downcast_arc::<Store>()) {
                Some(store) => Location::Local(store),
                None => return Err(self.closed(Closing::Closed)),
            }
        } else {
            Location::Remote(Client::of(runtime, &inner.handle)?)
        };
        Ok(inner.location.get_or_init(|| location))
    }

    /// Returns the store, if this process owns the queue.
    pub(super) fn store(&self) -> Option<&Arc<Store>> {
        match self.location() {
            Ok(Location::Local(store)) => Some(store),
            _ => None,
        }
    }

    /// Waits until the queue, which this process owns, takes no more elements.
    pub(crate) fn poll_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        self.store().map_or(Poll::Ready(()), |store| store.lock().poll_closed(context))
    }

    /// Takes the first elements that are ready, if this process owns the queue, to send them
    /// elsewhere together.
    pub(crate) fn take_ready(&self) -> Vec<EncodedValue> {
        self.store().map_or_else(Vec::new, |store| store.lock().take_ready(TOGETHER))
    }

    /// Fails if what this process puts in can't arrive.
    pub(crate) fn check(&self) -> Result<()> {
        match self.location()? {
            Location::Local(store) => match store.lock().closing() {
                Some(reason) => Err(self.closed(reason)),
                None => Ok(()),
            },
            Location::Remote(client) => client.check(),
        }
    }

    /// Sends what this process has put in. Returns a promise that it has arrived, unless it has.
    pub(crate) fn flush(&self) -> Option<oneshot::Receiver<()>> {
        match self.location() {
            Ok(Location::Remote(client)) => client.flush(),
            Ok(Location::Local(_)) | Err(_) => None,
        }
    }

    /// Returns a handle that does not keep the queue, which this process owns.
    pub(crate) fn downgrade(&self) -> WeakQueue {
        WeakQueue(self.store().map(Arc::downgrade).unwrap_or_default())
    }

    pub(super) fn closed(&self, closing: Closing) -> Error {
        Error::Closed { what: self.name().to_string(), reason: closing.reason() }
    }

    /// Encodes an item of a stream.
    pub(super) fn encode_item<T: Serialize + ?Sized>(&self, item: &T) -> Result<Encoded> {
        let limit = self.inner.handle.runtime()?.config().max_message.as_u64();
        transfer::once(|| Encoded::item(item, limit))
    }

    pub(super) fn encode<T: Serialize + ?Sized>(&self, value: &T) -> Result<Encoded> {
        let limit = self.inner.handle.runtime()?.config().max_message.as_u64();
        if self.journal().is_none() {
            return transfer::once(|| Encoded::new(value, limit));
        }
        let encode = || transfer::repeatable(|| Encoded::new(value, limit)).0;
        let (encoded, has_handles) = transfer::finding_handles(encode);
        if has_handles {
            return Err(ObjectKind::Queue.refused(
                "an element contains a handle, which names an object of this run of the program: \
                 the next run can't use it",
            ));
        }
        encoded
    }

    /// Decodes an element that was got. Until the owner knows that this process has used the
    /// element, it may deliver the element, with the handles in it, to another process.
    pub(crate) fn decode<T: DeserializeOwned>(&self, element: &EncodedValue) -> Result<T> {
        let (value, uncommitted) = transfer::uncommitted(|| element.decode());
        if !uncommitted.is_empty() {
            match self.location() {
                Ok(Location::Remote(client)) => client.commit_when_used(uncommitted),
                _ => uncommitted.commit(),
            }
        }
        value
    }

    fn payload(&self, operation: &Operation) -> Payload {
        operation_payload(&self.inner.handle, operation)
    }
}

/// A queue of this process that ends without this.
pub(crate) struct WeakQueue(Weak<Store>);

impl WeakQueue {
    /// Returns whether any elements were ever put in.
    pub(crate) fn has_items(&self) -> bool {
        self.0.upgrade().is_some_and(|store| store.lock().pushed() > 0)
    }
}

/// Returns the message to a queue that carries an operation.
pub(super) fn operation_payload(queue: &PortRef, operation: &Operation) -> Payload {
    let mut frame = queue.payload();
    frame.push(OPERATION);
    let blobs = codec::append_apart(&mut frame, operation).expect("operations can be serialized");
    Payload::whole(frame, blobs)
}

impl ObjectRef for QueueHandle {
    type Operation = Operation;

    fn port(&self) -> &PortRef {
        &self.inner.handle
    }

    fn request(&self, operation: &Operation) -> Response {
        match self.location() {
            Ok(Location::Local(_)) => self.inner.handle.request(self.payload(operation)),
            Ok(Location::Remote(client)) => client.request(operation),
            Err(error) => Response::failed(&self.inner.handle.name, error),
        }
    }

    fn send(&self, operation: &Operation) {
        match self.location() {
            Ok(Location::Local(_)) => self.inner.handle.send(self.payload(operation)),
            Ok(Location::Remote(client)) => client.send(operation),
            Err(error) => tracing::debug!("a request to {} was not sent: {error}", self.name()),
        }
    }
}

impl PartialEq for QueueHandle {
    fn eq(&self, other: &QueueHandle) -> bool {
        self.inner.handle == other.inner.handle
    }
}

impl Eq for QueueHandle {}

impl Serialize for QueueHandle {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.inner.handle, self.kind()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for QueueHandle {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<QueueHandle, D::Error> {
        let (handle, kind) = Deserialize::deserialize(deserializer)?;
        let inner = QueueHandleInner { handle, kind, location: OnceLock::new() };
        Ok(QueueHandle { inner: Arc::new(inner) })
    }
}
