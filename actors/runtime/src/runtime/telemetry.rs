//! OpenTelemetry: contexts that go along with calls, and spans that leave the session by OTLP.
//!
//! The spans of all processes leave the session through its head. A child sends its spans to its
//! parent, on the link on which their tasks' outcomes follow. So the spans of a completed task
//! arrive even if its worker is then killed, and only the head needs a route to the collector.

mod collector;
mod context;
mod layer;
mod uploader;
mod variables;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use fiber_transport::{Link, Message};

pub use self::collector::flush;
pub use self::context::{RemoteParent, current_context, note_failure};
pub use self::layer::{init, layer};
use self::uploader::Uploader;
use crate::endpoint::SPANS;

/// The link to the parent, in a child.
static PARENT: OnceLock<Parent> = OnceLock::new();
static IS_HEAD: AtomicBool = AtomicBool::new(false);

struct Parent {
    link: Arc<dyn Link>,
    /// The largest message that the parent accepts.
    limit: usize,
}

/// Where the spans of this process go.
enum Outlet {
    Parent(&'static Parent),
    Uploader(&'static Uploader),
}

impl Outlet {
    /// Returns the outlet. There is none before `fiber::init()` has found out what this process is.
    fn get() -> Option<Outlet> {
        if let Some(parent) = PARENT.get() {
            Some(Outlet::Parent(parent))
        } else {
            IS_HEAD.load(Ordering::Acquire).then(|| Outlet::Uploader(Uploader::get()))
        }
    }

    /// Returns the largest request that it takes.
    fn limit(&self) -> usize {
        match self {
            Outlet::Parent(parent) => parent.limit,
            Outlet::Uploader(_) => usize::MAX,
        }
    }

    fn send(&self, request: Bytes) {
        match self {
            // It fails if the parent is gone. Then this process is about to end.
            Outlet::Parent(parent) => {
                let _ = parent.link.send(Message::with_body(vec![SPANS], request));
            }
            Outlet::Uploader(uploader) => uploader.push(request),
        }
    }
}

/// Notes that this process is the head.
pub(super) fn is_head() {
    IS_HEAD.store(true, Ordering::Release);
}

/// Sends the spans of this process to its parent from now on, in messages of at most `limit` bytes.
pub(super) fn send_to_parent(link: &Arc<dyn Link>, limit: usize) {
    let _ = PARENT.set(Parent { link: Arc::clone(link), limit: limit.saturating_sub(1) });
}

/// Passes on spans of a child.
pub(super) fn receive(request: Bytes) {
    if let Some(outlet) = Outlet::get() {
        outlet.send(request);
    }
}

/// Sends the spans that have ended, and waits for their arrival, for at most `limit`.
pub(super) fn finish(limit: Duration) {
    flush();
    if PARENT.get().is_none() {
        Uploader::finish(limit);
    }
}
