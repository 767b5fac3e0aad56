//! The supervisor, its phase and its children.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use fiber_core::ExitReason;
use tokio::sync::{mpsc, oneshot};

use super::super::backoff::Backoff;
use super::super::directory::Directory;
use super::super::identity::Identity;
use super::super::intensity::{Failures, Intensity};
use super::super::spec::ChildSpec;
use super::super::start::ChildContext;
use super::super::tree::{Entry, EntryId};
use super::child::{Child, ChildPhase, Origin};
use super::event::{Event, Key, Timer};
use fiber_core::stats::Strategy;

/// A supervisor: an actix actor that starts, watches, restarts and stops its children.
///
/// [`Supervisor::builder`] makes one, and a [`SupervisorRef`](super::super::SupervisorRef) is its
/// handle. The supervisor works on fiber's own thread, so code of the program never delays a
/// restart.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Supervisor;
/// use fiber::supervisor::ChildSpec;
///
/// let sleep = || std::thread::park();
/// let app = Supervisor::builder("app")
///     .child(ChildSpec::process("one", sleep, ())?)
///     .child(ChildSpec::process("two", sleep, ())?)
///     .start()
///     .wait()?;
/// println!("{}", fiber::tree()); // app (supervisor, one for one), and below it: one, two
/// app.stop().wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct Supervisor {
    pub(super) identity: Arc<Identity>,
    pub(super) options: Options,
    pub(super) phase: Phase,
    pub(super) sequence: Sequence,
    pub(super) children: BTreeMap<Key, Child>,
    pub(super) names: HashMap<String, Key>,
    /// The children, as references find them.
    pub(super) directory: Arc<Directory>,
    /// The supervisor in the tree.
    pub(super) entry: EntryId,
    pub(super) failures: Failures,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) inbox: Rc<RefCell<mpsc::UnboundedReceiver<Event>>>,
    last_key: u64,
    exit: ExitCell,
}

/// The options that all incarnations of a supervisor have.
#[derive(Clone, Debug, Default)]
pub(in crate::supervisor) struct Options {
    pub(in crate::supervisor) strategy: Strategy,
    pub(in crate::supervisor) intensity: Intensity,
    pub(in crate::supervisor) backoff: Backoff,
    /// Whether its owner reports the ends of its children, in place of the supervisor.
    pub(in crate::supervisor) is_quiet: bool,
}

/// The reason of the supervisor's exit, once it has ended in order.
pub(in crate::supervisor) type ExitCell = Rc<OnceCell<ExitReason>>;

/// The phase of the supervisor as a whole.
pub(super) enum Phase {
    /// The builder's children start; then the sender reports success.
    Starting(oneshot::Sender<()>),
    Running,
    /// All children stop; then the supervisor ends for this reason.
    Stopping(ExitReason),
}

/// Whether children start or stop one after the other at present.
pub(super) enum Sequence {
    Idle,
    InProgress,
    /// Running siblings stop, but none starts before the timer expires.
    Paused(Timer),
}

/// How the supervisor stops its children when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopMode {
    InOrder,
    AtOnce,
}

impl Supervisor {
    /// Creates a supervisor with these children, which are pending. `started` reports that all have
    /// started.
    pub(in crate::supervisor) fn new(
        child: &ChildContext,
        options: Options,
        specs: impl IntoIterator<Item = ChildSpec>,
        directory: Arc<Directory>,
        started: oneshot::Sender<()>,
        exit: ExitCell,
    ) -> Supervisor {
        let (events, inbox) = mpsc::unbounded_channel();
        let mut supervisor = Supervisor {
            identity: child.identity.clone(),
            options,
            phase: Phase::Starting(started),
            sequence: Sequence::InProgress,
            children: BTreeMap::new(),
            names: HashMap::new(),
            directory,
            entry: child.entry,
            failures: Failures::default(),
            events,
            inbox: Rc::new(RefCell::new(inbox)),
            last_key: 0,
            exit,
        };
        for spec in specs {
            supervisor.insert(spec, Origin::Builder);
        }
        supervisor
    }

    /// Inserts a child, which is pending.
    pub(super) fn insert(&mut self, spec: ChildSpec, origin: Origin) -> Key {
        self.last_key += 1;
        let key = Key(self.last_key);
        let kind = spec.start.lock().kind();
        spec.identity.attach(self.identity.path());
        self.directory.insert(&spec);
        self.names.insert(spec.name().into(), key);
        let entry = Entry::new(Some(self.entry), spec.name(), kind);
        let child = Child::new(spec, origin, entry);
        debug_assert!(matches!(child.phase, ChildPhase::Pending), "a new child is pending");
        self.children.insert(key, child);
        key
    }

    /// Removes a child that is not alive. `reason` is that of its last exit.
    pub(super) fn remove(&mut self, key: Key, reason: &ExitReason) {
        let Some(child) = self.children.remove(&key) else { return };
        self.names.remove(child.spec.name());
        // If the supervisor itself is restarted, its next incarnation starts the builder's children
        // again.
        if child.is_added() || !self.is_stopping() {
            self.directory.remove(child.spec.name());
            child.spec.removed(reason);
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping(_))
    }

    /// Stores the reason of the exit, unless there is one.
    pub(super) fn set_exit(&mut self, reason: ExitReason) {
        let _ = self.exit.set(reason);
    }
}

impl Drop for Supervisor {
    /// Drops the children that are left, the last one first. After an end in order there are none.
    fn drop(&mut self) {
        let reason = self.exit.get().cloned().unwrap_or(ExitReason::Shutdown);
        while let Some((_, child)) = self.children.pop_last() {
            let added = child.is_added();
            let Child { spec, phase, entry, .. } = child;
            drop((phase, entry));
            if added {
                self.directory.remove(spec.name());
                spec.removed(&reason);
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
