//! Events of this process.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fiber_core::block_on;
use fiber_core::stats::{Event, EventKind};
use futures_core::Stream;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::parts::Parts;

/// The number of events that a process remembers.
const REMEMBERED: usize = 256;
/// The number of events that a stream keeps for its reader.
const BUFFERED: usize = 4096;

/// The events of a session in this process.
#[derive(Default)]
pub struct Events(Mutex<State>);

#[derive(Default)]
struct State {
    recent: VecDeque<Event>,
    /// The number of all events so far.
    count: u64,
    subscribers: Vec<Subscriber>,
}

/// Receives each event. Returns whether it wants more.
type Subscriber = Arc<Mutex<dyn FnMut(&Event) -> bool + Send>>;

impl Events {
    /// Records an event of this process.
    pub fn emit(&self, kind: EventKind) {
        self.publish(Event::now(kind));
    }

    /// Records an event and passes it to the subscribers.
    pub(crate) fn publish(&self, event: Event) {
        let subscribers = {
            let mut state = self.0.lock();
            if state.recent.len() == REMEMBERED {
                state.recent.pop_front();
            }
            state.recent.push_back(event.clone());
            state.count += 1;
            state.subscribers.clone()
        };
        // Without the lock: a subscriber may ask for the events.
        let ended = |subscriber: &&Subscriber| !(subscriber.lock())(&event);
        let ended: Vec<&Subscriber> = subscribers.iter().filter(ended).collect();
        if !ended.is_empty() {
            let is_ended =
                |subscriber: &Subscriber| ended.iter().any(|other| Arc::ptr_eq(subscriber, other));
            self.0.lock().subscribers.retain(|subscriber| !is_ended(subscriber));
        }
    }

    /// Returns the last events, oldest first.
    pub(crate) fn recent(&self) -> Vec<Event> {
        self.0.lock().recent.iter().cloned().collect()
    }

    /// Returns the events after the first `seen`, as far as they are remembered, and the number of
    /// all.
    pub(crate) fn later_than(&self, seen: u64) -> (Vec<Event>, u64) {
        let state = self.0.lock();
        let new = usize::try_from(state.count - seen).unwrap_or(usize::MAX).min(state.recent.len());
        (state.recent.range(state.recent.len() - new..).cloned().collect(), state.count)
    }

    /// Calls `subscriber` for each event until it returns `false`. It must not block or emit
    /// events.
    pub fn subscribe(&self, subscriber: impl FnMut(&Event) -> bool + Send + 'static) {
        self.0.lock().subscribers.push(Arc::new(Mutex::new(subscriber)));
    }
}

/// Records an event of this thread's session.
pub fn emit(kind: EventKind) {
    Parts::current().get::<Events>().emit(kind);
}

/// Returns the events of this process's pools and supervisors, from now on, and of those of the
/// processes below it, whose pools have the name of their process in front.
///
/// The stream keeps up to 4,096 events that its reader has not taken, and loses later ones until
/// there is room. It is endless; as an iterator, it blocks until the next event.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::stats::EventKind;
///
/// let mut events = fiber::stats::events();
/// let pool = fiber::Pool::new(1)?;
/// pool.apply(|| std::process::abort(), ()).wait().unwrap_err();
/// let ended = events.find_map(|event| match event.kind {
///     EventKind::WorkerEnded { worker, exit, .. } => Some((worker, exit)),
///     _ => None,
/// });
/// let (worker, exit) = ended.unwrap();
/// assert_eq!((worker.as_str(), exit.signal()), ("worker-1", Some(6)));
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn events() -> EventStream {
    let (sender, receiver) = mpsc::channel(BUFFERED);
    let events = Parts::current().get::<Events>();
    events.subscribe(move |event| {
        !matches!(sender.try_send(event.clone()), Err(TrySendError::Closed(_)))
    });
    EventStream { receiver }
}

/// A stream of [events](events()), and a blocking iterator.
#[derive(Debug)]
pub struct EventStream {
    receiver: mpsc::Receiver<Event>,
}

impl EventStream {
    /// Returns the next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        Poll::Ready(ready!(self.receiver.poll_recv(context)))
    }
}

impl Iterator for EventStream {
    type Item = Event;

    /// Waits for the next event. `None` on a thread of fiber's own, which must not wait.
    fn next(&mut self) -> Option<Event> {
        block_on(async { Ok(self.receiver.recv().await) }).ok().flatten()
    }
}
