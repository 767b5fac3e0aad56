//! The future of an answer, for async code and for code that is not async.

mod call;
mod completed;
mod replies;

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, poll_fn, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fiber_core::{Error, Result, block_on, forks, is_blocked};
use futures_util::future::{Either, select};
use tokio::task::unconstrained;

pub use self::call::PendingCall;
use self::call::circle;
pub use self::completed::{AsCompleted, CompletedIter, First, as_completed, first};
pub use self::replies::{Member, Replies};
use crate::mesh::{Alarm, Ask};
use crate::runtime::Runtime;

/// The future of an answer: of an actor, a shared object, or fiber itself.
///
/// `.await` it, or block the thread with [`wait`](Reply::wait). A request is sent when the method
/// that returns the reply is called, and is carried out even if the reply is never awaited.
/// Requests that wait for their turn are the exception: dropping the reply of a lock, a permit, an
/// event, a barrier or an element withdraws the request, unless it was granted.
///
/// If the process that is to answer dies, the reply fails: with [`Error::ActorStopped`] for an
/// actor, with [`Error::OwnerEnded`] for a shared object.
///
/// # Examples
/// ```
/// # fiber::init();
/// use std::time::Duration;
///
/// let count = fiber::sync::Value::new(1)?;
/// assert_eq!(count.get().wait()?, 1);
/// assert_eq!(count.get().timeout(Duration::from_secs(5)).wait()?, 1);
/// # Ok::<(), fiber::Error>(())
/// ```
#[must_use = "a reply says whether the request succeeded: use `.await` or `.wait()`"]
pub struct Reply<T>(Source<T>);

type Answer<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// The source of an answer.
enum Source<T> {
    Future {
        /// The name of the answer in [`Error::TimedOut`].
        what: Cow<'static, str>,
        answer: Answer<T>,
        /// The call behind it that may be part of a circle.
        ask: Option<Ask>,
    },
    /// The answer of an actor. It is not boxed: calls are many.
    Call(PendingCall<T>),
    /// The request could not be sent.
    Failed(Option<Error>),
}

impl<T> Reply<T> {
    #[doc(hidden)]
    pub fn new(answer: impl Future<Output = Result<T>> + Send + 'static) -> Reply<T> {
        Reply::named("the answer", answer)
    }

    /// Returns a reply that errors call `what`: "`what` did not happen within 3s".
    #[doc(hidden)]
    pub fn named(
        what: impl Into<Cow<'static, str>>,
        answer: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Reply<T> {
        Reply(Source::Future { what: what.into(), answer: Box::pin(answer), ask: None })
    }

    /// Works as [`new`](Reply::new), for a wait that may need the thread that waits:
    /// `needs_this_thread` returns whether it does.
    #[doc(hidden)]
    pub fn checked(
        answer: impl Future<Output = Result<T>> + Send + 'static,
        needs_this_thread: impl Fn() -> bool + Send + 'static,
    ) -> Reply<T>
    where
        T: 'static,
    {
        let mut answer = Box::pin(answer);
        Reply::new(poll_fn(move |context| {
            unless_deadlock(answer.as_mut().poll(context), &needs_this_thread)
        }))
    }

    #[doc(hidden)]
    pub fn failed(error: Error) -> Reply<T> {
        Reply(Source::Failed(Some(error)))
    }

    #[doc(hidden)]
    pub fn call(call: PendingCall<T>) -> Reply<T> {
        Reply(Source::Call(call))
    }

    /// Blocks this thread until the answer is there.
    ///
    /// Without a [`timeout`](Reply::timeout) there is no limit. The thread polls for up to `spin`
    /// of the [configuration](fiber_core::Config) before it sleeps, as most answers arrive soon. In
    /// async code, `.await` leaves the thread to other tasks.
    ///
    /// # Errors
    /// The request's own errors, and [`Error::WouldDeadlock`] on fiber's own threads and on that of
    /// an actor that is to answer, start or end.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let count = fiber::sync::Value::new(1)?;
    /// let (first, second) = (count.get(), count.get()); // both requests are sent here
    /// assert_eq!(first.wait()? + second.wait()?, 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait(self) -> Result<T> {
        let begin = |ask| Some(Runtime::get().ok()?.mesh().begin_wait(ask));
        let _waiting = self.ask().and_then(begin);
        block_on(self)
    }

    /// Waits for the answer for at most `limit`, counted from now.
    ///
    /// The returned reply fails with [`Error::TimedOut`] when the time is over. A request that
    /// waits for its turn is then withdrawn, as if the reply had been dropped; any other request is
    /// carried out.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// let lock = fiber::sync::Lock::new()?;
    /// let held = lock.lock().wait()?;
    /// assert!(lock.lock().timeout(Duration::from_millis(1)).wait().is_err());
    /// # drop(held);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn timeout(self, limit: Duration) -> Reply<T>
    where
        T: 'static,
    {
        let (what, ask) = (self.what().into_owned(), self.ask());
        let (name, call) = (what.clone().into(), ask.clone());
        let alarm = Runtime::get().map(|runtime| Alarm::after(runtime.mesh(), limit));
        let answer = Box::pin(async move {
            match select(self, alarm?).await {
                Either::Left((answer, _)) => answer,
                Either::Right(_) => {
                    Err(Error::TimedOut { what: what + &circle(ask.as_ref()), limit })
                }
            }
        });
        Reply(Source::Future { what: name, answer, ask: call })
    }

    /// Returns the call that may be part of a circle, if it is one.
    fn ask(&self) -> Option<Ask> {
        match &self.0 {
            Source::Future { ask, .. } => ask.clone(),
            Source::Call(call) => call.ask(),
            Source::Failed(_) => None,
        }
    }

    fn what(&self) -> Cow<'_, str> {
        match &self.0 {
            Source::Future { what, .. } => Cow::Borrowed(&**what),
            Source::Call(call) => Cow::Owned(call.what()),
            Source::Failed(_) => Cow::Borrowed("the answer"),
        }
    }
}

/// Replies of requests that are sent at once.
#[doc(hidden)]
impl<T: Send + 'static> Reply<T> {
    /// Returns a reply whose future has been polled once, so that its request is sent.
    pub fn begun(answer: impl Future<Output = Result<T>> + Send + 'static) -> Reply<T> {
        Reply::begun_in_box(Box::pin(answer), |answer| answer)
    }

    /// Works as [`begun`](Reply::begun), for a request that is carried out to its end although its
    /// reply is dropped. `needs_this_thread`: whether the thread that calls it would wait for itself.
    pub fn carried(
        answer: impl Future<Output = Result<T>> + Send + 'static,
        needs_this_thread: impl Fn() -> bool + Send + 'static,
    ) -> Reply<T> {
        let carried = |answer| Box::pin(Carried { answer: Some(answer), needs_this_thread }) as _;
        Reply::begun_in_box(Box::pin(answer), carried)
    }

    fn begun_in_box(
        mut answer: Answer<T>,
        pending: impl FnOnce(Answer<T>) -> Answer<T>,
    ) -> Reply<T> {
        // The caller polls it again, with a waker of its own.
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Reply::new(ready(answer)),
            Poll::Pending => {
                let answer = pending(answer);
                Reply(Source::Future { what: "the answer".into(), answer, ask: None })
            }
        }
    }
}

/// Returns the answer, or the error of a thread that waits for it and has to run first.
fn unless_deadlock<T>(
    answer: Poll<Result<T>>,
    needs_this_thread: &impl Fn() -> bool,
) -> Poll<Result<T>> {
    if answer.is_pending() && is_blocked() && needs_this_thread() {
        return Poll::Ready(Err(Error::WouldDeadlock));
    }
    answer
}

/// A future that goes on at the runtime's thread when nobody waits for it any more.
struct Carried<T: 'static, F> {
    answer: Option<Answer<T>>,
    needs_this_thread: F,
}

/// The answer is boxed, and the function is never pinned.
impl<T, F> Unpin for Carried<T, F> {}

impl<T, F: Fn() -> bool> Future for Carried<T, F> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let answer = self.answer.as_mut().expect("a future is not polled after its end");
        let Poll::Ready(answer) = answer.as_mut().poll(context) else {
            return unless_deadlock(Poll::Pending, &self.needs_this_thread);
        };
        self.answer = None;
        Poll::Ready(answer)
    }
}

impl<T, F> Drop for Carried<T, F> {
    fn drop(&mut self) {
        if let (Some(answer), Some(runtime)) = (self.answer.take(), Runtime::current()) {
            runtime.spawn(move || async move { drop(answer.await) });
        }
    }
}

/// Nothing in a reply is pinned to its place: futures are boxed.
impl<T> Unpin for Reply<T> {}

impl<T> Future for Reply<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        // Nobody would answer.
        forks::check()?;
        let answer = poll_fn(|context| match &mut self.0 {
            Source::Future { answer, .. } => answer.as_mut().poll(context),
            Source::Call(call) => call.poll(context),
            Source::Failed(error) => {
                Poll::Ready(Err(error.take().expect("a future is not polled after its end")))
            }
        });
        // Within tokio's budget, a task that awaits many answers at once would find each after the
        // first 128 pending, though it is there, and would be woken for each.
        pin!(unconstrained(answer)).poll(context)
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reply").field(&self.what()).finish()
    }
}
