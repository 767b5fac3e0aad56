//! The HTTP server of the metrics.
//!
//! It has a thread of its own, one connection of which can't hold up others, and none of which can
//! hold up the runtime: the statistics are read at most ten times in a second.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fiber_core::stats::SessionStats;
use fiber_core::{ConfigProblem, Error, Result, forbid_waiting, shortage, start_thread};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HOST, HeaderMap};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::Renderer;
use super::samples::EventCounts;
use super::text::Format;
use crate::events::Events;
use crate::parts::Parts;
use crate::sources::Sources;
use crate::tokio_runtime::new_runtime;

/// Connections at a time. Beyond them, the oldest gives way: an answer takes no time, so what stays
/// open is a client that hangs.
const CONNECTIONS: usize = 64;
/// Time limit for a request's header, after which a client that hangs loses its connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for a request and its answer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a rendered text serves further requests.
const CACHED: Duration = Duration::from_millis(100);
/// The pause after the system has refused a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The interval at which the server collects the last statistics of ended pools between scrapes.
const COLLECT: Duration = Duration::from_secs(5);

type StatsSource = Box<dyn Fn() -> SessionStats + Send>;

/// A server that has an address and a thread, and waits for the source of its statistics.
#[derive(Debug)]
pub(crate) struct Server {
    source: mpsc::Sender<(&'static Parts, StatsSource)>,
}

impl Server {
    /// Serves the statistics that `source` returns, until the end of the process.
    pub(crate) fn serve(
        self,
        parts: &'static Parts,
        source: impl Fn() -> SessionStats + Send + 'static,
    ) {
        let _ = self.source.send((parts, Box::new(source)));
    }
}

/// Takes an address for metrics.
///
/// # Errors
/// [`Error::Config`] if the address can't be used; [`Error::System`] if the system has no room for
/// the thread.
pub(crate) fn bind(address: SocketAddr) -> Result<Server> {
    let unusable = |error: std::io::Error| {
        let remedy = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another program serves there, perhaps another session: choose another port"
            }
            std::io::ErrorKind::AddrNotAvailable => {
                "this host has no such address: use `127.0.0.1`, or `0.0.0.0` for all of them"
            }
            std::io::ErrorKind::PermissionDenied => "choose a port from 1024 on",
            _ => "choose another address",
        };
        ConfigProblem::value("metrics", address, format!("{remedy} ({error})"))
    };
    let listener = TcpListener::bind(address).map_err(unusable)?;
    listener.set_nonblocking(true).map_err(unusable)?;
    // The system chooses a port in place of 0.
    let address = listener.local_addr().map_err(unusable)?;
    let refused = |error: std::io::Error| {
        Error::system("the thread of metrics could not be started", shortage::explain(&error))
    };
    let runtime = new_runtime().map_err(refused)?;
    let (source, sources) = mpsc::channel::<(&'static Parts, StatsSource)>();
    let run = move || {
        forbid_waiting();
        let Ok((parts, source)) = sources.recv() else { return };
        parts.get::<Sources>().keep_ended();
        let page = Arc::new(Mutex::new(Page::new(parts, source)));
        runtime.block_on(async {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => serve(listener, page).await,
                Err(error) => tracing::error!("metrics can't be served: {error}"),
            }
        });
    };
    start_thread("fiber-metrics", run).map_err(refused)?;
    tracing::info!("metrics are at http://{address}/metrics");
    Ok(Server { source })
}

async fn serve(listener: tokio::net::TcpListener, page: Arc<Mutex<Page>>) {
    let is_local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    tokio::spawn(collect_ended(Arc::clone(&page)));
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!("a connection to the metrics was refused: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let page = Arc::clone(&page);
        let answer = service_fn(move |request| {
            let answer = match is_local && is_of_another_site(request.headers()) {
                true => plain(StatusCode::FORBIDDEN, "This is not the host of these metrics.\n"),
                false => answer(&request, &page),
            };
            async { Ok::<_, Infallible>(answer) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), answer);
        let serving = tokio::spawn(async move {
            // A client that sends garbage or goes away is no concern of the program's user.
            if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
                tracing::debug!("a request for metrics failed: {error}");
            }
        });
        open.push_back(serving.abort_handle());
    }
}

/// Returns whether a browser asks for a name that leads to this host, so that a page of that site
/// could read the answer. An address leads nowhere else.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).map(|host| host.to_str().unwrap_or_default()) else {
        return false;
    };
    let with_port = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    let name = with_port.map_or(host, |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name != "localhost" && address.parse::<IpAddr>().is_err()
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

fn answer(request: &Request<Incoming>, page: &Mutex<Page>) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "Use GET.\n");
        refusal.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    match request.uri().path() {
        "/metrics" => {
            let accept = request.headers().get_all(ACCEPT).iter();
            let accept: Vec<_> = accept.filter_map(|value| value.to_str().ok()).collect();
            let format = Format::accepted(&accept.join(","));
            let mut response = Response::new(Full::new(page.lock().text(format)));
            let content = hyper::header::HeaderValue::from_static(format.content_type());
            response.headers_mut().insert(CONTENT_TYPE, content);
            response
        }
        "/" => plain(StatusCode::OK, "A session of fiber. Its metrics are at /metrics.\n"),
        _ => plain(StatusCode::NOT_FOUND, "There is nothing here: metrics are at /metrics.\n"),
    }
}

/// Collects the last statistics of ended pools: a program may end many between two scrapes.
async fn collect_ended(page: Arc<Mutex<Page>>) {
    loop {
        tokio::time::sleep(COLLECT).await;
        page.lock().collect();
    }
}

/// The last texts, and what renders new ones.
struct Page {
    renderer: Renderer,
    source: StatsSource,
    sources: &'static Sources,
    events: Arc<Mutex<EventCounts>>,
    cache: Vec<(Format, Instant, Bytes)>,
}

impl Page {
    fn new(parts: &'static Parts, source: StatsSource) -> Page {
        let events = Arc::new(Mutex::new(EventCounts::default()));
        let counted = Arc::clone(&events);
        parts.get::<Events>().subscribe(move |event| {
            counted.lock().count(&event.kind);
            true
        });
        let (renderer, sources) = (Renderer::default(), parts.get());
        Page { renderer, source, sources, events, cache: Vec::new() }
    }

    fn collect(&mut self) {
        self.sources.take_ended().iter().for_each(|pool| self.renderer.end(pool));
    }

    fn text(&mut self, format: Format) -> Bytes {
        self.cache.retain(|(_, rendered, _)| rendered.elapsed() < CACHED);
        if let Some((.., text)) = self.cache.iter().find(|(cached, ..)| *cached == format) {
            return text.clone();
        }
        // Before the statistics of those that live: a pool is in both only if it lives.
        self.collect();
        let stats = (self.source)();
        let text = Bytes::from(self.renderer.render(&stats, &self.events.lock(), format));
        self.cache.push((format, Instant::now(), text.clone()));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_to_this_host_gets_no_metrics() {
        let asked = |host: Option<&str>| {
            let host = host.map(|host| (HOST, host.parse().unwrap()));
            is_of_another_site(&host.into_iter().collect())
        };
        for own in ["127.0.0.1:9464", "localhost:9464", "localhost", "[::1]:9464", "10.1.2.3"] {
            assert!(!asked(Some(own)), "{own}");
        }
        assert!(!asked(None));
        for other in
            ["evil.example:9464", "evil.example", "127.0.0.1.evil.example:80", "", "\u{e9}"]
        {
            assert!(asked(Some(other)), "{other}");
        }
    }
}
