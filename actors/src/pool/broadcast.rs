//! Values that each worker receives once, and all its tasks can read.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock, OnceLock};

use bytes::Bytes;
use dashmap::DashMap;
use fiber_core::travel::{self, Pins};
use fiber_core::{Error, Result, codec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::shared::Shared;

/// A value that was given to all workers of a pool: see
/// [`Pool::broadcast`](crate::Pool::broadcast).
///
/// It travels as an argument at the cost of a number; [`get`](Broadcast::get) gives the value where
/// it arrives. It is taken back from the workers when the last handle of the process that made it
/// is dropped.
pub struct Broadcast<T> {
    id: u64,
    /// Where it was made.
    owner: Option<Arc<Owner<T>>>,
    value: PhantomData<fn() -> T>,
}

struct Owner<T> {
    id: u64,
    value: Arc<T>,
    _pins: Pins,
    pool: Arc<Shared>,
}

impl<T> Drop for Owner<T> {
    fn drop(&mut self) {
        self.pool.forget_broadcast(self.id);
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Broadcast<T> {
    pub(super) fn new(pool: Arc<Shared>, value: T) -> Result<Broadcast<T>> {
        let (bytes, pins) = travel::pinned(|| codec::encode(&value));
        let bytes = Bytes::from(bytes?);
        let id = u64::from_le_bytes(fiber_core::random());
        pool.send_broadcast(id, bytes)?;
        let owner = Owner { id, value: Arc::new(value), _pins: pins, pool };
        Ok(Broadcast { id, owner: Some(Arc::new(owner)), value: PhantomData })
    }

    /// The value. In a worker it is deserialised when it is first asked for, and then shared by all
    /// its tasks.
    ///
    /// # Errors
    /// If the value was not given to this process: it is no worker of the pool, or all handles were
    /// dropped where it was made. If it can't be deserialised, or not as a `T`.
    pub fn get(&self) -> Result<Arc<T>> {
        if let Some(owner) = &self.owner {
            return Ok(Arc::clone(&owner.value));
        }
        let invalid = |problem: &str| Error::invalid("Broadcast::get", problem);
        let received = RECEIVED.get(&self.id).map(|received| Arc::clone(received.value()));
        let received = received.ok_or_else(|| {
            invalid("this process has not been given the value: keep a handle where it was made while tasks use it")
        })?;
        let decode = || {
            codec::decode::<T>(&received.bytes)
                .map(|value| Arc::new(value) as Arc<dyn Any + Send + Sync>)
        };
        let value = received.value.get_or_init(decode).clone()?;
        value.downcast().map_err(|_| invalid("the value was made as another type"))
    }
}

impl<T> Clone for Broadcast<T> {
    fn clone(&self) -> Broadcast<T> {
        Broadcast { id: self.id, owner: self.owner.clone(), value: PhantomData }
    }
}

impl<T> fmt::Debug for Broadcast<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Broadcast({:x})", self.id)
    }
}

impl<T> Serialize for Broadcast<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.id.serialize(serializer)
    }
}

impl<'de, T> Deserialize<'de> for Broadcast<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Broadcast<T>, D::Error> {
        Ok(Broadcast { id: u64::deserialize(deserializer)?, owner: None, value: PhantomData })
    }
}

/// A value that this process has been given.
struct Received {
    bytes: Bytes,
    value: OnceLock<Result<Arc<dyn Any + Send + Sync>>>,
}

static RECEIVED: LazyLock<DashMap<u64, Arc<Received>>> = LazyLock::new(DashMap::new);

pub(super) fn receive(id: u64, bytes: Bytes) {
    RECEIVED.insert(id, Arc::new(Received { bytes, value: OnceLock::new() }));
}

pub(super) fn forget(id: u64) {
    RECEIVED.remove(&id);
}
