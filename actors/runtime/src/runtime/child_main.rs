//! The work of a child process: a worker, a function, a managed actor or a ring node.
//!
//! The type of the work travels as the place of its entry in the binary, as that of a task function
//! does: the runtime starts it without knowing the type.

use std::any::{Any, type_name};
use std::marker::PhantomData;
use std::sync::Arc;

use fiber_core::Result;
use fiber_transport::{Link, Received};
use fiber_values::codec::EncodedValue;
use fiber_values::entry::{Entry, EntryRef, MethodFn};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Runtime;

/// The work of a child process. The value travels from the parent to the child.
pub trait ChildMain: Serialize + DeserializeOwned + 'static {
    /// Prepares the work, on the runtime's thread of the child. The link leads to the parent.
    fn start(self, runtime: &'static Runtime, link: Arc<dyn Link>) -> StartedMain;
}

/// Work that has been prepared.
pub struct StartedMain {
    /// Receives messages, on the runtime's thread.
    pub receive: Box<dyn FnMut(ParentMessage)>,
    /// Works, on the main thread, and returns the exit code.
    pub run: Box<dyn FnOnce() -> i32 + Send>,
}

/// A message from the parent.
pub enum ParentMessage {
    /// A message of the work's own protocol.
    Data(Received),
    /// The child is to end when its work is done.
    Shutdown,
}

/// An encoded [`ChildMain`] on the way to its process.
#[derive(Clone, Serialize, Deserialize)]
pub struct StartRequest {
    entry: EntryRef,
    child_main: EncodedValue,
}

impl StartRequest {
    /// Encodes the work.
    ///
    /// # Panics
    /// If the value fails to serialize.
    pub fn new<M: ChildMain>(child_main: &M) -> StartRequest {
        let child_main = EncodedValue::new(child_main).expect("the work of a child serializes");
        StartRequest { entry: Starter::<M>::ENTRY.reference(), child_main }
    }

    /// Prepares the work.
    ///
    /// # Errors
    /// [`UnknownEntry`](fiber_core::Error::UnknownEntry) if it comes from another build.
    pub(super) fn start(
        self,
        runtime: &'static Runtime,
        link: Arc<dyn Link>,
    ) -> Result<StartedMain> {
        let entry = self.entry.resolve::<MethodFn>()?;
        let mut start = Starting { child_main: self.child_main, runtime, link, started: None };
        entry.call()(&mut start, &mut (), &mut ());
        start.started.expect("the entry of a child's work starts it")
    }
}

/// The arguments and the result of [`Starter::start`].
struct Starting {
    child_main: EncodedValue,
    runtime: &'static Runtime,
    link: Arc<dyn Link>,
    started: Option<Result<StartedMain>>,
}

/// Has an entry for each type of work.
struct Starter<M>(PhantomData<M>);

impl<M: ChildMain> Starter<M> {
    const ENTRY: &'static Entry<MethodFn> = &Entry::new(type_name::<M>, Self::start);

    fn start(start: &mut dyn Any, _: &mut dyn Any, _: &mut dyn Any) {
        let start =
            start.downcast_mut::<Starting>().expect("this entry is called with nothing else");
        let link = Arc::clone(&start.link);
        start.started = Some(
            start.child_main.decode::<M>().map(|child_main| child_main.start(start.runtime, link)),
        );
    }
}
