//! Links within one process, for sessions and workers of fiber's own tests and benchmarks.
//!
//! A message goes from one end's queue to the other end as it is, blobs included: nothing is
//! encoded, and no thread other than those of the ends takes part. In a simulated world, messages
//! take their time, links break, and the last messages before the end of a link may vanish.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use fiber_core::simulation::{self, Fault, Fragile};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep_until};

use crate::{Closed, Connection, Incoming, Link, Listener, Message, Received, UNPROVEN_LIMIT};

/// The listeners of the process, by their names: to links in memory, the process is what the
/// machine is to others.
static LISTENERS: Mutex<Option<HashMap<String, mpsc::UnboundedSender<End>>>> = Mutex::new(None);

/// One end of a link: where it sends, and what it receives.
#[derive(Debug)]
pub struct End {
    link: Arc<MemoryLink>,
}

/// Returns both ends of a new link.
pub fn pair() -> (End, End) {
    let (one, other) = (Arc::<Direction>::default(), Arc::<Direction>::default());
    let end = |outgoing: &Arc<Direction>, incoming: &Arc<Direction>| End {
        link: Arc::new(MemoryLink {
            outgoing: Arc::clone(outgoing),
            incoming: Arc::clone(incoming),
        }),
    };
    let ends = (end(&one, &other), end(&other, &one));
    if let Some(world) = simulation::world() {
        world.add(Arc::clone(&ends.0.link) as Arc<dyn Fragile>);
    }
    ends
}

impl End {
    /// Returns both halves of this end.
    pub fn halves(self) -> (Arc<dyn Link>, impl Incoming + Send + 'static) {
        let link = self.link;
        let incoming = MemoryIncoming { link: Arc::clone(&link), limit: None, timer: None };
        (link, incoming)
    }
}

/// Listens at a new name.
pub(crate) fn listen() -> impl Listener {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let name = LAST.fetch_add(1, Ordering::Relaxed).to_string();
    let (sender, connecting) = mpsc::unbounded_channel();
    LISTENERS.lock().get_or_insert_default().insert(name.clone(), sender);
    MemoryListener { name, connecting }
}

/// Connects to the listener of the given name.
///
/// # Errors
/// [`ErrorKind::ConnectionRefused`] if there is none.
pub(crate) fn connect(name: &str) -> io::Result<Connection> {
    let (own, theirs) = pair();
    let listeners = LISTENERS.lock();
    let listener = listeners.as_ref().and_then(|listeners| listeners.get(name));
    match listener.map(|listener| listener.send(theirs)) {
        Some(Ok(())) => Ok(connection(own)),
        Some(Err(_)) | None => Err(ErrorKind::ConnectionRefused.into()),
    }
}

fn connection(end: End) -> Connection {
    let (link, incoming) = end.halves();
    Connection::new(link, incoming)
}

struct MemoryListener {
    name: String,
    connecting: mpsc::UnboundedReceiver<End>,
}

impl Listener for MemoryListener {
    fn address(&self) -> String {
        format!("memory:{}", self.name)
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        let end = ready!(self.connecting.poll_recv(context));
        Poll::Ready(Ok(connection(end.expect("the sender is in the list until this is dropped"))))
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        if let Some(listeners) = &mut *LISTENERS.lock() {
            listeners.remove(&self.name);
        }
    }
}

/// One direction of a link.
#[derive(Debug, Default)]
struct Direction(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// The messages, with the times at which they arrive if those are in the future.
    messages: VecDeque<(Option<Instant>, Received)>,
    reader: Option<Waker>,
    closed: bool,
    /// Whether messages vanish.
    is_lost: bool,
    /// When the reader takes the link for closed.
    closes_at: Option<Instant>,
    /// How long the reader bears a lost link.
    patience: Option<Duration>,
}

impl Queue {
    fn push(&mut self, message: Received) {
        let due = simulation::world().and_then(|world| {
            let now = Instant::now();
            let due = self.messages.back().and_then(|(due, _)| *due).unwrap_or(now);
            let due = due.max(now + world.delay());
            (due > now).then_some(due)
        });
        self.messages.push_back((due, message));
    }

    /// Lets the last messages vanish, perhaps, as a peer's death does.
    fn lose_last(&mut self) {
        if let Some(world) = simulation::world()
            && world.is_unusual("the last messages vanish")
        {
            let left = world.draw(self.messages.len() as u64 + 1);
            self.messages.truncate(left as usize);
        }
    }

    /// Returns when the reader has to look again.
    fn next_at(&self) -> Option<Instant> {
        let due = self.messages.front().and_then(|(due, _)| *due);
        due.into_iter().chain(self.closes_at).min()
    }
}

impl Direction {
    /// Changes the queue, and wakes its reader.
    fn change<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let mut queue = self.0.lock();
        let result = change(&mut queue);
        let reader = queue.reader.take();
        drop(queue);
        reader.into_iter().for_each(Waker::wake);
        result
    }
}

#[derive(Debug)]
struct MemoryLink {
    outgoing: Arc<Direction>,
    incoming: Arc<Direction>,
}

impl Link for MemoryLink {
    fn send(&self, message: Message) -> Result<(), Closed> {
        let Message { head, body, blobs } = message;
        let bytes = if head.is_empty() { body } else { [&head[..], &body].concat().into() };
        self.outgoing.change(|queue| {
            if queue.closed {
                return Err(Closed);
            }
            // A dead process sends nothing, although its threads may run to their ends.
            if !queue.is_lost && !simulation::world().is_some_and(|world| world.is_dead()) {
                queue.push(Received { bytes, blobs });
            }
            Ok(())
        })
    }

    fn close(&self) {
        self.outgoing.change(|queue| {
            if !queue.is_lost && !std::mem::replace(&mut queue.closed, true) {
                queue.lose_last();
            }
        });
        let unread = self.incoming.change(|queue| {
            queue.closed = true;
            std::mem::take(&mut queue.messages)
        });
        // Without the lock: the last handle of a blob may send over another link.
        drop(unread);
    }

    fn set_peer_timeout(&self, silence: Duration) {
        self.incoming.change(|queue| {
            queue.patience = Some(silence);
            if queue.is_lost && queue.closes_at.is_none() {
                queue.closes_at = Some(Instant::now() + silence);
            }
        });
    }
}

impl Fragile for MemoryLink {
    fn name(&self) -> &str {
        "a link"
    }

    fn can_suffer(&self, fault: Fault) -> bool {
        let is_open = |direction: &Direction| {
            let queue = direction.0.lock();
            !queue.closed && !queue.is_lost
        };
        matches!(fault, Fault::Cut | Fault::Lose)
            && (is_open(&self.outgoing) || is_open(&self.incoming))
    }

    fn suffer(&self, fault: Fault) {
        for direction in [&self.outgoing, &self.incoming] {
            direction.change(|queue| match fault {
                Fault::Cut => {
                    queue.closed = true;
                    queue.lose_last();
                }
                Fault::Lose => {
                    queue.is_lost = true;
                    let after = |patience| Instant::now() + patience;
                    queue.closes_at = queue.patience.map(after);
                }
                Fault::Kill | Fault::Terminate => {}
            });
        }
    }
}

struct MemoryIncoming {
    link: Arc<MemoryLink>,
    /// `None` until the peer has proven that it holds the session's key.
    limit: Option<usize>,
    /// For messages that arrive later.
    timer: Option<Pin<Box<Sleep>>>,
}

impl MemoryIncoming {
    /// Returns an error for a message that this end does not accept.
    fn check(&self, message: &Received) -> io::Result<()> {
        let (length, limit) = (message.bytes.len(), self.limit.unwrap_or(UNPROVEN_LIMIT));
        let invalid = |problem: String| Err(io::Error::new(ErrorKind::InvalidData, problem));
        if length > limit {
            let problem = format!("the peer sent a message of {length} bytes");
            return invalid(format!("{problem}, more than the limit of {limit}"));
        }
        if self.limit.is_none() && !message.blobs.is_empty() {
            return invalid("the peer sent a blob before it has proven itself".into());
        }
        Ok(())
    }
}

impl Incoming for MemoryIncoming {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Received>>> {
        loop {
            let mut queue = self.link.incoming.0.lock();
            let has_come = |due: Option<Instant>| due.is_none_or(|due| due <= Instant::now());
            if queue.messages.front().is_some_and(|(due, _)| has_come(*due))
                && let Some((_, message)) = queue.messages.pop_front()
            {
                drop(queue);
                return Poll::Ready(Some(self.check(&message).map(|()| message)));
            }
            let is_over = queue.closed && queue.messages.is_empty();
            if is_over || queue.closes_at.is_some_and(|at| at <= Instant::now()) {
                return Poll::Ready(None);
            }
            queue.reader = Some(context.waker().clone());
            self.timer = queue.next_at().map(|at| Box::pin(sleep_until(at.into())));
            drop(queue);
            match &mut self.timer {
                Some(timer) => ready!(timer.as_mut().poll(context)),
                None => return Poll::Pending,
            }
        }
    }

    fn set_limit(&mut self, bytes: usize) {
        self.limit = Some(bytes);
    }
}

impl Drop for MemoryIncoming {
    fn drop(&mut self) {
        self.link.close();
    }
}
