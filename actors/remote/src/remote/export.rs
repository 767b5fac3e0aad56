//! Exporting local actors to other processes.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Instant;

use actix::{Actor, Addr};
use fiber_core::{ExitReason, Result, panics};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::addr::RemoteAddr;
use super::inbox_pump::Dispatch;
use super::untyped::{Target, UntypedAddr};
use fiber_runtime::mesh::{Full, Inbox, IncomingMessage, ProcessRef};
use fiber_runtime::runtime::Runtime;
use fiber_supervisor::Incarnation;
use fiber_supervisor::supervisor::{ChildEnd, ChildRef};

/// An actor of this process, which [`RemoteAddr::export`] makes reachable from others: an [`Addr`], or
/// a [`ChildRef`].
pub trait LocalActor<A: Actor>: Sealed {
    #[doc(hidden)]
    fn export(self) -> Result<RemoteAddr<A>>;
}

/// No other crate implements [`LocalActor`].
pub trait Sealed {}

impl<A: Actor> Sealed for Addr<A> {}
impl<A: Actor> Sealed for ChildRef<A> {}

impl<A: Actor> LocalActor<A> for Addr<A> {
    fn export(self) -> Result<RemoteAddr<A>> {
        panics::watch();
        let name = std::any::type_name::<A>();
        let (panic, watched) = (PanicSlot::default(), self.clone());
        let seen = panic.clone();
        let end = move || (!watched.connected()).then(|| seen.end());
        exported(name.into(), end, Plain { addr: self, panic })
    }
}

impl<A: Actor> LocalActor<A> for ChildRef<A> {
    fn export(self) -> Result<RemoteAddr<A>> {
        let mut kept = self.exported().lock();
        let before = kept.as_ref().and_then(|kept| kept.downcast_ref::<UntypedAddr>());
        if let Some(addr) = before.filter(|addr| addr.connected()) {
            return Ok(RemoteAddr::of(addr.clone()));
        }
        let watched = self.clone();
        let child = Child { child: self.clone(), alive: None, next: None };
        let addr = exported::<A>(self.path().into(), move || watched.end(), child)?;
        let (registry, id) = (Runtime::get()?.registry(), addr.untyped.target.actor);
        let (ends, inbox) = (registry.keep_ends(id, self.path()), registry.inbox(id));
        self.on_end(move |end| match end {
            ChildEnd::Incarnation(reason) => {
                ends.failed(reason.clone());
                inbox.iter().for_each(|inbox| inbox.note_restart());
            }
            ChildEnd::Last(reason) => {
                // Its siblings may restart it before the pump sees the end.
                inbox.iter().for_each(|inbox| inbox.close(reason));
                ends.gone(reason.clone());
            }
        });
        *kept = Some(Box::new(addr.untyped.clone()));
        Ok(addr)
    }
}

/// The actor of a pump.
trait Pumped: Send + 'static {
    /// Is ready when the actor can get messages.
    ///
    /// # Errors
    /// The reason why it never can again.
    fn poll_alive(&mut self, task: &mut Context<'_>) -> Poll<Result<(), ExitReason>>;

    fn handle(&mut self, dispatch: &mut Dispatch, message: IncomingMessage);
}

/// An actor that lives once.
struct Plain<A: Actor> {
    addr: Addr<A>,
    panic: PanicSlot,
}

impl<A: Actor> Pumped for Plain<A> {
    fn poll_alive(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ExitReason>> {
        Poll::Ready(if self.addr.connected() { Ok(()) } else { Err(self.panic.end()) })
    }

    fn handle(&mut self, dispatch: &mut Dispatch, message: IncomingMessage) {
        // The actor handles the message elsewhere, so a panic here does not concern it.
        let _ = dispatch.handle(&mut self.addr, &mut self.panic, message);
    }
}

/// An actor whose supervisor restarts it. Messages wait while there is no incarnation.
struct Child<A: Actor> {
    child: ChildRef<A>,
    alive: Option<Incarnation<A>>,
    next: Option<BoxFuture<'static, Result<Incarnation<A>, ExitReason>>>,
}

impl<A: Actor> Pumped for Child<A> {
    fn poll_alive(&mut self, task: &mut Context<'_>) -> Poll<Result<(), ExitReason>> {
        if self.alive.as_ref().is_some_and(Incarnation::is_alive) {
            return Poll::Ready(Ok(()));
        }
        let child = &self.child;
        let next = self.next.get_or_insert_with(|| {
            let child = child.clone();
            Box::pin(async move { child.incarnation().await })
        });
        let incarnation = ready!(next.as_mut().poll(task));
        self.next = None;
        Poll::Ready(incarnation.map(|incarnation| self.alive = Some(incarnation)))
    }

    fn handle(&mut self, dispatch: &mut Dispatch, message: IncomingMessage) {
        if let Some(incarnation) = &mut self.alive {
            let mut name: Arc<str> = self.child.path().into();
            let _ = dispatch.handle(incarnation, &mut name, message);
        }
    }
}

/// Makes an inbox for an actor, passes its messages to the actor until that ends, and returns the
/// address.
fn exported<A: Actor>(
    name: Arc<str>,
    end: impl Fn() -> Option<ExitReason> + Send + Sync + 'static,
    mut actor: impl Pumped,
) -> Result<RemoteAddr<A>> {
    let runtime = Runtime::get()?;
    let home = ProcessRef { id: runtime.id(), address: runtime.address_now()?.into() };
    let inbox = Arc::new(Inbox::new(usize::MAX, Full::Fail));
    inbox.read_by(std::any::type_name::<A>(), runtime.part());
    let id = runtime.registry().export(Arc::clone(&inbox), end);
    let pump = move || async move {
        let mut dispatch = Dispatch::new(runtime);
        poll_fn(|task| {
            let (mut turn, mut has_ended) = (0, false);
            loop {
                match actor.poll_alive(task) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(reason)) => inbox.close(&reason),
                    Poll::Pending => break,
                }
                match inbox.poll_next(task) {
                    Poll::Ready(Some(message)) => actor.handle(&mut dispatch, message),
                    Poll::Ready(None) => {
                        has_ended = true;
                        break;
                    }
                    Poll::Pending => break,
                }
                turn += 1;
            }
            if turn > 0 {
                inbox.note_turn(turn, false, Instant::now());
            }
            dispatch.poll_answers(task);
            // The thread of the actor may run answers on: those of a `ResponseFuture`.
            if has_ended && dispatch.is_idle() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    };
    // This is most likely the actor's own thread. Running there saves waking another one.
    match actix::Arbiter::try_current() {
        Some(arbiter) => drop(arbiter.spawn_fn(move || drop(fiber_core::spawn_local(pump())))),
        None => runtime.spawn(pump),
    }
    let target =
        Target { session: runtime.session(), name, home, actor: id, owned: false, places: None };
    Ok(RemoteAddr::of(UntypedAddr::new(target)))
}

/// The panic that has ended an exported actor, once a call has seen it.
///
/// actix tells nobody how an actor ends. But when a panic unwinds the actor, that drops what its
/// calls wait for, and wakes them on the thread of the panic, before the actor is seen to have ended.
#[derive(Clone, Default)]
pub(super) struct PanicSlot(Arc<Seen>);

#[derive(Default)]
struct Seen {
    message: OnceLock<String>,
    /// Whether the call whose handler panicked knows it.
    is_told: AtomicBool,
}

impl PanicSlot {
    /// Returns why the actor has ended. A panic that no call has seen looks as a normal end.
    fn end(&self) -> ExitReason {
        let panic = self.0.message.get().cloned();
        panic.map_or(ExitReason::Normal, ExitReason::Panicked)
    }

    /// Waits for the answer of the actor to a call.
    ///
    /// # Errors
    /// The panic of the handler, or the actor's end.
    pub(super) async fn witness<T, E>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, CallEnd> {
        let witness = Arc::new(Witness { seen: Arc::clone(&self.0), caller: Mutex::default() });
        let waker = Waker::from(Arc::clone(&witness));
        let mut answer = pin!(answer);
        let answer = poll_fn(|task| {
            *witness.caller.lock() = Some(task.waker().clone());
            answer.as_mut().poll(&mut Context::from_waker(&waker))
        });
        answer.await.map_err(|_| match self.0.message.get() {
            // The first to be woken is the call whose handler panicked.
            Some(panic) if !self.0.is_told.swap(true, Ordering::Relaxed) => {
                CallEnd::Panicked(panic.clone())
            }
            _ => CallEnd::Stopped(self.end()),
        })
    }
}

/// Why an exported actor gave no answer.
pub(super) enum CallEnd {
    /// The handler panicked.
    Panicked(String),
    Stopped(ExitReason),
}

/// Sees the panic that wakes a call.
struct Witness {
    seen: Arc<Seen>,
    caller: Mutex<Option<Waker>>,
}

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(panic) = panics::unwinding() {
            let _ = self.seen.message.set(panic);
        }
        let caller = self.caller.lock().take();
        caller.into_iter().for_each(Waker::wake);
    }
}
