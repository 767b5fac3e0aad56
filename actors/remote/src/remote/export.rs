//! Exporting local actors to other processes.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use actix::{Actor, Addr};
use fiber_core::{ExitReason, panics};
use parking_lot::Mutex;

use super::inbox_pump::Dispatch;
use fiber_runtime::mesh::{ActorId, CallFailure, Full, Inbox};
use fiber_runtime::runtime::Runtime;

/// Makes an inbox for an actor, and passes its messages to the actor until that ends.
pub(super) fn export<A: Actor>(runtime: &'static Runtime, addr: Addr<A>) -> ActorId {
    panics::watch();
    let inbox = Arc::new(Inbox::new(usize::MAX, Full::Fail));
    inbox.read_by(std::any::type_name::<A>(), runtime.part());
    let (panic, watched) = (PanicSlot::default(), addr.clone());
    let seen = panic.clone();
    let end = move || (!watched.connected()).then(|| seen.end());
    let actor = runtime.registry().export(Arc::clone(&inbox), end);
    let pump = move || async move {
        let mut dispatch = Dispatch::new(runtime);
        let (mut addr, mut panic) = (addr, panic);
        poll_fn(|task| {
            let (mut turn, mut has_ended) = (0, false);
            while let Poll::Ready(next) = inbox.poll_next(task) {
                let Some(message) = next else {
                    has_ended = true;
                    break;
                };
                if !addr.connected() {
                    message.responder.fail(&CallFailure::Stopped(panic.end()));
                    inbox.close(&panic.end());
                    continue;
                }
                // The actor handles the message elsewhere, so a panic here does not concern it.
                let _ = dispatch.handle(&mut addr, &mut panic, message);
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
    actor
}

/// The message of the panic that has ended an exported actor, once a call has seen it.
///
/// actix tells nobody how an actor ends. But when a panic unwinds the actor, that drops what its
/// calls wait for, and wakes them on the thread of the panic.
#[derive(Clone, Default)]
pub(super) struct PanicSlot(Arc<OnceLock<String>>);

impl PanicSlot {
    /// Returns why the actor has ended. A panic that no call has seen looks as a normal end.
    pub(super) fn end(&self) -> ExitReason {
        self.0.get().map_or(ExitReason::Normal, |panic| ExitReason::Panicked(panic.clone()))
    }

    /// Waits for the answer of the actor to a call.
    ///
    /// # Errors
    /// The panic of the handler, or the actor's end.
    pub(super) async fn witness<T, E>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, CallEnd> {
        let witness = Arc::new(Witness { panic: OnceLock::new(), caller: Mutex::default() });
        let waker = Waker::from(Arc::clone(&witness));
        let mut answer = pin!(answer);
        let answer = poll_fn(|task| {
            *witness.caller.lock() = Some(task.waker().clone());
            answer.as_mut().poll(&mut Context::from_waker(&waker))
        });
        answer.await.map_err(|_| match witness.panic.get() {
            // The first to see it is the call whose handler panicked.
            Some(panic) if self.0.set(panic.clone()).is_ok() => CallEnd::Panicked(panic.clone()),
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
    panic: OnceLock<String>,
    caller: Mutex<Option<Waker>>,
}

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(panic) = panics::unwinding() {
            let _ = self.panic.set(panic);
        }
        let caller = self.caller.lock().take();
        caller.into_iter().for_each(Waker::wake);
    }
}
