//! Handles of shared objects, which keep them alive from any process.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fiber_core::transfer::{self, Mode};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::attachments::Attachment;
use super::port_ref::PortRef;
use crate::mesh::{Change, PeerId, Port, PortId, ProcessRef, Token};
use crate::runtime::Runtime;

/// In the place of a token where there is none.
const NO_TOKEN: Token = 0;

/// A handle of a shared object. The object lives while there is one, or an encoded one that may
/// still be decoded.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Shared>);

struct Shared {
    port: PortRef,
    object: Object,
    /// Whether the owner knows that an encoded copy is where nobody knows.
    kept: AtomicBool,
}

enum Object {
    Here(Arc<dyn Port>),
    There {
        _attachment: Attachment,
    },
    /// It has ended, or is of another session.
    Gone,
}

impl Handle {
    /// The first handle of an object of this process.
    pub(crate) fn here(port: PortRef, object: Arc<dyn Port>) -> Handle {
        Handle::new(port, Object::Here(object))
    }

    fn new(port: PortRef, object: Object) -> Handle {
        Handle(Arc::new(Shared { port, object, kept: AtomicBool::new(false) }))
    }

    /// The object, if it is of this process.
    pub(crate) fn object(&self) -> Option<&Arc<dyn Port>> {
        match &self.0.object {
            Object::Here(object) => Some(object),
            Object::There { .. } | Object::Gone => None,
        }
    }

    /// A handle that was decoded.
    fn arrived(port: PortRef, token: Token) -> Handle {
        let Some(runtime) = port.current_node() else { return Handle::new(port, Object::Gone) };
        let object = if runtime.id() == port.home() {
            runtime.registry().ports().get(port.id).map_or(Object::Gone, Object::Here)
        } else {
            Object::There { _attachment: Attachment::new(&port) }
        };
        let handle = Handle::new(port, object);
        if token != NO_TOKEN {
            let port = handle.0.port.clone();
            transfer::on_commit(move || change(&port, Change::Arrive(token)));
        }
        handle
    }

    /// Sees to it that the object lives while what is encoded now may be decoded. Returns what is
    /// to be encoded.
    fn encoded(&self) -> Token {
        match transfer::mode() {
            Mode::Repeatable => {
                transfer::keep_alive(Arc::clone(&self.0) as _);
                NO_TOKEN
            }
            Mode::Once => {
                let token = u64::from_le_bytes(fiber_core::random()).max(1);
                change(&self.0.port, Change::Travel(token));
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

/// Changes who holds an object, where it is.
fn change(port: &PortRef, change: Change) {
    match Runtime::current() {
        Some(runtime) if runtime.id() == port.home() => {
            runtime.registry().ports().hold(port.id, |holders| holders.apply(PeerId::HERE, change));
        }
        _ => port.change(change),
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

/// A handle as it travels.
#[derive(Serialize, Deserialize)]
struct Encoded {
    session: u64,
    name: Arc<str>,
    runtime: ProcessRef,
    id: PortId,
    #[serde(default, skip_serializing_if = "is_none")]
    token: Token,
}

fn is_none(token: &Token) -> bool {
    *token == NO_TOKEN
}

impl Serialize for Handle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let PortRef { session, name, runtime, id } = self.0.port.clone();
        Encoded { session, name, runtime, id, token: self.encoded() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Handle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Handle, D::Error> {
        let Encoded { session, name, runtime, id, token } = Encoded::deserialize(deserializer)?;
        Ok(Handle::arrived(PortRef { session, name, runtime, id }, token))
    }
}
