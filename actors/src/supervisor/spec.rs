//! What a supervisor must know about a child.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ArbiterHandle, Context};
use fiber_core::{Conclusion, ExitReason, Function, Result};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::actor::{ActorStart, Lifecycle};
use super::builder::Builder;
use super::identity::Identity;
use super::nested::SupervisorStart;
use super::start::Start;
use crate::process::Process;

/// Which children are restarted when one has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Strategy {
    /// Only that one.
    #[default]
    OneForOne,
    /// All: the others are ended in reverse order, then all are started in order.
    OneForAll,
    /// That one and all that were started after it.
    RestForOne,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Strategy::OneForOne => "one for one",
            Strategy::OneForAll => "one for all",
            Strategy::RestForOne => "rest for one",
        })
    }
}

/// When a child that ended by itself is started again.
///
/// A child that is ended together with a failed sibling is started again with it, unless it is temporary.
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

/// Which failures of a child count towards the supervisor's [intensity](Builder::intensity) and lengthen the
/// [pause](super::Backoff) before its next restart. After one that does not, the child is restarted at once.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Counts {
    /// All.
    #[default]
    Always,
    /// Only those of the start itself: a child that was started may fail as often as it likes.
    BeforeReady,
    /// Those that this says: it is given why the child ended, and for how long it ran (`None` if it could not be
    /// started).
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

    /// An actix actor. Each incarnation is made by `factory`, on the thread on which it will run.
    ///
    /// That thread is never the supervisor's. All supervised actors share one, `fiber-actors`, unless told
    /// [otherwise](ChildSpec::on). The child counts as started when its `started` has returned.
    pub fn actor<A>(name: impl Into<String>, factory: impl Fn() -> A + Send + 'static) -> ChildSpec
    where
        A: Actor<Context = Context<A>>,
    {
        ChildSpec::actor_with(name, factory, Arc::new(()))
    }

    /// An actor in whose life something else takes part.
    pub(crate) fn actor_with<A>(
        name: impl Into<String>,
        factory: impl Fn() -> A + Send + 'static,
        lifecycle: Arc<dyn Lifecycle<A>>,
    ) -> ChildSpec
    where
        A: Actor<Context = Context<A>>,
    {
        ChildSpec::new(name, ActorStart::new(factory, lifecycle))
    }

    /// An OS process that runs one function, from its arguments again for each incarnation. The tree shows its pid.
    ///
    /// To return is a normal end; an `Err`, a panic and the process's death are failures. It is asked to end by SIGTERM,
    /// which ends a process that does not handle it at once, and killed after its [shutdown](ChildSpec::shutdown)
    /// deadline. [`ProcessBuilder::child`](crate::ProcessBuilder::child) makes one with resources or output of its own.
    ///
    /// # Errors
    /// As [`ProcessBuilder::spawn`](crate::ProcessBuilder::spawn).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// use fiber::Supervisor;
    /// use fiber::supervisor::{ChildSpec, Restart, Shutdown};
    ///
    /// fn serve(name: String) -> Result<(), std::io::Error> {
    ///     println!("{name} is at work");
    ///     loop {
    ///         std::thread::park();
    ///     }
    /// }
    ///
    /// let server = ChildSpec::process("server", serve, "a".to_string())?
    ///     .restart(Restart::Transient)
    ///     .shutdown(Shutdown::After(Duration::from_secs(1)));
    /// let app = Supervisor::builder("app").child(server).start().wait()?;
    /// println!("{}", fiber::tree()); // app, and below it: server  running  pid 4711  0s
    /// app.shutdown().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn process<F, A, M, N>(name: impl Into<String>, function: F, args: A) -> Result<ChildSpec>
    where
        F: Function<A, M>,
        A: Serialize + DeserializeOwned,
        F::Output: Conclusion<N>,
        N: 'static,
    {
        Process::builder().name(name).child(function, args)
    }

    /// Another supervisor; the name counts, not the builder's. It is waited for without limit when it has to end, as
    /// it limits the time of its own children.
    ///
    /// When it is restarted, it starts with the builder's children: those that were added later are lost.
    pub fn supervisor(name: impl Into<String>, builder: Builder) -> ChildSpec {
        let name = name.into();
        let spec = ChildSpec::new(name, SupervisorStart::new(builder));
        spec.shutdown(Shutdown::Wait)
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
