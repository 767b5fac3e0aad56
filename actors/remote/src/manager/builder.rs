//! The options of a manager before its start.

use std::marker::PhantomData;
use std::panic::Location;

use actix::{Actor, Context};
use fiber_core::{Error, Meta, Result};
use fiber_journal::Journal;
use fiber_values::codec::EncodedValue;
use fiber_values::{Function, Portable, assert_captures_nothing, codec, transfer};
use tokio::sync::oneshot;

use super::AsyncManager;
use super::hosted::ActorEntry;
use super::last_snapshot::LastSnapshot;
use super::process::ActorMain;
use super::snapshot::{NoSnapshots, SnapshotInterval, SnapshotPolicy, Snapshots};
use super::start::{ManagerSpec, ProcessChoice};
use crate::names::Registered;
use crate::remote::RemoteAddr;
use fiber_runtime::durable::{DurableState, ObjectKind};
use fiber_runtime::mesh::{Full, ProcessRef};
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::{HostRule, Runtime};
use fiber_supervisor::options::{ProcessOptions, builder_options};
use fiber_supervisor::supervisor::{ChildSpec, Restart, RestartLimits, Shutdown, check_name};

/// A builder that configures and starts a managed actor. [`AsyncManager::builder`] returns one.
///
/// # Examples
/// ```
/// # fiber::init();
/// use std::time::Duration;
///
/// use fiber::config::OutputMode;
/// use fiber::prelude::*;
/// use fiber::supervisor::{Backoff, Restart};
///
/// struct Echo;
///
/// impl Actor for Echo {
///     type Context = Context<Self>;
/// }
///
/// #[fiber::message(String)]
/// struct Say(String);
///
/// #[fiber::handlers]
/// impl Echo {
///     fn say(&mut self, say: Say) -> String {
///         say.0
///     }
/// }
///
/// let builder = AsyncManager::builder()
///     .name("echo")
///     .output(OutputMode::Prefix)
///     .mailbox(1000)
///     .restart(Restart::Permanent)
///     .intensity(10, Duration::from_secs(60))
///     .backoff(Backoff::none())
///     .shutdown(Duration::from_secs(1));
/// let echo = builder.start(|| Echo, ()).wait()?;
/// assert_eq!(echo.send(Say("hello".into())).wait()?, "hello");
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start` or `child` is called"]
pub struct ManagerBuilder<P = NoSnapshots> {
    options: ProcessOptions,
    restart: Restart,
    shutdown: Option<Shutdown>,
    limits: RestartLimits,
    mailbox: usize,
    full: Full,
    interval: SnapshotInterval,
    journal: Option<Journal>,
    registered: Option<String>,
    /// See `placement`.
    pub(super) host: HostRule,
    pub(super) process: ProcessChoice,
    policy: PhantomData<fn() -> P>,
}

impl ManagerBuilder<Snapshots> {
    /// Records the snapshots in a journal, so that a program that is started again finds the actor
    /// in the state of its last snapshot.
    ///
    /// The actor's name and the journal's version identify it: set the [name](Self::name). A
    /// snapshot counts when it is on the disk. The effects of later messages are lost with the
    /// program, as they are with the actor's process. If a snapshot can't be recorded, the actor
    /// ends, and its calls fail with the journal's error.
    ///
    /// Only the program's first process can start a durable actor.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let journal = Journal::at(directory.path());
    /// use fiber::manager::{Snapshot, Snapshots};
    /// use fiber::prelude::*;
    ///
    /// struct Visitors(u64);
    ///
    /// impl Actor for Visitors {
    ///     type Context = Context<Self>;
    /// }
    ///
    /// impl Snapshot for Visitors {
    ///     type State = u64;
    ///
    ///     fn snapshot(&self) -> u64 {
    ///         self.0
    ///     }
    ///
    ///     fn restore(&mut self, state: u64) {
    ///         self.0 = state;
    ///     }
    /// }
    ///
    /// #[fiber::message(u64)]
    /// struct Enter;
    ///
    /// #[fiber::handlers]
    /// impl Visitors {
    ///     fn enter(&mut self, _: Enter) -> u64 {
    ///         self.0 += 1;
    ///         self.0
    ///     }
    /// }
    ///
    /// let builder = AsyncManager::builder()
    ///     .name("visitors")
    ///     .snapshots(Snapshots::every_messages(1))
    ///     .durable(journal);
    /// let visitors = builder.start(Visitors, 0).wait()?;
    /// println!("visitor {} of all runs of this program", visitors.send(Enter).wait()?);
    /// # visitors.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn durable(mut self, journal: impl Into<Journal>) -> ManagerBuilder<Snapshots> {
        self.journal = Some(journal.into());
        self
    }
}

impl ManagerBuilder {
    pub(crate) fn new() -> ManagerBuilder {
        ManagerBuilder {
            options: ProcessOptions::default(),
            restart: Restart::Transient,
            shutdown: None,
            limits: RestartLimits::default(),
            mailbox: usize::MAX,
            full: Full::default(),
            interval: SnapshotInterval::default(),
            journal: None,
            registered: None,
            host: HostRule::default(),
            process: ProcessChoice::Own,
            policy: PhantomData,
        }
    }
}

impl<P> ManagerBuilder<P> {
    builder_options! {
        /// The default is `manager-1` and so on.
        name => options.name;
        /// They take precedence over those in the factory's `#[fiber::meta]`.
        meta => options.meta;
        output => options.output;
        /// The default is [`Restart::Transient`]: after any end but that of an actor that stopped
        /// itself.
        restart => restart;
        /// The limit counts the restarts of the actor in its process, after panics, and separately
        /// those of the process. When another one is needed, the actor ends for good with
        /// [`ExitReason::IntensityReached`](fiber_core::ExitReason::IntensityReached).
        intensity => limits.intensity;
        /// The pauses precede restarts of the actor in its process, and those of the process.
        backoff => limits.backoff;
    }

    /// Sets how the actor's process is stopped: a [`Shutdown`], or the time limit after which it is
    /// killed. [`ManagerBuilder`] has an example.
    ///
    /// An actor in the process of others is dropped at that time, once its handler returns.
    /// The default is `shutdown_timeout` of the [configuration](fiber_core::Config).
    pub fn shutdown(mut self, shutdown: impl Into<Shutdown>) -> ManagerBuilder<P> {
        self.shutdown = Some(shutdown.into());
        self
    }

    /// Sets how many messages can wait in the actor's mailbox, at least 1. [`ManagerBuilder`] has
    /// an example.
    ///
    /// [`when_full`](ManagerBuilder::when_full) says what happens to further ones. By default there
    /// is no limit.
    pub fn mailbox(mut self, capacity: usize) -> ManagerBuilder<P> {
        self.mailbox = capacity;
        self
    }

    /// Sets what happens when a message comes to a full [mailbox](ManagerBuilder::mailbox). The
    /// default is [`Full::Fail`].
    ///
    /// But for [`Full::Wait`], the actor's process decides, so a refused call costs a round trip.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// use fiber::AsyncManager;
    /// use fiber::manager::Full;
    ///
    /// let builder = AsyncManager::builder().mailbox(100).when_full(Full::DropOldest);
    /// let counter = builder.start(Counter, 0).wait()?;
    /// (0..1000).for_each(|_| counter.do_send(Add(1)));
    /// // It has added some of the first messages, and the last ones.
    /// assert!(counter.send(Add(1)).wait()? >= 100);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn when_full(mut self, full: Full) -> ManagerBuilder<P> {
        self.full = full;
        self
    }

    /// Gives the actor a name in the session, by which [`fiber::find`](crate::names::find) finds it
    /// in any process. [`find`](crate::names::find) has an example.
    ///
    /// The actor gets the name before its process starts, and keeps it across restarts. The start
    /// fails if another actor has the name. See [`RemoteAddr::register`].
    pub fn registered(mut self, name: impl Into<String>) -> ManagerBuilder<P> {
        self.registered = Some(name.into());
        self
    }

    /// Takes snapshots of the actor's state, from which it continues after a restart.
    ///
    /// The actor has to implement [`Snapshot`](super::Snapshot), which has an example. Each
    /// snapshot is encoded on the actor's thread and sent to the manager's process, which keeps the
    /// last one.
    pub fn snapshots(self, when: Snapshots) -> ManagerBuilder<Snapshots> {
        ManagerBuilder {
            options: self.options,
            restart: self.restart,
            shutdown: self.shutdown,
            limits: self.limits,
            mailbox: self.mailbox,
            full: self.full,
            interval: when.into(),
            journal: self.journal,
            registered: self.registered,
            host: self.host,
            process: self.process,
            policy: PhantomData,
        }
    }

    /// Starts a process in which `factory` makes the actor from `args`. [`ManagerBuilder`] has an
    /// example.
    ///
    /// `args` is one value, a tuple for a factory with several parameters, or `()`. The call
    /// returns at once; the reply is ready when the actor has started, which takes the start of a
    /// process. Dropping the reply before that ends the process.
    ///
    /// # Errors
    /// [`Error::Start`] if the process cannot start or the factory panics; [`Error::Invalid`] if
    /// the mailbox's capacity is 0, the name is empty or contains `/`, the actor can't be durable,
    /// or a host is chosen for an actor [within](Self::within) a process; [`Error::Journal`];
    /// [`Error::Encode`] or [`Error::TooLarge`] for the arguments; [`Error::NotInitialized`].
    #[track_caller]
    pub fn start<F, Args, M>(self, factory: F, args: Args) -> Reply<AsyncManager<F::Output>>
    where
        F: Function<Args, M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Portable + 'static,
        M: 'static,
        P: SnapshotPolicy<F::Output>,
    {
        const { assert_captures_nothing::<F>() };
        let prepared = self.prepare(factory, &args);
        drop(args);
        let (done, started) = oneshot::channel();
        let runtime = prepared.map(|(runtime, spec)| {
            runtime.spawn(move || spec.start(runtime, done));
            runtime
        });
        Reply::new(async move {
            let runtime = runtime?;
            let ended =
                |_| Err(Error::system("starting the manager failed", "fiber's thread ended"));
            let (owner, inner) = started.await.unwrap_or_else(ended)?;
            let addr = RemoteAddr::owned(runtime, owner, &inner.actor.owned);
            Ok(AsyncManager { addr, inner })
        })
    }

    /// Returns the managed actor as a child specification for a supervisor, and its address.
    ///
    /// Nothing starts before the supervisor starts the child; from then on the address is valid.
    /// The supervisor's intensity and backoff apply to restarts of the process, the builder's
    /// intensity to restarts of the actor within it.
    ///
    /// # Errors
    /// As [`start`](ManagerBuilder::start), except [`Error::Start`]; [`Error::Invalid`] for an
    /// actor in the process of others.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::prelude::*;
    ///
    /// struct Clock;
    ///
    /// #[fiber::message(u32)]
    /// struct Tick;
    ///
    /// impl Actor for Clock {
    ///     type Context = Context<Self>;
    /// }
    ///
    /// #[fiber::handlers]
    /// impl Clock {
    ///     fn tick(&mut self, _: Tick) -> u32 {
    ///         1
    ///     }
    /// }
    ///
    /// let (child, clock) = AsyncManager::builder().name("clock").child(|| Clock, ())?;
    /// let app = Supervisor::builder("app").child(child).start().wait()?;
    /// assert_eq!(clock.send(Tick).wait()?, 1);
    /// println!("{}", fiber::tree());
    /// app.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn child<F, Args, M>(
        self,
        factory: F,
        args: Args,
    ) -> Result<(ChildSpec, RemoteAddr<F::Output>)>
    where
        F: Function<Args, M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Portable + 'static,
        M: 'static,
        P: SnapshotPolicy<F::Output>,
    {
        const { assert_captures_nothing::<F>() };
        let builder = self.with_own_process("ManagerBuilder::child")?;
        let (runtime, spec) = builder.prepare(factory, &args)?;
        let owner = ProcessRef { id: runtime.id(), address: runtime.address_now()?.into() };
        let name = spec.main.name.to_string();
        let (child, actor, _) = spec.child(runtime, &owner, name);
        Ok((child, RemoteAddr::owned(runtime, owner, &actor.owned)))
    }

    #[track_caller]
    pub(super) fn prepare<F, Args, M>(
        self,
        factory: F,
        args: &Args,
    ) -> Result<(&'static Runtime, ManagerSpec)>
    where
        F: Function<Args, M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Portable + 'static,
        M: 'static,
        P: SnapshotPolicy<F::Output>,
    {
        let _ = factory;
        let runtime = Runtime::get()?;
        let config = runtime.config();
        let entry = ActorEntry::<F, Args, M, P>::ENTRY;
        entry.passed_at(Location::caller());
        let (arguments, keep_alive) = transfer::repeatable(|| EncodedValue::new(args));
        let arguments = arguments?;
        codec::check_size(arguments.size(), config.max_message.as_u64(), || {
            format!("the arguments of `{}`", entry.display_name())
        })?;
        if self.mailbox == 0 {
            let problem = "a mailbox needs room for at least 1 message";
            return Err(Error::invalid("ManagerBuilder::mailbox", problem));
        }
        self.check_process()?;
        let durable = self.journal.as_ref().map(|journal| {
            let name = self.options.name.as_deref();
            DurableState::open(runtime, journal, ObjectKind::Actor, name)
        });
        let durable = durable.transpose()?;
        let journal = durable.as_ref().map(DurableState::journal_name);
        let snapshot = LastSnapshot::new(durable)?;
        let name = self.options.name_or_numbered("manager");
        check_name("ManagerBuilder::name", &name)?;
        let shutdown = self.shutdown.unwrap_or(Shutdown::After(config.shutdown_timeout));
        let main = ActorMain {
            entry: entry.reference(),
            name: name.into(),
            owned: None,
            arguments,
            snapshot: None,
            journal,
            interval: self.interval,
            mailbox: self.mailbox as u64,
            full: self.full,
            restart: self.restart,
            shutdown,
            limits: self.limits,
            has_run: false,
        };
        let spec = ManagerSpec {
            main,
            keep_alive,
            snapshot,
            meta: self.options.meta.or(Meta::of::<F>()),
            output: self.options.output(config),
            restart: self.restart,
            host: self.host,
            process: self.process,
            registered: self.registered.map(|name| Registered::new::<F::Output>(&name)),
        };
        Ok((runtime, spec))
    }
}
