//! Handles of shared objects, which keep them alive from any process.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use fiber_values::transfer::{self, Mode};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::attachments::Attachment;
use super::port_ref::PortRef;
use crate::mesh::{Change, PeerId, Port, PortId, ProcessRef, Token};
use crate::parts::Parts;
use crate::random::Random;

/// The token of a handle that has none.
const NO_TOKEN: Token = 0;

/// A handle of a shared object. The object lives as long as any handle, decoded or encoded, may
/// still be used.
#[derive(Clone)]
pub struct Handle(Arc<HandleInner>);

/// A handle that does not keep its object alive.
#[derive(Default)]
pub(super) struct WeakHandle(Weak<HandleInner>);

impl WeakHandle {
    pub(super) fn upgrade(&self) -> Option<Handle> {
        self.0.upgrade().map(Handle)
    }
}

struct HandleInner {
    port: PortRef,
    object: Object,
    /// Whether the owner knows that an encoded copy of unknown whereabouts exists.
    kept: AtomicBool,
}

enum Object {
    Local(Arc<dyn Port>),
    Remote {
        _attachment: Attachment,
    },
    /// The object has ended, or is of another session.
    Gone,
}

impl Handle {
    /// Returns the first handle of an object of this process.
    pub fn local(port: PortRef, object: Arc<dyn Port>) -> Handle {
        Handle::new(port, Object::Local(object))
    }

    fn new(port: PortRef, object: Object) -> Handle {
        Handle(Arc::new(HandleInner { port, object, kept: AtomicBool::new(false) }))
    }

    /// Returns the object, if this process owns it.
    pub fn object(&self) -> Option<&Arc<dyn Port>> {
        match &self.0.object {
            Object::Local(object) => Some(object),
            Object::Remote { .. } | Object::Gone => None,
        }
    }

    pub(super) fn downgrade(&self) -> WeakHandle {
        WeakHandle(Arc::downgrade(&self.0))
    }

    /// Returns a handle that was decoded in this process.
    fn decoded(port: PortRef, token: Token) -> Handle {
        let Some(runtime) = port.runtime else { return Handle::new(port, Object::Gone) };
        let object = if runtime.id() == port.owner() {
            runtime.registry().ports().get(port.id).map_or(Object::Gone, Object::Local)
        } else {
            Object::Remote { _attachment: Attachment::new(runtime, &port) }
        };
        let handle = Handle::new(port, object);
        if token != NO_TOKEN {
            let port = handle.0.port.clone();
            transfer::on_commit(move || change(&port, Change::Arrived(token)));
        }
        handle
    }

    /// Keeps the object alive until the copy that is encoded now is decoded. Returns the copy's
    /// token.
    fn encode_token(&self) -> Token {
        match transfer::mode() {
            Mode::Repeatable => {
                transfer::keep_alive(Arc::clone(&self.0) as _);
                NO_TOKEN
            }
            Mode::Once => {
                let token = Parts::current().get::<Random>().number().max(1);
                change(&self.0.port, Change::Sent(token));
                token
            }
            Mode::Unknown => {
                if !self.0.kept.swap(true, Ordering::Relaxed) {
                    change(&self.0.port, Change::Keep);
                }
                NO_TOKEN
            }
        }
    }
}

/// Changes the holders of an object, at its owner.
fn change(port: &PortRef, change: Change) {
    match port.runtime {
        Some(runtime) if runtime.id() == port.owner() => {
            runtime
                .registry()
                .ports()
                .hold(port.id, |holders| holders.apply(PeerId::LOCAL, change));
        }
        _ => port.send(port.change(change)),
    }
}

impl Deref for Handle {
    type Target = PortRef;

    fn deref(&self) -> &PortRef {
        &self.0.port
    }
}

/// Two handles are equal if they are of the same object.
impl PartialEq for Handle {
    fn eq(&self, other: &Handle) -> bool {
        self.0.port == other.0.port
    }
}

impl Eq for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.port.name)
    }
}

/// The encoding of a handle.
#[derive(Serialize, Deserialize)]
struct Encoded {
    session: u64,
    name: Arc<str>,
    owner: ProcessRef,
    id: PortId,
    #[serde(default, skip_serializing_if = "is_none")]
    token: Token,
}

fn is_none(token: &Token) -> bool {
    *token == NO_TOKEN
}

impl Serialize for Handle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        transfer::note_handle();
        let PortRef { session, name, owner, id, .. } = self.0.port.clone();
        Encoded { session, name, owner, id, token: self.encode_token() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Handle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Handle, D::Error> {
        let Encoded { session, name, owner, id, token } = Encoded::deserialize(deserializer)?;
        Ok(Handle::decoded(PortRef::decoded(session, name, owner, id), token))
    }
}
