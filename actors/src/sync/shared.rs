//! What all shared objects have in common: a state machine where it was made, and handles that
//! travel.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use fiber_core::{FailureKind, Result, codec};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::mesh::{PeerId, Port, PortId, Request, Requester};
use crate::objects::{self, Asked, PortRef, Ticket, Waiting, made_at, send_held_back};
use crate::runtime::Runtime;

/// The state of a shared object, and what changes it.
pub(super) trait Machine: Send + 'static {
    /// What can be asked of it.
    type Ask: Serialize + DeserializeOwned + 'static;

    /// Acts on a request; it may keep the requester and answer later.
    fn ask(&mut self, ask: Self::Ask, requester: Requester);

    /// A peer is gone, with whatever it held.
    fn lost(&mut self, _: PeerId) {}
}

/// A ticket among those of all peers.
pub(super) type Key = (PeerId, Ticket);

/// The object itself.
struct Owner<M> {
    machine: Mutex<M>,
    port: PortId,
}

impl<M: Machine> Port for Owner<M> {
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn receive(&self, request: Request) {
        match codec::decode::<M::Ask>(&request.body) {
            Ok(ask) => self.machine.lock().ask(ask, request.requester),
            Err(error) => request.requester.fail(FailureKind::Arguments, &error),
        }
    }

    fn lost(&self, peer: PeerId) {
        self.machine.lock().lost(peer);
    }
}

impl<M> Drop for Owner<M> {
    fn drop(&mut self) {
        if let Some(runtime) = Runtime::current() {
            runtime.registry().ports().close(self.port);
        }
    }
}

/// A handle of a shared object, wherever that is.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub(super) struct Handle<M> {
    object: objects::Handle,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Handle<M> {
    /// Makes an object that lives in this process.
    #[track_caller]
    pub(super) fn new(kind: &str, machine: M) -> Result<Handle<M>> {
        let name = made_at(kind, Location::caller());
        let runtime = Runtime::get()?;
        let owner =
            runtime.registry().ports().open(|port| Owner { machine: Mutex::new(machine), port });
        let port = PortRef::here(runtime, &name, owner.port)?;
        Ok(Handle { object: objects::Handle::here(port, owner), machine: PhantomData })
    }

    pub(super) fn name(&self) -> &str {
        &self.object.name
    }

    /// Asks the object.
    pub(super) fn ask(&self, ask: &M::Ask) -> Asked {
        let mut payload = self.object.payload();
        codec::append(&mut payload, ask).expect("requests are made of what serialises");
        send_held_back();
        self.object.ask(payload)
    }

    /// Asks the object; errors say that what is described by `doing` did not happen in time.
    pub(super) fn call<R: DeserializeOwned + Send + 'static>(
        &self,
        doing: &str,
        ask: &M::Ask,
    ) -> Waiting<R> {
        let (handle, asked) = (self.clone(), self.ask(ask));
        Waiting::new(format!("{doing} {}", self.name()), async move {
            // The object lives for as long as it is waited for.
            let _handle = handle;
            codec::decode(&asked.await?)
        })
    }

    /// Tells the object something that it does not answer.
    pub(super) fn tell(&self, ask: &M::Ask) {
        let mut payload = self.object.payload();
        codec::append(&mut payload, ask).expect("requests are made of what serialises");
        send_held_back();
        self.object.tell(payload);
    }
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Handle<M> {
        Handle { object: self.object.clone(), machine: PhantomData }
    }
}

impl<M> PartialEq for Handle<M> {
    fn eq(&self, other: &Handle<M>) -> bool {
        self.object == other.object
    }
}

impl<M> Eq for Handle<M> {}

impl<M> fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}

/// Takes a request back when it is dropped before it was fulfilled, by telling the object this.
pub(super) struct TakeBack<M: Machine> {
    pub(super) handle: Handle<M>,
    pub(super) ask: Option<M::Ask>,
}

impl<M: Machine> TakeBack<M> {
    pub(super) fn new(handle: &Handle<M>, ask: M::Ask) -> TakeBack<M> {
        TakeBack { handle: handle.clone(), ask: Some(ask) }
    }

    /// It was fulfilled.
    pub(super) fn keep(mut self) {
        self.ask = None;
    }
}

impl<M: Machine> Drop for TakeBack<M> {
    fn drop(&mut self) {
        if let Some(ask) = self.ask.take() {
            self.handle.tell(&ask);
        }
    }
}

/// Implements what a handle of a generic type has to be, for a type with the fields `handle` and
/// `marker`.
macro_rules! generic_handle {
    ($name:ident<$($generic:ident),+>) => {
        impl<$($generic),+> Clone for $name<$($generic),+> {
            fn clone(&self) -> Self {
                $name { handle: self.handle.clone(), marker: PhantomData }
            }
        }

        /// Two handles are equal if they are of the same object.
        impl<$($generic),+> PartialEq for $name<$($generic),+> {
            fn eq(&self, other: &Self) -> bool {
                self.handle == other.handle
            }
        }

        impl<$($generic),+> Eq for $name<$($generic),+> {}

        impl<$($generic),+> std::fmt::Debug for $name<$($generic),+> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.handle)
            }
        }
    };
}
pub(super) use generic_handle;
