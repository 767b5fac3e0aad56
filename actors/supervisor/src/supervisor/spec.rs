//! Specifications of children.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::ArbiterHandle;
use fiber_core::{Error, ExitReason, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use super::machine::Rules;
use super::start::Start;
use crate::options::builder_options;

/// When a child is restarted after it ended by itself.
///
/// A child that stops together with a failed sibling is restarted with it, unless it is temporary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restart {
    /// Always.
    #[default]
    Permanent,
    /// Only after a failure: see [`ExitReason::is_normal`].
    Transient,
    /// Never. The supervisor removes the child.
    Temporary,
}

/// How a child is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shutdown {
    /// The supervisor kills it at once.
    Kill,
    /// The supervisor asks it to end, and kills it after this time.
    After(Duration),
    /// The supervisor asks it to end, and waits without limit.
    Wait,
}

impl Default for Shutdown {
    /// Returns a limit of 5 seconds.
    fn default() -> Shutdown {
        Shutdown::After(Duration::from_secs(5))
    }
}

impl Restart {
    /// Returns whether a child is restarted that has ended by itself for this reason.
    #[doc(hidden)]
    pub fn follows(self, reason: &ExitReason) -> bool {
        match self {
            Restart::Permanent => true,
            Restart::Transient => !reason.is_normal(),
            Restart::Temporary => false,
        }
    }
}

impl From<Duration> for Shutdown {
    /// Returns [`Shutdown::After`].
    fn from(limit: Duration) -> Shutdown {
        Shutdown::After(limit)
    }
}

/// Which failures of a child count.
///
/// A failure that counts adds to the supervisor's [intensity](super::SupervisorBuilder::intensity),
/// and lengthens the [pause](super::Backoff) before the next restart. After one that does not
/// count, the child is restarted at once.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::error::ExitReason;
/// use fiber::supervisor::{ChildSpec, Counts};
///
/// // A machine that is drained is no fault of the server.
/// let evicted = |reason: &ExitReason, _| !matches!(reason, ExitReason::Evicted(_));
/// let server = ChildSpec::process("server", || std::thread::park(), ())?;
/// let server = server.counts(Counts::When(evicted));
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Counts {
    /// All failures.
    #[default]
    Always,
    /// Only failures of the start: once started, the child may fail as often as it likes.
    BeforeReady,
    /// Those for which the function returns `true`. Its arguments are why the child ended, and how
    /// long it ran: `None` if it could not be started.
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

/// A child's name, how to start it, when to restart it and how to stop it.
///
/// [`ChildSpec::actor`], [`ChildSpec::process`] and [`ChildSpec::supervisor`] make specifications
/// of the usual children, [`ChildSpec::new`] of any other.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use fiber::prelude::*;
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
/// assert_eq!(spec.name(), "counter");
/// ```
#[must_use]
pub struct ChildSpec {
    pub(super) identity: Arc<Identity>,
    pub(super) start: Arc<Mutex<dyn Start>>,
    pub(super) rules: Rules,
    pub(super) arbiter: Option<ArbiterHandle>,
}

impl ChildSpec {
    /// Returns the specification of a child of any kind. [`Start`] has an example.
    ///
    /// The name has at least one character and no `/`, and is unique among the supervisor's
    /// children; the supervisor checks that.
    pub fn new(name: impl Into<String>, start: impl Start) -> ChildSpec {
        ChildSpec {
            identity: Arc::new(Identity::new(name.into())),
            start: Arc::new(Mutex::new(start)),
            rules: Rules::default(),
            arbiter: None,
        }
    }

    builder_options! {
        /// The default is [always](Restart::Permanent).
        restart => rules.restart;
    }

    /// Sets how the child is stopped: a [`Shutdown`], or a time limit. The default is [within 5
    /// seconds](Shutdown::After).
    /// [`ChildSpec`] has an example.
    pub fn shutdown(mut self, shutdown: impl Into<Shutdown>) -> ChildSpec {
        self.rules.shutdown = shutdown.into();
        self
    }

    /// Sets which failures count; the default is [all](Counts::Always). [`Counts`] has an example.
    pub fn counts(mut self, counts: Counts) -> ChildSpec {
        self.rules.counts = counts;
        self
    }

    /// Sets the arbiter on which an actor runs. Other children may ignore it.
    ///
    /// The actor's handlers then delay no other supervised actor. If the arbiter has ended, the
    /// child's start fails.
    ///
    /// # Examples
    /// ```
    #[doc = include_str!("../doc/counter.md")]
    /// use fiber::supervisor::ChildSpec;
    ///
    /// #[fiber::main]
    /// async fn main() -> fiber::Result<()> {
    ///     let arbiter = Arbiter::new(); // a thread of its own
    ///     let spec = ChildSpec::actor("counter", || Counter(0)).on(arbiter.handle());
    ///     let app = fiber::Supervisor::builder("app").child(spec).start().await?;
    ///     assert_eq!(app.child::<Counter>("counter")?.send(Add(1)).await?, 1);
    ///     app.stop().await
    /// }
    /// ```
    pub fn on(mut self, arbiter: ArbiterHandle) -> ChildSpec {
        self.arbiter = Some(arbiter);
        self
    }

    /// Ends the supervisor, as after too many failures, when the child gives up restarting what is in
    /// it.
    #[doc(hidden)]
    pub fn gives_up_itself(mut self) -> ChildSpec {
        self.rules.gives_up_itself = true;
        self
    }

    /// Returns the child's name. [`ChildSpec`] has an example.
    pub fn name(&self) -> &str {
        self.identity.name()
    }

    /// Returns the same child, for the next incarnation of its supervisor.
    pub(super) fn share(&self) -> ChildSpec {
        ChildSpec {
            identity: self.identity.clone(),
            start: self.start.clone(),
            rules: self.rules,
            arbiter: self.arbiter.clone(),
        }
    }

    /// Returns whether its start needs the thread that supervised actors share.
    pub(super) fn starts_on_shared_thread(&self) -> bool {
        self.arbiter.is_none() && self.start.lock().starts_on_shared_thread()
    }

    /// Informs handles that the child has ended by itself.
    pub(super) fn finished(&self, reason: &ExitReason) {
        self.start.lock().finished(reason);
        self.identity.finish(reason);
    }

    /// Informs handles and watchers that the child is not started again.
    pub(super) fn removed(&self, reason: &ExitReason) {
        self.start.lock().removed(reason);
        self.identity.close(reason);
    }
}

/// Checks the names of a supervisor's first children.
///
/// # Errors
/// [`Error::Invalid`].
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
pub fn check_name(method: &'static str, name: &str) -> Result<()> {
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
            .field("restart", &self.rules.restart)
            .field("shutdown", &self.rules.shutdown)
            .field("counts", &self.rules.counts)
            .finish_non_exhaustive()
    }
}
