//! Passing the messages of an inbox to an actor, and its answers back.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use actix::fut::ActorFuture;
use actix::{Actor, ActorContext, ActorState, AsyncContext, Context};
use fiber_core::at_exit::flush_output;
use fiber_core::{ExitReason, Failure, FailureKind, panics};
use fiber_transport::BusyPoll;
use fiber_values::entry::{Entry, EntryRef, MethodFn};
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;

use super::held_answers::{HeldAnswers, Holding, respond};
use super::method::{CallOutcome, Encoded, MethodCall};
use fiber_runtime::endpoint::message_limit;
use fiber_runtime::mesh::{CallFailure, Inbox, IncomingMessage, Responder, enter_request};
use fiber_runtime::objects::Attachments;
use fiber_runtime::runtime::{Runtime, report_panic};

/// The number of messages that are handled before other tasks of the thread run.
const TURN: u64 = 64;

/// The calls of an actor that are being handled.
pub(crate) struct RunningCalls {
    calls: Mutex<HashMap<u64, Responder>>,
    last: AtomicU64,
    attachments: &'static Attachments,
    before_answer: fn(),
    held: Holding,
}

impl RunningCalls {
    fn new(runtime: &Runtime, before_answer: fn(), held: Holding) -> Arc<RunningCalls> {
        let (calls, last, attachments) = (Mutex::default(), AtomicU64::new(0), runtime.part());
        Arc::new(RunningCalls { calls, last, attachments, before_answer, held })
    }

    /// Adds a call, and returns its number.
    fn begin(&self, responder: Responder) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.calls.lock().insert(number, responder);
        number
    }

    /// Answers a call, unless its incarnation has ended.
    fn finish(&self, number: u64, answer: Encoded) {
        let responder = self.calls.lock().remove(&number);
        if let Some(responder) = responder {
            self.respond(responder, answer);
        }
    }

    fn respond(&self, responder: Responder, answer: Encoded) {
        if let Some(held) = &self.held {
            return held.hold(responder, answer);
        }
        (self.before_answer)();
        respond(responder, answer);
    }
}

/// A call whose method answers it itself, on its thread. If it is dropped, the call fails.
pub(crate) struct OpenCall {
    running: Arc<RunningCalls>,
    /// 0 once it is answered.
    number: u64,
}

impl OpenCall {
    pub(super) fn new(running: Arc<RunningCalls>, responder: Responder) -> OpenCall {
        OpenCall { number: running.begin(responder), running }
    }

    /// Answers when the owners of the objects in the message have confirmed this process as a
    /// holder, as they mostly have.
    pub(crate) fn answer(mut self, answer: Encoded) {
        if self.running.attachments.are_confirmed() {
            let number = std::mem::take(&mut self.number);
            return self.running.finish(number, answer);
        }
        drop(fiber_core::spawn_local(async move {
            self.running.attachments.confirmed().await;
            self.answer(answer);
        }));
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if self.number > 0 {
            // Its responder fails the call.
            let responder = self.running.calls.lock().remove(&self.number);
            drop(responder);
        }
    }
}

/// Passes messages to an actor, and answers in the order in which their handlers end.
pub(crate) struct Dispatch {
    methods: HashMap<EntryRef, &'static Entry<MethodFn>>,
    running: Arc<RunningCalls>,
    later: FuturesUnordered<LocalBoxFuture<'static, (u64, Encoded)>>,
    limit: usize,
}

impl Dispatch {
    pub(crate) fn new(runtime: &'static Runtime) -> Dispatch {
        Dispatch::of(runtime, RunningCalls::new(runtime, || (), None))
    }

    fn of(runtime: &'static Runtime, running: Arc<RunningCalls>) -> Dispatch {
        let limit = message_limit(runtime.config());
        Dispatch { methods: HashMap::new(), running, later: FuturesUnordered::new(), limit }
    }

    /// Passes a message to its handler.
    ///
    /// # Errors
    /// The message of the handler's panic. The caller has been answered.
    pub(crate) fn handle(
        &mut self,
        actor: &mut dyn Any,
        context: &mut dyn Any,
        incoming: IncomingMessage,
    ) -> Result<(), String> {
        let IncomingMessage { method, message, responder, deadline, .. } = incoming;
        let failed = |kind, problem: &dyn std::fmt::Display| {
            CallFailure::Failed(Failure::new(kind, problem))
        };
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            responder.fail(&CallFailure::Late);
            return Ok(());
        }
        let _in_request = enter_request(deadline);
        let entry = match self
            .methods
            .get(&method)
            .copied()
            .map_or_else(|| method.resolve::<MethodFn>(), Ok)
        {
            Ok(entry) => *self.methods.entry(method).or_insert(entry),
            Err(error) => {
                responder.fail(&failed(FailureKind::Unknown, &error));
                return Ok(());
            }
        };
        let expects_answer = responder.expects_answer();
        let mut call = MethodCall {
            message,
            expects_answer,
            limit: self.limit,
            outcome: CallOutcome::None,
            responder: Some(responder),
            running: Arc::clone(&self.running),
        };
        let panicked = panics::catch(|| entry.call()(actor, context, &mut call));
        let Some(responder) = call.responder else {
            return panicked.map_err(|panic| report_panic(panic).message);
        };
        if let Err(panic) = panicked {
            let failure = report_panic(panic);
            let message = failure.message.clone();
            responder.fail(&CallFailure::Failed(failure));
            return Err(message);
        }
        match call.outcome {
            CallOutcome::Now(answer) if !self.running.attachments.are_confirmed() => {
                self.answer_later(responder, async { answer })
            }
            CallOutcome::Now(answer) => self.running.respond(responder, answer),
            CallOutcome::None => {}
            CallOutcome::Later(answer) => self.answer_later(responder, answer),
        }
        Ok(())
    }

    /// Answers when the answer is there and the owners of the objects in the message have confirmed
    /// this process as a holder. The caller releases the objects when it gets the answer.
    fn answer_later(
        &mut self,
        responder: Responder,
        answer: impl Future<Output = Encoded> + 'static,
    ) {
        let number = self.running.begin(responder);
        let attachments = self.running.attachments;
        self.later.push(Box::pin(async move {
            let answer = answer.await;
            attachments.confirmed().await;
            (number, answer)
        }));
    }

    /// Returns whether no call waits for its answer.
    pub(super) fn is_idle(&self) -> bool {
        self.later.is_empty()
    }

    /// Sends the answers that have become ready.
    pub(super) fn poll_answers(&mut self, task: &mut TaskContext<'_>) {
        while let Poll::Ready(Some((number, answer))) = self.later.poll_next_unpin(task) {
            self.running.finish(number, answer);
        }
    }
}

/// The inbox of a supervised actor and its pending calls. It outlives the incarnations.
pub(crate) struct Host {
    runtime: &'static Runtime,
    inbox: Arc<Inbox>,
    running: Arc<RunningCalls>,
}

impl Host {
    /// With `held`, answers wait for snapshots.
    pub(crate) fn new(runtime: &'static Runtime, inbox: Arc<Inbox>, held: Holding) -> Host {
        // The owner may kill this process as soon as it has the answer.
        Host { runtime, inbox, running: RunningCalls::new(runtime, flush_output, held) }
    }

    /// Returns a future for the actor's context, which passes messages to the actor. It calls
    /// `handled` after each, and `keep` when answers wait for a snapshot, with these answers.
    pub(crate) fn inbox_pump<A>(
        &self,
        handled: impl FnMut(&mut A) + Unpin + 'static,
        keep: impl FnMut(&mut A, &HeldAnswers) + Unpin + 'static,
    ) -> impl ActorFuture<A, Output = ()> + 'static
    where
        A: Actor<Context = Context<A>>,
    {
        self.inbox.read_by(std::any::type_name::<A>(), self.runtime.part());
        InboxPump {
            inbox: Arc::clone(&self.inbox),
            dispatch: Dispatch::of(self.runtime, Arc::clone(&self.running)),
            handled,
            keep,
            busy_poll: BusyPoll::default(),
        }
    }

    /// Fails the calls that the ended incarnation was handling.
    pub(crate) fn ended(&self, reason: &ExitReason) {
        let calls = std::mem::take(&mut *self.running.calls.lock());
        calls
            .into_values()
            .for_each(|responder| responder.fail(&CallFailure::Stopped(reason.clone())));
        if let Some(held) = &self.running.held {
            held.ended(reason);
        }
    }
}

struct InboxPump<F, K> {
    inbox: Arc<Inbox>,
    dispatch: Dispatch,
    handled: F,
    keep: K,
    busy_poll: BusyPoll,
}

impl<A, F, K> ActorFuture<A> for InboxPump<F, K>
where
    A: Actor<Context = Context<A>>,
    F: FnMut(&mut A) + Unpin + 'static,
    K: FnMut(&mut A, &HeldAnswers) + Unpin + 'static,
{
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut A,
        context: &mut Context<A>,
        task: &mut TaskContext<'_>,
    ) -> Poll<()> {
        let this = self.get_mut();
        let mut turn = 0;
        // An actor that is stopping leaves the other messages to its next incarnation. One that
        // waits (`Context::wait`, `AtomicResponse`) gets them afterwards.
        while context.state() == ActorState::Running && !context.waiting() {
            let Poll::Ready(Some(message)) = this.inbox.poll_next(task) else { break };
            if let Err(panic) = this.dispatch.handle(actor, context, message) {
                this.inbox.note_turn(turn + 1, true, Instant::now());
                // The actor may be in an invalid state. Its supervisor catches the panic.
                resume_unwind(Box::new(panic));
            }
            (this.handled)(actor);
            if let Some(held) = &this.dispatch.running.held {
                held.note_message();
            }
            turn += 1;
            if turn == TURN {
                task.waker().wake_by_ref();
                break;
            }
        }
        this.dispatch.poll_answers(task);
        if let Some(held) = &this.dispatch.running.held
            && held.is_due(task)
        {
            (this.keep)(actor, held);
        }
        if turn > 0 {
            this.inbox.note_turn(turn, false, Instant::now());
            flush_output();
            this.busy_poll.restart();
        }
        this.busy_poll.poll(task);
        Poll::Pending
    }
}
