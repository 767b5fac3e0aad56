//! The thread of the head that sends spans to the collector.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{shortage, start_thread};
use parking_lot::{Condvar, Mutex};
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use super::collector::flush;
use super::variables::{Endpoint, variable};

/// How long spans may wait in the head for more of them.
const INTERVAL: Duration = Duration::from_secs(1);
/// The pauses before a request is sent again.
const RETRIES: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// Bytes of requests that are sent as one.
const MAX_REQUEST: usize = 1 << 20;
/// Bytes of requests that may wait. Further ones are lost.
const MAX_WAITING: usize = 64 << 20;

/// One for the process, as its subscriber of spans is.
static UPLOADER: OnceLock<Uploader> = OnceLock::new();

/// Requests on their way to the collector.
#[derive(Default)]
pub(super) struct Uploader {
    queue: Mutex<Queue>,
    /// Notified when `queue` changes.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Bytes>,
    bytes: usize,
    /// Whether the thread is sending a request.
    sending: bool,
    /// Whether this process is about to exit, which waits for no retry.
    finishing: bool,
    /// Whether the thread has ended, because it could not start its work.
    stopped: bool,
    /// Whether the loss of spans was logged, since a request last succeeded.
    logged: bool,
}

impl Queue {
    /// Takes requests as one: encoded messages in a row are the message with all their elements.
    fn take(&mut self) -> Vec<u8> {
        let mut taken = Vec::new();
        while let Some(request) = self.requests.front()
            && (taken.is_empty() || taken.len() + request.len() <= MAX_REQUEST)
        {
            taken.extend_from_slice(request);
            self.bytes -= request.len();
            self.requests.pop_front();
        }
        taken
    }
}

/// Why a request was not accepted.
struct Refusal {
    problem: String,
    may_pass: bool,
}

impl Uploader {
    /// Returns the uploader, and starts its thread with the first call.
    pub(super) fn get() -> &'static Uploader {
        UPLOADER.get_or_init(|| {
            let uploader = Uploader::default();
            if let Err(error) = start_thread("fiber-otlp", || UPLOADER.wait().run()) {
                tracing::error!("spans are not exported: {}", shortage::explain(&error));
                uploader.queue.lock().stopped = true;
            }
            uploader
        })
    }

    /// Queues an encoded request.
    pub(super) fn push(&self, request: Bytes) {
        let mut queue = self.queue.lock();
        if queue.stopped {
            return;
        }
        if queue.bytes + request.len() > MAX_WAITING {
            drop(queue);
            return self.log_loss("the collector is too slow");
        }
        queue.bytes += request.len();
        queue.requests.push_back(request);
        drop(queue);
        self.changed.notify_all();
    }

    /// Waits until all requests are sent, for at most `limit`.
    pub(super) fn finish(limit: Duration) {
        let Some(uploader) = UPLOADER.get() else { return };
        let mut queue = uploader.queue.lock();
        queue.finishing = true;
        uploader.changed.notify_all();
        let has_more =
            |queue: &mut Queue| !queue.stopped && (queue.sending || !queue.requests.is_empty());
        if uploader.changed.wait_while_for(&mut queue, has_more, limit).timed_out() {
            drop(queue);
            uploader.log_loss("the program ends before the collector has accepted them");
        }
    }

    fn run(&self) {
        let client = match Endpoint::read(variable) {
            Ok(endpoint) => Client::new(endpoint),
            Err(error) => {
                self.queue.lock().stopped = true;
                self.changed.notify_all();
                return tracing::error!("spans are not exported: {error}");
            }
        };
        loop {
            let request = self.next();
            let sent = self.send(&client, &request);
            self.queue.lock().sending = false;
            self.changed.notify_all();
            match sent {
                Ok(()) => self.queue.lock().logged = false,
                Err(problem) => self.log_loss(&problem),
            }
        }
    }

    /// Waits for the next request. Meanwhile it collects this process's spans in time.
    fn next(&self) -> Vec<u8> {
        loop {
            let mut queue = self.queue.lock();
            if !queue.requests.is_empty() {
                queue.sending = true;
                return queue.take();
            }
            if self.changed.wait_for(&mut queue, INTERVAL).timed_out() {
                drop(queue);
                flush();
            }
        }
    }

    /// Sends a request, several times if the collector is not ready for it.
    fn send(&self, client: &Client, request: &[u8]) -> Result<(), String> {
        for pause in RETRIES.map(Some).into_iter().chain([None]) {
            let refusal = match client.post(request) {
                Ok(()) => return Ok(()),
                Err(refusal) => refusal,
            };
            let Some(pause) = pause.filter(|_| refusal.may_pass) else {
                return Err(refusal.problem);
            };
            let mut queue = self.queue.lock();
            self.changed.wait_while_for(&mut queue, |queue| !queue.finishing, pause);
            if queue.finishing {
                return Err(refusal.problem);
            }
        }
        unreachable!("the last attempt returns")
    }

    fn log_loss(&self, problem: &str) {
        if !std::mem::replace(&mut self.queue.lock().logged, true) {
            tracing::warn!("spans are lost: {problem}");
        }
    }
}

/// An HTTP client for one endpoint.
struct Client {
    agent: Agent,
    endpoint: Endpoint,
}

impl Client {
    fn new(endpoint: Endpoint) -> Client {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::PlatformVerifier)
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let config = Agent::config_builder()
            .timeout_global(Some(endpoint.timeout))
            .http_status_as_error(false)
            .tls_config(tls)
            .build();
        Client { agent: Agent::new_with_config(config), endpoint }
    }

    fn post(&self, body: &[u8]) -> Result<(), Refusal> {
        let mut request =
            self.agent.post(&self.endpoint.url).header("content-type", "application/x-protobuf");
        for (name, value) in &self.endpoint.headers {
            request = request.header(name, value);
        }
        let refusal = |problem: String, may_pass| Refusal {
            problem: format!("{}: {problem}", self.endpoint.url),
            may_pass,
        };
        let mut response = request.send(body).map_err(|error| refusal(error.to_string(), true))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let mut text = Vec::new();
        let _ = response.body_mut().as_reader().take(200).read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        // The statuses that the protocol names.
        let may_pass = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        Err(refusal(format!("{status}: {}", text.trim()), may_pass))
    }
}
