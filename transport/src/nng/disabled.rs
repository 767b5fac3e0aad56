//! Stands in for links over nng in a build without the feature `nng`.

use std::io;

use fiber_core::{Error, HostPort, SessionKey};

use crate::{Connection, ListenAt, Listener, Pass};

/// Fails: this build has no links over nng.
///
/// # Errors
/// The feature that is missing, and how to add it.
pub fn listen(_: &SessionKey, _: &ListenAt) -> io::Result<Box<dyn Listener>> {
    Err(missing())
}

/// Fails: this build has no links over nng.
///
/// # Errors
/// The feature that is missing, and how to add it.
pub async fn connect(_: &HostPort, _: &Pass) -> io::Result<Connection> {
    Err(missing())
}

fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, Error::missing_feature("the link `nng`", "nng"))
}
