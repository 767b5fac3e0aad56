//! Named values of any types that processes share.

use fiber_core::Result;
use fiber_values::codec::{self, EncodedValue};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::map::{MapState, Operation, encoded_key};
use super::state::StateHandle;
use fiber_runtime::objects::ObjectRef;
use fiber_runtime::reply::Reply;

/// Named values, each of a type of its own, that all processes of the program can read and change.
///
/// # Examples
/// ```
/// # fiber::init();
/// let settings = fiber::sync::Namespace::new()?;
/// settings.set("rate", 0.5).wait()?;
/// settings.set("name", "first").wait()?;
/// assert_eq!(settings.get::<f64>("rate").wait()?, Some(0.5));
/// assert_eq!(settings.get::<String>("name").wait()?, Some("first".into()));
/// assert_eq!(settings.names().wait()?, ["rate", "name"]);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Namespace {
    handle: StateHandle<MapState>,
}

impl Namespace {
    /// Makes a namespace without names. It lives in this process, which stores the encoded values.
    /// [`Namespace`] has an example.
    ///
    /// # Errors
    /// [`Error::NotInitialized`](fiber_core::Error::NotInitialized), a wrong configuration, or an
    /// error of the system.
    #[track_caller]
    pub fn new() -> Result<Namespace> {
        Ok(Namespace { handle: StateHandle::new("namespace", MapState::default())? })
    }

    /// Returns a copy of the value of a name, or `None` if it has none.
    ///
    /// # Errors
    /// [`Error::Decode`](fiber_core::Error::Decode) if the value is of another type.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let settings = fiber::sync::Namespace::new()?;
    /// settings.set("mode", "fast").wait()?;
    /// assert_eq!(settings.get::<String>("mode").wait()?.as_deref(), Some("fast"));
    /// assert!(settings.get::<u32>("mode").wait().is_err());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn get<T: DeserializeOwned + Send + 'static>(&self, name: &str) -> Reply<Option<T>> {
        self.handle.value("getting from", encoded_key(name).map(Operation::Get))
    }

    /// Sets the value of a name. The previous value comes back with the answer and is dropped, so
    /// both cost their size. [`get`](Namespace::get) has an example.
    pub fn set<T: Serialize>(&self, name: &str, value: T) -> Reply<()> {
        let insert = encoded_key(name)
            .and_then(|name| Ok(Operation::Insert(name, EncodedValue::new(&value)?)));
        self.handle.call_then("setting in", insert, |_: Option<EncodedValue>| Ok(()))
    }

    /// Removes a name. Returns whether it had a value.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let settings = fiber::sync::Namespace::new()?;
    /// settings.set("rate", 0.5).wait()?;
    /// assert!(settings.remove("rate").wait()?);
    /// assert!(!settings.remove("rate").wait()?);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn remove(&self, name: &str) -> Reply<bool> {
        let remove = encoded_key(name).map(Operation::Remove);
        self.handle.call_then("removing from", remove, |removed: Option<EncodedValue>| {
            Ok(removed.is_some())
        })
    }

    /// Returns all names, in the order in which they were first set. [`Namespace`] has an example.
    pub fn names(&self) -> Reply<Vec<String>> {
        self.handle.call_then("getting from", Ok(Operation::Keys), |names: Vec<ByteBuf>| {
            names.iter().map(|name| codec::decode(name)).collect()
        })
    }
}
