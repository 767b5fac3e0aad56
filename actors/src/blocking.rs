//! Futures and streams run to their end on a thread that waits for them.

use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use fiber_core::{BlockOn, Result, block_on, shortage};
use fiber_transport::BusyPoll;
use futures_core::Stream;
use futures_util::task::AtomicWaker;

use crate::tokio_runtime::new_runtime;

/// The exit code of a program whose async `main` could not begin.
const EXIT_NO_RUNTIME: i32 = 1;

/// Runs the futures of tasks. The runtime is made when a task first needs it.
#[derive(Default)]
pub(crate) struct BlockingRuntime(OnceCell<actix_rt::Runtime>);

impl BlockOn for BlockingRuntime {
    fn block_on(&self, future: Pin<&mut dyn Future<Output = ()>>) {
        // A panic here is the failure of one task.
        let refused =
            |error| panic!("there is no runtime for its future: {}", shortage::explain(&error));
        let runtime = self.0.get_or_init(|| new_runtime().map_or_else(refused, Into::into));
        runtime.block_on(lingering(future));
    }
}

/// Runs the body of an async `main` in an actix system of the main thread.
pub fn block_on_main<F: Future>(main: F) -> F::Output {
    let runtime = new_runtime().unwrap_or_else(|error| {
        eprintln!("fiber: there is no runtime for `main`: {}", shortage::explain(&error));
        std::process::exit(EXIT_NO_RUNTIME)
    });
    actix_rt::System::with_tokio_rt(|| runtime).block_on(lingering(main))
}

/// As `future`, but for a moment after each of its steps the thread stays awake: most answers come
/// soon.
async fn lingering<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut busy_poll = BusyPoll::default();
    let step = Arc::new(Step { due: AtomicBool::new(true), runner: AtomicWaker::new() });
    let waker = Waker::from(Arc::clone(&step));
    poll_fn(|context| {
        step.runner.register(context.waker());
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

/// A future's next step: not each turn of the runtime is one.
struct Step {
    due: AtomicBool,
    runner: AtomicWaker,
}

impl Wake for Step {
    fn wake(self: Arc<Self>) {
        self.due.store(true, Ordering::Release);
        self.runner.wake();
    }
}

/// A stream of results as an iterator, which blocks the thread while the next is not there.
///
/// On fiber's own threads it gives [`Error::WouldDeadlock`](fiber_core::Error::WouldDeadlock), and
/// then ends.
#[derive(Debug)]
#[must_use = "an iterator takes nothing before it is asked to; dropping it drops the handle that it was made of"]
pub struct Blocking<S> {
    stream: S,
    refused: bool,
}

impl<S> Blocking<S> {
    pub(crate) fn new(stream: S) -> Blocking<S> {
        Blocking { stream, refused: false }
    }
}

impl<T, S: Stream<Item = Result<T>> + Unpin> Iterator for Blocking<S> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if self.refused {
            return None;
        }
        let next = poll_fn(|context| Pin::new(&mut self.stream).poll_next(context).map(Ok));
        block_on(next).unwrap_or_else(|error| {
            self.refused = true;
            Some(Err(error))
        })
    }
}
