//! Takes the place of `metrics` in a program without the feature.

use std::net::SocketAddr;

use fiber_core::stats::SessionStats;
use fiber_core::{Error, Result};

use crate::parts::Parts;

/// There is none.
#[derive(Debug)]
pub(crate) enum Server {}

impl Server {
    pub(crate) fn serve(self, _: &'static Parts, _: impl Fn() -> SessionStats + Send + 'static) {
        match self {}
    }
}

/// # Errors
/// [`Error::Config`], which names the feature.
pub(crate) fn bind(_: SocketAddr) -> Result<Server> {
    Err(Error::missing_feature("metrics", "metrics"))
}
