//! The choice of an interface, in a build without backends that have machines.

use std::net::IpAddr;

use fiber_core::Config;

use crate::BackendError;

/// Returns `None`: no backend of this build has machines.
///
/// # Errors
/// None.
pub fn configured_interface(_: &Config) -> Result<Option<IpAddr>, BackendError> {
    Ok(None)
}
