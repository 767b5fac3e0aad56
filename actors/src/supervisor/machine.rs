//! The supervisor's state and what it does with each child.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler};
use fiber_core::ExitReason;
use futures_util::stream;
use tokio::sync::{mpsc, oneshot};

use super::builder::Options;
use super::child::{Child, Key, Origin, Task};
use super::directory::Directory;
use super::identity::Identity;
use super::intensity::Failures;
use super::spec::ChildSpec;
use super::start::{ChildContext, Control};
use super::tree::Node;

/// A supervisor: an actix actor that starts, watches, restarts and ends its children.
///
/// Made by [`Supervisor::builder`], used through a [`SupervisorRef`](super::SupervisorRef).
pub struct Supervisor {
    pub(super) identity: Arc<Identity>,
    pub(super) options: Options,
    pub(super) children: BTreeMap<Key, Child>,
    pub(super) names: HashMap<String, Key>,
    pub(super) directory: Arc<Directory>,
    pub(super) node: Node,
    pub(super) doing: Doing,
    pub(super) turns: Turns,
    pub(super) failures: Failures,
    pub(super) events: mpsc::UnboundedSender<Event>,
    inbox: Rc<RefCell<mpsc::UnboundedReceiver<Event>>>,
    next: u64,
    outcome: Outcome,
}

/// Why the supervisor ended, once it has.
pub(super) type Outcome = Rc<OnceCell<ExitReason>>;

/// What the supervisor as a whole is doing.
pub(super) enum Doing {
    /// It starts the builder's children; then it says so.
    Launching(oneshot::Sender<()>),
    Working,
    Ending {
        reason: ExitReason,
    },
}

/// Whether children wait for each other to start or to end.
pub(super) enum Turns {
    Idle,
    Busy,
    /// Nothing is started in turn before this ends.
    Paused(Timer),
}

/// How children are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    InTurn,
    AtOnce,
}

/// What the supervisor's own tasks tell it.
pub(super) enum Event {
    Child { key: Key, incarnation: u64, news: News },
    TimeOver { timer: u64, whose: Whose },
}

pub(super) enum News {
    Started { place: Option<String>, control: Box<dyn Control> },
    Ended(ExitReason),
}

/// What a timer is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    /// The present state of a child.
    Child(Key),
    /// [`Turns::Paused`].
    Pause,
}

impl Supervisor {
    pub(super) fn create(
        child: &ChildContext,
        options: Options,
        specs: impl IntoIterator<Item = ChildSpec>,
        directory: Arc<Directory>,
        launched: oneshot::Sender<()>,
        outcome: Outcome,
    ) -> (Context<Supervisor>, Supervisor) {
        let (events, inbox) = mpsc::unbounded_channel();
        let inbox = Rc::new(RefCell::new(inbox));
        let stream = inbox.clone();
        let mut context = Context::new();
        context.add_stream(stream::poll_fn(move |task| stream.borrow_mut().poll_recv(task)));
        let mut supervisor = Supervisor {
            identity: child.identity.clone(),
            options,
            children: BTreeMap::new(),
            names: HashMap::new(),
            directory,
            node: child.node,
            doing: Doing::Launching(launched),
            turns: Turns::Busy,
            failures: Failures::default(),
            events,
            inbox,
            next: 0,
            outcome,
        };
        for spec in specs {
            supervisor.insert(spec, Origin::Builder);
        }
        (context, supervisor)
    }

    pub(super) fn next_key(&mut self) -> Key {
        self.next += 1;
        Key(self.next)
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.doing, Doing::Ending { .. })
    }

    pub(super) fn finish(&mut self, reason: ExitReason) {
        // The first reason stays.
        let _ = self.outcome.set(reason);
    }
}

/// Tells the supervisor when a time is over, unless dropped before.
pub(super) struct Timer {
    pub(super) id: u64,
    _task: Task,
}

impl Timer {
    pub(super) fn start(events: &mpsc::UnboundedSender<Event>, whose: Whose, time: Duration) -> Timer {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let events = events.clone();
        let task = Task::spawn(async move {
            tokio::time::sleep(time).await;
            let _ = events.send(Event::TimeOver { timer: id, whose });
        });
        Timer { id, _task: task }
    }
}

impl Actor for Supervisor {
    type Context = Context<Supervisor>;

    fn started(&mut self, context: &mut Context<Supervisor>) {
        if self.advance() {
            context.terminate();
        }
    }
}

impl StreamHandler<Event> for Supervisor {
    fn handle(&mut self, event: Event, context: &mut Context<Supervisor>) {
        if self.react(event) {
            context.terminate();
        }
    }
}

impl Supervisor {
    /// Reacts to all that has happened already. A command must come after that: else a child that has started would
    /// be taken for one that still starts. `true` if the supervisor has ended.
    pub(super) fn catch_up(&mut self) -> bool {
        loop {
            let next = self.inbox.borrow_mut().try_recv();
            let Ok(event) = next else { return false };
            if self.react(event) {
                return true;
            }
        }
    }

    fn react(&mut self, event: Event) -> bool {
        match event {
            Event::Child { key, incarnation, news } => self.news(key, incarnation, news),
            Event::TimeOver { timer, whose } => self.time_over(timer, whose),
        }
        self.advance()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // After an orderly end there are none left. Else they end as they are dropped, the last one first.
        let reason = self.outcome.get().cloned().unwrap_or(ExitReason::Shutdown);
        while let Some((_, child)) = self.children.pop_last() {
            let added = child.is_added();
            let Child { spec, state, entry, .. } = child;
            drop((state, entry));
            if added {
                self.directory.strike(spec.name());
                spec.forget(&reason);
            }
        }
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("path", &self.identity.path())
            .field("options", &self.options)
            .field("children", &self.children.len())
            .finish_non_exhaustive()
    }
}
