//! One value that processes share.

use std::marker::PhantomData;

use fiber_core::Result;
use fiber_values::codec::EncodedValue;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::state::{ObjectState, StateHandle, generic_handle};
use fiber_runtime::mesh::Requester;
use fiber_runtime::objects::ObjectRef;
use fiber_runtime::reply::Reply;

/// A value that all processes of the program can read and change.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Pool, sync::Value};
///
/// let best = Value::new(0)?;
/// let keep = |score: u32, best: Value<u32>| {
///     best.update(move |best| *best = score.max(*best)).wait()
/// };
/// Pool::new(2)?.try_map(keep, [3, 8, 5].map(|score| (score, best.clone()))).wait()?;
/// assert_eq!(best.get().wait()?, 8);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Value<T> {
    handle: StateHandle<ValueState>,
    marker: PhantomData<fn() -> T>,
}

generic_handle!(Value<T>);

struct ValueState {
    version: u64,
    value: EncodedValue,
}

/// A version with its value.
type Read = (u64, EncodedValue);

#[derive(Serialize, Deserialize)]
enum Operation {
    Get,
    /// Answered with the previous value.
    Replace(EncodedValue),
    /// Sets the value if it still has this version, and answers with a [`Read`] if it has not.
    CompareAndSet {
        version: u64,
        value: EncodedValue,
    },
    /// Answered with a [`Read`].
    Read,
}

impl ObjectState for ValueState {
    type Operation = Operation;

    fn apply(&mut self, operation: Operation, requester: Requester) {
        match operation {
            Operation::Get => requester.answer(&self.value),
            Operation::Replace(value) => {
                self.version += 1;
                let previous = std::mem::replace(&mut self.value, value);
                requester.answer(&previous);
            }
            Operation::CompareAndSet { version, value } if version == self.version => {
                (self.version, self.value) = (version + 1, value);
                requester.answer(&None::<Read>);
            }
            Operation::CompareAndSet { .. } => {
                requester.answer(&Some((self.version, &self.value)));
            }
            Operation::Read => requester.answer(&(self.version, &self.value)),
        }
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Value<T> {
    /// Makes a shared value. It lives in this process, which stores it encoded.
    ///
    /// # Errors
    /// [`Error::Encode`](fiber_core::Error::Encode),
    /// [`Error::NotInitialized`](fiber_core::Error::NotInitialized), a wrong configuration, or an
    /// error of the system.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let best = fiber::sync::Value::new(0.5)?;
    /// assert_eq!(best.get().wait()?, 0.5);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn new(value: T) -> Result<Value<T>> {
        let state = ValueState { version: 0, value: EncodedValue::new(&value)? };
        Ok(Value { handle: StateHandle::new("value", state)?, marker: PhantomData })
    }

    /// Returns a copy of the value. [`set`](Value::set) has an example.
    pub fn get(&self) -> Reply<T> {
        self.handle.call_then("getting", Ok(Operation::Get), |value: EncodedValue| value.decode())
    }

    /// Sets the value. The previous one comes back with the answer and is dropped, so both cost
    /// their size.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let name = fiber::sync::Value::new("first".to_string())?;
    /// name.set("second".to_string()).wait()?;
    /// assert_eq!(name.get().wait()?, "second");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn set(&self, value: T) -> Reply<()> {
        let replace = EncodedValue::new(&value).map(Operation::Replace);
        self.handle.call_then("setting", replace, |previous: EncodedValue| {
            previous.decode::<T>().map(drop)
        })
    }

    /// Sets the value. Returns the previous one.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let turn = fiber::sync::Value::new("left".to_string())?;
    /// assert_eq!(turn.replace("right".to_string()).wait()?, "left");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn replace(&self, value: T) -> Reply<T> {
        let replace = EncodedValue::new(&value).map(Operation::Replace);
        self.handle.call_then("replacing", replace, |previous: EncodedValue| previous.decode())
    }

    /// Changes the value atomically. Returns the new value.
    ///
    /// `change` runs in this process, on a copy. It runs again, on the new value, if another
    /// process changed the value meanwhile. That takes two round trips, and one more for each
    /// repetition.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let count = fiber::sync::Value::new(1)?;
    /// assert_eq!(count.update(|count| *count += 1).wait()?, 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn update(&self, mut change: impl FnMut(&mut T) + Send + 'static) -> Reply<T> {
        self.handle.update(&Operation::Read, move |(version, current): Read| {
            let mut value: T = current.decode()?;
            change(&mut value);
            Ok((Operation::CompareAndSet { version, value: EncodedValue::new(&value)? }, value))
        })
    }
}
