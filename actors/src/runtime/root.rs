//! What a child is to do.
//!
//! As a task function does, the type of a root travels as a place in the binary: nodes start roots,
//! and know none.

use std::any::{Any, type_name};
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use fiber_core::entry::{Entry, EntryRef, MethodFn};
use fiber_core::{Result, codec};
use fiber_transport::Link;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Runtime;

/// What a child can be started as.
pub(crate) trait ChildMain: Serialize + DeserializeOwned + 'static {
    /// Sets it up in its process, on the node's thread. The link leads to its parent.
    fn start(self, runtime: &'static Runtime, link: Arc<dyn Link>) -> StartedMain;
}

/// A root at work.
pub(crate) struct StartedMain {
    /// Receives, on the node's thread.
    pub(crate) receive: Box<dyn FnMut(ParentMessage)>,
    /// Works, on the main thread, and returns the exit code.
    pub(crate) run: Box<dyn FnOnce() -> i32 + Send>,
}

/// A message from the parent.
pub(crate) enum ParentMessage {
    /// A message of the child's own protocol.
    Data(Bytes),
    /// The child shall end when its work is done.
    Shutdown,
}

/// A root on its way to its process.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct StartRequest {
    entry: EntryRef,
    root: Bytes,
}

impl StartRequest {
    pub(crate) fn new<R: ChildMain>(root: &R) -> StartRequest {
        let encoded = codec::encode(root).expect("roots are made of what serialises");
        StartRequest { entry: Starter::<R>::ENTRY.reference(), root: encoded.into() }
    }

    /// # Errors
    /// That it is of another build.
    pub(super) fn start(
        self,
        runtime: &'static Runtime,
        link: Arc<dyn Link>,
    ) -> Result<StartedMain> {
        let entry = self.entry.resolve::<MethodFn>()?;
        let mut start = Starting { root: self.root, runtime, link, running: None };
        entry.call()(&mut start, &mut (), &mut ());
        start.running.expect("the entry of a root starts it")
    }
}

/// What the entry of a root works on.
struct Starting {
    root: Bytes,
    runtime: &'static Runtime,
    link: Arc<dyn Link>,
    running: Option<Result<StartedMain>>,
}

struct Starter<R>(PhantomData<R>);

impl<R: ChildMain> Starter<R> {
    const ENTRY: &'static Entry<MethodFn> = &Entry::new(type_name::<R>, Self::start);

    fn start(start: &mut dyn Any, _: &mut dyn Any, _: &mut dyn Any) {
        let start =
            start.downcast_mut::<Starting>().expect("this entry is called with nothing else");
        let link = Arc::clone(&start.link);
        start.running =
            Some(codec::decode::<R>(&start.root).map(|root| root.start(start.runtime, link)));
    }
}
