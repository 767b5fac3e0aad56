//! The secret that a process shows when it connects: the session's key, or the ticket of a child.

use fiber_core::{ProcessId, SessionKey};

/// The right to connect to a process of a session.
///
/// A child has a ticket, which is good for one connection to the process that expects it. That
/// process gives it the session's key, once the link is there. So what brings a ticket to a child,
/// such as a batch system's network, never has the session's key.
#[derive(Clone, Debug)]
pub struct Pass {
    /// The child whose ticket it is.
    pub(crate) child: Option<ProcessId>,
    /// The session's key, or the ticket's.
    pub(crate) secret: SessionKey,
}

impl Pass {
    /// Returns the ticket of a child, as [`SessionKey::ticket`] makes it.
    pub fn ticket(child: ProcessId, secret: SessionKey) -> Pass {
        Pass { child: Some(child), secret }
    }
}

impl From<&SessionKey> for Pass {
    fn from(key: &SessionKey) -> Pass {
        Pass { child: None, secret: key.clone() }
    }
}

/// Returns the secret of a peer that says whose ticket it has.
pub(crate) fn secret_of(key: &SessionKey, child: Option<ProcessId>) -> SessionKey {
    child.map_or_else(|| key.clone(), |child| key.ticket(child))
}
