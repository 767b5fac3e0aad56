//! The process that owns a stream: it ends the stream, or learns that nobody reads it any more.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use fiber_core::{Error, Result};

use super::END;
use crate::queue::{PipeEnd, Put};

/// The owner's side of a stream. The stream stays open, while its producer may run again, until
/// this is dropped.
#[doc(hidden)]
pub struct StreamOwner {
    writer: PipeEnd,
    outcome: Arc<OnceLock<Error>>,
}

impl StreamOwner {
    pub(super) fn new(writer: PipeEnd, outcome: Arc<OnceLock<Error>>) -> StreamOwner {
        StreamOwner { writer, outcome }
    }

    /// Waits until the consumer is gone.
    pub fn poll_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        self.writer.queue.poll_closed(context)
    }

    /// Returns a function that says whether any item has arrived.
    pub fn has_items(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let queue = self.writer.queue.downgrade();
        move || queue.has_items()
    }

    /// Ends the stream, behind the items that have arrived.
    pub fn end(self, outcome: Result<()>) {
        let problem = outcome.err().map(|error| {
            let problem = error.to_string();
            let _ = self.outcome.set(error);
            problem
        });
        // It waits for room behind the items. A consumer that is gone needs no end.
        drop(Put::item(&self.writer.queue, &problem, END));
    }
}

impl fmt::Debug for StreamOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamOwner({:?})", self.writer)
    }
}
