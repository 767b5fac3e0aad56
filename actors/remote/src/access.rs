//! Handlers that wait, as `async fn`s.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use actix::{Actor, ActorFuture, ActorResponse, AsyncContext};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// Access to the actor in an async handler.
///
/// The handler runs beside the other messages of the actor. `with` lends it the actor in between.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::prelude::*;
///
/// struct Account(i64);
///
/// impl Actor for Account {
///     type Context = Context<Self>;
/// }
///
/// #[fiber::message(i64)]
/// struct Deposit(i64);
///
/// /// Moves money to another account.
/// #[fiber::message(Result<i64, String>)]
/// struct Pay(RemoteAddr<Account>, i64);
///
/// #[fiber::handlers]
/// impl Account {
///     fn deposit(&mut self, Deposit(amount): Deposit) -> i64 {
///         self.0 += amount;
///         self.0
///     }
///
///     async fn pay(this: Access<Self>, Pay(to, amount): Pay) -> Result<i64, String> {
///         to.send(Deposit(amount)).await.map_err(|error| error.to_string())?;
///         Ok(this.with(move |account| account.deposit(Deposit(-amount))).await)
///     }
/// }
///
/// let anna = AsyncManager::start(Account, 100).wait()?;
/// let berta = AsyncManager::start(Account, 0).wait()?;
/// assert_eq!(anna.send(Pay(berta.addr(), 30)).wait()?, Ok(70));
/// assert_eq!(berta.send(Deposit(0)).wait()?, 30);
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct Access<A: Actor>(UnboundedSender<Visit<A>>);

/// A closure that has to run with the actor.
type Visit<A> = Box<dyn FnOnce(&mut A, &mut <A as Actor>::Context)>;

impl<A: Actor> Access<A> {
    /// Calls a closure with the actor, between two of its messages, and returns the result. The
    /// closure runs even if the future is dropped before it is ready.
    ///
    /// # Panics
    /// If the handler has ended, as it can have where the access is in a task of its own.
    pub async fn with<R: 'static>(&self, closure: impl FnOnce(&mut A) -> R + 'static) -> R {
        self.with_context(|actor, _| closure(actor)).await
    }

    /// Calls a closure with the actor and its context, as [`with`](Access::with).
    ///
    /// # Panics
    /// As `with`.
    pub async fn with_context<R: 'static>(
        &self,
        closure: impl FnOnce(&mut A, &mut A::Context) -> R + 'static,
    ) -> R {
        let (sender, result) = oneshot::channel();
        let visit = move |actor: &mut A, context: &mut A::Context| {
            // The handler may have stopped to wait for it.
            let _ = sender.send(closure(actor, context));
        };
        // Fails without the handler, and drops the closure with its sender.
        let _ = self.0.send(Box::new(visit));
        result.await.expect("an `Access` is used while its handler runs")
    }
}

impl<A: Actor> fmt::Debug for Access<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

/// The future of a handler, and the closures for which it waits.
struct Handling<A: Actor, R> {
    future: Pin<Box<dyn Future<Output = R>>>,
    visits: UnboundedReceiver<Visit<A>>,
}

impl<A: Actor, R> ActorFuture<A> for Handling<A, R> {
    type Output = R;

    fn poll(
        mut self: Pin<&mut Self>,
        actor: &mut A,
        context: &mut A::Context,
        task: &mut Context<'_>,
    ) -> Poll<R> {
        loop {
            if let Poll::Ready(result) = self.future.as_mut().poll(task) {
                return Poll::Ready(result);
            }
            match self.visits.poll_recv(task) {
                Poll::Ready(Some(visit)) => visit(actor, context),
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// Runs an async handler. For `#[fiber::handlers]`.
#[doc(hidden)]
pub fn handle<A, F>(
    actor: &mut A,
    context: &mut A::Context,
    handler: impl FnOnce(Access<A>) -> F,
) -> ActorResponse<A, F::Output>
where
    A: Actor<Context: AsyncContext<A>>,
    F: Future<Output: 'static> + 'static,
{
    let (access, visits) = unbounded_channel();
    let mut handling = Handling { future: Box::pin(handler(Access(access))), visits };
    // The first step runs at once: its calls have the deadline of this one, and what it does with
    // the actor comes before the next message. The actor's context polls the future once more.
    match Pin::new(&mut handling).poll(actor, context, &mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => ActorResponse::reply(answer),
        Poll::Pending => ActorResponse::r#async(handling),
    }
}
