//! A managed actor in the process where it runs.

use std::any::{Any, type_name};
use std::cell::{Cell, RefCell};
use std::future::ready;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context};
use fiber_core::{Error, ExitReason};
use fiber_transport::{Link, Message};
use fiber_values::entry::{Entry, MethodFn};
use fiber_values::{Function, invoke};
use futures_util::future::LocalBoxFuture;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::lifecycle::ManagedLife;
use super::process::ActorMain;
use super::snapshot::SnapshotPolicy;
use super::wire::ActorEvent;
use crate::remote::{Holding, Host, RemoteAddr, Target, UntypedAddr};
use fiber_runtime::mesh::{ActorId, Inbox};
use fiber_runtime::runtime::Runtime;
use fiber_supervisor::supervisor::Shutdown;
use fiber_supervisor::{ActorCommand, Alone};

/// A managed actor that is about to start in this process. Messages can reach it already.
pub(super) struct HostedActor {
    pub(super) runtime: &'static Runtime,
    pub(super) link: Arc<dyn Link>,
    /// Its number at its owner.
    pub(super) id: ActorId,
    /// The answers that wait for snapshots.
    pub(super) held: Holding,
    main: ActorMain,
    inbox: Arc<Inbox>,
    addr: UntypedAddr,
}

/// What an actor's entry gets and returns, on the actor's thread.
struct Starting {
    /// Is sent to the owner when the actor has started.
    announcement: Message,
    is_ready: Rc<Cell<bool>>,
    commands: mpsc::UnboundedReceiver<ActorCommand>,
}

/// The life of an actor, which ends with the reason of its end for good.
type Lifetime = Option<LocalBoxFuture<'static, ExitReason>>;

impl HostedActor {
    /// Makes an actor reachable whose owner is this process's parent. The link leads there.
    pub(super) fn new(
        runtime: &'static Runtime,
        link: &Arc<dyn Link>,
        main: ActorMain,
    ) -> HostedActor {
        let (home, id) = main.owned.clone().expect("the owner sets it before it sends an actor");
        let capacity = usize::try_from(main.mailbox).unwrap_or(usize::MAX);
        let inbox = Arc::new(Inbox::new(capacity, main.full));
        runtime.registry().host(Arc::clone(&inbox), home.id, id);
        let held: Holding = main.interval.before_answers.then(Arc::default);
        let addr = UntypedAddr::new(Target {
            session: runtime.session(),
            name: Arc::clone(&main.name),
            home,
            actor: id,
            owned: true,
            places: main.places(),
        });
        HostedActor { runtime, link: Arc::clone(link), id, held, main, inbox, addr }
    }

    /// Starts the actor on this thread. The owner gets `announcement` when it has started, and
    /// `ended` gets [`ActorEvent::Ended`] or [`ActorEvent::NotStarted`] at its end for good.
    pub(super) fn spawn(
        mut self,
        announcement: Message,
        ended: impl FnOnce(ActorEvent) + 'static,
    ) -> RunningActor {
        let (sender, commands) = mpsc::unbounded_channel();
        let running = RunningActor { commands: sender, shutdown: self.main.shutdown };
        let is_ready = Rc::<Cell<bool>>::default();
        let (mut life, ready_flag) = (Lifetime::None, Rc::clone(&is_ready));
        let mut starting = Some(Starting { announcement, is_ready: ready_flag, commands });
        match self.main.entry.resolve::<MethodFn>() {
            Ok(entry) => entry.call()(&mut self, &mut starting, &mut life),
            Err(error) => {
                life = Some(Box::pin(ready(ExitReason::NotStarted(error.to_string()))));
            }
        }
        let HostedActor { runtime, id, inbox, .. } = self;
        fiber_core::spawn_local(async move {
            let reason = life.expect("an actor's entry returns its life").await;
            inbox.close(&reason);
            runtime.registry().retire(id.hosted());
            ended(match is_ready.get() {
                true => ActorEvent::Ended(reason),
                false => ActorEvent::NotStarted(reason),
            });
        });
        running
    }
}

/// A managed actor that runs in this process.
pub(super) struct RunningActor {
    commands: mpsc::UnboundedSender<ActorCommand>,
    shutdown: Shutdown,
}

impl RunningActor {
    /// Stops the actor as its specification says.
    pub(super) fn stop(&self) {
        match self.shutdown {
            Shutdown::Kill => self.kill(ExitReason::Shutdown),
            Shutdown::Wait => self.ask_to_stop(),
            Shutdown::After(limit) => {
                self.ask_to_stop();
                fiber_core::spawn_local(kill_after(limit, self.commands.clone()));
            }
        }
    }

    /// Asks the actor to stop, without a deadline.
    pub(super) fn ask_to_stop(&self) {
        // An actor without a receiver has ended.
        let _ = self.commands.send(ActorCommand::Stop);
    }

    /// Ends the actor at once.
    pub(super) fn kill(&self, reason: ExitReason) {
        let _ = self.commands.send(ActorCommand::Kill(reason));
    }

    /// Waits for the actor's end for good.
    pub(super) fn ended(&self) -> impl Future<Output = ()> {
        self.commands.closed()
    }
}

async fn kill_after(limit: Duration, commands: mpsc::UnboundedSender<ActorCommand>) {
    if timeout(limit, commands.closed()).await.is_err() {
        let _ = commands.send(ActorCommand::Kill(ExitReason::Shutdown));
    }
}

/// The start of the actor that `F` makes, as its process calls it.
pub(super) struct ActorEntry<F, Args, M, P>(PhantomData<(F, Args, M, P)>);

impl<F, Args, M, P> ActorEntry<F, Args, M, P>
where
    F: Function<Args, M>,
    F::Output: Actor<Context = Context<F::Output>>,
    Args: DeserializeOwned + 'static,
    M: 'static,
    P: SnapshotPolicy<F::Output>,
{
    pub(super) const ENTRY: &'static Entry<MethodFn> = &Entry::new(type_name::<F>, Self::start);

    #[allow(unsafe_code)]
    fn start(actor: &mut dyn Any, starting: &mut dyn Any, life: &mut dyn Any) {
        let wrong = "a managed actor's entry gets the actor, its start and its life";
        let actor = actor.downcast_mut::<HostedActor>().expect(wrong);
        let starting = starting.downcast_mut::<Option<Starting>>().expect(wrong).take();
        let Starting { announcement, is_ready, commands } = starting.expect(wrong);
        let main = &mut actor.main;
        let snapshot = Rc::new(RefCell::new(main.snapshot.take()));
        let (arguments, journal) = (std::mem::take(&mut main.arguments), main.journal.take());
        let last = Rc::clone(&snapshot);
        let create = move || {
            let args =
                arguments.decode().unwrap_or_else(|error: Error| panic!("its arguments: {error}"));
            // SAFETY: the entry is made from a value of F.
            let mut actor = unsafe { invoke::<F, Args, M>(args) };
            if let Some(state) = &*last.borrow()
                && let Err(error) = P::restore(&mut actor, state)
            {
                panic!("its last snapshot: {}", error.recorded(journal.as_deref()));
            }
            actor
        };
        let managed = ManagedLife::<P, _> {
            id: actor.id,
            host: Host::new(actor.runtime, Arc::clone(&actor.inbox), actor.held.clone()),
            link: Arc::clone(&actor.link),
            snapshot,
            interval: main.interval,
            create,
            announcement: RefCell::new(Some(announcement)),
            is_ready,
            has_failed: Cell::new(false),
            policy: PhantomData,
        };
        let alone = Alone {
            name: Arc::clone(&main.name),
            restart: main.restart,
            limits: main.limits.clone(),
            has_run: main.has_run,
        };
        let addr = Box::new(RemoteAddr::<F::Output>::of(actor.addr.clone()));
        let lived = alone.run::<F::Output, _>(addr, Box::new(managed), commands);
        *life.downcast_mut::<Lifetime>().expect(wrong) = Some(Box::pin(lived));
    }
}
