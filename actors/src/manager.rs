//! Actors in processes of their own.
//!
//! The owner has a supervisor for each manager, whose only child is the process ([`ManagerStart`]). The process hosts
//! the actor under a supervisor of its own ([`host`]): a handler's panic restarts the actor there, the process's death
//! restarts the process. Whoever has the address finds the current incarnation by asking the owner.

mod host;
mod snapshot;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::dev::ToEnvelope;
use actix::{Actor, Context, Handler};
use bytes::{Buf, Bytes};
use fiber_core::{Error, ExitReason, Function, Meta, OutputMode, Result, codec};
use futures_util::future::LocalBoxFuture;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot, watch};

pub(crate) use self::host::HostRoot;
use self::host::{Note, host_entry};
use self::snapshot::Every;
pub use self::snapshot::{Keep, NoSnapshots, Snapshot, Snapshots};
use crate::node::{Command, Control, Errand, Launch, Node, attend, launch};
use crate::pool::ProcessControl;
use crate::remote::{NodeRef, Owned, RemoteAddr, RemoteMessage};
use crate::reply::Reply;
use crate::supervisor::{
    Backoff, ChildContext, ChildSpec, Restart, Running, Shutdown, Start, Supervisor, SupervisorRef,
};

/// An actor in a process of its own, supervised: its owner, and its address.
///
/// The actor is made there by a function and its arguments, as in a [task](crate::Pool). If a handler panics, that call
/// fails with the panic's message and the actor is made anew; if the process dies, it is started again. Actors that
/// implement [`Snapshot`] go on from the last one. The address ([`addr`]) stays valid throughout. Dropping the manager
/// ends the actor and its process.
///
/// [`addr`]: AsyncManager::addr
///
/// # Examples
/// ```
/// # fiber::init();
/// use actix::prelude::*;
/// use fiber::AsyncManager;
/// use serde::{Deserialize, Serialize};
///
/// struct Greeter {
///     greeting: String,
/// }
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[rtype(result = "String")]
/// struct Greet(String);
///
/// impl Actor for Greeter {
///     type Context = Context<Self>;
/// }
///
/// impl Handler<Greet> for Greeter {
///     type Result = String;
///
///     fn handle(&mut self, greet: Greet, _: &mut Context<Self>) -> String {
///         format!("{}, {}!", self.greeting, greet.0)
///     }
/// }
///
/// let greeter = AsyncManager::start(|greeting| Greeter { greeting }, "Hello".to_string()).wait()?;
/// let pending = greeter.send(Greet("world".into())); // on its way
/// assert_eq!(pending.wait()?, "Hello, world!");
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct AsyncManager<A: Actor> {
    addr: RemoteAddr<A>,
    shared: Arc<Shared>,
}

/// An [`AsyncManager`] whose calls are each waited for.
///
/// # Errors
/// Its calls fail as [`Call::wait`](crate::Call::wait) does.
pub struct SyncManager<A: Actor>(AsyncManager<A>);

struct Shared {
    node: &'static Node,
    name: String,
    owned: Arc<Owned>,
    supervisor: SupervisorRef,
    process: watch::Receiver<Option<Process>>,
}

/// The current process.
#[derive(Clone)]
struct Process {
    pid: u32,
    commands: mpsc::UnboundedSender<Command>,
}

/// A manager to be; [`AsyncManager::builder`] makes one.
#[derive(Debug)]
#[must_use]
pub struct ManagerBuilder<K = NoSnapshots> {
    name: Option<String>,
    meta: Meta,
    output: Option<OutputMode>,
    restart: Restart,
    shutdown: Option<Duration>,
    intensity: (u32, Duration),
    backoff: Backoff,
    mailbox: usize,
    every: Every,
    keep: std::marker::PhantomData<fn() -> K>,
}

impl<A: Actor> AsyncManager<A> {
    /// A manager to be.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder {
            name: None,
            meta: Meta::default(),
            output: None,
            restart: Restart::Transient,
            shutdown: None,
            intensity: (3, Duration::from_secs(5)),
            backoff: Backoff::default(),
            mailbox: usize::MAX,
            every: Every::default(),
            keep: std::marker::PhantomData,
        }
    }

    /// Starts a process in which `factory` makes the actor from `args`: one value, or a tuple for a function of several.
    ///
    /// # Errors
    /// As [`ManagerBuilder::start`].
    pub fn start<F, Args, M>(factory: F, args: Args) -> Reply<AsyncManager<A>>
    where
        A: Actor<Context = Context<A>>,
        F: Function<Args, M, Output = A>,
        Args: Serialize + DeserializeOwned + 'static,
        M: 'static,
    {
        AsyncManager::<A>::builder().start(factory, args)
    }

    /// The actor's address, which can travel.
    pub fn addr(&self) -> RemoteAddr<A> {
        self.addr.clone()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The id of the current process; `None` while it is being restarted, and when it has ended.
    pub fn pid(&self) -> Option<u32> {
        self.shared.process.borrow().as_ref().map(|process| process.pid)
    }

    /// Kills the current process (SIGKILL). It is restarted.
    pub fn kill(&self) {
        if let Some(process) = &*self.shared.process.borrow() {
            let _ = process.commands.send(Command::Kill(ExitReason::Signal(9)));
        }
    }

    /// Ends the actor when it has done what it has begun, and then its process; kills it when its
    /// [deadline](ManagerBuilder::shutdown) has passed. The reply comes when the process is gone.
    pub fn stop(&self) -> Reply<()> {
        let supervisor = self.shared.supervisor.clone();
        let (done, ended) = oneshot::channel();
        self.shared.node.spawn(move || async move { drop(done.send(supervisor.shutdown().await)) });
        Reply::new(async move { ended.await.unwrap_or(Ok(())) })
    }
}

/// All that an address can do.
impl<A: Actor> Deref for AsyncManager<A> {
    type Target = RemoteAddr<A>;

    fn deref(&self) -> &RemoteAddr<A> {
        &self.addr
    }
}

impl<A: Actor> fmt::Debug for AsyncManager<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncManager").field("name", &self.name()).field("pid", &self.pid()).finish()
    }
}

impl<A: Actor> SyncManager<A> {
    /// As [`AsyncManager::start`], and waits until the actor is there.
    ///
    /// # Errors
    /// As [`ManagerBuilder::start`].
    pub fn start<F, Args, M>(factory: F, args: Args) -> Result<SyncManager<A>>
    where
        A: Actor<Context = Context<A>>,
        F: Function<Args, M, Output = A>,
        Args: Serialize + DeserializeOwned + 'static,
        M: 'static,
    {
        AsyncManager::start(factory, args).wait().map(SyncManager)
    }

    /// Sends a message and waits for the answer.
    ///
    /// # Errors
    /// As [`Call::wait`](crate::Call::wait).
    pub fn send<M>(&self, message: M) -> Result<M::Result>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
    {
        self.0.send(message).wait()
    }

    /// The actor's address, which can travel.
    pub fn addr(&self) -> RemoteAddr<A> {
        self.0.addr()
    }
}

impl<A: Actor> From<AsyncManager<A>> for SyncManager<A> {
    fn from(manager: AsyncManager<A>) -> SyncManager<A> {
        SyncManager(manager)
    }
}

impl<A: Actor> fmt::Debug for SyncManager<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let supervisor = self.supervisor.clone();
        self.node.spawn(move || async move { drop(supervisor.shutdown().await) });
    }
}

// Derived, it would ask this of `K`.
impl<K> Clone for ManagerBuilder<K> {
    fn clone(&self) -> ManagerBuilder<K> {
        ManagerBuilder { name: self.name.clone(), backoff: self.backoff.clone(), ..*self }
    }
}

impl<K> ManagerBuilder<K> {
    /// Names the manager, for errors and the [tree](crate::tree); the default is `manager-1` and so on.
    pub fn name(mut self, name: impl Into<String>) -> ManagerBuilder<K> {
        self.name = Some(name.into());
        self
    }

    /// Asks for resources for the process, over what the factory's `#[fiber::meta]` asks.
    pub fn meta(mut self, meta: Meta) -> ManagerBuilder<K> {
        self.meta = meta;
        self
    }

    /// Sets where the process's output goes; the default is what the configuration says.
    pub fn output(mut self, output: OutputMode) -> ManagerBuilder<K> {
        self.output = Some(output);
        self
    }

    /// Sets when the process is started again. The default is [`Restart::Transient`]: not if the actor stopped by itself.
    pub fn restart(mut self, restart: Restart) -> ManagerBuilder<K> {
        self.restart = restart;
        self
    }

    /// Sets how long the actor may take to end before its process is killed; the default is what the configuration says.
    pub fn shutdown(mut self, deadline: Duration) -> ManagerBuilder<K> {
        self.shutdown = Some(deadline);
        self
    }

    /// Sets how many restarts are allowed in a period, of the actor in its process, and of the process. When more are
    /// needed, the actor is given up, and its address says so. The default is 3 in 5 seconds.
    pub fn intensity(mut self, restarts: u32, period: Duration) -> ManagerBuilder<K> {
        self.intensity = (restarts, period);
        self
    }

    /// Sets the pause before each restart but the first.
    pub fn backoff(mut self, backoff: Backoff) -> ManagerBuilder<K> {
        self.backoff = backoff;
        self
    }

    /// Sets how many messages may wait for the actor; more fail with [`Error::MailboxFull`]. The default is no limit.
    pub fn mailbox(mut self, capacity: usize) -> ManagerBuilder<K> {
        self.mailbox = capacity;
        self
    }

    /// Has the actor's state kept by its owner, to go on from when it is restarted: after so many messages, or so much
    /// time, see [`Snapshots`].
    pub fn snapshots(self, every: Snapshots) -> ManagerBuilder<Snapshots> {
        ManagerBuilder {
            name: self.name,
            meta: self.meta,
            output: self.output,
            restart: self.restart,
            shutdown: self.shutdown,
            intensity: self.intensity,
            backoff: self.backoff,
            mailbox: self.mailbox,
            every: every.into(),
            keep: std::marker::PhantomData,
        }
    }

    /// Starts the process, in which `factory` makes the actor from `args`: one value, or a tuple for a function of
    /// several. The reply comes when the actor is there.
    ///
    /// # Errors
    /// [`Error::Start`] if the process can't be started, or the factory panics; [`Error::Invalid`] if a name or number is
    /// of no use; [`Error::Encode`] or [`Error::TooLarge`] for the arguments; [`Error::NotInitialised`].
    pub fn start<F, Args, M>(self, factory: F, args: Args) -> Reply<AsyncManager<F::Output>>
    where
        F: Function<Args, M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Serialize + DeserializeOwned + 'static,
        M: 'static,
        K: Keep<F::Output>,
    {
        let _ = factory;
        let prepared = self.prepare::<F, Args, M>(&args);
        drop(args);
        let (done, started) = oneshot::channel();
        let node = match prepared {
            Ok((node, manager)) => {
                node.spawn(move || async move { drop(done.send(manager.start(node).await)) });
                Ok(node)
            }
            Err(error) => Err(error),
        };
        Reply::new(async move {
            let node = node?;
            let ended = |_| Err(Error::system("the manager could not be started", "fiber's thread ended"));
            let (home, shared) = started.await.unwrap_or_else(ended)?;
            let addr = RemoteAddr::owned(node, &shared.name, home, shared.owned.id());
            Ok(AsyncManager { addr, shared })
        })
    }

    /// The same as a child of a supervisor of one's own, and the address of the actor, which is valid as soon as the child
    /// has been started.
    ///
    /// Restarts, pauses and their intensity are the supervisor's, for the process; what the builder sets of them holds
    /// for the actor in its process.
    ///
    /// # Errors
    /// As [`start`](ManagerBuilder::start), before anything is started.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use actix::prelude::*;
    /// use fiber::{AsyncManager, Supervisor};
    /// use serde::{Deserialize, Serialize};
    ///
    /// struct Clock;
    ///
    /// #[derive(Message, Serialize, Deserialize)]
    /// #[rtype(result = "u32")]
    /// struct Tick;
    ///
    /// impl Actor for Clock {
    ///     type Context = Context<Self>;
    /// }
    ///
    /// impl Handler<Tick> for Clock {
    ///     type Result = u32;
    ///
    ///     fn handle(&mut self, _: Tick, _: &mut Context<Self>) -> u32 {
    ///         1
    ///     }
    /// }
    ///
    /// let (child, clock) = AsyncManager::<Clock>::builder().name("clock").child(|| Clock, ())?;
    /// let app = Supervisor::builder("app").child(child).start().wait()?;
    /// assert_eq!(clock.send(Tick).wait()?, 1);
    /// println!("{}", fiber::tree());
    /// app.shutdown().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn child<F, Args, M>(self, factory: F, args: Args) -> Result<(ChildSpec, RemoteAddr<F::Output>)>
    where
        F: Function<Args, M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Serialize + DeserializeOwned + 'static,
        M: 'static,
        K: Keep<F::Output>,
    {
        let _ = factory;
        let (node, prepared) = self.prepare::<F, Args, M>(&args)?;
        let home = NodeRef { id: node.id(), address: node.address_now()?.into() };
        let name = prepared.name.clone();
        let (child, owned, _) = prepared.child(node, name.clone());
        Ok((child, RemoteAddr::owned(node, &name, home, owned.id())))
    }

    fn prepare<F, Args, M>(self, args: &Args) -> Result<(&'static Node, Prepared)>
    where
        F: Function<Args, M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Serialize + DeserializeOwned + 'static,
        M: 'static,
        K: Keep<F::Output>,
    {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let node = Node::get()?;
        let config = node.config();
        let limit = config.max_message.as_u64();
        let entry = host_entry::<F, Args, M, K>();
        let arguments = codec::encode(args)?;
        if arguments.len() as u64 > limit {
            let what = format!("the arguments of `{}`", entry.name());
            return Err(Error::TooLarge { what, size: arguments.len() as u64, limit });
        }
        if self.mailbox == 0 {
            let problem = "a mailbox has room for one message at least".to_string();
            return Err(Error::Invalid { what: "mailbox", problem });
        }
        let name = self.name.unwrap_or_else(|| format!("manager-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let root = HostRoot {
            entry: entry.reference(),
            name: name.clone(),
            arguments,
            snapshot: None,
            every: self.every,
            mailbox: self.mailbox as u64,
            intensity: self.intensity,
        };
        Ok((
            node,
            Prepared {
                name,
                root,
                meta: self.meta.or(Meta::of::<F>()),
                output: self.output.unwrap_or(config.output),
                restart: self.restart,
                shutdown: self.shutdown.unwrap_or(config.shutdown_timeout),
                intensity: self.intensity,
                backoff: self.backoff,
            },
        ))
    }
}

/// A manager that is ready to be started.
struct Prepared {
    name: String,
    root: HostRoot,
    meta: Meta,
    output: OutputMode,
    restart: Restart,
    shutdown: Duration,
    intensity: (u32, Duration),
    backoff: Backoff,
}

impl Prepared {
    async fn start(self, node: &'static Node) -> Result<(NodeRef, Arc<Shared>)> {
        let home = NodeRef { id: node.id(), address: node.address().await?.into() };
        let (name, (restarts, period)) = (self.name.clone(), self.intensity);
        let supervisor = Supervisor::builder(&*name).intensity(restarts, period).backoff(self.backoff.clone());
        let (child, owned, process) = self.child(node, "process".into());
        let supervisor = supervisor.child(child).start_on(node.arbiter()).await?;
        Ok((home, Arc::new(Shared { node, name, owned, supervisor, process })))
    }

    /// The process as a child, its place in the mesh, and where its current incarnation is told.
    fn child(self, node: &'static Node, name: String) -> (ChildSpec, Arc<Owned>, watch::Receiver<Option<Process>>) {
        let owned = node.mesh().own();
        let (process, current) = watch::channel(None);
        let start = ManagerStart {
            node,
            name: self.name,
            owned: Arc::clone(&owned),
            meta: self.meta,
            output: self.output,
            root: self.root,
            restart: self.restart,
            snapshot: Arc::default(),
            process: Arc::new(process),
        };
        let child = ChildSpec::new(name, start).restart(self.restart).shutdown(Shutdown::After(self.shutdown));
        (child, owned, current)
    }
}

/// Starts an actor's process, once for each incarnation.
struct ManagerStart {
    node: &'static Node,
    name: String,
    owned: Arc<Owned>,
    meta: Meta,
    output: OutputMode,
    root: HostRoot,
    restart: Restart,
    snapshot: Arc<Mutex<Option<Bytes>>>,
    process: Arc<watch::Sender<Option<Process>>>,
}

impl Start for ManagerStart {
    fn start(&mut self, context: ChildContext) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        let (node, owned, process) = (self.node, Arc::clone(&self.owned), Arc::clone(&self.process));
        let (kept, restart) = (Arc::clone(&self.snapshot), self.restart);
        let mut root = self.root.clone();
        root.snapshot = kept.lock().as_ref().map(|snapshot| snapshot.to_vec());
        let spec = Launch {
            name: self.name.clone(),
            restarts: context.restarts(),
            meta: self.meta,
            output: self.output,
            errand: Errand::new(&root),
            patience: None,
        };
        Box::pin(async move {
            let launched = launch(node, spec).await.map_err(|exit| exit.reason)?;
            let (pid, place) = (launched.info.pid, launched.place());
            let address = launched.address.clone().unwrap_or_default().into();
            let incarnation = owned.up(NodeRef { id: launched.info.node, address });
            let (commands, inbox) = mpsc::unbounded_channel();
            process.send_replace(Some(Process { pid, commands: commands.clone() }));
            let (exited, exit) = oneshot::channel();
            actix::spawn(async move {
                let link = Arc::clone(&launched.connection.link);
                let mut ended = None;
                let receive = |mut message: Bytes| match Note::take(&mut message) {
                    Some(Note::Snapshot) => *kept.lock() = Some(message),
                    Some(Note::Ended) => {
                        ended = codec::decode::<ExitReason>(message.chunk()).ok();
                        // It waits for this, so that its reason is not lost with it.
                        let _ = link.send(Control::Shutdown.message());
                    }
                    None => tracing::error!("a message of a manager's process was ignored"),
                };
                let exit = attend(node, launched, inbox, receive).await;
                process.send_if_modified(|current| {
                    let ours = current.as_ref().is_some_and(|process| process.pid == pid);
                    if ours {
                        *current = None;
                    }
                    ours
                });
                let reason = ended.unwrap_or(exit.reason);
                owned.down(incarnation, reason.clone());
                let last = match restart {
                    Restart::Permanent => false,
                    Restart::Transient => reason.is_normal(),
                    Restart::Temporary => true,
                };
                if last {
                    owned.gone(reason.clone());
                }
                let _ = exited.send(reason);
            });
            let exited = async { exit.await.unwrap_or(ExitReason::LinkLost("its attendant ended".into())) };
            Ok(Running::new(ProcessControl(commands), exited).place(place))
        })
    }

    fn forgotten(&mut self, reason: &ExitReason) {
        self.owned.gone(reason.clone());
    }
}
