//! Options of supervisors, and the start of those at the top of a tree.

use std::sync::Arc;

use actix::ArbiterHandle;
use fiber_core::{Error, ExitReason, Result};
use tokio::sync::oneshot;

use super::actor::is_shared_in;
use super::driver::Supervisor;
use super::identity::{DownGuard, Identity};
use super::intensity::RestartLimits;
use super::machine::Options;
use super::nested::SupervisorStart;
use super::spec::{ChildSpec, Shutdown, check_name, check_names};
use super::start::{ChildContext, Start};
use super::supervisor_ref::SupervisorRef;
use super::tree::{ChildState, Entry};
use crate::options::builder_options;
use fiber_core::stats::Strategy;
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Runtime;

/// Configures and starts a [`Supervisor`]. [`Supervisor::builder`] returns one.
///
/// # Examples
/// ```
/// # fiber::init();
/// use std::time::Duration;
///
/// use fiber::Supervisor;
/// use fiber::supervisor::{Backoff, ChildSpec, Strategy};
///
/// let app = Supervisor::builder("app")
///     .strategy(Strategy::RestForOne)
///     .intensity(10, Duration::from_secs(60))
///     .backoff(Backoff::new(Duration::from_millis(10), Duration::from_secs(1)))
///     .child(ChildSpec::process("store", || std::thread::park(), ())?)
///     .child(ChildSpec::process("server", || std::thread::park(), ())?)
///     .start()
///     .wait()?;
/// app.stop().wait()?; // `server` first, then `store`
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct SupervisorBuilder {
    name: String,
    options: Options,
    specs: Vec<ChildSpec>,
}

impl Supervisor {
    /// Returns the options of a supervisor, without children and [one for
    /// one](Strategy::OneForOne). [`SupervisorBuilder`] has an example.
    pub fn builder(name: impl Into<String>) -> SupervisorBuilder {
        SupervisorBuilder { name: name.into(), options: Options::default(), specs: Vec::new() }
    }
}

impl ChildSpec {
    /// Returns the specification of another supervisor. Its name is `name`, not the builder's. Its
    /// own children have deadlines, so it has none to stop: [`Shutdown::Wait`].
    ///
    /// A restarted supervisor starts the builder's children. Those that were added later are gone.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::Supervisor;
    /// use fiber::supervisor::{ChildSpec, Strategy};
    ///
    /// let workers = Supervisor::builder("").strategy(Strategy::OneForAll);
    /// let app = Supervisor::builder("app")
    ///     .child(ChildSpec::supervisor("workers", workers))
    ///     .start()
    ///     .wait()?;
    /// assert_eq!(app.supervisor("workers")?.path(), "app/workers");
    /// # app.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn supervisor(name: impl Into<String>, builder: SupervisorBuilder) -> ChildSpec {
        let name = name.into();
        let spec = ChildSpec::new(name, SupervisorStart::new(builder.options, builder.specs));
        spec.shutdown(Shutdown::Wait)
    }
}

impl SupervisorBuilder {
    /// Sets which children are restarted when one fails; the default is [only that
    /// one](Strategy::OneForOne). [`SupervisorBuilder`] has an example.
    pub fn strategy(mut self, strategy: Strategy) -> SupervisorBuilder {
        self.options.strategy = strategy;
        self
    }

    builder_options! {
        /// One failure more than that stops the supervisor. A failure counts once, however many
        /// children are restarted for it.
        intensity => options.limits.intensity;
        /// The default is that of [`Backoff`](super::Backoff).
        backoff => options.limits.backoff;
    }

    /// Emits no events, because the caller does.
    #[doc(hidden)]
    pub fn quiet(mut self) -> SupervisorBuilder {
        self.options.is_quiet = true;
        self
    }

    /// Sets the intensity and the backoff.
    #[doc(hidden)]
    pub fn limits(mut self, limits: RestartLimits) -> SupervisorBuilder {
        self.options.limits = limits;
        self
    }

    /// Shows the only child, which has the supervisor's name, in place of the supervisor. It is for
    /// one at the top.
    #[doc(hidden)]
    pub fn of_one(mut self) -> SupervisorBuilder {
        self.options.is_of_one = true;
        self
    }

    /// Adds a child, which starts after those before it. [`SupervisorBuilder`] has an example.
    ///
    /// [`SupervisorRef::add_child`] adds one to a running supervisor.
    pub fn child(mut self, spec: ChildSpec) -> SupervisorBuilder {
        self.specs.push(spec);
        self
    }

    /// Starts the supervisor on fiber's own thread. The reply comes when all children have started.
    ///
    /// Actors among the children run on another thread: see [`ChildSpec::actor`]. If the reply is
    /// dropped before it is ready, the supervisor stops.
    ///
    /// # Errors
    /// As [`start_on`](SupervisorBuilder::start_on); [`Error::NotInitialized`] and
    /// [`Error::Config`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::prelude::*;
    /// use fiber::supervisor::ChildSpec;
    ///
    /// struct Counter(u64);
    ///
    /// impl Actor for Counter {
    ///     type Context = Context<Self>;
    /// }
    ///
    /// #[fiber::message(u64)]
    /// struct Add(u64);
    ///
    /// #[fiber::handlers]
    /// impl Counter {
    ///     fn add(&mut self, Add(number): Add) -> u64 {
    ///         self.0 = self.0.checked_add(number).expect("it counts to 2^64");
    ///         self.0
    ///     }
    /// }
    ///
    /// let spec = ChildSpec::actor("counter", || Counter(0));
    /// let app = Supervisor::builder("app").child(spec).start().wait()?;
    /// let counter = app.child::<Counter>("counter")?;
    /// assert_eq!(counter.send(Add(7)).wait()?, 7);
    ///
    /// // The call that makes the actor panic fails, with the panic's message. The next call gets
    /// // to a new actor.
    /// let error = counter.send(Add(u64::MAX)).wait().unwrap_err();
    /// assert!(error.to_string().contains("it counts to 2^64"));
    /// assert_eq!(counter.send(Add(1)).wait()?, 1);
    /// app.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn start(self) -> Reply<SupervisorRef> {
        let runtime = match Runtime::get() {
            Ok(runtime) => runtime,
            Err(error) => return Reply::new(async { Err(error) }),
        };
        let name = self.name.clone();
        let is_shared = self.specs.iter().any(ChildSpec::starts_on_shared_thread);
        let (started, answer) = oneshot::channel();
        runtime.spawn(move || async move {
            // The caller may have dropped the reply.
            let _ = started.send(self.start_on(runtime.arbiter()).await.map(StopGuard::new));
        });
        let supervisor = async move {
            let ended = |_| Error::not_started(name, "fiber's thread has ended");
            answer.await.map_err(ended)?.map(StopGuard::disarm)
        };
        Reply::checked(supervisor, move || is_shared && is_shared_in(runtime.system()))
    }

    /// Starts the supervisor on the thread of `arbiter`. The reply is ready when all children have
    /// started.
    ///
    /// Code that blocks that thread delays restarts. If the reply is dropped before it is ready,
    /// the supervisor stops.
    ///
    /// # Errors
    /// [`Error::Start`] if a child could not start (the supervisor has stopped those before it by
    /// then), or if the arbiter has ended; [`Error::Invalid`] for names.
    ///
    /// # Examples
    /// ```
    /// use fiber::prelude::*;
    ///
    /// #[fiber::main]
    /// async fn main() -> fiber::Result<()> {
    ///     let arbiter = Arbiter::new();
    ///     let app = Supervisor::builder("app").start_on(&arbiter.handle()).await?;
    ///     app.stop().await
    /// }
    /// ```
    pub fn start_on(self, arbiter: &ArbiterHandle) -> Reply<SupervisorRef> {
        let checked = check_name("Supervisor::builder", &self.name);
        if let Err(error) = checked.and_then(|()| check_names(&self.specs)) {
            return Reply::new(std::future::ready(Err(error)));
        }
        let identity = Arc::new(Identity::new(self.name));
        let start = SupervisorStart::new(self.options, self.specs);
        let supervisor = SupervisorRef::top_level(identity.clone(), start.handle.clone());
        let name = identity.name().to_string();
        let (started, done) = oneshot::channel();
        let top_level = TopLevel::new(start, identity);
        arbiter.spawn_fn(move || {
            fiber_core::spawn_local(top_level.run(started));
        });
        Reply::new(async move {
            match done.await {
                Ok(Ok(())) => Ok(supervisor),
                Ok(Err(reason)) => Err(Error::Start { name, reason }),
                Err(_) => Err(Error::not_started(name, "its arbiter has ended")),
            }
        })
    }
}

/// Stops a started supervisor that its caller did not take: nothing else could ever stop it.
struct StopGuard(Option<SupervisorRef>);

impl StopGuard {
    fn new(supervisor: SupervisorRef) -> StopGuard {
        StopGuard(Some(supervisor))
    }

    fn disarm(mut self) -> SupervisorRef {
        self.0.take().expect("it is disarmed once")
    }
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        if let Some(supervisor) = &self.0 {
            drop(supervisor.stop());
        }
    }
}

/// Does for a supervisor at the top what a supervisor does for its children.
struct TopLevel {
    start: SupervisorStart,
    identity: Arc<Identity>,
    alive: Option<(Entry, DownGuard)>,
    reason: ExitReason,
}

impl TopLevel {
    fn new(start: SupervisorStart, identity: Arc<Identity>) -> TopLevel {
        let entry = Entry::new(None, identity.name(), start.kind());
        let down_guard = DownGuard::new(identity.clone());
        TopLevel { start, identity, alive: Some((entry, down_guard)), reason: ExitReason::Shutdown }
    }

    async fn run(mut self, started: oneshot::Sender<Result<(), ExitReason>>) {
        let Some((entry, _)) = &self.alive else { return };
        let id = entry.id();
        id.update(|data| data.incarnation = 1);
        let child = ChildContext {
            identity: self.identity.clone(),
            incarnation: 1,
            entry: id,
            arbiter: None,
            has_worked: Arc::default(),
        };
        match self.start.start(child).await {
            Ok(mut running) => {
                id.update(|data| data.enter(ChildState::Running));
                if started.send(Ok(())).is_err() {
                    running.control.shutdown();
                }
                self.reason = running.exited.await;
            }
            Err(reason) => {
                self.reason = reason.clone();
                drop(self);
                let _ = started.send(Err(reason));
            }
        }
    }
}

impl Drop for TopLevel {
    fn drop(&mut self) {
        if let Some((entry, down_guard)) = self.alive.take() {
            drop(entry);
            down_guard.finish(&self.reason);
        }
        self.identity.close(&self.reason);
        // Last, as it wakes callers that wait for the end.
        self.start.removed(&self.reason);
    }
}
