//! One value that processes share.

use std::marker::PhantomData;

use fiber_core::{Result, codec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::shared::{Handle, Machine, generic_handle};
use crate::mesh::Requester;
use crate::objects::Waiting;

/// A value that all processes of the program can read and change.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Pool, sync::Value};
///
/// let best = Value::new(&0)?;
/// let keep = |score: u32, best: Value<u32>| best.update(move |best| *best = score.max(*best)).wait();
/// Pool::new(2)?.try_map(keep, [3, 8, 5].map(|score| (score, best.clone()))).wait()?;
/// assert_eq!(best.get().wait()?, 8);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Value<T> {
    handle: Handle<Cell>,
    marker: PhantomData<fn() -> T>,
}

generic_handle!(Value<T>);

struct Cell {
    version: u64,
    value: ByteBuf,
}

#[derive(Serialize, Deserialize)]
enum Ask {
    Get,
    /// Answered by what was there before.
    Replace(ByteBuf),
    /// Answered by the value and its version, if another one is there meanwhile.
    Change {
        version: u64,
        value: ByteBuf,
    },
    /// Answered by the value and its version.
    Look,
}

impl Machine for Cell {
    type Ask = Ask;

    fn ask(&mut self, ask: Ask, requester: Requester) {
        match ask {
            Ask::Get => requester.answer_bytes(&self.value),
            Ask::Replace(value) => {
                self.version += 1;
                let before = std::mem::replace(&mut self.value, value);
                requester.answer_bytes(&before);
            }
            Ask::Change { version, value } if version == self.version => {
                (self.version, self.value) = (version + 1, value);
                requester.answer(&None::<(u64, &ByteBuf)>);
            }
            Ask::Change { .. } => requester.answer(&Some((self.version, &self.value))),
            Ask::Look => requester.answer(&(self.version, &self.value)),
        }
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Value<T> {
    /// A value that lives in this process.
    ///
    /// # Errors
    /// If `value` can't be serialised, or fiber can't work at all.
    #[track_caller]
    pub fn new(value: &T) -> Result<Value<T>> {
        let cell = Cell { version: 0, value: codec::encode(value)?.into() };
        Ok(Value { handle: Handle::new("value", cell)?, marker: PhantomData })
    }

    /// A copy of it.
    pub fn get(&self) -> Waiting<T> {
        self.handle.call("getting", &Ask::Get)
    }

    /// Puts another in its place.
    pub fn set(&self, value: &T) -> Waiting<()> {
        let replaced = self.replace(value);
        Waiting::new(
            format!("setting {}", self.handle.name()),
            async move { replaced.await.map(drop) },
        )
    }

    /// Puts another in its place, and gives what was there before.
    pub fn replace(&self, value: &T) -> Waiting<T> {
        let what = format!("replacing {}", self.handle.name());
        match codec::encode(value) {
            Ok(value) => self.handle.call("replacing", &Ask::Replace(value.into())),
            Err(error) => Waiting::new(what, async { Err(error) }),
        }
    }

    /// Changes it as a whole: nobody sees or changes it in between. Gives the new value.
    ///
    /// `change` runs in this process, on a copy. If another process was faster it runs again, on
    /// what is there then.
    pub fn update(&self, mut change: impl FnMut(&mut T) + Send + 'static) -> Waiting<T> {
        let (handle, looked) = (self.handle.clone(), self.handle.ask(&Ask::Look));
        Waiting::new(format!("updating {}", self.handle.name()), async move {
            let (mut version, mut current): (u64, ByteBuf) = codec::decode(&looked.await?)?;
            loop {
                let mut value: T = codec::decode(&current)?;
                change(&mut value);
                let asked =
                    handle.ask(&Ask::Change { version, value: codec::encode(&value)?.into() });
                match codec::decode(&asked.await?)? {
                    None => return Ok(value),
                    Some(other) => (version, current) = other,
                }
            }
        })
    }
}
