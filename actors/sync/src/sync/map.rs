//! A map that processes share.

use std::collections::{HashMap, hash_map};
use std::marker::PhantomData;

use fiber_core::Result;
use fiber_values::codec::{self, EncodedValue};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::state::{ObjectState, StateHandle, generic_handle};
use fiber_runtime::mesh::Requester;
use fiber_runtime::objects::ObjectRef;
use fiber_runtime::reply::Reply;

/// A map that all processes of the program can read and change. Its keys keep the order in which
/// they were first inserted.
///
/// Two keys are the same if their encodings are.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Pool, sync::Map};
///
/// let lengths = Map::<String, usize>::new()?;
/// let count = |word: String, lengths: Map<String, usize>| {
///     let length = word.len();
///     lengths.insert(word, length).wait()
/// };
/// let words = ["one", "three"].map(String::from);
/// Pool::new(2)?.try_map(count, words.map(|word| (word, lengths.clone()))).wait()?;
/// assert_eq!(lengths.get(&"three".into()).wait()?, Some(5));
/// assert_eq!(lengths.len().wait()?, 2);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Map<K, V> {
    handle: StateHandle<MapState>,
    marker: PhantomData<fn() -> (K, V)>,
}

generic_handle!(Map<K, V>);

/// The state of a map, and of a namespace.
#[derive(Default)]
pub(super) struct MapState {
    entries: HashMap<ByteBuf, Entry>,
    last: u64,
}

struct Entry {
    /// The rank of its key in the order of insertion.
    rank: u64,
    /// The version of its value. Version 0 stands for a missing entry.
    version: u64,
    value: EncodedValue,
}

/// A version with its value.
type Read = (u64, Option<EncodedValue>);

type Entries = Vec<(ByteBuf, EncodedValue)>;

#[derive(Serialize, Deserialize)]
pub(super) enum Operation {
    /// Answered with the value, if any.
    Get(ByteBuf),
    /// Answered with the previous value, if any.
    Insert(ByteBuf, EncodedValue),
    /// Answered with the value, if any.
    Remove(ByteBuf),
    Contains(ByteBuf),
    Len,
    Clear,
    /// Answered with all keys and values.
    Entries,
    /// Answered with all keys.
    Keys,
    /// Answered with a [`Read`].
    Read(ByteBuf),
    /// Sets the value if it still has this version, and answers with a [`Read`] if it has not.
    CompareAndSet {
        key: ByteBuf,
        version: u64,
        value: Option<EncodedValue>,
    },
}

impl MapState {
    fn insert(&mut self, key: ByteBuf, value: EncodedValue) -> Option<EncodedValue> {
        self.last += 1;
        let (rank, version) = (self.last, self.last);
        match self.entries.entry(key) {
            hash_map::Entry::Occupied(mut entry) => {
                let entry = entry.get_mut();
                entry.version = version;
                Some(std::mem::replace(&mut entry.value, value))
            }
            hash_map::Entry::Vacant(entry) => {
                entry.insert(Entry { rank, version, value });
                None
            }
        }
    }

    fn read(&self, key: &ByteBuf) -> Read {
        self.entries.get(key).map_or((0, None), |entry| (entry.version, Some(entry.value.clone())))
    }

    fn in_order(&self) -> Vec<(&ByteBuf, &EncodedValue)> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_unstable_by_key(|(_, entry)| entry.rank);
        entries.into_iter().map(|(key, entry)| (key, &entry.value)).collect()
    }
}

impl ObjectState for MapState {
    type Operation = Operation;

    fn apply(&mut self, operation: Operation, requester: Requester) {
        match operation {
            Operation::Get(key) => {
                requester.answer(&self.entries.get(&key).map(|entry| &entry.value));
            }
            Operation::Insert(key, value) => requester.answer(&self.insert(key, value)),
            Operation::Remove(key) => {
                requester.answer(&self.entries.remove(&key).map(|entry| entry.value));
            }
            Operation::Contains(key) => requester.answer(&self.entries.contains_key(&key)),
            Operation::Len => requester.answer(&self.entries.len()),
            Operation::Clear => {
                self.entries.clear();
                requester.answer(&());
            }
            Operation::Entries => requester.answer(&self.in_order()),
            Operation::Keys => requester
                .answer(&self.in_order().into_iter().map(|(key, _)| key).collect::<Vec<_>>()),
            Operation::Read(key) => requester.answer(&self.read(&key)),
            Operation::CompareAndSet { key, version, value } => {
                let current = self.entries.get(&key).map_or(0, |entry| entry.version);
                if current != version {
                    return requester.answer(&Some(self.read(&key)));
                }
                match value {
                    Some(value) => drop(self.insert(key, value)),
                    None => drop(self.entries.remove(&key)),
                }
                requester.answer(&None::<Read>);
            }
        }
    }
}

pub(super) fn encoded_key<T: Serialize + ?Sized>(key: &T) -> Result<ByteBuf> {
    codec::encode(key).map(ByteBuf::from)
}

impl<K, V> Map<K, V>
where
    K: Serialize + DeserializeOwned + Send + 'static,
    V: Serialize + DeserializeOwned + Send + 'static,
{
    /// Makes an empty map. It lives in this process, which stores the encoded keys and values.
    ///
    /// # Errors
    /// [`Error::NotInitialized`](fiber_core::Error::NotInitialized), a wrong configuration, or an
    /// error of the system.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let ages = fiber::sync::Map::<String, u32>::new()?;
    /// assert!(ages.is_empty().wait()?);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn new() -> Result<Map<K, V>> {
        Ok(Map { handle: StateHandle::new("map", MapState::default())?, marker: PhantomData })
    }

    /// Returns a copy of the value of a key. [`insert`](Map::insert) has an example.
    pub fn get(&self, key: &K) -> Reply<Option<V>> {
        self.handle.value("getting from", encoded_key(key).map(Operation::Get))
    }

    /// Sets the value of a key. Returns the previous value.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let ages = fiber::sync::Map::new()?;
    /// assert_eq!(ages.insert("Ada".to_string(), 36).wait()?, None);
    /// assert_eq!(ages.insert("Ada".to_string(), 37).wait()?, Some(36));
    /// assert_eq!(ages.get(&"Ada".to_string()).wait()?, Some(37));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn insert(&self, key: K, value: V) -> Reply<Option<V>> {
        let operation = encoded_key(&key)
            .and_then(|key| Ok(Operation::Insert(key, EncodedValue::new(&value)?)));
        self.handle.value("inserting into", operation)
    }

    /// Removes a key. Returns its value.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let squares = fiber::sync::Map::new()?;
    /// squares.insert(3, 9).wait()?;
    /// assert_eq!(squares.remove(&3).wait()?, Some(9));
    /// assert!(!squares.contains_key(&3).wait()?);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn remove(&self, key: &K) -> Reply<Option<V>> {
        self.handle.value("removing from", encoded_key(key).map(Operation::Remove))
    }

    /// Returns whether the map has a key. The value does not travel. [`remove`](Map::remove) has an
    /// example.
    pub fn contains_key(&self, key: &K) -> Reply<bool> {
        self.handle.call_then("asking", encoded_key(key).map(Operation::Contains), Ok)
    }

    /// Returns the number of keys.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let squares = fiber::sync::Map::new()?;
    /// squares.insert(3, 9).wait()?;
    /// assert_eq!(squares.len().wait()?, 1);
    /// squares.clear().wait()?;
    /// assert!(squares.is_empty().wait()?);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn len(&self) -> Reply<usize> {
        self.handle.call("asking", &Operation::Len)
    }

    /// Returns whether the map has no keys. [`len`](Map::len) has an example.
    pub fn is_empty(&self) -> Reply<bool> {
        self.handle.call_then("asking", Ok(Operation::Len), |length: usize| Ok(length == 0))
    }

    /// Removes all keys. [`len`](Map::len) has an example.
    pub fn clear(&self) -> Reply<()> {
        self.handle.call("clearing", &Operation::Clear)
    }

    /// Returns a copy of all keys, in the order in which they were first inserted.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let squares = fiber::sync::Map::new()?;
    /// squares.insert(3, 9).wait()?;
    /// squares.insert(2, 4).wait()?;
    /// assert_eq!(squares.keys().wait()?, [3, 2]);
    /// assert_eq!(squares.entries().wait()?, [(3, 9), (2, 4)]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn keys(&self) -> Reply<Vec<K>> {
        self.handle.call_then("getting from", Ok(Operation::Keys), |keys: Vec<ByteBuf>| {
            keys.iter().map(|key| codec::decode(key)).collect()
        })
    }

    /// Returns a copy of all keys with their values, in the order of [`keys`](Map::keys), which has
    /// an example. All travel in one message of at most `max_message` bytes.
    pub fn entries(&self) -> Reply<Vec<(K, V)>> {
        self.handle.call_then("getting from", Ok(Operation::Entries), |entries: Entries| {
            entries.iter().map(|(key, value)| Ok((codec::decode(key)?, value.decode()?))).collect()
        })
    }

    /// Changes, inserts or removes the value of a key atomically. Returns the new value.
    ///
    /// `change` runs in this process, on a copy; `None` is a missing key. It runs again, on the new
    /// value, if another process changed the value meanwhile. That takes two round trips, and one
    /// more for each repetition.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let counts = fiber::sync::Map::new()?;
    /// let count = |count: &mut Option<u32>| *count = Some(count.unwrap_or(0) + 1);
    /// assert_eq!(counts.update(&"one".to_string(), count).wait()?, Some(1));
    /// assert_eq!(counts.update(&"one".to_string(), count).wait()?, Some(2));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn update(
        &self,
        key: &K,
        mut change: impl FnMut(&mut Option<V>) + Send + 'static,
    ) -> Reply<Option<V>> {
        let key = match encoded_key(key) {
            Ok(key) => key,
            Err(error) => return Reply::failed(error),
        };
        self.handle.update(&Operation::Read(key.clone()), move |(version, current): Read| {
            let mut value = current.map(|value| value.decode()).transpose()?;
            change(&mut value);
            let encoded = value.as_ref().map(EncodedValue::new).transpose()?;
            let set = Operation::CompareAndSet { key: key.clone(), version, value: encoded };
            Ok((set, value))
        })
    }
}
