//! How a supervisor starts and ends whatever its children are.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use actix::ArbiterHandle;
use fiber_core::ExitReason;
use futures_core::future::LocalBoxFuture;

use super::identity::Identity;
use super::tree::{ChildKind, EntryId};

/// Starts a child, again for each of its incarnations.
///
/// It runs on the supervisor's own thread, so it must not block. Its futures may panic: that counts
/// as a failure of the child.
pub trait Start: Send + 'static {
    /// Starts one incarnation. The child counts as started when the future is done.
    ///
    /// A child that has to end while it is still being started is ended by dropping this future:
    /// whatever it has brought to life by then must end with it.
    fn start(
        &mut self,
        child: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>>;

    /// What the tree calls such a child.
    fn kind(&self) -> ChildKind {
        ChildKind::Process
    }

    /// What [`SupervisorRef::handle`](super::SupervisorRef::handle) gives to users of this child,
    /// the same for all its incarnations.
    fn handle(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// The child will not be started again by this supervisor; `reason` is why its last incarnation
    /// ended.
    fn forgotten(&mut self, reason: &ExitReason) {
        let _ = reason;
    }
}

/// A started child.
pub struct Running {
    /// Where it runs, for the tree: `pid 4711`.
    pub place: Option<String>,
    /// Ends it. When this is dropped, the child must end as well, at once.
    pub control: Box<dyn Control>,
    /// Resolves when it has ended.
    pub exited: LocalBoxFuture<'static, ExitReason>,
}

impl Running {
    /// A started child that shows no place.
    pub fn new(
        control: impl Control + 'static,
        exited: impl Future<Output = ExitReason> + 'static,
    ) -> Running {
        Running { place: None, control: Box::new(control), exited: Box::pin(exited) }
    }

    /// Where it runs, for the tree: `pid 4711`.
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

/// Ends one incarnation of a child. Both calls return at once; the end itself is told by
/// [`Running::exited`].
pub trait Control {
    /// Asks it to end in its own time.
    fn shutdown(&mut self);

    /// Ends it now. [`Running::exited`] should then say `reason`, unless something else ended it
    /// before.
    fn kill(&mut self, reason: ExitReason);
}

/// What a child may know about itself when it is started.
#[derive(Clone)]
pub struct ChildContext {
    pub(super) identity: Arc<Identity>,
    pub(super) incarnation: u64,
    pub(super) entry: EntryId,
    pub(super) arbiter: Option<ArbiterHandle>,
}

impl ChildContext {
    /// Its name.
    pub fn name(&self) -> &str {
        self.identity.name()
    }

    /// Its full name, with the supervisors above it: `app/counter`.
    pub fn path(&self) -> &str {
        self.identity.path()
    }

    /// Which incarnation this is, counted from 1.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// How many incarnations were before this one.
    pub(crate) fn restarts(&self) -> u64 {
        self.incarnation.saturating_sub(1)
    }

    /// The arbiter that its specification [asks for](super::ChildSpec::on).
    pub fn arbiter(&self) -> Option<&ArbiterHandle> {
        self.arbiter.as_ref()
    }

    /// Changes where the tree says that it runs. Ignored if this incarnation is not the current
    /// one.
    pub fn set_place(&self, place: impl Into<String>) {
        let place = place.into();
        self.entry.update(|facts| {
            if facts.incarnation == self.incarnation {
                facts.place = Some(place);
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
