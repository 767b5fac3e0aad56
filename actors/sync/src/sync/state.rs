//! The state of a synchronization object, in the process that made it, and handles of it.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use fiber_core::{FailureKind, Result};
use fiber_values::codec::{self, EncodedValue};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use fiber_runtime::mesh::{Payload, PeerId, Port, PortId, Request, Requester};
use fiber_runtime::objects::{Handle, ObjectRef, PortRef, Response, Ticket, made_at};
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Runtime;

/// The state of a synchronization object, and the operations that change it.
pub(super) trait ObjectState: Send + 'static {
    type Operation: Serialize + DeserializeOwned + Send + 'static;

    /// Carries out an operation. It may keep the requester and answer later.
    fn apply(&mut self, operation: Self::Operation, requester: Requester);

    /// Releases everything that a lost peer held, and withdraws its requests.
    fn peer_lost(&mut self, _: PeerId) {}
}

/// A request among those of all peers.
pub(super) type RequestId = (PeerId, Ticket);

/// The port of an object.
struct StatePort<S> {
    state: Mutex<S>,
    id: PortId,
}

impl<S: ObjectState> Port for StatePort<S> {
    fn receive(&self, request: Request) {
        match EncodedValue::from(request.body).decode::<S::Operation>() {
            Ok(operation) => self.state.lock().apply(operation, request.requester),
            Err(error) => request.requester.fail(FailureKind::Arguments, &error),
        }
    }

    fn lost(&self, peer: PeerId) {
        self.state.lock().peer_lost(peer);
    }
}

/// A handle of an object whose state is an `S`.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub(super) struct StateHandle<S> {
    handle: Handle,
    state: PhantomData<fn() -> S>,
}

impl<S: ObjectState> StateHandle<S> {
    /// Makes an object that lives in this process. Errors call it `object`, with the place of the
    /// caller.
    #[track_caller]
    pub(super) fn new(object: &str, state: S) -> Result<StateHandle<S>> {
        let name = made_at(object, Location::caller());
        let runtime = Runtime::get()?;
        let ports = runtime.registry().ports();
        let port = ports.open(|id| StatePort { state: Mutex::new(state), id });
        let port_ref = PortRef::local(runtime, &name, port.id)?;
        Ok(StateHandle { handle: Handle::local(port_ref, port), state: PhantomData })
    }

    /// Sends an operation whose result is an encoded value, or nothing.
    pub(super) fn value<T: DeserializeOwned + Send + 'static>(
        &self,
        doing: &str,
        operation: Result<S::Operation>,
    ) -> Reply<Option<T>> {
        let decode = |value: Option<EncodedValue>| value.map(|value| value.decode()).transpose();
        self.call_then(doing, operation, decode)
    }

    /// Reads, and sets what `change` makes of it: again if something else has changed it in between.
    pub(super) fn update<R, T>(
        &self,
        read: &S::Operation,
        mut change: impl FnMut(R) -> Result<(S::Operation, T)> + Send + 'static,
    ) -> Reply<T>
    where
        R: DeserializeOwned + Send + 'static,
        T: Send + 'static,
    {
        let (handle, read) = (self.clone(), self.request(read));
        Reply::named(format!("updating {}", self.name()), async move {
            let mut current: R = EncodedValue::from(read.await?).decode()?;
            loop {
                let (set, value) = change(current)?;
                let set = handle.request(&set);
                match EncodedValue::from(set.await?).decode()? {
                    None => return Ok(value),
                    Some(other) => current = other,
                }
            }
        })
    }

    fn payload(&self, operation: &S::Operation) -> Payload {
        let mut frame = self.handle.payload();
        let blobs = codec::append_apart(&mut frame, operation);
        if let Ok(runtime) = self.handle.runtime() {
            runtime.mesh().unsent().send();
        }
        Payload::whole(frame, blobs.expect("operations can be serialized"))
    }
}

impl<S: ObjectState> ObjectRef for StateHandle<S> {
    type Operation = S::Operation;

    fn port(&self) -> &PortRef {
        &self.handle
    }

    fn request(&self, operation: &S::Operation) -> Response {
        self.handle.request(self.payload(operation))
    }

    fn send(&self, operation: &S::Operation) {
        self.handle.send(self.payload(operation));
    }
}

impl<S> Clone for StateHandle<S> {
    fn clone(&self) -> StateHandle<S> {
        StateHandle { handle: self.handle.clone(), state: PhantomData }
    }
}

impl<S> PartialEq for StateHandle<S> {
    fn eq(&self, other: &StateHandle<S>) -> bool {
        self.handle == other.handle
    }
}

impl<S> Eq for StateHandle<S> {}

impl<S> fmt::Debug for StateHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

/// Implements `Clone`, equality and `Debug` for a generic type with the fields `handle` and
/// `marker`, without bounds on its parameters.
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
                let name = fiber_runtime::objects::ObjectRef::name(&self.handle);
                write!(f, "{}({name})", stringify!($name))
            }
        }
    };
}
pub(crate) use generic_handle;
