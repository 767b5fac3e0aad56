//! What all handles of queues and pipes have inside.

use std::sync::{Arc, OnceLock};

use fiber_core::{Error, Result, codec, transfer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::blocks::Encoded;
use super::client::Client;
use super::store::{Capacity, Store};
use super::wire::{ASK, Ask, Closing};
use crate::objects::{Asked, Handle, PortRef, Waiting};
use crate::runtime::Runtime;

/// A queue, wherever it is.
#[derive(Clone)]
pub(crate) struct Core {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Handle,
    bounded: bool,
    side: OnceLock<Side>,
}

/// How this process reaches the queue.
pub(super) enum Side {
    Here(Arc<Store>),
    There(Arc<Client>),
}

impl Core {
    pub(super) fn new(name: &str, capacity: Capacity) -> Result<Core> {
        let runtime = Runtime::get()?;
        let store = runtime.registry().ports().open(|port| Store::new(port, capacity));
        let queue = Handle::here(PortRef::here(runtime, name, store.port)?, store.clone());
        let bounded = matches!(capacity, Capacity::QueueStream(_));
        Ok(Core {
            shared: Arc::new(Shared { queue, bounded, side: OnceLock::from(Side::Here(store)) }),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.shared.queue.name
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.shared.bounded
    }

    pub(super) fn side(&self) -> Result<&Side> {
        let shared = &*self.shared;
        if let Some(side) = shared.side.get() {
            return Ok(side);
        }
        let runtime = shared.queue.runtime()?;
        let side = if runtime.id() == shared.queue.home() {
            match shared.queue.object().map(|port| Arc::clone(port).as_any().downcast::<Store>()) {
                Some(Ok(store)) => Side::Here(store),
                _ => return Err(self.closed(Closing::Closed)),
            }
        } else {
            Side::There(Client::of(&shared.queue)?)
        };
        Ok(shared.side.get_or_init(|| side))
    }

    /// The store, if it is of this process.
    pub(super) fn store(&self) -> Option<&Arc<Store>> {
        match self.side() {
            Ok(Side::Here(store)) => Some(store),
            _ => None,
        }
    }

    pub(super) fn closed(&self, closing: Closing) -> Error {
        Error::Closed { what: self.name().to_string(), reason: closing.reason() }
    }

    pub(super) fn encode<T: Serialize + ?Sized>(&self, value: &T) -> Result<Encoded> {
        let limit = Runtime::get()?.config().max_message.as_u64();
        transfer::once(|| Encoded::new(value, limit))
    }

    /// Reads an element that was got. It may be given to another process until the owner knows that
    /// it is used here.
    pub(super) fn decode<T: DeserializeOwned>(&self, element: &[u8]) -> Result<T> {
        let (value, uncommitted) = transfer::uncommitted(|| codec::decode(element));
        if !uncommitted.is_empty() {
            match self.side() {
                Ok(Side::There(client)) => client.settle_used(uncommitted),
                _ => uncommitted.commit(),
            }
        }
        value
    }

    /// Asks the queue.
    pub(super) fn ask(&self, ask: &Ask) -> Result<Asked> {
        Ok(match self.side()? {
            Side::Here(_) => self.shared.queue.ask(self.payload(ask)),
            Side::There(client) => client.ask(ask),
        })
    }

    pub(super) fn tell(&self, ask: &Ask) {
        match self.side() {
            Ok(Side::Here(_)) => self.shared.queue.tell(self.payload(ask)),
            Ok(Side::There(client)) => client.tell(ask),
            Err(error) => tracing::debug!("{} was not told: {error}", self.name()),
        }
    }

    fn payload(&self, ask: &Ask) -> Vec<u8> {
        let mut payload = self.shared.queue.payload();
        payload.push(ASK);
        codec::append(&mut payload, ask).expect("requests are made of what serialises");
        payload
    }

    pub(super) fn call<R: DeserializeOwned + Send + 'static>(
        &self,
        doing: &str,
        ask: &Ask,
    ) -> Waiting<R> {
        let (core, asked) = (self.clone(), self.ask(ask));
        Waiting::new(format!("{doing} {}", self.name()), async move {
            // It lives for as long as it is waited for.
            let _core = core;
            codec::decode(&asked?.await?)
        })
    }
}

impl PartialEq for Core {
    fn eq(&self, other: &Core) -> bool {
        self.shared.queue == other.shared.queue
    }
}

impl Eq for Core {}

impl Serialize for Core {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.shared.queue, self.shared.bounded).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Core {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Core, D::Error> {
        let (queue, bounded) = Deserialize::deserialize(deserializer)?;
        Ok(Core { shared: Arc::new(Shared { queue, bounded, side: OnceLock::new() }) })
    }
}
