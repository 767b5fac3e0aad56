//! What a manager is to be.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::{Actor, Context};
use fiber_core::{
    Error, Function, Meta, OutputMode, Portable, Result, assert_captures_nothing, codec, transfer,
};
use tokio::sync::oneshot;

use super::AsyncManager;
use super::host::{HostMain, host_entry};
use super::snapshot::{Every, NoSnapshots, SnapshotPolicy, Snapshots};
use super::start::Prepared;
use crate::mesh::ProcessRef;
use crate::remote::RemoteAddr;
use crate::reply::Reply;
use crate::runtime::Runtime;
use crate::supervisor::{Backoff, ChildSpec, Restart};

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
    keep: PhantomData<fn() -> K>,
}

// Derived, it would ask this of `K`.
impl<K> Clone for ManagerBuilder<K> {
    fn clone(&self) -> ManagerBuilder<K> {
        ManagerBuilder { name: self.name.clone(), backoff: self.backoff.clone(), ..*self }
    }
}

impl ManagerBuilder {
    pub(super) fn new() -> ManagerBuilder {
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
            keep: PhantomData,
        }
    }
}

impl<K> ManagerBuilder<K> {
    /// Names the manager, for errors and the [tree](crate::tree); the default is `manager-1` and so
    /// on.
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

    /// Sets when the process is started again. The default is [`Restart::Transient`]: not if the
    /// actor stopped by itself.
    pub fn restart(mut self, restart: Restart) -> ManagerBuilder<K> {
        self.restart = restart;
        self
    }

    /// Sets how long the actor may take to end before its process is killed; the default is what
    /// the configuration says.
    pub fn shutdown(mut self, deadline: Duration) -> ManagerBuilder<K> {
        self.shutdown = Some(deadline);
        self
    }

    /// Sets how many restarts are allowed in a period, of the actor in its process, and of the
    /// process. When more are needed, the actor is given up, and its address says so. The default
    /// is 3 in 5 seconds.
    pub fn intensity(mut self, restarts: u32, period: Duration) -> ManagerBuilder<K> {
        self.intensity = (restarts, period);
        self
    }

    /// Sets the pause before each restart but the first.
    pub fn backoff(mut self, backoff: Backoff) -> ManagerBuilder<K> {
        self.backoff = backoff;
        self
    }

    /// Sets how many messages may wait for the actor; more fail with [`Error::MailboxFull`]. The
    /// default is no limit.
    pub fn mailbox(mut self, capacity: usize) -> ManagerBuilder<K> {
        self.mailbox = capacity;
        self
    }

    /// Has the actor's state kept by its owner, to go on from when it is restarted: after so many
    /// messages, or so much time, see [`Snapshots`].
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
            keep: PhantomData,
        }
    }

    /// Starts the process, in which `factory` makes the actor from `args`: one value, or a tuple
    /// for a function of several. The reply comes when the actor is there.
    ///
    /// # Errors
    /// [`Error::Start`] if the process can't be started, or the factory panics; [`Error::Invalid`]
    /// if a name or number is of no use; [`Error::Encode`] or [`Error::TooLarge`] for the
    /// arguments; [`Error::NotInitialised`].
    pub fn start<F, Args, M>(self, factory: F, args: Args) -> Reply<AsyncManager<F::Output>>
    where
        F: Function<Args, M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Portable + 'static,
        M: 'static,
        K: SnapshotPolicy<F::Output>,
    {
        const { assert_captures_nothing::<F>() };
        let _ = factory;
        let prepared = self.prepare::<F, Args, M>(&args);
        drop(args);
        let (done, started) = oneshot::channel();
        let runtime = match prepared {
            Ok((runtime, manager)) => {
                runtime.spawn(move || async move { drop(done.send(manager.start(runtime).await)) });
                Ok(runtime)
            }
            Err(error) => Err(error),
        };
        Reply::new(async move {
            let runtime = runtime?;
            let ended =
                |_| Err(Error::system("the manager could not be started", "fiber's thread ended"));
            let (home, inner) = started.await.unwrap_or_else(ended)?;
            let addr = RemoteAddr::owned(runtime, &inner.name, home, inner.owned.id());
            Ok(AsyncManager { addr, inner })
        })
    }

    /// The same as a child of a supervisor of one's own, and the address of the actor, which is
    /// valid as soon as the child has been started.
    ///
    /// Restarts, pauses and their intensity are the supervisor's, for the process; what the builder
    /// sets of them holds for the actor in its process.
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
    /// app.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
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
        K: SnapshotPolicy<F::Output>,
    {
        const { assert_captures_nothing::<F>() };
        let _ = factory;
        let (runtime, prepared) = self.prepare::<F, Args, M>(&args)?;
        let home = ProcessRef { id: runtime.id(), address: runtime.address_now()?.into() };
        let name = prepared.name.clone();
        let (child, owned, _) = prepared.child(runtime, name.clone());
        Ok((child, RemoteAddr::owned(runtime, &name, home, owned.id())))
    }

    fn prepare<F, Args, M>(self, args: &Args) -> Result<(&'static Runtime, Prepared)>
    where
        F: Function<Args, M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Portable + 'static,
        M: 'static,
        K: SnapshotPolicy<F::Output>,
    {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let runtime = Runtime::get()?;
        let config = runtime.config();
        let limit = config.max_message.as_u64();
        let entry = host_entry::<F, Args, M, K>();
        let (arguments, keep_alive) = transfer::repeatable(|| codec::encode(args));
        let arguments = arguments?;
        codec::check_size(arguments.len(), limit, || {
            format!("the arguments of `{}`", entry.name())
        })?;
        if self.mailbox == 0 {
            let problem = "a mailbox has room for one message at least".to_string();
            return Err(Error::invalid("ManagerBuilder::mailbox", problem));
        }
        let name = self
            .name
            .unwrap_or_else(|| format!("manager-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let host_main = HostMain {
            entry: entry.reference(),
            name: name.clone(),
            arguments,
            snapshot: None,
            every: self.every,
            mailbox: self.mailbox as u64,
            intensity: self.intensity,
        };
        Ok((
            runtime,
            Prepared {
                name,
                host_main,
                keep_alive,
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
