//! Streams of bytes over links, between ranks that share no memory.
//!
//! The sender's node opens a connection for what goes one way; the receiver gives credit the other
//! way, so that no more than `WINDOW` bytes are under way.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::{Buf, Bytes};
use fiber_transport::{Connection, Link, Message, Peer, Role};
use parking_lot::Mutex;

use super::wire::Member;
use crate::runtime::Runtime;

/// Bytes that may be under way.
const WINDOW: u64 = 8 << 20;
/// Bytes after which the receiver gives credit.
const CREDIT: u64 = 1 << 20;
/// Bytes of one message.
const PIECE: usize = 128 << 10;

/// Wakes the thread of the function. It is counted as long as it has not been noticed.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> std::io::Result<Bell> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(super) fn ring(&self) {
        // It can't be full before it is noticed 2^64 times too late.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn heard(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.0
    }
}

/// What both halves of this process know of a stream: the thread of the function, and the node's,
/// which reads.
#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<VecDeque<Bytes>>,
    credit: AtomicU64,
    closed: AtomicBool,
}

/// The sending end.
#[derive(Debug)]
pub(super) struct LinkWriter {
    link: Arc<dyn Link>,
    shared: Arc<Shared>,
    sent: u64,
}

impl LinkWriter {
    /// Opens a stream to another rank, and waits for it.
    pub(super) fn open(
        runtime: &'static Runtime,
        rank: usize,
        to: &Member,
        bell: Arc<Bell>,
    ) -> Result<LinkWriter, String> {
        // Not tokio's: an async function is on this thread's stack by then, and its runtime allows
        // no waiting.
        let (done, opened) = std::sync::mpsc::channel();
        let to = to.process.clone();
        runtime.spawn(move || async move {
            match runtime.mesh().reach(&to, Role::Ring).await {
                Ok(mut connection) => {
                    let shared = Arc::new(Shared::default());
                    let link = Arc::clone(&connection.link);
                    let _ = link.send(Message::new((rank as u64).to_le_bytes().into()));
                    let writer = LinkWriter { link, shared: Arc::clone(&shared), sent: 0 };
                    if done.send(Ok(writer)).is_err() {
                        return;
                    }
                    while let Some(Ok(mut message)) = connection.next().await {
                        if message.len() == 8 {
                            shared.credit.fetch_add(message.get_u64_le(), Ordering::Release);
                            bell.ring();
                        }
                    }
                    shared.closed.store(true, Ordering::Release);
                    bell.ring();
                }
                Err(problem) => drop(done.send(Err(problem))),
            }
        });
        opened.recv().unwrap_or_else(|_| Err("fiber's thread ended".into()))
    }

    pub(super) fn room(&self) -> usize {
        let under_way = self.sent - self.shared.credit.load(Ordering::Acquire);
        WINDOW.saturating_sub(under_way) as usize
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len().min(PIECE).min(self.room());
        // QueueStream are not cut.
        let length = if length < bytes.len() { length & !7 } else { length };
        if length > 0 {
            self.sent += length as u64;
            // That it is closed is seen by who reads it.
            let _ = self
                .link
                .send(Message { head: Vec::new(), body: Bytes::copy_from_slice(&bytes[..length]) });
        }
        length
    }

    pub(super) fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct LinkReader {
    link: Arc<dyn Link>,
    shared: Arc<Shared>,
    current: Bytes,
    owed: u64,
}

impl LinkReader {
    /// Takes in what a rank sends, until it is gone. The stream is given to `arrived`.
    pub(super) async fn attend(
        peer: Peer,
        bell: Arc<Bell>,
        arrived: impl FnOnce(usize, LinkReader),
    ) {
        let Peer { mut connection, info } = peer;
        connection.incoming.set_limit(PIECE);
        let rank = match connection.next().await {
            Some(Ok(mut message)) if message.len() == 8 => message.get_u64_le() as usize,
            _ => {
                return tracing::warn!(
                    "turned runtime {} away: it did not say which rank it is",
                    info.id
                );
            }
        };
        let shared = Arc::new(Shared::default());
        let link = Arc::clone(&connection.link);
        arrived(
            rank,
            LinkReader { link, shared: Arc::clone(&shared), current: Bytes::new(), owed: 0 },
        );
        bell.ring();
        read(connection, &shared, &bell).await;
        shared.closed.store(true, Ordering::Release);
        bell.ring();
    }

    /// Brings what comes next to where it can be seen.
    pub(super) fn refill(&mut self) {
        if self.current.is_empty()
            && let Some(next) = self.shared.queue.lock().pop_front()
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
        !self.current.is_empty() || !self.shared.queue.lock().is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}

async fn read(mut connection: Connection, shared: &Shared, bell: &Bell) {
    while let Some(Ok(message)) = connection.next().await {
        if !message.is_empty() {
            shared.queue.lock().push_back(message);
            bell.ring();
        }
    }
}
