//! A map that processes share.

use std::collections::HashMap;
use std::marker::PhantomData;

use fiber_core::{Result, codec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::shared::{Handle, Machine, generic_handle};
use crate::mesh::Requester;
use crate::objects::Waiting;

/// A map that all processes of the program can read and change. Its keys keep the order in which
/// they were first put in.
///
/// Keys are the same if they are encoded alike.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Pool, sync::Map};
///
/// let lengths = Map::<String, usize>::new()?;
/// let count = |word: String, lengths: Map<String, usize>| lengths.insert(&word, &word.len()).wait();
/// let words = ["one", "three"].map(String::from);
/// Pool::new(2)?.try_map(count, words.map(|word| (word, lengths.clone()))).wait()?;
/// assert_eq!(lengths.get(&"three".into()).wait()?, Some(5));
/// assert_eq!(lengths.len().wait()?, 2);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Map<K, V> {
    handle: Handle<Table>,
    marker: PhantomData<fn() -> (K, V)>,
}

generic_handle!(Map<K, V>);

/// The map's state; a namespace's as well.
#[derive(Default)]
pub(super) struct Table {
    entries: HashMap<ByteBuf, Entry>,
    last: u64,
}

struct Entry {
    /// When its key was put in.
    place: u64,
    /// When it was changed; 0 stands for no entry.
    version: u64,
    value: ByteBuf,
}

#[derive(Serialize, Deserialize)]
pub(super) enum Ask {
    /// Answered by the value, if there is one.
    Get(ByteBuf),
    /// Answered by what was there before.
    Insert(ByteBuf, ByteBuf),
    /// Answered by what was there.
    Remove(ByteBuf),
    Contains(ByteBuf),
    Len,
    Clear,
    /// Answered by all keys and values.
    Entries,
    /// Answered by all keys.
    Keys,
    /// Answered by the version and the value.
    Look(ByteBuf),
    /// Answered as `Look`, if another value is there meanwhile.
    Change {
        key: ByteBuf,
        version: u64,
        value: Option<ByteBuf>,
    },
}

type Seen = (u64, Option<ByteBuf>);

impl Table {
    fn insert(&mut self, key: ByteBuf, value: ByteBuf) -> Option<ByteBuf> {
        self.last += 1;
        let (place, version) = (self.last, self.last);
        let entry = self.entries.entry(key);
        match entry {
            std::collections::hash_map::Entry::Occupied(mut there) => {
                let there = there.get_mut();
                there.version = version;
                Some(std::mem::replace(&mut there.value, value))
            }
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(Entry { place, version, value });
                None
            }
        }
    }

    fn look(&self, key: &ByteBuf) -> Seen {
        self.entries.get(key).map_or((0, None), |entry| (entry.version, Some(entry.value.clone())))
    }

    fn in_order(&self) -> Vec<(&ByteBuf, &ByteBuf)> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_unstable_by_key(|(_, entry)| entry.place);
        entries.into_iter().map(|(key, entry)| (key, &entry.value)).collect()
    }
}

impl Machine for Table {
    type Ask = Ask;

    fn ask(&mut self, ask: Ask, requester: Requester) {
        match ask {
            Ask::Get(key) => requester.answer(&self.entries.get(&key).map(|entry| &entry.value)),
            Ask::Insert(key, value) => requester.answer(&self.insert(key, value)),
            Ask::Remove(key) => {
                requester.answer(&self.entries.remove(&key).map(|entry| entry.value))
            }
            Ask::Contains(key) => requester.answer(&self.entries.contains_key(&key)),
            Ask::Len => requester.answer(&self.entries.len()),
            Ask::Clear => {
                self.entries.clear();
                requester.answer(&());
            }
            Ask::Entries => requester.answer(&self.in_order()),
            Ask::Keys => requester
                .answer(&self.in_order().into_iter().map(|(key, _)| key).collect::<Vec<_>>()),
            Ask::Look(key) => requester.answer(&self.look(&key)),
            Ask::Change { key, version, value } => {
                let current = self.entries.get(&key).map_or(0, |entry| entry.version);
                if current != version {
                    return requester.answer(&Some(self.look(&key)));
                }
                match value {
                    Some(value) => drop(self.insert(key, value)),
                    None => drop(self.entries.remove(&key)),
                }
                requester.answer(&None::<Seen>);
            }
        }
    }
}

/// Asks for what is encoded for itself.
pub(super) fn inner<T: DeserializeOwned + Send + 'static>(
    handle: &Handle<Table>,
    doing: &str,
    ask: Result<Ask>,
) -> Waiting<Option<T>> {
    let asked = ask.map(|ask| handle.call::<Option<ByteBuf>>(doing, &ask));
    Waiting::new(format!("{doing} {}", handle.name()), async move {
        asked?.await?.map(|value| codec::decode(&value)).transpose()
    })
}

pub(super) fn encoded<T: Serialize + ?Sized>(value: &T) -> Result<ByteBuf> {
    codec::encode(value).map(ByteBuf::from)
}

impl<K, V> Map<K, V>
where
    K: Serialize + DeserializeOwned + Send + 'static,
    V: Serialize + DeserializeOwned + Send + 'static,
{
    /// An empty map that lives in this process.
    ///
    /// # Errors
    /// If fiber can't work at all.
    #[track_caller]
    pub fn new() -> Result<Map<K, V>> {
        Ok(Map { handle: Handle::new("map", Table::default())?, marker: PhantomData })
    }

    /// A copy of the value of a key.
    pub fn get(&self, key: &K) -> Waiting<Option<V>> {
        inner(&self.handle, "getting from", encoded(key).map(Ask::Get))
    }

    /// Sets the value of a key, and gives what was there before.
    pub fn insert(&self, key: &K, value: &V) -> Waiting<Option<V>> {
        let ask = encoded(key).and_then(|key| Ok(Ask::Insert(key, encoded(value)?)));
        inner(&self.handle, "inserting into", ask)
    }

    /// Removes a key, and gives its value.
    pub fn remove(&self, key: &K) -> Waiting<Option<V>> {
        inner(&self.handle, "removing from", encoded(key).map(Ask::Remove))
    }

    /// Whether there is such a key.
    pub fn contains_key(&self, key: &K) -> Waiting<bool> {
        let asked = encoded(key).map(|key| self.handle.call("asking", &Ask::Contains(key)));
        Waiting::new(format!("asking {}", self.handle.name()), async move { asked?.await })
    }

    /// How many keys there are.
    pub fn len(&self) -> Waiting<usize> {
        self.handle.call("asking", &Ask::Len)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> Waiting<bool> {
        let asked = self.len();
        Waiting::new(format!("asking {}", self.handle.name()), async move { Ok(asked.await? == 0) })
    }

    /// Removes all.
    pub fn clear(&self) -> Waiting<()> {
        self.handle.call("clearing", &Ask::Clear)
    }

    /// A copy of all keys.
    pub fn keys(&self) -> Waiting<Vec<K>> {
        let asked = self.handle.call::<Vec<ByteBuf>>("getting from", &Ask::Keys);
        Waiting::new(format!("getting from {}", self.handle.name()), async move {
            asked.await?.iter().map(|key| codec::decode(key)).collect()
        })
    }

    /// A copy of all of it.
    pub fn entries(&self) -> Waiting<Vec<(K, V)>> {
        let asked = self.handle.call::<Vec<(ByteBuf, ByteBuf)>>("getting from", &Ask::Entries);
        Waiting::new(format!("getting from {}", self.handle.name()), async move {
            asked
                .await?
                .iter()
                .map(|(key, value)| Ok((codec::decode(key)?, codec::decode(value)?)))
                .collect()
        })
    }

    /// Changes the value of a key, or puts it in or takes it out, as a whole: nobody sees or
    /// changes it in between. Gives the new value.
    ///
    /// `change` runs in this process, on a copy. If another process was faster it runs again, on
    /// what is there then.
    pub fn update(
        &self,
        key: &K,
        mut change: impl FnMut(&mut Option<V>) + Send + 'static,
    ) -> Waiting<Option<V>> {
        let handle = self.handle.clone();
        let looked = encoded(key).map(|key| (handle.ask(&Ask::Look(key.clone())), key));
        Waiting::new(format!("updating {}", self.handle.name()), async move {
            let (looked, key) = looked?;
            let mut seen: Seen = codec::decode(&looked.await?)?;
            loop {
                let (version, current) = seen;
                let mut value = current.map(|value| codec::decode(&value)).transpose()?;
                change(&mut value);
                let ask = Ask::Change {
                    key: key.clone(),
                    version,
                    value: value.as_ref().map(encoded).transpose()?,
                };
                match codec::decode(&handle.ask(&ask).await?)? {
                    None => return Ok(value),
                    Some(other) => seen = other,
                }
            }
        })
    }
}
