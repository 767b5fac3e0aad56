//! Several calls, whose outcomes are taken as they come.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fiber_core::{Error, Result, block_on};
use futures_core::Stream;
use futures_util::stream::FuturesUnordered;

/// The outcomes of several calls, in the order in which they come: see [`as_completed`].
pub struct AsCompleted<C> {
    calls: FuturesUnordered<Numbered<C>>,
    /// The calls, if they are not known yet.
    later: Option<Pin<Box<dyn Future<Output = Vec<C>> + Send>>>,
}

/// Gives the outcomes of calls as they come, each with the place of its call.
///
/// Calls are whatever can be awaited: calls of a pool, futures of outputs, processes, replies of
/// actors. An outcome costs the same however many calls there are. Dropping
/// the rest cancels it as dropping its handles does.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::pool::as_completed;
///
/// let pool = fiber::Pool::new(2)?;
/// pool.wait_until_ready().wait()?;
/// let sleep = |ms: u64| {
///     std::thread::sleep(std::time::Duration::from_millis(ms));
///     ms
/// };
/// let calls = [200, 1].map(|ms| pool.apply(sleep, ms));
/// let mut order = Vec::new();
/// for (place, outcome) in as_completed(calls).wait() {
///     order.push((place, outcome?));
/// }
/// assert_eq!(order, [(1, 1), (0, 200)]);
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn as_completed<C: IntoFuture>(
    calls: impl IntoIterator<Item = C>,
) -> AsCompleted<C::IntoFuture> {
    let calls = calls.into_iter().map(C::into_future);
    AsCompleted { calls: calls.enumerate().map(Numbered::new).collect(), later: None }
}

/// Waits for the first outcome of several calls, and drops the others, which cancels them as
/// dropping their handles does.
///
/// # Errors
/// The error of the call; [`Error::Invalid`] if there is none.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::pool::first;
///
/// let pool = fiber::Pool::new(2)?;
/// let calls = [60_000, 1].map(|ms| {
///     pool.apply(|ms: u64| std::thread::sleep(std::time::Duration::from_millis(ms)), ms)
/// });
/// let (place, ()) = first(calls).wait()?;
/// assert_eq!(place, 1);
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn first<C, T>(calls: impl IntoIterator<Item = C>) -> First<C::IntoFuture>
where
    C: IntoFuture<Output = Result<T>>,
{
    First(Some(as_completed(calls)))
}

/// A call with its place among others.
struct Numbered<C> {
    place: usize,
    call: C,
}

impl<C> Numbered<C> {
    fn new((place, call): (usize, C)) -> Numbered<C> {
        Numbered { place, call }
    }
}

impl<C: Future + Unpin> Future for Numbered<C> {
    type Output = (usize, C::Output);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<(usize, C::Output)> {
        let place = self.place;
        Pin::new(&mut self.call).poll(context).map(|outcome| (place, outcome))
    }
}

impl<C: Future + Unpin> AsCompleted<C> {
    /// Returns the outcomes of calls that are known later.
    pub(super) fn later(calls: impl Future<Output = Vec<C>> + Send + 'static) -> AsCompleted<C> {
        AsCompleted { calls: FuturesUnordered::new(), later: Some(Box::pin(calls)) }
    }

    /// Blocks for each outcome, as an iterator.
    pub fn wait(self) -> CompletedIter<C> {
        CompletedIter(self)
    }
}

/// An iterator that blocks for outcomes: see [`AsCompleted::wait`].
pub struct CompletedIter<C>(AsCompleted<C>);

impl<C, T> Iterator for CompletedIter<C>
where
    C: Future<Output = Result<T>> + Unpin,
{
    type Item = (usize, Result<T>);

    /// On a thread that has to run for the calls, the next outcome is
    /// [`Error::WouldDeadlock`], and the last.
    fn next(&mut self) -> Option<(usize, Result<T>)> {
        let AsCompleted { calls, later } = &self.0;
        let place = match calls.iter().next() {
            Some(call) => call.place,
            None if later.is_some() => 0,
            None => return None,
        };
        let completed = &mut self.0;
        let next = poll_fn(|context| Pin::new(&mut *completed).poll_next(context).map(Ok));
        block_on(next).unwrap_or_else(|error| {
            self.0 = AsCompleted { calls: FuturesUnordered::new(), later: None };
            Some((place, Err(error)))
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<C> fmt::Debug for CompletedIter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<C: Future + Unpin> Stream for AsCompleted<C> {
    type Item = (usize, C::Output);

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<(usize, C::Output)>> {
        if let Some(later) = &mut self.later {
            let calls = ready!(later.as_mut().poll(context));
            self.later = None;
            self.calls.extend(calls.into_iter().enumerate().map(Numbered::new));
        }
        Pin::new(&mut self.calls).poll_next(context)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.calls.len(), self.later.is_none().then_some(self.calls.len()))
    }
}

impl<C> fmt::Debug for AsCompleted<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsCompleted({} left)", self.calls.len())
    }
}

/// A future of the first outcome of several calls: see [`first`].
#[must_use = "it waits with `.await` or `.wait()`"]
pub struct First<C>(Option<AsCompleted<C>>);

impl<C, T> First<C>
where
    C: Future<Output = Result<T>> + Unpin,
{
    /// Blocks until there is one.
    ///
    /// # Errors
    /// As [`first`], and [`Error::WouldDeadlock`] on a thread that has to run for it.
    pub fn wait(self) -> Result<(usize, T)> {
        block_on(self)
    }
}

impl<C, T> Future for First<C>
where
    C: Future<Output = Result<T>> + Unpin,
{
    type Output = Result<(usize, T)>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(usize, T)>> {
        let outcome = match &mut self.0 {
            Some(calls) => ready!(Pin::new(calls).poll_next(context)),
            None => None,
        };
        self.0 = None;
        Poll::Ready(match outcome {
            Some((place, outcome)) => outcome.map(|value| (place, value)),
            None => Err(Error::invalid("first", "there is no call whose outcome could come")),
        })
    }
}

impl<C> fmt::Debug for First<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("First")
    }
}
