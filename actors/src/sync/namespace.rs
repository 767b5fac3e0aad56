//! Named values of any types that processes share.

use fiber_core::{Result, codec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::map::{Ask, Table, encoded, inner};
use super::shared::Handle;
use crate::objects::Waiting;

/// Named values, each of a type of its own, that all processes of the program can read and change.
///
/// # Examples
/// ```
/// # fiber::init();
/// let settings = fiber::sync::Namespace::new()?;
/// settings.set("rate", &0.5).wait()?;
/// settings.set("name", "first").wait()?;
/// assert_eq!(settings.get::<f64>("rate").wait()?, Some(0.5));
/// assert_eq!(settings.get::<String>("name").wait()?, Some("first".into()));
/// assert_eq!(settings.names().wait()?, ["rate", "name"]);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Namespace {
    handle: Handle<Table>,
}

impl Namespace {
    /// One without names, that lives in this process.
    ///
    /// # Errors
    /// If fiber can't work at all.
    #[track_caller]
    pub fn new() -> Result<Namespace> {
        Ok(Namespace { handle: Handle::new("namespace", Table::default())? })
    }

    /// A copy of the value of a name.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn get<T: DeserializeOwned + Send + 'static>(&self, name: &str) -> Waiting<Option<T>> {
        inner(&self.handle, "getting from", encoded(name).map(Ask::Get))
    }

    /// Gives a name a value, of any type.
    pub fn set<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> Waiting<()> {
        let ask = encoded(name).and_then(|name| Ok(Ask::Insert(name, encoded(value)?)));
        let asked = ask.map(|ask| self.handle.ask(&ask));
        Waiting::new(
            format!("setting in {}", self.handle.name()),
            async move { asked?.await.map(drop) },
        )
    }

    /// Removes a name, and says whether it was there.
    pub fn remove(&self, name: &str) -> Waiting<bool> {
        let removed = encoded(name)
            .map(|name| self.handle.call::<Option<serde_bytes::ByteBuf>>("", &Ask::Remove(name)));
        Waiting::new(format!("removing from {}", self.handle.name()), async move {
            Ok(removed?.await?.is_some())
        })
    }

    /// All names.
    pub fn names(&self) -> Waiting<Vec<String>> {
        let asked = self.handle.call::<Vec<serde_bytes::ByteBuf>>("getting from", &Ask::Keys);
        Waiting::new(format!("getting from {}", self.handle.name()), async move {
            asked.await?.iter().map(|name| codec::decode(name)).collect()
        })
    }
}
