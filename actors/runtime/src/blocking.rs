//! Blocking on futures and streams.

use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use fiber_core::{Error, Result, block_on, shortage, waiting_allowed};
use fiber_transport::BusyPoll;
use fiber_values::{BlockOn, Output, OutputCell};
use futures_core::Stream;
use futures_util::task::AtomicWaker;

use crate::tokio_runtime::new_runtime;

/// The exit code of a program that has no runtime for its async `main`.
const EXIT_NO_RUNTIME: i32 = 1;

/// Runs the futures of async tasks. The first such task creates the runtime.
#[derive(Default)]
pub struct BlockingRuntime(OnceCell<actix_rt::Runtime>);

impl BlockOn for BlockingRuntime {
    fn block_on(&self, future: Pin<&mut dyn Future<Output = ()>>) {
        // The panic fails one task.
        let fail =
            |error| panic!("there is no runtime for its future: {}", shortage::explain(&error));
        let runtime = self.0.get_or_init(|| new_runtime().map_or_else(fail, Into::into));
        runtime.block_on(spin_between_steps(future));
    }
}

/// Runs the body of an async `main` in an actix system on the main thread.
pub fn block_on_main<F: Future>(main: F) -> F::Output {
    let runtime = new_runtime().unwrap_or_else(|error| {
        eprintln!("fiber: there is no runtime for `main`: {}", shortage::explain(&error));
        std::process::exit(EXIT_NO_RUNTIME)
    });
    actix_rt::System::with_tokio_rt(|| runtime).block_on(spin_between_steps(main))
}

/// Runs `future`, and keeps the thread awake for a moment after each of its steps, because most
/// answers arrive soon.
async fn spin_between_steps<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut busy_poll = BusyPoll::default();
    let step = Arc::new(StepWaker { due: AtomicBool::new(true), outer: AtomicWaker::new() });
    let waker = Waker::from(Arc::clone(&step));
    poll_fn(|context| {
        step.outer.register(context.waker());
        if step.due.swap(false, Ordering::Acquire) {
            busy_poll.restart();
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(output);
            }
        }
        busy_poll.poll(context);
        Poll::Pending
    })
    .await
}

/// Records that the future was woken. The spinning thread polls the outer future in between.
struct StepWaker {
    due: AtomicBool,
    /// Wakes the outer future.
    outer: AtomicWaker,
}

impl Wake for StepWaker {
    fn wake(self: Arc<Self>) {
        self.due.store(true, Ordering::Release);
        self.outer.wake();
    }
}

/// An iterator over a stream of results, which blocks the thread until the next result arrives.
///
/// On fiber's own threads it gives one
/// [`Error::WouldDeadlock`] and ends.
///
/// # Examples
/// ```
/// # fiber::init();
/// let pool = fiber::Pool::new(2)?;
/// let mut squares = pool.imap(|x: u64| x * x, 0..).wait();
/// assert_eq!(squares.next().unwrap()?, 0);
/// assert_eq!(squares.next().unwrap()?, 1);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "an iterator is lazy, and dropping it drops the handle that it was made of"]
pub struct Blocking<S> {
    stream: S,
    refused: bool,
}

impl<S> Blocking<S> {
    #[doc(hidden)]
    pub fn new(stream: S) -> Blocking<S> {
        Blocking { stream, refused: false }
    }
}

/// Lets `for` loops take the results of a stream: of the handle, or of a reference to it.
#[doc(hidden)]
#[macro_export]
macro_rules! blocking_iterator {
    ($name:ident<$item:ident>) => {
        impl<$item: serde::de::DeserializeOwned> IntoIterator for $name<$item> {
            type Item = fiber_core::Result<$item>;
            type IntoIter = $crate::blocking::Blocking<$name<$item>>;

            /// Works as [`wait`](Self::wait).
            fn into_iter(self) -> Self::IntoIter {
                self.wait()
            }
        }

        impl<'a, $item: serde::de::DeserializeOwned> IntoIterator for &'a mut $name<$item> {
            type Item = fiber_core::Result<$item>;
            type IntoIter = $crate::blocking::Blocking<&'a mut $name<$item>>;

            /// Works as `wait`. The items that the loop did not take remain.
            fn into_iter(self) -> Self::IntoIter {
                $crate::blocking::Blocking::new(self)
            }
        }
    };
}
pub use crate::blocking_iterator;

/// An item of a stream that can be an error.
#[doc(hidden)]
pub trait FromError {
    /// Returns the item for an error.
    fn from_error(error: Error) -> Self;
}

impl<T> FromError for Result<T> {
    fn from_error(error: Error) -> Result<T> {
        Err(error)
    }
}

impl<T> FromError for Output<T> {
    fn from_error(error: Error) -> Output<T> {
        Output::of(OutputCell::filled(Err(error)))
    }
}

impl<S: Stream<Item: FromError> + Unpin> Iterator for Blocking<S> {
    type Item = S::Item;

    fn next(&mut self) -> Option<S::Item> {
        if self.refused {
            return None;
        }
        // Most results are there, and need no one to wake this thread.
        if waiting_allowed()
            && let Poll::Ready(next) =
                Pin::new(&mut self.stream).poll_next(&mut Context::from_waker(Waker::noop()))
        {
            return next;
        }
        let next = poll_fn(|context| Pin::new(&mut self.stream).poll_next(context).map(Ok));
        block_on(next).unwrap_or_else(|error| {
            self.refused = true;
            Some(S::Item::from_error(error))
        })
    }
}
