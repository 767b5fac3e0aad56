//! Values that each worker receives once and all its tasks can read.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use dashmap::DashMap;
use fiber_core::{Error, Result, forks};
use fiber_transport::Received as Encoded;
use fiber_values::codec;
use fiber_values::codec::EncodedValue;
use fiber_values::transfer::{self, KeepAlive, Mode};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::state::PoolState;
use fiber_runtime::parts::Parts;
use fiber_runtime::random::Random;

/// A handle to a value that every worker of a pool has: see
/// [`Pool::broadcast`](crate::Pool::broadcast).
///
/// As a task's argument, the handle takes 8 bytes. [`get`](Broadcast::get) returns the value in the
/// worker. The workers drop the value when the last handle in the process that made it is dropped,
/// and no task that has one as its argument is left.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Broadcast, Pool};
///
/// fn score(word: String, weights: Broadcast<Vec<u32>>) -> fiber::Result<u32> {
///     Ok(word.len() as u32 * weights.get()?[0])
/// }
///
/// let pool = Pool::new(2)?;
/// let weights = pool.broadcast(vec![10])?;
/// assert_eq!(pool.try_apply(score, ("fiber".to_string(), weights.clone())).wait()?, 50);
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct Broadcast<T> {
    id: u64,
    /// `None` in processes that received the handle.
    owned: Option<Owned<T>>,
    value: PhantomData<fn() -> T>,
}

/// The value in the process that made it.
struct Owned<T> {
    value: Arc<T>,
    in_workers: Arc<InWorkers>,
}

/// The value in the workers, which drop it with this.
struct InWorkers {
    id: u64,
    _keep_alive: KeepAlive,
    pool: Arc<PoolState>,
}

impl Drop for InWorkers {
    fn drop(&mut self) {
        if !forks::is_forked() {
            self.pool.drop_broadcast(self.id);
        }
    }
}

impl<T> Clone for Owned<T> {
    fn clone(&self) -> Owned<T> {
        Owned { value: Arc::clone(&self.value), in_workers: Arc::clone(&self.in_workers) }
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Broadcast<T> {
    pub(super) fn new(pool: Arc<PoolState>, value: T) -> Result<Broadcast<T>> {
        let mut bytes = Vec::new();
        let (blobs, keep_alive) = transfer::repeatable(|| codec::append_apart(&mut bytes, &value));
        let id = pool.runtime.part::<Random>().number();
        pool.send_broadcast(id, Encoded { bytes: bytes.into(), blobs: blobs? })?;
        let in_workers = Arc::new(InWorkers { id, _keep_alive: keep_alive, pool });
        let owned = Owned { value: Arc::new(value), in_workers };
        Ok(Broadcast { id, owned: Some(owned), value: PhantomData })
    }

    /// Returns the value.
    ///
    /// The first call in a worker deserializes it. All tasks of the worker share the result, and
    /// further calls cost a look-up. In the process that made it, this is the value itself.
    ///
    /// # Errors
    /// [`Error::Invalid`] if this process does not have the value, because it is no worker of the
    /// pool or all handles in the process that made it are dropped, those in the arguments of
    /// pending tasks included, or if the value has another
    /// type than `T`; [`Error::Decode`] if it can't be deserialized.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Broadcast, Pool};
    ///
    /// let pool = Pool::new(1)?;
    /// let primes = pool.broadcast(vec![2, 3, 5])?;
    /// assert_eq!(primes.get()?.len(), 3);
    /// let last = |primes: Broadcast<Vec<u32>>| primes.get().map(|primes| primes[2]);
    /// assert_eq!(pool.try_apply(last, primes.clone()).wait()?, 5);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn get(&self) -> Result<Arc<T>> {
        if let Some(owned) = &self.owned {
            return Ok(Arc::clone(&owned.value));
        }
        let invalid = |problem: &str| Error::invalid("Broadcast::get", problem);
        let received = Parts::current().get::<ReceivedValues>().get(self.id);
        let received = received.ok_or_else(|| {
            invalid(
                "this process does not have the value: keep a handle in the process that made it \
                 while tasks use it",
            )
        })?;
        let decode = || {
            // The encoded form is dropped, so the value is there once.
            let encoded = received.encoded.lock().take().unwrap_or_default();
            EncodedValue::from(encoded)
                .decode::<T>()
                .map(|value| Arc::new(value) as Arc<dyn Any + Send + Sync>)
        };
        let value = received.value.get_or_init(decode).clone()?;
        value.downcast().map_err(|_| invalid("the value has another type"))
    }
}

impl<T> Clone for Broadcast<T> {
    fn clone(&self) -> Broadcast<T> {
        Broadcast { id: self.id, owned: self.owned.clone(), value: PhantomData }
    }
}

impl<T> fmt::Debug for Broadcast<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Broadcast({:x})", self.id)
    }
}

impl<T> Serialize for Broadcast<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        transfer::note_handle();
        if let (Some(owned), Mode::Repeatable) = (&self.owned, transfer::mode()) {
            transfer::keep_alive(Arc::clone(&owned.in_workers) as Arc<dyn Any + Send + Sync>);
        }
        self.id.serialize(serializer)
    }
}

impl<'de, T> Deserialize<'de> for Broadcast<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Broadcast<T>, D::Error> {
        Ok(Broadcast { id: u64::deserialize(deserializer)?, owned: None, value: PhantomData })
    }
}

/// A value in a worker.
struct Received {
    /// `None` when it has been decoded.
    encoded: Mutex<Option<Encoded>>,
    value: OnceLock<Result<Arc<dyn Any + Send + Sync>>>,
}

/// The values that a worker has received.
#[derive(Default)]
pub(super) struct ReceivedValues(DashMap<u64, Arc<Received>>);

impl ReceivedValues {
    pub(super) fn insert(&self, id: u64, encoded: Encoded) {
        let encoded = Mutex::new(Some(encoded));
        self.0.insert(id, Arc::new(Received { encoded, value: OnceLock::new() }));
    }

    pub(super) fn remove(&self, id: u64) {
        self.0.remove(&id);
    }

    fn get(&self, id: u64) -> Option<Arc<Received>> {
        self.0.get(&id).map(|received| Arc::clone(received.value()))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_worker_has_a_value_encoded_or_decoded() {
        let id = u64::MAX;
        let values: &ReceivedValues = Parts::current().get();
        values.insert(id, Bytes::from(codec::encode("words").unwrap()).into());
        let has_encoded = || values.get(id).unwrap().encoded.lock().is_some();
        assert!(has_encoded());
        let broadcast = Broadcast::<String> { id, owned: None, value: PhantomData };
        assert_eq!(*broadcast.get().unwrap(), "words");
        assert!(!has_encoded());
        assert_eq!(*broadcast.get().unwrap(), "words");
        let other = Broadcast::<u32> { id, owned: None, value: PhantomData };
        assert!(other.get().unwrap_err().to_string().contains("another type"));
        values.remove(id);
        assert!(broadcast.get().is_err());
    }
}
