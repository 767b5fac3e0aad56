//! The spans of this process that have ended and were not sent.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry::Context;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::ScopeSpans;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use parking_lot::Mutex;
use prost::Message;

use super::Outlet;

/// The number of spans that are sent without waiting for more.
const BATCH: usize = 512;
/// The number of spans from which on further ones are lost: nothing takes them before
/// `fiber::init()`.
const MAX_UNSENT: usize = 64 * BATCH;

// A process has one subscriber of spans, and one way on which they leave it.
static SPANS: Mutex<Vec<SpanData>> = Mutex::new(Vec::new());
/// Set while `SPANS` or a thread that sends has spans.
static UNSENT: AtomicBool = AtomicBool::new(false);
/// Locked while spans are sent: who has waited for it knows that they are on their way.
static SENDING: Mutex<()> = Mutex::new(());
static RESOURCE: OnceLock<ResourceAttributesWithSchema> = OnceLock::new();

/// Collects the spans that end.
#[derive(Debug)]
pub(super) struct Collector;

impl SpanProcessor for Collector {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        let mut spans = SPANS.lock();
        if spans.len() < MAX_UNSENT {
            spans.push(span);
        }
        let full = spans.len() >= BATCH;
        drop(spans);
        UNSENT.store(true, Ordering::Relaxed);
        if full {
            flush();
        } else {
            // In the head, this starts the thread that sends spans in time.
            let _ = Outlet::get();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        flush();
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        self.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        let _ = RESOURCE.set(resource.into());
    }
}

/// Sends the spans that have ended in this process. When it returns, they are on their way ahead of
/// what this thread sends next.
#[inline]
pub fn flush() {
    // A thread sees its own spans, and only those have to be ahead of what it sends.
    if UNSENT.load(Ordering::Relaxed) {
        send();
    }
}

#[cold]
fn send() {
    let Some(outlet) = Outlet::get() else { return };
    let sending = SENDING.lock();
    let spans = std::mem::take(&mut *SPANS.lock());
    if !spans.is_empty() {
        let resource_spans =
            group_spans_by_resource_and_scope(spans, RESOURCE.get_or_init(Default::default));
        let request = ExportTraceServiceRequest { resource_spans };
        send_in_parts(request, outlet.limit(), &mut |part| outlet.send(part));
    }
    let spans = SPANS.lock();
    if spans.is_empty() {
        UNSENT.store(false, Ordering::Relaxed);
    }
    drop((spans, sending));
}

/// Passes a request to `send`, in parts if it is larger than `limit`.
fn send_in_parts(request: ExportTraceServiceRequest, limit: usize, send: &mut impl FnMut(Bytes)) {
    if request.encoded_len() <= limit {
        return send(Bytes::from(request.encode_to_vec()));
    }
    let count = scopes(&mut request.clone()).map(|scope| scope.spans.len()).sum::<usize>();
    if count <= 1 {
        return tracing::warn!("a span is larger than `max_message` allows, and is lost");
    }
    for half in [0..count / 2, count / 2..count] {
        let mut part = request.clone();
        let mut indices = 0..count;
        let mut is_in_half = || indices.next().is_some_and(|index| half.contains(&index));
        scopes(&mut part).for_each(|scope| scope.spans.retain(|_| is_in_half()));
        send_in_parts(part, limit, send);
    }
}

fn scopes(request: &mut ExportTraceServiceRequest) -> impl Iterator<Item = &mut ScopeSpans> {
    request.resource_spans.iter_mut().flat_map(|resource| &mut resource.scope_spans)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};

    use super::*;

    fn request(names: &[String]) -> ExportTraceServiceRequest {
        let span = |name: &String| Span { name: name.clone(), ..Span::default() };
        let scope = |names: &[String]| ScopeSpans {
            spans: names.iter().map(span).collect(),
            ..ScopeSpans::default()
        };
        let (first, second) = names.split_at(names.len() / 3);
        let scope_spans = vec![scope(first), scope(second)];
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }],
        }
    }

    fn parts(names: &[String], limit: usize) -> (usize, Vec<String>) {
        let mut parts = Vec::new();
        send_in_parts(request(names), limit, &mut |part| parts.push(part));
        let mut found = Vec::new();
        for part in &parts {
            assert!(part.len() <= limit);
            let mut part = ExportTraceServiceRequest::decode(&**part).unwrap();
            found.extend(
                scopes(&mut part).flat_map(|scope| &scope.spans).map(|span| span.name.clone()),
            );
        }
        (parts.len(), found)
    }

    #[test]
    fn a_request_above_the_limit_is_sent_in_parts() {
        let names: Vec<_> = (0..100).map(|index| format!("span {index}")).collect();
        assert_eq!(parts(&names, usize::MAX), (1, names.clone()));
        let (count, found) = parts(&names, 200);
        assert!(count > 1);
        assert_eq!(found, names);
    }

    #[test]
    fn a_span_above_the_limit_is_lost_alone() {
        let names = ["a".to_string(), "b".repeat(1000), "c".to_string()];
        assert_eq!(parts(&names, 200).1, ["a", "c"]);
    }
}
