//! The log of a test, for the tests of engines that are away.

use std::fmt::Debug;

use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

use super::Outage;

/// The events of this crate that the test's thread logs while this lives.
pub(crate) struct CapturedLog {
    events: mpsc::UnboundedReceiver<(Level, String)>,
    _subscriber: DefaultGuard,
}

impl CapturedLog {
    pub(crate) fn begin() -> CapturedLog {
        let (sender, events) = mpsc::unbounded_channel();
        CapturedLog { events, _subscriber: tracing::subscriber::set_default(Sender(sender)) }
    }

    /// Waits for as many more events with these words, and returns their levels.
    pub(crate) async fn levels(&mut self, words: &str, count: usize) -> Vec<Level> {
        let mut levels = Vec::new();
        while levels.len() < count {
            let (level, message) = self.events.recv().await.expect("the subscriber sends");
            if message.contains(words) {
                levels.push(level);
            }
        }
        levels
    }
}

/// A subscriber that sends events to a [`CapturedLog`].
struct Sender(mpsc::UnboundedSender<(Level, String)>);

impl Subscriber for Sender {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("fiber_backends")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        // The receiver is gone when a test ends.
        let _ = self.0.send((*event.metadata().level(), message.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[tokio::test]
async fn an_outage_is_warned_of_once_until_the_engine_has_answered() {
    let mut log = CapturedLog::begin();
    let mut outage = Outage::default();
    for _ in 0..2 {
        outage.log("it is away");
        outage.log("it is still away");
        outage.end();
    }
    let levels = log.levels("away", 4).await;
    assert_eq!(levels, [Level::WARN, Level::DEBUG, Level::WARN, Level::DEBUG]);
}
