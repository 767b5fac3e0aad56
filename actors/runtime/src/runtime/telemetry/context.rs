//! The context of a call, which travels with its tasks as the headers of W3C Trace Context.

use std::collections::HashMap;

use bytes::Bytes;
use fiber_core::Failure;
use fiber_values::codec;
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Status, TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// Returns the context of the current span, encoded. It is empty outside of spans.
pub fn current_context() -> Bytes {
    let mut context = Span::current().context();
    if !context.has_active_span() {
        // A program may use OpenTelemetry without `tracing`.
        context = Context::current();
    }
    if !context.has_active_span() {
        return Bytes::new();
    }
    let mut headers: HashMap<String, String> = HashMap::new();
    TraceContextPropagator::new().inject_context(&context, &mut headers);
    let Some(parent) = headers.get(TRACEPARENT) else { return Bytes::new() };
    let state = headers.get(TRACESTATE).map_or("", String::as_str);
    Bytes::from(format!("{parent}\n{state}"))
}

/// The span in another process in which a call was made.
pub struct RemoteParent(Context);

impl RemoteParent {
    /// Reads what [`current_context`] returned.
    pub fn read(context: &[u8]) -> Option<RemoteParent> {
        let (parent, state) = std::str::from_utf8(context).ok()?.split_once('\n')?;
        let headers = [(TRACEPARENT, parent), (TRACESTATE, state)];
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_string()));
        let headers = HashMap::from(headers);
        let context = TraceContextPropagator::new().extract(&headers);
        context.has_active_span().then_some(RemoteParent(context))
    }

    /// Makes a span that was not entered a child of this one.
    pub fn adopt(&self, span: &Span) {
        // It fails if the subscriber does not export spans.
        let _ = span.set_parent(self.0.clone());
    }
}

/// Marks the span of a task as failed. `failure` is the encoded [`Failure`].
pub fn note_failure(span: &Span, failure: &[u8]) {
    if let Ok(failure) = codec::decode::<Failure>(failure) {
        span.set_status(Status::error(failure.message));
    }
}
