//! The link to a hosted process, as its parent sees it: its messages go over the link to the host.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use fiber_transport::{Closed, Connection, Incoming, Link, Message, Received, Wire};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::shared::HostWire;
use super::wire::{self, Number, ToHost};

/// The sending half, and the place where messages of the process arrive.
#[derive(Debug)]
pub(super) struct HostedLink {
    number: Number,
    host: Arc<HostWire>,
    /// The end of the stream is a dropped sender.
    arriving: Mutex<Option<mpsc::UnboundedSender<io::Result<Received>>>>,
    closed: AtomicBool,
}

impl HostedLink {
    /// Makes the connection to a process in the host at the other end of `host`.
    pub(super) fn connect(number: Number, host: Arc<HostWire>) -> (Arc<HostedLink>, Connection) {
        let (sender, messages) = mpsc::unbounded_channel();
        let arriving = Mutex::new(Some(sender));
        let link = HostedLink { number, host, arriving, closed: AtomicBool::new(false) };
        let link = Arc::new(link);
        let incoming = HostedIncoming { link: Arc::clone(&link), messages };
        let connection = Connection::relayed(Arc::clone(&link) as Arc<dyn Link>, incoming);
        (link, connection)
    }

    /// Passes a message of the process on.
    pub(super) fn receive(&self, message: Received) {
        if let Some(arriving) = &*self.arriving.lock() {
            let _ = arriving.send(Ok(message));
        }
    }

    /// Ends the connection, as the process or its host has ended it.
    pub(super) fn end(&self, problem: Option<String>) {
        self.closed.store(true, Ordering::Release);
        self.host.drop_all_shared(self.number);
        if let (Some(arriving), Some(problem)) = (self.arriving.lock().take(), problem) {
            let _ = arriving.send(Err(io::Error::other(problem)));
        }
    }

    fn check_open(&self) -> Result<(), Closed> {
        if self.closed.load(Ordering::Acquire) { Err(Closed) } else { Ok(()) }
    }
}

impl Link for HostedLink {
    fn send(&self, message: Message) -> Result<(), Closed> {
        self.check_open()?;
        self.host.relay(self.number, message, |relayed| self.host.link.send(relayed))
    }

    fn send_later(&self, message: Message) -> Result<(), Closed> {
        self.check_open()?;
        self.host.relay(self.number, message, |relayed| self.host.link.send_later(relayed))
    }

    fn flush(&self) {
        self.host.link.flush();
    }

    fn send_shared(&self, key: u64, message: Message) -> Result<(), Closed> {
        self.check_open()?;
        let sent = self.host.send_shared(self.number, key, message);
        // The link may have been closed meanwhile.
        if self.closed.load(Ordering::Acquire) {
            self.host.drop_all_shared(self.number);
        }
        sent
    }

    fn drop_shared(&self, key: u64) {
        self.host.drop_shared(self.number, key);
    }

    fn wire(&self) -> Option<(Arc<dyn Wire>, u64)> {
        self.check_open().ok()?;
        Some((Arc::clone(&self.host) as Arc<dyn Wire>, self.number))
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.host.drop_all_shared(self.number);
            self.arriving.lock().take();
            let _ = self.host.link.send(wire::command(&ToHost::Close(self.number)));
        }
    }

    /// Does nothing: the link to the host has the limit for all its processes.
    fn set_peer_timeout(&self, _: Duration) {}
}

struct HostedIncoming {
    link: Arc<HostedLink>,
    messages: mpsc::UnboundedReceiver<io::Result<Received>>,
}

impl Incoming for HostedIncoming {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Received>>> {
        self.messages.poll_recv(context)
    }

    /// Does nothing: the link to the host has the limit.
    fn set_limit(&mut self, _: usize) {}
}

impl Drop for HostedIncoming {
    fn drop(&mut self) {
        self.link.close();
    }
}
