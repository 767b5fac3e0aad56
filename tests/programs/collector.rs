//! A collector of OpenTelemetry's spans: an HTTP server that decodes what it gets.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message;

/// A running collector. Its threads end with the test run.
pub(crate) struct Collector {
    /// The URL for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub(crate) url: String,
    received: Arc<Mutex<Received>>,
}

#[derive(Default)]
struct Received {
    spans: Vec<Span>,
    /// The first line and the headers of each request, in lower case.
    heads: Vec<String>,
}

/// A span with its process's attributes.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) trace: Vec<u8>,
    pub(crate) id: Vec<u8>,
    pub(crate) parent: Vec<u8>,
    pub(crate) attributes: HashMap<String, String>,
    pub(crate) process: HashMap<String, String>,
    /// The message of an error.
    pub(crate) error: Option<String>,
    pub(crate) events: usize,
}

impl Collector {
    /// Starts a collector that answers the first requests with these statuses, and all others with
    /// `200 OK`.
    pub(crate) fn start(first: &'static [&'static str]) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::<Mutex<Received>>::default();
        let all = Arc::clone(&received);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let all = Arc::clone(&all);
                thread::spawn(move || serve(connection.unwrap(), first, &all));
            }
        });
        Collector { url, received }
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.received.lock().unwrap().spans.clone()
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.received.lock().unwrap().heads.clone()
    }
}

/// Serves a connection until the other side closes it.
fn serve(connection: TcpStream, first: &[&str], all: &Mutex<Received>) {
    let mut reader = BufReader::new(&connection);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(reader.read_line(&mut head), Ok(read) if read > 0) {
                return;
            }
        }
        let head = head.to_lowercase();
        let (_, length) = head.split_once("content-length: ").expect("a request has a length");
        let length = length.lines().next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let mut all = all.lock().unwrap();
        let status = first.get(all.heads.len()).copied().unwrap_or("200 OK");
        all.heads.push(head);
        if status.starts_with('2') {
            let request = ExportTraceServiceRequest::decode(&*body).expect("it is a request");
            all.spans.extend(spans(request));
        }
        drop(all);
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        let _ = (&connection).write_all(answer.as_bytes());
    }
}

fn spans(request: ExportTraceServiceRequest) -> Vec<Span> {
    let mut found = Vec::new();
    for resource in request.resource_spans {
        let process = attributes(resource.resource.unwrap().attributes);
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let status = span.status.unwrap_or_default();
            found.push(Span {
                name: span.name,
                trace: span.trace_id,
                id: span.span_id,
                parent: span.parent_span_id,
                attributes: attributes(span.attributes),
                process: process.clone(),
                error: (status.code == 2).then_some(status.message),
                events: span.events.len(),
            });
        }
    }
    found
}

fn attributes(attributes: Vec<KeyValue>) -> HashMap<String, String> {
    let text = |value| match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    let pairs = attributes.into_iter();
    pairs.map(|pair| (pair.key, text(pair.value.and_then(|value| value.value)))).collect()
}
