//! Streams of bytes over links, between ranks that can't share memory.
//!
//! The sender's runtime opens a connection for each direction. The receiver grants credit on it, so
//! that at most `WINDOW` bytes are in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::{Buf, Bytes};
use fiber_core::block_on;
use fiber_transport::{Connection, Link, Message, Peer, Role};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::super::wire::RankAddress;
use super::wakeup::Wakeup;
use fiber_runtime::runtime::Runtime;

/// Bytes that may be in flight.
const WINDOW: u64 = 8 << 20;
/// Bytes that the receiver consumes before it grants their credit.
const CREDIT: u64 = 1 << 20;
/// Bytes of one message.
const CHUNK: usize = 128 << 10;

/// One end of a stream, as the function's thread and fiber's thread share it.
#[derive(Debug, Default)]
struct LinkState {
    received: Mutex<VecDeque<Bytes>>,
    credit: AtomicU64,
    closed: AtomicBool,
}

/// The sending end.
#[derive(Debug)]
pub(super) struct LinkWriter {
    link: Arc<dyn Link>,
    state: Arc<LinkState>,
    sent: u64,
}

impl LinkWriter {
    /// Opens a stream to another rank, and blocks until it is open.
    pub(super) fn open(
        runtime: &'static Runtime,
        rank: usize,
        to: &RankAddress,
        wakeup: Arc<Wakeup>,
    ) -> Result<LinkWriter, String> {
        let (done, opened) = oneshot::channel();
        let to = to.process.clone();
        runtime.spawn(move || async move {
            match runtime.mesh().connect(&to, Role::Ring).await {
                Ok(mut connection) => {
                    let state = Arc::new(LinkState::default());
                    let link = Arc::clone(&connection.link);
                    let _ = link.send(Message::new((rank as u64).to_le_bytes().into()));
                    let writer = LinkWriter { link, state: Arc::clone(&state), sent: 0 };
                    if done.send(Ok(writer)).is_err() {
                        return;
                    }
                    while let Some(Ok(mut message)) = connection.next().await {
                        if message.len() == 8 {
                            state.credit.fetch_add(message.bytes.get_u64_le(), Ordering::Release);
                            wakeup.notify();
                        }
                    }
                    state.closed.store(true, Ordering::Release);
                    wakeup.notify();
                }
                Err(problem) => drop(done.send(Err(problem))),
            }
        });
        let opened = block_on(async { Ok(opened.await) }).map_err(|error| error.to_string())?;
        opened.unwrap_or_else(|_| Err("fiber's thread ended".into()))
    }

    /// Returns how many bytes may be written now.
    pub(super) fn room(&self) -> usize {
        let in_flight = self.sent - self.state.credit.load(Ordering::Acquire);
        WINDOW.saturating_sub(in_flight) as usize
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len().min(CHUNK).min(self.room());
        // A message ends between two elements.
        let length = if length < bytes.len() { length & !7 } else { length };
        if length > 0 {
            self.sent += length as u64;
            // The task that reads credit from the link notices that it is closed.
            let _ = self
                .link
                .send(Message::with_body(Vec::new(), Bytes::copy_from_slice(&bytes[..length])));
        }
        length
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.closed.load(Ordering::Acquire)
    }
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct LinkReader {
    link: Arc<dyn Link>,
    state: Arc<LinkState>,
    current: Bytes,
    /// Bytes consumed for which no credit has been granted yet.
    owed: u64,
}

impl LinkReader {
    /// Reads what another rank sends, until the connection closes. Passes the stream to `opened`.
    pub(crate) async fn receive(
        peer: Peer,
        wakeup: Arc<Wakeup>,
        opened: impl FnOnce(usize, LinkReader),
    ) {
        let Peer { mut connection, info } = peer;
        connection.incoming.set_limit(CHUNK);
        let rank = match connection.next().await {
            Some(Ok(mut message)) if message.len() == 8 => message.bytes.get_u64_le() as usize,
            _ => {
                return tracing::warn!(
                    "closed a stream from process {}: it did not name its rank",
                    info.id
                );
            }
        };
        let state = Arc::new(LinkState::default());
        let link = Arc::clone(&connection.link);
        let reader = LinkReader { link, state: Arc::clone(&state), current: Bytes::new(), owed: 0 };
        opened(rank, reader);
        wakeup.notify();
        receive_all(connection, &state, &wakeup).await;
        state.closed.store(true, Ordering::Release);
        wakeup.notify();
    }

    /// Makes the next message available to [`peek`](LinkReader::peek) if the last one is consumed.
    pub(super) fn refill(&mut self) {
        if self.current.is_empty()
            && let Some(next) = self.state.received.lock().pop_front()
        {
            self.current = next;
        }
    }

    pub(super) fn peek(&self) -> &[u8] {
        &self.current
    }

    pub(super) fn consume(&mut self, length: usize) {
        self.current.advance(length);
        self.owed += length as u64;
        if self.owed >= CREDIT {
            let _ = self.link.send(Message::new(self.owed.to_le_bytes().into()));
            self.owed = 0;
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.current.is_empty() || !self.state.received.lock().is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.closed.load(Ordering::Acquire)
    }
}

async fn receive_all(mut connection: Connection, state: &LinkState, wakeup: &Wakeup) {
    while let Some(Ok(message)) = connection.next().await {
        if !message.is_empty() {
            state.received.lock().push_back(message.bytes);
            wakeup.notify();
        }
    }
}
