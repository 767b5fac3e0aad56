//! The life of one entity in its process, from its first message until it sleeps or fails.
//!
//! Its context runs in a future of its own, which says to [`record`] and [`own_addr`] whose turn it
//! is. A pump in the context passes the messages to the handlers. An answer goes out when all events
//! before it are recorded.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Instant;

use actix::dev::ContextFut;
use actix::fut::ActorFuture;
use actix::{Actor, ActorContext, ActorState, AsyncContext, Context};
use fiber_core::stacks::user_code;
use fiber_core::{ExitReason, Result, panics};
use fiber_runtime::mesh::{CallFailure, enter_request};
use fiber_runtime::runtime::report_panic;
use fiber_values::codec::EncodedValue;
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;

use super::keeper::{Plan, Shared};
use super::state::Kept;
use super::wire::RecordChange;
use crate::remote::{CallOutcome, Encoded, OpenCall};

/// How many messages one entity handles before others run.
const TURN: usize = 64;

thread_local! {
    /// The entity that runs.
    static CURRENT: RefCell<Option<Rc<dyn Own>>> = const { RefCell::new(None) };
}

/// The entity that runs, as its own code sees it.
trait Own {
    fn record(self: Rc<Self>, event: EncodedValue);

    /// Returns its address, an `Entity`.
    fn addr(&self) -> Result<Box<dyn Any>>;
}

/// Returns the address of the entity that runs, an `Entity`, if one does.
pub(super) fn own_addr() -> Option<Result<Box<dyn Any>>> {
    CURRENT.with_borrow(Option::clone).map(|current| current.addr())
}

/// Records an event of the entity that runs, if one does.
///
/// # Panics
/// If it can't be encoded.
pub(super) fn record(encode: impl FnOnce() -> Result<EncodedValue>) {
    let Some(current) = CURRENT.with_borrow(Option::clone) else { return };
    match encode() {
        Ok(event) => current.record(event),
        Err(error) => panic!("the event can't be recorded: {error}"),
    }
}

/// Passes a message to its handler.
type Run<A> = Box<dyn FnOnce(&mut A, &mut <A as Actor>::Context) -> CallOutcome>;

/// A message for an entity, and its answer.
pub(super) struct Work<A: Actor> {
    pub(super) run: Run<A>,
    pub(super) call: OpenCall,
    /// The time at which the caller stops waiting.
    pub(super) deadline: Option<Instant>,
}

impl<A: Actor> Work<A> {
    pub(super) fn fail(self, failure: CallFailure) {
        self.call.answer(Err(failure));
    }
}

/// The next step of an entity that has no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Wait,
    /// It may refuse, by its `stopping`.
    Sleep,
    /// Its key belongs to another process.
    Leave,
    /// Its events can't be recorded, so it ends at once.
    Fail,
}

/// A live entity.
pub(super) struct Live<A: Actor<Context = Context<A>>> {
    pub(super) key: Rc<str>,
    shared: Rc<Shared<A>>,
    queue: RefCell<VecDeque<Work<A>>>,
    waker: RefCell<Option<Waker>>,
    rest: Cell<Rest>,
    /// The messages without an answer.
    open: Cell<usize>,
    last_use: Cell<Instant>,
    /// Calls whose handlers' futures are under way.
    later: RefCell<Option<Box<Answers>>>,
    /// The number of its last event, and of the last one before its last snapshot.
    last: Cell<u64>,
    in_snapshot: Cell<u64>,
    /// The last write that has an event of it.
    pub(super) write: Cell<u64>,
    /// Messages since the last snapshot.
    messages: Cell<u64>,
    last_snapshot: Cell<Instant>,
}

/// Calls, by their numbers here.
type Answers = HashMap<u64, OpenCall>;

/// How the life of an entity has ended.
pub(super) enum End {
    /// It has stopped. Its state is on its way to the record.
    Stopped,
    /// It panicked, with this message. What it has not recorded is lost.
    Panicked(String),
}

impl<A: Actor<Context = Context<A>>> Live<A> {
    /// Starts an actor as the entity of a key. `last` is the number of its last event, and
    /// `in_snapshot` that of the last one before its snapshot.
    pub(super) fn start(
        shared: &Rc<Shared<A>>,
        key: Rc<str>,
        actor: A,
        (in_snapshot, last): (u64, u64),
    ) -> Rc<Live<A>> {
        let now = Instant::now();
        let live = Rc::new(Live {
            key,
            shared: Rc::clone(shared),
            // Most entities have one message at a time, and buffers start with room for four.
            queue: RefCell::new(VecDeque::with_capacity(1)),
            waker: RefCell::default(),
            rest: Cell::new(Rest::Wait),
            open: Cell::new(0),
            last_use: Cell::new(now),
            later: RefCell::default(),
            last: Cell::new(last),
            in_snapshot: Cell::new(in_snapshot),
            write: Cell::new(0),
            messages: Cell::new(0),
            last_snapshot: Cell::new(now),
        });
        let mut context = Context::new();
        context.spawn(Pump { live: Rc::clone(&live), later: None, calls: 0 });
        let context = Some(context.into_future(actor));
        shared.living.add(Life { context, live: Rc::clone(&live) });
        live
    }

    /// Gives the entity a message.
    pub(super) fn push(&self, work: Work<A>) {
        self.open.set(self.open.get() + 1);
        self.last_use.set(Instant::now());
        self.queue.borrow_mut().push_back(work);
        self.wake();
    }

    /// Returns how many messages have no answer.
    pub(super) fn unanswered(&self) -> usize {
        self.open.get()
    }

    /// Returns whether it has no message.
    pub(super) fn is_idle(&self) -> bool {
        self.open.get() == 0
    }

    /// Returns whether it is to go on, as far as is known: its key is here.
    pub(super) fn stays(&self) -> bool {
        matches!(self.rest.get(), Rest::Wait | Rest::Sleep)
    }

    /// Lets it sleep if it has done nothing since this time.
    pub(super) fn sleep_if_idle_since(&self, time: Instant) {
        if self.is_idle() && self.last_use.get() <= time && self.rest.get() == Rest::Wait {
            self.rest.set(Rest::Sleep);
            self.wake();
        }
    }

    /// Lets it end as soon as it has no message.
    pub(super) fn leave(&self) {
        self.rest.set(Rest::Leave);
        self.wake();
    }

    /// Ends it, because its events can't be recorded.
    pub(super) fn fail(&self) {
        self.rest.set(Rest::Fail);
        self.wake();
    }

    /// Returns the messages that no handler has got.
    pub(super) fn take_queue(&self) -> VecDeque<Work<A>> {
        std::mem::take(&mut self.queue.borrow_mut())
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Sends an answer, once all events are recorded.
    fn answer(self: &Rc<Self>, call: OpenCall, encoded: Encoded) {
        if let Some((_, call, encoded)) = self.shared.writes.hold((Rc::clone(self), call, encoded))
        {
            self.answered(call, encoded);
        }
    }

    pub(super) fn answered(&self, call: OpenCall, encoded: Encoded) {
        call.answer(encoded);
        self.open.set(self.open.get() - 1);
        self.last_use.set(Instant::now());
        if self.is_idle() && self.rest.get() != Rest::Wait {
            self.wake();
        }
    }

    /// Takes a snapshot if it is time for one, or if the entity ends.
    fn keep(&self, actor: &A, ends: Ends) {
        let Plan { kept, snapshots, .. } = &self.shared.plan;
        let (last, in_snapshot) = (self.last.get(), self.in_snapshot.get());
        self.messages.set(self.messages.get() + u64::from(ends == Ends::No));
        let is_due = match (kept, ends) {
            (Kept::Events, _) => {
                snapshots.messages.is_some_and(|every| last >= in_snapshot + every)
            }
            (_, Ends::Yes) => true,
            (_, Ends::No) => {
                snapshots.messages.is_some_and(|every| self.messages.get() >= every)
                    || snapshots.time.is_some_and(|time| self.last_snapshot.get().elapsed() >= time)
            }
        };
        if !is_due {
            return;
        }
        match (self.shared.state.take)(actor) {
            Ok(Some(state)) => {
                self.in_snapshot.set(last);
                self.messages.set(0);
                self.last_snapshot.set(Instant::now());
                let (key, from) = (self.key.to_string(), in_snapshot + 1);
                if self.shared.writes.add(RecordChange::Snapshot { key, from, number: last, state })
                {
                    self.shared.write_soon();
                }
            }
            Ok(None) => {}
            Err(error) => tracing::error!("the state of `{}` can't be kept: {error}", self.key),
        }
    }

    /// Fails the calls that the entity was handling.
    fn fail_running(&self, reason: &ExitReason) {
        let later = self.later.borrow_mut().take();
        for call in later.into_iter().flat_map(|later| later.into_values()) {
            self.answered(call, Err(CallFailure::Stopped(reason.clone())));
        }
    }
}

/// The entities of a process, which run in one future. A task of tokio for each would take more
/// memory than an entity.
pub(super) struct Living<A: Actor<Context = Context<A>>> {
    born: RefCell<Vec<Life<A>>>,
    waker: RefCell<Option<Waker>>,
}

impl<A: Actor<Context = Context<A>>> Default for Living<A> {
    fn default() -> Living<A> {
        Living { born: RefCell::default(), waker: RefCell::default() }
    }
}

impl<A: Actor<Context = Context<A>>> Living<A> {
    fn add(&self, life: Life<A>) {
        self.born.borrow_mut().push(life);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Runs them, without an end.
    pub(super) async fn run(&self) {
        let mut lives = FuturesUnordered::new();
        poll_fn(|task| -> Poll<()> {
            *self.waker.borrow_mut() = Some(task.waker().clone());
            loop {
                lives.extend(self.born.take());
                if lives.poll_next_unpin(task) != Poll::Ready(Some(())) {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }
}

/// Whether an entity ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    No,
    Yes,
}

impl<A: Actor<Context = Context<A>>> Own for Live<A> {
    fn record(self: Rc<Self>, event: EncodedValue) {
        assert!(
            self.shared.plan.kept == Kept::Events,
            "`persist` needs entities that record events: start them with \
             `Entities::builder(..).events()`"
        );
        let number = self.last.get() + 1;
        self.last.set(number);
        if self.shared.writes.add_event(&self, number, event) {
            self.shared.write_soon();
        }
    }

    fn addr(&self) -> Result<Box<dyn Any>> {
        Ok(Box::new(self.shared.entities()?.of(&self.key)))
    }
}

/// The future of an entity's context.
struct Life<A: Actor<Context = Context<A>>> {
    context: Option<ContextFut<A, Context<A>>>,
    live: Rc<Live<A>>,
}

impl<A: Actor<Context = Context<A>>> Unpin for Life<A> {}

impl<A: Actor<Context = Context<A>>> Future for Life<A> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(context) = &mut this.context else { return Poll::Ready(()) };
        let before = CURRENT.replace(Some(Rc::clone(&this.live) as Rc<dyn Own>));
        let polled = panics::catch(|| user_code(|| Pin::new(context).poll(task)));
        let end = match polled {
            Ok(Poll::Pending) => None,
            Ok(Poll::Ready(())) => Some(End::Stopped),
            Err(panic) => Some(End::Panicked(report_panic(panic).message)),
        };
        if let Some(end) = end {
            // A context that is dropped lets its actor stop, which may panic again.
            let context = this.context.take();
            let _ = panics::catch(|| drop(context));
            CURRENT.set(before);
            this.live.fail_running(&match &end {
                End::Stopped => ExitReason::Normal,
                End::Panicked(message) => ExitReason::Panicked(message.clone()),
            });
            this.live.shared.ended(&this.live, end);
            return Poll::Ready(());
        }
        CURRENT.set(before);
        Poll::Pending
    }
}

/// Answers that are not ready: the numbers of their calls, and the outcomes.
type Later = FuturesUnordered<LocalBoxFuture<'static, (u64, Encoded)>>;

/// Passes messages to an entity.
struct Pump<A: Actor<Context = Context<A>>> {
    live: Rc<Live<A>>,
    /// From the first answer that is not ready at once.
    later: Option<Later>,
    calls: u64,
}

impl<A: Actor<Context = Context<A>>> Unpin for Pump<A> {}

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for Pump<A> {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        actor: &mut A,
        context: &mut Context<A>,
        task: &mut TaskContext<'_>,
    ) -> Poll<()> {
        let this = &mut *self;
        let live = Rc::clone(&this.live);
        if live.rest.get() == Rest::Fail {
            context.terminate();
            return Poll::Pending;
        }
        let mut turn = 0;
        // It may wait for a future of its own: `Context::wait`, `AtomicResponse`.
        while context.state() == ActorState::Running && !context.waiting() {
            let Some(work) = live.queue.borrow_mut().pop_front() else { break };
            this.handle(&live, work, actor, context);
            live.keep(actor, Ends::No);
            turn += 1;
            if turn == TURN {
                task.waker().wake_by_ref();
                break;
            }
        }
        if let Some(later) = &mut this.later {
            while let Poll::Ready(Some((number, encoded))) = later.poll_next_unpin(task) {
                let call = live.later.borrow_mut().as_mut().and_then(|all| all.remove(&number));
                if let Some(call) = call {
                    live.answer(call, encoded);
                }
            }
        }
        if live.is_idle() && context.state() == ActorState::Running {
            match live.rest.get() {
                Rest::Wait | Rest::Fail => {}
                Rest::Sleep => {
                    live.rest.set(Rest::Wait);
                    context.stop();
                }
                Rest::Leave => context.terminate(),
            }
        }
        if context.state() != ActorState::Running {
            live.keep(actor, Ends::Yes);
        }
        let mut waker = live.waker.borrow_mut();
        waker.get_or_insert_with(|| task.waker().clone()).clone_from(task.waker());
        Poll::Pending
    }
}

impl<A: Actor<Context = Context<A>>> Pump<A> {
    fn handle(
        &mut self,
        live: &Rc<Live<A>>,
        work: Work<A>,
        actor: &mut A,
        context: &mut Context<A>,
    ) {
        let Work { run, call, deadline } = work;
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return live.answered(call, Err(CallFailure::Late));
        }
        let _in_request = enter_request(deadline);
        match panics::catch(|| run(actor, context)) {
            Ok(CallOutcome::Now(encoded)) => live.answer(call, encoded),
            Ok(CallOutcome::Later(outcome)) => {
                self.calls += 1;
                let number = self.calls;
                live.later.borrow_mut().get_or_insert_default().insert(number, call);
                let later = self.later.get_or_insert_with(FuturesUnordered::new);
                later.push(Box::pin(async move { (number, outcome.await) }));
            }
            Ok(CallOutcome::None) => drop(call),
            Err(panic) => {
                let failure = report_panic(panic);
                let message = failure.message.clone();
                live.answered(call, Err(CallFailure::Failed(failure)));
                // The actor may be in an invalid state.
                std::panic::resume_unwind(Box::new(message));
            }
        }
    }
}
