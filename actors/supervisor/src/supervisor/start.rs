//! The interface between a supervisor and its children.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix::ArbiterHandle;
use fiber_core::ExitReason;
use futures_core::future::LocalBoxFuture;
use tokio::sync::mpsc;

use super::identity::Identity;
use super::tree::{ChildKind, EntryId};

/// Starts a child, once for each incarnation.
///
/// [`ChildSpec::new`](super::ChildSpec::new) takes it. It runs on the supervisor's thread, so it
/// must not block. A panic in it or in its futures is a failure of the child; one in its
/// [`Control`] is logged.
///
/// # Examples
/// ```
/// # fiber::init();
/// use std::any::Any;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use fiber::Supervisor;
/// use fiber::error::ExitReason;
/// use fiber::supervisor::{ChildContext, ChildKind, ChildSpec, Control, Running, Start};
/// use tokio::sync::mpsc;
///
/// type Started = std::pin::Pin<Box<dyn Future<Output = Result<Running, ExitReason>>>>;
///
/// /// A task on the supervisor's thread that waits until it is stopped.
/// struct Idle {
///     starts: Arc<AtomicU64>,
/// }
///
/// impl Start for Idle {
///     fn start(&mut self, child: ChildContext) -> Started {
///         println!("{} starts for the {}. time", child.path(), child.incarnation());
///         self.starts.fetch_add(1, Ordering::Relaxed);
///         let (sender, mut stop) = mpsc::unbounded_channel();
///         // If `IdleControl` is dropped, so is the sender.
///         let exited = async move { stop.recv().await.unwrap_or(ExitReason::Shutdown) };
///         Box::pin(async { Ok(Running::new(IdleControl(sender), exited).place("this thread")) })
///     }
///
///     fn kind(&self) -> ChildKind {
///         ChildKind::Other("task".into())
///     }
///
///     fn handle(&self) -> Option<Arc<dyn Any + Send + Sync>> {
///         Some(self.starts.clone())
///     }
/// }
///
/// struct IdleControl(mpsc::UnboundedSender<ExitReason>);
///
/// impl Control for IdleControl {
///     fn shutdown(&mut self) {
///         let _ = self.0.send(ExitReason::Shutdown);
///     }
///
///     fn kill(&mut self, reason: ExitReason) {
///         let _ = self.0.send(reason);
///     }
/// }
///
/// let idle = ChildSpec::new("idle", Idle { starts: Arc::default() });
/// let app = Supervisor::builder("app").child(idle).start().wait()?;
/// let starts: Arc<AtomicU64> = app.handle("idle")?;
/// assert_eq!(starts.load(Ordering::Relaxed), 1);
/// println!("{}", fiber::tree()); // app, and below it: idle  running  this thread  0s
/// app.stop().wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub trait Start: Send + 'static {
    /// Starts one incarnation. The child counts as started when the future is ready.
    ///
    /// To stop a child that is still starting, the supervisor drops this future: everything that
    /// the future has started by then must end with it.
    fn start(
        &mut self,
        child: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>>;

    /// Returns the kind that the [tree](crate::supervisor::tree()) shows: a process, by default.
    fn kind(&self) -> ChildKind {
        ChildKind::Process
    }

    /// Returns the handle that [`SupervisorRef::handle`](super::SupervisorRef::handle) gives to
    /// users of this child. All incarnations share it. There is none by default.
    fn handle(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Returns whether its start needs the thread that supervised actors share.
    #[doc(hidden)]
    fn starts_on_shared_thread(&self) -> bool {
        false
    }

    /// Returns whether it lives, and its end needs this thread.
    #[doc(hidden)]
    fn ends_here(&self) -> bool {
        false
    }

    /// The supervisor calls this when the child has ended by itself, for this reason, and keeps it:
    /// it starts the child again only with others.
    #[doc(hidden)]
    fn finished(&mut self, reason: &ExitReason) {
        let _ = reason;
    }

    /// The supervisor calls this when it removes the child: it does not start it again. `reason` is
    /// that of the last incarnation's end.
    fn removed(&mut self, reason: &ExitReason) {
        let _ = reason;
    }
}

/// A started incarnation of a child.
pub struct Running {
    /// Where it runs, for the tree: `pid 4711`.
    pub place: Option<String>,
    /// Ends it. When this is dropped, the child must end at once.
    pub control: Box<dyn Control>,
    /// Is ready when the incarnation has ended.
    pub exited: LocalBoxFuture<'static, ExitReason>,
    /// The events in a child that restarts itself.
    pub(super) within: Option<mpsc::UnboundedReceiver<Within>>,
}

/// An event in a child that restarts what is in it by itself, as a managed actor's process does.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum Within {
    Failed(ExitReason),
    Restarted,
}

impl Running {
    /// Returns a started incarnation without a place. [`Start`] has an example.
    pub fn new(
        control: impl Control + 'static,
        exited: impl Future<Output = ExitReason> + 'static,
    ) -> Running {
        let (control, exited) = (Box::new(control), Box::pin(exited));
        Running { place: None, control, exited, within: None }
    }

    /// Tells the supervisor what happens in the child, which restarts itself. Watchers, the tree and
    /// events then show it as they show a restart by the supervisor.
    #[doc(hidden)]
    #[must_use]
    pub fn within(mut self, events: mpsc::UnboundedReceiver<Within>) -> Running {
        self.within = Some(events);
        self
    }

    /// Sets where it runs, for the tree: `pid 4711`. [`Start`] has an example.
    #[must_use]
    pub fn place(mut self, place: impl Into<String>) -> Running {
        self.place = Some(place.into());
        self
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Ends one incarnation of a child.
///
/// Both methods return at once; [`Running::exited`] reports the end.
pub trait Control {
    /// Asks the child to end in order.
    fn shutdown(&mut self);

    /// Ends the child at once. [`Running::exited`] should then return `reason`, unless something
    /// else has ended the child before.
    fn kill(&mut self, reason: ExitReason);
}

/// The incarnation that [`Start::start`] starts.
#[derive(Clone)]
pub struct ChildContext {
    pub(super) identity: Arc<Identity>,
    pub(super) incarnation: u64,
    pub(super) entry: EntryId,
    pub(super) arbiter: Option<ArbiterHandle>,
    /// Whether the incarnation has been of use.
    pub(super) has_worked: Arc<AtomicBool>,
}

impl ChildContext {
    /// Returns the child's name. [`Start`] has an example of a context.
    pub fn name(&self) -> &str {
        self.identity.name()
    }

    /// Returns the full name, with the supervisors above: `app/counter`. [`Start`] has an example.
    pub fn path(&self) -> &str {
        self.identity.path()
    }

    /// Returns the number of the incarnation, from 1. [`Start`] has an example.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the number of incarnations before this one.
    #[doc(hidden)]
    pub fn restarts(&self) -> u64 {
        self.incarnation.saturating_sub(1)
    }

    /// Returns the arbiter of the [specification](super::ChildSpec::on), which has an example, or
    /// `None`.
    pub fn arbiter(&self) -> Option<&ArbiterHandle> {
        self.arbiter.as_ref()
    }

    /// Notes that the incarnation has been of use. However short its life was, the next one starts
    /// without a pause, as after [`Backoff::reset_after`](super::Backoff::reset_after).
    #[doc(hidden)]
    pub fn note_work(&self) {
        self.has_worked.store(true, Ordering::Relaxed);
    }

    /// Has the tree and events show the registered names of the child, a managed actor. `names` must
    /// not read the tree.
    #[doc(hidden)]
    pub fn set_names(&self, names: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        self.entry.update(|data| data.names = Some(Arc::new(names)));
    }

    /// Sets the place that the tree shows. Does nothing if a later incarnation has begun.
    ///
    /// A place that is known when the child has started goes into [`Running::place`], as in the
    /// example of [`Start`].
    pub fn set_place(&self, place: impl Into<String>) {
        let place = place.into();
        self.entry.update(|data| {
            if data.incarnation == self.incarnation {
                data.place = Some(place);
            }
        });
    }
}

impl fmt::Debug for ChildContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildContext")
            .field("path", &self.path())
            .field("incarnation", &self.incarnation)
            .finish()
    }
}
