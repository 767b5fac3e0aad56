//! Stands in for OpenTelemetry in a build without the feature `opentelemetry`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fiber_transport::Link;
use tracing::Span;

/// The span that a call was made in. There is none.
pub enum RemoteParent {}

impl RemoteParent {
    /// Returns `None`: without the feature, no context has a span.
    pub fn read(_: &[u8]) -> Option<RemoteParent> {
        None
    }

    /// Is never called: there is no value of this type.
    pub fn adopt(&self, _: &Span) {
        match *self {}
    }
}

/// Returns an empty context, which names no span.
pub fn current_context() -> Bytes {
    Bytes::new()
}

/// Does nothing: there is no span to mark.
pub fn note_failure(_: &Span, _: &[u8]) {}

/// Does nothing: there are no spans to send.
#[inline]
pub fn flush() {}

pub(super) fn is_head() {}

pub(super) fn send_to_parent(_: &Arc<dyn Link>, _: usize) {}

pub(super) fn receive(_: Bytes) {}

pub(super) fn finish(_: Duration) {}
