//! What a supervisor must know about a child.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::ArbiterHandle;
use fiber_core::{Error, ExitReason, Result};
use parking_lot::Mutex;

use super::identity::Identity;
use super::start::Start;

/// When a child that ended by itself is started again.
///
/// A child that is ended together with a failed sibling is started again with it, unless it is
/// temporary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// Always.
    #[default]
    Permanent,
    /// Only if it [failed](ExitReason::is_normal).
    Transient,
    /// Never: it is forgotten.
    Temporary,
}

/// How a child is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// It is killed at once.
    Kill,
    /// It is asked to end, and killed if it has not within this time.
    After(Duration),
    /// It is asked to end, and waited for as long as it takes.
    Wait,
}

impl Default for Shutdown {
    /// Within 5 seconds.
    fn default() -> Shutdown {
        Shutdown::After(Duration::from_secs(5))
    }
}

/// Which failures of a child count towards the supervisor's [intensity](super::SupervisorBuilder::intensity)
/// and lengthen the [pause](super::Backoff) before its next restart. After one that does not, the
/// child is restarted at once.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Counts {
    /// All.
    #[default]
    Always,
    /// Only those of the start itself: a child that was started may fail as often as it likes.
    BeforeReady,
    /// Those that this says: it is given why the child ended, and for how long it ran (`None` if it
    /// could not be started).
    When(fn(&ExitReason, Option<Duration>) -> bool),
}

impl Counts {
    pub(super) fn apply(self, reason: &ExitReason, ran: Option<Duration>) -> bool {
        match self {
            Counts::Always => true,
            Counts::BeforeReady => ran.is_none(),
            Counts::When(applies) => applies(reason, ran),
        }
    }
}

/// A child's name, how to start it, when to restart it and how to end it.
///
/// ```
/// use std::time::Duration;
///
/// use actix::{Actor, Context};
/// use fiber::supervisor::{ChildSpec, Restart, Shutdown};
///
/// struct Counter(u64);
///
/// impl Actor for Counter {
///     type Context = Context<Self>;
/// }
///
/// let spec = ChildSpec::actor("counter", || Counter(0))
///     .restart(Restart::Transient)
///     .shutdown(Shutdown::After(Duration::from_secs(1)));
/// ```
#[must_use]
pub struct ChildSpec {
    pub(super) identity: Arc<Identity>,
    pub(super) start: Arc<Mutex<dyn Start>>,
    pub(super) restart: Restart,
    pub(super) shutdown: Shutdown,
    pub(super) counts: Counts,
    pub(super) arbiter: Option<ArbiterHandle>,
}

impl ChildSpec {
    /// A child of any kind. Names are unique within a supervisor and contain no `/`.
    pub fn new(name: impl Into<String>, start: impl Start) -> ChildSpec {
        ChildSpec {
            identity: Arc::new(Identity::new(name.into())),
            start: Arc::new(Mutex::new(start)),
            restart: Restart::default(),
            shutdown: Shutdown::default(),
            counts: Counts::default(),
            arbiter: None,
        }
    }

    /// When it is started again: always, by default.
    pub fn restart(mut self, restart: Restart) -> ChildSpec {
        self.restart = restart;
        self
    }

    /// How it is ended: within 5 seconds by default.
    pub fn shutdown(mut self, shutdown: Shutdown) -> ChildSpec {
        self.shutdown = shutdown;
        self
    }

    /// Which of its failures count: all, by default.
    pub fn counts(mut self, counts: Counts) -> ChildSpec {
        self.counts = counts;
        self
    }

    /// The arbiter on which an actor runs.
    pub fn on(mut self, arbiter: ArbiterHandle) -> ChildSpec {
        self.arbiter = Some(arbiter);
        self
    }

    /// The child's name.
    pub fn name(&self) -> &str {
        self.identity.name()
    }

    /// The same child, for the next incarnation of its supervisor.
    pub(super) fn share(&self) -> ChildSpec {
        ChildSpec {
            identity: self.identity.clone(),
            start: self.start.clone(),
            restart: self.restart,
            shutdown: self.shutdown,
            counts: self.counts,
            arbiter: self.arbiter.clone(),
        }
    }

    /// It will not be started again.
    pub(super) fn forget(&self, reason: &ExitReason) {
        self.start.lock().forgotten(reason);
        self.identity.gone(reason);
    }
}

/// # Errors
/// What is wrong with the children's names.
pub(super) fn check_names(specs: &[ChildSpec]) -> Result<()> {
    let mut names = HashSet::new();
    for spec in specs {
        check_name("ChildSpec::new", spec.name())?;
        if !names.insert(spec.name()) {
            let problem = format!("there are two children with the name `{}`", spec.name());
            return Err(Error::invalid("ChildSpec::new", problem));
        }
    }
    Ok(())
}

/// Checks a name, which is part of a path in the tree. `method` set it.
///
/// # Errors
/// [`Error::Invalid`].
pub(crate) fn check_name(method: &'static str, name: &str) -> Result<()> {
    if name.is_empty() || name.contains('/') {
        let problem = format!("`{name}` can't be a name: use at least one character, and no `/`");
        return Err(Error::invalid(method, problem));
    }
    Ok(())
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("name", &self.name())
            .field("restart", &self.restart)
            .field("shutdown", &self.shutdown)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
