//! Waiting for a future without a runtime.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::task::unconstrained;

use crate::error::{Error, Result};
use crate::forks;
use crate::spin::Spin;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread is within [`block_on`].
    static BLOCKED: Cell<bool> = const { Cell::new(false) };
    /// The sleeper of this thread's next wait. A wait for a result that is there takes less time
    /// than to make one.
    static SLEEPER: Cell<Option<(Arc<Sleeper>, Waker)>> = const { Cell::new(None) };
}

/// Forbids waiting on this thread, because it does the work that other threads wait for.
pub fn forbid_waiting() {
    FORBIDDEN.set(true);
}

/// Returns whether this thread may wait.
pub fn waiting_allowed() -> bool {
    !FORBIDDEN.get()
}

/// Returns whether [`block_on`] polls on this thread. What it waits for must not need the thread.
pub fn is_blocked() -> bool {
    BLOCKED.get()
}

/// The longest time that is added to another. No clock reaches `Duration::MAX`.
pub const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Returns the time after `limit`, or after a [`CENTURY`].
pub fn deadline_after(limit: Duration) -> Instant {
    Instant::now() + limit.min(CENTURY)
}

/// Blocks this thread until `future` is ready.
///
/// # Errors
/// [`Error::WouldDeadlock`] on fiber's own threads; [`Error::Forked`]; else the future's error. A
/// future can tell by [`is_blocked`] whether it waits for what this thread has to do.
pub fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    if !waiting_allowed() {
        return Err(Error::WouldDeadlock);
    }
    forks::check()?;
    // A thread that ends has no sleeper any more, and a wait within a wait takes a new one.
    let kept = SLEEPER.try_with(Cell::take).ok().flatten();
    let (sleeper, waker) = kept.unwrap_or_else(Sleeper::new);
    let mut context = Context::from_waker(&waker);
    // A future of tokio may be on this thread's stack. Its budget would never be filled up again.
    #[cfg(feature = "simulation")]
    let future = crate::simulation::until_death(future);
    let mut future = pin!(unconstrained(future));
    let blocked = Blocked(BLOCKED.replace(true));
    let result = loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            break result;
        }
        sleeper.sleep();
    };
    drop(blocked);
    // A late wake-up of this wait makes the next one poll once more.
    let _ = SLEEPER.try_with(|kept| kept.set(Some((sleeper, waker))));
    result
}

/// A thread within [`block_on`], which ends also by a panic of the future.
struct Blocked(bool);

impl Drop for Blocked {
    fn drop(&mut self) {
        BLOCKED.set(self.0);
    }
}

/// A waiting thread, and whether it was woken.
struct Sleeper {
    thread: Thread,
    woken: AtomicBool,
}

impl Sleeper {
    fn new() -> (Arc<Sleeper>, Waker) {
        let woken = AtomicBool::new(false);
        let sleeper = Arc::new(Sleeper { thread: thread::current(), woken });
        let waker = Waker::from(Arc::clone(&sleeper));
        (sleeper, waker)
    }

    /// Waits until the thread is woken. Returns at once if it was woken since the last call.
    fn sleep(&self) {
        let mut spin = Spin::default();
        while !self.woken.swap(false, Ordering::Acquire) {
            if spin.should_continue() {
                spin.yield_core();
            } else {
                // The thread's token keeps a wake-up that comes between the check and this call.
                thread::park();
            }
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Waits until the parent kills this process.
pub fn wait_for_kill() -> ! {
    loop {
        #[cfg(feature = "simulation")]
        if let Some(world) = crate::simulation::world() {
            crate::simulation::wait_for_kill(world);
        }
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Returns after another thread has woken the one that waits.
    fn woken_by_another_thread() -> Result<u32> {
        let mut polls = 0;
        block_on(poll_fn(move |context| {
            polls += 1;
            if polls > 1 {
                return Poll::Ready(Ok(polls));
            }
            let waker = context.waker().clone();
            thread::spawn(move || waker.wake());
            Poll::Pending
        }))
    }

    #[test]
    fn waits_follow_each_other_and_nest() {
        for _ in 0..100 {
            assert!(woken_by_another_thread().unwrap() > 1);
            let nested = block_on(async {
                let inner = woken_by_another_thread()?;
                block_on(async { Ok(inner) })
            });
            assert!(nested.unwrap() > 1);
        }
        assert!(block_on(async { Err::<(), _>(Error::WouldDeadlock) }).is_err());
    }

    #[test]
    fn a_late_wake_up_ends_no_later_wait() {
        let mut late = None;
        block_on(poll_fn(|context| {
            late = Some(context.waker().clone());
            Poll::Ready(Ok(()))
        }))
        .unwrap();
        late.take().unwrap().wake();
        let (send, receive) = std::sync::mpsc::channel();
        let mut sent = Some(send);
        let value = block_on(poll_fn(|context| {
            if let Some(send) = sent.take() {
                let waker = context.waker().clone();
                thread::spawn(move || {
                    send.send(5).unwrap();
                    waker.wake();
                });
            }
            receive.try_recv().map_or(Poll::Pending, |value| Poll::Ready(Ok(value)))
        }));
        assert_eq!(value.unwrap(), 5);
    }

    #[test]
    fn a_thread_that_ends_can_wait() {
        struct WaitsAtTheEnd;
        impl Drop for WaitsAtTheEnd {
            fn drop(&mut self) {
                assert!(woken_by_another_thread().unwrap() > 1);
            }
        }
        thread_local!(static LAST: Cell<Option<WaitsAtTheEnd>> = const { Cell::new(None) });
        let ends = thread::spawn(|| {
            LAST.set(Some(WaitsAtTheEnd));
            woken_by_another_thread().unwrap()
        });
        assert!(ends.join().unwrap() > 1);
    }

    #[test]
    fn a_future_of_tokio_waits_for_as_many_answers_as_it_likes_in_one_step() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let waits = || {
            for number in 0..1000 {
                let (answer, answered) = tokio::sync::oneshot::channel();
                answer.send(number).unwrap();
                let waited = block_on(async { Ok(answered.await) });
                assert_eq!(waited.unwrap(), Ok(number));
            }
        };
        runtime.block_on(async { waits() });
    }
}
