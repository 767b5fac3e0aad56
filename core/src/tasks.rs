//! Futures that run beside others on their thread, and the way to them from other threads.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::forks;

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

thread_local! {
    /// The relay to this thread, if it serves one.
    static RELAY: RefCell<Option<Arc<Relay>>> = const { RefCell::new(None) };
    /// Where that relay is. This value has no destructor, so that it lasts as long as the thread.
    static SERVED: Cell<*const Relay> = const { Cell::new(ptr::null()) };
}

/// Runs a future on the thread of the caller's `LocalSet` or arbiter.
///
/// tokio compiles 4,000 lines of LLVM IR for each type of future that is spawned. This function
/// spawns one type.
///
/// # Panics
/// As [`tokio::task::spawn_local`], without a `LocalSet` or an arbiter.
pub fn spawn_local(future: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    spawn_boxed(Box::pin(future))
}

fn spawn_boxed(future: LocalFuture) -> JoinHandle<()> {
    let relay = RELAY.with_borrow(Clone::clone);
    tokio::task::spawn_local(Reachable { future, relay, wakers: None })
}

/// The way from other threads to the futures of one thread.
///
/// tokio wakes a future of a `LocalSet` by means of a thread-local value. A thread that ends may
/// have lost it when it drops what its other thread-local values hold, handles among them, and
/// tokio panics then. So other threads leave here what is to be woken or run.
#[derive(Default)]
pub struct Relay(Mutex<Post>);

/// What other threads have left.
#[derive(Default)]
struct Post {
    arrived: Vec<Arrival>,
    /// Wakes the thread.
    thread: Option<Waker>,
    is_closed: bool,
}

enum Arrival {
    Woken(Arc<WakeByRelay>),
    Run(Box<dyn FnOnce() + Send>),
}

impl Relay {
    /// Runs a function on the thread of the relay. Drops it if the thread has ended, or if this
    /// process is a fork, which does not have that thread.
    pub fn run(&self, function: Box<dyn FnOnce() + Send>) {
        self.leave(Arrival::Run(function));
    }

    fn leave(&self, arrival: Arrival) {
        // Another thread of the original may have held the lock.
        if forks::is_forked() {
            return;
        }
        let mut post = self.0.lock();
        if post.is_closed {
            drop(post);
            return drop(arrival);
        }
        let is_first = post.arrived.is_empty();
        post.arrived.push(arrival);
        let thread = post.thread.clone().filter(|_| is_first);
        drop(post);
        if let Some(thread) = thread {
            thread.wake();
        }
    }

    /// Serves the relay on this thread until `end`. It has to be the thread's outermost future.
    pub async fn serve(self: Arc<Relay>, end: impl Future) {
        SERVED.set(Arc::as_ptr(&self));
        RELAY.set(Some(Arc::clone(&self)));
        let (mut end, mut taken) = (pin!(end), Vec::new());
        poll_fn(|context| {
            self.take(context, &mut taken);
            taken.drain(..).for_each(Arrival::arrive);
            end.as_mut().poll(context).map(drop)
        })
        .await;
        let left = {
            let mut post = self.0.lock();
            post.is_closed = true;
            std::mem::take(&mut post.arrived)
        };
        drop(left);
    }

    fn take(&self, context: &Context<'_>, taken: &mut Vec<Arrival>) {
        let mut post = self.0.lock();
        match &mut post.thread {
            Some(thread) => thread.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        std::mem::swap(&mut post.arrived, taken);
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relay")
    }
}

impl Arrival {
    fn arrive(self) {
        match self {
            Arrival::Woken(waker) => {
                waker.is_left.swap(false, Ordering::AcqRel);
                waker.task.wake_by_ref();
            }
            Arrival::Run(function) => function(),
        }
    }
}

/// A future that other threads wake by a relay, if its thread serves one.
struct Reachable {
    future: LocalFuture,
    relay: Option<Arc<Relay>>,
    /// The waker of the task, and the one that the future gets.
    wakers: Option<(Waker, Waker)>,
}

impl Future for Reachable {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Reachable { future, relay, wakers } = &mut *self;
        let Some(relay) = relay else { return future.as_mut().poll(context) };
        let known = wakers.take().filter(|(task, _)| task.will_wake(context.waker()));
        let (_, waker) = wakers.insert(known.unwrap_or_else(|| {
            let (task, is_left) = (context.waker().clone(), AtomicBool::new(false));
            let waker = WakeByRelay { relay: Arc::clone(relay), task: task.clone(), is_left };
            (task, Arc::new(waker).into())
        }));
        future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

struct WakeByRelay {
    relay: Arc<Relay>,
    task: Waker,
    /// Whether it waits at the relay.
    is_left: AtomicBool,
}

impl Wake for WakeByRelay {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if ptr::eq(SERVED.get(), Arc::as_ptr(&self.relay)) {
            self.task.wake_by_ref();
        } else if !self.is_left.swap(true, Ordering::AcqRel) {
            self.relay.leave(Arrival::Woken(Arc::clone(self)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::runtime::Builder;
    use tokio::sync::{mpsc, oneshot};
    use tokio::task::LocalSet;

    use super::*;

    /// Serves a relay while `use_it` runs on another thread.
    fn serve(use_it: impl FnOnce(Arc<Relay>) + Send + 'static) {
        let relay = Arc::new(Relay::default());
        let served = Arc::clone(&relay);
        let (over, end) = oneshot::channel::<()>();
        let user = thread::spawn(move || {
            use_it(relay);
            drop(over);
        });
        let runtime = Builder::new_current_thread().build().unwrap();
        LocalSet::new().block_on(&runtime, served.serve(end));
        user.join().unwrap();
    }

    #[test]
    fn functions_run_and_futures_are_woken_in_order() {
        serve(|relay| {
            let (send, mut receive) = mpsc::unbounded_channel();
            let (echo, echoed) = std::sync::mpsc::channel();
            relay.run(Box::new(move || {
                spawn_local(async move {
                    while let Some(number) = receive.recv().await {
                        echo.send(number).unwrap();
                    }
                });
            }));
            (0..1000).for_each(|number| send.send(number).unwrap());
            drop(send);
            assert!(echoed.into_iter().eq(0..1000));
        });
    }

    #[test]
    fn a_thread_without_thread_local_values_of_tokio_wakes_a_future() {
        struct Sends(mpsc::UnboundedSender<()>);
        impl Drop for Sends {
            fn drop(&mut self) {
                self.0.send(()).unwrap();
            }
        }
        thread_local!(static KEPT: RefCell<Option<Sends>> = const { RefCell::new(None) });
        serve(|relay| {
            let (send, mut receive) = mpsc::unbounded_channel();
            let (done, is_done) = std::sync::mpsc::channel();
            relay.run(Box::new(move || {
                spawn_local(async move {
                    receive.recv().await.unwrap();
                    done.send(()).unwrap();
                });
            }));
            let ends = thread::spawn(|| {
                KEPT.set(Some(Sends(send)));
                // The thread has tokio's value after its own, and loses it before that.
                drop(LocalSet::new().enter());
            });
            ends.join().unwrap();
            is_done.recv().unwrap();
        });
    }

    #[test]
    fn what_comes_after_the_end_is_dropped() {
        let relay = Arc::new(Relay::default());
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(Arc::clone(&relay).serve(async {}));
        let (send, receive) = std::sync::mpsc::channel::<()>();
        relay.run(Box::new(move || send.send(()).unwrap()));
        assert!(receive.recv().is_err());
    }
}
