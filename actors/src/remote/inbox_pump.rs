//! What carries messages from an inbox to an actor, and answers back.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use actix::fut::ActorFuture;
use actix::{Actor, ActorContext, ActorState, Context};
use fiber_core::at_exit::flush_output;
use fiber_core::entry::{Entry, EntryRef, MethodFn};
use fiber_core::{ExitReason, Failure, FailureKind, panics};
use fiber_transport::BusyPoll;
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;

use super::method::{Encoded, Handling, Outcome};
use crate::mesh::{CallFailure, Delivery, Inbox, Responder};
use crate::objects::{are_attached, when_attached};

/// Messages handled before others of the thread have their turn.
const TURN: usize = 64;

/// Calls whose handlers have begun and not answered.
#[derive(Default)]
struct UnderWay {
    calls: HashMap<u64, Responder>,
    last: u64,
}

/// Hands messages to an actor, and answers as the handlers end, in whatever order.
pub(crate) struct Dispatch {
    methods: HashMap<EntryRef, &'static Entry<MethodFn>>,
    under_way: Arc<Mutex<UnderWay>>,
    later: FuturesUnordered<LocalBoxFuture<'static, (u64, Encoded)>>,
    limit: usize,
    before_answer: fn(),
}

impl Dispatch {
    pub(crate) fn new(limit: usize) -> Dispatch {
        let (methods, under_way, later) = (HashMap::new(), Arc::default(), FuturesUnordered::new());
        Dispatch { methods, under_way, later, limit, before_answer: || () }
    }

    fn respond(&self, responder: Responder, answer: Encoded) {
        (self.before_answer)();
        match answer {
            Ok(frame) => responder.answer(frame),
            Err(failure) => responder.fail(&failure),
        }
    }

    /// Has a message handled.
    ///
    /// # Errors
    /// The handler's panic in words. The caller has been told.
    pub(crate) fn handle(
        &mut self,
        actor: &mut dyn Any,
        context: &mut dyn Any,
        delivery: Delivery,
    ) -> Result<(), String> {
        let Delivery { method, message, responder } = delivery;
        let failed = |kind, problem: &dyn std::fmt::Display| {
            CallFailure::Failed(Failure::new(kind, problem))
        };
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
        let wanted = responder.is_wanted();
        let mut handling = Handling { message, wanted, limit: self.limit, outcome: Outcome::None };
        let body = AssertUnwindSafe(|| entry.call()(actor, context, &mut handling));
        if let Err(panic) = panics::catch(|| catch_unwind(body)) {
            if !wanted {
                panic.print_backtrace();
            }
            let message = panic.message.clone();
            responder.fail(&CallFailure::Failed(panic.into()));
            return Err(message);
        }
        match handling.outcome {
            Outcome::Now(answer) if !are_attached() => {
                self.answer_later(responder, async { answer })
            }
            Outcome::Now(answer) => self.respond(responder, answer),
            Outcome::None => {}
            Outcome::Later(answer) => self.answer_later(responder, answer),
        }
        Ok(())
    }

    /// Answers when the answer is there, and the owners of objects whose handles came with the
    /// message know that: the caller does not hold the objects any longer than that.
    fn answer_later(
        &mut self,
        responder: Responder,
        answer: impl Future<Output = Encoded> + 'static,
    ) {
        let mut under_way = self.under_way.lock();
        under_way.last += 1;
        let number = under_way.last;
        under_way.calls.insert(number, responder);
        self.later.push(Box::pin(async move {
            let answer = answer.await;
            when_attached().await;
            (number, answer)
        }));
    }

    /// Passes on the answers that have become ready.
    pub(super) fn poll_answers(&mut self, task: &mut TaskContext<'_>) {
        while let Poll::Ready(Some((number, answer))) = self.later.poll_next_unpin(task) {
            let responder = self.under_way.lock().calls.remove(&number);
            if let Some(responder) = responder {
                self.respond(responder, answer);
            }
        }
    }
}

/// The remote side of a supervised actor: what stays from one incarnation to the next.
pub(crate) struct Host {
    inbox: Arc<Inbox>,
    under_way: Arc<Mutex<UnderWay>>,
    limit: usize,
}

impl Host {
    /// One whose answers are at most `limit` bytes long.
    pub(crate) fn new(inbox: Arc<Inbox>, limit: usize) -> Host {
        Host { inbox, under_way: Arc::default(), limit }
    }

    /// What has to run in the actor's context. `handled` is called after each message.
    pub(crate) fn inbox_pump<A>(
        &self,
        handled: impl FnMut(&mut A) + Unpin + 'static,
    ) -> impl ActorFuture<A, Output = ()> + 'static
    where
        A: Actor<Context = Context<A>>,
    {
        let mut dispatch = Dispatch::new(self.limit);
        dispatch.under_way = Arc::clone(&self.under_way);
        // The owner may kill this process as soon as it has the answer.
        dispatch.before_answer = flush_output;
        InboxPump {
            inbox: Arc::clone(&self.inbox),
            dispatch,
            handled,
            busy_poll: BusyPoll::default(),
        }
    }

    /// The actor's incarnation has ended: what it had begun, nobody answers any more.
    pub(crate) fn ended(&self, reason: &ExitReason) {
        let calls = std::mem::take(&mut self.under_way.lock().calls);
        calls
            .into_values()
            .for_each(|responder| responder.fail(&CallFailure::Stopped(reason.clone())));
    }
}

struct InboxPump<F> {
    inbox: Arc<Inbox>,
    dispatch: Dispatch,
    handled: F,
    busy_poll: BusyPoll,
}

impl<A, F> ActorFuture<A> for InboxPump<F>
where
    A: Actor<Context = Context<A>>,
    F: FnMut(&mut A) + Unpin + 'static,
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
        // An actor that was told to stop leaves the rest to its next incarnation.
        while context.state() == ActorState::Running {
            let Poll::Ready(Some(delivery)) = this.inbox.poll_next(task) else { break };
            if let Err(panic) = this.dispatch.handle(actor, context, delivery) {
                // The actor is not to be used any more. Its supervisor catches this.
                resume_unwind(Box::new(panic));
            }
            (this.handled)(actor);
            turn += 1;
            if turn == TURN {
                task.waker().wake_by_ref();
                break;
            }
        }
        this.dispatch.poll_answers(task);
        if turn > 0 {
            flush_output();
            this.busy_poll.restart();
        }
        this.busy_poll.poll(task);
        Poll::Pending
    }
}
