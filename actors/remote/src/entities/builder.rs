//! The options of entities before their start.

use std::any::type_name;
use std::cell::OnceCell;
use std::marker::PhantomData;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context};
use fiber_core::{Error, Result, spawn_local};
use fiber_journal::Journal;
use fiber_runtime::durable::{DurableState, ObjectKind};
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::{Runtime, Spread};
use fiber_runtime::sources::Sources;
use fiber_supervisor::supervisor::Restart;
use fiber_values::codec::EncodedValue;
use fiber_values::{Function, Portable, assert_captures_nothing, codec, invoke, transfer};
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, RwLock, mpsc, oneshot, watch};

use super::addr::EntitiesAddr;
use super::coordinator::{Coordination, Coordinator};
use super::inspection::Owned;
use super::keeper::{Keeper, KeeperArgs, Plan, StateFns};
use super::owner::{Owner, Starter, replace_leaving};
use super::records::Records;
use super::reminders::{NoReminders, ReminderPolicy, Reminders, SendReminder, WithReminders};
use super::state::{EntityState, Events, EventsAndSnapshots, KeepsState, Kept};
use super::{Entities, reminders};
use crate::manager::{ManagerBuilder, NoSnapshots, SnapshotInterval, Snapshots};
use crate::names::{self, enter, member};
use crate::remote::RemoteAddr;

/// After this time without a message, an entity whose state is kept sleeps, unless
/// [`idle`](EntitiesBuilder::idle) says something else.
const IDLE: Duration = Duration::from_secs(600);

/// A builder that configures and starts [`Entities`]. [`Entities::builder`] returns one.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("../doc/account.md")]
/// use std::time::Duration;
///
/// let accounts = fiber::Entities::builder("accounts")
///     .processes(2)
///     .idle(Duration::from_secs(30))
///     .events()
///     .manager(|process| process.shutdown(Duration::from_secs(2)));
/// let accounts = accounts.start(|_: String, ()| Account::default(), ()).wait()?;
/// assert_eq!(accounts.of("anna").send(Deposit(3)).wait()?, 3);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until `start` is called"]
pub struct EntitiesBuilder<P = NoSnapshots, R = NoReminders> {
    name: String,
    processes: Option<usize>,
    idle: Option<Duration>,
    interval: SnapshotInterval,
    journal: Option<Journal>,
    manager: ManagerBuilder,
    /// Set if the processes are spread over hosts.
    spread: Option<Arc<Spread>>,
    policy: PhantomData<fn() -> (P, R)>,
}

impl EntitiesBuilder {
    pub(super) fn new(name: String) -> EntitiesBuilder {
        // A process whose entities can't be recorded ends, and starts again.
        let manager = ManagerBuilder::new().restart(Restart::Permanent);
        let interval = SnapshotInterval::default();
        EntitiesBuilder {
            name,
            processes: None,
            idle: None,
            interval,
            journal: None,
            manager,
            spread: None,
            policy: PhantomData,
        }
    }
}

impl<P, R> EntitiesBuilder<P, R> {
    /// Sets the number of processes, at least 1. The default is `processes` of the
    /// [configuration](fiber_core::Config), or the number of cores. [`EntitiesBuilder`] has an
    /// example.
    pub fn processes(mut self, count: usize) -> Self {
        self.processes = Some(count);
        self
    }

    /// Spreads the processes over hosts, as
    /// [`ActorPoolBuilder::spread`](crate::actor_pool::ActorPoolBuilder::spread).
    pub fn spread(mut self) -> Self {
        self.spread = Some(Spread::new(0));
        self
    }

    /// Sets after which time without a message an entity sleeps. [`EntitiesBuilder`] has an
    /// example.
    ///
    /// The default is 10 minutes for entities whose state is kept. Others sleep only if this is
    /// set: their next message finds the state that the factory gives them.
    pub fn idle(mut self, time: Duration) -> Self {
        self.idle = Some(time);
        self
    }

    /// Keeps the state of each entity by snapshots: those that `when` says, and one when it goes to
    /// sleep, moves or stops.
    ///
    /// The entities implement [`Snapshot`](crate::manager::Snapshot). A process that is killed
    /// loses the effects of all messages since the last snapshots of its entities. A snapshot by
    /// time is taken after the first message that comes after that time.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// use std::time::Duration;
    ///
    /// use fiber::Entities;
    /// use fiber::manager::{Snapshot, Snapshots};
    ///
    /// impl Snapshot for Counter {
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
    /// let users = Entities::builder("sleepers").processes(1).idle(Duration::from_millis(1));
    /// let users = users.snapshots(Snapshots::every_messages(100));
    /// let users = users.start(|_: String, ()| Counter(0), ()).wait()?;
    /// users.of("anna").send(Add(1)).wait()?;
    /// std::thread::sleep(Duration::from_millis(50));
    /// // It has slept meanwhile.
    /// assert_eq!(users.of("anna").send(Add(1)).wait()?, 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn snapshots(self, when: Snapshots) -> EntitiesBuilder<Snapshots, R> {
        EntitiesBuilder { interval: when.into(), ..self.with_policy() }
    }

    /// Keeps the state of each entity by its events: see [`EventSourced`](super::EventSourced),
    /// which has an example. An entity that starts applies all of them.
    pub fn events(self) -> EntitiesBuilder<Events, R> {
        self.with_policy()
    }

    /// Keeps the state of each entity by its events, and a snapshot after each `count` of them,
    /// which replaces them: an entity that starts applies the events since.
    ///
    /// The entities implement [`EventSourced`](super::EventSourced) and
    /// [`Snapshot`](crate::manager::Snapshot). A count of 0 counts as 1.
    pub fn events_and_snapshots(self, count: u64) -> EntitiesBuilder<EventsAndSnapshots, R> {
        EntitiesBuilder { interval: Snapshots::every_messages(count).into(), ..self.with_policy() }
    }

    /// Gives the entities reminders: see [`Entity::remind`](super::Entity::remind), which has an
    /// example. They handle [`Reminder`](super::Reminder).
    pub fn reminders(self) -> EntitiesBuilder<P, WithReminders> {
        self.with_policy()
    }

    /// Sets the options of the processes: restarts, resources, output, the time limit of their end.
    /// [`EntitiesBuilder`] has an example.
    pub fn manager(mut self, change: impl FnOnce(ManagerBuilder) -> ManagerBuilder) -> Self {
        self.manager = change(self.manager);
        self
    }

    fn with_policy<Q, S>(self) -> EntitiesBuilder<Q, S> {
        EntitiesBuilder {
            name: self.name,
            processes: self.processes,
            idle: self.idle,
            interval: self.interval,
            journal: self.journal,
            manager: self.manager,
            spread: self.spread,
            policy: PhantomData,
        }
    }

    /// Starts the processes. `create` makes the entity of a key from the key and `args`, in its
    /// process, when the first message comes. [`Entities`] has an example.
    ///
    /// `args` is one value; `()` if there is nothing to say. The reply is ready when all processes
    /// have started. Dropping it before ends them.
    ///
    /// # Errors
    /// [`Error::NameTaken`] if an actor or other entities of the session have the name;
    /// [`Error::Invalid`] if there are to be no processes, the entities can't be durable, or the
    /// processes that are to be spread have one host;
    /// [`Error::Journal`]; [`Error::Start`] if a process can't start; [`Error::Encode`] or
    /// [`Error::TooLarge`] for the arguments; [`Error::NotInitialized`].
    #[track_caller]
    pub fn start<F, Args, M>(self, create: F, args: Args) -> Reply<Entities<F::Output>>
    where
        F: Function<(String, Args), M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Portable + 'static,
        M: 'static,
        P: EntityState<F::Output>,
        R: ReminderPolicy<F::Output>,
    {
        const { assert_captures_nothing::<F>() };
        let _ = (create, Location::caller());
        match self.prepare::<F, Args, M>(&args) {
            Ok(prepared) => {
                let (done, started) = oneshot::channel();
                let runtime = prepared.runtime;
                runtime.spawn(move || async move { drop(done.send(prepared.start::<R>().await)) });
                let ended = |_| Error::system("starting entities failed", "fiber's thread ended");
                Reply::new(async move { started.await.map_err(ended)? })
            }
            Err(error) => Reply::failed(error),
        }
    }

    fn prepare<F, Args, M>(self, args: &Args) -> Result<Prepared<F::Output>>
    where
        F: Function<(String, Args), M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Portable + 'static,
        M: 'static,
        P: EntityState<F::Output>,
        R: ReminderPolicy<F::Output>,
    {
        let runtime = Runtime::get()?;
        let processes = self.processes.unwrap_or_else(|| runtime.default_processes());
        if processes == 0 {
            let problem = "entities need at least 1 process";
            return Err(Error::invalid("EntitiesBuilder::processes", problem));
        }
        Runtime::check_processes("EntitiesBuilder::processes", processes)?;
        let (arguments, keep_alive) = transfer::repeatable(|| EncodedValue::new(args));
        let arguments = arguments?;
        codec::check_size(arguments.size(), runtime.config().max_message.as_u64(), || {
            format!("the arguments of the entities `{}`", self.name)
        })?;
        let durable = self.journal.as_ref().map(|journal| {
            DurableState::open(runtime, journal, ObjectKind::Entities, Some(&self.name))
        });
        let durable = durable.transpose()?;
        let idle = self.idle.or((P::KEPT != Kept::Nothing).then_some(IDLE));
        let journal = durable.as_ref().map(DurableState::journal_name);
        let plan = Plan { idle, kept: P::KEPT, snapshots: self.interval, journal };
        let (spread, name) = (self.spread, self.name.clone());
        let manager = self.manager.with_own_process("EntitiesBuilder::manager")?;
        let manager = match &spread {
            Some(spread) => manager.spread(Arc::clone(spread))?,
            None => manager,
        };
        let start: Starter<F::Output> = Box::new(move |coordinator, id| {
            // The handles in the arguments live as long as it.
            let _ = &keep_alive;
            let (plan, arguments) = (plan.clone(), arguments.clone());
            let args = KeeperArgs { coordinator, id, name: name.clone(), plan, arguments };
            let manager = manager.clone().name(format!("{name}-{}", id.0));
            manager.start(keeper::<F, Args, M, P>, args)
        });
        let patience = runtime.config().shutdown_timeout;
        Ok(Prepared { runtime, name: self.name, processes, durable, start, spread, patience })
    }
}

impl<P: KeepsState, R> EntitiesBuilder<P, R> {
    /// Records the state of the entities, and their reminders, in a journal: a program that is
    /// started again finds them. Without one, they are kept in the memory of this process.
    ///
    /// The name of the entities and the journal's version identify them. Changes are recorded in
    /// groups, with one `fdatasync` each. If they can't be recorded, the answers that depend on
    /// them fail with [`Error::Journal`].
    ///
    /// Only the program's first process can start durable entities.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let journal = || fiber::Journal::at(directory.path());
    #[doc = include_str!("../doc/account.md")]
    /// for run in 1..=2 {
    ///     let accounts = fiber::Entities::builder("bank").processes(1).events();
    ///     let accounts = accounts.durable(journal());
    ///     let accounts = accounts.start(|_: String, ()| Account::default(), ()).wait()?;
    ///     assert_eq!(accounts.of("anna").send(Deposit(5)).wait()?, 5 * run);
    ///     accounts.stop().wait()?;
    /// }
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn durable(mut self, journal: impl Into<Journal>) -> Self {
        self.journal = Some(journal.into());
        self
    }
}

/// Makes the actor that keeps entities in a process.
#[allow(unsafe_code)]
fn keeper<F, Args, M, P>(args: KeeperArgs) -> Keeper<F::Output>
where
    F: Function<(String, Args), M>,
    F::Output: Actor<Context = Context<F::Output>>,
    Args: DeserializeOwned + 'static,
    M: 'static,
    P: EntityState<F::Output>,
{
    let state = StateFns { take: P::take, restore: P::restore, replay: P::replay };
    let make = |key: String, arguments: &EncodedValue| {
        let arguments = (key, arguments.decode()?);
        // SAFETY: the builder has taken a value of F.
        Ok(unsafe { invoke::<F, (String, Args), M>(arguments) })
    };
    Keeper::new(args, make, state)
}

/// Entities before their start.
struct Prepared<A: Actor<Context = Context<A>>> {
    runtime: &'static Runtime,
    name: String,
    processes: usize,
    durable: Option<DurableState>,
    start: Starter<A>,
    spread: Option<Arc<Spread>>,
    patience: Duration,
}

impl<A: Actor<Context = Context<A>>> Prepared<A> {
    /// Starts them, on fiber's own thread.
    async fn start<R: ReminderPolicy<A>>(self) -> Result<Entities<A>> {
        let Prepared { runtime, name, processes, durable, start, spread, patience } = self;
        runtime.address().await?;
        // The coordinator has an address when it is started.
        let addr = Rc::new(OnceCell::<EntitiesAddr<A>>::new());
        let fire = R::FIRE.map(|fire| -> SendReminder {
            let addr = Rc::clone(&addr);
            Box::new(move |key, reminder| fire(addr.get()?, key, reminder).into())
        });
        let (records, reminders) = (Records::new(durable), Reminders::new(fire));
        reminders.restore(&records)?;
        let journal = records.journal();
        let (leaving, left) = mpsc::unbounded_channel();
        let state = Coordination::new(records, reminders, leaving);
        let local = Coordinator(Rc::clone(&state)).start();
        let coordinator = RemoteAddr::export(local.clone())?;
        let name: Arc<str> = name.into();
        let all = EntitiesAddr::new(Arc::clone(&name), coordinator.clone())?;
        let _ = addr.set(all.clone());
        let (members, ending) = (Mutex::default(), RwLock::default());
        let is_over = watch::Sender::new(false);
        let key = names::key(&name);
        let of = type_name::<A>();
        let stats = Arc::new(Owned::new(Arc::clone(&name), of, local.clone(), journal));
        runtime.part::<Sources>().register(&stats);
        let owner = Arc::new(Owner {
            runtime,
            name,
            local,
            coordinator,
            start,
            spread,
            members,
            is_over,
            ending,
            stats,
            patience,
        });
        drop(spawn_local(replace_leaving(Arc::downgrade(&owner), left)));
        let entities = Entities { addr: all, owner: Arc::clone(&owner) };
        let untyped = &owner.coordinator.untyped;
        let asked = type_name::<Entities<A>>();
        enter(untyped, key, asked, member(untyped, Some(asked), None)).await?;
        owner.scale(processes).await?;
        drop(spawn_local(reminders::run(state, runtime)));
        Ok(entities)
    }
}
