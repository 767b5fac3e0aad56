//! Frames that clients of this process hold back to send several together.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The frames that are held back, which leave before the next request.
#[derive(Default)]
pub struct Unsent {
    /// The number of clients that hold a frame back.
    clients: AtomicUsize,
    send_all: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Unsent {
    /// Sets the function that sends all frames that are held back. The first one stays.
    pub fn set_send_all(&self, send_all: impl Fn() + Send + Sync + 'static) {
        self.send_all.get_or_init(|| Box::new(send_all));
    }

    /// Counts one more client that holds a frame back.
    pub fn hold(&self) {
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one client less: its frame was sent or dropped.
    pub fn release(&self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sends all frames that are held back, so that they arrive before the next request.
    pub fn send(&self) {
        if self.clients.load(Ordering::Relaxed) > 0
            && let Some(send_all) = self.send_all.get()
        {
            send_all();
        }
    }
}
