//! The options of a pool of actors before its start.

use actix::{Actor, Context};
use fiber_core::Error;
use fiber_values::{Function, Portable, assert_captures_nothing};
use futures_util::future::try_join_all;

use super::{ActorPool, ActorPoolAddr, Routing};
use crate::manager::{AsyncManager, ManagerBuilder, NoSnapshots, SnapshotPolicy, UnspecifiedActor};
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Spread;
use fiber_supervisor::options::{builder_options, next_name};

/// A builder that configures and starts an [`ActorPool`]. [`ActorPool::builder`] returns one.
///
/// # Examples
/// ```
/// # fiber::init();
/// # use fiber::prelude::*;
/// # struct Idle;
/// # impl Actor for Idle {
/// #     type Context = Context<Self>;
/// # }
/// use fiber::{ActorPool, actor_pool::Routing};
///
/// let builder = ActorPool::builder().name("idle").routing(Routing::LeastLoaded).resend().spread();
/// let pool = builder.start(|_: u32| Idle, 0..2).wait()?;
/// assert_eq!(pool.managers().next().unwrap().name(), "idle-0");
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start` is called"]
pub struct ActorPoolBuilder<P = NoSnapshots> {
    manager: ManagerBuilder<P>,
    name: Option<String>,
    routing: Routing,
    resend: bool,
    spread: bool,
}

impl ActorPool<UnspecifiedActor> {
    /// Returns a builder with the default options.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use fiber::prelude::*;
    /// # struct Idle;
    /// # impl Actor for Idle {
    /// #     type Context = Context<Self>;
    /// # }
    /// let pool = fiber::ActorPool::builder().start(|_: u32| Idle, 0..2).wait()?;
    /// assert_eq!(pool.size(), 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn builder() -> ActorPoolBuilder {
        let manager = AsyncManager::builder();
        let (name, routing) = (None, Routing::default());
        ActorPoolBuilder { manager, name, routing, resend: false, spread: false }
    }
}

impl<P> ActorPoolBuilder<P> {
    builder_options! {
        /// The actors have this name and a number, from 0. The default is `actors-1` and so on. The
        /// [example](ActorPoolBuilder#examples) shows it.
        name => name;
    }

    /// Sets how the pool chooses the actor that gets a message. The default is
    /// [`Routing::RoundRobin`]. The [example](ActorPoolBuilder#examples) shows it.
    pub fn routing(mut self, routing: Routing) -> ActorPoolBuilder<P> {
        self.routing = routing;
        self
    }

    /// Sends a call again if its actor's process dies before the answer: see
    /// [`RemoteAddr::resend`](crate::remote::RemoteAddr::resend). The
    /// [example](ActorPoolBuilder#examples) shows it.
    ///
    /// The call waits for the same actor's next process, and the actor may handle it twice.
    pub fn resend(mut self) -> ActorPoolBuilder<P> {
        self.resend = true;
        self
    }

    /// Spreads the processes over hosts, as evenly as these have room, so that the end of one host
    /// leaves most actors.
    ///
    /// Where each machine has a host, these are all machines. Else the actors start on as few hosts
    /// as they need, and on two at least. An actor that restarts goes to the host with the fewest of
    /// them. Without hosts, the cluster chooses, as ever. The [example](ActorPoolBuilder#examples)
    /// shows it.
    pub fn spread(mut self) -> ActorPoolBuilder<P> {
        self.spread = true;
        self
    }

    /// Sets the options of each actor: restarts, mailbox, resources, output, snapshots.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use fiber::prelude::*;
    /// # struct Idle;
    /// # impl Actor for Idle {
    /// #     type Context = Context<Self>;
    /// # }
    /// use fiber::ActorPool;
    ///
    /// let pool = ActorPool::builder().manager(|manager| manager.mailbox(1000));
    /// assert_eq!(pool.start(|_: u32| Idle, 0..2).wait()?.size(), 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn manager<Q>(
        self,
        change: impl FnOnce(ManagerBuilder<P>) -> ManagerBuilder<Q>,
    ) -> ActorPoolBuilder<Q> {
        let ActorPoolBuilder { manager, name, routing, resend, spread } = self;
        ActorPoolBuilder { manager: change(manager), name, routing, resend, spread }
    }

    /// Starts one actor for each item of `args`, all at the same time.
    ///
    /// Each costs the start of a process. The reply is ready when all actors have started. If one
    /// of them cannot start, or the reply is dropped before it is ready, the others stop.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `args` has no items, or the actors that are to be spread have one host;
    /// otherwise as [`ManagerBuilder::start`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use fiber::prelude::*;
    /// struct Greeter(String);
    ///
    /// impl Actor for Greeter {
    ///     type Context = Context<Self>;
    /// }
    ///
    /// #[fiber::message(String)]
    /// struct Greet;
    ///
    /// #[fiber::handlers]
    /// impl Greeter {
    ///     fn greet(&mut self, _: Greet) -> String {
    ///         format!("{}!", self.0)
    ///     }
    /// }
    ///
    /// let greetings = ["hello", "hola"].map(String::from);
    /// let pool = fiber::ActorPool::builder().start(Greeter, greetings).wait()?;
    /// assert_eq!(pool.send(Greet).wait()?, "hello!");
    /// assert_eq!(pool.send(Greet).wait()?, "hola!");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn start<F, Args, M>(
        self,
        factory: F,
        args: impl IntoIterator<Item = Args>,
    ) -> Reply<ActorPool<F::Output>>
    where
        F: Function<Args, M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Portable + 'static,
        M: 'static,
        P: SnapshotPolicy<F::Output>,
    {
        const { assert_captures_nothing::<F>() };
        let name = self.name.unwrap_or_else(|| next_name("actors"));
        let args: Vec<_> = args.into_iter().collect();
        let manager = match self.spread {
            true => match self.manager.spread(Spread::new(args.len())) {
                Ok(manager) => manager,
                Err(error) => return Reply::failed(error),
            },
            false => self.manager,
        };
        let mut starting = Vec::new();
        // A closure would hide the caller, whose place names the factory.
        for (number, args) in args.into_iter().enumerate() {
            starting.push(manager.clone().name(format!("{name}-{number}")).start(factory, args));
        }
        let (routing, resend) = (self.routing, self.resend);
        Reply::new(async move {
            if starting.is_empty() {
                let problem = "a pool needs arguments for at least 1 actor";
                return Err(Error::invalid("ActorPoolBuilder::start", problem));
            }
            let managers = try_join_all(starting).await?;
            let addr = |manager: &AsyncManager<F::Output>| match resend {
                true => manager.addr().resend(),
                false => manager.addr(),
            };
            let addr = ActorPoolAddr::new(managers.iter().map(addr).collect(), routing);
            let added = managers.len() as u64;
            Ok(ActorPool { managers, addr, added, resend })
        })
    }
}
