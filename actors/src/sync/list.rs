//! A list that processes share.

use std::collections::VecDeque;
use std::marker::PhantomData;

use fiber_core::{Error, Result, codec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::map::encoded;
use super::shared::{Handle, Machine, generic_handle};
use crate::mesh::Requester;
use crate::objects::Waiting;

/// A list that all processes of the program can read and change.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Pool, sync::List};
///
/// let found = List::<u32>::new()?;
/// let keep = |n: u32, found: List<u32>| if n % 2 == 0 { found.push(&n).wait() } else { Ok(()) };
/// Pool::new(2)?.try_map(keep, [1, 2, 3, 4].map(|n| (n, found.clone()))).wait()?;
/// assert_eq!(found.to_vec().wait()?.iter().sum::<u32>(), 6);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct List<T> {
    handle: Handle<Sequence>,
    marker: PhantomData<fn() -> T>,
}

generic_handle!(List<T>);

#[derive(Default)]
struct Sequence {
    items: VecDeque<(u64, ByteBuf)>,
    last: u64,
}

#[derive(Serialize, Deserialize)]
enum Ask {
    Push(Vec<ByteBuf>),
    Pop,
    Get(usize),
    /// Answered by whether there is such a place, or else the length.
    Set(usize, ByteBuf),
    Insert(usize, ByteBuf),
    Remove(usize),
    Len,
    Clear,
    All,
    /// Answered by the version and the item, or the length.
    Look(usize),
    /// Answered as `Look`, if another item is there meanwhile.
    Change {
        place: usize,
        version: u64,
        item: ByteBuf,
    },
}

/// An item with its version, or how long the list is.
type Seen = Result<(u64, ByteBuf), usize>;

impl Sequence {
    fn stamped(&mut self, item: ByteBuf) -> (u64, ByteBuf) {
        self.last += 1;
        (self.last, item)
    }

    fn look(&self, place: usize) -> Seen {
        self.items.get(place).cloned().ok_or(self.items.len())
    }
}

impl Machine for Sequence {
    type Ask = Ask;

    fn ask(&mut self, ask: Ask, requester: Requester) {
        match ask {
            Ask::Push(items) => {
                for item in items {
                    let item = self.stamped(item);
                    self.items.push_back(item);
                }
                requester.answer(&());
            }
            Ask::Pop => requester.answer(&self.items.pop_back().map(|(_, item)| item)),
            Ask::Get(place) => requester.answer(&self.items.get(place).map(|(_, item)| item)),
            Ask::Set(place, item) => {
                let item = self.stamped(item);
                let length = self.items.len();
                let set = self.items.get_mut(place).map(|there| *there = item).ok_or(length);
                requester.answer(&set);
            }
            Ask::Insert(place, item) => {
                let item = self.stamped(item);
                self.items.insert(place.min(self.items.len()), item);
                requester.answer(&());
            }
            Ask::Remove(place) => requester.answer(&self.items.remove(place).map(|(_, item)| item)),
            Ask::Len => requester.answer(&self.items.len()),
            Ask::Clear => {
                self.items.clear();
                requester.answer(&());
            }
            Ask::All => {
                requester.answer(&self.items.iter().map(|(_, item)| item).collect::<Vec<_>>())
            }
            Ask::Look(place) => requester.answer(&self.look(place)),
            Ask::Change { place, version, item } => {
                let there = self.items.get(place).is_some_and(|(current, _)| *current == version);
                if !there {
                    return requester.answer(&Some(self.look(place)));
                }
                self.items[place] = self.stamped(item);
                requester.answer(&None::<Seen>);
            }
        }
    }
}

fn no_place(what: &'static str, place: usize, length: usize) -> Error {
    Error::invalid(what, format!("there is no place {place}: the list has {length} items"))
}

impl<T: Serialize + DeserializeOwned + Send + 'static> List<T> {
    /// An empty list that lives in this process.
    ///
    /// # Errors
    /// If fiber can't work at all.
    #[track_caller]
    pub fn new() -> Result<List<T>> {
        Ok(List { handle: Handle::new("list", Sequence::default())?, marker: PhantomData })
    }

    /// Adds an item at the end.
    pub fn push(&self, item: &T) -> Waiting<()> {
        self.extend(std::iter::once(item))
    }

    /// Adds items at the end, together.
    pub fn extend<'a>(&self, items: impl IntoIterator<Item = &'a T>) -> Waiting<()>
    where
        T: 'a,
    {
        let items = items.into_iter().map(encoded).collect::<Result<Vec<_>>>();
        self.done("pushing to", items.map(Ask::Push))
    }

    /// Takes the last item.
    pub fn pop(&self) -> Waiting<Option<T>> {
        self.item("popping from", &Ask::Pop)
    }

    /// A copy of the item at a place; the first is 0.
    pub fn get(&self, place: usize) -> Waiting<Option<T>> {
        self.item("getting from", &Ask::Get(place))
    }

    /// Sets the item at a place.
    ///
    /// # Errors
    /// [`Error::Invalid`], if there is no such place.
    pub fn set(&self, place: usize, item: &T) -> Waiting<()> {
        let asked = encoded(item)
            .map(|item| self.handle.call::<Result<(), usize>>("", &Ask::Set(place, item)));
        Waiting::new(format!("setting in {}", self.handle.name()), async move {
            asked?.await?.map_err(|length| no_place("List::set", place, length))
        })
    }

    /// Inserts an item before the one at a place, or at the end.
    pub fn insert(&self, place: usize, item: &T) -> Waiting<()> {
        self.done("inserting into", encoded(item).map(|item| Ask::Insert(place, item)))
    }

    /// Takes the item at a place out.
    pub fn remove(&self, place: usize) -> Waiting<Option<T>> {
        self.item("removing from", &Ask::Remove(place))
    }

    /// How many items there are.
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
        self.done("clearing", Ok(Ask::Clear))
    }

    /// A copy of all items.
    pub fn to_vec(&self) -> Waiting<Vec<T>> {
        let asked = self.handle.call::<Vec<ByteBuf>>("", &Ask::All);
        Waiting::new(format!("getting from {}", self.handle.name()), async move {
            asked.await?.iter().map(|item| codec::decode(item)).collect()
        })
    }

    /// Changes the item at a place as a whole: nobody sees or changes it in between. Gives the new
    /// item.
    ///
    /// `change` runs in this process, on a copy. If another process was faster it runs again, on
    /// what is there then.
    ///
    /// # Errors
    /// [`Error::Invalid`], if there is no such place.
    pub fn update(
        &self,
        place: usize,
        mut change: impl FnMut(&mut T) + Send + 'static,
    ) -> Waiting<T> {
        let (handle, looked) = (self.handle.clone(), self.handle.ask(&Ask::Look(place)));
        Waiting::new(format!("updating {}", self.handle.name()), async move {
            let mut seen: Seen = codec::decode(&looked.await?)?;
            loop {
                let (version, item) =
                    seen.map_err(|length| no_place("List::update", place, length))?;
                let mut value = codec::decode(&item)?;
                change(&mut value);
                let asked = handle.ask(&Ask::Change { place, version, item: encoded(&value)? });
                match codec::decode(&asked.await?)? {
                    None => return Ok(value),
                    Some(other) => seen = other,
                }
            }
        })
    }

    fn done(&self, doing: &str, ask: Result<Ask>) -> Waiting<()> {
        let asked = ask.map(|ask| self.handle.ask(&ask));
        Waiting::new(
            format!("{doing} {}", self.handle.name()),
            async move { asked?.await.map(drop) },
        )
    }

    fn item(&self, doing: &str, ask: &Ask) -> Waiting<Option<T>> {
        let asked = self.handle.call::<Option<ByteBuf>>(doing, ask);
        Waiting::new(format!("{doing} {}", self.handle.name()), async move {
            asked.await?.map(|item| codec::decode(&item)).transpose()
        })
    }
}
