//! A list that processes share.

use std::collections::VecDeque;
use std::marker::PhantomData;

use fiber_core::{Error, Result};
use fiber_values::codec::EncodedValue;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::state::{ObjectState, StateHandle, generic_handle};
use fiber_runtime::mesh::Requester;
use fiber_runtime::objects::ObjectRef;
use fiber_runtime::reply::Reply;

/// A list that all processes of the program can read and change.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Pool, sync::List};
///
/// let found = List::<u32>::new()?;
/// let keep = |n: u32, found: List<u32>| if n % 2 == 0 { found.push(n).wait() } else { Ok(()) };
/// Pool::new(2)?.try_map(keep, [1, 2, 3, 4].map(|n| (n, found.clone()))).wait()?;
/// assert_eq!(found.to_vec().wait()?.iter().sum::<u32>(), 6);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct List<T> {
    handle: StateHandle<ListState>,
    marker: PhantomData<fn() -> T>,
}

generic_handle!(List<T>);

#[derive(Default)]
struct ListState {
    items: VecDeque<VersionedItem>,
    last_version: u64,
}

type VersionedItem = (u64, EncodedValue);

/// An item with its version, or the length of a list that has no such index.
type Read = Result<VersionedItem, usize>;

#[derive(Serialize, Deserialize)]
enum Operation {
    Push(Vec<EncodedValue>),
    Pop,
    Get(usize),
    /// Answered with the length if there is no such index.
    Set(usize, EncodedValue),
    Insert(usize, EncodedValue),
    Remove(usize),
    Len,
    Clear,
    All,
    /// Answered with a [`Read`].
    Read(usize),
    /// Sets the item if it still has this version, and answers with a [`Read`] if it has not.
    CompareAndSet {
        index: usize,
        version: u64,
        item: EncodedValue,
    },
}

impl ListState {
    fn versioned(&mut self, item: EncodedValue) -> VersionedItem {
        self.last_version += 1;
        (self.last_version, item)
    }

    fn read(&self, index: usize) -> Read {
        self.items.get(index).cloned().ok_or(self.items.len())
    }
}

impl ObjectState for ListState {
    type Operation = Operation;

    fn apply(&mut self, operation: Operation, requester: Requester) {
        match operation {
            Operation::Push(items) => {
                for item in items {
                    let item = self.versioned(item);
                    self.items.push_back(item);
                }
                requester.answer(&());
            }
            Operation::Pop => requester.answer(&self.items.pop_back().map(|(_, item)| item)),
            Operation::Get(index) => requester.answer(&self.items.get(index).map(|(_, item)| item)),
            Operation::Set(index, item) => {
                let item = self.versioned(item);
                let length = self.items.len();
                let set = self.items.get_mut(index).map(|current| *current = item).ok_or(length);
                requester.answer(&set);
            }
            Operation::Insert(index, item) => {
                let item = self.versioned(item);
                self.items.insert(index.min(self.items.len()), item);
                requester.answer(&());
            }
            Operation::Remove(index) => {
                requester.answer(&self.items.remove(index).map(|(_, item)| item));
            }
            Operation::Len => requester.answer(&self.items.len()),
            Operation::Clear => {
                self.items.clear();
                requester.answer(&());
            }
            Operation::All => {
                requester.answer(&self.items.iter().map(|(_, item)| item).collect::<Vec<_>>());
            }
            Operation::Read(index) => requester.answer(&self.read(index)),
            Operation::CompareAndSet { index, version, item } => {
                let current = self.items.get(index).map(|(version, _)| *version);
                if current != Some(version) {
                    return requester.answer(&Some(self.read(index)));
                }
                self.items[index] = self.versioned(item);
                requester.answer(&None::<Read>);
            }
        }
    }
}

fn out_of_range(what: &'static str, index: usize, length: usize) -> Error {
    Error::invalid(what, format!("index {index} is out of range: the list has {length} items"))
}

impl<T: Serialize + DeserializeOwned + Send + 'static> List<T> {
    /// Makes an empty list. It lives in this process, which stores the encoded items.
    ///
    /// # Errors
    /// [`Error::NotInitialized`], a wrong configuration, or an error of the system.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let names = fiber::sync::List::<String>::new()?;
    /// assert!(names.is_empty().wait()?);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn new() -> Result<List<T>> {
        Ok(List { handle: StateHandle::new("list", ListState::default())?, marker: PhantomData })
    }

    /// Appends an item. [`pop`](List::pop) has an example.
    pub fn push(&self, item: T) -> Reply<()> {
        self.extend(std::iter::once(item))
    }

    /// Appends items, in one operation: no other item gets between them. All travel in one message.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let list = fiber::sync::List::new()?;
    /// list.extend(1..=3).wait()?;
    /// assert_eq!(list.to_vec().wait()?, [1, 2, 3]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn extend(&self, items: impl IntoIterator<Item = T>) -> Reply<()> {
        let items =
            items.into_iter().map(|item| EncodedValue::new(&item)).collect::<Result<Vec<_>>>();
        self.handle.call_then("pushing to", items.map(Operation::Push), Ok)
    }

    /// Removes the last item and returns it, or `None` if the list is empty. It does not wait for
    /// an item: [`Queue::get`](crate::queue::Queue::get) does.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let list = fiber::sync::List::new()?;
    /// list.push("last".to_string()).wait()?;
    /// assert_eq!(list.pop().wait()?.as_deref(), Some("last"));
    /// assert_eq!(list.pop().wait()?, None);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn pop(&self) -> Reply<Option<T>> {
        self.handle.value("popping from", Ok(Operation::Pop))
    }

    /// Returns a copy of the item at an index, or `None` if the index is out of range. The first
    /// index is 0.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let list = fiber::sync::List::new()?;
    /// list.extend(["a".to_string(), "b".to_string()]).wait()?;
    /// assert_eq!(list.get(1).wait()?.as_deref(), Some("b"));
    /// assert_eq!(list.get(2).wait()?, None);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn get(&self, index: usize) -> Reply<Option<T>> {
        self.handle.value("getting from", Ok(Operation::Get(index)))
    }

    /// Sets the item at an index.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the index is out of range.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let list = fiber::sync::List::new()?;
    /// list.extend([1, 2]).wait()?;
    /// list.set(0, 10).wait()?;
    /// assert_eq!(list.to_vec().wait()?, [10, 2]);
    /// assert!(list.set(2, 30).wait().is_err());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn set(&self, index: usize, item: T) -> Reply<()> {
        let set = EncodedValue::new(&item).map(|item| Operation::Set(index, item));
        self.handle.call_then("setting in", set, move |set: Result<(), usize>| {
            set.map_err(|length| out_of_range("List::set", index, length))
        })
    }

    /// Inserts an item before the one at an index, or at the end if the index is out of range.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let list = fiber::sync::List::new()?;
    /// list.extend([1, 3]).wait()?;
    /// list.insert(1, 2).wait()?;
    /// assert_eq!(list.to_vec().wait()?, [1, 2, 3]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn insert(&self, index: usize, item: T) -> Reply<()> {
        let insert = EncodedValue::new(&item).map(|item| Operation::Insert(index, item));
        self.handle.call_then("inserting into", insert, Ok)
    }

    /// Removes the item at an index and returns it, or `None` if the index is out of range. Later
    /// items move one index down.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let list = fiber::sync::List::new()?;
    /// list.extend([1, 2]).wait()?;
    /// assert_eq!(list.remove(0).wait()?, Some(1));
    /// assert_eq!(list.get(0).wait()?, Some(2));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn remove(&self, index: usize) -> Reply<Option<T>> {
        self.handle.value("removing from", Ok(Operation::Remove(index)))
    }

    /// Returns the number of items.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let list = fiber::sync::List::new()?;
    /// list.extend([1, 2]).wait()?;
    /// assert_eq!(list.len().wait()?, 2);
    /// list.clear().wait()?;
    /// assert!(list.is_empty().wait()?);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn len(&self) -> Reply<usize> {
        self.handle.call("asking", &Operation::Len)
    }

    /// Returns whether the list has no items. [`len`](List::len) has an example.
    pub fn is_empty(&self) -> Reply<bool> {
        self.handle.call_then("asking", Ok(Operation::Len), |length: usize| Ok(length == 0))
    }

    /// Removes all items. [`len`](List::len) has an example.
    pub fn clear(&self) -> Reply<()> {
        self.handle.call("clearing", &Operation::Clear)
    }

    /// Returns a copy of all items, in one message of at most `max_message` bytes.
    /// [`extend`](List::extend) has an example.
    pub fn to_vec(&self) -> Reply<Vec<T>> {
        self.handle.call_then("getting from", Ok(Operation::All), |items: Vec<EncodedValue>| {
            items.iter().map(EncodedValue::decode).collect()
        })
    }

    /// Changes the item at an index atomically. Returns the new item.
    ///
    /// `change` runs in this process, on a copy. It runs again, on the new item, if another process
    /// changed the item meanwhile. That takes two round trips, and one more for each repetition.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the index is out of range.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let scores = fiber::sync::List::new()?;
    /// scores.extend([1, 2]).wait()?;
    /// assert_eq!(scores.update(0, |score| *score += 10).wait()?, 11);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn update(
        &self,
        index: usize,
        mut change: impl FnMut(&mut T) + Send + 'static,
    ) -> Reply<T> {
        self.handle.update(&Operation::Read(index), move |read: Read| {
            let (version, item) =
                read.map_err(|length| out_of_range("List::update", index, length))?;
            let mut value = item.decode()?;
            change(&mut value);
            let item = EncodedValue::new(&value)?;
            Ok((Operation::CompareAndSet { index, version, item }, value))
        })
    }
}
